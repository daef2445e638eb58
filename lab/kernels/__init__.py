# SPDX-License-Identifier: Apache-2.0
"""``make kernels``: dm-clone on the stock kernels of distributions.

* ``root`` is a node's root file system of a release of Debian: the package
  ``cinder-localclone-dkms`` is built and installed there, and builds the
  module before and after an update of the kernel.
* ``machine`` boots a kernel under QEMU, without KVM, on disks that lose
  unflushed writes in a power cut. ``init.sh`` is its first process.
* ``content`` knows what a clone must contain.
* ``move`` compares the whole content of a volume that moves between two nodes
  of a lab with such a kernel.
* ``__main__`` runs all of it and prints the table.
"""
