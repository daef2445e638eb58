# SPDX-License-Identifier: Apache-2.0
"""Programs of a node as forks of a process that has imported them.

In a node, importing Cinder takes most of a program's time. The first start of
a program after a boot makes a parent, which has imported what the program
needs, and forks for it and for each of the next ones.
"""

import glob
import importlib
import json
import os
import pathlib
import pkgutil
import select
import signal
import socket
import sys
import time
import traceback

#: Seconds without a request after which a parent ends.
IDLE = 900
#: Seconds until a parent has imported all.
LOADING = 120
#: A directory beside the socket: somebody has started the parent.
BEGUN = '.begun'
COMMAND, SERVICE = 'cinder_localclone.cmd.main', 'cinder.cmd.volume'
#: privsep's helper, which is run by the parent of the command: that of the
#: service has loaded eventlet.
HELPER = 'lab.core.quick_start'
#: Of the socket of such a parent: its module's name and a word for its code.
SOCKET = '/run/preloaded.%s.%s'
PACKAGE = 'cinder_localclone'
#: What both import when they need it.
LATER = ('pymysql', 'oslo_messaging._drivers.impl_rabbit')

# As they are before eventlet, which the service loads, changes them: a parent
# must not begin what its children would share.
_Socket, _select, _waitpid = socket.socket, select.select, os.waitpid


def load(module):
    """Import a program, with all that it may need."""
    program = importlib.import_module(module)
    if module not in (COMMAND, SERVICE):
        return program
    # Cinder's drivers cannot be imported before.
    importlib.import_module('cinder.objects').register_all()
    package = importlib.import_module(PACKAGE)
    # Nova's scheduler has options of its own, and so has the command.
    others = [PACKAGE + '.nova']
    if module != COMMAND:
        others.append(PACKAGE + '.cmd')
    for each in pkgutil.walk_packages(package.__path__, PACKAGE + '.'):
        if not each.name.startswith(tuple(others)):
            importlib.import_module(each.name)
    for name in LATER:
        importlib.import_module(name)
    helper = importlib.import_module(HELPER)
    if module == SERVICE:
        helper.look_seldom()
    return program


def serve(path, module):
    """Run a program's main() in a child for each that asks."""
    listener = _Socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path + '.new')
    listener.listen()
    program = load(module)
    os.rename(path + '.new', path)
    listener.settimeout(IDLE)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        while True:
            number, _address = listener._accept()
            with _Socket(fileno=number) as connection:
                connection.setblocking(True)
                if not os.fork():
                    listener.close()
                    _attend(connection, program)
    except TimeoutError:
        os.unlink(path)
        os.rmdir(path + BEGUN)


def _attend(connection, program):
    """In a child: run the program in another; say how it has ended.

    Of a service: its process id, at once.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, fds, _flags, _address = socket.recv_fds(connection, 1 << 16, 3)
    asked = json.loads(asked)
    pid = os.fork()
    if not pid:
        connection.close()
        if asked['stays']:
            os.setsid()
            if 'eventlet' in sys.modules:  # a hub of its own, after a fork
                importlib.import_module('eventlet.hubs').use_hub()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        # As at the start of Python: by the kind of file.
        sys.stdin, sys.stdout, sys.stderr = (
            open(0, closefd=False), open(1, 'w', closefd=False),
            open(2, 'w', buffering=1, closefd=False))
        os._exit(_main(sys.modules.get(asked['module'], program),
                       asked['words']))
    try:
        if asked['stays']:
            connection.send(b'%d' % pid)
        else:
            connection.send(b'%d' % _ended(pid, connection))
    except OSError:
        pass
    os._exit(0)


def _ended(pid, connection):
    """The exit code of a process; it is killed when its user hangs up."""
    ended = os.pidfd_open(pid)
    ready, _, _ = _select([ended, connection], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(_waitpid(pid, 0)[1])


def _main(program, words):
    """:returns: the exit code"""
    sys.argv = [program.__file__, *words]
    try:
        code = program.main()
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


def _ask(path, words, stays, module=''):
    """Have a program run with this process's input and output.

    :param module: of the program, if it is not the one that the parent is for
    """
    deadline = time.monotonic() + LOADING
    with _Socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        while True:
            try:
                connection.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        socket.send_fds(connection, [json.dumps(
            {'words': words, 'stays': stays, 'module': module}
        ).encode()], [0, 1, 2])
        return int(connection.recv(20) or 1)


def run(path, *words):
    """:returns: the exit code of the program"""
    return _ask(path, words, False)


def helper(words):
    """Run privsep's helper, if there is a parent that has loaded.

    :returns: its exit code; None: there is none
    """
    for path in glob.glob(SOCKET % (COMMAND.rpartition('.')[2], '*')):
        if not path.endswith(('.new', BEGUN)):
            return _ask(path, words, False, HELPER)
    return None


def start(path, pid, *words):
    """Have a service run; its process id is in a file then."""
    pathlib.Path(pid).write_text('%d\n' % _ask(path, words, True))


if __name__ == '__main__':
    sys.path[0] = str(pathlib.Path(__file__).parents[2])
    sys.exit({'serve': serve, 'run': run, 'start': start}[sys.argv[1]](
        *sys.argv[2:]))
