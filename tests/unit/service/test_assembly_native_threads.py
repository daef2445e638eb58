# SPDX-License-Identifier: Apache-2.0
"""The service without eventlet, as Cinder 29 can start it.

In a process of its own: one has either the one or the other.
"""

from importlib import util
import os
import subprocess
import sys
import textwrap

import testtools

#: As cinder.cmd.volume begins; then what the driver starts, on a bus that is
#: in the process. What waits here does not let others go on, as a green
#: thread would.
PROGRAM = textwrap.dedent('''
    from cinder import monkey_patch
    monkey_patch.patch()
    import dataclasses
    import threading
    from unittest import mock
    from cinder import objects
    from cinder import rpc
    from oslo_config import cfg
    from oslo_service import backend
    objects.register_all()
    from cinder_localclone.service import assembly
    from cinder_localclone.core import rpc as methods
    from cinder_localclone.service import endpoint
    from cinder_localclone.service import rpc as peer

    main, ran, enough = threading.current_thread(), [], threading.Event()
    asked, over = threading.Event(), threading.Event()

    def act():
        ran.append(threading.current_thread())
        if len(ran) == 1:
            raise RuntimeError('the first time')
        if len(ran) == 3:
            enough.set()

    def describe(_context):
        asked.set()
        over.wait(60)
        return {'addresses': ['192.0.2.1']}

    cfg.CONF([], project='cinder', default_config_files=[])
    rpc.init(cfg.CONF)
    loop = assembly._loop(0.01, act)
    service = mock.Mock(describe=describe)
    service.node.host = 'a@l'
    with mock.patch.dict(methods.METHODS, describe=dataclasses.replace(
            methods.METHODS['describe'], function=describe)):
        server = endpoint.start_server(service)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(
        peer.Client(60).call('a@l', methods.METHODS['describe'], {})))
    asking.start()
    assert asked.wait(60), 'the server does not begin'
    assert enough.wait(60), 'the loop does not go on'
    over.set()
    asking.join(60)
    assert answers == [{'addresses': ['192.0.2.1']}], answers
    assert main not in ran
    assert backend.get_backend_type() is backend.BackendType.THREADING
    assert not monkey_patch.is_patched()
    server.stop()
    server.wait()
    loop.stop()
    loop.wait()
    print('so it is')
''')


class NativeThreadsTest(testtools.TestCase):

    @testtools.skipUnless(util.find_spec('cinder.monkey_patch'),
                          'before Cinder 29 there is eventlet alone')
    def test_loops_and_server(self):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', PROGRAM],
            env=dict(os.environ, PYTHONDONTWRITEBYTECODE='1',
                     OS_CINDER_DISABLE_EVENTLET_PATCHING='1',
                     OS_DEFAULT__TRANSPORT_URL='fake:/'),
            capture_output=True, text=True, timeout=600)
        self.assertEqual((0, 'so it is\n'), (
            done.returncode, done.stdout), done.stderr)
