# SPDX-License-Identifier: Apache-2.0
"""Metrics as Prometheus reads them: the text exposition format. Pure.

But for :func:`write`, which puts them where the node_exporter looks.
"""

from collections.abc import Iterable
import dataclasses
import os
import tempfile

CONTENT_TYPE = 'text/plain; version=0.0.4'


@dataclasses.dataclass(frozen=True)
class Metric:
    """What is measured.

    :param labels: their names, besides those that all have
    :param kind: gauge or counter
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = 'gauge'


@dataclasses.dataclass
class Family:
    """A metric with all of its values.

    :param samples: (labels, value)
    """

    metric: Metric
    samples: list[tuple[dict[str, str], float]] = dataclasses.field(
        default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """Another value.

        :raises ValueError: if the labels are not those of the metric
        """
        if set(labels) != set(self.metric.labels):
            raise ValueError('%s has no labels %s' % (
                self.metric.name, sorted(labels)))
        self.samples.append((
            {name: labels[name] for name in self.metric.labels},
            float(value)))


def render(families: Iterable[Family], **common: str) -> str:
    """The text of some metrics; those without a value are left out.

    :param common: labels that all values get
    """
    lines = []
    for family in families:
        if family.samples:
            lines += ['# HELP %s %s' % (family.metric.name, _escape(
                family.metric.help)), '# TYPE %s %s' % (
                    family.metric.name, family.metric.kind)]
        lines += ['%s{%s} %s' % (
            family.metric.name, ','.join(
                '%s="%s"' % (name, _escape(text).replace('"', '\\"'))
                for name, text in {**common, **labels}.items()),
            number(value)) for labels, value in family.samples]
    return ''.join(line + '\n' for line in lines)


def number(value: float) -> str:
    """A value: whole ones without a point."""
    return '%d' % value if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace('\\', '\\\\').replace('\n', '\\n')


def write(path: str, text: str) -> None:
    """Replace a file; who reads it sees the old or the new one, whole."""
    directory, name = os.path.split(os.path.abspath(path))
    # The node_exporter takes *.prom only.
    descriptor, temporary = tempfile.mkstemp(
        prefix='.%s.' % name, suffix='.tmp', dir=directory)
    try:
        with open(descriptor, 'w') as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
