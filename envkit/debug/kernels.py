"""Whose a kernel is: a library's, which the program called, or one that was compiled while the program ran."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from envkit.debug import stacks
from envkit.debug.records import Fault, PythonFrame
from envkit.records import dataclass

# What a program calls of NVIDIA's libraries, as their headers name it.
_CALL = re.compile(r"(?P<call>(?P<library>cublas|cudnn|cufft|cusparse|cusolver|curand|nccl)[A-Z]\w+)")
_NAMES = {
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cufft": "cuFFT",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "curand": "cuRAND",
    "nccl": "NCCL",
}
_TORCH = re.compile(r"\bat::native::|\bat_cuda_detail::|\bc10::")
_FOR_A_WHILE = re.compile(r"^/(?:var/)?tmp/|\.cubin\.cu$|^default_program$")  # CuPy's and NVRTC's names of sources
_LARGEST = 4_000_000  # bytes of a program's file that are read


@dataclass(frozen=True, slots=True)
class Made:
    """A line of a kernel that was compiled while the program ran, and where the program holds its source."""

    text: str
    file: str
    line: int


def called(fault: Fault) -> str:
    """What the program called of a library whose kernel, built without line numbers, met the fault; "" for any other
    kernel.  Of several calls in the stack it is the outermost, which is the program's own."""
    if fault.place.file:
        return ""
    calls = [found for text in fault.host if (found := _CALL.match(text))]
    if calls:
        return f"`{calls[-1]['call']}` of {_NAMES[calls[-1]['library']]}"
    return "an operation of torch" if _TORCH.search(fault.kernel) else ""


def compiled_on_the_way(fault: Fault) -> bool:
    """Whether the kernel's source was a file for a while only, which is gone."""
    return bool(_FOR_A_WHILE.search(fault.place.file)) and not Path(fault.place.file).exists()


def made(fault: Fault, python: Sequence[PythonFrame]) -> Made | None:
    """The faulty line in a text of the program's own files that holds the kernel; None where there is none such."""
    name = fault.kernel.partition("(")[0].rpartition("::")[2].rpartition(" ")[2]
    if not name:
        return None
    begins = re.compile(rb"__global__[^;{]{0,300}\b" + re.escape(name.encode()) + rb"\s*\(")
    for path in dict.fromkeys(frame.file for frame in reversed(python) if stacks.is_own(frame)):
        for literal in _texts(Path(path)):
            lines = str(literal.value).splitlines()
            if fault.place.line <= len(lines) and begins.search(str(literal.value).encode()):
                spans = (literal.end_lineno or literal.lineno) - literal.lineno
                at = literal.lineno + (fault.place.line - 1 if spans >= len(lines) - 1 else 0)
                return Made(lines[fault.place.line - 1].strip(), path, at)
    return None


def _texts(path: Path) -> Iterator[ast.Constant]:
    """The texts in a Python file, which may not be there."""
    try:
        if path.stat().st_size > _LARGEST:
            return
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
