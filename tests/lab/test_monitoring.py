# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alerts show what the exporter has, and no more."""

import json
import pathlib
import re
import shutil
import subprocess
import tomllib
from unittest import mock

import testtools
import yaml

from cinder_localclone.cmd.metrics import command
from cinder_localclone.cmd.metrics import figures
from cinder_localclone.core import events

ROOT = pathlib.Path(__file__).parents[2]
DASHBOARD = ROOT / 'etc/grafana/localclone.json'
RULES = ROOT / 'etc/prometheus/localclone.rules.yaml'
UNIT = ROOT / 'etc/systemd/cinder-localclone-metrics.service'
DURATION = re.compile(r'\d+[smhd]')
#: What a value may be of, where a query asks for certain ones.
VALUES = {
    'phase': set(figures.PHASES), 'verdict': set(figures.VERDICTS),
    'state': {'running', 'waiting', 'stalled', 'paused'},
    'what': {'volumes', 'metadata', 'data'},
    'event': {each.name for each in events.all_events()}}


def names(query):
    """The metrics in a query."""
    return set(re.findall(r'\blocalclone_[a-z_]+', query))


def selectors(query):
    """(metric, label, values) for each thing that a query asks for."""
    for name, inside in re.findall(
            r'\b(localclone_[a-z_]+)\{([^}]*)\}', query):
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', inside):
            yield name, label, values


class Case(testtools.TestCase):

    def assert_can_be_asked(self, query):
        """All of its metrics, labels and values are there."""
        self.assertTrue(names(query), query)
        self.assertEqual(set(), names(query) - set(figures.METRICS), query)
        for name, label, values in selectors(query):
            self.assertIn(label, (
                'backend', 'host', *figures.METRICS[name].labels), query)
            if label in VALUES and '$' not in values:
                self.assertEqual(
                    set(), set(values.split('|')) - VALUES[label], query)
        grouped = re.findall(r'\bby \(([^)]*)\)', query)
        known = {'backend', 'host', 'event'}.union(
            *(figures.METRICS[name].labels for name in names(query)))
        for labels in grouped:
            self.assertEqual(set(), set(labels.split(', ')) - known, query)


class RulesTest(Case):

    def setUp(self):
        super().setUp()
        self.groups = yaml.safe_load(RULES.read_text())['groups']
        self.rules = [rule for group in self.groups
                      for rule in group['rules']]

    def test_schema(self):
        for group in self.groups:
            self.assertEqual({'name', 'rules'}, set(group))
        for rule in self.rules:
            self.assertLessEqual({'alert', 'expr', 'labels', 'annotations'},
                                 set(rule))
            self.assertLessEqual(set(rule), {
                'alert', 'expr', 'for', 'labels', 'annotations'})
            self.assertRegex(rule['alert'], '^Localclone[A-Za-z]+$')
            self.assertTrue(DURATION.fullmatch(rule.get('for', '1m')))
            self.assertIn(rule['labels']['severity'],
                          ('info', 'warning', 'critical'))
            self.assertEqual({'summary', 'description'},
                             set(rule['annotations']))
        alerts = [rule['alert'] for rule in self.rules]
        self.assertEqual(len(set(alerts)), len(alerts))

    def test_what_they_ask_for_is_there(self):
        for rule in self.rules:
            self.assert_can_be_asked(rule['expr'])

    def test_texts_name_labels_that_are_left(self):
        for rule in self.rules:
            by = re.search(r'^(?:min|max|sum) by \(([^)]*)\)', rule['expr'])
            first = figures.METRICS[min(
                names(rule['expr']), key=rule['expr'].index)]
            left = set(by.group(1).split(', ')) if by else {
                'backend', 'host', *first.labels}
            for text in rule['annotations'].values():
                self.assertEqual(set(), set(re.findall(
                    r'\$labels\.(\w+)', text)) - left, rule['alert'])

    def test_promtool_takes_them(self):
        promtool = shutil.which('promtool')
        if promtool:
            done = subprocess.run(
                [promtool, 'check', 'rules', RULES], capture_output=True,
                text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)


class DashboardTest(Case):

    def setUp(self):
        super().setUp()
        self.dashboard = json.loads(DASHBOARD.read_text())
        self.panels = [panel for panel in self.dashboard['panels']
                       if panel['type'] != 'row']

    def queries(self):
        return [target['expr'] for panel in self.panels
                for target in panel['targets']]

    def test_what_it_asks_for_is_there(self):
        for query in self.queries():
            self.assert_can_be_asked(query)

    def test_every_metric_is_on_it(self):
        self.assertEqual(set(), set(figures.METRICS) - set().union(
            *map(names, self.queries())))

    def test_labels_in_legends_are_there(self):
        for panel in self.panels:
            for target in panel['targets']:
                labels = {'backend', 'host'}.union(*(
                    figures.METRICS[name].labels
                    for name in names(target['expr'])))
                self.assertEqual(set(), set(re.findall(
                    r'\{\{(\w+)\}\}', target['legendFormat'])) - labels)

    def test_schema(self):
        for key in ('title', 'uid', 'schemaVersion', 'templating', 'panels'):
            self.assertIn(key, self.dashboard)
        ids = [panel['id'] for panel in self.dashboard['panels']]
        self.assertEqual(len(set(ids)), len(ids))
        variables = [each['name']
                     for each in self.dashboard['templating']['list']]
        self.assertEqual(['datasource', 'backend', 'host'], variables)
        for panel in self.panels:
            self.assertIn(panel['type'], ('stat', 'table', 'timeseries'))
            self.assertEqual('${datasource}', panel['datasource']['uid'])
            refs = [target['refId'] for target in panel['targets']]
            self.assertEqual(len(set(refs)), len(refs))

    def test_nothing_covers_anything_else(self):
        taken = set()
        for panel in self.dashboard['panels']:
            at = panel['gridPos']
            own = {(x, y) for x in range(at['x'], at['x'] + at['w'])
                   for y in range(at['y'], at['y'] + at['h'])}
            self.assertFalse(own & taken, panel['title'])
            self.assertLessEqual(at['x'] + at['w'], 24)
            taken |= own


class ScrapeTest(testtools.TestCase):

    def test_a_source_that_hangs_costs_no_scrape(self):
        """Prometheus gives up before nothing but what hangs is left out."""
        page = (ROOT / 'doc/source/operate/monitoring.rst').read_text()
        block = re.search(r'scrape_configs:\n(?: {5,}.*\n)+', page).group()
        job, = yaml.safe_load(block)['scrape_configs']
        seconds = command.Metrics(mock.Mock(), None).get_parser(
            'metrics').get_default('seconds')
        # What Prometheus has if it is not told.
        limit = job.get('scrape_timeout', '10s')
        self.assertLess(seconds, int(limit.removesuffix('s')))


class PackagingTest(testtools.TestCase):

    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())

    def test_all_are_installed(self):
        installed = [path for paths in self.settings['tool']['setuptools'][
            'data-files'].values() for path in paths]
        for path in (DASHBOARD, RULES, UNIT):
            self.assertIn(str(path.relative_to(ROOT)), installed)

    def test_systemd_takes_the_units(self):
        verify = shutil.which('systemd-analyze')
        if verify:
            done = subprocess.run(
                [verify, 'verify', '--man=no', *UNIT.parent.iterdir()],
                capture_output=True, text=True, timeout=60)
            self.assertEqual((0, ''), (
                done.returncode, done.stdout + done.stderr))
