# SPDX-License-Identifier: Apache-2.0
"""The little of a network service that Nova asks for; standard library only.

Servers of the lab have no network (``--nic none``). Nova still looks for
the network service's extensions, networks and ports: there are none, and
every list is empty. A project may have as many ports as it likes.
"""

import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers that there is nothing."""

    def do_GET(self):
        words = [word for word in self.path.partition('?')[0].split('/')
                 if word]
        if len(words) < 2:  # / and /v2.0: which versions there are
            version = {'id': 'v2.0', 'status': 'CURRENT', 'links': [{
                'rel': 'self', 'href': 'http://%s/v2.0/' % (
                    self.headers['Host'])}]}
            self._answer({'versions': [version]} if not words
                         else {'resources': []})
        elif len(words) == 2:
            kind = words[1].removesuffix('.json').replace('-', '_')
            self._answer({kind: []})
        elif words[1] == 'quotas':
            self._answer({'quota': {'port': -1}})
        else:
            self.send_error(404)

    def _answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, text, *words):
        print(text % words, flush=True)


if __name__ == '__main__':
    http.server.ThreadingHTTPServer(
        (sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
