"""Of an operation on tensors of two devices: which tensors its line names, on which device each is, and where it was
made.

From torch's import on each call of torch is asked for the memory of what it made, and the program's line is kept for
it.  When an exception ends the program, the names in the line that failed are looked up; nothing is called for that.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, ModuleType, TracebackType

envkit_steps: Any = importlib.import_module("envkit_steps")  # beside this file, wherever the command runs
_MOST_MADE = 200_000  # places that are kept, the latest
_MOST_TOLD = 40
_DEVICES = ("same device", "expected device", "different devices")  # what torch says of such an operation


class _Here:
    """Where memory was made, by its address."""

    tell: Callable[[str, dict[str, Any]], None] | None = None
    made: ClassVar[dict[int, list[Any]]] = {}
    mode: Any = None


def watch(tell: Callable[[str, dict[str, Any]], None]) -> None:
    """Begins at torch's import; an exception that ends the program is told as the event "placed"."""
    _Here.tell = tell
    envkit_steps.around_torch(_begin, _failed)


def _begin(torch: ModuleType) -> None:
    """Enters a mode in which torch hands over each call of its functions, in this thread."""
    overrides = importlib.import_module("torch.overrides")

    class Mode(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            envkit_steps.guarded_call(_note, torch, made, (args, kwargs))
            return made

    _Here.mode = Mode()
    _Here.mode.__enter__()


def _note(torch: Any, made: Any, given: Any) -> None:
    """Keeps the program's line for each tensor that is no view of what was given."""
    for tensor in _tensors(torch, made):
        address = _address(tensor)
        if address and address not in {_address(each) for each in _tensors(torch, given)}:
            frames = envkit_steps.own_frames(sys._getframe(2))
            if not frames:
                return
            code = frames[0].f_code
            if len(_Here.made) >= _MOST_MADE:
                _Here.made.clear()
            _Here.made[address] = [code.co_filename, frames[0].f_lineno, code.co_name]


def _tensors(torch: Any, value: Any, deep: int = 0) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and deep < 3:
        for each in value[:64]:
            yield from _tensors(torch, each, deep + 1)
    elif isinstance(value, dict) and deep < 3:
        for each in list(value.values())[:64]:
            yield from _tensors(torch, each, deep + 1)


def _address(tensor: Any) -> int:
    """Where a tensor's memory is; its own address where it has none, as on the device "meta"."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    except Exception:  # sparse, fake or wrapped
        return 0


def _failed(error: BaseException, trace: TracebackType | None) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not any(words in str(error) for words in _DEVICES) or _Here.tell is None:
        return
    if _Here.mode is not None:
        _Here.mode.__exit__(None, None, None)
        _Here.mode = None
    found: list[tuple[FrameType, int]] = []
    while trace is not None:
        if envkit_steps.is_own(trace.tb_frame.f_code.co_filename):
            found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    if not found:
        return
    frame, line = found[-1]
    tensors = list(_named(torch, frame, line))[:_MOST_TOLD]
    _Here.tell("placed", {"file": frame.f_code.co_filename, "line": line, "tensors": tensors})


def _named(torch: Any, frame: FrameType, line: int) -> Iterator[dict[str, Any]]:
    """The tensors that a statement names, and those of the modules that it calls, one entry for each."""
    seen = set()
    for node in _names(frame.f_code.co_filename, line):
        name = ast.unparse(node) if hasattr(ast, "unparse") else ""
        value = _value(node, frame)
        for path, tensor in _below(torch, name, value):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                made = _Here.made.get(_address(tensor)) or _Here.made.get(id(tensor))
                yield {"name": path, "device": str(tensor.device), "shape": list(tensor.shape), "made": made}


def _names(file: str, line: int) -> list[Any]:
    """The names, attributes and elements in the innermost statement at a line, the longest of each first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    statements = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (getattr(node, "end_lineno", 0) or node.lineno)
    ]  # fmt: skip
    if not statements:
        return []
    inner = max(statements, key=lambda node: node.lineno)
    parts = (ast.Name, ast.Attribute, ast.Subscript)
    if hasattr(inner, "body"):  # of a loop or a condition, what stands in its head
        heads = [getattr(inner, name) for name in ("test", "iter", "items") if hasattr(inner, name)]
        heads = [each for head in heads for each in (head if isinstance(head, list) else [head])]
        return [node for head in heads for node in ast.walk(head) if isinstance(node, parts)]
    return [node for node in ast.walk(inner) if isinstance(node, parts)]


def _value(node: Any, frame: FrameType) -> Any:
    """What a name or an attribute stands for now; None where it would have to be computed."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Subscript):
        whole, key = _value(node.value, frame), getattr(node.slice, "value", node.slice)
        if isinstance(whole, dict) and isinstance(key, (str, int)):
            return whole.get(key)
        inside = isinstance(whole, (list, tuple)) and isinstance(key, int) and -len(whole) <= key < len(whole)
        return whole[key] if inside else None
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        kept = getattr(owner, "__dict__", {})
        for place in (kept, kept.get("_parameters"), kept.get("_buffers"), kept.get("_modules")):
            if isinstance(place, dict) and node.attr in place:
                return place[node.attr]
    return None


def _below(torch: Any, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A tensor itself; of a module its parameters, buffers and plain attributes."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module) and name != "self":
        for path, part in value.named_modules():
            kept = part.__dict__
            for place in (kept.get("_parameters", {}), kept.get("_buffers", {}), kept):
                for attribute, tensor in list(place.items()):
                    if isinstance(tensor, torch.Tensor):
                        yield ".".join(filter(None, (name, path, attribute))), tensor
