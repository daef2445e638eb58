# SPDX-License-Identifier: Apache-2.0
# The face of the repository. Each target installs what it needs by itself.
SIZE ?= 2
# LAB=NAME: for two at once
NAMED = $(if $(LAB),--name $(LAB))
# CINDER=28: that release instead of 29; PYTHON=python3.13: that one instead of
# Debian's; NATIVE_THREADS=1: the nodes' services without eventlet;
# CONTAINERS=1: these services in containers, as kolla's
SETTINGS = PYTHONDONTWRITEBYTECODE=1 $(if $(CINDER),LOCALCLONE_LAB_CINDER=$(CINDER)) $(if $(PYTHON),LOCALCLONE_LAB_PYTHON=$(PYTHON)) $(if $(NATIVE_THREADS),LOCALCLONE_LAB_NATIVE_THREADS=1) $(if $(CONTAINERS),LOCALCLONE_LAB_CONTAINER=1)
LABRUN = $(SETTINGS) /usr/bin/python3 -m
# What needs neither root nor Debian, with any Python from 3.11 to 3.13
ANYRUN = $(SETTINGS) python3 -m
# stestr has a meaning of its own for it.
unexport PYTHON

.PHONY: kernels demo live-migration servers placement test unit style lab-up lab-down lab-status bench docs faults operations encryption mutations simulate tempest sbom devstack ansible install-page
demo: python3 ; $(LABRUN) lab.demos.move $(NAMED) --size $(SIZE) $(if $(KEEP),--keep)
live-migration: python3
	$(LABRUN) lab.demos.live_migration $(NAMED) --size $(SIZE) $(if $(KEEP),--keep)
# ONLY=REGEX: operations like it
servers: python3 ; $(LABRUN) lab.demos.servers $(NAMED) $(if $(ONLY),--only '$(ONLY)') $(if $(KEEP),--keep)
placement: python3 ; $(LABRUN) lab.demos.placement $(NAMED) $(if $(KEEP),--keep)
# ALL=1: the longest functional tests, too; ONLY=REGEX: functional ones like
# it; WORKERS=N of the functional tests (what this machine can bear, 2 at most)
test: python3 ; $(LABRUN) lab.testrun $(if $(ALL),--all) $(if $(WORKERS),--workers $(WORKERS)) $(if $(ONLY),'$(ONLY)')
# ALL=1: all moments and pairs
unit: anypython ; $(ANYRUN) lab.testrun --unit $(if $(ALL),--all)
# Style and types, of the files that git knows
style: anypython ; $(ANYRUN) lab.style
# ONLY=REGEX: chapters like it
bench: python3 ; $(LABRUN) lab.bench $(NAMED) $(if $(ONLY),--only '$(ONLY)') $(if $(JSON),--json $(JSON))
# ONLY=REGEX cells like it, LIST=1, RESUME=FILE goes on, LABS=2 side by side
# (as many as the machine has room for), WIDTH=N cells in a batch,
# STOP=MINUTES after which no cell begins;
# SEED=, MINUTES=: random
faults: python3 ; $(LABRUN) lab.faults $(NAMED) $(if $(LIST),--list) $(if $(ONLY),--only '$(ONLY)') $(if $(RESUME),--resume $(RESUME)) $(if $(LABS),--labs $(LABS)) $(if $(WIDTH),--width $(WIDTH)) $(if $(STOP),--stop-after $(STOP)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))
# ONLY=REGEX cells like it, LIST=1, RESUME=FILE goes on
operations: python3 ; $(LABRUN) lab.operations $(NAMED) $(if $(LIST),--list) $(if $(ONLY),--only '$(ONLY)') $(if $(RESUME),--resume $(RESUME)) $(if $(KEEP),--keep)
# ONLY=REGEX tests whose names have it, WORKERS=N at a time (2), RESUME=FILE
# goes on
tempest: python3 ; $(LABRUN) lab.tempest $(NAMED) $(if $(ONLY),--only '$(ONLY)') $(if $(WORKERS),--workers $(WORKERS)) $(if $(RESUME),--resume $(RESUME)) $(if $(KEEP),--keep)
# DEVSTACK=DIR: a checkout of it
devstack: python3 ; $(LABRUN) lab.install devstack $(NAMED) --checkout '$(DEVSTACK)' $(if $(KEEP),--keep)
ansible: python3 ; $(LABRUN) lab.install ansible $(NAMED) $(if $(KEEP),--keep)
# The installation page, word for word
install-page: python3 ; $(LABRUN) lab.install install-page $(NAMED) $(if $(KEEP),--keep)
# ONLY=REGEX releases like it, 'Debian 12'; SEED= of the content; EXPORT=DIR:
# leave the updated kernels there; MOVE=1: then a whole move in a lab
kernels: python3 ; $(LABRUN) lab.kernels $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED)) $(if $(EXPORT),--export '$(EXPORT)') $(if $(MOVE),--move)
# ONLY=REGEX mutants like it, LIST=1, SAMPLE=N every Nth, RESUME=FILE goes on
mutations: anypython ; $(ANYRUN) tests.mutation $(if $(LIST),--list) $(if $(ONLY),--only '$(ONLY)') $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(RESUME),--resume $(RESUME)) $(if $(SCORE),--score $(SCORE))
# SEED= the first (SCHEDULES=N from it on, MINUTES= at most; alone: this one,
# told in full), WORKERS=N at a time (one for each processor), ENCRYPTED=1 by
# the driver; FILE= one that was shortened; PLANTED=REGEX faults to be found
simulate: anypython ; $(ANYRUN) tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(ENCRYPTED),--encrypted) $(if $(FILE),--file $(FILE)) $(if $(PLANTED),--planted '$(PLANTED)')
# ONLY=REGEX: one way, 'Nova' or 'driver'
encryption: python3 ; $(LABRUN) lab.encryption $(NAMED) $(if $(ONLY),--only '$(ONLY)') $(if $(KEEP),--keep)
lab-up: python3 ; $(LABRUN) lab $(NAMED) up
lab-down: ; $(LABRUN) lab $(NAMED) down
lab-status: ; $(LABRUN) lab $(NAMED) status
docs: python3 ; $(LABRUN) lab.docs
# What a node gets with the package: sbom.json
sbom: python3 ; $(LABRUN) lab.sbom

.PHONY: python3 anypython
python3:
	@test -x /usr/bin/python3 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3; }
anypython:
	@command -v python3 >/dev/null || $(MAKE) python3
