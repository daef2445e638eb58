# SPDX-License-Identifier: Apache-2.0
"""Metrics, alerts and lines of the log as tables in reStructuredText.

From the code, and from the file with the alerts, which is what is installed.
"""

import pathlib

import yaml

import list_table

from cinder_localclone.cmd.metrics import figures
from cinder_localclone.core import events
from cinder_localclone.service import notifications

RULES = (pathlib.Path(__file__).parents[3]
         / 'etc/prometheus/localclone.rules.yaml')


def _table(widths, header, rows) -> list[str]:
    return list_table.rst([header, *rows], widths=widths)


def metrics() -> list[str]:
    return _table('38 22 40', ('metric', 'labels', 'what it says'), (
        ('``%s``' % metric.name,
         ', '.join('``%s``' % label for label in metric.labels) or '\\ ',
         metric.help) for metric in figures.METRICS.values()))


def alerts() -> list[str]:
    rules = [rule for group in yaml.safe_load(RULES.read_text())['groups']
             for rule in group['rules']]
    return _table('28 12 60', ('alert', 'severity', 'what to do'), (
        ('``%s``' % rule['alert'].removeprefix('Localclone'),
         rule['labels']['severity'], rule['annotations']['description'].
         replace('{{ $labels.volume }}', 'VOLUME')) for rule in rules))


def log_lines() -> list[str]:
    told = {event: notifications.event_type(milestone)
            for milestone, event in notifications.LINES.items()}
    return _table('18 24 10 48', ('id', 'counted as', 'level', 'text'), (
        ('``%s``' % event.id, '``%s``' % event.name, event.level,
         '``%s``%s' % (event.text, '; notification ``%s``' % told[event]
                       if event in told else ''))
        for event in events.all_events()))
