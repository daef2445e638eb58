# SPDX-License-Identifier: Apache-2.0
"""What the installation page tells its reader to do."""

import ddt
import testtools

from lab.install import page_steps as page

SMALL = '''
Before
======

.. code-block:: console

   # not-a-step

Steps
=====

#. One:

   .. code-block:: console

      # first \\
            --option
      $ second

   .. code-block:: ini

      only = shown

.. code-block:: text
   :caption: /etc/a file

   one

   two

After
=====

.. code-block:: console

   # nor-this
'''

LITERAL = '''
Before
======

None of this::

   # not-a-step

This one
========

#. One,
   with more::

      # first \\
          --option

   Then (see :doc:`there`):

#. Two::

      [a]
      b = c

   Text that follows.

Deeper
------

Last::

   $ second
   # third

Empty
=====

Nothing.
'''


@ddt.ddt
class PageTest(testtools.TestCase):

    def test_steps(self):
        self.assertEqual(
            [page.Command(page.ROOT, 'first --option'),
             page.Command(page.ADMINISTRATOR, 'second'),
             page.File('/etc/a file', 'one\n\ntwo\n')], page.steps(SMALL))

    def test_literal_blocks_of_a_section(self):
        self.assertEqual(
            [page.Command(page.ROOT, 'first --option'),
             page.File('', '[a]\nb = c\n'),
             page.Command(page.ADMINISTRATOR, 'second'),
             page.Command(page.ROOT, 'third')],
            page.literal_steps(LITERAL, 'This one'))
        self.assertRaises(ValueError, page.literal_steps, LITERAL, 'None')
        self.assertRaises(ValueError, page.literal_steps, LITERAL, 'Empty')

    def test_the_page_has_steps(self):
        found = page.steps(page.PATH.read_text())
        self.assertIn(page.Command(
            page.ROOT, 'vgcreate cinder-volumes /dev/nvme0n1p3'), found)
        self.assertIn('/etc/cinder/cinder.conf', [
            each.name for each in found if isinstance(each, page.File)])

    @ddt.data(('From', 'localclone'), ('Back to', 'lvm'))
    @ddt.unpack
    def test_the_page_about_lvm_retypes(self, way, wanted):
        text = (page.PATH.parents[1] / 'operate/from-lvm.rst').read_text()
        found = page.literal_steps(text, way + " Cinder's LVM driver")
        self.assertIn(page.Command(
            page.ADMINISTRATOR, 'openstack volume set --type %s '
            '--migration-policy on-demand VOLUME' % wanted), found)

    @ddt.data('', SMALL.replace('      # first', '      first'))
    def test_what_cannot_be_done(self, text):
        self.assertRaises(ValueError, page.steps, text)

    def test_examples_are_replaced(self):
        self.assertEqual('a = 1 <&2', page.filled_in(
            'a = <your address> <&2', {'<your address>': '1'}))
        self.assertRaises(ValueError, page.filled_in, '<your address>', {})

    def test_what_a_file_has_stays(self):
        self.assertEqual(
            '[DEFAULT]\nb = 2\na = 1\n[x]\nc = 3\n\n[new]\nd = 4\n',
            page.merged('[DEFAULT]\na = 1\n[x]\nc = 3\n',
                        '[DEFAULT]\nb = 2\n\n[new]\nd = 4\n'))
