"""The entry point of an image that asked for one: do the GPUs that were promised work here?  Then its command runs.

    python3 -I -S guard.py -- COMMAND [ARGUMENT]...

Unlike the rest of the payload this file stands alone, for it goes into images as it is, and it judges, for nobody
else is there.  The driver is entered in a child with a limit: it can crash and it can hang, and a process that is to
become the job must not have touched it.  On a pass the command takes this process's place, with its number, its
group, its environment and the signals' defaults.  Exit codes of its own: 1 for what the job would fail at, 2 for
wrong use, 3 where the question stayed open, 126 and 127 as a shell's for a command that cannot run.

    ENVKIT_GUARD=off     run the command unexamined
    ENVKIT_GPUS=N        how many GPUs the job needs; 0 for none
    ENVKIT_SHM=16g       how large /dev/shm must be
    ENVKIT_GUARD_S=60    seconds for the driver
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
import resource
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FAULT, WRONG_USE, UNDECIDED = 1, 2, 3
_LIBRARY = "libcuda.so.1"
_BUDGET_S, _LONGEST_S = 60.0, 600.0  # eight GPUs without persistence mode take some 20 s to start
_DEATH_S = 5.0  # a process in an uninterruptible call of a driver outlives SIGKILL
_TICK_S = 0.002
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}  # as `docker run --shm-size` has them

_GIVE_GPUS = "start the container with its GPUs (`docker run --gpus all`, nvidia.com/gpu in Kubernetes, `--nv`)"
_SEE_NODE = "run `envkit doctor` on the machine, which names the part that is at fault"

# What a CUresult of cuda.h means for a job that is about to start, and what to do.
_MEANING = {
    2: ("the GPU's memory is taken", "end the processes that `nvidia-smi` lists on it"),
    34: ("the library is the toolkit's stub", "take the stubs folder out of LD_LIBRARY_PATH and ld.so.conf"),
    35: ("the driver is older than what calls it", "update the machine's driver, or take an image for an older CUDA"),
    36: ("the driver is older than what calls it", "update the machine's driver, or take an image for an older CUDA"),
    46: (
        "another process has the GPU for itself, or nobody may compute on it",
        "look at `nvidia-smi -q -d COMPUTE`; end its holder, or `nvidia-smi -c DEFAULT`",
    ),
    100: ("the driver is here and shows this process no GPU", f"{_GIVE_GPUS}, and look at CUDA_VISIBLE_DEVICES"),
    101: ("CUDA_VISIBLE_DEVICES names a GPU that is not here", "name those that `nvidia-smi -L` lists"),
    214: ("the GPU has an uncorrectable memory error", "take the machine out of service and reset the GPU"),
    304: ("the kernel refused the driver a call", f"give the container all of /dev/nvidia*; {_SEE_NODE}"),
    802: (
        "the machine's NVLink fabric is not ready",
        "start nvidia-fabricmanager on the machine, in the driver's version, and wait until `nvidia-smi -q` shows"
        " the fabric completed",
    ),
    803: (
        "libcuda is of another version than the loaded kernel module",
        "restart the machine after a driver update; in a container look for a libcuda of its own on LD_LIBRARY_PATH",
    ),
    804: (
        "a forward-compatibility libcuda was loaded on a GPU or a driver that it does not know",
        "take the compat folder out of LD_LIBRARY_PATH and ld.so.conf, or update the machine's driver",
    ),
    805: ("the MPS server cannot be reached", "look at CUDA_MPS_PIPE_DIRECTORY and at nvidia-cuda-mps-control"),
    807: ("the MPS server is not ready", "wait for nvidia-cuda-mps-control, or restart it"),
    999: (
        "the driver failed for a reason that it does not tell",
        f"look for NVRM and Xid in the machine's `dmesg`; {_SEE_NODE}",
    ),
}


class Stop(Exception):
    """Why the command must not run: the exit code, a sentence, and what to do."""

    def __init__(self, code: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.code, self.message, self.fix = code, message, fix


class Ended(Exception):
    """A signal came that ends the wait; its number is the argument."""


class ExpectedGpus(NamedTuple):
    """At least how many GPUs, and who says so."""

    least: int
    by: str


class ChildReport(NamedTuple):
    """What the child in the driver wrote, and how it ended: its wait status, None when its time was up."""

    lines: list[str]
    status: int | None
    budget_s: float


# What was promised.


def promises(environ: Mapping[str, str]) -> list[ExpectedGpus]:
    """What the variables promise; a job for which nobody counted was promised one GPU.  Raises Stop for a bad number.

    CUDA sees the devices of CUDA_VISIBLE_DEVICES, and none where that is set and empty; so it is asked before what
    the container was given.
    """
    found = []
    asked = environ.get("ENVKIT_GPUS", "").strip()
    if asked:
        if not re.fullmatch(r"[0-9]{1,4}", asked):
            raise Stop(WRONG_USE, f"ENVKIT_GPUS is {asked!r}, no number of GPUs", "set it to a whole number")
        if not int(asked):
            return []
        found.append(ExpectedGpus(int(asked), f"ENVKIT_GPUS={asked}"))
    for name, count in (("CUDA_VISIBLE_DEVICES", _seen_by_cuda), ("NVIDIA_VISIBLE_DEVICES", _given)):
        if name in environ:
            least = count(environ[name].strip())
            return [*found, ExpectedGpus(least, f"{name}={environ[name]}")] if least else found
    return found or [ExpectedGpus(1, "the image's guard")]


def _seen_by_cuda(value: str) -> int:
    """Devices in a CUDA_VISIBLE_DEVICES: those before the first negative one; of MIG devices at least one."""
    count = 0
    for word in value.split(",") if value and value != "NoDevFiles" else ():
        if word.strip().startswith("-"):
            break
        count += 1
    return min(count, 1) if "MIG-" in value else count


def _given(value: str) -> int:
    """GPUs in a NVIDIA_VISIBLE_DEVICES: as many as it names, none for "none", else at least one.

    "void" tells the runtime to give nothing itself; CDI specifications set it in containers that get their GPUs.
    """
    if value == "none":
        return 0
    words = value.split(",")
    return len(words) if all(re.fullmatch(r"[0-9]+|GPU-[0-9A-Fa-f-]+", word.strip()) for word in words) else 1


def size(text: str) -> int:
    """Bytes of "16g" or "67108864"; raises Stop for anything else."""
    found = re.fullmatch(r"([0-9]{1,18})([kmgt]?)(?:i?b)?", text.strip().lower())
    if not found:
        raise Stop(WRONG_USE, f"ENVKIT_SHM is {text!r}, no size", "write it as 16g, 512m or in bytes")
    return int(found.group(1)) * _UNITS[found.group(2)]


def need_shm(wanted: int, path: str = "/dev/shm") -> None:
    """Raises Stop where shared memory is smaller than ``wanted`` bytes."""
    fix = (
        "start the container with `--shm-size` or `--ipc=host`; in Kubernetes mount an emptyDir of medium Memory there"
    )
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise Stop(FAULT, f"{path} cannot be read: {error.strerror}", fix) from None
    total = found.f_frsize * found.f_blocks
    if total < wanted:
        raise Stop(FAULT, f"{path} has {total >> 20} MiB, ENVKIT_SHM asks for {wanted >> 20} MiB", fix)


# The driver, entered in a child that writes a line before each step and one for what came of it.


def _enter(say: Callable[[str], None]) -> None:
    say("at loading " + _LIBRARY)
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        say(f"unloadable {error}")
        return

    def failed(call: str, code: int) -> bool:
        if code:
            name = ctypes.c_char_p()
            known = not library.cuGetErrorName(code, ctypes.byref(name)) and name.value
            say(f"failed {code} {known.decode('ascii', 'replace') if known else '?'} {call}")
        return bool(code)

    count = ctypes.c_int()
    say("at cuInit")
    if failed("cuInit", library.cuInit(0)):
        return
    say("at cuDeviceGetCount")
    if failed("cuDeviceGetCount", library.cuDeviceGetCount(ctypes.byref(count))):
        return
    say(f"count {count.value}")

    def make(index: int) -> None:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if failed(f"cuDeviceGet of device {index}", library.cuDeviceGet(ctypes.byref(device), index)):
            return
        code = library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if not failed(f"cuDevicePrimaryCtxRetain of device {index}", code):
            say(f"made {index}")

    # Side by side, for a context takes a fifth of a second; they go with the process.
    makers = [threading.Thread(target=make, args=(index,), daemon=True) for index in range(count.value)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    say("end")


def _child(pipe: int, parent: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was asked
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a driver prints is no output of the job

    def say(line: str) -> None:
        os.write(pipe, (" ".join(line.split()) + "\n").encode("utf-8", "replace"))

    _enter(say)


def _reaped(child: int, deadline: float) -> int | None:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(_TICK_S)


def _listen(budget_s: float) -> ChildReport:
    """Lets a child enter the driver and waits for its end, which frees its contexts."""
    deadline = time.monotonic() + budget_s
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _child(writing, parent)
        except AttributeError as error:  # a libcuda that lacks a function says so in these words
            _tell(str(error))
            os._exit(70)
        finally:
            os._exit(0)
    os.close(writing)
    status = None
    try:
        data = b""
        while len(data) < 1 << 20 and select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(reading, 65536)
            if not piece:
                status = _reaped(child, deadline)
                break
            data += piece
    finally:
        os.close(reading)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _reaped(child, time.monotonic() + _DEATH_S)
    return ChildReport(data.decode("utf-8", "replace").splitlines(), status, budget_s)


def _missing_nodes() -> str:
    """What the container lacks of the driver's nodes, as the end of a sentence; empty under WSL, which has others."""
    if os.path.exists("/dev/dxg"):
        return ""
    lacks = [f"no {path}" for path in ("/dev/nvidiactl", "/dev/nvidia-uvm") if not os.path.exists(path)]
    lacks += [] if glob.glob("/dev/nvidia[0-9]*") else ["no /dev/nvidia0 or other GPU"]
    here = [path for path in glob.glob("/dev/nvidia*") if not os.path.isdir(path)]
    lacks += [f"no right to open {path}" for path in sorted(here) if not os.access(path, os.R_OK | os.W_OK)]
    return f"; here is {', '.join(lacks)}" if lacks else ""


def judge(heard: ChildReport, promised: Sequence[ExpectedGpus]) -> None:
    """Raises Stop unless the child came to its end, with as many devices as promised and a context on each."""
    said: dict[str, list[str]] = {}
    for line in heard.lines:
        word, _, rest = line.partition(" ")
        said.setdefault(word, []).append(rest)
    for why in said.get("unloadable", ()):
        if why.startswith(f"{_LIBRARY}: cannot open shared object file"):
            raise Stop(FAULT, f"there is no {_LIBRARY} here: the machine's driver was not put in", _GIVE_GPUS)
        raise Stop(FAULT, f"{_LIBRARY} cannot be loaded: {why}", "put the machine's own libcuda first for the linker")
    for text in said.get("failed", ()):
        raise _failure(text)
    count = int(said["count"][0]) if "count" in said else None
    if count is not None:
        for promise in promised:
            if count < promise.least:
                message = f"the driver shows {count} of {promise.least} GPUs promised by {promise.by}"
                raise Stop(FAULT, message, f"{_GIVE_GPUS}, and name in CUDA_VISIBLE_DEVICES only what is here")
    if heard.status == 0 and "end" in said and count is not None and len(said.get("made", ())) == count:
        return
    at = said.get("at", ["the start"])[-1]
    if count is not None:
        left = sorted({str(index) for index in range(count)} - set(said.get("made", ())), key=int)
        at = f"making the context of device {', '.join(left)}" if left else "leaving the driver"
    if heard.status is None:
        raise Stop(UNDECIDED, f"{at} did not end within {heard.budget_s:g} s", _SEE_NODE)
    raise Stop(UNDECIDED, f"{at} {_death(heard.status)}", _SEE_NODE)


def _failure(text: str) -> Stop:
    code, name, call = text.split(" ", 2)
    cause, fix = _MEANING.get(int(code), ("the job's own first call would fail with it", _SEE_NODE))
    nodes = _missing_nodes() if int(code) in (100, 304, 999) else ""
    return Stop(FAULT, f"{call} returned {code} ({name}): {cause}{nodes}", fix)


def _death(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"ended its process with code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        return f"was killed by {signal.Signals(number).name}"
    except ValueError:
        return f"was killed by signal {number}"


# The whole.


def look(environ: Mapping[str, str]) -> str:
    """Examines what the variables ask for; what to tell of a look that was not needed.  Raises Stop and Ended."""
    switch = environ.get("ENVKIT_GUARD", "").strip()
    if switch == "off":
        return "ENVKIT_GUARD is off, nothing was looked at"
    if switch not in ("", "on"):
        raise Stop(WRONG_USE, f"ENVKIT_GUARD is {switch!r}", "set it to off, or to on, which it is by itself")
    promised = promises(environ)
    budget_s = _budget(environ.get("ENVKIT_GUARD_S", "").strip())
    if environ.get("ENVKIT_SHM", "").strip():
        need_shm(size(environ["ENVKIT_SHM"]))
    if not promised:
        return "its environment promises no GPU, none was looked at"
    with _ending_signals():
        judge(_listen(budget_s), promised)
    return ""


def _budget(text: str) -> float:
    if not text:
        return _BUDGET_S
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text) or not 0 < float(text) <= _LONGEST_S:
        message = f"ENVKIT_GUARD_S is {text!r}, no time of at most {_LONGEST_S:g} s"
        raise Stop(WRONG_USE, message, "write seconds, such as 60")
    return float(text)


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGINT raise Ended, for a container's first process has no default; ignored ones stay so."""

    def ended(number: int, _: object) -> None:
        raise Ended(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, ended)
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_DFL)


def _environment() -> dict[bytes, bytes]:
    """The environment as this process got it: Python sets LC_CTYPE in a C locale (PEP 538), and the job need not."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
            return {name: value for name, equals, value in pairs if equals}
    except OSError:
        return dict(os.environb)


def become(command: Sequence[str]) -> int:
    """Puts the command in this process's place; the exit code where that cannot be done."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores both, and what it ignores would stay ignored
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), _environment())
    except (OSError, ValueError) as error:  # ValueError: an empty name
        why = error.strerror if isinstance(error, OSError) else str(error)
        _tell(f"`{command[0]}` cannot be run: {why}", "name a program of the image after --")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _tell(message: str, fix: str = "") -> None:
    text = f"envkit guard: {message}\n" + (f"  fix: {fix}\n" if fix else "")
    with contextlib.suppress(OSError):  # stderr is closed or full, and the exit code still speaks
        os.write(2, text.encode("utf-8", "backslashreplace"))


def main(argv: Sequence[str]) -> int:
    """Looks, and becomes the command on a pass; returns an exit code where it does not."""
    try:
        if not argv or argv[0] != "--" or len(argv) < 2 or not argv[1]:
            raise Stop(WRONG_USE, "there is no command", "write it after --: guard.py -- COMMAND [ARGUMENT]...")
        skipped = look(os.environ)
    except Stop as stop:
        _tell(stop.message, stop.fix)
        return stop.code
    except Ended as ended:
        number = int(ended.args[0])
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # a container's first process outlives it
        return 128 + number
    if skipped:
        _tell(skipped)
    return become(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
