# SPDX-License-Identifier: Apache-2.0
"""MariaDB, RabbitMQ, Keystone, Glance, cinder-api and cinder-scheduler.

Real ones, in the lab's network namespace. What takes long and is always the
same (schemas, users, catalogue) is made once and copied.
"""

import os
import shutil
import threading

from lab.core import config
from lab.core import install
from lab.core import process


class ControlPlane:
    """The control plane of one lab.

    :param lab: the :class:`lab.lab.Lab` it belongs to
    """

    #: What the template is named, and the files that it is made by, besides
    #: the venv: of this directory, or absolute.
    template = 'control'
    sources = ('control_plane.py', 'config.py', 'bootstrap.py')
    databases = ('keystone', 'cinder', 'glance')
    #: Each API's configuration file and WSGI module.
    apis = {
        'keystone': ('keystone.conf', 'keystone.wsgi.api'),
        'cinder': ('cinder.conf', 'cinder.wsgi.api'),
        'glance': ('glance-api.conf', 'glance.wsgi.api')}
    #: What else runs, by the names of its processes.
    daemons = ('mariadb', 'rabbitmq', 'cinder-scheduler')
    #: Words for bootstrap.py.
    extra_services = ()

    def __init__(self, lab):
        self.lab = lab
        self.directory = lab.directory / 'control'

    # -- from nothing to templates

    def prepare(self, progress) -> None:
        """Copy the template of database and keys; make it if need be."""
        inputs = self.lab.venv.name.encode() + b''.join(
            (install.HERE / name).read_bytes() for name in self.sources)
        made = install.template(self.template, inputs, self._make, progress)
        shutil.rmtree(self.directory, ignore_errors=True)
        process.run('cp', '-a', '--reflink=auto', str(made),
                    str(self.directory), timeout=120)
        for name in ('images', 'staging', 'tasks', 'cinder/locks',
                     'cinder/coordination', 'rabbit'):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self._write_configs(self.directory)

    def _write_configs(self, directory):
        venv = self.lab.venv
        shutil.copy(venv / 'etc/glance/glance-api-paste.ini', directory)
        (directory / 'keystone.conf').write_text(config.keystone(directory))
        (directory / 'glance-api.conf').write_text(
            config.glance(directory, directory))
        (directory / 'cinder.conf').write_text(config.cinder_control(
            venv, directory / 'cinder', self.lab.settings['debug'],
            self.lab.settings.get('control_options'),
            self.lab.settings['keys']))
        (directory / 'rabbitmq.conf').write_text(config.rabbitmq())

    def _make(self, target):
        """Fill the template: runs services in this lab's namespace."""
        directory = self.directory
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self._write_configs(directory)
        for keys in ('fernet-keys', 'credential-keys'):
            (directory / keys).mkdir(mode=0o700)
        process.run('mariadb-install-db', '--user=root', '--auth-root-'
                    'authentication-method=normal', '--skip-test-db',
                    '--datadir=%s' % (directory / 'mysql'),
                    '--tmpdir=%s' % self._temporary())
        self._start_database()
        sql = ''.join(
            "CREATE DATABASE %(n)s; GRANT ALL ON %(n)s.* TO '%(n)s'@'%%' "
            "IDENTIFIED BY '%(p)s';" % {'n': name, 'p': config.PASSWORD}
            for name in self.databases)
        process.run('mariadb', '--socket=%s' % (directory / 'mysql.sock'),
                    '-uroot', '-e', sql)
        keystone = [self.lab.venv / 'bin/keystone-manage', '--config-file',
                    directory / 'keystone.conf']
        self._host(*keystone, 'db_sync')
        for command in ('fernet_setup', 'credential_setup'):
            self._host(*keystone, command, '--keystone-user=root',
                       '--keystone-group=root')
        self._host(*keystone, 'bootstrap', '--bootstrap-password',
                   config.PASSWORD, '--bootstrap-public-url',
                   config.url('keystone') + '/v3',
                   '--bootstrap-internal-url',
                   config.url('keystone') + '/v3',
                   '--bootstrap-region-id', 'lab')
        self._make_schemas()
        self._start_api('keystone')
        self._wait_for_api('keystone')
        self._host(self.lab.venv / 'bin/python', '-P',
                   install.HERE / 'bootstrap.py', *self.extra_services)
        self.lab.processes.stop('keystone')
        self.lab.processes.stop('mariadb')
        for name in ('mysql', 'fernet-keys', 'credential-keys'):
            shutil.move(directory / name, target / name)

    def _make_schemas(self):
        self._host(self.lab.venv / 'bin/glance-manage', '--config-file',
                   self.directory / 'glance-api.conf', 'db_sync')
        self._host(self.lab.venv / 'bin/cinder-manage', '--config-file',
                   self.directory / 'cinder.conf', 'db', 'sync')

    def _host(self, *argv):
        self.lab.host_run(*argv, timeout=300,
                          env=dict(os.environ, PYTHONPATH=''))

    # -- running

    def start(self, progress) -> None:
        """Start everything; :meth:`wait` returns when all APIs answer."""
        threads = [threading.Thread(target=self._guard, args=(start,))
                   for start in (self._start_database, self._start_bus)]
        self._errors = []
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        progress('database and message bus')
        for name in self.apis:
            self._start_api(name)
        self._start_daemon('cinder-scheduler', 'cinder.conf')

    def wait(self) -> None:
        """Wait until all APIs answer."""
        for name in self.apis:
            self._wait_for_api(name)

    def restart(self, name) -> None:
        """Start an API that has ended; returns when it answers."""
        self._start_api(name)
        self._wait_for_api(name)

    def _guard(self, start):
        try:
            start()
        except Exception as exc:
            self._errors.append(exc)

    def _temporary(self):
        """A directory of this database alone.

        MariaDB removes the temporary tables of all others when it starts.
        """
        path = self.directory / 'tmp'
        path.mkdir(exist_ok=True)
        return path

    def _start_database(self):
        log = self.lab.logs / 'mariadb.log'
        sock = self.directory / 'mysql.sock'
        self.lab.processes.start('mariadb', [
            'mariadbd', '--no-defaults', '--user=root',
            '--datadir=%s' % (self.directory / 'mysql'),
            '--tmpdir=%s' % self._temporary(),
            '--socket=%s' % sock, '--bind-address=' + config.CONTROL,
            '--pid-file=%s' % (self.directory / 'mysql.pid'),
            '--innodb-flush-log-at-trx-commit=0', '--max-connections=300',
            # A node that lost power never ends its transactions: its row
            # locks would stand for hours.
            '--idle-transaction-timeout=15',
            '--skip-name-resolve'], log)
        process.wait_for('MariaDB', lambda: sock.exists() and 'mysqld is '
                         'alive' in process.run(
                             'mariadb-admin', '--socket=%s' % sock, '-uroot',
                             'ping', check=False), 40, log)

    def _start_bus(self):
        directory = self.directory / 'rabbit'
        log = self.lab.logs / 'rabbitmq.log'
        epmd = ['epmd', '-address', '127.0.0.1']
        self.lab.processes.start('epmd', epmd, self.lab.logs / 'epmd.log')
        self.lab.processes.start(
            'rabbitmq', ['/usr/lib/rabbitmq/bin/rabbitmq-server'], log, env={
                'RABBITMQ_NODENAME': 'lab@localhost',
                'RABBITMQ_MNESIA_BASE': str(directory),
                'RABBITMQ_LOG_BASE': str(directory),
                'RABBITMQ_CONFIG_FILE': str(self.directory / 'rabbitmq'),
                'RABBITMQ_ENABLED_PLUGINS_FILE': '/dev/null',
                'RABBITMQ_CONF_ENV_FILE': '/dev/null',
                'RABBITMQ_LOGS': '-', 'HOME': str(directory),
                'ERL_EPMD_ADDRESS': '127.0.0.1',
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                    '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none'})
        process.wait_for('RabbitMQ', lambda: self.lab.reachable(
            config.CONTROL, 5672), 60, log)

    def _start_daemon(self, name, conf):
        self.lab.processes.start(
            name, [self.lab.venv / 'bin' / name, '--config-file',
                   self.directory / conf],
            self.lab.logs / (name + '.log'),
            env={'PYTHONPATH': str(self.lab.repo)})

    def _config_files(self, name):
        return str(self.directory / self.apis[name][0])

    def _environment(self, name):
        """Variables of the process that serves an API."""
        return {
            'PYTHONPATH': str(self.lab.repo),
            'LOCALCLONE_STEPS': str(self.lab.directory / 'steps'),
            'OS_%s_CONFIG_FILES' % name.upper(): self._config_files(name),
            'OS_%s_CONFIG_DIR' % name.upper(): str(self.directory)}

    def _start_api(self, name):
        conf, module = self.apis[name]
        if name == 'cinder' and self.lab.settings.get('stepping'):
            module = 'lab.faults.api'
        self.lab.processes.start(name, [
            self.lab.venv / 'bin/uwsgi', '--http-socket', '%s:%d' % (
                config.CONTROL, config.PORTS[name]),
            '--module', module + ':application',
            '--virtualenv', self.lab.venv, '--master', '--die-on-term',
            '--need-app', '--enable-threads', '--threads',
            str(self.lab.settings.get('api_threads', 4))
            if name == 'cinder' else '2', '--thunder-lock',
            '--lazy-apps', '--buffer-size', '65535', '--listen', '64',
            '--http-auto-chunked', '--http-chunked-input',
            # A chunk with its header: uwsgi takes 1 MiB, Cinder sends that.
            '--chunked-input-limit', str(4 << 20),
            '--chunked-input-timeout', '60',
            '--add-header', 'Connection: close', '--disable-logging',
            '--pyargv', '--config-file %s' % (self.directory / conf),
        ], self.lab.logs / ('%s.log' % name), env=self._environment(name))

    def _wait_for_api(self, name):
        log = self.lab.logs / ('%s.log' % name)

        def answers():
            if self.lab.processes.pid(name) is None:
                raise process.LabError('%s ended; see %s' % (name, log))
            return self.lab.http_status(config.url(name) + '/')
        process.wait_for('%s API' % name, answers, 120, log)
