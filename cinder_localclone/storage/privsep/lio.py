# SPDX-License-Identifier: Apache-2.0
"""The kernel's iSCSI target (LIO) through rtslib, in this daemon.

``cinder-rtstool`` does the same in a process of its own, which costs seconds
each time; here it costs milliseconds. iblock backstores have no cache: an
initiator reads the data of the exported device itself.

This module has the changes, and the check before a change;
:mod:`.lio_configfs` has all other reads. Every entry point raises
TargetTimeout when :data:`TIMEOUT` is reached, TargetHangs at once if the
target is known to hang or too many targets hang, and ExportFailed if the
kernel refuses the change. The objects are documented in rtslib(8), the
attributes in targetcli(8).
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

#: Seconds for a change, including the wait for earlier changes.
TIMEOUT = 20
#: Number of hanging changes at which all further changes are refused.
MOST_HANGING = 3
_Parameters = typing.ParamSpec('_Parameters')
_Result = typing.TypeVar('_Result')


class Changes:
    """A queue of changes, which leaves hanging changes behind.

    Nothing can end a thread that hangs in the kernel. The kernel has a lock
    for each target, so other targets can be changed meanwhile. Changes of a
    hanging target fail at once until the kernel releases its thread.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        #: Never modified, only replaced by the thread that holds the lock:
        #: other threads read it meanwhile.
        self._hanging: dict[str, tuple[futures.Future[typing.Any], float]] = {}

    def make(self, what: str, change: Callable[[], _Result]) -> _Result:
        """Make a change, and wait for it.

        :param what: name of the target, or of the backstore, to change
        :param change: function that makes the change
        :returns: the result of ``change``
        :raises TargetTimeout: if it hangs, or an earlier change
        :raises TargetHangs: if an earlier change of the same target hangs
        """
        self._check(what)
        until = time.monotonic() + TIMEOUT
        if not self._turn.acquire(timeout=TIMEOUT):
            raise exceptions.TargetTimeout(seconds=TIMEOUT)
        try:
            self._check(what)  # the previous change may have hung
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
        """Refuse a change if too many changes hang; checks may continue.

        Call it before the first effect of a change.

        :raises TargetHangs: if :data:`MOST_HANGING` changes hang
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
    """Decorate a change, to run alone and to retry after a collision.

    A change fails if it meets an object that is being removed. Other processes
    (``targetcli``, another backend's service) change targets as well. The
    change is idempotent, so it is repeated.
    """
    @functools.wraps(function)
    def wrapped(*args: _Parameters.args,
                **kwargs: _Parameters.kwargs) -> _Result:
        import rtslib_fb
        # rtslib passes on some errors of the kernel unchanged.
        stumbled = (OSError, rtslib_fb.RTSLibError)
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(stumbled),
            stop=tenacity.stop_after_attempt(5),
            wait=tenacity.wait_fixed(0.2), reraise=True)

        def attempt() -> _Result:
            # rtslib caches backstores; another process may have removed them.
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
    """Return a target by its name, or None.

    A search through all targets took 0.1 s with twenty of them.
    """
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
            # its creation was interrupted: some attributes can't be read
            return False
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
    """Return whether :func:`export` with the same arguments would do nothing.

    Allows: compares an export of the driver's with the caller's values,
    including its CHAP secret.

    Only an export completed by the driver, and not changed since, counts.
    """
    # Else a caller could try passwords on another program's target.
    privsep.require(iscsi.is_iqn(iqn), iqn)
    privsep.require(names.is_backstore(name), name)
    return sysfs.mapped_name(device) == os.path.basename(device) and (
        _is_shown(iqn, name, device, serial, readonly,
                  iscsi.portal(address, port), initiator, user,
                  password))


@privsep.entrypoint
@_one_at_a_time
def export(iqn: str, name: str, device: str, serial: str, readonly: bool,
           address: str, port: int, initiator: str, user: str,
           password: str) -> bool:
    """Export a device to a single initiator, with CHAP.

    Allows: exports a device of the driver's, but no crypt device, under a name
    of the driver's, by any prefix, on any address, to any single initiator,
    with a password of the caller's.

    An existing export with the same properties is left alone, so its sessions
    live on; any other export under the name is replaced. All targets of a
    device share a backstore, because the kernel claims a device for one
    backstore.

    :param name: name of the backstore
    :param device: path of the device
    :param serial: unit serial number reported to the initiator
    :param address: IP address of the portal, IPv6 without brackets
    :param port: TCP port of the portal
    :param initiator: iSCSI name of the only initiator allowed to log in
    :param user: CHAP user name
    :param password: CHAP password
    :returns: whether the export was (re)created
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
        return False  # the usual case; all others need rtslib
    initiator = initiator.lower()  # as rtslib, and the kernel at a login
    store = _storage_object(rtslib_fb, name)
    # The serial number of an incomplete backstore can't be read.
    new = (not store or not store.is_configured()
           or store.udev_path != device or store.wwn != serial)
    if not new and _as_asked(_target(rtslib_fb, iqn), store, initiator,
                             readonly, user, password, portal):
        with contextlib.suppress(rtslib_fb.RTSLibError):
            # Before Linux 6.0 only a new store probes its device.
            _pass_discards(store, device)
        return False
    _changes.refuse_too_many()
    if new:
        if store:
            _remove_with_targets(store)  # it has another device
        _remove_empty_backstores()
        store = rtslib_fb.BlockStorageObject(
            name, dev=device, wwn=serial, readonly=sysfs.is_readonly(device))
    _remove(_target(rtslib_fb, iqn), None)
    try:
        # Before Linux 6.0 only a new store probes its device.
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
        # configfs needs brackets around IPv6; rtslib does not add them.
        rtslib_fb.NetworkPortal(tpg, iscsi.bracketed(address), port)
        tpg.enable = True
    except Exception:
        _remove(_target(rtslib_fb, iqn), store)
        raise
    return True


def _pass_discards(store: typing.Any, device: str) -> None:
    """Pass discards on to a device that takes them.

    A handle on a clone takes none, and the kernel refuses to announce them
    then (ENOSYS).
    """
    wanted = _discards(device)
    if store.get_attribute('emulate_tpu') != wanted:
        store.set_attribute('emulate_tpu', wanted)


def _discards(device: str) -> str:
    """Return whether a device takes discards: '1' or '0'."""
    with open(sysfs.disk_entry(device, 'queue', 'discard_max_bytes')) as limit:
        return '1' if int(limit.read()) else '0'


def _remove_empty_backstores() -> None:
    """Remove directories left by a process killed between two mkdir calls.

    rtslib does not see them and would fail to create the first directory
    again.
    """
    for path in glob.glob(os.path.join(lio_configfs.ROOT, 'core', 'iblock_*')):
        with contextlib.suppress(OSError):
            os.rmdir(path)  # refused unless it is empty


def _remove_with_targets(store: typing.Any) -> None:
    """Remove a backstore, after the driver's targets that export it.

    Targets of other programs only lose the backstore.
    """
    targets = [lun.parent_tpg.parent_target for lun in store.attached_luns]
    for target in {each.wwn: each for each in targets}.values():
        if iscsi.is_iqn(target.wwn):
            _remove(target, None)
    store.delete()


def _remove(target: typing.Any, store: typing.Any) -> bool:
    """Remove a target, and a backstore without another target.

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
    """Remove an export.

    Allows: removes an export of the driver's.

    :param iqn: '' for the backstore alone
    :param name: name of the backstore, removed with its last target; '' if
        there is none
    :returns: whether anything was removed
    """
    import rtslib_fb
    privsep.require(not iqn or iscsi.is_iqn(iqn), iqn)
    privsep.require(not name or names.is_backstore(name), name)
    _changes.refuse_too_many()
    # rtslib refuses to search for a target without a name.
    return _remove(iqn and _target(rtslib_fb, iqn),
                   name and _storage_object(rtslib_fb, name))
