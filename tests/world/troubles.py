# SPDX-License-Identifier: Apache-2.0
"""What may fail in a schedule, and how: by name, what else is drawn of it."""


def _soon(random):
    """Seconds, or steps of others, until a message arrives."""
    return random.choice((1, 1, 5, 15)), random.choice((3, 10, 30, 90))


def _again(random):
    """The same until it arrives once more."""
    return random.choice((0, 1, 15, 90, 400)), random.choice(
        (10, 50, 200, 800))


def _plain(_random):
    return ()


#: What may become of a cast beside that it arrives, and of a call: by name,
#: what else has to be known of it. What is late arrives when nobody waits any
#: more; what was sent later overtakes what is slow.
CAST_FATES = {'request lost': _plain, 'late': _plain, 'slow': _soon,
              'twice': _again}
FATES = {**CAST_FATES, 'answer lost': _plain, 'answered late': _plain}
#: And of what creates something: once it is done, the service is killed and
#: gets the message again.
CREATION_FATES = {**FATES, 'again': lambda random: (
    random.choice((1, 1, 5)),)}


def _cut(random):
    return random.choice((2, 10, 90, 400)), random.getrandbits(30)


def _outage(random):
    """How many of a node's next requests to the database fail as well."""
    return random.choice((0, 0, 1, 2, 5)),


#: What may fail at any moment: by name, what else has to be known of it.
STOPS = {
    'kill': lambda random: (random.choice((1, 5, 90)), 0),
    'cut': _cut, 'cut all': _cut, 'cut another': _cut}
#: What may fail in an effect on the node, and in one on the database.
LOCAL = {'daemon dies before': _plain, 'daemon dies after': _plain,
         'time over after': _plain}
#: And in the middle of an effect, with a device suspended.
HALF = {'daemon dies': _plain}
DATABASE = {'deadlock': _plain, 'connection lost': _outage,
            'connection lost after the commit': _outage}
#: What may fail in what is asked of the key manager.
KEYS = {'no answer': _plain, 'no answer after': _plain}
#: What may become of what Cinder's manager writes, when its driver is done.
CINDER = {'lost': _plain, 'lost after the commit': _plain}
#: All of them.
TROUBLES = sorted({*STOPS, *LOCAL, *HALF, *DATABASE, *KEYS, *CINDER})
#: What is recorded: after a fault there a record says too much, or too little.
RECORDED = frozenset((
    'begin', 'advance', 'commit', 'roll_back', 'finish', 'locate', 'set_home',
    'record'))
#: The same, and what is flushed or swapped: faults beside it tell most.
HOT = RECORDED | frozenset((
    'flush_handle', 'flush_lv', 'ensure_handle_on_clone',
    'end_remote_attachments',
    'ensure_handle_on_lv', 'switch_to_clone', 'remove_lv', 'disown',
    'create_snapshot', 'create_copy', 'begin_swap', 'set_hydration',
    'suspended', 'create', 'remove', 'set_encryption', 'add_key',
    'kill_slot', 'write_token', 'remove_token', 'begin_reencryption',
    'end_reencryption', 'open', 'format', 'seal'))
