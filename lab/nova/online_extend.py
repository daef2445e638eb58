# SPDX-License-Identifier: Apache-2.0
"""nova-compute with the method that makes a running guest see its new size.

``python lab/nova/online_extend.py PROGRAM [ARGUMENT ...]``; the method is the
one of the page about extending volumes, word for word.
"""

import pathlib
import re
import sys
import textwrap

PAGE = pathlib.Path(__file__).parents[2] / 'doc/source/operate/extending.rst'
#: The one block of code that is such a method.
_METHOD = re.compile(r'^( +)def extend_volume\(.*\n(?:\1 .*\n)+', re.M)


def method(text):
    """The function that a page's text has.

    :raises ValueError: unless it has one
    """
    found = [each.group() for each in _METHOD.finditer(text)]
    if len(found) != 1:
        raise ValueError('the page has %d such methods' % len(found))
    there = {}
    exec(textwrap.dedent(found[0]), there)
    return there['extend_volume']


def main():
    """nova-compute, with it."""
    del sys.argv[0]
    from nova.cmd import compute  # first: it says which threads there are
    from nova.virt.libvirt.volume import volume
    volume.LibvirtVolumeDriver.extend_volume = method(PAGE.read_text())
    sys.exit(compute.main())


if __name__ == '__main__':
    main()
