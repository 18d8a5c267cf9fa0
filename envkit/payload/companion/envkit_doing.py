"""What a process does, by the stack of its main thread: it waits for other ranks, sleeps, loads, compiles, saves.

Used by the supervisor alone; it reads no file but the source line that a thread stands at.  The names are those of
torch's, Triton's and Python's own functions, and of functions that programs call so.
"""

from __future__ import annotations

import linecache
import re
from typing import NamedTuple

WAITS, GPU, SLEEPS = "waits for other ranks", "waits for its GPU", "sleeps"
LOADS, COMPILES, SAVES, PREPARES = "loads", "compiles", "writes a checkpoint", "prepares data"
WORKING = (LOADS, COMPILES, SAVES, PREPARES)
"""What comes to an end by itself, though no rank makes a step meanwhile."""

_FRAME = re.compile(r'(?m)^  File "([^"\n]*)", line (\d+|\?\?\?) in (.*)$')
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|<frozen |/torch/|/lib/python3[^/]*/|/envkit[-_/]companion/|/companion/envkit_"
)
# torch's collectives; those of C++ have the companion's own frame innermost, which wraps nothing else
_PEERS = re.compile(
    r"/torch/distributed/(?!elastic/|checkpoint/|launcher/|run\.py)|/torch/nn/parallel/distributed\.py$|/envkit_ranks\.py$"
)
_GPU = re.compile(r"^(?:synchronize|item|cpu|tolist|numpy|elapsed_time)$")
# What a frame says of its thread, of the innermost frame that says anything: its file, then its function.
_SAYS = (
    (
        COMPILES,
        re.compile(
            r"/torch/_inductor/(?!utils\.py|output_code\.py|cudagraph|runtime/(?!compile_tasks|benchmarking))"
            r"|/torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph)|/torch/utils/cpp_extension\.py"
            r"|/triton/(?:compiler/|runtime/build|runtime/autotuner)|/numba/core/compiler|/jax/_src/(?:compiler|pjit)\.py"
        ),
        re.compile(r"(?:^|_)(?:compile|autotune|jit_build|build_extension)s?(?:_|$)"),
    ),
    (
        SAVES,
        re.compile(r"/torch/distributed/checkpoint/(?:state_dict_saver|filesystem)\.py$"),
        re.compile(
            r"^_?(?:legacy_)?save(?:_file|_pretrained|_state|_as|z)?$|(?:^|_)(?:save|write)\w*_(?:checkpoint|ckpt|state|model|weights)"
        ),
    ),
    (
        LOADS,
        re.compile(
            r"^<frozen (?:importlib|zipimport)|/torch/distributed/checkpoint/state_dict_loader\.py$|/huggingface_hub/"
        ),
        re.compile(
            r"^_?(?:legacy_)?load(?:_file|_state_dict|_library|_pretrained)?$|^from_pretrained$"
            r"|(?:^|_)load\w*_(?:checkpoint|ckpt|state|model|weights|shards?)|(?:^|_)download"
        ),
    ),
    (
        PREPARES,
        re.compile(r"/torch/utils/data/|/site-packages/(?:datasets|tokenizers|pandas|pyarrow|PIL|webdataset)/"),
        re.compile(r"(?:^|_)(?:tokenize|preprocess|prepare|collate|augment)\w*$"),
    ),
)


class Doing(NamedTuple):
    """What a main thread does, ``""`` where its stack does not tell; at which line of the program, in which function.

    ``inner`` is the innermost function of all.
    """

    what: str
    file: str = ""
    line: int = 0
    function: str = ""
    inner: str = ""

    def __str__(self) -> str:
        at = f" at {self.file}:{self.line} in {self.function}" if self.file else ""
        within = f", in {self.inner}" if self.inner not in ("", self.function) else ""
        return f"{self.what or 'is'}{at}{within}"


def of(stack: str, cuda: bool = False) -> Doing:
    """What the thread of ``stack`` does, as faulthandler wrote it down: the innermost frame first.

    ``cuda`` says that its process uses a GPU, for which torch waits in functions that else compute.
    """
    frames = [(file, int(line) if line.isdigit() else 0, name.strip()) for file, line, name in _FRAME.findall(stack)]
    if not frames:
        return Doing("")
    own = next((each for each in frames if not _LIBRARY.search(each[0])), frames[0])
    return Doing(_what(frames, cuda), *own, frames[0][2])


def _what(frames: list[tuple[str, int, str]], cuda: bool) -> str:
    if _sleeps(*frames[0]):
        return SLEEPS
    if frames[0][0].startswith("<frozen "):
        return LOADS
    # What torch was called for: the frames as far as the program's own line.
    inner = []
    for frame in frames:
        inner.append(frame)
        if not _LIBRARY.search(frame[0]):
            break
    for file, _, function in inner:
        if _PEERS.search(file):
            return WAITS
        if "/torch/" in file and function == "_engine_run_backward":
            return WAITS
        for what, path, name in _SAYS:
            if path.search(file) or name.search(function):
                return what
    if cuda and any(_GPU.match(function) for _, _, function in inner[:3]):
        return GPU
    # What the program itself calls its functions tells of what lies within them, the innermost first.
    rest = frames[len(inner) :]
    return next(
        (what for file, _, each in rest for what, path, name in _SAYS if name.search(each) or _among(path, file)), ""
    )


def _among(path: re.Pattern[str], file: str) -> bool:
    """Whether a frame above the program's own says what it is called for; a module that is imported may do anything."""
    return not file.startswith("<frozen ") and path.search(file) is not None


def _sleeps(file: str, line: int, function: str) -> bool:
    """Whether the innermost line calls ``sleep``, and torch does not wait there for others."""
    if "/torch/" in file:
        return False
    linecache.checkcache(file)
    return re.search(r"\bsleep\(", linecache.getline(file, line)) is not None
