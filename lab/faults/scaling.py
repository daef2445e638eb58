# SPDX-License-Identifier: Apache-2.0
"""Volumes that are smaller on the disks than the driver thinks.

Cinder knows whole GiBs, and copying them is what takes long. So a volume's
GiB is divided where it goes to LVM and device-mapper, and multiplied where it
comes back: the driver finds there what it has asked for. Headers of encrypted
volumes are as long as elsewhere, so the driver takes them for that much
longer.
"""

import dataclasses
import importlib
import json

#: How the names begin of the LVs, and of the devices, that are smaller.
LVS = ('volume-', '_snapshot-')
DEVICES = 'localclone-'
#: How the paths begin of disks that are imported, and of what decrypts.
DISKS = ('/dev/sd', '/dev/mapper/localclone-crypt-')


def resized(table, change):
    """A device-mapper table with other lengths, and places below.

    :param change: gives a number of sectors for another
    """
    return '\n'.join(_line(line.split(), change)
                     for line in table.splitlines())


def _line(words, change):
    start, sectors, target, *arguments = words
    if target == 'linear':
        device, place = arguments
        arguments = [device, str(change(int(place)))]
    elif target == 'crypt':
        # Behind a header that is as long as elsewhere.
        moved = change(int(start)) - int(start)
        cipher, key, iv_offset, device, place, *options = arguments
        arguments = [cipher, key, str(int(iv_offset) + moved), device,
                     str(int(place) + moved), *options]
    return ' '.join([str(change(int(start))), str(change(int(sectors))),
                     target, *arguments])


def as_listed(devices, change):
    """Devices, each with its name first and its table last, resized.

    Others' devices are as they are.
    """
    return [(name, *more, resized(table, change) if name.startswith(DEVICES)
             else table) for name, *more, table in devices]


def reported(text, change):
    """What ``lvs`` reports as JSON, resized; other LVs are as they are."""
    found = json.loads(text)
    for report in found['report']:
        for row in report.get('lv', ()):
            if row['lv_name'].startswith(LVS):
                row['lv_size'] = str(change(int(row['lv_size'])))
    return json.dumps(found)


def shrink(scale):
    """Have this process' driver make volumes that much smaller."""
    def smaller(size):
        return size // scale

    def larger(size):
        return size * scale
    _devices(smaller, larger)
    _lvs(smaller, larger)
    _disks(smaller, larger)
    _headers(smaller, larger)


def _module(name):
    return importlib.import_module('cinder_localclone.' + name)


def _wrap(module, name, wrapped):
    """:param wrapped: a function of the real one and its arguments"""
    real = getattr(module, name)
    setattr(module, name, lambda *args, **kwargs: wrapped(
        real, *args, **kwargs))


def _devices(smaller, larger):
    mapper = _module('storage.privsep.dmsetup')

    _wrap(mapper, 'survey', lambda real, *args: as_listed(
        real(*args), larger))
    _wrap(mapper, 'create', lambda real, name, uuid, table, *args, **kwargs:
          real(name, uuid, resized(table, smaller), *args, **kwargs))
    for each in ('swap_table', 'swap_flushed', 'replace_suspended'):
        _wrap(mapper, each, lambda real, name, table, *args: real(
            name, resized(table, smaller), *args))
    _wrap(mapper, 'discard_beneath', lambda real, handle, clone, table, *args:
          real(handle, clone, resized(table, smaller), *args))


def _lvs(smaller, larger):
    lvm, reports = _module('storage.privsep.lvm'), _module(
        'core.formats.lvm_reports')
    _wrap(lvm, 'create_thin', lambda real, group, pool, name, size, *args:
          real(group, pool, name, smaller(size), *args))
    _wrap(lvm, 'extend', lambda real, group, name, size, *args: real(
        group, name, smaller(size), *args))
    # Others are metadata.
    _wrap(lvm, 'create_thick', lambda real, group, name, size, *args, **kwargs:
          real(group, name, smaller(size) if name.startswith(LVS) else size,
               *args, **kwargs))
    _wrap(lvm, 'zero', lambda real, group, name, start, size, *args: real(
        group, name, smaller(start), smaller(size), *args))
    # MiB.
    cinders = importlib.import_module('cinder.volume.volume_utils')
    _wrap(cinders, 'clear_volume', lambda real, size, *args, **kwargs:
          real(smaller(size), *args, **kwargs))
    _wrap(lvm, 'zero_decrypted', lambda real, group, name, crypt, start, size,
          *args: real(group, name, crypt, smaller(start), smaller(size),
                      *args))
    _wrap(lvm, 'volumes', lambda real, *args: reported(real(*args), larger))
    # Of a pool, which is as large as it says.
    _wrap(reports, 'bytes_to_write', lambda real, lvs: smaller(real(lvs)))
    for each in ('largest_holes', 'all_holes'):
        _wrap(_module('storage.privsep.thin_pool'), each,
              lambda real, group, name, size, *args: real(
                  group, name, smaller(size), *args))


def _disks(smaller, larger):
    block = _module('storage.privsep.block')

    def identity(real, path):
        size, serial = real(path)
        return larger(size), serial
    _wrap(block, 'identity', identity)
    _wrap(block, 'size', lambda real, path: larger(real(path)) if (
        path.startswith(DISKS)) else real(path))


def _headers(smaller, larger):
    types = _module('core.volume_types')
    types.HEADER_BYTES = larger(types.HEADER_BYTES)
    _wrap(_module('storage.privsep.cryptsetup'), 'payload_sectors',
          lambda real, *args: larger(real(*args)))
    _wrap(_module('storage.privsep.cryptsetup_keys'), 'format_luks2',
          lambda real, path, wanted, *args: real(
              path, _offset(wanted, smaller), *args))
    # A pin has what the header says.
    pinning = _module('core.pinning')
    _wrap(pinning, 'pin', lambda real, encryption, offset, *args: real(
        encryption, smaller(offset), *args))
    _wrap(pinning, '_why_not_allowed', lambda real, found: real(
        dataclasses.replace(found, data_offset=larger(found.data_offset))))


def _offset(wanted, change):
    """What a header is made with, with the data at another place."""
    made = _module('core.formats.cryptsetup_cli').NewHeader(*wanted)
    return made._replace(offset=change(made.offset))
