# SPDX-License-Identifier: Apache-2.0
"""The extra specs that Cinder's API and Horizon list of a backend."""

from cinder.api.views import capabilities as view
import ddt
import testtools

from cinder_localclone.core import volume_types
from cinder_localclone.driver import extra_specs
from tests.helpers import driver_case


class CapabilitiesTest(driver_case.Case):
    """Through Cinder's own driver and API."""

    def test_listed_by_the_api(self):
        self.driver.init_capabilities()
        found = view.ViewBuilder().summary(
            None, self.driver.capabilities, 'n1@l')['properties']
        self.assertEqual('localclone', self.driver.capabilities[
            'vendor_prefix'])
        self.assertEqual(
            {'localclone:' + name for name in volume_types.NAMES},
            {name for name in found if ':' in name})
        self.assertIn('thin_provisioning', found)  # Cinder's own stay
        self.assertEqual({
            'title': 'Pace of copies', 'type': 'string',
            'description': extra_specs.EXTRA_SPECS['pace'].description,
            'enum': ['yield', 'full', 'spare']}, found['localclone:pace'])
        self.assertEqual(
            ('integer', 512, [512, 1024, 2048, 4096]), tuple(
                found['localclone:sector_size'][each]
                for each in ('type', 'default', 'enum')))


@ddt.ddt
class ExtraSpecsTest(testtools.TestCase):
    """What is declared is what is read."""

    #: What a value needs beside it.
    BESIDE = {
        'moves=cold': {'integrity': 'hmac-sha256'},
        'key_size=128': {'cipher': 'aegis128-random', 'moves': 'cold'}}

    @staticmethod
    def parse(specs):
        return volume_types.parse({
            'localclone:' + name: value for name, value in specs.items()},
            new=True)

    def specs(self, name, value):
        found = {'encryption': 'luks2', name: str(value)}
        if name in ('cipher', 'integrity'):
            cipher, integrity = next(
                (cipher, integrity)
                for cipher, known in volume_types.CIPHERS.items()
                for integrity in known.integrity
                if value in (cipher, integrity))
            found.update(cipher=cipher, integrity=integrity)
            found.update({'moves': 'cold'} if integrity != 'none' else {})
        return dict(found, **self.BESIDE.get('%s=%s' % (name, value), {}))

    @ddt.data(*((name, value)
                for name, spec in extra_specs.EXTRA_SPECS.items()
                for value in spec.limits.get('enum', ())))
    @ddt.unpack
    def test_each_value_makes_a_type(self, name, value):
        self.assertIsNotNone(self.parse(self.specs(name, value)))

    @ddt.data(*((name, spec.limits['default'])
                for name, spec in extra_specs.EXTRA_SPECS.items()
                if 'default' in spec.limits))
    @ddt.unpack
    def test_defaults_are_those(self, name, value):
        plain = {'encryption': 'luks2'}
        self.assertEqual(self.parse(plain),
                         self.parse(dict(plain, **{name: str(value)})))

    @ddt.data(*(name for name, spec in extra_specs.EXTRA_SPECS.items()
                if 'enum' in spec.limits or spec.type == 'boolean'))
    def test_no_other_value_does(self, name):
        self.assertRaises(volume_types.InvalidType, self.parse,
                          dict({'encryption': 'luks2'}, **{name: 'other'}))
