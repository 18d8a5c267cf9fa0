"""What the checks of a model's placement and of its step in a narrow dtype have in common."""

from __future__ import annotations


def place(where: str, module: str) -> str:
    """The line of the user's code and the module of the model, of which either may not be known."""
    return " in ".join(filter(None, (where, module)))
