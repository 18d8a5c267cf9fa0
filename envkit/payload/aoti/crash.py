"""Where a process dies: repeats a piece of work under ptrace and reads the machine's own trail at the fatal signal.

Python's faulthandler names Python's frames; a death in a C++ library has its reason below them.  The tracer looks at
the stopped process from outside: its registers, its stack and what it has mapped (ptrace(2), proc(5)).
"""

from __future__ import annotations

import bisect
import ctypes
import faulthandler
import os
import signal
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.payload import elf, watchdog

# linux/ptrace.h, linux/elf.h, linux/wait.h
_CONT, _SEIZE, _GETREGSET = 7, 0x4206, 0x4204
_TRACE_CLONE, _EXIT_KILL = 0x8, 0x100000
_NT_PRSTATUS = 1
_ALL_CHILDREN = 0x40000000
_FATAL = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP})
# Where struct user_regs keeps the program counter and the stack pointer, in words (sys/user.h, asm/ptrace.h).
_REGISTERS = {"x86_64": (16, 19), "aarch64": (32, 31)}
_STACK = 1 << 16  # bytes of stack that are looked through
_FRAMES = 16
_STT_FUNC = 2


class MappedRange(NamedTuple):
    """A piece of a mapped file: addresses ``begin`` to ``end`` hold the file from ``offset`` on."""

    begin: int
    end: int
    offset: int
    path: str


class _Vector(ctypes.Structure):
    """struct iovec of sys/uio.h."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    if _LIBC.ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _code(pid: int) -> list[MappedRange]:
    """The executable pieces of files that a process has mapped, by address."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            part = line.rstrip("\n").split(None, 5)  # address perms offset dev inode path
            if len(part) == 6 and "x" in part[1] and part[5].startswith("/"):
                begin, _, end = part[0].partition("-")
                path = part[5][: -len(" (deleted)")] if part[5].endswith(" (deleted)") else part[5]
                found.append(MappedRange(int(begin, 16), int(end, 16), int(part[2], 16), path))
    return sorted(found)


def _at(places: list[MappedRange], address: int) -> MappedRange | None:
    index = bisect.bisect_right([place.begin for place in places], address) - 1
    return places[index] if index >= 0 and address < places[index].end else None


def _registers(pid: int, machine: str) -> tuple[int, int]:
    """The program counter and the stack pointer of a stopped thread."""
    buffer = ctypes.create_string_buffer(1024)
    vector = _Vector(ctypes.cast(buffer, ctypes.c_void_p), len(buffer))
    _ptrace(_GETREGSET, pid, _NT_PRSTATUS, ctypes.addressof(vector))
    counter, stack = _REGISTERS[machine]
    words = struct.unpack_from(f"<{vector.size // 8}Q", buffer.raw)
    return words[counter], words[stack]


def _memory(pid: int, address: int, size: int) -> bytes:
    """What lies at an address of a stopped process; less than asked where its mapping ends."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size) or b""
    except (OSError, ValueError, OverflowError):
        return b""


def _called(before: bytes) -> bool:
    """Whether the bytes before an address end with an x86-64 call: E8 and a distance, or FF /2 in its lengths."""
    if len(before) < 7:
        return False
    indirect = any(before[-size] == 0xFF and before[1 - size] & 0x38 == 0x10 for size in (2, 3, 4, 6, 7))
    return before[-5] == 0xE8 or indirect


def function(path: str, offset: int) -> str:
    """The exported function that holds the byte at ``offset`` of the file, demangled; empty if none does."""
    try:
        data = elf.mapped(path)
        sections = elf.read(data).sections
    except (OSError, ValueError):
        return ""
    table, texts = sections.get(".dynsym"), sections.get(".dynstr")
    if not table or not texts:
        return ""
    (start,) = struct.unpack_from("<Q", data, 32)
    entry, count = struct.unpack_from("<HH", data, 54)
    address = -1
    for index in range(count):
        kind, _, begin, at, _, size = struct.unpack_from("<IIQQQQ", data, start + index * entry)
        if kind == 1 and begin <= offset < begin + size:  # PT_LOAD
            address = at + offset - begin
    symbols = data[table[0] : table[0] + table[1] // 24 * 24]
    for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", symbols):
        if info & 0xF == _STT_FUNC and section and value <= address < value + size:
            text = bytes(data[texts[0] + name : texts[0] + name + 4096]).split(b"\0")[0]
            return _demangled(text)
    return ""


def _demangled(name: bytes) -> str:
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return name.decode("utf-8", "replace")
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int(-1)
    text = demangle(name, None, None, ctypes.byref(status))
    if status.value or not text:
        return name.decode("utf-8", "replace")
    return ctypes.string_at(text).decode("utf-8", "replace")[:300]


def _trail(pid: int, machine: str) -> list[dict[str, Any]]:
    """The code that a stopped thread is in, then the code that its stack says called it, the newest first.

    Return addresses are guessed: words of the stack that point behind a call.  A frame that was left can still lie
    there, so the order is sound and a single frame may be stale.
    """
    places = _code(pid)
    counter, stack = _registers(pid, machine)
    addresses = [counter]
    words = _memory(pid, stack, _STACK)
    for (word,) in struct.iter_unpack("<Q", words[: len(words) // 8 * 8]):
        if len(addresses) >= _FRAMES:
            break
        if _at(places, word) is None:
            continue
        if machine != "x86_64" or _called(_memory(pid, word - 7, 7)):
            addresses.append(word)
    frames = []
    for address in addresses:
        place = _at(places, address)
        offset = address - place.begin + place.offset if place else address
        name = function(place.path, offset) if place else ""
        frames.append({"path": place.path if place else "", "offset": offset, "function": name})
    return frames


def _traced(work: Callable[[], Any], ready: int) -> None:
    """The process that is watched; it never returns."""
    try:
        watchdog.die_with_parent()
        os.read(ready, 1)
        work()
        os._exit(0)
    finally:
        os._exit(70)


def trace(work: Callable[[], Any]) -> dict[str, Any]:
    """Does ``work`` in a child under ptrace and tells the signal that ended it and the trail to it.

    ``signal`` is empty where it did not die this time.  Raises OSError where the system forbids tracing, KeyError for a
    machine whose registers are not known.
    """
    machine = os.uname().machine
    _REGISTERS[machine]
    faulthandler.cancel_dump_traceback_later()  # its thread would be lacking in the fork, and be waited for there
    faulthandler.disable()  # its handler would raise the signal a second time, from a place of its own
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        _traced(work, reading)
    os.close(reading)
    try:
        _ptrace(_SEIZE, pid, 0, _TRACE_CLONE | _EXIT_KILL)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(writing)
    frames: list[dict[str, Any]] = []
    while True:
        who, status = os.waitpid(-1, _ALL_CHILDREN)
        if not os.WIFSTOPPED(status):
            if who == pid:
                break
            continue
        number = os.WSTOPSIG(status)
        event = status >> 16
        if not event and number in _FATAL:
            frames = _trail(who, machine)
        try:
            _ptrace(_CONT, who, 0, 0 if event else number)
        except OSError:
            continue  # it is gone already; its end is told next
    if not os.WIFSIGNALED(status):
        return {"signal": "", "frames": []}
    return {"signal": signal.Signals(os.WTERMSIG(status)).name, "frames": frames}
