# SPDX-License-Identifier: Apache-2.0
"""The order of the rooms: what may import what, and how large they may be."""

import ast
import pathlib
import tomllib

import testtools

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = 'cinder_localclone'
#: Imports point down this list, never up. A package without modules of its
#: own here is one room; what is in it may import each other.
ORDER = (
    'cmd',
    'nova.scheduler', 'nova.knowledge', 'nova.block_storage', 'nova.opts',
    'nova.placement', 'nova',
    'driver', 'image_driver', 'manage_driver', 'group_driver', 'handlers',
    'assembly', 'connections',
    'operations', 'managing_snapshots', 'managing', 'extending', 'reverting',
    'migration', 'front_end', 'deletion', 'creation', 'unended',
    'header_backups', 'reconcile',
    'lost_detach', 'kept_keys',
    'copying', 'copies',
    'reencryption', 'reencryption_plan',
    'opening', 'recovery_keys', 'header_care', 'births', 'own_key',
    'key_change', 'headers_at_rest',
    'encryption', 'snapshots', 'adoption', 'newborns', 'serving',
    'glance',
    'moves.follow', 'moves.holes', 'moves.source', 'moves.destination',
    'moves.completion', 'moves.refilling', 'passing', 'moves.remains',
    'moves.removal',
    'moves.offering', 'moves.checks', 'moves.flow', 'moves',
    'secret_care', 'tops', 'pausing', 'crypt_tops', 'unlocking', 'restore',
    'repair',
    'forgetting', 'draining',
    'comparison', 'inspection', 'wake', 'directory',
    'decrypting', 'cryptsetup', 'header_files', 'runner',
    'sessions', 'export', 'stack', 'handles', 'top_devices',
    'logical_volumes', 'peer', 'notices',
    'operator_records', 'metric_records', 'queue_records', 'snapshot_records',
    'secret_records', 'keys', 'key_logins', 'migration_records',
    'attachment_records', 'status_records', 'backup_records', 'records',
    'privileged', 'iscsi_target', 'opts', 'messages', 'events',
    'version',
    'pinning',
    'deletion_errors', 'encryption_errors', 'lvm_errors', 'manage_errors',
    'reencryption_errors',
    'sparse_errors',
    'capabilities', 'node', 'listing', 'served', 'late_requests',
    'record_ports', 'peer_ports', 'crypt_ports', 'ports',
    'images', 'hydration', 'queue', 'decision', 'manageable', 'survey',
    'thin_map', 'luks', 'lvm', 'dm', 'rows', 'iscsi_names', 'host_names',
    'names', 'encryption_types', 'pins', 'pace', 'state', 'exceptions',
)
#: These are values and functions of values: they import each other, what is
#: listed here of the standard library, and nothing else, so nothing that
#: acts; except for exceptions, whose base is Cinder's.
PURE = ('nova.placement', 'capabilities', 'node', 'listing', 'served',
        'late_requests', 'record_ports', 'peer_ports', 'crypt_ports', 'ports',
        'images', 'hydration', 'queue', 'decision', 'manageable',
        'survey', 'thin_map', 'luks', 'encryption_types', 'lvm', 'dm',
        'iscsi_names', 'host_names', 'names', 'rows', 'pace', 'pins',
        'state', 'exceptions')
HARMLESS = {'collections', 'contextlib', 'dataclasses', 'datetime', 'enum',
            'functools', 'hashlib', 'heapq', 'json', 're', 'struct', 'types',
            'typing', 'xml'}
#: Lines of a module, at most.
LIMIT = 800


def modules(directory):
    """(name within the directory, path) of all modules in it."""
    for path in sorted((ROOT / directory).rglob('*.py')):
        parts = path.relative_to(ROOT / directory).with_suffix('').parts
        yield '.'.join(part for part in parts if part != '__init__'), path


def imports(path):
    """Full names of all that a module imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ('%s.%s' % (node.module, alias.name)
                        for alias in node.names)


def room(name):
    """The entry of ORDER that has a module, or something in one."""
    return max((entry for entry in ORDER if (name + '.').startswith(
        entry + '.')), key=len, default=None)


MODULES = {name: path for name, path in modules(PACKAGE) if name}


def own_imports(name):
    """The modules of the package, and what is in them, that one imports."""
    prefix = PACKAGE + '.'
    return [imported.removeprefix(prefix) for imported in imports(
        MODULES[name]) if imported.startswith(prefix)]


class RoomsTest(testtools.TestCase):

    def test_every_module_has_its_place(self):
        self.assertEqual([], [name for name in MODULES if not room(name)])
        self.assertEqual(set(ORDER), {room(name) for name in MODULES})

    def test_imports_point_down(self):
        self.assertEqual([], [
            '%s imports %s' % (name, other) for name in MODULES
            for other in own_imports(name)
            if room(other) != room(name)
            and ORDER.index(room(other)) < ORDER.index(room(name))])

    def test_pure_rooms_import_nothing_that_acts(self):
        for name in MODULES:
            if room(name) in PURE:
                foreign = {each.partition('.')[0] for each in imports(
                    MODULES[name])} - HARMLESS - {PACKAGE}
                self.assertEqual(
                    {'cinder'} if name == 'exceptions' else set(), foreign)
                self.assertLessEqual(
                    {room(other) for other in own_imports(name)}, set(PURE))

    def test_what_nova_loads_needs_no_cinder(self):
        """Cinder is not installed where Nova's scheduler runs."""
        todo = {name for name in MODULES if room(name).startswith('nova')}
        seen = set()
        while todo:
            name = todo.pop()
            seen.add(name)
            self.assertEqual([], [
                each for each in imports(MODULES[name])
                if each.partition('.')[0] in ('cinder', 'os_brick')], name)
            todo |= {other for other in MODULES if any(
                (each + '.').startswith(other + '.')
                for each in own_imports(name))} - seen

    def test_pure_rooms_are_typed_strictly(self):
        config = tomllib.loads((ROOT / 'pyproject.toml').read_text())
        strict, = config['tool']['mypy']['overrides']
        self.assertLessEqual(
            {PACKAGE + '.' + name for name in MODULES if room(name) in PURE},
            set(strict['module']))

    def test_no_module_is_too_large(self):
        self.assertEqual([], [
            str(path) for top in (PACKAGE, 'lab')
            for _name, path in modules(top)
            if len(path.read_text().splitlines()) > LIMIT])
