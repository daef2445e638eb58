# SPDX-License-Identifier: Apache-2.0
"""Entry point of ``cinder-localclone-status upgrade check``.

Cinder's ``cinder-status upgrade check`` has a fixed list of checks. This
command has the form and the exit codes of OpenStack's upgrade checks
(oslo.upgradecheck), so deployment tools can run it beside Cinder's. Its checks
are those of ``cinder-localclone doctor``.
"""

import functools
import logging
import sys

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd import main as command
from cinder_localclone.cmd import terminal
from cinder_localclone.service import operator as backends

CODES = {checks.OK: upgradecheck.Code.SUCCESS,
         checks.WARN: upgradecheck.Code.WARNING,
         checks.FAIL: upgradecheck.Code.FAILURE}
OPTIONS = (cfg.StrOpt(
    'backend', metavar='SECTION',
    help='Section of the backend. Default: the only section of this driver.'),)


def result(finding: checks.Finding) -> upgradecheck.Result:
    """Return the result of a check of doctor, with its remedy."""
    return upgradecheck.Result(CODES[finding.verdict], terminal.printable(
        ' Fix: '.join(filter(None, (finding.details, finding.fix)))))


class Checks(upgradecheck.UpgradeCommands):
    """The checks of doctor, a row for each finding.

    :param conf: the parsed command line, when :meth:`check` runs
    """

    def __init__(self, conf: cfg.ConfigOpts):
        super().__init__()
        self._conf = conf

    def _backend(self) -> backends.Backend:
        return backends.Backend(
            backends.Settings(self._conf.config_file or None),
            self._conf.backend)

    def check(self) -> upgradecheck.Code:
        """Make all checks, print the table, and return the worst code."""
        self._upgrade_checks = tuple(
            (terminal.printable(each.check), functools.partial(
                lambda _self, found: result(found), found=each))
            for each in doctor.findings(self._backend))
        code: upgradecheck.Code = super().check()
        return code


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    :returns: 0: ready; 1: a warning; 2: a failure; 255: an unexpected error
    """
    logging.basicConfig(level=logging.ERROR)
    for name in command.TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    conf = cfg.ConfigOpts()
    conf.register_cli_opts(OPTIONS)
    code: int = upgradecheck.main(
        conf, project='cinder', upgrade_command=Checks(conf),
        argv=sys.argv[1:] if argv is None else argv)
    return code
