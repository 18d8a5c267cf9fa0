"""`pattern` for regular expressions of which one run uses few.

To compile one takes 0.1 to 0.5 ms, a check of one file imports more than two hundred, and uses sixty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

_KNOWN = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "pattern")

if TYPE_CHECKING:

    def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
        """The compiled expression; one that is none raises ``re.error`` when it is first used."""
        ...

else:

    class pattern:
        """An expression that is compiled when it is first used; then its methods are those of the compiled one."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self._asked = text, flags

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # asked by `copy` and `pickle`
                raise AttributeError(name)
            compiled = re.compile(*self._asked)
            for known in _KNOWN:
                setattr(self, known, getattr(compiled, known))
            return getattr(compiled, name)
