# SPDX-License-Identifier: Apache-2.0
"""A volume moves away, and home again."""

import time

from lab.core import instance as instances
from lab.core import look


def show(lab, report, volume, node, peer):
    """What a guest wrote to a volume is right on each node, in turn.

    :param report: a :class:`lab.core.report.Report`
    :param node: the home of the volume
    """
    instance = instances.Instance(lab)
    attached = instance.attach(volume, node)
    writer = attached.start_writing(seconds=10)
    writer.wait(60)
    attached.detach()
    for each in (peer, node):
        began = time.monotonic()
        attached = instance.attach(volume, each)
        verdict = attached.verify(writer.stdout)
        report.check('right on ' + each.name, verdict.endswith(' 0 bad'),
                     verdict)
        look.wait_moved(lab, volume)
        report.step('moved to ' + each.name, time.monotonic() - began)
        attached.detach()
