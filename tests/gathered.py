"""One test over thousands of cases, each of which would cost more as a test of its own than what it asks.

All cases are tried, and all that fail are named: nothing is lost when several do.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

# What a wrong case ends with; anything else is a fault of the test and ends it at once.  One that is skipped would take
# the others with it.
_ENDS = (pytest.fail.Exception, pytest.skip.Exception)
_WRONG = (AssertionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, *_ENDS)
_SHOWN, _LONG = 30, 2000  # of those that fail, with so much of what they say


def gathered(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """In the place of ``pytest.mark.parametrize``: ``cases`` are arguments, tuples of them, or ``pytest.param``."""
    listed = [_named(case) for case in cases]

    def over(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert listed, "there is no case"
            wrong = []
            for name, values in listed:
                try:
                    check(*values)
                except _WRONG as error:
                    line = traceback.extract_tb(error.__traceback__)[-1]
                    wrong.append(
                        f"{name}: {type(error).__name__} at {line.filename}:{line.lineno}: {str(error)[:_LONG]}"
                    )
            if wrong:
                rest = [each.partition(": ")[0] for each in wrong[_SHOWN:]]
                told = [*wrong[:_SHOWN], *([f"and {', '.join(rest)}"] if rest else [])]
                pytest.fail(f"{len(wrong)} of {len(listed)} cases:\n" + "\n".join(told), pytrace=False)

        test.__name__, test.__qualname__ = check.__name__, check.__qualname__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return over


def _named(case: Any) -> tuple[str, tuple[Any, ...]]:
    """A case's name and its arguments."""
    if hasattr(case, "values") and hasattr(case, "marks"):  # pytest.param
        assert not case.marks, "a case among others has no marks"
        return case.id or "-".join(str(value) for value in case.values)[:200], tuple(case.values)
    values = case if type(case) is tuple else (case,)  # a record with names is one argument
    return "-".join(str(value) for value in values)[:200], values
