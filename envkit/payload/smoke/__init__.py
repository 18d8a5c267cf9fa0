"""The smoke suite: each kernel test in a process of its own, on the CPU and on every GPU, as numbers.

One parent imports torch once, without touching CUDA, and forks a child for each test; a test that needs a fresh
interpreter or no torch gets one beside it.  Tests of one device follow one another, devices run side by side.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import os
import re
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from envkit.payload import isolate
from envkit.payload.smoke.bench import SABOTAGE, Bench, travelling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Case(NamedTuple):
    """One test: where it runs and how it starts ("fork" from the parent with torch, "fresh", "bare": no torch).

    One that ``builds`` waits for compilers more than it computes: it runs beside the other tests of its device, and
    has more time.
    """

    name: str
    cpu: bool = True
    start: str = "fork"
    gpu: bool = True
    builds: bool = False

    @property
    def module(self) -> str:
        """The module that holds its ``run``."""
        return f"{__name__}.{self.name.replace('-', '_')}"


TESTS = (
    Case("gemm-exact"),
    Case("gemm-random"),
    Case("conv"),
    Case("attention"),
    Case("fft"),
    Case("solve"),
    Case("sparse"),
    Case("freeze-unfreeze"),
    Case("torch-compile", gpu=False, builds=True),
    Case("aoti-cpu", gpu=False, builds=True),
    Case("triton-targets", gpu=False, builds=True),
    Case("streams-events", cpu=False),
    Case("triton-add", cpu=False),
    Case("dataloader", start="fresh"),
    Case("vector-add-nvrtc", cpu=False, start="bare"),
)
_DEVICES_S = 30.0
_IMPORT_S = 120.0  # a cold import from a slow disk takes over a minute
_BUILD_S = 120.0  # inductor runs the C++ compiler up to ten times: 16 s alone on four cores, more beside others
_MARGIN_S = 8.0  # so that the parent with torch reports before it is itself ended
_NO_CUDA = "cuda"  # the device that a GPU test names where there is none


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _measure(
    test: Case, device: str, sabotage: str, threads: int, targets: Sequence[str] = (), scratch: str = ""
) -> dict[str, Any]:
    """Runs one test here and now: its measures and its detail."""
    if test.start != "bare":
        try:
            import torch
        except ModuleNotFoundError as error:
            if error.name == "torch":
                raise isolate.Unfit("there is no torch in this Python") from None
            raise
        torch.set_num_threads(threads)
    bench = Bench(device, sabotage, targets, scratch)
    importlib.import_module(test.module).run(bench)
    return {"measures": travelling(bench.measures), "detail": bench.detail}


def _root() -> str:
    """The entry of sys.path that this package came from: a folder or a zip."""
    path = os.path.abspath(__file__)
    for _ in range(__name__.count(".") + 2):
        path = os.path.dirname(path)
    return path


def alone(name: str, device: str, sabotage: str, threads: str, budget: str, fd: str) -> None:
    """What a fresh interpreter does: one test, its end sent to the pipe ``fd``."""
    test = next(test for test in TESTS if test.name == name)
    os.set_inheritable(int(fd), False)
    isolate.perform(lambda _: _measure(test, device, sabotage, int(threads)), int(fd), float(budget))


def _task(test: Case, device: str, asked: argparse.Namespace, threads: int, scratch: str) -> isolate.Task:
    budget_s = asked.test_seconds + (asked.import_seconds if test.start == "fresh" else 0.0)
    budget_s += _BUILD_S if test.builds else 0.0
    sabotage, targets = asked.sabotage, asked.sm
    if test.start == "fresh":
        # "-c" puts the working directory first, where the image's files may bear a module's name
        path = f"sys.path[:] = [{_root()!r}] + [entry for entry in sys.path if entry]"
        code = f"import sys; {path}; from {__name__} import alone; alone(*sys.argv[1:])"
        words = (test.name, device, sabotage, str(threads), str(budget_s))
        return isolate.Task(test.name, device, budget_s, argv=(sys.executable, "-c", code, *words))
    return isolate.Task(
        test.name, device, budget_s, lambda _: _measure(test, device, sabotage, threads, targets, scratch)
    )


def _as_result(task: isolate.Task, ending: isolate.Ending) -> dict[str, Any]:
    value = ending.value or {}
    return {
        "name": task.name,
        "device": task.device,
        "ended": ending.ended,
        "detail": ending.detail or value.get("detail", ""),
        "signal": ending.signal,
        "measures": value.get("measures", {}),
        "seconds": ending.seconds,
        "stderr_tail": ending.stderr_tail,
    }


def _warm_parent(say: Callable[[Any], None], lanes: list[list[isolate.Task]], deadline: float) -> None:
    """Imports torch, then forks the tests; says what it imported and every test's end."""
    started = time.monotonic()
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise isolate.Unfit("there is no torch in this Python") from None
        raise
    faulthandler.cancel_dump_traceback_later()  # its thread must be gone before anything is forked
    say({"torch": str(torch.__version__), "import_s": round(time.monotonic() - started, 3)})

    def before(_: isolate.Task) -> None:
        if torch.cuda.is_initialized():
            say({"cuda_before_fork": True})

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        say({"test": _as_result(task, ending)})

    isolate.run(lanes, max(1.0, deadline - time.monotonic()), done, before)
    say({"cuda_before_fork": bool(torch.cuda.is_initialized())})


def _target(text: str) -> str:
    """An architecture as "sm_90", from "90"."""
    if not re.fullmatch(r"[0-9]{2,3}", text):
        raise argparse.ArgumentTypeError(f"`{text}` is no compute capability: expected a form like 90")
    return "sm_" + text


def _scratch() -> str:
    """A folder for the whole run, empty where none can be made: what needs it says so itself."""
    try:
        return tempfile.mkdtemp(prefix="envkit-smoke-")
    except OSError:
        return ""


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="smoke", description="whether the kernels of this Python compute right")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[test.name for test in TESTS])
    parser.add_argument("--device", choices=("all", "cpu", "cuda"), default="all")
    parser.add_argument("--seconds", type=float, default=300.0, help="for the whole run (default 300)")
    parser.add_argument("--test-seconds", type=float, default=60.0, help="for one test (default 60)")
    parser.add_argument("--import-seconds", type=float, default=_IMPORT_S, help="for importing torch (default 120)")
    parser.add_argument(
        "--sm", action="append", default=[], type=_target, metavar="NN", help="a GPU that kernels are compiled for"
    )
    parser.add_argument("--sabotage", nargs="?", const="ulp", default="", choices=("", *SABOTAGE))
    return parser.parse_args(argv)


def _find_gpus() -> dict[str, Any]:
    """The GPUs as a child sees them, since asking initialises the driver; ``error`` when it could not tell."""
    from envkit.payload.smoke import driver

    found: list[dict[str, Any]] = []

    def done(_: isolate.Task, ending: isolate.Ending) -> None:
        lost = " ".join(filter(None, (ending.ended, ending.signal, ending.detail)))
        found.append(ending.value if ending.ended == "ran" else {"gpus": None, "error": lost})

    isolate.run([[isolate.Task("devices", "", _DEVICES_S, lambda _: driver.gpus())]], _DEVICES_S, done)
    return found[0]


class _Report:
    """The document as it grows; each end is told on stderr as it comes."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {"torch": None, "torch_error": "", "import_s": None, "cuda_before_fork": None}
        self.tests: list[dict[str, Any]] = []

    def add(self, result: dict[str, Any]) -> None:
        self.tests.append(result)
        words = (result["name"], result["device"], result["ended"], result["signal"], f"{result['seconds']:.1f} s")
        sys.stderr.write(" ".join(filter(None, words)) + "\n")
        sys.stderr.flush()

    def heard(self, said: dict[str, Any]) -> None:
        """Takes one document of the parent with torch."""
        if "test" in said:
            self.add(said["test"])
        elif "cuda_before_fork" in said:  # once seen, it stays
            self.document["cuda_before_fork"] = bool(self.document["cuda_before_fork"]) or said["cuda_before_fork"]
        else:
            self.document.update(said)


def main(argv: list[str]) -> dict[str, Any]:
    """Runs the suite as ``argv`` asks; returns its document, in which every test asked for has an end."""
    asked = _arguments(argv)
    scratch = _scratch()
    try:
        return _run(asked, scratch)
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _run(asked: argparse.Namespace, scratch: str) -> dict[str, Any]:
    started = time.monotonic()
    report = _Report()
    found = _find_gpus()
    gpus = found["gpus"]
    lanes: dict[str, list[isolate.Task]] = {}
    beside: dict[str, list[isolate.Task]] = {}
    devices = [] if asked.device == "cuda" else ["cpu"]
    if asked.device != "cpu":
        devices += [f"cuda:{index}" for index in range(len(gpus or []))] or [_NO_CUDA]
    threads = max(1, _cores() // len(devices))
    for device in devices:
        for test in TESTS:
            if (asked.only and test.name not in asked.only) or not (test.cpu if device == "cpu" else test.gpu):
                continue
            task = _task(test, device, asked, threads, scratch)
            if device != _NO_CUDA:
                lane = f"{device} {test.name}" if test.builds else device
                (lanes if test.start == "fork" else beside).setdefault(lane, []).append(task)
            elif gpus is None:  # something claims to be a GPU and cannot be asked: that is a fault, not an absence
                lost = f"the driver could not be asked: {found['error']}"
                report.add(_as_result(task, isolate.Ending("raised", lost)))
            elif not test.cpu or asked.device == "cuda":
                report.add(_as_result(task, isolate.Ending("unfit", f"there is no GPU: {found['reason']}")))

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        if task.name:
            report.add(_as_result(task, ending))
            return
        if ending.ended != "ran":
            lost = " ".join(filter(None, (ending.ended, ending.signal, ending.detail)))
            report.document["torch_error"] = lost
            where = "import torch" if report.document["torch"] is None else "the parent of the tests"
            reported = {(test["name"], test["device"]) for test in report.tests}
            for lane in lanes.values():
                for test in lane:
                    if (test.name, test.device) not in reported:
                        report.add(_as_result(test, ending._replace(detail=f"{where}: {ending.detail or lost}")))

    deadline = started + asked.seconds
    together = list(beside.values())
    if lanes:
        forked = list(lanes.values())
        warm = isolate.Task(
            "",
            "",
            asked.import_seconds,
            lambda say: _warm_parent(say, forked, deadline - _MARGIN_S),
            heard=report.heard,
        )
        together.insert(0, [warm])
    isolate.run(together, max(1.0, deadline - time.monotonic()), done)
    order = [test.name for test in TESTS]
    return {
        **report.document,
        "python": ".".join(map(str, sys.version_info[:3])),
        "gpus": gpus,
        "gpus_error": found.get("error", ""),
        "sabotage": asked.sabotage,
        "seconds": round(time.monotonic() - started, 3),
        "tests": sorted(report.tests, key=lambda test: (order.index(test["name"]), test["device"])),
    }
