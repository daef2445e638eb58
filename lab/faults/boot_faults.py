# SPDX-License-Identifier: Apache-2.0
"""A node boots, and nothing has activated its logical volumes."""

import contextlib

from lab.core import process
from lab.faults.scenario import fault
from lab.scenarios.requests import must

#: The group of the stock backend, which has no thin pool.
_THICK = 'stock-volumes'
_BOOT = '''
echo 'activation { auto_activation_volume_list = [] }' >>/etc/lvm/lvmlocal.conf
vgchange -q -an %s
'''


def _active(node, group):
    """The volumes' LVs of a group that have a device."""
    return node.run(
        'lvs --noheadings -o lv_name -S "lv_active=active && '
        '(lv_name=~^volume- || lv_name=~^localclone-)" ' + group
    ).stdout.split()


def _boot_inactive(scenario, node, group='cinder-volumes'):
    """As if LVM were configured to activate nothing at boot."""
    node.power_on()
    node.run(_BOOT % group)
    must(not _active(node, group), 'active: %s' % _active(node, group))
    node.service('start')
    node.wait_service()


@fault('nothing is activated at boot')
def in_a_move(scenario):
    scenario.start_slow()
    both = scenario.source, scenario.destination
    for node in both:
        scenario.cut(node)
    for node in both:
        _boot_inactive(scenario, node)
    scenario.readable_again()
    scenario.go_on()


@fault('nothing is activated at boot, at rest')
def at_rest(scenario):
    disk, node = scenario.disk, scenario.source
    disk.attach(node)
    disk.start(node)
    disk.check_running()
    scenario.cut(node)
    _boot_inactive(scenario, node)
    scenario.lost_power.clear()  # the operation begins now
    process.wait_for('the handle', lambda: disk.has_path(node), 60, every=1)
    disk.verify(node)
    disk.detach(node)
    scenario.start()


@fault('LVs are skipped at boot (lvchange -ky)')
def skipped(scenario):
    """Each LV of the move says so itself."""
    scenario.start_slow()
    record, _token, _where = scenario.record()
    lvs = {scenario.source: {'volume-' + scenario.disk.volume},
           scenario.destination: {'volume-' + record,
                                  'localclone-meta-' + record}}
    for node, names in lvs.items():
        node.run('lvchange -q -ky %s && sync /dev/vda' % ' '.join(
            'cinder-volumes/' + name for name in sorted(names)))
        scenario.cut(node)
    for node, names in lvs.items():
        node.power_on()
        must(not names & set(_active(node, 'cinder-volumes')),
             'LVs are active')
        node.service('start')
        node.wait_service()
    scenario.go_on()


# -- thick LVs


@contextlib.contextmanager
def _thick(scenario):
    """Both backends have thick volumes in another group."""
    lab = scenario.environment.lab
    options = lab.settings['options']
    lab.settings['options'] = dict(
        options, volume_group=_THICK, lvm_type='default')
    try:
        _restart(scenario)
        yield
    finally:
        lab.settings['options'] = options
        scenario.environment.heal()
        _restart(scenario)


def _restart(scenario):
    lab = scenario.environment.lab
    for node in lab.nodes.values():
        lab.write_service_config(node)
        scenario.restart(node)
    lab.wait_for_services()


@fault('nothing is activated at boot, thick')
def thick(scenario):
    """In a move, and before the delete of a volume that is to be cleared."""
    with _thick(scenario):
        disk, node = scenario.fresh(scenario.source), scenario.destination
        move = scenario.another(disk)
        move.start_slow()
        both = scenario.source, node
        for each in both:
            move.cut(each)
        for each in both:
            _boot_inactive(move, each, _THICK)
        move.readable_again()
        move.go_on()
        move.operation.settle(move.lost_power)
        disk.detach(node)
        disk.verify(node)
        scenario.environment.power_cut([node])
        _boot_inactive(move, node, _THICK)
        disk.remove()
        for each in both:  # what has gone is overwritten afterwards
            process.wait_for('%s to have no LV' % each.name,
                             lambda each=each: not _left(each), 120, every=2)


def _left(node):
    return node.run('lvs --noheadings -o lv_name %s; ls -d /dev/%s/* '
                    '2>/dev/null' % (_THICK, _THICK),
                    check=False).stdout.strip()
