"""Whose a kernel is: a library's, which the program called, or one that was compiled while the program ran."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from envkit.debug import job, stacks
from envkit.debug.job import CommandRun, Event
from envkit.debug.records import CodeLocation, Fault, PythonFrame
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
# cuBLAS's and cuDNN's own, by name: what a core dump tells, which has no stack of the CPU
_OF_NVIDIA = re.compile(
    r"^(?:nvjet_|sm\d+_xmma_|(?:ampere|hopper|turing|volta)_\w*gemm|cublas|cudnn|void (?:cublasLt|cudnn)\b)"
)
_TORCH = re.compile(r"\bat::native::|\bat_cuda_detail::|\bc10::")
_FOR_A_WHILE = re.compile(r"^/(?:var/)?tmp/|\.cubin\.cu$|^default_program$")  # CuPy's and NVRTC's names of sources
_LARGEST = 4_000_000  # bytes of a program's file that are read


@dataclass(frozen=True, slots=True)
class Source:
    """The text of kernels that were compiled while the program ran, and the frames of Python that had it compiled."""

    text: str
    frames: tuple[PythonFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A line of a kernel that was compiled while the program ran: its text, where the program holds it (no file where
    it was put together), and the program's own line that had it compiled.  No text where the build has no lines."""

    text: str = ""
    file: str = ""
    line: int = 0
    maker: PythonFrame | None = None

    @property
    def place(self) -> str:
        """File and line, or nothing."""
        return f"{self.file}:{self.line}" if self.file else ""


def sources(ran: CommandRun) -> tuple[Source, ...]:
    """The texts that the companion kept of a run."""
    found = []
    for event in ran.events:
        name = event.get("file", "")
        if event["event"] != "source" or not re.fullmatch(r"source-[0-9a-f]+\.cu", name):
            continue
        try:
            with job.plain_file(ran.folder / name) as file:
                text = file.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        found.append(Source(text, stacks.frames(event.get("frames", ()))))
    return tuple(found)


def original(fault: Fault, events: Sequence[Event]) -> Fault:
    """A fault in a Triton kernel that torch.compile copied, at the line of the program's that it copied; one in a
    kernel that it made, with the lines that it made it of; any other as it is."""
    if not stacks.is_generated(fault.place.file):
        return fault
    if (python := stacks.uncompiled(fault.python)) != tuple(fault.python):
        fault = replace(fault, python=python)
    name = fault.kernel.partition("(")[0]
    for event in events:
        if event["event"] == "copied" and event.get("kernel") == name and event.get("file"):
            line = dict(event.get("lines", ())).get(fault.place.line)
            if line:
                return replace(fault, place=CodeLocation(fault.place.function, event["file"], line))
        if event["event"] == "fused" and event.get("kernel") == name:
            return replace(fault, fused=stacks.frames(event.get("frames", ())))
    return fault


def called(fault: Fault) -> str:
    """What the program called of a library whose kernel, built without line numbers, met the fault; "" for any other
    kernel.  Of several calls in the stack it is the outermost, which is the program's own."""
    if fault.place.file:
        return ""
    calls = [found for text in fault.host if (found := _CALL.match(text))]
    if calls:
        return f"`{calls[-1]['call']}` of {_NAMES[calls[-1]['library']]}"
    if _OF_NVIDIA.match(fault.kernel):
        return "an operation of cuBLAS or cuDNN"
    return "an operation of torch" if _TORCH.search(fault.kernel) else ""


def compiled_on_the_way(fault: Fault, kept: Sequence[Source] = ()) -> bool:
    """Whether the kernel's source was a file for a while only, which is gone, or never was one."""
    if not fault.place.file:
        return _source(fault, kept) is not None
    there = Path(fault.place.file).exists()
    return not there and bool(_FOR_A_WHILE.search(fault.place.file) or _source(fault, kept))


def _begins(fault: Fault) -> re.Pattern[str] | None:
    """What the definition of a fault's kernel looks like; None where it has no name."""
    name = fault.kernel.partition("(")[0].rpartition("::")[2].rpartition(" ")[2]
    return re.compile(r"__global__[^;{]{0,300}\b" + re.escape(name) + r"\s*\(") if name else None


def _source(fault: Fault, kept: Sequence[Source]) -> Source | None:
    """The last text of a run that defines a fault's kernel."""
    begins = _begins(fault)
    return next((each for each in reversed(kept) if begins and begins.search(each.text)), None)


def made(fault: Fault, python: Sequence[PythonFrame], kept: Sequence[Source] = ()) -> Made | None:
    """The faulty line, in a text of the program's own files that holds the kernel, or else in one that a run kept; None
    where there is none such."""
    begins = _begins(fault)
    if begins is None:
        return None
    source = _source(fault, kept)
    maker = stacks.own_line(source.frames) if source else None
    frames = [*reversed(python), *reversed(source.frames if source else ())]
    if fault.place.file:
        for path in dict.fromkeys(frame.file for frame in frames if stacks.is_own(frame)):
            for literal in _texts(Path(path)):
                lines = str(literal.value).splitlines()
                if fault.place.line <= len(lines) and begins.search(str(literal.value)):
                    spans = (literal.end_lineno or literal.lineno) - literal.lineno
                    at = literal.lineno + (fault.place.line - 1 if spans >= len(lines) - 1 else 0)
                    return Made(lines[fault.place.line - 1].strip(), path, at, maker)
    lines = source.text.splitlines() if source else []
    text = lines[fault.place.line - 1].strip() if fault.place.file and 0 < fault.place.line <= len(lines) else ""
    return Made(text, maker=maker) if source else None


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
