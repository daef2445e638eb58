# SPDX-License-Identifier: Apache-2.0
"""A small client of the lab's APIs; standard library only."""

import http.client
import json
import urllib.parse

from lab.core import config
from lab.core import process

MICROVERSIONS = {'cinder': 'volume 3.70', 'nova': 'compute 2.93',
                 'placement': 'placement 1.28'}
PATHS = {'cinder': '/v3/%s', 'nova': '/v2.1', 'glance': '/v2',
         'barbican': '/v1', 'placement': ''}
#: Users whose project is not called as they are.
PROJECTS = {'cinder': 'service', 'nova': 'service'}


class Response:
    """An answer, with the methods that tests know from requests."""

    def __init__(self, status, body):
        self.status_code = status
        self.text = body.decode(errors='replace')

    def json(self):
        """The body as JSON."""
        return json.loads(self.text)

    def raise_for_status(self):
        """:raises LabError: if the request was refused"""
        if self.status_code >= 400:
            raise process.LabError('HTTP %d: %s' % (
                self.status_code, self.text[:1000]))
        return self


class Client:
    """A client of one service.

    :param user: see :meth:`lab.lab.Lab.cinder`
    :param service: 'cinder', 'nova', 'glance', 'placement' or 'barbican'
    """

    _tokens: dict = {}

    def __init__(self, lab, user, service='cinder'):
        self.lab = lab
        self.headers = {'Content-Type': 'application/json'}
        if service in MICROVERSIONS:
            self.headers['OpenStack-API-Version'] = MICROVERSIONS[service]
        self.headers['X-Auth-Token'], self.project = self._token(
            'demo' if user == 'nova' else user)
        if user == 'nova':
            self.headers['X-Service-Token'] = self._token('nova')[0]
        path = PATHS[service]
        self.url = config.url(service) + (
            path % self.project if '%' in path else path)

    def _token(self, user):
        key = (self.lab.name, user)
        if key not in self._tokens:
            status, headers, body = self._request(
                'POST', config.url('keystone') + '/v3/auth/tokens', {
                    'Content-Type': 'application/json'}, {'auth': {
                        'identity': {'methods': ['password'], 'password': {
                            'user': {'name': user, 'domain': {
                                'id': 'default'},
                                'password': config.PASSWORD}}},
                        'scope': {'project': {
                            'name': PROJECTS.get(user, user),
                            'domain': {'id': 'default'}}}}})
            if status != 201:
                raise process.LabError('Keystone gave no token: %s' % body)
            self._tokens[key] = (
                headers['X-Subject-Token'],
                json.loads(body)['token']['project']['id'])
        return self._tokens[key]

    def _request(self, method, url, headers, body, timeout=90):
        def call():
            parts = urllib.parse.urlsplit(url)
            connection = http.client.HTTPConnection(
                parts.netloc, timeout=timeout)
            try:
                data = body
                if body is not None and not isinstance(body, bytes):
                    data = json.dumps(body)
                connection.request(
                    method, parts.path + ('?' + parts.query
                                          if parts.query else ''),
                    data, headers)
                answer = connection.getresponse()
                return answer.status, dict(answer.headers), answer.read()
            finally:
                connection.close()
        answer = self.lab._inside(call)
        if answer is None:
            raise process.LabError('%s %s: no answer' % (method, url))
        return answer

    def request(self, method, path, body=None, headers=None) -> Response:
        """:param body: to be sent as JSON; bytes are sent as they are"""
        return Response(*self.request_bytes(method, path, headers, body))

    def request_bytes(self, method, path, headers=None, body=None):
        """Likewise; the status, and the bytes of the answer."""
        status, _headers, answer = self._request(
            method, self.url + path, dict(self.headers, **(headers or {})),
            body)
        return status, answer

    def get(self, path):
        """GET.

        :raises LabError: if it is refused
        """
        return self.request('GET', path).raise_for_status()

    def post(self, path, json=None):
        """POST; the answer, unchecked."""
        return self.request('POST', path, json)

    def put(self, path, json=None):
        """PUT; the answer, unchecked."""
        return self.request('PUT', path, json)

    def delete(self, path):
        """DELETE; the answer, unchecked."""
        return self.request('DELETE', path)
