"""The smoke suite: each kernel test in a process of its own, on every GPU or, where there is none, on the CPU.

One parent imports torch once, without touching CUDA, and forks a child for each test; a test that needs a fresh
interpreter or no torch gets one beside it, while torch is still being imported.  Tests of one device follow one
another, devices run side by side.  A test that measures speed has its device alone, by a lock that dies with it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fcntl
import importlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from envkit.payload import isolate, programs
from envkit.payload.smoke import sanitize
from envkit.payload.smoke.bench import Bench, travelling
from envkit.payload.smoke.case import FAULT_KINDS, GPUS, LEVELS, Case, chosen, devices

EXTRA = "extra-"  # how the names of tests from outside begin

_GROUPS = (
    "driver_only", "kernels", "gemm", "libraries", "operators", "runtime", "training", "compilers", "several_gpus",
    "errors", "speed",
)  # fmt: skip
TESTS: tuple[Case, ...] = tuple(
    case._replace(group=group) for group in _GROUPS for case in importlib.import_module(f"{__name__}.{group}").CASES
)
_DEVICES_S = 30.0
_IMPORT_S = 120.0  # a cold import from a slow disk takes over a minute
_MARGIN_S = 8.0  # so that the parent with torch reports before it is itself ended
_NO_CUDA = "cuda"  # the device that a GPU test names where there is none
_SANITIZED = 20.0  # how many times longer a test may take under compute-sanitizer
_THREADS = 4
_MANY = 40  # jobs; the quick tests are fewer, and take less time together than the import
_FIGURES = (".gbs", ".tflops", ".offered")  # of several rounds the least of these counts, of other measures the most


class Job(NamedTuple):
    """One test on one device under at most one injected fault; ``source`` is the file that a test from outside is
    in."""

    case: Case
    device: str
    injected_fault: str = ""
    source: str = ""


class Setting(NamedTuple):
    """What all jobs of a run share."""

    threads: int
    targets: tuple[str, ...]
    scratch: str
    gpus: int
    level: str


@contextlib.contextmanager
def _turn(job: Job, setting: Setting) -> Iterator[float]:
    """Waits until the job may use its device; the seconds that it waited.

    A file for each device is locked, by many tests at once or by one that must be alone.  The kernel undoes the lock
    of a process that dies.
    """
    if job.case.builds:  # it waits for compilers, and touches the device for moments
        yield 0.0
        return
    kind = fcntl.LOCK_EX if job.case.alone or job.case.several else fcntl.LOCK_SH
    names = [f"cuda:{index}" for index in range(setting.gpus)] if job.device == GPUS else [job.device]
    with contextlib.ExitStack() as files:
        started = time.monotonic()
        for name in names if setting.scratch else ():
            path = os.path.join(setting.scratch, "lock-" + name.replace(":", "-"))
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            files.callback(os.close, file)
            fcntl.flock(file, kind)
        yield time.monotonic() - started


def _outside(job: Job, bench: Bench) -> None:
    """Runs a test from outside: a function of a file, or an entry point of the group envkit.smoke."""
    name = job.case.name[len(EXTRA) :]
    if job.source:
        spec = importlib.util.spec_from_file_location("envkit_extra", job.source)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        getattr(module, name)(bench)
        return
    next(point for point in _entry_points() if point.name == name).load()(bench)


def _entry_points() -> Any:
    from importlib.metadata import entry_points

    found: Any = entry_points()
    return found.select(group="envkit.smoke") if hasattr(found, "select") else found.get("envkit.smoke", ())


def _torch() -> Any:
    """torch, imported.  Raises NotApplicable where there is none, and what its import raises."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise isolate.NotApplicable("there is no torch in this Python") from None
        raise


def _measure(job: Job, setting: Setting) -> dict[str, Any]:
    """Runs one test here and now: its measures, its detail, and how long it waited for its device."""
    if job.case.start != "bare":
        _torch().set_num_threads(setting.threads)
    bench = Bench(job.device, job.injected_fault, setting.targets, setting.scratch, setting.gpus, setting.level)
    with _turn(job, setting) as waited_s:
        if job.case.group:
            importlib.import_module(job.case.module).run(bench)
        else:
            _outside(job, bench)
    measures = travelling(bench.measures)
    return {"measures": measures, "detail": bench.detail, "limits": bench.limits, "waited": waited_s}


def alone(words: str, budget: str, fd: str) -> None:
    """What a fresh interpreter does: the one job that ``words`` (JSON) describe, its end sent to the pipe ``fd``."""
    said = json.loads(words)
    job = Job(Case(**{**said["case"], "faults": (), "needs": (), "sanitize": ()}), *said["job"])
    setting = Setting(*said["setting"])
    os.set_inheritable(int(fd), False)
    isolate.perform(lambda _: _measure(job, setting), int(fd), float(budget))


def _task(job: Job, asked: argparse.Namespace, setting: Setting) -> isolate.Task:
    case = job.case
    budget_s = case.seconds + (asked.import_seconds if case.start == "fresh" else 0.0)
    if case.start != "fresh" and not asked.sanitize:
        return isolate.Task(case.name, job.device, budget_s, lambda _: _measure(job, setting), label=job.injected_fault)
    words = {"case": case._asdict(), "job": list(job[1:]), "setting": list(setting)}
    argv = programs.interpreter(__name__, "alone")
    if asked.sanitize:
        budget_s = (case.seconds + asked.import_seconds) * _SANITIZED
        argv = sanitize.command(asked.sanitize, argv, _log(case.name, job.device, setting))
    argv = (*argv, json.dumps(words), str(budget_s))
    return isolate.Task(case.name, job.device, budget_s, argv=argv, label=job.injected_fault)


def _log(name: str, device: str, setting: Setting) -> str:
    """Where compute-sanitizer writes what it found in a test."""
    return os.path.join(setting.scratch, f"sanitizer-{name}-{device.replace(':', '-')}.log")


def _as_result(task: isolate.Task, ending: isolate.Ending) -> dict[str, Any]:
    value = ending.value or {}
    ended = ending.ended
    if ending.cuda:
        ended = "memory" if ending.cuda.startswith("2 ") else "cuda"
    return {
        "name": task.name,
        "device": task.device,
        "injected_fault": task.label,
        "ended": ended,
        "detail": ending.detail or value.get("detail", ""),
        "signal": ending.signal,
        "cuda": ending.cuda,
        "measures": value.get("measures", {}),
        "limits": value.get("limits", {}),
        "seconds": round(ending.seconds - value.get("waited", 0.0), 3),
        "stderr_tail": ending.stderr_tail,
    }


def _warm_parent(
    say: Callable[[Any], None], lanes: list[list[isolate.Task]], deadline: float, stress_s: float, slow: bool
) -> None:
    """Imports torch, then forks the tests, again and again for ``stress_s``; says what it imported and every end.

    ``slow``: the run has tests enough for what only some of them import to be worth its seconds.
    """
    started = time.monotonic()
    torch = _torch()
    if slow:  # checkpoints, optimizers and others import it, each for seconds: here it is done once
        with contextlib.suppress(Exception):  # a test that needs it tells what is wrong with it
            importlib.import_module("torch._dynamo")
    say({"torch": str(torch.__version__), "import_s": round(time.monotonic() - started, 3)})

    def before(_: isolate.Task) -> None:
        if torch.cuda.is_initialized():
            say({"cuda_before_fork": True})

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        say({"test": _as_result(task, ending)})

    stressed = time.monotonic()
    while True:
        isolate.run(lanes, max(1.0, deadline - time.monotonic()), done, before)
        if time.monotonic() - stressed >= stress_s:
            break
    with open("/proc/self/status", encoding="utf-8") as file:
        peak = next((int(line.split()[1]) for line in file if line.startswith("VmHWM:")), 0)
    say({"cuda_before_fork": bool(torch.cuda.is_initialized()), "parent_kb": peak})


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
    names = [test.name for test in TESTS]
    parser = argparse.ArgumentParser(prog="smoke", description="whether the kernels of this Python compute right")
    parser.add_argument("--level", choices=LEVELS, default="quick")
    several: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--only", metavar="NAME", choices=names, **several)
    parser.add_argument("--exclude", metavar="NAME", choices=names, **several)
    parser.add_argument("--test-file", metavar="FILE", help="a file whose smoke_* are tests", **several)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seconds", type=float, default=600.0, help="for the whole run (default 600)")
    parser.add_argument("--stress-seconds", type=float, default=0.0, help="repeat the tests for so long")
    parser.add_argument("--import-seconds", type=float, default=_IMPORT_S, help="for importing torch (default 120)")
    parser.add_argument("--sm", type=_target, metavar="NN", help="a GPU that kernels are compiled for", **several)
    parser.add_argument("--inject-fault", default="", choices=("", "all", *FAULT_KINDS))
    parser.add_argument("--sanitize", default="", choices=("", *sanitize.TOOLS))
    return parser.parse_args(argv)


def _find_gpus() -> dict[str, Any]:
    """The GPUs as a child sees them, since asking initialises the driver; ``error`` when it could not tell."""
    from envkit.payload.smoke import driver

    ending = isolate.run_one(isolate.Task("devices", "", _DEVICES_S, lambda _: driver.gpus()))
    if ending.ended == "ran":
        return dict(ending.value)
    return {"gpus": None, "error": " ".join(filter(None, (ending.ended, ending.signal, ending.detail)))}


def _rounds(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One result of two rounds: the first that did not run, else the worst of each measure."""
    rounds = kept["rounds"] + 1
    if kept["ended"] != "ran" or new["ended"] != "ran":
        first = kept if kept["ended"] != "ran" else {**new, "detail": f"in round {rounds}: {new['detail']}"}
        return {**first, "rounds": rounds, "seconds": kept["seconds"] + new["seconds"]}
    measures = dict(kept["measures"])
    for name, value in new["measures"].items():
        before = measures.get(name, value)
        if isinstance(before, str) or isinstance(value, str):  # no finite number stays none
            measures[name] = before if isinstance(before, str) else value
        else:
            measures[name] = min(before, value) if name.endswith(_FIGURES) else max(before, value)
    return {**kept, "measures": measures, "rounds": rounds, "seconds": round(kept["seconds"] + new["seconds"], 3)}


class _Report:
    """The document as it grows; each end is told on stderr as it comes."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {"torch": None, "torch_error": "", "import_s": None, "cuda_before_fork": None}
        self.tests: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add(self, result: dict[str, Any]) -> None:
        key = (result["name"], result["device"], result["injected_fault"])
        self.tests[key] = _rounds(self.tests[key], result) if key in self.tests else {**result, "rounds": 1}
        if self.tests[key]["rounds"] > 1 and result["ended"] == "ran":
            return
        words = [result[key] for key in ("name", "device", "injected_fault", "ended", "signal", "cuda")]
        sys.stderr.write(" ".join(filter(None, (*words, f"{result['seconds']:.1f} s"))) + "\n")
        sys.stderr.flush()

    def heard(self, said: dict[str, Any]) -> None:
        """Takes one document of the parent with torch."""
        if "test" in said:
            self.add(said["test"])
            return
        if "cuda_before_fork" in said:  # once seen, it stays
            said["cuda_before_fork"] = bool(self.document["cuda_before_fork"]) or said["cuda_before_fork"]
        self.document.update(said)


def main(argv: list[str]) -> dict[str, Any]:
    """Runs the suite as ``argv`` asks; returns its document, in which every test asked for has an end."""
    asked = _arguments(argv)
    # GNU OpenMP's threads spin while they wait.  Where others compute on the same processors, each barrier then costs
    # turns of the scheduler: six runs on 4 cores spent 60 s at what takes 1.5 s with threads that sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    scratch = _scratch()
    try:
        return _run(asked, scratch)
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def extras(files: Sequence[str]) -> list[tuple[Case, str]]:
    """The tests of ``files``, functions named smoke_*, and the entry points, each with its file.

    The files are read, not run: what they do belongs to the tests' own processes.  Raises ValueError for a file without
    such a function, SyntaxError for one that is no Python.
    """
    found = []
    for path in files:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        names = [name for name in functions if name.startswith("smoke_")]
        if not names:
            raise ValueError(f"{path} has no function whose name begins with smoke_")
        found += [(Case(EXTRA + name), path) for name in names]
    return found + [(Case(EXTRA + point.name), "") for point in _entry_points()]


def _jobs(asked: argparse.Namespace, gpus: int | None) -> list[Job]:
    """What there is to do; ``gpus`` is None where the driver is there and could not be asked."""
    cases = [(case, "") for case in chosen(TESTS, asked.level, tuple(asked.only), tuple(asked.exclude))]
    cases += [] if asked.only and not asked.test_file else extras(asked.test_file)
    if asked.sanitize:
        cases = [(case, source) for case, source in cases if asked.sanitize in case.sanitize]
    jobs = []
    for case, source in cases:
        kinds = case.faults if asked.inject_fault else ("",)
        if asked.inject_fault not in ("", "all"):
            kinds = tuple(kind for kind in kinds if kind == asked.inject_fault)
        where = devices(case, gpus or 0)
        if where == ("cpu",) and case.gpu and (gpus is None or asked.device == "cuda"):
            where = (_NO_CUDA,)
        jobs += [Job(case, device, kind, source) for device in where for kind in kinds]
    return jobs


def _run(asked: argparse.Namespace, scratch: str) -> dict[str, Any]:
    started = time.monotonic()
    report = _Report()
    found = {"gpus": [], "reason": "none was given to this run"} if asked.device == "cpu" else _find_gpus()
    gpus = found["gpus"]
    count = len(gpus or ())
    cores = len(os.sched_getaffinity(0))
    # More threads than this gain nothing on the references, and stand in the way of the compilers beside them.
    threads = max(1, min(_THREADS, cores // max(1, count)))
    setting = Setting(threads, tuple(asked.sm), scratch, count, asked.level)
    lanes: dict[str, list[isolate.Task]] = {}
    beside: dict[str, list[isolate.Task]] = {}
    built = itertools.count()
    try:
        jobs = _jobs(asked, None if gpus is None else count)
    except (OSError, ValueError, SyntaxError) as error:
        return {"refused": str(error)}
    # what must be alone comes after what need not, what needs all GPUs at the very end
    for job in sorted(jobs, key=lambda job: (bool(job.case.several), job.case.alone and job.case.start != "bare")):
        case = job.case
        try:
            task = _task(job, asked, setting)
        except isolate.NotApplicable as lacking:
            task = isolate.Task(case.name, job.device, 0.0)
            report.add(_as_result(task, isolate.Ending("not-applicable", str(lacking))))
            continue
        if gpus is None and job.device in (_NO_CUDA, GPUS):
            # something claims to be a GPU and cannot be asked: that is a fault, not an absence
            lost = f"the driver could not be asked: {found['error']}"
            report.add(_as_result(task, isolate.Ending("raised", lost)))
        elif job.device == _NO_CUDA:
            report.add(_as_result(task, isolate.Ending("not-applicable", f"there is no GPU: {found['reason']}")))
        elif asked.sanitize:
            beside.setdefault(job.device, []).append(task)
        else:
            device = "cuda:0" if job.device == GPUS and count else job.device
            # compilers side by side gain nothing beyond one a processor
            lane = f"{device} builds {next(built) % cores}" if case.builds else device
            lane += " beside" * case.beside
            forked = case.start == "fork" or (case.start == "bare" and asked.level == "stress")  # to be repeated
            place = lanes if forked else beside
            if not forked:
                lane += " " + case.start
            place.setdefault(lane, []).append(task)

    def done(task: isolate.Task, ending: isolate.Ending) -> None:
        if task.name:
            result = _as_result(task, ending)
            if asked.sanitize:
                _add_sanitized(result, setting)
            report.add(result)
            return
        if ending.ended != "ran":
            lost = " ".join(filter(None, (ending.ended, ending.signal, ending.detail)))
            report.document["torch_error"] = lost
            where = "import torch" if report.document["torch"] is None else "the parent of the tests"
            for lane in lanes.values():
                for test in lane:
                    if (test.name, test.device, test.label) not in report.tests:
                        report.add(_as_result(test, ending._replace(detail=f"{where}: {ending.detail or lost}")))

    deadline = started + max(asked.seconds, asked.stress_seconds + asked.import_seconds)
    together = list(beside.values())
    if lanes:
        forked, end = list(lanes.values()), deadline - _MARGIN_S

        def warm(say: Callable[[Any], None]) -> None:
            _warm_parent(say, forked, end, asked.stress_seconds, len(jobs) > _MANY)

        together.insert(0, [isolate.Task("", "", asked.import_seconds, warm, heard=report.heard)])
    isolate.run(together, max(1.0, deadline - time.monotonic()), done)
    order = {test.name: number for number, test in enumerate(TESTS)}

    def rank(test: dict[str, Any]) -> tuple[int, str, str, str]:
        return order.get(test["name"], len(order)), test["name"], test["device"], test["injected_fault"]

    return {
        **report.document,
        "python": ".".join(map(str, sys.version_info[:3])),
        "gpus": gpus,
        "gpus_error": found.get("error", ""),
        "injected_fault": asked.inject_fault,
        "seconds": round(time.monotonic() - started, 3),
        "tests": sorted(report.tests.values(), key=rank),
    }


def _add_sanitized(result: dict[str, Any], setting: Setting) -> None:
    """Puts what compute-sanitizer found beside the test's own measures."""
    try:
        with open(_log(result["name"], result["device"], setting), encoding="utf-8", errors="replace") as file:
            found = sanitize.read(file.read())
        said = found.first
        result["measures"] = {**result["measures"], "sanitizer.errors": float(found.errors)}
    except (OSError, ValueError) as error:
        said = f"compute-sanitizer left no log: {error}"
    result["detail"] = "; ".join(filter(None, (result["detail"], said)))
