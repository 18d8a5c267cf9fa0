"""Where in the user's code something happens, and in which part of the model.

A line is the innermost frame that belongs neither to torch, nor to envkit, nor to Python's own library; a part of
the model is the innermost frame whose ``self`` is one of its modules.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import FrameType

_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_STANDARD = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_INSTALLED = ("site-packages", "dist-packages")
_SOURCE_CHARS = 200  # of a line of code that is shown


def caller(above: int = 1) -> FrameType | None:
    """The frame ``above`` the one that asks; None where torch's own thread of the backward pass has no Python below."""
    try:
        return sys._getframe(above + 1)
    except ValueError:
        return None


class Site(NamedTuple):
    """``where`` is "file.py:12" (empty if no user's code is on the stack), ``source`` that line, ``module`` the dotted
    name of the part of the model, "" for the model itself or for none."""

    where: str = ""
    source: str = ""
    module: str = ""


class Places:
    """Knows the user's code from everybody else's; ``code`` is the folder that paths are told from."""

    def __init__(self, code: str) -> None:
        import torch

        self._code = os.path.join(os.path.realpath(code), "")
        self._torch = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
        self._modules: dict[int, str] = {}

    def name_modules(self, model: Any) -> None:
        """Remembers the parts of ``model`` by their dotted names."""
        if hasattr(model, "named_modules"):
            self._modules = {id(part): name for name, part in model.named_modules()}

    def is_users(self, filename: str) -> bool:
        """Whether a file is neither torch's, nor ours, nor Python's."""
        if filename.startswith(("<", self._torch, os.path.join(_OWN, ""))):
            return False
        if filename.startswith(self._code):
            return True
        inside = any(filename.startswith(os.path.join(folder, "")) for folder in _STANDARD)
        return not inside or any(word in filename for word in _INSTALLED)

    def here(self, frame: FrameType | None) -> Site:
        """The place of a running frame; nowhere for None."""
        return self._of(traceback.walk_stack(frame) if frame is not None else ())

    def of_error(self, error: BaseException) -> Site:
        """The place where an exception was raised."""
        return self._of(reversed(list(traceback.walk_tb(error.__traceback__))))

    def raised_by_user(self, error: BaseException) -> bool:
        """Whether the very line that raised is the user's own."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        return bool(frames) and self.is_users(frames[-1].f_code.co_filename)

    def _of(self, frames: Iterable[tuple[FrameType, int]]) -> Site:
        where = source = ""
        module: str | None = None
        for frame, line in frames:
            filename = frame.f_code.co_filename
            if not where and self.is_users(filename):
                path = os.path.realpath(filename)
                path = path[len(self._code) :] if path.startswith(self._code) else path
                where, source = f"{path}:{line}", linecache.getline(filename, line).strip()[:_SOURCE_CHARS]
            if module is None and "self" in frame.f_code.co_varnames:
                module = self._modules.get(id(frame.f_locals.get("self")))
            if where and module is not None:
                break
        return Site(where, source, module or "")
