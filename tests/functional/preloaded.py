# SPDX-License-Identifier: Apache-2.0
"""The operator's command as a fork of a process that has imported it.

In a node, importing Cinder takes most of a command's time. The first command
after a boot is started as it is anywhere; then a parent is, which has what
commands import, and forks for each of the next ones.
"""

import importlib
import json
import os
import pathlib
import pkgutil
import select
import signal
import socket
import sys
import traceback

#: Seconds without a command after which the parent ends.
IDLE = 300
MODULE = 'cinder_localclone.cmd.main'
#: A directory beside the socket: somebody has started the parent.
BEGUN = '.begun'
#: What commands import when they need it.
LATER = ('pymysql', 'oslo_messaging._drivers.impl_rabbit')


def load(module):
    """Import a program; the operator's command with all that it may need."""
    if module == MODULE:
        # Cinder's drivers cannot be imported before.
        importlib.import_module('cinder.objects').register_all()
        package = importlib.import_module(module.partition('.')[0])
        for each in pkgutil.walk_packages(
                package.__path__, package.__name__ + '.'):
            # Nova's scheduler runs it, with options of Nova's own.
            if not each.name.startswith(package.__name__ + '.nova'):
                importlib.import_module(each.name)
        for name in LATER:
            importlib.import_module(name)
    return importlib.import_module(module)


def serve(path, module):
    """Run a program's main() in a child for each that asks."""
    program = load(module)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path + '.new')
    listener.listen()
    os.rename(path + '.new', path)
    listener.settimeout(IDLE)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        while True:
            connection, _address = listener.accept()
            with connection:
                if not os.fork():
                    listener.close()
                    _attend(connection, program)
    except TimeoutError:
        os.unlink(path)
        os.rmdir(path + BEGUN)


def _attend(connection, program):
    """In a child: run the program in another; say how it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, fds, _flags, _address = socket.recv_fds(connection, 1 << 16, 3)
    pid = os.fork()
    if not pid:
        connection.close()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os._exit(_main(program, json.loads(words)))
    ended = os.pidfd_open(pid)
    # Who hangs up has been killed: so is what it has asked for.
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    try:
        connection.send(b'%d' % os.waitstatus_to_exitcode(status))
    except OSError:
        pass
    os._exit(0)


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


def ask(path, *words):
    """Have a program run with this process's input and output.

    :returns: its exit code
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(words).encode()], [0, 1, 2])
        return int(connection.recv(20) or 1)


if __name__ == '__main__':
    sys.path[0] = str(pathlib.Path(__file__).parents[2])
    sys.exit({'serve': serve, 'ask': ask}[sys.argv[1]](*sys.argv[2:]))
