# SPDX-License-Identifier: Apache-2.0
"""Which requests for a volume come too late. Pure.

Nova may ask twice for a detach, and Cinder deletes the attachment after the
first answer. Nova may give an attachment up whose request takes too long. A
request waits for a lock, or for a service that stands still; by then another
attachment may have the volume. So a request carries the attachments that
there were when Cinder asked.
"""

from collections.abc import Iterator

from cinder_localclone import ports
from cinder_localclone import rows

#: What of a connector says which host it is of: either is enough, for a host
#: may have got another name or another iSCSI name since.
NAMES = ('host', 'initiator')


def attachments(volume: rows.Row) -> ports.Attachments:
    """The attachments that a volume has, as a request carries them."""
    return {str(each.id): each.connector and {
        name: each.connector.get(name) for name in NAMES}
        for each in volume.volume_attachment}


def unsent(volume: rows.Row, recorded: rows.Row, connector: ports.Connector
           ) -> str | None:
    """Return the id of a request's own attachment if Cinder's API sent others.

    ``attachment_update`` sends the volume with its attachments, the request's
    own among them, and refuses if one of them is connected.
    ``attachment_create`` with a connector, as Nova calls it for a live
    migration, reads the volume before it reserves the request's own (both in
    cinder/volume/api.py). That is the oldest one without a host that the
    volume sent does not have. Nova learns its id only from the answer. Its
    connector has the mount point (nova/volume/cinder.py); that of
    ``os-initialize_connection``, for which there is no attachment, has not.

    :param volume: the object that came with the request
    :param recorded: its row now
    :returns: None if it was sent, or is gone
    """
    sent = {str(each.id) for each in volume.volume_attachment}
    if not connector.get('mountpoint') or sent and not any(
            each.connection_info for each in volume.volume_attachment):
        return None
    found = sorted((each for each in recorded.volume_attachment
                    if not each.connector and str(each.id) not in sent),
                   key=lambda each: each.created_at)
    return str(found[0].id) if found else None


def is_late_to_connect(volume: rows.Row, connector: ports.Connector | None,
                       before: ports.Attachments) -> bool:
    """Whether a request to connect a volume is older than its attachment.

    It is if no attachment is left that it may be for; or if one is gone, and
    there is a newer one.

    :param connector: None: it may be for any attachment
    :param before: the attachments when Cinder asked
    """
    now = attachments(volume)
    if before.keys() - now.keys() and now.keys() - before.keys():
        return True
    meant = set(_meant(before, connector))
    # Without one, Cinder itself asks, or a client that attaches in two calls.
    return bool(meant and now and meant.isdisjoint(_meant(now, connector)))


def is_late_to_detach(volume: rows.Row, connector: ports.Connector | None,
                      before: ports.Attachments) -> bool:
    """Whether a host may have a volume by another attachment than was meant.

    Cinder deletes what is detached after the driver has answered. So a
    request is in time if all that named the host are there. If one is gone,
    an earlier request was for it, as this one may be; and what names no host
    may be connected by now: Cinder records that after the driver's answer.

    :param connector: None: of all hosts
    :param before: the attachments when Cinder asked
    """
    now = attachments(volume)
    old, new = set(_meant(before, connector)), set(_meant(now, connector))
    named = {each for each in old if before[each]}
    if not named:  # of whoever attaches in two calls
        return any(now[each] or each not in old for each in new)
    if named - new:
        return bool(new)
    # It is in time, but means nobody who has got the volume since.
    return any(now[each] != before.get(each) for each in new)


def _meant(found: ports.Attachments, connector: ports.Connector | None
           ) -> Iterator[str]:
    """Ids of those that a request may be for.

    Of the host that the connector names, and of those that name none yet.
    """
    for each, host in found.items():
        if not (connector and host) or any(
                connector.get(name) and connector[name] == host.get(name)
                for name in NAMES):
            yield each
