# SPDX-License-Identifier: Apache-2.0
"""rtslib on a kernel of lists: what the driver uses of it, no more.

It refuses what rtslib, or the kernel below it, refuses.
"""

import functools
import os
import re
import shutil
import types


class RTSLibError(Exception):
    pass


class RTSLibNotInCFSError(RTSLibError):
    pass


class Lio:
    """The kernel's target, and a module to put in the place of rtslib_fb.

    :ivar refuses: the name of the step that the kernel refuses, and how often
    :ivar refusal: what is raised then, by the step's name
    :ivar steps: all steps that changed something, in order
    """

    def __init__(self):
        self.targets: list = []
        self.stores: list = []
        self.steps: list = []
        self.refuses = {}
        self.refusal = lambda name: RTSLibError('%s: Invalid argument' % name)
        lio = self

        class Named:
            def __setattr__(self, name, value):
                if not name.startswith('_') and name in self._checked:
                    lio._step(name if value else 'not ' + name)
                super().__setattr__(name, value)
            _checked: tuple[str, ...] = ()

        class FabricModule:
            def __init__(self, name):
                if name != 'iscsi':
                    raise KeyError(name)

        class BlockStorageObject(Named):
            def __new__(cls, name, dev=None, wwn=None, readonly=False):
                if dev is not None:
                    return super().__new__(cls)
                lio._require(
                    not set(lio.rtslib.tcm.bs_cache).difference(
                        each.name for each in lio.stores),
                    'what is remembered has gone')
                return lio._find(each for each in lio.stores
                                 if each.name == name)

            def __init__(self, name, dev=None, wwn=None, readonly=False):
                if dev is None:
                    return
                lio._step('store')
                lio._require(not any(name == each.name or dev ==
                                     each.udev_path for each in lio.stores),
                             'device is in use')
                self.name, self.udev_path, self._wwn = name, dev, wwn
                self.readonly, self.configured = readonly, True
                self.attributes = {'emulate_tpu': '0'}
                lio.stores.append(self)

            def is_configured(self):
                return self.configured

            @property
            def wwn(self):
                lio._require(self.configured, 'unconfigured')
                return self._wwn

            def set_attribute(self, name, value):
                lio._step(name)
                self.attributes[name] = value

            def get_attribute(self, name):
                return self.attributes[name]

            @property
            def attached_luns(self):
                return (lun for target in lio.targets for tpg in target.tpgs
                        for lun in tpg.luns if lun.storage_object is self)

            def delete(self):
                lio._step('delete store')
                for target in lio.targets:
                    for tpg in target.tpgs:
                        tpg.luns = [lun for lun in tpg.luns
                                    if lun.storage_object is not self]
                lio.stores.remove(self)

        class Target(Named):
            def __new__(cls, fabric, wwn, mode='any'):
                lio._require(wwn.startswith('iqn.'), 'WWN not valid')
                if mode != 'lookup':
                    return super().__new__(cls)
                return lio._find(each for each in lio.targets
                                 if each.wwn == wwn)

            def __init__(self, fabric, wwn, mode='any'):
                if mode == 'lookup':
                    return
                lio._step('target')
                lio._require(isinstance(fabric, FabricModule), 'no fabric')
                lio._require(not any(wwn == each.wwn for each in lio.targets),
                             'target exists')
                self.wwn, self.tpgs = wwn, []
                lio.targets.append(self)

            def delete(self):
                lio._step('delete target')
                lio.targets.remove(self)

        class TPG(Named):
            _checked = ('enable',)

            def __init__(self, target, tag):
                lio._step('tpg')
                lio._require(isinstance(target, Target), 'no target')
                self.parent_target = target
                self.tag, self.luns, self.node_acls = tag, [], []
                self.portals, self.attributes = [], {}
                object.__setattr__(self, 'enable', False)
                target.tpgs.append(self)

            @property
            def network_portals(self):
                return [
                    types.SimpleNamespace(
                        ip_address=each[0], port=each[1],
                        delete=functools.partial(self._delete_portal, each))
                    for each in self.portals]

            def _delete_portal(self, portal):
                lio._step('delete portal')
                self.portals.remove(portal)

            def set_attribute(self, name, value):
                lio._step(name)
                self.attributes[name] = value

        class LUN:
            def __init__(self, tpg, number, storage_object):
                lio._step('lun')
                lio._require(storage_object in lio.stores, 'no store')
                self.parent_tpg = tpg
                self.number, self.storage_object = number, storage_object
                tpg.luns.append(self)

        class NodeACL(Named):
            _checked = ('chap_userid', 'chap_password')

            def __init__(self, tpg, wwn):
                lio._step('acl')
                self.parent_tpg = tpg
                # As utils.normalize_wwn has it.
                self.node_wwn, self.mapped_luns = wwn.lower(), []
                tpg.node_acls.append(self)

        class MappedLUN:
            def __init__(self, acl, number, lun, write_protect):
                lio._step('mapped lun')
                lio._require(lun in acl.parent_tpg.luns, 'no such LUN')
                self.number, self.lun = number, lun
                self.write_protect = write_protect
                acl.mapped_luns.append(self)

        class NetworkPortal:
            def __init__(self, tpg, address, port):
                lio._step('portal')
                # The kernel takes IPv6 in one pair of brackets only.
                lio._require(':' not in address
                             or re.fullmatch(r'\[[0-9a-f:.]+\]', address),
                             'Could not create NetworkPortal in configFS')
                tpg.portals.append((address, port))

        self.rtslib = types.SimpleNamespace(
            RTSLibError=RTSLibError,
            RTSLibNotInCFSError=RTSLibNotInCFSError, Target=Target,
            TPG=TPG, LUN=LUN, NodeACL=NodeACL, MappedLUN=MappedLUN,
            NetworkPortal=NetworkPortal, FabricModule=FabricModule,
            BlockStorageObject=BlockStorageObject,
            tcm=types.SimpleNamespace(bs_cache={}))

    def show(self, root):
        """What configfs has of it, in files.

        :param root: a directory (pathlib); what is there goes
        """
        shutil.rmtree(root, ignore_errors=True)
        for number, store in enumerate(self.stores):
            where = root / 'core' / ('iblock_%d' % number) / store.name
            _write(where, {
                'enable': store.configured, 'udev_path': store.udev_path,
                'wwn/vpd_unit_serial':
                    'T10 VPD Unit Serial Number: ' + store._wwn,
                'attrib/emulate_tpu': store.attributes['emulate_tpu']})
            store.shown = where
        for target in self.targets:
            _write(root / 'iscsi' / target.wwn, {'fabric_statistics/x': ''})
            for tpg in target.tpgs:
                self._show_group(
                    root / 'iscsi' / target.wwn / ('tpgt_%d' % tpg.tag), tpg)

    @staticmethod
    def _show_group(where, tpg):
        _write(where, {'enable': tpg.enable})
        for name in ('lun', 'acls', 'np'):
            (where / name).mkdir()
        for portal in tpg.portals:
            (where / 'np' / ('%s:%d' % portal)).mkdir()
        for lun in tpg.luns:
            lun.shown = where / 'lun' / ('lun_%d' % lun.number)
            _write(lun.shown, {'statistics/x': '', 'alua_tg_pt_gp': ''})
            _link(lun.shown, lun.storage_object.shown)
        for acl in tpg.node_acls:
            _write(where / 'acls' / acl.node_wwn, {
                'auth/userid': getattr(acl, 'chap_userid', ''), 'tag': '',
                'auth/password': getattr(acl, 'chap_password', '')})
            for mapped in acl.mapped_luns:
                path = where / 'acls' / acl.node_wwn / (
                    'lun_%d' % mapped.number)
                _write(path, {'write_protect': mapped.write_protect,
                              'statistics/x': ''})
                if mapped.lun in tpg.luns:
                    _link(path, mapped.lun.shown)

    @staticmethod
    def _find(found):
        for each in found:
            return each
        raise RTSLibNotInCFSError()

    def _step(self, name):
        if self.refuses.get(name):
            self.refuses[name] -= 1
            raise self.refusal(name)
        self.steps.append(name)

    @staticmethod
    def _require(true, what):
        if not true:
            raise RTSLibError(what)


def _write(where, values):
    for name, value in values.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('%s\n' % (int(value) if isinstance(value, bool)
                                  else value))


def _link(where, to):
    (where / '0123456789').symlink_to(os.path.relpath(to, where))
