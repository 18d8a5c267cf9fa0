"""Runs at the start of every Python of a command under `envkit debug`, then hands over to the place's own."""

from __future__ import annotations

import importlib
import os
import sys


def _begin() -> None:
    """Starts the companion and gives the name ``sitecustomize`` to whoever had it before."""
    if not os.environ.get("ENVKIT_DEBUG_FOLDER"):
        return
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        importlib.import_module("envkit_companion").enter()
    except Exception as error:  # the program is to run whatever becomes of its companion
        sys.stderr.write(f"envkit: the companion did not start: {type(error).__name__}: {error}\n")
    # The folder goes from the path, not from the environment: children are to be met too.  Python knows it by the words
    # of the environment, which are absolute.
    sys.path[:] = [entry for entry in sys.path if entry != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        sys.modules.setdefault("sitecustomize", own)  # Python looks for what it has just imported
        if error.name != "sitecustomize":
            raise


_begin()
