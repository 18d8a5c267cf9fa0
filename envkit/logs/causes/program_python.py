"""Exceptions of Python that need no GPU: shapes, types, names, arguments, and whatever ended the program."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._stated import INNOCENT, OPEN, gpu_roots, shortened, stated
from envkit.logs.causes._tracebacks import LIBRARY, Chain, events_in, fatal, short_kind, stumbled, telling
from envkit.logs.codes import exception_causes
from envkit.logs.records import Frame, Hypothesis, Line, Strength, Traceback
from envkit.logs.story import Story
from envkit.logs.survived import (
    STUMBLES,
    is_check,
    words,
)

_GPU = re.compile(
    r"\bCUDA(?:_ERROR_\w+)?\b|\bcuda(?!:\d|\b)|cudaError|NCCL|cuDNN|cuBLAS|CUBLAS|CUDNN|nvidia|NVIDIA|\bGPUs?\b|\bPTX\b|ptxas|nvcc|"
    r"device-side|HIP error|compute capability|\bVRAM\b|Triton Error|cu(?:SOLVER|FFT|RAND|SPARSE)|"
    r"CU(?:SOLVER|FFT|SPARSE|TENSOR|PTI|RAND)_|\bNV(?:ML|JITLINK|JPEG|PTXCOMPILE)_|\bNV_ENC_|\bOPTIX_|\bOpti[Xx]\b|\bnvml|"
    r"\bHSA_STATUS|\bROCm\b|rocBLAS|MIOpen|\bhip[A-Z]\w"
)
# exceptions whose message repeats a name or a value of the program's, whatever it is called
_NAMING = frozenset(
    [
        *("KeyError", "NameError", "UnboundLocalError", "AttributeError", "ModuleNotFoundError", "FileNotFoundError"),
        *("NotImplementedError", "AssertionError", "ValueError", "TypeError", "IndexError", "FileExistsError"),
        *("ReferenceError", "SyntaxError"),
    ]
)
_NAMED = re.compile(rf"\b(?:{'|'.join(sorted(_NAMING))}): ?(?P<message>.*)")
_GPU_FAULT = re.compile(
    r"CUDA error|cudaError|CUDA_ERROR|\bon CUDA ?[>c]|"
    r"\bNCCL\b|cuDNN|cuBLAS|CUBLAS|CUDNN|\bPTX\b|ptxas|nvcc|device-side|HIP error|"
    r"compute capability|CUDA (?:driver|runtime|version|toolkit)|(?i:nvidia.{0,3}driver)|Triton Error"
)
_NATIVE = re.compile(r"\.so\b|undefined symbol|GLIBC|CXXABI|DLL load failed|cannot open shared object")
# a package that says which release of another it wants
_WANTS = re.compile(
    r"\b(?:[Rr]equire[sd]?|needs?)\b.{0,160}(?:[<>=!~]=|[<>] ?\d|\b(?:version|release) (?:of )?\S{0,60}\d"
    r"|\b(?:latest|newer|later|older) version)"
    r"|(?:[<>=!~]=|[<>] ?\d)\S{0,20}.{0,60}\bis required\b|\bbut found \S{1,80}(?:==|version)"
    r"|[Pp]lease (?:upgrade|update|downgrade)\b.{0,120}(?:[<>=!~]=|\d\.\d|version)"
    r"|\bincompatible (?:with (?:the )?installed|versions?|with \w{1,30} version)\b"
)
# what a library says of something that it had in earlier releases
_REMOVED = re.compile(
    r"\bno longer (?:supported|available|supports|exists|provided)\b|\b(?:was|were|has been|have been|is) removed\b"
    r"|\bremoved in (?:the )?\S{1,30} (?:\d|release)"
)
# modules that Python or its installers had in earlier releases (PEP 594, PEP 632, setuptools 81), and torch's
_GONE = re.compile(
    r"^No module named '(?:pkg_resources|distutils|imp|asyncore|asynchat|smtpd|cgi|telnetlib|pipes|imghdr|lib2to3"
    r"|torch\._six)(?:\.\w{1,60})?'"
)
# compiled parts of packages, which are there only where the package was built for CUDA
_UNBUILT = re.compile(
    r"^No module named '(?:amp_C|apex_C|\w{1,60}\._C"
    r"|(?:fused|flash|selective|causal|xentropy|scaled|rotary|dropout)_\w{1,50}_cuda)'"
)
# an option or a variable that is to be given another value
_WANTS_OPTION = re.compile(
    r"(?i)\b(?:set|give|pass|use|raise|lower|increase|decrease|reduce|change)\b[^.;]{0,40}?[ `'\"]"
    r"(?:--[a-z][\w-]{1,40}|[A-Z]+_[A-Z_]{3,40})\b.{0,20}\b(?:to|with|below|above)\b"
)
_WANTS_VARIABLE = re.compile(
    r"(?i)\brequires? (?:setting )?(?:the )?env(?:ironment)? var(?:iable)? \S"
    r"|\benvironment variable [\w'\"`]{1,60} (?:must be|is not|needs to be|has to be|not) "
)
# what the words of an exception say that its kind does not
_SAID = (
    ("corrupt-data", re.compile(
        r"contains? (?:NaN|inf)|could not convert string to float|invalid literal for int|truncated|corrupt|not a gzip"
        r"|[Uu]nexpected end of|Error tokenizing data|cannot reshape array|invalid header|bad magic")),
    ("version-mismatch", _WANTS),
    ("infra", re.compile(r"database is locked")),
    ("program-bug", re.compile(
        r"no such (?:table|column)|must be divisible|inconsistent numbers? of samples")),
    ("infra", re.compile(r"\[Errno (?:111|110|113|101)\]|Connection refused|timed out|Name or service not known")),
    ("host-resource", re.compile(
        r"\[[Ee]rrno (?:28|122|24|12|27)\]|No space left|Too many open files|File too large|Disk quota exceeded")),
    ("launch-config", re.compile(
        r"(?i)\b(?:director(?:y|ies)|folder|path|file) \S{1,300} do(?:es)?(?:n't| not) exist\b")),
)  # fmt: skip
# a method that a class of the program's was to have
_METHOD = re.compile(
    r"(?i)\b(?:no|without|lacks?|missing)\b (?:an? )?`?\w{1,60}\(\)`?"
    r"|`?\w{1,60}\(\)`? (?:method )?(?:is )?not (?:defined|implemented)"
    r"|[`'\"]?\b\w{1,60}(?:\(\))?[`'\"]? (?:method )?must be (?:implemented|defined|overrid)"
)
# what torch wraps a model in, which then hides the model's own names
_WRAPS = re.compile(
    r"^'(?:DistributedDataParallel|DataParallel|FullyShardedDataParallel|OptimizedModule)' object has no"
)
_FROM_FILE = re.compile(r"\((?P<folder>/[^()\n]{1,300})/[^()/\n]{1,100}\.py\)$")
_MODULE_LACKS = re.compile(r"^module '?(?P<name>[\w.]+)'? has no attribute")
_LACKING = re.compile(
    r"module '(?P<name>\w+)' has no attribute|cannot import name .{1,80} from (?:partially initialized module )?"
    r"'(?P<other>\w+)'(?=(?:.{0,80} \((?P<file>[^()\s]{1,300}\.py)\))?)"
)
_DOTTED = re.compile(r"^No module named '?(?P<name>\w+\.[\w.]+)'?")
_MISSING = re.compile(r"^No module named '?(?P<name>\w+)'?")
# files that are run where something is built or tested, and so in another environment than the program
_OF_BUILD = re.compile(r"(?:^|/)(?:setup|conftest|test_\w{1,80}|\w{1,80}_test)\.py$")
_GPU_LIBRARY = re.compile(r"TensorRT|\[TRT\]|OptiX|NvEnc|nvenc|NVDEC|cuvid|DeepStream|\bTriton\b")
_REPORT = re.compile(r"(?:^|[\s\[(])(?:\[?E\]|ERROR|Error|error|FATAL|[Ff]ailed|[Cc]annot|[Uu]nable)\b")
_MILD = re.compile(
    r"Unable to register \w{1,20} factory|[Ff]ailed call to cuInit|Exception (?:on|in|while)|[Uu]nhandled|[Uu]ncaught"
    r"|[Ww]arn|WARN|[Dd]eprecat|\b0 errors|[Ii]gnor"
)
_WRITES = re.compile(r"\bprint\(|\bstd(?:out|err)\b|\.flush\(|\becho\(")
_MANAGER = re.compile(r"multiprocessing[\\/]managers\.py$")
_OF_PROXIES = ("_callmethod", "_connect", "_incref")
_NOBODY_THERE = ("EOFError", "BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError", "FileNotFoundError")
_KILLED = ("program-oom-kill", "program-oom-killed-old", "program-oom-slurm", "program-oom-slurm-steps")
_ENVIRON = re.compile(r"\benviron\[")
_GETENV = re.compile(r"\b(?:environ\.get|getenv)\(")
_LOOKS_UP = ("__getattr__", "__getattribute__")
# what exceptions of libraries say, whatever they are called
_OF_LIBRARIES = (
    ("corrupt-data", re.compile(r"Protobuf parsing failed|!\w{1,40}\.empty\(\)")),
    (
        "infra",
        re.compile(r"(?i)\b(?:failed|unable|could not|cannot) to? ?connect\b|connection (?:refused|reset)|unreachable"),
    ),
    ("infra", re.compile(r"(?i)\baccess ?denied\b|\bforbidden\b|\bunauthori[sz]ed\b|\bthrottl")),
    ("launch-config", re.compile(r"(?i)\bno such file\b|\bfile (?:doesn't|does not) exist\b|\bfile not found\b")),
)
_RPC_STATUS = re.compile(r"StatusCode\.(\w{1,30})")
_AWAY = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "ABORTED")
_NEAR = 12
_LONG_BEHIND = 20  # lines


def wrong_shapes_and_types(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Checks that a tensor library makes before any kernel runs: shapes, types, indexes, the graph of gradients.

    They are raised in the call that is wrong, on the CPU as on the GPU (PyTorch aten/src/ATen, torch/csrc/autograd).
    """
    yield from stated(story, "python")


def uncaught_exception(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The exception that ended the program, where no rule knows its words and they do not speak of the GPU.

    GPU words in paths, frames and warnings do not count: only the exception's own kind and message do.
    """
    chain = fatal(story)
    if not chain:
        return
    trace = telling(chain)
    if any(event.category for event in events_in(story, trace)):
        return
    message = words(trace)
    spoken = f"{trace.kind}: {message}"
    lines = _quoted(chain, trace)
    where = _where(trace)
    if _NATIVE.search(spoken):
        why = f"a library could not be loaded, in words that no rule knows: {shortened(message)}"
        yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, lines, why, "ldd of the file, and who installed it")
        return
    if short_kind(trace) in STUMBLES and (said := _said_before(trace, story)) is not None:
        why = f"{short_kind(trace)}{where} follows from what was said before it: {shortened(said.text)}"
        gpu = _GPU.search(said.text) or _GPU_LIBRARY.search(said.text)
        cause, strength = ("unknown", Strength.FALLBACK) if gpu else ("program-bug", Strength.POSSIBLE)
        decide = "what the first of these lines means"
        yield Hypothesis(OPEN if gpu else INNOCENT, cause, strength, (said, *lines), why, decide)
        return
    if (_GPU_FAULT if short_kind(trace) in _NAMING else _GPU).search(spoken) and not is_check(message):
        why = f"{short_kind(trace)}{where} speaks of the GPU in words that no rule knows: {shortened(message)}"
        yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, lines, why, "what the call before it returned")
        return
    if _went_on(trace, story):
        why = f"a logger reported {short_kind(trace)}{where}, and the program went on after it"
        yield Hypothesis(OPEN, "unknown", Strength.FALLBACK, lines, why, "how the program ended: its exit code")
        return
    cause = _cause(trace)
    # who waits for the process that this ended only reports it
    others = [event for event in gpu_roots(story) if not (event.has("late") and _behind(trace, event.line))]
    strength = Strength.POSSIBLE if others else Strength.LIKELY
    why = f"{short_kind(trace)}{where}: {shortened(message)}" if message else f"{short_kind(trace)}{where}"
    fix = ""
    if hidden := _hidden(trace):
        why, fix = (
            f"{why}; a file {hidden}.py of the program's hides Python's module {hidden}",
            "give the file another name",
        )
    yield Hypothesis(INNOCENT, cause, strength, lines, why, _decide(cause, trace), fix)


def mistake_of_a_handler(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The program caught that the GPU's memory was used up, and its own handler stumbled: that ended it."""
    if (found := stumbled(story)) is not None:
        first, last = found
        why = f"the program had caught an error of the GPU's, and its handler failed: {short_kind(last)}{_where(last)}"
        decide = "what the handler was to do; the error before it is the reason why it ran"
        yield Hypothesis(INNOCENT, "program-bug", Strength.LIKELY, (last.line, first.line), why, decide)


def says_a_name(text: str) -> bool:
    """Whether a line is an exception whose message repeats names of the program's, and no fault of the GPU's."""
    return _NAMED.search(text) is not None and not _GPU_FAULT.search(text)


def reader_gone(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Who read the program's output has gone (head, a closed terminal, a logger that ended): write(2), EPIPE."""
    for trace in story.tracebacks[-1:]:
        code = trace.frames[-1].code if trace.frames else ""
        if short_kind(trace) == "BrokenPipeError" and _WRITES.search(code):
            why = f"the program wrote to a pipe that nobody reads any more{_where(trace)}"
            decide = "what the output was piped into, and whether that ended first"
            yield Hypothesis(INNOCENT, "launch-config", Strength.LIKELY, (trace.line,), why, decide, over=(OPEN,))


def manager_gone(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A shared object of multiprocessing was used when its manager had ended (CPython, Lib/multiprocessing/managers.py:
    it ends with the ``with`` block, by shutdown, or when nothing holds the manager any more)."""
    for trace in story.tracebacks[-1:]:
        asks = any(_MANAGER.search(each.file) and each.function in _OF_PROXIES for each in trace.frames)
        if short_kind(trace) in _NOBODY_THERE and asks and not story.of(*_KILLED):
            why = f"the manager of a shared object has ended when the program still uses it{_where(trace)}"
            decide = "whether the manager's with block, its shutdown or the program's end came before this line"
            strength = Strength.POSSIBLE if gpu_roots(story) else Strength.LIKELY
            yield Hypothesis(INNOCENT, "program-bug", strength, (trace.line,), why, decide, over=(OPEN,))


def _went_on(trace: Traceback, story: Story) -> bool:
    """Whether a traceback that a logger wrote has much behind it and nothing that tells of a failure."""
    if not trace.line.level or any(other.line.number > trace.line.number for other in story.tracebacks):
        return False
    tail = next(seen.tail for seen in story.files if seen.name == trace.line.file)
    later = [event for event in story.events if _behind(trace, event.line) and event.category]
    calm = not any(line.level in ("error", "fatal") or _REPORT.search(line.text) for line in tail)
    return not later and calm and len(tail) > 0 and tail[-1].number - trace.line.number > _LONG_BEHIND


def _behind(trace: Traceback, line: Line) -> bool:
    """Whether a line of the same file stands behind a traceback."""
    return line.file == trace.line.file and line.number > trace.line.number


def _said_before(trace: Traceback, story: Story) -> Line | None:
    """The first of the errors that a library reported just before a traceback that speaks of something not there.

    A library in C++ reports and returns nothing; Python then trips over the nothing.
    """
    for seen in story.files:
        for line in seen.loud:
            near = line.process == trace.first.process and 0 < trace.first.number - line.number <= _NEAR
            if near and _REPORT.search(line.text) and not _MILD.search(line.text):
                return line
    return None


def _quoted(chain: Chain, trace: Traceback) -> tuple[Line, ...]:
    last = chain[-1]
    return (trace.line,) if last is trace else (trace.line, last.line)


def _where(trace: Traceback) -> str:
    frame = _own(trace) or (trace.frames[-1] if trace.frames else None)
    if frame is None:
        return ""
    name = re.split(r"[\\/]", frame.file)[-1]
    return f" from {frame.function} ({name}:{frame.line})" if frame.function else f" in {name}:{frame.line}"


def _own(trace: Traceback) -> Frame | None:
    """The innermost frame of the program's own code."""
    own = [each for each in trace.frames if not LIBRARY.search(each.file) and not each.file.startswith("<")]
    return own[-1] if own else None


def _cause(trace: Traceback) -> str:
    """The cause class that an exception's kind and words stand for.

    A library that lacks what is asked of it, or that does not know an argument, is most often of another release than
    its caller was written for.
    """
    kind, message = short_kind(trace), words(trace)
    said = next((cause for cause, words_of in _SAID if words_of.search(message)), "")
    if said and kind in ("ValueError", "OperationalError", "OSError", "RuntimeError", "ReadError"):
        return said
    if kind == "ModuleNotFoundError" and _UNBUILT.match(message):
        return "wrong-build-installed"
    if _WANTS_VARIABLE.search(message) or _WANTS_OPTION.search(message):
        return "launch-config"
    if (kind == "ImportError" and _WANTS.search(message)) or _REMOVED.search(message) or _GONE.match(message):
        return "version-mismatch"
    if status := _RPC_STATUS.search(message):
        return "infra" if status[1] in _AWAY else "program-bug"
    if _METHOD.search(message):
        return "program-bug"
    if stated_by_name := exception_causes().get(kind):
        return stated_by_name
    if "." in trace.kind and (cue := next((name for name, cue in _OF_LIBRARIES if cue.search(message)), "")):
        return cue
    if _hidden(trace):
        return "program-bug"
    if _unset(trace):
        return "launch-config"
    if kind == "ImportError" and "cannot import name" in message and "circular import" not in message:
        own = _FROM_FILE.search(message)  # a file of the program's lies beside the one that asks for it
        beside = own is not None and trace.frames and own["folder"] == trace.frames[-1].file.rpartition("/")[0]
        return "program-bug" if beside and not LIBRARY.search(trace.frames[-1].file) else "version-mismatch"
    if kind in ("ImportError", "ModuleNotFoundError") and _DOTTED.search(message):
        return "version-mismatch"
    if (
        kind == "ModuleNotFoundError"
        and _MISSING.match(message)
        and not any(_OF_BUILD.search(f.file) for f in trace.frames)
    ):
        return "container-config"  # the environment that the program runs in lacks a package
    in_library = (asked := _asked_by(trace)) is not None and bool(LIBRARY.search(asked.file))
    if kind == "AttributeError" and _WRAPS.search(message):
        return "program-bug"
    if kind == "AttributeError" and (
        _MODULE_LACKS.search(message) or (in_library and "has no attribute" in message and "NoneType" not in message)
    ):
        return "version-mismatch"
    if kind == "TypeError" and "unexpected keyword argument" in message:
        return "version-mismatch"
    return "program-bug"


def _unset(trace: Traceback) -> bool:
    """Whether it is a variable of the environment that is not set: the program asked for it, and had nothing then."""
    code = " ".join(frame.code for frame in trace.frames[-2:])
    if short_kind(trace) == "KeyError":
        return _ENVIRON.search(code) is not None and re.match(r"'[A-Z][A-Z0-9_]*'$", words(trace)) is not None
    return short_kind(trace) == "TypeError" and "NoneType" in trace.message and _GETENV.search(code) is not None


def _hidden(trace: Traceback) -> str:
    """The module of Python's that a file of the program's, of the same name, is found before; "" where none is.

    CPython says so itself since 3.13; before that the file stands among the frames or behind the message.
    """
    named = _LACKING.search(trace.message)
    if short_kind(trace) not in ("AttributeError", "ImportError") or named is None:
        return ""
    name = named["name"] or named["other"]
    files = [frame.file for frame in trace.frames] + ([named["file"]] if named["file"] else [])
    own = any(re.split(r"[\\/]", file)[-1] == f"{name}.py" and not LIBRARY.search(file) for file in files)
    return name if name in sys.stdlib_module_names and (own or "consider renaming" in trace.message) else ""


def _asked_by(trace: Traceback) -> Frame | None:
    """The innermost frame, but who asked for an attribute in place of the method that looks for it."""
    return next((each for each in reversed(trace.frames) if each.function not in _LOOKS_UP), None)


def _decide(cause: str, trace: Traceback) -> str:
    if cause == "version-mismatch":
        return "the releases that the caller of the missing name was written for, against those installed (pip list)"
    if missing := _MISSING.search(trace.message):
        return f"whether {missing['name']} is a package that nobody installed, or a module of the program off its path"
    return "the same call on the CPU, which raises the same exception if the GPU has no part in it"
