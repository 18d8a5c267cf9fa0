"""What the checks of a model's placement and of its step in a narrow dtype have in common."""

from __future__ import annotations

from envkit.subjects.placement import End


def place(where: str, module: str) -> str:
    """The line of the user's code and the module of the model, of which either may not be known."""
    return " in ".join(filter(None, (where, module)))


def last_words(end: End) -> dict[str, str]:
    """The end of what the process wrote on stderr, as evidence."""
    last = "\n".join(end.stderr_tail.strip().splitlines()[-20:])
    return {last: "its last words on stderr"} if last else {}
