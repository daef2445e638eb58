# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone forget``: a node that will never come back."""

import argparse

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd import base
from cinder_localclone import forgetting
from cinder_localclone import state


def _copied(backend: backends.Backend, move: state.Move) -> float | None:
    """Percent that is local at the destination of a move."""
    answer, _problem = backend.ask(
        move.destination, 'inspect', move.volume_id)
    clone = (answer or {}).get('clone')
    if not clone:
        return None
    return 100.0 * clone['hydrated'] / max(1, clone['regions'])


class Forget(base.Command):
    """Forget a node that will never come back; first say what is lost.

    Without --yes nothing is changed and the exit code is 1. Refused while
    the node's volume service is up.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser, with the node and --yes."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'node', metavar='NODE',
            help='its volume service, as "doctor" lists it: host@backend')
        parser.add_argument('--yes', action='store_true',
                            help='forget the node; without this option only '
                            'show what is lost')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Table:
        """The rows of the table."""
        backend, host = self.app.backend(), parsed_args.node
        steps = forgetting.plan(
            backend.records, host, self._heir(backend, host),
            lambda move: _copied(backend, move))
        if not steps and host not in backend.nodes():
            raise base.CommandError(
                'Nothing names the node %s; "cinder-localclone doctor" lists '
                'those of this backend.' % host)
        if not parsed_args.yes:
            self.app.exit_code = 1
            return ('Volume', 'What it is there', 'Lost', 'Then'), [
                (step.volume_id, step.what, step.lost, step.then)
                for step in steps] + [
                    ('', 'volume service', forgetting.NOTHING, 'forgotten')]
        rows = [
            (volume_id, 'Cinder\'s migration of it has ended: ' + how)
            for volume_id, how in backend.records.end_interrupted(
                host).items()]
        rows += [(step.volume_id, self._done(step)) for step in steps]
        if not self.app.exit_code and backend.records.forget_service(host):
            rows.append(('', 'the volume service is forgotten'))
        return ('Volume', 'What'), rows

    def _done(self, step: forgetting.Step) -> str:
        """What one step did; one that fails does not stop the others."""
        try:
            if step.act:
                step.act()
        except Exception as exc:
            self.app.exit_code = 1
            return 'failed: ' + base.in_words(exc)
        return step.then

    @staticmethod
    def _heir(backend, host):
        """This node, with its pool: it gets the volumes that are lost."""
        if backend.records.services().get(host):
            raise base.CommandError(
                'The volume service %s is up. Nothing was changed. To take a '
                'node out of service, empty it first: "cinder-localclone '
                'drain %s".' % (host, host))
        if host == backend.host:
            raise base.CommandError(
                '%s is this node. Nothing was changed; run it on another one.'
                % host)
        if host.partition('@')[2] != backend.name:
            raise base.CommandError(
                '%s is no node of the backend %s: name its volume service '
                'as "doctor" does, without a pool. Nothing was changed.' % (
                    host, backend.name))
        answer, problem = backend.ask(backend.host, 'describe')
        if answer is None:
            raise base.CommandError(
                'The volume service of this node did not answer. Nothing was '
                'changed. It has to run: the lost volumes get this node as '
                'their home, and can be deleted from here. ' + problem)
        return answer['host']
