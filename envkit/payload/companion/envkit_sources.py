"""Keeps the sources of kernels that are compiled while the program runs, and the lines that had them compiled.

CuPy and torch give NVRTC a text, and what a tool tells of the kernel later is a line of a file that is gone.  Each text
goes to ``source-DIGEST.cu``, and an event "source" says where it came from.  Where ENVKIT_DEBUG_LINES asks for it, they
are compiled with their lines, which changes no code.

torch.compile copies a Triton kernel of the program's into a file of its cache, beside a comment that names the file and
line it is from; an event "copied" says which line of the copy is which of the program's.  Of a kernel that it made
itself, an event "fused" has the lines of the program's that went into it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

LINES = "ENVKIT_DEBUG_LINES"
_LINE_INFO = "-lineinfo"
_MOST = 300
_MOST_BYTES = 2 << 20
_MOST_LINES = 8  # of one kernel
_COPY = re.compile(  # torch, inductor's wrappers
    r"^# Original path: (?P<file>[^\n]+):(?P<line>\d+)\n\w+ = async_compile\.triton\('(?P<kernel>\w+)',\s*"
    r"(?P<text>'''.*?''')",
    re.M | re.S,
)
_MADE = re.compile(  # the same, of a kernel that it made: the comments above it name the operations of its graph
    r"(?P<said>(?:^# [^\n]*\n)*)^(?P<kernel>triton_\w+) = async_compile\.triton\(", re.M
)
_NODE = re.compile(r"^#   %(\w+) : [^\n]*= call_\w+\[", re.M)
_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)\n')
_COMPILERS = {  # by module, the function that is given the text, and its parameter of options
    "cupy.cuda.compiler": ("_compile_module_with_cache", "options"),
    "torch.cuda._utils": ("_nvrtc_compile", "nvcc_options"),
}


class _Here:
    """What was kept."""

    folder = ""
    tell: Callable[[str, dict[str, Any]], None] | None = None
    stack: Callable[[FrameType | None], list[list[Any]]] | None = None
    seen: ClassVar[set[str]] = set()


def wrapping(
    folder: str,
    tell: Callable[[str, dict[str, Any]], None],
    stack: Callable[[FrameType | None], list[list[Any]]],
) -> Callable[[ModuleType], None]:
    """What puts the keeping of texts around the function of a module that compiles."""
    _Here.folder, _Here.tell, _Here.stack = folder, tell, stack
    return _wrap


def _wrap(module: ModuleType) -> None:
    """Of a module without such a function nothing is changed."""
    name, options = _COMPILERS[module.__name__]
    original = getattr(module, name, None)
    if original is None:
        return
    asked = os.environ.get(LINES) == "1"

    @functools.wraps(original)
    def compiled(*arguments: Any, **named: Any) -> Any:
        try:
            _keep(str(arguments[0] if arguments else next(iter(named.values()))), sys._getframe(1))
            if asked:
                arguments, named = _with_lines(original, options, arguments, named)
        except Exception as error:  # the program is to run whatever becomes of its companion
            sys.stderr.write(f"envkit: a kernel's source was not kept: {type(error).__name__}: {error}\n")
        return original(*arguments, **named)

    setattr(module, name, compiled)


def _with_lines(original: Any, options: str, arguments: Any, named: Any) -> tuple[Any, Any]:
    """The arguments of a call with line numbers among its options, where it has options."""
    signature = importlib.import_module("inspect").signature(original)
    bound = signature.bind(*arguments, **named)
    before = bound.arguments.get(options) or ()
    if options not in signature.parameters or _LINE_INFO in before:
        return arguments, named
    bound.arguments[options] = [*before, _LINE_INFO] if isinstance(before, list) else (*before, _LINE_INFO)
    return bound.args, bound.kwargs


def _keep(text: str, frame: FrameType | None) -> None:
    if "__global__" not in text or len(_Here.seen) >= _MOST or len(text) > _MOST_BYTES:
        return
    digest = importlib.import_module("hashlib").sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if digest in _Here.seen or _Here.tell is None or _Here.stack is None:
        return
    _Here.seen.add(digest)
    name = f"source-{digest}.cu"
    with open(os.path.join(_Here.folder, name), "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
    _Here.tell("source", {"file": name, "frames": _Here.stack(frame)})


def wrap_copies(module: ModuleType) -> None:
    """Looks at each module that torch.compile wrote, as it is loaded; of a torch without such a loader nothing is
    changed."""
    loader = getattr(module, "PyCodeCache", None)
    original = getattr(getattr(loader, "load_by_key_path", None), "__func__", None)
    if original is None:
        return

    def load_by_key_path(cls: Any, key: Any, path: Any, *arguments: Any, **named: Any) -> Any:
        try:
            _tell_copies(str(path), named.get("linemap", arguments[0] if arguments else None) or ())
        except Exception as error:  # the program is to run whatever becomes of its companion
            sys.stderr.write(f"envkit: a copied kernel was not looked at: {type(error).__name__}: {error}\n")
        return original(cls, key, path, *arguments, **named)

    setattr(loader, "load_by_key_path", classmethod(load_by_key_path))  # noqa: B010 - mypy knows no such attribute


def _tell_copies(path: str, linemap: Any) -> None:
    if path in _Here.seen or len(_Here.seen) >= _MOST or _Here.tell is None:
        return
    _Here.seen.add(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(_MOST_BYTES)
    _tell_fused(text, [(int(line), str(stack or "")) for line, stack in linemap])
    for found in _COPY.finditer(text):
        copy = str(ast.literal_eval(found["text"])).split("\n")
        with open(found["file"], encoding="utf-8", errors="replace") as file:
            own = file.read(_MOST_BYTES).split("\n")
        lines = _same(copy, own, int(found["line"]), found["kernel"])
        _Here.tell("copied", {"kernel": found["kernel"], "file": found["file"], "lines": lines})


def _tell_fused(text: str, linemap: list[tuple[int, str]]) -> None:
    """The lines of each kernel: those of its graph's operations while it is compiled; of one that comes from torch's
    cache the one that ``linemap`` has for its launch, which is the last."""
    graph = getattr(getattr(sys.modules.get("torch._inductor.virtualized"), "V", None), "graph", None)
    nodes = getattr(getattr(graph, "graph", None), "nodes", ())
    stacks = {str(node.name): str(node.stack_trace or "") for node in nodes}
    for found in _MADE.finditer(text):
        kernel = found["kernel"]
        told = [stacks.get(name, "") for name in _NODE.findall(found["said"])]
        if not any(told) and (launch := re.search(rf"^ +{kernel}\.run\(", text, re.M)):
            line = text.count("\n", 0, launch.start()) + 1
            told = [stack for first, stack in linemap if first <= line][-1:]
        frames: list[list[Any]] = []
        for stack in told:
            each = [[file, int(line), name] for file, line, name in _FRAME.findall(stack)]
            own = [frame for frame in each if "/site-packages/" not in frame[0]] or each
            if own and own[-1] not in frames:
                frames.append(own[-1])
        if frames and _Here.tell is not None:
            _Here.tell("fused", {"kernel": kernel, "frames": frames[:_MOST_LINES]})


def _same(copy: list[str], own: list[str], first: int, kernel: str) -> list[list[int]]:
    """Of each line of a copied function the line of the program's with the same text, in their order."""
    begin = next((at for at, line in enumerate(copy) if line.strip().startswith(f"def {kernel}(")), len(copy))
    found, at = [], first - 1
    for number, line in enumerate(copy[begin:], begin + 1):
        text = line.strip()
        there = next((near for near in range(at, len(own)) if text and own[near].strip() == text), None)
        if there is not None:
            found.append([number, there + 1])
            at = there + 1
    return found
