"""The native stack of a command that died of a fault of its own: what runs it under gdb, and what gdb says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envkit.logs.gdb import NativeFrame, frame

_LONGEST = 4000  # characters of a line; gdb writes whole values of arguments
_MOST = 100  # frames
_STOPS = "SIGSEGV SIGABRT SIGBUS SIGFPE SIGILL"
_STOPPED = re.compile(r"^(?:Program|Thread [^\n]{1,200}?) received signal (?P<signal>SIG[A-Z]+)", re.M)
# What libstdc++ alone defines, which in another library is a copy of it.
_RUNTIME = re.compile(
    r"std::(?:__cxx11::)?(?:codecvt|locale|ios_base|ctype|num(?:punct|_get|_put)|basic_(?:ios|filebuf))\b"
)
_ENDS = re.compile(
    r"_*(?:pthread_kill\w*|(?:GI_|libc_)?(?:raise|abort)|assert_fail\w*|cxa_\w+)$|std::terminate\(|\?\?$"
)


def command(path: str, argv: Sequence[str], log: str) -> tuple[str, ...]:
    """``argv`` under the gdb at ``path``, which writes the stack to ``log`` where it dies.

    It is started by `env`, so that scripts can be commands too; gdb goes on with what they become.  gdb has a shell
    (``SHELL``) read its words, which it quotes.
    """
    first = ("set debuginfod enabled off", "set disable-randomization off",
             "set auto-load off", f"set logging file {log}", "set logging on")  # fmt: skip
    then = ("handle all nostop noprint pass", f"handle {_STOPS} stop print", "run", "bt 40")
    words = [word for line in first for word in ("-iex", line)] + [word for line in then for word in ("-ex", line)]
    return (path, "-nx", "--batch", *words, "--args", "env", *argv)


def frames(text: str, signal: str) -> tuple[NativeFrame, ...]:
    """The stack that gdb wrote, the innermost first; none if the command was not stopped by the signal of that name."""
    stopped = _STOPPED.search(text)
    if not stopped or stopped["signal"] != signal:
        return ()
    return listed(text[stopped.end() :])


def listed(text: str) -> tuple[NativeFrame, ...]:
    """The frames that gdb lists in ``text``, the innermost first."""
    lines = [line for line in text.splitlines() if len(line) <= _LONGEST]
    return tuple(each for each in map(frame, lines) if each is not None)[:_MOST]


def runtime_inside(stack: Sequence[NativeFrame]) -> str:
    """The library whose own copy of the C++ runtime a stack died in; "" for none."""
    first = next((each for each in stack if not _ENDS.match(each.function)), None)
    if first is None or not _RUNTIME.match(first.function) or not re.search(r"\.so[0-9.]*$", first.where):
        return ""
    return "" if "/libstdc++." in first.where else first.where[-300:]


def own_runtime(library: str) -> str:
    """That a library's own copy of the C++ runtime ended its process."""
    return (
        f"{library} brings a C++ runtime of its own beside the process's (it was linked with -static-libstdc++), which "
        "ended the process"
    )


def sentence(stack: Sequence[NativeFrame]) -> str:
    """Where it died: the innermost function that does not just end a process, and the innermost outside of the C
    library and Python; "" for no stack."""
    named = [each for each in stack if not _ENDS.match(each.function)] or list(stack)
    if not named:
        return ""
    skipped = stack[: stack.index(named[0])]
    first, own = named[0], next((each for each in named if each.own and not each.function.startswith("std::")), None)
    if skipped and skipped[0].where != first.where and all(each.function == "??" for each in skipped):
        caller, where = own or first, skipped[0].where[-300:]  # it did not die in the first that has a name
        return f"in a function of {where} without a name, called by `{caller.function[:200]}` {caller.at}"
    if own is None or own is first:
        return f"in `{first.function[:200]}` {first.at}"
    return f"in `{first.function[:200]}`, called by `{own.function[:200]}` {own.at}"
