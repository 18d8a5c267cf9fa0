"""How long envkit takes and how much memory it needs, against budgets.

    python benchmarks/run.py [--runs N] [--json FILE] [--only WORD]

Each thing is measured N times (ten by default) after one run that is not counted; the median stands for it.  The exit
code is 0 when every median is within its budget, 1 when one is not, 2 when envkit itself failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import shapes

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "images" / "torch-2.6-cu124"
ENVKIT = [sys.executable, "-m", "envkit"]


class Failed(Exception):
    """What was to be measured did not do its work; a time of it would say nothing."""


@dataclass(frozen=True)
class Measure:
    """One thing measured: the median, least and most of ``runs`` values, in ``unit``; ``budget`` None is no limit."""

    name: str
    unit: str
    median: float
    least: float
    most: float
    runs: int
    budget: float | None

    @property
    def kept(self) -> bool:
        """Whether the median is within the budget."""
        return self.budget is None or self.median <= self.budget


def measure(name: str, unit: str, values: list[float], budget: float | None) -> Measure:
    """The measure of ``values``."""
    return Measure(name, unit, statistics.median(values), min(values), max(values), len(values), budget)


def timed(argv: list[str], codes: tuple[int, ...] = (0,), env: dict[str, str] | None = None) -> tuple[float, float]:
    """Runs ``argv`` and gives its wall time in seconds and the most memory of its largest process in MiB.

    Raises Failed when it ends with another exit code than ``codes``.
    """
    with tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            err.seek(0)
            tail = err.read().decode("utf-8", "replace")[-500:]
            raise Failed(f"{' '.join(argv)} ended with {process.returncode}: {tail}")
    return seconds, usage.ru_maxrss / 1024


T = TypeVar("T")


def repeated(work: Callable[[], T], runs: int) -> list[T]:
    """The values of ``runs`` calls; one call before them warms the caches of the disk and is left out."""
    work()
    return [work() for _ in range(runs)]


def commands(runs: int) -> Iterator[Measure]:
    """Verbs from the start of the interpreter to the exit code."""
    yield measure("envkit --help", "s", repeated(lambda: timed([*ENVKIT, "--help"])[0], runs), 0.15)
    render = [*ENVKIT, "render", str(REFERENCE), "-o", "-"]
    yield measure("envkit render -o -", "s", repeated(lambda: timed(render)[0], runs), 0.4)
    doctor = [*ENVKIT, "doctor", "--format", "json"]
    both = repeated(lambda: timed(doctor, codes=(0, 1, 3)), runs)
    yield measure("envkit doctor", "s", [seconds for seconds, _ in both], 0.5)
    yield measure("envkit doctor, largest process", "MiB", [memory for _, memory in both], 80.0)
    yield from guarding(runs)


def guarding(runs: int) -> Iterator[Measure]:
    """What an image's guard adds to its command, over a stand-in for a driver of eight GPUs; needs a C compiler."""
    if not shutil.which("cc"):
        print("the guard is not measured: there is no C compiler for the driver's stand-in", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as folder:
        library = Path(folder, "libcuda.so.1")
        timed(["cc", "-shared", "-fPIC", "-o", str(library), str(ROOT / "tests" / "faults" / "contexts.c")])
        env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": folder, "STANDIN_DEVICES": "8", "ENVKIT_GPUS": "8"}
        guard = [sys.executable, "-I", "-S", str(ROOT / "envkit" / "payload" / "guard.py"), "--", "true"]
        yield measure("the guard of an image", "s", repeated(lambda: timed(guard, env=env)[0], runs), 0.5)


def inside(runs: int) -> Iterator[Measure]:
    """Parts of envkit in a process that has imported them, in milliseconds."""
    from envkit.build.render import dockerfile
    from envkit.errors import Unsatisfiable
    from envkit.facts import Facts
    from envkit.facts import load as load_facts
    from envkit.plan.lockfile import dump, parse
    from envkit.plan.resolve import resolve
    from envkit.plan.spec import Spec
    from envkit.plan.spec import load as load_spec
    from envkit.plan.spec import parse as parse_spec

    def clock(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1e3

    def all_facts() -> None:
        facts = Facts()
        for table in ("torches", "cudas", "archs", "gpus", "drivers", "cudnns", "images", "oses", "ngcs", "tools"):
            if not getattr(facts, table):
                raise Failed(f"the table {table} is empty")

    def common_facts() -> None:
        facts = Facts()
        if not (facts.torches and facts.cudas and facts.gpus and facts.oses):
            raise Failed("a table is empty")

    yield measure("load the common facts", "ms", repeated(lambda: clock(common_facts), runs), 15.0)
    yield measure("load all facts", "ms", repeated(lambda: clock(all_facts), runs), 50.0)
    facts, spec = load_facts(), load_spec(REFERENCE)
    yield measure("resolve, granted", "ms", repeated(lambda: clock(lambda: resolve(spec, facts)), runs), 50.0)
    nvidia = 'base = "nvidia"\nos = "ubuntu22.04"\nflavor = "devel"\ntag = "12.4.0-cudnn-devel-ubuntu22.04"\n'
    refusals = {
        "resolve, refused for CUDA": 'python = "3.11"\ncuda = "12.1"\n',
        "resolve, refused for a GPU": 'python = "3.11"\ngpus = ["V100", "T4", "H100", "RTX 5090"]\n',
        "resolve, refused for a tag": 'python = "3.10"\n' + nvidia,
    }

    def refuse(impossible: Spec) -> None:
        try:
            resolve(impossible, facts)
        except Unsatisfiable:
            return
        raise Failed("a spec that must be refused was granted")

    for name, text in refusals.items():
        impossible = parse_spec('torch = "2.6.0"\n' + text, REFERENCE / "envkit.toml")
        yield measure(name, "ms", repeated(partial(clock, partial(refuse, impossible)), runs), 50.0)
    text = (REFERENCE / "envkit.lock").read_text()
    lock = parse(text, "envkit.lock")
    yield measure("read and write a lock", "ms", repeated(lambda: clock(lambda: dump(parse(text, "x"))), runs), 20.0)
    yield measure("render, warm", "ms", repeated(lambda: clock(lambda: dockerfile(lock)), runs), 20.0)


def proving(runs: int) -> Iterator[Measure]:
    """The probe beside a bare ``import torch`` in one container after the other, and the audit of the same image.

    Needs the engine and the reference image, which ``envkit build images/torch-2.6-cu124`` makes.
    """
    from envkit.runner import pack

    image = f"envkit/{REFERENCE.name}:latest"
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder, "envkit.pyz")
        payload.write_bytes(pack.pack())
        inside = ["docker", "run", "--rm", "--network", "none", "-v", f"{payload}:/envkit.pyz:ro", image, "python3"]
        bare = ["docker", "run", "--rm", "--network", "none", image, "true"]
        levels = {"none": 1.15, "quick": 1.4}
        asked = {"bare": ["-c", "import torch"]}
        asked |= {level: ["/envkit.pyz", "probe", "--abilities", level] for level in levels}
        ratios: dict[str, list[float]] = {level: [] for level in levels}
        for _ in range(runs + 1):  # one after the other, so that what else the machine does falls on all
            empty = timed(bare)[0]
            took = {name: timed([*inside, *words])[0] - empty for name, words in asked.items()}
            for level, found in ratios.items():
                found.append(took[level] / took["bare"])
        for level, budget in levels.items():
            yield measure(f"probe --abilities {level}, import torch alone = 1", "x", ratios[level][1:], budget)
        static = [timed([*inside, "/envkit.pyz", "probe", "--static"])[0] - timed(bare)[0] for _ in range(runs + 1)]
        yield measure("probe --static", "s", static[1:], 1.0)
    audit = [*ENVKIT, "audit", image, "--format", "json"]
    both = repeated(lambda: timed(audit, codes=(0, 1)), runs)
    yield measure("envkit audit", "s", [seconds for seconds, _ in both], 3.0)
    yield measure("envkit audit, largest process", "MiB", [memory for _, memory in both], 500.0)


def cost_of(argv: list[str], cwd: Path) -> tuple[float, float]:
    """The wall and the processor time of ``argv`` with its children, in seconds; Failed unless it exits with 0."""
    started = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{' '.join(argv)} ended with {process.returncode}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def running(runs: int) -> Iterator[Measure]:
    """``envkit run -- true`` and the line that it prints, by turns: what envkit adds, with the passive preflight and
    without.  Needs the engine and the image of the spec in ENVKIT_RUN_SPEC, by default the reference."""
    folder = Path(os.environ.get("ENVKIT_RUN_SPEC") or REFERENCE).resolve()
    words = ["run", ".", "--quiet", "--gpus", "none"]
    made = subprocess.run([*ENVKIT, *words, "--print", "--", "true"], cwd=folder, capture_output=True, text=True)
    if made.returncode:
        raise Failed(f"envkit run --print ended with {made.returncode}: {made.stderr[-400:]}")
    ways = {
        "run": [*ENVKIT, *words, "--", "true"],
        "without preflight": [*ENVKIT, *words, "--no-preflight", "--", "true"],
    }
    added: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(runs + 1):  # one after the other, so that what else the machine does falls on all
        line = cost_of(shlex.split(made.stdout), folder)
        for name, argv in ways.items():
            took = cost_of(argv, folder)
            added[name].append((took[0] - line[0], took[1] - line[1]))
    for name, budget in (("run", 0.4), ("without preflight", None)):
        yield measure(f"envkit {name}, over its line", "s", [wall for wall, _ in added[name][1:]], budget)
        yield measure(f"envkit {name}, processor", "s", [used for _, used in added[name][1:]], None)


def smoking(runs: int) -> Iterator[Measure]:
    """The smoke suite in an image, from its start to the exit code, and the parent that its tests are forked from.

    The image is the reference, or what ENVKIT_SMOKE_IMAGE names.  The budgets hold where there is a GPU; without one
    the time is that of this machine's processors.  Needs the engine and the image.
    """
    image = os.environ.get("ENVKIT_SMOKE_IMAGE") or f"envkit/{REFERENCE.name}:latest"
    gpu = os.path.exists("/dev/nvidiactl")
    memory: list[float] = []
    for level, budget in (("quick", 15.0), ("full", 140.0)):
        argv = [*ENVKIT, "smoke", image, "--level", level, "--format", "json", "--observed"]
        seconds = []
        for _ in range(runs):  # the first is from cold, and counts
            started = time.perf_counter()
            done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
            seconds.append(time.perf_counter() - started)
            if done.returncode != 0:
                raise Failed(f"envkit smoke --level {level} ended with {done.returncode}: {done.stderr[-400:]}")
            memory.append(json.loads(done.stdout)["observed"]["parent_kb"]["value"] / 1024)
        yield measure(f"envkit smoke --level {level}", "s", seconds, budget if gpu else None)
    yield measure("the parent of the tests", "MiB", memory, 1536.0)


# A project as large as they come: some 150 wheels beside those of torch.
LARGE = (
    "accelerate", "boto3", "datasets", "fastapi[standard]", "gradio", "jupyterlab", "lightning",
    "matplotlib", "mlflow", "peft", "pytest", "scikit-learn", "tensorboard", "transformers", "trl", "wandb",
)  # fmt: skip


def locking(runs: int) -> Iterator[Measure]:
    """``envkit lock``, the same again with a lock that answers, and uv alone on the same requirements, by turns, with
    warm caches: for torch alone and for a large project; nothing where no index is in reach."""
    reference = (REFERENCE / "envkit.toml").read_text()
    large = f'torch = "2.6.0"\npython = "3.11"\npackages = {json.dumps(LARGE)}\n'
    for what, text, most in (("torch", reference, 1.2), ("150 packages", large, 1.5)):
        try:
            yield from _locking(what, text, runs, most)
        except Failed as error:
            print(f"locking {what} is not measured: {str(error)[-200:].strip()}", file=sys.stderr)


def _locking(what: str, text: str, runs: int, most: float) -> Iterator[Measure]:
    """``locking`` of one spec, which is to take at most ``most`` times as long as uv alone."""
    from envkit.facts import load as load_facts
    from envkit.plan.lockfile import parse as parse_lock
    from envkit.plan.resolve import resolve
    from envkit.plan.spec import load as load_spec
    from envkit.plan.wheels import platform_tag
    from envkit.system.proc import uv_path

    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as scratch:
        folder = Path(scratch, REFERENCE.name)
        folder.mkdir()
        (folder / "envkit.toml").write_text(text)
        spec = load_spec(folder)
        choice = resolve(spec, load_facts())
        wish, locked = Path(scratch, "wish.in"), Path(scratch, "locked.txt")
        # All that the lock holds: what the three flavors need beside the runtime too.
        asked = [*choice.requirements, *(line for lines in choice.extras.wheels.values() for line in lines)]
        wish.write_text("".join(line + "\n" for line in asked))
        uv = [
            uv_path(), "pip", "compile", "--generate-hashes", "--quiet", "--no-config", "--no-header",
            "--only-binary", ":all:",
            "--python", sys.executable, "--python-version", str(spec.python),
            "--python-platform", platform_tag(spec.platform.machine, choice.glibc),
            "--output-file", str(locked), str(wish),
        ]  # fmt: skip
        lock = [*ENVKIT, "lock", str(folder)]
        resolved = folder / "envkit.lock"
        # As of an installed envkit, which has its modules compiled.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

        def processors(argv: list[str]) -> tuple[float, float]:
            """The wall time of ``argv`` and the processor time of it and of all that it waited for, in seconds."""
            before = os.times()
            seconds, _ = timed(argv, env=env)
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            return seconds, spent

        def once() -> tuple[tuple[float, float], ...]:
            resolved.unlink(missing_ok=True)
            locked.unlink(missing_ok=True)  # of an answer that is there uv takes the versions first, and is sooner done
            return processors(uv), processors(lock), processors(lock)

        runs_of = dict(zip(("uv", "lock", "again"), zip(*repeated(once, runs), strict=True), strict=True))
        wheels = len(parse_lock(resolved.read_text(), str(resolved)).wheels)
    names = {
        "uv": f"uv alone, {what}",
        "lock": f"envkit lock, {what} ({wheels} wheels)",
        "again": f"envkit lock again, {what}",
    }
    # by turns, for the index answers faster in one minute than in the next
    walls, works = ({name: [pair[at] for pair in pairs] for name, pairs in runs_of.items()} for at in (0, 1))
    for name, shown in names.items():
        yield measure(shown, "s", walls[name], 1.0 if name == "again" else None)
        yield measure(f"{shown}, processor time", "s", works[name], None)
    for kind, by_name, budget in (("", walls, most), (", processor time", works, None)):
        times = statistics.median(by_name["lock"]) / statistics.median(by_name["uv"])
        yield Measure(f"envkit lock, {what}: times uv alone{kind}", "x", times, times, times, runs, budget)


BASES = (
    "nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04",
    "nvidia/cuda:${CUDA}-runtime-ubuntu22.04",
    "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel",
    "nvcr.io/nvidia/pytorch:24.05-py3",
    "python:3.11-slim-bookworm",
    "continuumio/miniconda3:24.1.2-0",
    "ubuntu:22.04",
)
INSTALLS = (
    "RUN pip install torch==2.1.0 torchvision==0.16.0 --index-url https://download.pytorch.org/whl/cu118",
    "RUN pip3 install --no-cache-dir 'torch>=2.0' transformers accelerate && rm -rf ~/.cache",
    "COPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt --extra-index-url https://x.example/cu121",
    "RUN conda create -n train python=3.10 pytorch=2.1.0 pytorch-cuda=11.8 -c pytorch \\\n    && conda clean -afy",
    "RUN curl -LsSf https://astral.sh/uv/install.sh | sh && uv venv && uv pip install torch==2.4.0",
    "RUN git clone https://github.com/NVIDIA/apex && cd apex \\\n    && TORCH_CUDA_ARCH_LIST=8.0 pip install -v .",
    "RUN cmake -S /src -B /build -DCMAKE_CUDA_ARCHITECTURES=80 && cmake --build /build -j$(nproc)",
)
PACKAGES = (
    "build-essential",
    "git",
    "wget",
    "libgl1",
    "ffmpeg",
    "ninja-build",
    "python3-pip",
    "libcudnn8",
    "ca-certificates",
)


def dockerfiles(folder: Path, count: int) -> None:
    """Writes ``count`` Dockerfiles of some sixty lines, each of its own, ours among them, with their requirements."""
    ours = sorted((ROOT / "images").glob("*/Dockerfile"))
    for number in range(count):
        place = folder / f"{number:03}"
        place.mkdir()
        if number < len(ours):
            shutil.copy(ours[number], place)
            continue
        lines = ["ARG CUDA=12.1.1", f"FROM {BASES[number % len(BASES)]} AS build", f"LABEL number={number}"]
        lines += ["ENV DEBIAN_FRONTEND=noninteractive \\", "    PATH=/opt/venv/bin:${PATH}", "# what the sources need"]
        lines += ["RUN apt-get update && apt-get install -y --no-install-recommends \\"]
        lines += [f"    {name} \\" for name in PACKAGES[: 3 + number % 7]] + ["    && rm -rf /var/lib/apt/lists/*"]
        for step in range(6):
            lines += ["", f"# step {step} of file {number}", INSTALLS[(number // len(BASES) + step) % len(INSTALLS)]]
            lines += [f"ENV STEP_{step}=${{NUMBER:-{number}}}", "WORKDIR /app", f"COPY src{step}/ ./src{step}/"]
        lines += ["FROM build", "RUN <<EOF", "set -e", 'for name in a b c; do echo "$name"; done', "EOF"]
        lines += ["HEALTHCHECK CMD nvidia-smi || exit 1", 'CMD ["python", "train.py"]', ""]
        (place / "Dockerfile").write_text("\n".join(lines))
        (place / "requirements.txt").write_text(
            f"torch==2.{1 + number % 5}.0\nnumpy<2\ntransformers>=4.{number % 40}\n"
        )


def checking(runs: int) -> Iterator[Measure]:
    """``envkit check`` of 200 Dockerfiles in one call and of one file, from cold, on two cores; beside it hadolint."""
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as scratch:
        folder = Path(scratch)
        dockerfiles(folder, 200)
        names = [str(path) for path in sorted(folder.glob("*/Dockerfile"))]
        check = [*ENVKIT, "check"]
        codes = (0, 1, 3)
        # An installed envkit has its bytecode.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        try:
            os.sched_setaffinity(0, sorted(cores)[:2])
            one = repeated(lambda: timed([*check, names[100]], codes, env)[0], runs)
            yield measure("envkit check, one file", "s", one, 0.35)
            yield measure(
                "envkit check, 200 files", "s", repeated(lambda: timed([*check, *names], codes, env)[0], runs), 1.5
            )
            memory = [timed([*check, *names], codes, env)[1] for _ in range(runs)]
            yield measure("envkit check, largest process", "MiB", memory, 200.0)
            beside = Path(sys.executable).with_name("hadolint")
            if not beside.exists():
                print("hadolint is not here, so that nothing is measured beside it", file=sys.stderr)
                return
            yield measure(
                "hadolint, one file", "s", repeated(lambda: timed([str(beside), names[100]], codes)[0], runs), None
            )
            many = repeated(lambda: timed([str(beside), *names], codes)[0], runs)
            yield measure("hadolint, 200 files", "s", many, None)
        finally:
            os.sched_setaffinity(0, cores)


LOG_SIZE, SHAPE_SIZE = 200_000_000, 100_000_000  # bytes
RANKS = 10_000
LOG_WORDS = (
    "loss", "step", "epoch", "grad_norm", "tokens", "per", "second", "batch", "data", "model", "layer", "attention",
    "checkpoint", "saving", "loaded", "from", "shard", "worker", "rank", "throughput", "samples", "memory", "allocated",
    "reserved", "time", "elapsed", "eta", "validation", "accuracy", "perplexity",
)  # fmt: skip


def big_log(path: Path, size: int) -> None:
    """Writes the log of a training run: metrics, talk of NCCL, progress bars, requests with ids of their own, free
    words; two floods of one warning each; and near the end the error that it died of."""
    chance = random.Random(1)
    written, number, died = 0, 0, False
    with path.open("w") as out:
        while written < size:
            number += 1
            kind = number % 100
            rank, second = number % 8, number % 60
            day, hour, minute = 1 + number // 900_000, number // 3600 % 24, number // 60 % 60
            time_of = f"2026-03-0{day} {hour:02d}:{minute:02d}:{second:02d},1"
            if not died and written > 0.9 * size:
                died = True
                line = (
                    f"[rank{rank}]: Traceback (most recent call last):\n"
                    f'[rank{rank}]:   File "/app/train.py", line 12, in <module>\n'
                    f"[rank{rank}]: RuntimeError: CUDA error: an illegal memory access was encountered"
                )
            elif kind < 45:
                line = f"{time_of} - trainer - INFO - step {number} loss {chance.random():.4f} lr {chance.random():.3e}"
            elif kind < 60:
                line = f"node{rank}:30{rank}:40{rank} [{rank}] NCCL INFO Chan {second:02d}/0 : {rank}[{rank}] over P2P"
            elif kind < 75:
                done = "#" * (number % 30)
                line = f"Epoch 3: {kind}%|{done:<30}| {second}/60 [00:{second:02d}<00:10, {chance.random():.2f}it/s]"
            elif kind < 85:
                name = f"{chance.getrandbits(96):x}"
                line = f"(Worker pid={rank}) INFO 03-01 12:00:{second:02d} [engine.py:12] id {name} done"
            elif kind < 96:
                line = f"[rank{rank}]: " + " ".join(chance.choices(LOG_WORDS, k=12))
            elif kind < 98:
                line = f"{time_of} - trainer - WARNING - request {number} failed, it is tried again"
            else:
                line = f"{time_of} - loader - WARNING - socket.timeout: timed out"
            written += out.write(line + "\n")


def used(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """The processor time of an `envkit explain` that finds the cause, in seconds, and its memory in MiB."""
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 1:
        raise Failed(f"{' '.join(argv)[:200]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def reading_logs(runs: int) -> Iterator[Measure]:
    """``envkit explain`` of a log of 200 MB, and of one of 30 lines, from cold."""
    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as scratch:
        big, small = Path(scratch) / "big.log", Path(scratch) / "small.log"
        big_log(big, LOG_SIZE)
        big_log(small, 3000)
        explain = [*ENVKIT, "explain"]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        few = repeated(lambda: timed([*explain, str(small)], (1,), env)[0], runs)
        yield measure("envkit explain, 30 lines", "s", few, 1.0)
        timed([*explain, str(big)], (1,), env)
        both = [timed([*explain, str(big)], (1,), env) for _ in range(runs)]
        yield measure("envkit explain, 200 MB", "s", [seconds for seconds, _ in both], 10.0)
        yield measure("envkit explain, 200 MB, memory", "MiB", [memory for _, memory in both], 200.0)


def reading_shapes(runs: int) -> Iterator[Measure]:
    """``envkit explain`` of each shape and of many ranks: the least processor time of three at most, and memory."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    explain = [*ENVKIT, "explain"]
    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as scratch:
        log = Path(scratch) / "shape.log"
        for shape in shapes.SHAPES:
            shapes.write(log, shape, SHAPE_SIZE)
            spent, memory = zip(*(used([*explain, str(log)], env) for _ in range(min(runs, 3))), strict=True)
            yield measure(f"100 MB of {shape}", "s", [min(spent)], 5.0)
            yield measure(f"100 MB of {shape}, memory", "MiB", list(memory), 120.0)
        log.unlink()
        shapes.write_ranks(Path(scratch), RANKS)
        logs = [str(path) for path in Path(scratch).glob("rank*.log")]
        one, memory_of = used([*explain, *logs], env)
        yield measure(f"{RANKS} ranks", "s", [one], 30.0)
        yield measure(f"{RANKS} ranks, memory", "MiB", [memory_of], None)


PLAIN = """\
ARG BASE
FROM ${BASE} AS base
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*
FROM base
RUN --mount=type=secret,id=ca,required=false if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \\
    && python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir torch==2.6.0 numpy
"""


def building(runs: int) -> Iterator[Measure]:
    """The reference image against a plain ``pip install`` on the same base in the same run, cold, by turns; and a warm
    build after a change of the spec's packages.  Needs the Docker engine, a package index and 30 GB; takes minutes.

    The plain build gets its Python, and the downloads of it, for nothing: that stage is built before and kept.
    """
    if shutil.which("docker") is None:
        print("building is not measured: there is no docker client", file=sys.stderr)
        return
    from envkit.engine import buildx
    from envkit.engine.choice import connect
    from envkit.plan.lockfile import load as load_lock
    from envkit.plan.spec import load as load_spec
    from envkit.plan.update import base_request

    def quiet(line: str) -> None:
        pass

    def size(image: str) -> float:
        out = subprocess.run(
            ["docker", "image", "inspect", "--format", "{{.Size}}", image], capture_output=True, text=True
        )
        return int(out.stdout) / 1e9

    def prune() -> None:
        subprocess.run(["docker", "builder", "prune", "--all", "--force"], capture_output=True, check=True)

    def forget() -> None:
        prune()
        # For a minute ext4 passes over the inodes of what was removed (fs/ext4/ialloc.c, recently_deleted), one by one
        # for each new file, and what was written is still on its way to the disk: neither build pays for the other.
        os.sync()
        time.sleep(65)

    with tempfile.TemporaryDirectory(prefix="envkit-bench-") as scratch:
        folder = Path(scratch, REFERENCE.name)
        shutil.copytree(REFERENCE, folder)
        timed([*ENVKIT, "lock", "--refresh-os", str(folder)])
        lock = load_lock(load_spec(folder))
        assert lock is not None
        base = connect("docker", quiet).resolve_base(base_request(lock), quiet)
        context = Path(scratch, "plain")
        context.mkdir()
        (context / "Dockerfile").write_text(PLAIN)
        ca = buildx.ca_bundle(os.environ)
        docker = ["docker", "buildx", "build", "--load", f"--build-arg=BASE={base.ref}", str(context)]
        docker += [f"--secret=id=ca,src={ca}"] if ca else []
        build = [*ENVKIT, "build", str(folder), "--tag", "envkit-bench:own"]
        plains: list[float] = []
        owns: list[float] = []
        try:
            for _ in range(runs):
                forget()
                timed([*docker, "--target=base", "--tag=envkit-bench:base"])
                plains.append(timed([*docker, "--no-cache-filter=stage-1", "--tag=envkit-bench:plain"])[0])
                held = size("envkit-bench:plain")
                subprocess.run(
                    ["docker", "rmi", "envkit-bench:plain", "envkit-bench:base"], capture_output=True, check=True
                )
                subprocess.run(["docker", "rmi", "envkit-bench:own"], capture_output=True)
                forget()
                owns.append(timed([*build, "--no-cache"])[0])
            spec = folder / "envkit.toml"
            text = spec.read_text()
            spec.write_text(text.replace('packages = ["numpy"', 'packages = ["einops", "numpy"'))
            timed([*ENVKIT, "lock", str(folder)])
            warm = timed(build)[0]
            own = size("envkit-bench:own")
        finally:
            for name in ("own", "plain", "base"):
                subprocess.run(["docker", "rmi", f"envkit-bench:{name}"], capture_output=True)
            prune()
    plain, cold = measure("plain build, cold", "s", plains, None), measure("envkit build, cold", "s", owns, None)
    yield plain
    yield cold
    ratio = cold.median / plain.median
    yield Measure("envkit build, times plain", "x", ratio, ratio, ratio, runs, 0.3)
    yield Measure("envkit build, a package added", "s", warm, warm, warm, 1, 3.0)
    yield Measure("plain image", "GB", held, held, held, 1, None)
    yield Measure("envkit image", "GB", own, own, own, 1, None)
    yield Measure("envkit image, times plain", "x", own / held, own / held, own / held, 1, 0.9)


FLEET = 10_000  # nodes of a run


def fleet_run(folder: Path, nodes: int) -> None:
    """A run of equal machines as they answer at the level passive, a node in a hundred with another driver."""
    from dataclasses import replace

    import msgspec

    sys.path.insert(0, str(ROOT / "tests"))
    import fleet  # the tests' own healthy documents

    hosts = tuple(f"n{number}" for number in range(1, nodes + 1))
    fleet.lay(folder, run=fleet.run(hosts))
    checks = tuple(sorted(path.stem for path in (ROOT / "envkit" / "kb").glob("host-*.md")))[:220]
    good = fleet.body(passed=checks)
    variables = {f"variable NCCL_V{number}": "x" * 30 for number in range(40)}
    good = replace(good, fingerprint={**good.fingerprint, **variables})
    bad = fleet.prints(good, driver="another")
    for number, name in enumerate(hosts):
        given = bad if number % 100 == 50 else good
        made = fleet.document(name, given, attempt=f"{number:016x}")
        (folder / "nodes" / f"{name}.{number:016x}.json").write_bytes(fleet.encoded(made))
        beat = fleet.Beat("envkit.beat/1", "slurm-17.0", fleet.NONCE, name, f"{number:016x}", 1.8e9, 1.8e9, "writing")
        (folder / "beats" / f"{name}.{number:016x}.json").write_bytes(msgspec.json.encode(beat))


def judging_a_fleet(runs: int) -> Iterator[Measure]:
    """`envkit judge` on a run of ten thousand nodes; its processor time, for it only reads and computes."""
    with tempfile.TemporaryDirectory() as folder:
        fleet_run(Path(folder), FLEET)
        spent: list[tuple[float, float]] = []
        for _ in range(min(runs, 3) + 1):
            before = os.times()
            _, most = timed([*ENVKIT, "judge", folder], (1,))
            after = os.times()
            user = after.children_user - before.children_user
            spent.append((user + after.children_system - before.children_system, most))
        yield measure(f"judge {FLEET} nodes, processor", "s", [one for one, _ in spent[1:]], 10.0)
        yield measure(f"judge {FLEET} nodes, memory", "MiB", [most for _, most in spent[1:]], 500.0)


PARTS: dict[str, Callable[[int], Iterator[Measure]]] = {
    "commands": commands,
    "inside": inside,
    "checking": checking,
    "logs": reading_logs,
    "shapes": reading_shapes,
    "fleet": judging_a_fleet,
    "proving": proving,
    "running": running,
    "smoking": smoking,
    "locking": locking,
    "building": building,
}


def line(made: Measure) -> str:
    """One row of the table."""
    budget = "" if made.budget is None else f"{made.budget:g} {made.unit}"
    word = "" if made.budget is None else "kept" if made.kept else "BROKEN"
    numbers = "".join(f"{value:>11.4g}" for value in (made.median, made.least, made.most))
    return f"{made.name:<34}{numbers} {made.unit:<4}{budget:>10}  {word}".rstrip()


def main() -> int:
    """Measures, prints the table, writes the JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="how often each thing is measured (default 10)")
    parser.add_argument("--json", type=Path, help="write the measures to this file as well")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="only this part; may be given again")
    asked = parser.parse_args()
    if asked.runs < 1:
        parser.error("--runs is at least 1")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, median of {asked.runs}")
    print(f"{'':<34}{'median':>11}{'least':>11}{'most':>11} {'':<4}{'budget':>10}")
    made: list[Measure] = []
    # An installed envkit has its byte code; with this variable each start would compile all of its modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        for name, part in PARTS.items():
            if name not in (asked.only or ("commands", "inside", "checking", "logs", "shapes", "fleet", "locking")):
                continue
            for each in part(asked.runs):
                made.append(each)
                print(line(each), flush=True)
    except Failed as error:
        print(f"nothing to measure: {error}", file=sys.stderr)
        return 2
    if asked.json:
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        rows = [{**asdict(each), "kept": each.kept} for each in made]
        asked.json.write_text(json.dumps({**machine, "measures": rows}, indent=1) + "\n")
    return 0 if all(each.kept for each in made) else 1


if __name__ == "__main__":
    sys.exit(main())
