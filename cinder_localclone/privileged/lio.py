# SPDX-License-Identifier: Apache-2.0
"""The kernel's iSCSI target (LIO) through rtslib, in this daemon.

``cinder-rtstool`` does the same in a process of its own, which costs seconds
each time; here it costs milliseconds. iblock backstores have no cache: what
an initiator reads is what the exported device has.

Every entry point raises TargetTimeout when :data:`TIMEOUT` is reached, and
ExportFailed if the kernel refuses. The objects are those of rtslib(8), the
attributes those of targetcli(8).
"""

from collections.abc import Callable
from concurrent import futures
import functools
import json
import typing

import tenacity

from cinder_localclone import exceptions
from cinder_localclone import privileged

#: Seconds for one change, with those that wait before it. Nothing can end a
#: thread that hangs in the kernel: it is left behind, and so is the target.
TIMEOUT = 20
_worker = futures.ThreadPoolExecutor(1, 'lio')
_Parameters = typing.ParamSpec('_Parameters')
_Result = typing.TypeVar('_Result')


def _one_at_a_time(function: Callable[_Parameters, _Result]
                   ) -> Callable[_Parameters, _Result]:
    """Whoever lists targets stumbles over one that is just being removed.

    Other processes (``targetcli``, another backend's service) change targets
    as well: what stumbled over them is done again; it is idempotent.
    """
    @functools.wraps(function)
    def wrapped(*args: _Parameters.args,
                **kwargs: _Parameters.kwargs) -> _Result:
        import rtslib_fb
        stumbled = (FileNotFoundError, rtslib_fb.RTSLibError)
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(stumbled),
            stop=tenacity.stop_after_attempt(5),
            wait=tenacity.wait_fixed(0.2), reraise=True)

        def attempt() -> _Result:
            # rtslib remembers backstores; others may have removed them.
            rtslib_fb.tcm.bs_cache.clear()
            return function(*args, **kwargs)
        work: futures.Future[_Result] = _worker.submit(attempts, attempt)
        try:
            return work.result(TIMEOUT)
        except futures.TimeoutError:
            work.cancel()  # if it has not begun
            raise exceptions.TargetTimeout(seconds=TIMEOUT)
        except stumbled as exc:
            raise exceptions.ExportFailed(reason=exc)
    return wrapped


def _target(rtslib_fb: typing.Any, iqn: str) -> typing.Any:
    for target in rtslib_fb.FabricModule('iscsi').targets:
        if target.wwn == iqn:
            return target
    return None


def _storage_object(rtslib_fb: typing.Any, name: str) -> typing.Any:
    for store in rtslib_fb.RTSRoot().storage_objects:
        if store.name == name:
            return store
    return None


def _as_asked(target: typing.Any, store: typing.Any, initiator: str,
              readonly: bool, user: str, password: str) -> bool:
    if not target:
        return False
    for tpg in target.tpgs:
        acls = [(acl.node_wwn, acl.chap_userid, acl.chap_password,
                 [lun.write_protect for lun in acl.mapped_luns])
                for acl in tpg.node_acls]
        return bool(tpg.enable
                    and acls == [(initiator, user, password, [readonly])]
                    and [lun.storage_object.name for lun in tpg.luns]
                    == [store.name])
    return False


@privileged.entrypoint
@_one_at_a_time
def export(iqn: str, name: str, device: str, serial: str, readonly: bool,
           address: str, port: int, initiator: str, user: str,
           password: str) -> bool:
    """Serve a device to one initiator, and to it alone, with CHAP.

    What exists already and is as asked for is left alone, so that sessions
    live on; anything else under that name is replaced. All targets of one
    device share one backstore, because the kernel claims a device for one.

    :param name: of the backstore
    :param device: path of the device
    :param serial: the unit serial number that the initiator will see
    :param address: IP address of the portal
    :param initiator: iSCSI name of the only one that may log in
    :param user: CHAP user name, as ``password``
    :returns: whether it was (re)created
    """
    import rtslib_fb
    target = _target(rtslib_fb, iqn)
    store = _storage_object(rtslib_fb, name)
    if store and (store.udev_path != device or store.wwn != serial):
        store.delete()  # with what serves it: it is not this device
        store = None
    new = store is None
    if new:
        store = rtslib_fb.BlockStorageObject(name, dev=device, wwn=serial)
    elif _as_asked(target, store, initiator, readonly, user, password):
        return False
    _remove(target, None)
    try:
        if new:
            store.set_attribute('emulate_tpu', 1)
        target = rtslib_fb.Target(rtslib_fb.FabricModule('iscsi'), iqn)
        tpg = rtslib_fb.TPG(target, 1)
        tpg.set_attribute('authentication', 1)
        tpg.set_attribute('generate_node_acls', 0)
        lun = rtslib_fb.LUN(tpg, 0, storage_object=store)
        acl = rtslib_fb.NodeACL(tpg, initiator)
        acl.chap_userid = user
        acl.chap_password = password
        rtslib_fb.MappedLUN(acl, 0, lun, write_protect=readonly)
        rtslib_fb.NetworkPortal(tpg, address, port)
        tpg.enable = True
    except Exception:
        _remove(_target(rtslib_fb, iqn), store)
        raise
    return True


def _remove(target: typing.Any, store: typing.Any) -> bool:
    """Remove a target; and a backstore that no other target serves.

    :returns: whether anything was removed
    """
    if target:
        for tpg in target.tpgs:
            tpg.enable = False
        target.delete()
    unused = store and not list(store.attached_luns)
    if unused:
        store.delete()
    return bool(target or unused)


@privileged.entrypoint
@_one_at_a_time
def unexport(iqn: str, name: str) -> bool:
    """Stop serving; returns whether there was anything to stop.

    :param name: of the backstore, removed with its last target
    """
    import rtslib_fb
    return _remove(_target(rtslib_fb, iqn), _storage_object(rtslib_fb, name))


@privileged.entrypoint
@_one_at_a_time
def exports(prefix: str) -> str:
    """The targets under a prefix: JSON list of dictionaries.

    Each has ``iqn``, ``initiators`` and ``devices`` (paths).
    """
    import rtslib_fb
    return json.dumps([
        {'iqn': target.wwn,
         'devices': [lun.storage_object.udev_path for tpg in target.tpgs
                     for lun in tpg.luns],
         'initiators': [acl.node_wwn for tpg in target.tpgs
                        for acl in tpg.node_acls]}
        for target in rtslib_fb.FabricModule('iscsi').targets
        if target.wwn.startswith(prefix)])
