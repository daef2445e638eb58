# SPDX-License-Identifier: Apache-2.0
"""The kernel's iSCSI target (LIO) through rtslib, in this daemon.

``cinder-rtstool`` does the same in a process of its own, which costs seconds
each time; here it costs milliseconds. iblock backstores have no cache: what
an initiator reads is what the exported device has.

Changes, and what is asked before them: what there is, :mod:`.lio_configfs`
shows. Every entry point raises
TargetTimeout when :data:`TIMEOUT` is reached, TargetHangs at once if the
target is known to hang, or too many do, and ExportFailed if the kernel
refuses. The objects are those of
rtslib(8), the attributes those of targetcli(8).
"""

from collections.abc import Callable
from concurrent import futures
import contextlib
import functools
import glob
import inspect
import os
import threading
import time
import typing

import tenacity

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import lio_configfs
from cinder_localclone.storage.privsep import process
from cinder_localclone.storage.privsep import sysfs

#: Seconds for one change, with those that wait before it.
TIMEOUT = 20
#: So many changes may hang; then there are no more of any.
MOST_HANGING = 3
_Parameters = typing.ParamSpec('_Parameters')
_Result = typing.TypeVar('_Result')


class Changes:
    """One change after another; one that hangs is left behind.

    Nothing can end a thread that hangs in the kernel. The kernel keeps a lock
    for each target, so others can be changed meanwhile; a change of one that
    hangs fails at once, until the kernel lets its thread go.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        #: Never changed, only replaced, by whoever has the turn: others look
        #: at it meanwhile.
        self._hanging: dict[str, tuple[futures.Future[typing.Any], float]] = {}

    def make(self, what: str, change: Callable[[], _Result]) -> _Result:
        """Make a change, and wait for it.

        :param what: name of the target, or of the backstore, that it changes
        :raises TargetTimeout: if it hangs, or one before it
        """
        self._check(what)
        until = time.monotonic() + TIMEOUT
        if not self._turn.acquire(timeout=TIMEOUT):
            raise exceptions.TargetTimeout(seconds=TIMEOUT)
        try:
            self._check(what)  # what had the turn may have hung
            work = process.in_thread(change)
            if process.has_ended(work, max(until - time.monotonic(),
                                           TIMEOUT / 20)):
                return work.result()
            self._hanging = {**self._still_hanging(),
                             what: (work, time.time())}
            raise exceptions.TargetTimeout(seconds=TIMEOUT)
        finally:
            self._turn.release()

    def _still_hanging(self) -> dict[
            str, tuple[futures.Future[typing.Any], float]]:
        return {name: (work, since) for name, (work, since)
                in self._hanging.items() if not work.done()}

    def _check(self, what: str) -> None:
        hanging = self._still_hanging()
        if what in hanging:
            raise exceptions.TargetHangs(
                target=what, since=_clock(hanging[what][1]))

    def refuse_too_many(self) -> None:
        """Called before the first effect: whoever only looks may go on.

        :raises TargetHangs: if so many hang that there are no more changes
        """
        hanging = self._still_hanging()
        if len(hanging) >= MOST_HANGING:
            raise exceptions.TargetHangs(
                target=', '.join(sorted(hanging)), since=_clock(
                    min(since for _work, since in hanging.values())))


def _clock(seconds: float) -> str:
    return time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))


_changes = Changes()


def _one_at_a_time(function: Callable[_Parameters, _Result]
                   ) -> Callable[_Parameters, _Result]:
    """Changes stumble over what is just being removed.

    Other processes (``targetcli``, another backend's service) change targets
    as well: what stumbled over them is done again; it is idempotent.
    """
    @functools.wraps(function)
    def wrapped(*args: _Parameters.args,
                **kwargs: _Parameters.kwargs) -> _Result:
        import rtslib_fb
        # rtslib lets through some of what the kernel says, as it says it.
        stumbled = (OSError, rtslib_fb.RTSLibError)
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(stumbled),
            stop=tenacity.stop_after_attempt(5),
            wait=tenacity.wait_fixed(0.2), reraise=True)

        def attempt() -> _Result:
            # rtslib remembers backstores; others may have removed them.
            rtslib_fb.tcm.bs_cache.clear()
            return function(*args, **kwargs)
        named = inspect.signature(function).bind(*args, **kwargs).arguments
        try:
            result: _Result = _changes.make(
                str(named['iqn'] or named['name']), lambda: attempts(attempt))
            return result
        except stumbled as exc:
            raise exceptions.ExportFailed(reason=exc)
    return wrapped


def _target(rtslib_fb: typing.Any, iqn: str) -> typing.Any:
    """By its name: to go through all took 0.1 s with twenty of them."""
    try:
        return rtslib_fb.Target(rtslib_fb.FabricModule('iscsi'), iqn,
                                mode='lookup')
    except rtslib_fb.RTSLibNotInCFSError:
        return None


def _storage_object(rtslib_fb: typing.Any, name: str) -> typing.Any:
    try:
        return rtslib_fb.BlockStorageObject(name)
    except rtslib_fb.RTSLibNotInCFSError:
        return None


def _as_asked(target: typing.Any, store: typing.Any, initiator: str,
              readonly: bool, user: str, password: str, portal: str) -> bool:
    if not target:
        return False
    for tpg in target.tpgs:
        if not tpg.enable:
            return False  # not made to the end: not all of it can be read
        acls = [(acl.node_wwn, acl.chap_userid, acl.chap_password,
                 [lun.write_protect for lun in acl.mapped_luns])
                for acl in tpg.node_acls]
        portals = [iscsi.portal(
            iscsi.plain(each.ip_address), each.port)
            for each in tpg.network_portals]
        return bool(acls == [(initiator, user, password, [readonly])]
                    and portals == [portal]
                    and [lun.storage_object.name for lun in tpg.luns]
                    == [store.name])
    return False


def _is_shown(iqn: str, name: str, device: str, serial: str, readonly: bool,
              portal: str, initiator: str, user: str, password: str
              ) -> bool:
    shown = lio_configfs.export(iqn)
    return shown is not None and shown == lio_configfs.Export(
        name, device, serial, _discards(device), initiator.lower(),
        str(int(readonly)), portal, user, password)


@privsep.entrypoint
@_one_at_a_time
def is_exported(iqn: str, name: str, device: str, serial: str,
                readonly: bool, address: str, port: int, initiator: str,
                user: str, password: str) -> bool:
    """Whether :func:`export` of the same has nothing to do.

    Allows: compares an export of the driver's with what the caller names, its
    CHAP secret, too.

    Said of what the driver has made to its end, and nobody has changed.
    """
    return sysfs.mapped_name(device) == os.path.basename(device) and (
        _is_shown(iqn, name, device, serial, readonly,
                  iscsi.portal(address, port), initiator, user,
                  password))


@privsep.entrypoint
@_one_at_a_time
def export(iqn: str, name: str, device: str, serial: str, readonly: bool,
           address: str, port: int, initiator: str, user: str,
           password: str) -> bool:
    """Serve a device to one initiator, and to it alone, with CHAP.

    Allows: exports a device of the driver's, but no crypt device, under a name
    of the driver's, by any prefix, on any address, to any one initiator, with
    a password that the caller names.

    What exists already and is as asked for is left alone, so that sessions
    live on; anything else under that name is replaced. All targets of one
    device share one backstore, because the kernel claims a device for one.

    :param name: of the backstore
    :param device: path of the device
    :param serial: the unit serial number that the initiator will see
    :param address: IP address of the portal, IPv6 without brackets
    :param initiator: iSCSI name of the only one that may log in
    :param user: CHAP user name, as ``password``
    :returns: whether it was (re)created
    :raises WrongDevice: if the path leads to another device
    """
    import rtslib_fb
    privsep.require(iscsi.is_iqn(iqn), iqn)
    privsep.require(names.is_backstore(name), name)
    privsep.require(
        os.path.dirname(device) == '/dev/mapper'
        and names.is_device(os.path.basename(device)), device)
    found = sysfs.mapped_name(device)
    if found != os.path.basename(device):
        raise exceptions.WrongDevice(path=device, found=found or 'another')
    portal = iscsi.portal(address, port)
    if _is_shown(iqn, name, device, serial, readonly, portal, initiator,
                 user, password):
        return False  # nearly always; anything else rtslib looks at
    initiator = initiator.lower()  # so has rtslib, and the kernel at a login
    store = _storage_object(rtslib_fb, name)
    # One that was not made to the end has no serial number to be read.
    new = (not store or not store.is_configured()
           or store.udev_path != device or store.wwn != serial)
    if not new and _as_asked(_target(rtslib_fb, iqn), store, initiator,
                             readonly, user, password, portal):
        with contextlib.suppress(rtslib_fb.RTSLibError):
            # Before Linux 6.0 only a new store looks at its device.
            _pass_discards(store, device)
        return False
    _changes.refuse_too_many()
    if new:
        if store:
            _remove_with_targets(store)  # it is not this device
        _remove_empty_backstores()
        store = rtslib_fb.BlockStorageObject(
            name, dev=device, wwn=serial, readonly=sysfs.is_readonly(device))
    _remove(_target(rtslib_fb, iqn), None)
    try:
        # Before Linux 6.0 only a new store looks at its device.
        with contextlib.suppress(*(() if new else (rtslib_fb.RTSLibError,))):
            _pass_discards(store, device)
        target = rtslib_fb.Target(rtslib_fb.FabricModule('iscsi'), iqn)
        tpg = rtslib_fb.TPG(target, 1)
        tpg.set_attribute('authentication', 1)
        tpg.set_attribute('generate_node_acls', 0)
        lun = rtslib_fb.LUN(tpg, 0, storage_object=store)
        acl = rtslib_fb.NodeACL(tpg, initiator)
        acl.chap_userid = user
        acl.chap_password = password
        rtslib_fb.MappedLUN(acl, 0, lun, write_protect=readonly)
        # As configfs wants IPv6; rtslib does not add the brackets.
        rtslib_fb.NetworkPortal(tpg, iscsi.bracketed(address), port)
        tpg.enable = True
    except Exception:
        _remove(_target(rtslib_fb, iqn), store)
        raise
    return True


def _pass_discards(store: typing.Any, device: str) -> None:
    """Discards arrive at a device that takes them.

    A handle takes none while it is on a clone, and the kernel refuses to
    offer them then (ENOSYS).
    """
    wanted = _discards(device)
    if store.get_attribute('emulate_tpu') != wanted:
        store.set_attribute('emulate_tpu', wanted)


def _discards(device: str) -> str:
    """Whether a device takes discards: '1' or '0'."""
    with open(sysfs.of_disk(device, 'queue', 'discard_max_bytes')) as limit:
        return '1' if int(limit.read()) else '0'


def _remove_empty_backstores() -> None:
    """What a process left that was killed between the two directories.

    rtslib does not see them and would try to make the first one again.
    """
    for path in glob.glob(os.path.join(lio_configfs.ROOT, 'core', 'iblock_*')):
        with contextlib.suppress(OSError):
            os.rmdir(path)  # refused if there is anything in it


def _remove_with_targets(store: typing.Any) -> None:
    """Remove a backstore; the driver's targets that serve it go first.

    From a stranger's it is only taken away.
    """
    targets = [lun.parent_tpg.parent_target for lun in store.attached_luns]
    for target in {each.wwn: each for each in targets}.values():
        if iscsi.is_iqn(target.wwn):
            _remove(target, None)
    store.delete()


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


@privsep.entrypoint
@_one_at_a_time
def unexport(iqn: str, name: str) -> bool:
    """Stop serving; returns whether there was anything to stop.

    Allows: removes an export of the driver's.

    :param iqn: '' for the backstore alone
    :param name: of the backstore, removed with its last target; '' if there
        is none
    """
    import rtslib_fb
    privsep.require(not iqn or iscsi.is_iqn(iqn), iqn)
    privsep.require(not name or names.is_backstore(name), name)
    _changes.refuse_too_many()
    # rtslib refuses to look for a target without a name.
    return _remove(iqn and _target(rtslib_fb, iqn),
                   name and _storage_object(rtslib_fb, name))
