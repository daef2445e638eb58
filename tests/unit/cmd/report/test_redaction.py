# SPDX-License-Identifier: Apache-2.0
"""No secret is left in a report, wherever it stands."""

import time

import ddt
import testtools

from cinder_localclone.cmd.report import redaction

FILE = '''
stray = before any section
[DEFAULT]
# san_password = comment
enabled_backends = lc
transport_url = rabbit://c:bus-one@192.0.2.1:5672,c:bus@two@192.0.2.2/
no equals sign
vendor_thing = unknown
[database]
connection : mysql+pymysql://c:d@ta/base,pw@192.0.2.3/cinder
[lc]
san_password = several
  lines
chap_password =
[keystone_authtoken]
password=p"w\\x
'''
KNOWN = {'enabled_backends': False, 'transport_url': True,
         'connection': True, 'san_password': True, 'chap_password': True}


@ddt.ddt
class ConfigurationTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.options = list(redaction.options(FILE))

    def test_options(self):
        self.assertEqual(
            [('', 'stray', 'before any section'),
             ('DEFAULT', 'enabled_backends', 'lc'),
             ('DEFAULT', 'vendor_thing', 'unknown'),
             ('lc', 'san_password', 'several\nlines'),
             ('lc', 'chap_password', ''),
             ('keystone_authtoken', 'password', 'p"w\\x')],
            [(each.section, each.name, each.value) for each in self.options
             if each.name not in ('transport_url', 'connection')])

    def test_shown(self):
        self.assertEqual('''\
[DEFAULT]
enabled_backends = lc
transport_url = rabbit://***@192.0.2.2/
vendor_thing = ***
[database]
connection = mysql+pymysql://***@192.0.2.3/cinder
[lc]
san_password = ***
chap_password = ***
''', redaction.shown(self.options, ('DEFAULT', 'database', 'lc'), KNOWN))

    @ddt.data('db_password', 'auth_token', 'fixed_key', 'client_secret',
              'master-key', 'user_passphrase', 'san_pwd', 'sys_pswd', 'apikey',
              'passcode')
    def test_name_of_a_secret(self, name):
        """Whatever its definition says."""
        option = redaction.Option('x', name, 'a value')
        known = {name: False, name.replace('-', '_'): False}
        self.assertTrue(redaction.is_secret(option, known))
        self.assertIn('a value', redaction.secrets([option], known))

    @ddt.data('backend_url', 'connection', 'slave_connection',
              'transport-url')
    def test_url_is_shown_without_its_password(self, name):
        url = redaction.Option('x', name, 'a://user:hunter2@b')
        known = {name.replace('-', '_'): True}
        self.assertEqual('[x]\n%s = a://***@b\n' % name,
                         redaction.shown([url], ['x'], known))
        found = redaction.secrets([url], known)
        self.assertIn('hunter2', found)
        self.assertNotIn(url.value, found)

    def test_secret_by_its_definition(self):
        """Though neither its name nor its value has the form of one."""
        self.assertIn('pin', redaction.secrets(
            [redaction.Option('x', 'vendor-thing', 'pin')],
            {'vendor_thing': True}))

    def test_quoted_password_of_a_url(self):
        found = redaction.secrets([redaction.Option(
            'x', 'connection', 'mysql://c:p%40s%2fs@h/c')], {})
        self.assertLessEqual({'p%40s%2fs', 'p@s/s', 'p%40s%2Fs'}, found)

    def test_secret_in_each_form_of_a_url(self):
        self.assertEqual(
            {'a/b c', 'a/b%20c', 'a%2Fb%20c', 'a%2Fb+c'},
            redaction.secrets([redaction.Option('x', 'token', 'a/b c')], {}))

    @ddt.data('"p w"', "'p w'")
    def test_quoted_value(self, value):
        """oslo.config removes the marks: the secret is without them."""
        option, = redaction.options('password = %s\n' % value)
        self.assertEqual('p w', option.value)
        self.assertEqual('as *** failed', redaction.Redaction(
            redaction.secrets([option], {}))('as p w failed'))

    @ddt.data('"', '"a', "'a\"", '"a" b')
    def test_value_with_single_quotation_marks(self, value):
        option, = redaction.options('a = %s\n' % value)
        self.assertEqual({'"': ''}.get(value, value), option.value)

    @ddt.data(
        ('c:hunter2@h:5672/', '***'), ('mysql+pymysql//c:hunter2@h/c', '***'),
        ('mysql:/c:hunter2@h/c', '***'), ('mysql://c:hunter2', '***'),
        ('hunter2', '***'), ('mysql://c:hunter 2@h/c', 'mysql://***@h/c'),
        ('mysql://c:hunter2@h/c?ssl=x@y', 'mysql://***@y'),
        ('rabbit://c:x@h1,c:hunter 2@h2/', 'rabbit://***@h2/'),
        ('rabbit://:hunter2@[::1]:5672/', 'rabbit://***@[::1]:5672/'))
    @ddt.unpack
    def test_mistyped_url(self, url, shown):
        """The mistake may be the reason for the report."""
        option = redaction.Option('x', 'connection', url)
        known = {'connection': True}
        self.assertEqual('[x]\nconnection = %s\n' % shown,
                         redaction.shown([option], ['x'], known))
        secrets = redaction.secrets([option], known)
        text = redaction.Redaction(secrets)(
            'for %s: %s; hunter2' % (url, url.replace('@', ' ')))
        self.assertNotIn('hunter 2', text)
        if 'hunter2' in url and url != 'mysql://c:hunter2':
            self.assertNotIn('hunter2', text)

    @ddt.data('', 'file:///var/lib/cinder', 'sqlite://', 'redis://h:6379?db=1',
              'etcd3+http://[::1]:2379',
              'rabbit://h1:5672,h2:5672/v')
    def test_url_without_credentials(self, url):
        option = redaction.Option('x', 'backend_url', url)
        self.assertEqual('[x]\nbackend_url = %s\n' % url,
                         redaction.shown([option], ['x'], {}))
        self.assertEqual(set(), redaction.secrets([option], {}))

    @ddt.data('redis://h:6379?password=hunter2&db=1',
              'redis://u:x@h?db=1&sentinel_password=hunter2')
    def test_password_among_the_parameters_of_a_url(self, url):
        found = redaction.secrets(
            [redaction.Option('coordination', 'backend_url', url)],
            {'backend_url': True})
        self.assertIn('hunter2', found)
        self.assertNotIn('1', found)

    @ddt.data(('a = 1\n b', '1\nb'),  # a single blank
              ('a = 1\n  \n  b', '1'), ('a = 1\n\n  b', '1'),
              (' a = 1', '1'), ('  [x]\n  a = 1', '1'), ('a = 1 ', '1'))
    @ddt.unpack
    def test_indented_lines(self, text, value):
        found = {each.name: each.value for each in redaction.options(text)}
        self.assertEqual({'a': value}, found)

    @ddt.data('localclone_key_auth', 'key_manager', 'localclone_key_cache',
              'passive_mode', 'service_token_roles', 'token_cache_time',
              'service_token_roles_required', 'ssl_key_file')
    def test_name_of_no_secret(self, name):
        option = redaction.Option('x', name, 'v')
        self.assertFalse(redaction.is_secret(option, {name: False}))
        self.assertTrue(redaction.is_secret(option, {name: True}))
        self.assertTrue(redaction.is_secret(option, {}))
        # "service" would disappear from all texts.
        self.assertEqual(set(), redaction.secrets([option], {name: False}))
        self.assertEqual(set(), redaction.secrets([option], {}))
        self.assertEqual({'v'}, redaction.secrets([option], {name: True}))

    def test_secrets(self):
        found = redaction.secrets(self.options, KNOWN)
        self.assertLessEqual(
            {'bus-one', 'bus@two', 'd@ta/base,pw', 'several', 'lines',
             'several\nlines', 'p"w\\x', 'p\\"w\\\\x', 'p%22w%5Cx'}, found)
        self.assertNotIn('', found)
        self.assertNotIn('unknown', found)
        self.assertNotIn('lc', found)


@ddt.ddt
class RedactionTest(testtools.TestCase):

    @ddt.data(
        ('login with pa55word failed', 'login with *** failed'),
        ('xpa55wordx', 'x***x'), ('a cat, category', 'a ***, category'),
        ('xsixsixx', 'x***x'),
        ('mysql://u:x@h/c and a@b', 'mysql://***@h/c and a@b'),
        ('auth CHAP user12 pw34 end', 'auth CHAP *** *** end'),
        ("{'auth_password': 'x y', 'lun': 1}",
         "{'auth_password': ***, 'lun': 1}"),
        ('"incoming_auth": "user/pw"', '"incoming_auth": ***'),
        ('"passphrase": "x\\" y"', '"passphrase": ***'),
        ("'passphrase': 'x\\' y'", "'passphrase': ***"),
        (r'{\"passphrase\": \"x y\", 1}', r'{\"passphrase\": ***, 1}'),
        (r'{\\"passphrase\\": \\"x y\\"}', r'{\\"passphrase\\": ***}'),
        ('passphrase = abc', 'passphrase = ***'),
        ('passphrase =\nhost = b', 'passphrase =\nhost = b'),
        ('Authorization: Basic dTpwdw==', 'Authorization: Basic ***'),
        ('"authorization": "Bearer a.b-c_d/e"',
         '"authorization": "Bearer ***"'),
        ('{\\"Authorization\\": \\"Bearer x.y\\"}',
         '{\\"Authorization\\": \\"Bearer ***\\"}'),
        ('authorization of a member', 'authorization of a member'),
        ('node.session.auth.password = abc', 'node.session.auth.password = '
         '***'),
        ('v: 0 9 crypt aes-xts-plain64 0a1bff 0 253:1 0',
         'v: 0 9 crypt aes-xts-plain64 *** 0 253:1 0'),
        ('v: 0 9 crypt aes-xts-plain64 :64:logon:x 0',
         'v: 0 9 crypt aes-xts-plain64 :64:logon:x 0'),
        ('integrity 8:1 0 28 D 1 internal_hash:hmac(sha256):00ff',
         'integrity 8:1 0 28 D 1 internal_hash:hmac(sha256):***'),
        ('is ' + '-'.join(['ABCD'] * 13), 'is ***'),
        ("('CHAP', 'us er', 'pw\"34')", "('CHAP *** ***)"),
        ("'auth_method': 'CHAP', 'auth_username': 'u', 'auth_password': 'y'",
         "'auth_method': 'CHAP', 'auth_username': 'u', 'auth_password': ***"),
        ('token gAAAAABkZXhhbXBsZS1leGFtcGxl== is old', 'token *** is old'),
        ('/tokens/gAAAAABkZXhhbXBsZS1leGFtcGxl', '/tokens/***'),
        ('as eyJhbGciOiJI.eyJzdWIi.c2lnbmF0 now', 'as *** now'),
        ('Basic dTpwdzpTM0NSRVQ= sent', '*** sent'),
        ('Basic authentication', 'Basic authentication'),
        ('-----BEGIN RSA PRIVATE KEY-----\nAb\n-----END RSA PRIVATE KEY-----.',
         '-----BEGIN RSA PRIVATE KEY-----***.'),
        ('-----BEGIN PRIVATE KEY-----\ncut',
         '-----BEGIN PRIVATE KEY-----***'),
        ("'payload': b'0a1b'", "'payload': b***"),
        ('fixed_key = 0a1b', 'fixed_key = ***'),
        ('api-key: 0a1b', 'api-key: ***'),
        ("{'key': '%s'}" % ('0a' * 16), "{'key': '***'}"),
        ("{'key': 'a name'}", "{'key': 'a name'}"),
        ("wrong passphrase b'x y'", 'wrong passphrase ***'),
        ("password for u 'x'", 'password for u ***'),
        ('the password for u is x, and', 'the password for u is *** and'),
        ('password => x', 'password =*** ***'),
        ("privsep: request[7]: ('lio.export', ('u', 'pw'), {})",
         'privsep: request[7]: ***'),
        ('\x1b[31mpassword\x1b[0m=\x1b[32mx\x1b[0m end', 'password=*** end'),
        ('a\x1b]0;title\x07b\x1bc\x9b1m\u202e\tz',
         'ab?c?1m?\tz'),
        ('pa55\x1b[1mword', '***'),
        ('Secret 5d0b of the key manager can\'t be used: gone.',
         'Secret 5d0b of the key manager can\'t be used: gone.'))
    @ddt.unpack
    def test_texts(self, text, redacted):
        self.assertEqual(redacted, redaction.Redaction(
            ['pa55word', 'sixsix', 'cat'])(text))

    def test_longest_first(self):
        """The rest of a secret is no hint."""
        self.assertEqual('***', redaction.Redaction(
            ['secretsecret', 'secret'])('secretsecret'))

    def test_very_long_words(self):
        """A hex dump in a log takes no minutes."""
        text = 'x' * 400000 + ' auth ' + 'key' * 100000
        began = time.process_time()
        self.assertEqual(text, redaction.Redaction(['pa55word'])(text))
        self.assertLess(time.process_time() - began, 10)

    def test_without_a_configuration(self):
        self.assertEqual('a\nb', redaction.Redaction()('a\nb'))
