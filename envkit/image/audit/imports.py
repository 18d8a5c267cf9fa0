"""Which extension modules the import of a package loads whatever happens, read in its Python files; none is run.

Many packages bring extensions that only some of their users need (for ffmpeg, for SoX, for another release of CUDA) and
import them within a function or go on where that fails.  What the package imports unconditionally ends its import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envkit.image.audit.linker import is_file, text
from envkit.image.tree import Tree

_MOST_FILES = 2_000  # of one package; torch's own import reads 1,100
_LONGEST = 1 << 20  # bytes of one file
_CAUGHT = frozenset(("ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException", "RuntimeError"))


def always(tree: Tree, base: str, package: str, others: tuple[str, ...] = ()) -> frozenset[str]:
    """The modules of ``package`` in ``base`` that ``import package`` imports, by dotted names.

    Under an ``if`` counts, but for type checkers and other systems; within a function, or a ``try`` whose handler goes
    on, does not.  A name that is no module may be among them.  The modules in the folders ``others`` are followed as
    well where there are any; then all that is imported is named.
    """
    found: set[str] = {package}
    queue = [package]
    for name in queue:
        path = f"{base}/{name.replace('.', '/')}"
        if others and name.partition(".")[0] != package:
            path = next((each for each in _paths(others, name) if _file(tree, each)), path)
        inside = is_file(tree, f"{path}/__init__.py")
        file = f"{path}/__init__.py" if inside else f"{path}.py"
        if len(queue) > _MOST_FILES or not is_file(tree, file):
            continue
        try:
            module = ast.parse(text(tree, file, _LONGEST))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # nothing that Python would import
            continue
        within = name if inside else name.rpartition(".")[0]
        for asked in _imports(module.body, within):
            parts = asked.split(".")
            for end in range(1, len(parts) + 1):
                one = ".".join(parts[:end])
                if (others or parts[0] == package) and one not in found:
                    found.add(one)
                    queue.append(one)
    return frozenset(found)


def _paths(folders: tuple[str, ...], name: str) -> Iterator[str]:
    return (f"{each}/{name.replace('.', '/')}" for each in folders)


def _file(tree: Tree, path: str) -> bool:
    return is_file(tree, f"{path}/__init__.py") or is_file(tree, f"{path}.py")


def _imports(body: list[ast.stmt], within: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = within.split(".")[: len(within.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.If) and not _elsewhere(node.test):
            yield from _imports([*node.body, *node.orelse], within)
        elif isinstance(node, ast.Try) and not any(map(_goes_on, node.handlers)):
            yield from _imports([*node.body, *node.orelse, *node.finalbody], within)
        elif isinstance(node, (ast.With, ast.ClassDef)):
            yield from _imports(node.body, within)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a failed import and raises nothing in its place."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    caught = not kinds or any(ast.unparse(kind).rpartition(".")[2] in _CAUGHT for kind in kinds)
    return caught and not any(isinstance(node, ast.Raise) for node in handler.body)


def _elsewhere(test: ast.expr) -> bool:
    """Whether a condition is for type checkers or another system than Linux."""
    said = ast.unparse(test)
    return "TYPE_CHECKING" in said or any(
        word in said for word in ("'nt'", "'win32'", "'Windows'", "'darwin'", "'Darwin'")
    )
