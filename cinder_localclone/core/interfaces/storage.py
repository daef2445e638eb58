# SPDX-License-Identifier: Apache-2.0
"""Typed interfaces of the rooms that act, as the work on a volume uses them.

The real rooms satisfy them, and so does the simulated world of the unit
tests; mypy holds both to it. Sizes are bytes unless a name says otherwise.
Every effect may be repeated; those that return a bool say whether they did
anything.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import typing

from cinder_localclone.core import copies
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core.formats import thin_map
from cinder_localclone.core import objects
from cinder_localclone.core import state


class Stack(typing.Protocol):
    """The block stack of this node; see :mod:`.clone`."""

    group: str

    @property
    def pool(self) -> str | None:
        """The thin pool of the volumes; None for thick ones."""

    def survey(self) -> surveys.Survey:
        """What LVM and device-mapper show at this moment."""

    def lvs(self) -> dict[str, lvm_reports.LogicalVolume]:
        """The logical volumes of this backend's groups, by name."""

    def devices(self, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
        """The driver's own device-mapper devices, by name.

        :param only: those of these names; see :func:`.survey.names_of`
        """

    def free_space(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.FreeSpace:
        """What this node can take in.

        :param lvs: if they have just been listed
        """

    def own_block(self) -> int:
        """The logical block size of this node's disks, in bytes.

        :raises OddDisks: if it can't be told
        """

    def logical_block(self, path: str) -> int:
        """The logical block size of a device, in bytes; 0: there is none."""

    def clone_status(self, shadow_id: str) -> dm_tables.CloneStatus:
        """How far the kernel has copied."""

    def completed_reads(self, disk: str) -> int:
        """How many reads a source's disk has completed, failed ones too."""

    def create_lv(self, name: str, size_bytes: int, volume_id: str,
                  covered: bool = False, extra_bytes: int = 0,
                  lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
                  newborn: bool = False) -> bool:
        """Create the LV of a volume.

        :param covered: nobody reads what was not written to it before; else
            it reads as zeros
        :param lvs: if they have just been listed
        :param newborn: nobody was given it yet
        """

    def create_snapshot(self, snapshot_id: str, origin: str,
                        volume_id: str) -> None:
        """Take a snapshot of a volume's LV, at this moment."""

    def create_copy(self, name: str, image: str, image_bytes: int,
                    size_bytes: int, volume_id: str,
                    extra_bytes: int = 0) -> None:
        """Create the LV of a volume with the data of another LV."""

    def mark_newborn(self, name: str) -> None:
        """An LV is newborn again."""

    def accept(self, name: str) -> None:
        """An LV is not newborn any more."""

    def mark(self, name: str, tag: str) -> None:
        """Tag an LV with what is true of it from now on."""

    def unmark(self, name: str, tag: str) -> None:
        """Take such a tag off an LV."""

    def adopt(self, name: str, own_name: str, tags: Iterable[str]) -> None:
        """Make an LV that somebody else has created the driver's own."""

    def disown(self, name: str, new_name: str) -> bool:
        """Leave an LV to whoever wants it, with all that it has."""

    def protect(self, name: str) -> None:
        """Make an LV what a snapshot is: read-only, and not active."""

    def resume(self, name: str) -> bool:
        """Resume an LV that an LVM command has left suspended."""

    def pool_usage(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                   | None = None) -> lvm_reports.Usage:
        """How full the thin pool is, in the same way."""

    def extend_lv(self, name: str, size_bytes: int) -> bool:
        """Make the LV of a volume longer. Nothing more of it is shown yet."""

    def zero_part(self, name: str, start: int = 0, seconds: float = 0
                  ) -> int:
        """Overwrite a part of what an LV may have of others' deleted data.

        :param start: bytes; where the last call has ended
        :param seconds: after which this one ends
        :returns: where this one has ended; 0 once nothing is left
        """

    def note_zeroed(self, name: str, end: int) -> None:
        """Note, also for after a power cut, where zeroing an LV has ended."""

    def show_lv(self, name: str, size_bytes: int) -> None:
        """Let users see an LV up to a length, all of which is zeroed."""

    def shown_bytes(self, volume_id: str, name: str, size_bytes: int) -> int:
        """Return how much of a volume its users may have seen, in bytes.

        :param size_bytes: as its row says
        """

    def number_of(self, name: str) -> str:
        """The ``major:minor`` of an LV, '' unless it is active."""

    def activate(self, name: str) -> bool:
        """Activate an LV; one that is gone is left alone."""

    def deactivate(self, name: str) -> None:
        """Deactivate an LV that nothing has open."""

    def remove_lv(self, name: str) -> bool:
        """Remove an LV."""

    def create_metadata(self, move: state.Move,
                        lvs: Mapping[str, lvm_reports.LogicalVolume]) -> bool:
        """Create the metadata LV of a move and zero its head, once."""

    def holes(self, lv: str, size_bytes: int, geometry: state.Geometry,
              patient: bool = False) -> thin_map.Holes:
        """What nothing was ever written to of an LV."""

    def recorded_as_local(self, move: state.Move) -> thin_map.Holes:
        """Which regions the clone of a copy has on record as local."""

    def unmapped(self, move: state.Move, factor: int) -> thin_map.Holes:
        """What of the LV of a copy is not mapped, all of it."""

    def check_pool(self, move: state.Move) -> None:
        """See that the pool of a copy's LV can write its metadata."""

    def refill(self, move: state.Move, disk: str, missing: thin_map.Holes,
               factor: int) -> Iterator[thin_map.Holes]:
        """Copy again what the LV has not, beneath the handle."""

    def forget_read(self, volume_id: str) -> None:
        """Whoever has read a handle reads again."""

    def leave_out(self, move: state.Move, holes: thin_map.Holes) -> None:
        """Have the kernel take holes for copied, under a guest."""

    def is_unmapped(self, move: state.Move) -> bool:
        """Whether nobody has looked yet for what need not be copied."""

    def note_mapped(self, move: state.Move) -> None:
        """Somebody looks now, and nobody will again."""

    def reads_zeros(self, name: str) -> bool:
        """Whether what is not written of a new LV reads as zeros."""

    def written(self, volume_id: str) -> int:
        """How much was written to a handle since it is there."""

    def ensure_clone(self, move: state.Move, source: str,
                     holes: thin_map.Holes = ()) -> bool:
        """The clone is there, over LV, metadata LV and the source's disk.

        :param holes: what of a new one need not be copied
        """

    def ensure_clone_alone(self, move: state.Move) -> bool:
        """The clone is there, without its source if it has to be built."""

    def set_hydration(self, shadow_id: str, enabled: bool) -> bool:
        """Let the kernel copy, or stop it."""

    def wake_hydration(self, steps: Mapping[str, copies.Step]) -> list[str]:
        """Prompt the kernel to go on; returns the clones that are gone."""

    def counters(self, move: state.Move) -> tuple[str, str]:
        """Where the kernel counts what is done to handle and LV."""

    def seen(self, counters: Mapping[str, tuple[str, str]]
             ) -> dict[str, copies.Seen]:
        """What it has counted there, of those that can be seen."""

    def remove_clone(self, shadow_id: str) -> bool:
        """Remove the clone of a move."""

    def ensure_handle_on_lv(
            self, volume_id: str, lv: str, size_bytes: int,
            lvs: Mapping[str, lvm_reports.LogicalVolume] | None = None,
            swaps: bool = True) -> bool:
        """The handle maps to an LV.

        :param lvs: if they have just been listed
        :param swaps: whether one that maps to something else may be swapped
        """

    def ensure_handle_on_clone(self, move: state.Move, swaps: bool = True
                               ) -> bool:
        """The handle maps to the clone of a move."""

    def ensure_handle_on_disk(self, volume_id: str, disk: str,
                              swaps: bool = True) -> bool:
        """The handle maps to a disk that the volume's home serves."""

    def follow_onto_clone(self, move: state.Move, source: str) -> None:
        """A handle in use goes from the home's disk to the clone."""

    def flush_disk(self, move: state.Move, disk: str) -> None:
        """All that was written at the source of a move is stable there."""

    def begin_swap(self, move: state.Move) -> bool:
        """The handle of what follows may be on the clone from now on."""

    def end_swap(self, move: state.Move) -> None:
        """It is, and nothing else is left to be done."""

    def can_guard(self) -> bool:
        """Whether the kernel has what guards are made of."""

    def header_sectors(self, volume_id: str) -> int:
        """How long the LUKS1 header of a volume is."""

    def note_guarded(self, lv: str, header: int) -> None:
        """The volume on an LV has a guard from now on, also after a boot."""

    def forget_guarded(self, lv: str, header: int) -> None:
        """It has none any more."""

    def ensure_guard(self, volume_id: str, header: int) -> bool:
        """The guard is above all of the handle."""

    def read_guarded(self, volume_id: str, header: int) -> None:
        """Prove that a header can be read above its guard."""

    def links(self) -> dict[str, str]:
        """Where the paths lead of volumes that Nova encrypts."""

    def ensure_link(self, volume_id: str, device: str) -> bool:
        """The path of a volume leads to its guard, or to its handle."""

    def remove_link(self, volume_id: str) -> bool:
        """Remove the path of a volume."""

    def ensure_served(self, volume_id: str) -> bool:
        """What other nodes are served of a volume with a top."""

    def remove_served(self, volume_id: str) -> bool:
        """Remove that, unless it is still served."""

    def close_top(self, volume_id: str) -> bool:
        """Remove what is above a handle, and the path to it."""

    def ensure_handle_on_snapshot(self, snapshot_id: str,
                                  size_bytes: int) -> bool:
        """The handle of a snapshot, which can only be read."""

    def ensure_source(self, move: state.Move) -> bool:
        """The source device of a move, which can only be read."""

    def remove_source(self, shadow_id: str) -> bool:
        """Remove it."""

    def remove_handle(self, volume_id: str) -> bool:
        """Remove the handle of a volume, or of a snapshot."""

    def read_head(self, volume_id: str) -> None:
        """Prove that a handle can be read."""

    def read_clone(self, shadow_id: str) -> None:
        """Prove that a clone can be read, without its handle."""

    def flush_handle(self, volume_id: str) -> None:
        """Everything written so far is on stable storage afterwards."""

    def flush_lv(self, lv: str) -> None:
        """The same for an LV."""


class Exports(typing.Protocol):
    """What this node serves; see :mod:`.iscsi_target`."""

    #: Where other hosts are served.
    portal: str

    def source_location(self, shadow_id: str) -> str:
        """Where the source of a move is served (provider_location)."""

    def portal_for(self, portal: str) -> str:
        """Where this node exports what was told another portal."""

    def has_portal(self, portal: str) -> bool:
        """Whether this node can export at a portal."""

    def location_for(self, move: state.Move) -> str:
        """Where the source of a move is served by now."""

    def offer_source(self, move: state.Move) -> bool:
        """Serve a move's source, read-only, to its destination."""

    def offers_source(self, move: state.Move) -> bool:
        """Whether that is so already."""

    def withdraw_source(self, shadow_id: str) -> bool:
        """Stop serving it."""

    def withdraw_strays(self, wanted: Callable[[str], bool]) -> list[str]:
        """Stop serving the sources of moves that are over."""

    def offer_volume(self, volume_id: str, initiator: str, auth: str,
                     readonly: bool = False, passed: bool = False,
                     device: str = '') -> dict[str, typing.Any]:
        """Serve a volume, or a snapshot, to another host."""

    def note_offered(self, snapshot_id: str) -> None:
        """A snapshot is about to be offered to somebody."""

    def was_offered(self, snapshot_id: str) -> bool:
        """Whether that was a moment ago."""

    def offer_again(self, volume_id: str, initiator: str,
                    properties: Mapping[str, typing.Any], device: str = ''
                    ) -> bool:
        """Serve a volume as before: a reboot forgets all exports."""

    def withdraw_volume(self, volume_id: str, initiator: str | None) -> bool:
        """Stop serving a volume to one initiator, or (None) to all."""

    def serves(self, volume_id: str) -> bool:
        """Whether a volume's handle is served to anybody."""

    def serves_source(self, shadow_id: str) -> bool:
        """Whether the source of a move is served."""

    def opens_in_vain(self, volume_id: str) -> bool:
        """Whether a handle is kept open, but served to nobody."""

    def remote(self) -> dict[str, set[str]]:
        """What is served to other hosts, by volume."""

    def unfinished(self) -> set[str]:
        """What of it was not made to its end, and serves nobody."""

    def withdraw_unnamed(self, volume_id: str, unnamed: set[str],
                         at_once: bool = False) -> bool:
        """Stop serving what no attachment names, unless it is new."""

    def is_last(self, volume_id: str, initiator: str | None) -> bool:
        """Whether no other initiator has what is about to be withdrawn."""

    def problem(self) -> str:
        """Why the target of this node can't be changed; '' if it can."""


class Sessions(typing.Protocol):
    """What this node attaches from its peers."""

    def initiator(self) -> str:
        """This node's iSCSI initiator name; '' if it has none."""

    def attach(self, move: state.Move) -> str:
        """Log in to a move's source and verify it; the path of its disk."""

    def detach(self, move: state.Move) -> None:
        """Log out, whatever still uses the disk."""

    def end_if_down(self, move: state.Move) -> bool:
        """Log out if the source does not answer; whether it was so."""

    def disk(self, move: state.Move) -> str | None:
        """The path of a move's source disk if a session has it."""

    def passed(self) -> dict[str, str]:
        """The disks of volumes that are passed through here, by volume."""

    def recorded_passes(self) -> dict[str, str]:
        """What the initiator's records say is, by volume."""

    def end_passed_if_down(self, volume_id: str) -> bool:
        """Log out of a volume's home that does not answer."""

    def attach_passed(self, volume_id: str, size_bytes: int,
                      properties: objects.Properties, in_use: bool) -> str:
        """Log in to a volume's home to pass it through; the disk's path."""

    def may_be_passed_by(self, volume_id: str, user: str) -> bool:
        """Whether a volume may be passed through by a CHAP user."""

    def has_begun(self, volume_id: str) -> bool:
        """Whether a volume has just begun to be passed through here."""

    def end_passed(self, volume_id: str) -> bool:
        """Log out of a volume's home."""

    def end_other_passes(self, volume_id: str, iqn: str) -> None:
        """Log out of the homes that a volume had before."""

    def is_away(self, move: state.Move) -> bool:
        """Whether a source, or who passes it through, does not answer."""
