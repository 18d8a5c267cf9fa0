"""Calls one hook of a package's build backend (PEP 517), with no network but what the machine cannot close.

    hook.py ASKED    a JSON file: folder, backend, path, hook, out; the answer is beside it, with the ending .answer

Runs in the environment of the package's build requirements and needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # linux/sched.h


def close_network() -> bool:
    """Whether this process and its children are in a network of their own now, without any interface."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is None:
        return False
    if unshare(NEW_NET) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if unshare(NEW_USER | NEW_NET) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        try:
            with open("/proc/self/" + name, "w") as file:
                file.write(text)
        except OSError:
            pass  # the files are still this user's; only their names differ
    return True


def main() -> None:
    """One hook."""
    place = sys.argv[1]  # setuptools puts words of its own in there
    with open(place) as file:
        asked = json.load(file)
    os.umask(0o022)
    os.dup2(2, 1)  # one stream, in the order of the words
    os.chdir(asked["folder"])
    sys.path[:1] = [os.path.join(asked["folder"], part) for part in asked["path"]]
    closed = close_network()
    module, _, inner = asked["backend"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, inner.split(".")):
        backend = getattr(backend, name)
    if asked["hook"] == "build_wheel":
        result = backend.build_wheel(asked["out"], {})
    else:
        result = list(getattr(backend, asked["hook"], lambda settings: [])({}))
    with open(place + ".answer", "w") as file:
        json.dump({"closed": closed, "result": result}, file)


if __name__ == "__main__":
    main()
