"""Exit codes for those who start envkit and know codes of their own.

The contract has 0 (nothing found), 1 (found), 2 (wrong input), 3 (undecided) and 70 (a fault of envkit itself).  A
style maps them and never makes a doubt green.
"""

from __future__ import annotations

from envkit.errors import FAULT, UsageError
from envkit.model import Outcome, Report, Severity

STYLES = ("envkit", "nagios", "slurm", "nvsentinel")
NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")  # the plugin API's words for its codes 0 to 3

_WRONG_INPUT = {"envkit": 2, "nagios": 3, "slurm": 1, "nvsentinel": 2}


def check(style: str) -> None:
    """Raises UsageError for a style that does not exist."""
    if style not in STYLES:
        raise UsageError(f"there is no exit style `{style}`", f"one of: {', '.join(STYLES)}")


def styled(report: Report, fail_on: Severity, style: str) -> int:
    """The exit code of a report.

    nagios: 0 OK, 1 findings below ``fail_on``, 2 findings, 3 undecided.  slurm: a prolog drains its node on whatever
    is not 0, so there is 0 and 1, and undecided is 1.  nvsentinel: 0 passed, 1 failed, 2 the check itself could not be
    made, as for undecided (NVIDIA NVSentinel, docs/designs/026-preflight-checks.md, "Check contract").
    """
    code = report.exit_code(fail_on)
    if style == "slurm":
        return 1 if code else 0
    if style == "nagios":
        some = any(result.outcome is Outcome.FAIL for result in report.results)
        return {0: 1 if some else 0, 1: 2, 3: 3}[code]
    if style == "nvsentinel":
        return min(code, 2)
    return code


def wrong_input(style: str) -> int:
    """The exit code for input that cannot be judged at all."""
    return _WRONG_INPUT.get(style, 2)


def fault(style: str) -> int:
    """The exit code for a fault of envkit itself: nagios knows none above 3 (UNKNOWN), nvsentinel none above 2."""
    return {"nagios": 3, "nvsentinel": 2}.get(style, FAULT)
