"""The checks of files, on a lock that is about to be written."""

from __future__ import annotations

from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.judging import judge
from envkit.model import Severity
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.plan.spec import Spec
from envkit.static import CheckOptions
from envkit.static.packages import of_lock
from envkit.subjects.packages import Packages


def prepare() -> None:
    """Imports the checks, which takes time that ``refuse`` is waited for."""
    judge.checks(Packages)


def refuse(spec: Spec, facts: Facts, lock: Lock) -> None:
    """Raises UsageError with the first error that `envkit check` would find in ``lock``; warnings and what is unknown
    are left to it."""
    asked = CheckOptions(gpus=spec.gpus, driver=str(spec.driver or ""))
    judged = of_lock(locks.dump(lock), str(locks.path_of(spec)), None, asked, facts)
    found = [
        (result.check, one) for result in judged.results for one in result.findings if one.severity is Severity.ERROR
    ]
    if found:
        check, first = found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise UsageError(f"no lock was written, for it would be refused: {first.message} ({check}{more})", first.fix)
