# SPDX-License-Identifier: Apache-2.0
"""One contract of thick LVs, for the simulated node and the real one.

As :mod:`.storage`, with a backend that has no thin pool.
"""

from collections.abc import Callable

from cinder_localclone.core import names
from tests.contracts import storage
from tests.contracts.storage import Bench
from tests.contracts.storage import GIB
from tests.contracts.storage import REGIONS
from tests.contracts.storage import same
from tests.contracts.storage import sizes

#: All of them, by name.
SCENARIOS: dict[str, Callable[[Bench], None]] = {}


def scenario(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    SCENARIOS[function.__name__] = function
    return function


@scenario
def lv_reads_zeros_once_it_is_created(bench: Bench) -> None:
    volume, lv = storage.created(bench)
    same((GIB, GIB), sizes(bench, lv))
    same((False, {'volume': volume}), (
        bench.lvm.lvs()[lv].thin, storage.facts(bench, lv)))
    same([''] * REGIONS, [bench.read(lv, each) for each in range(REGIONS)])
    # What others have deleted may be there: nothing of it counts as unread.
    same((False, []), (bench.lvm.reads_zeros(lv), list(
        bench.lvm.holes(lv, GIB, storage.GEOMETRY))))
    bench.write(lv, 1, 'data')
    same(False, bench.lvm.create_lv(lv, GIB, volume))
    same('data', bench.read(lv, 1))


@scenario
def lv_is_extended_and_shown_once_it_is_zeroed(bench: Bench) -> None:
    volume, lv = storage.created(bench)
    handle = names.handle(volume)
    same(True, bench.handles.ensure_handle_on_lv(volume, lv, GIB))
    bench.write(handle, 0, 'data')
    with bench.opened(handle):
        same(True, bench.lvm.extend_lv(lv, 2 * GIB))
        same((2 * GIB, GIB), sizes(bench, lv))
        end = bench.lvm.zero_part(lv)
        same(True, GIB < end <= 2 * GIB)
        # Asked again without that, as after a restart, it begins anew.
        same(end, bench.lvm.zero_part(lv))
        bench.lvm.note_zeroed(lv, end)
        for _part in range(2 * REGIONS):
            if not end:
                break
            end = bench.lvm.zero_part(lv, end)
        same((0, 0), (end, bench.lvm.zero_part(lv)))
        bench.lvm.show_lv(lv, 2 * GIB)
        same((2 * GIB, 2 * GIB), sizes(bench, lv))
        same(True, bench.handles.ensure_handle_on_lv(volume, lv, 2 * GIB))
        same(['data', *[''] * (2 * REGIONS - 1)], [
            bench.read(handle, each) for each in range(2 * REGIONS)])
    same({'volume': volume}, storage.facts(bench, lv))
