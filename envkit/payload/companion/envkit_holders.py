"""Finds which of the program's own variables keep tensors, and whether they keep the graphs of past steps with them.

It walks from the local variables of the program's frames and the globals of its modules through lists, dicts, the
attributes of objects, what functions close over, and the frames that exceptions keep.  It reads and changes nothing: no
property is called, no tensor is copied.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import importlib
import inspect
import linecache
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import FrameType

envkit_steps: Any = importlib.import_module("envkit_steps")  # beside this file, wherever the command runs
_MOST_OBJECTS = 200_000
_MOST_NODES = 20_000  # of autograd's graph, of one holder
_MOST_TOLD = 200
_MOST_HEAVY = 40  # by their bytes, beside these
_DEEP = 7
_GROWS = ("append", "extend", "add", "insert", "appendleft", "update", "setdefault", "put", "push")
_LONG = 4096  # bytes of a text or of bytes that are counted
_PLAIN = (int, float, bool, complex, type(None), type, type(sys), type(len))
_TEXTS = (str, bytes, bytearray)


_NO_NODES: frozenset[Any] = frozenset()
_HOLDS = (list, dict, set, collections.deque)


class _Sum(NamedTuple):
    """Tensors and arrays together: how many, their bytes on GPUs, how many have a graph, the graphs' first nodes, and
    their bytes in the CPU's memory."""

    many: int
    size: int
    graphs: int
    nodes: set[Any] | frozenset[Any]
    host: int


_NOTHING = _Sum(0, 0, 0, _NO_NODES, 0)


class _Walk:
    """One walk: what was seen, and what holds tensors."""

    def __init__(self, torch: Any) -> None:
        self.tensor = torch.Tensor
        self.module = torch.nn.Module
        self.array = getattr(sys.modules.get("numpy"), "ndarray", ())
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # so that no address is used twice while the walk lasts
        self.found: list[dict[str, Any]] = []
        self.cut = False
        self.within = (0, 0)  # the lines of the function whose local variable is walked

    def visit(self, value: Any, path: str, home: str, deep: int) -> _Sum:
        """The tensors, arrays and long texts below a value."""
        if isinstance(value, self.tensor):
            return self.one(value)
        if isinstance(value, (*_TEXTS, self.array) if self.array else _TEXTS):
            return self.plain(value)
        if deep > _DEEP or isinstance(value, _PLAIN) or id(value) in self.seen:
            return _NOTHING
        if len(self.seen) >= _MOST_OBJECTS:
            self.cut = True
            return _NOTHING
        self.seen.add(id(value))
        self.kept.append(value)
        items = _items(value)
        count = size = graphs = host = 0
        nodes: set[Any] = set()
        owner = _file(value) or home
        for name, item in items:
            below = self.visit(item, path + name, owner, deep + 1)
            if below.graphs and isinstance(item, self.tensor) and name.startswith("."):
                self.tell(path + name, owner, 1, below)
            count, size, graphs = count + below.many, size + below.size, graphs + below.graphs
            host += below.host
            nodes |= below.nodes
        whole = _Sum(count, size, graphs, nodes, host)
        if whole.many and not isinstance(value, self.module) and isinstance(value, _HOLDS):
            self.tell(path, home, len(value), whole)
        return whole

    def one(self, tensor: Any) -> _Sum:
        """A tensor; of one that shares its memory with one that was met already the bytes are not counted again."""
        size = host = 0
        try:
            node = tensor.grad_fn
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.seen:
                self.seen.add(storage.data_ptr())
                size, host = (storage.nbytes(), 0) if tensor.is_cuda else (0, storage.nbytes())
        except Exception:  # a sparse or fake tensor has no storage, and what a program makes of tensors may refuse more
            return _NOTHING
        return _Sum(1, size, int(node is not None), {node} if node is not None else _NO_NODES, host)

    def plain(self, value: Any) -> _Sum:
        """An array of NumPy, or a text; a view's memory is that of what it is a view of."""
        if isinstance(value, _TEXTS):
            size = len(value)
        else:
            while isinstance(value.base, self.array):
                value = value.base
            size = value.nbytes
        if size < _LONG or id(value) in self.seen:
            return _NOTHING
        self.seen.add(id(value))
        return _Sum(1, 0, 0, _NO_NODES, size)

    def tell(self, path: str, home: str, length: int, whole: _Sum) -> None:
        """One holder."""
        if len(self.found) < 5 * _MOST_TOLD:
            lines = (0, 0) if "." in path else self.within
            told = {
                "within": lines,
                "path": path,
                "file": home,
                "length": length,
                "tensors": whole.many,
                "bytes": whole.size,
                "host": whole.host,
                "graphs": whole.graphs,
            }
            self.found.append({**told, "nodes": _graph(set(whole.nodes))})


def holders(frame: FrameType | None) -> dict[str, Any]:
    """What holds tensors, the most nodes and tensors first; ``frame`` is the program's innermost frame."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return {"holders": [], "cut": False}
    walk = _Walk(torch)
    for each in envkit_steps.own_frames(frame):
        code = each.f_code
        if code.co_name != "<module>":  # whose variables are the module's
            block = inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])
            walk.within = (code.co_firstlineno, code.co_firstlineno + len(block) - 1)
            for name, value in list(each.f_locals.items()):
                _root(walk, name, value, code.co_filename)
    walk.within = (0, 0)
    for module in list(sys.modules.values()):
        file = _file_of(module)
        if file and envkit_steps.is_own(file):
            for name, value in list(vars(module).items()):
                _root(walk, name, value, file)
    rows = sorted(walk.found, key=lambda row: (row["nodes"] + row["tensors"], row["bytes"]), reverse=True)[:_MOST_TOLD]
    heavy = sorted(walk.found, key=lambda row: row["bytes"] + row["host"], reverse=True)[:_MOST_HEAVY]
    rows += [row for row in heavy if not any(row is other for other in rows)]
    for row in rows:
        row["lines"] = _grown(row["file"], row["path"], *row.pop("within"))
    return {"holders": rows, "cut": walk.cut}


def _root(walk: _Walk, name: str, value: Any, file: str) -> None:
    if name.startswith("__"):
        return
    if isinstance(value, walk.tensor):
        whole = walk.one(value)
        if whole.graphs:
            walk.tell(name, file, 1, whole)
    else:
        walk.visit(value, name, file, 0)


def _items(value: Any) -> list[tuple[str, Any]]:
    """What a value holds, with what is added to its path."""
    if isinstance(value, dict):
        return [(f"[{key!r}]" if isinstance(key, (str, int)) else "[...]", item) for key, item in list(value.items())]
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return [("[...]", item) for item in list(value)]
    if isinstance(value, types.FunctionType):
        return [*_closed(value), ("()", value.__defaults__), ("()", value.__kwdefaults__)]
    if isinstance(value, types.MethodType):
        return [(".__self__", value.__self__)]
    if isinstance(value, functools.partial):
        return [("(...)", value.args), ("(...)", value.keywords)]
    if isinstance(value, BaseException):
        return _raised(value)
    named = getattr(value, "__dict__", None)
    return [(f".{name}", item) for name, item in list(named.items())] if isinstance(named, dict) else []


def _closed(function: Any) -> list[tuple[str, Any]]:
    """What a function closes over; a cell may still be empty."""
    found = []
    for at, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):
            found.append((f"({function.__code__.co_freevars[at]})", cell.cell_contents))
    return found


def _raised(error: BaseException) -> list[tuple[str, Any]]:
    """The local variables that an exception keeps, with the frames in which it was raised."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        found += [(f".__traceback__({name})", value) for name, value in list(trace.tb_frame.f_locals.items())]
        trace = trace.tb_next
    return found


def _file(value: Any) -> str:
    """The program's own file that has the class of a value; empty for values of libraries."""
    file = _file_of(sys.modules.get(type(value).__module__))
    return file if file and envkit_steps.is_own(file) else ""


def _file_of(module: Any) -> str:
    """A module's file; a module that imports what it is asked for is not asked: this may be another thread than the
    one that imports."""
    named = module.__dict__ if isinstance(module, types.ModuleType) else {}
    file = named.get("__file__")
    return file if isinstance(file, str) else ""


def _graph(nodes: set[Any]) -> int:
    """How many nodes of autograd's graph hang on these, at most ``_MOST_NODES``."""
    seen = set(nodes)
    ahead = list(nodes)
    while ahead and len(seen) < _MOST_NODES:
        for following, _ in ahead.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                ahead.append(following)
    return len(seen)


def _grown(file: str, path: str, first: int, last: int) -> list[list[Any]]:
    """The lines of a file in which the variable or attribute at the end of ``path`` gets more: number and text; of a
    local variable those of its function, from ``first`` to ``last``."""
    name = path.partition("[")[0].rpartition(".")[2]
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    numbers = sorted({getattr(node, "lineno", 0) for node in ast.walk(tree) if _grows(node, name)})
    numbers = [number for number in numbers if not last or first <= number <= last]
    return [[number, linecache.getline(file, number).strip()[:160]] for number in numbers[:4]]


def _grows(node: ast.AST, name: str) -> bool:
    """Whether a statement adds to what bears the name: x.append(...), x += ..., x[...] = ..., x = x + ..."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _GROWS and _named(node.func.value, name)
    if isinstance(node, ast.AugAssign):
        return _named(node.target, name)
    if isinstance(node, ast.Assign):
        if any(isinstance(target, ast.Subscript) and _named(target.value, name) for target in node.targets):
            return True
        again = any(_named(each, name) for each in ast.walk(node.value) if isinstance(each, (ast.Name, ast.Attribute)))
        return again and any(_named(target, name) for target in node.targets)
    return False


def _named(node: ast.AST, name: str) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
