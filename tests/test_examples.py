"""The examples: locks that answer their specs, code that runs on a CPU, and pages that show what was really printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import debugged
import forked
import pytest
import torches
from clocks import PATIENCE_S
from test_stories import options

from envkit.debug import render, sanitizer
from envkit.engine.docker import DockerEngine
from envkit.plan import lockfile as locks
from envkit.plan.spec import load

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/envkit.toml"))
RECORD = json.loads((Path(__file__).parent / "data" / "gpu" / "h200-torch-2.11-cu130-examples.json").read_text())
NAMES = ("debugging", "gpt", "package", "recurrent", "requirements", "serving", "tuner")
of_each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_there_are_seven_and_each_is_in_the_table() -> None:
    assert tuple(folder.name for folder in FOLDERS) == NAMES
    table = (EXAMPLES / "README.md").read_text()
    assert all(f"]({name}/README.md)" in table for name in NAMES)


@of_each
def test_the_lock_answers_the_spec_and_pins_all_of_it(folder: Path) -> None:
    spec = load(folder)
    lock = locks.read(spec)
    assert lock is not None and locks.problems(spec, lock) == [] and locks.unpinned(lock) == {}
    assert lock.name == folder.name


@of_each
def test_the_page_is_one_screen_and_its_commands_exist(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    assert len(page.splitlines()) <= 66
    commands = re.findall(r"^    envkit (\w+)(.*)$", page, re.M)
    assert {"up", "run"} <= {verb for verb, _ in commands}
    for verb, rest in commands:
        before = rest.partition(" -- ")[0]
        given = {word.partition("=")[0] for word in before.split() if word.startswith("-")}
        assert given <= options(verb), (verb, rest)
        for program in re.findall(r"\b[\w/]+\.(?:py|cu|cpp)\b", rest):
            assert (folder / program).is_file(), program


def printed(kind: str, name: str, tmp_path: Path) -> str:
    """What a block of a page shows: an output, the explanation of one, or a report of `envkit debug`."""
    case: dict[str, Any] = RECORD["runs"][name]
    if kind == "recorded":
        return str(case["output"])
    if kind == "debugged":
        return render.text(debugged.report(case["report"]))
    log = tmp_path / "output.log"
    log.write_text(case["output"])
    return str(forked.envkit("explain", str(log)).stdout)


def shown(page: str) -> Iterator[tuple[str, str, str]]:
    """Each block of a page that a comment claims for a record: how it was made, of which run, and its text."""
    block = r"^<!-- (recorded|explained|debugged): (.+) -->\n\n((?:    .*\n|\n(?=    ))+)"
    for found in re.finditer(block, page, re.M):
        yield found[1], found[2], found[3]


@of_each
def test_what_a_page_shows_is_what_was_printed(folder: Path, tmp_path: Path) -> None:
    page = (folder / "README.md").read_text()
    blocks = list(shown(page))
    assert len(blocks) == page.count("<!-- ") > 0
    for kind, name, block in blocks:
        assert name.startswith(f"{folder.name}/")
        said, at = " ".join(printed(kind, name, tmp_path).split()), 0
        for piece in re.split(r"(?:^|\s)\.\.\.(?:\s|$)", block):
            words = " ".join(piece.split())
            found = said.find(words, at)
            assert found >= 0, (kind, name, words)
            at = found + len(words)


# What envkit makes of the outputs and of the runs under its tools: the kind of failure, and the line at fault.
EXPLAINED = {
    "package/fault": ("tensors-on-different-devices", "device-mixup"),
    "recurrent/fault": ("illegal-memory-access", "gpu-kernel-bug"),
    "tuner/fault": ("misaligned-address", "gpu-kernel-bug"),
}
FOUND = {
    "recurrent/debug": ("wkv.py", "tl.store(dw + at", "illegal-memory-access"),
    "tuner/debug": ("kernel.py", "total += tl.load(at)", "misaligned-address"),
    "debugging/debug": ("histogram.cu", "atomicAdd(bin, 1u)", "illegal-memory-access"),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_an_output_is_explained(name: str, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(RECORD["runs"][name]["output"])
    told = json.loads(forked.envkit("explain", str(log), "--format", "json").stdout)
    assert (told["category"], told["cause_class"]) == EXPLAINED[name]


@pytest.mark.parametrize(
    "name", ["gpt/train", "recurrent/train", "tuner/tune", "serving/load", "requirements/train", "package/run"]
)
def test_nothing_is_explained_of_a_run_that_is_well(name: str, tmp_path: Path) -> None:
    assert RECORD["runs"][name]["exit"] == 0
    log = tmp_path / "output.log"
    log.write_text(RECORD["runs"][name]["output"])
    assert forked.envkit("explain", str(log), "--format", "json").returncode == 3


@pytest.mark.parametrize("name", FOUND)
def test_the_line_at_fault_is_named_from_what_compute_sanitizer_printed(name: str) -> None:
    file, words, category = FOUND[name]
    case = RECORD["runs"][name]
    assert (case["report"]["verdict"], case["report"]["category"]) == ("found", category)
    fault = sanitizer.worst(sanitizer.faults(case["sanitizer"], "memcheck"))
    assert fault is not None and Path(fault.place.file).name == file
    source = (EXAMPLES / name.partition("/")[0] / file).read_text().splitlines()
    assert words in source[fault.place.line - 1]


def test_the_input_of_a_package_is_named() -> None:
    report = RECORD["runs"]["package/debug"]["report"]
    assert (report["verdict"], report["category"]) == ("found", "invalid-argument-device-mismatch")
    assert "input_handles[0]" in report["cause"] and "expected: 11(cuda), but got: 0" in report["cause"]
    checks = next(step for step in report["steps"] if step["stage"] == "package-checks")
    assert checks["ran"] and RECORD["runs"]["package/checked"]["exit"] == 1


def test_the_twin_without_the_bug_is_clean() -> None:
    assert RECORD["runs"]["debugging/debug fixed"]["report"]["verdict"] == "clean"


# On the CPU.


def run(folder: Path, *words: str, code: int = 0, **more: str) -> str:
    """What a program of an example prints, on one processor; its exit code is ``code``."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}
    done = subprocess.run(
        words, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=10 * PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the folder of the example that the test's own name begins with."""
    (name,) = (name for name in NAMES if request.node.name.startswith(f"test_the_{name}_"))
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name))


@torches.needs_torch
def test_the_gpt_learns(copy: Path) -> None:
    small = ("--steps", "30", "--batch", "64", "--width", "32", "--layers", "1", "--no-compile")
    losses = [float(found) for found in re.findall(r"loss ([0-9.]+)", run(copy, torches.PYTHON, "train.py", *small))]
    assert len(losses) == 2 and losses[1] < losses[0]


@pytest.mark.nightly
@torches.needs_torch
def test_the_gpt_on_two_ranks(copy: Path) -> None:
    small = ("--steps", "2", "--batch", "8", "--width", "16", "--layers", "1", "--no-compile")
    said = run(copy, torches.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py",
               *small)  # fmt: skip
    assert "2 process(es) on cpu" in said


SAME = """
import torch, wkv
made = []
for recurrence in (wkv.plain, wkv.wkv):
    torch.manual_seed(0)
    r, k, v = (torch.randn(2, 5, 70, requires_grad=True) for _ in range(3))
    decay = torch.rand(70, requires_grad=True)
    y = recurrence(r, k, v, decay.expand(2, 5, 70))
    (y * torch.linspace(0, 1, 70)).sum().backward()
    made.append([y.detach(), r.grad, k.grad, v.grad, decay.grad])
for one, other in zip(*made):
    torch.testing.assert_close(one, other)
r.requires_grad_(False), decay.requires_grad_(False)
wkv.wkv(r, k, v, decay.expand(2, 5, 70)).sum().backward()
print("the kernels do what plain PyTorch does", wkv.wkv(r, k, v, decay.expand(2, 5, 70)).shape)
"""


@torches.needs_triton
def test_the_recurrent_kernels_do_what_their_twin_does(copy: Path) -> None:
    said = run(copy, torches.PYTHON, "-c", SAME, TRITON_INTERPRET="1", PYTHONPATH=".")
    assert "the kernels do what plain PyTorch does" in said


@pytest.mark.nightly
@torches.needs_triton
def test_the_recurrent_model_trains_frozen_and_unfrozen(copy: Path) -> None:
    small = ("--batch", "2", "--time", "6", "--width", "8", "--steps", "4")
    by_kernels = run(copy, torches.PYTHON, "train.py", *small, TRITON_INTERPRET="1")
    assert by_kernels == run(copy, torches.PYTHON, "train.py", *small, "--twin")
    assert [line.split(":")[0] for line in by_kernels.splitlines()] == [
        f"step {step}, decay {how}" for step, how in ((1, "frozen"), (2, "frozen"), (3, "unfrozen"), (4, "unfrozen"))
    ]


@pytest.mark.nightly
@torches.needs_triton  # the compiler of inductor imports setuptools too
def test_the_package_checks_its_input_in_python_and_in_cpp(copy: Path) -> None:
    run(copy, torches.PYTHON, "export.py", "model.pt2", TORCHINDUCTOR_CACHE_DIR=str(copy / "cache"))
    assert "4 rows on cpu" in run(copy, torches.PYTHON, "run.py", "model.pt2")
    assert "9 rows on cpu" in run(copy, torches.PYTHON, "run.py", "model.pt2", "--rows", "9")
    meta = run(copy, torches.PYTHON, "run.py", "model.pt2", "--device", "meta", code=1)
    assert "the input does not fit model.pt2: it is on meta, the package takes cpu" in meta
    if shutil.which("make") and shutil.which("g++"):
        run(copy, "make", f"PYTHON={torches.PYTHON}", "CXX=g++", "runner")
        assert "4 rows, the first begins with 0." in run(copy, "./runner", "model.pt2")
        assert "usage: runner" in run(copy, "./runner", code=2)
        assert "runner: none.pt2: " in run(copy, "./runner", "none.pt2", code=1)


FITS = """
import torch
from model import misfit
for stated, given in (
    ("float32 cpu * 64", torch.ones(3, 64)), ("float32 cpu * 64", torch.ones(3, 63)),
    ("float32 cpu * 64", torch.ones(64)), ("float32 cuda * 64", torch.ones(3, 64)),
    ("float32 cpu * 64", torch.ones(3, 64).double()),
):
    print(misfit(stated, given) or "fits")
"""


@torches.needs_torch
def test_the_package_names_what_does_not_fit(copy: Path) -> None:
    assert run(copy, torches.PYTHON, "-c", FITS).splitlines() == [
        "fits",
        "its shape is [3, 63], the package takes [*, 64]",
        "its shape is [64], the package takes [*, 64]",
        "it is on cpu, the package takes cuda",
        "it is torch.float64, the package takes torch.float32",
    ]


@pytest.mark.nightly
@torches.needs_triton
def test_the_tuner_measures_and_outlives_a_child(copy: Path) -> None:
    small = ("--rows", "2", "--columns", "40", "--blocks", "16", "--warps", "4")
    said = run(copy, torches.PYTHON, "tune.py", *small, TRITON_INTERPRET="1")
    assert re.search(r"best: Candidate\(block=16, warps=4, aligned=(True|False)\), [0-9.]+ us", said)
    kernel = copy / "kernel.py"
    kernel.write_text(kernel.read_text().replace("        if ALIGNED:", "        if ALIGNED:\n            os.abort()"))
    kernel.write_text(kernel.read_text().replace("import triton\n", "import os\n\nimport triton\n", 1))
    said = run(copy, torches.PYTHON, "tune.py", *small, TRITON_INTERPRET="1")
    assert f"aligned=True): its child ended with {-signal.SIGABRT}" in said and "best: Candidate(block=16" in said


@torches.needs_torch
def test_the_serving_model_answers_together_and_ends_when_asked(copy: Path) -> None:
    server = subprocess.Popen(
        [torches.PYTHON, "server.py", "--host", "127.0.0.1", "--port", "0", "--wait-ms", "50"], cwd=copy,
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = re.fullmatch(r"serving on port (\d+), on cpu\n", server.stdout.readline())
        assert port
        url = f"http://127.0.0.1:{port[1]}"
        asked = run(copy, sys.executable, "load.py", url)
        together = re.search(r"256 requests in .*; ([0-9.]+) were computed together on average", asked)
        assert together and float(together[1]) > 1.5
        for body in (b"{}", b"nothing", b'{"inputs": [1]}', b'{"inputs": ["a"]}', b"[]"):
            assert answer(f"{url}/predict", body) == 400
        assert (answer(f"{url}/none", b"{}"), answer(f"{url}/none")) == (404, 404)
        server.send_signal(signal.SIGTERM)
        assert server.communicate(timeout=PATIENCE_S)[0] == "ended\n" and server.returncode == 0
    finally:
        server.kill()
        server.wait()


def answer(url: str, body: bytes | None = None) -> int:
    """The status of one request."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, body, timeout=PATIENCE_S) as given:
            return int(given.status)
    except HTTPError as error:
        return error.code


# einops as this example uses it, for the Python of the tests has torch and numpy alone.
EINOPS = "def rearrange(tensor, pattern):\n    assert pattern == 'batch -> batch 1'\n    return tensor.unsqueeze(1)\n"


@torches.needs_torch
def test_the_requirements_are_enough_for_training_with_private_code(copy: Path) -> None:
    (copy / "einops.py").write_text(EINOPS)
    said = run(copy, torches.PYTHON, "train.py", PYTHONPATH=f"{copy / 'src'}:{copy}")
    right = re.search(r"([0-9.]+) % of 1000 unseen points", said)
    assert right and float(right[1]) > 95


@pytest.mark.slow  # compiles
@pytest.mark.skipif(not (shutil.which("make") and shutil.which("g++")), reason="no make or no g++")
def test_the_debugging_bug_shows_under_address_sanitizer_and_its_fix_does_not(copy: Path) -> None:
    run(copy, "make", "CXX=g++", "cpu")
    said = run(copy, "./histogram_cpu", code=1)
    if "AddressSanitizer" not in said:
        pytest.fail(said)
    assert "heap-buffer-overflow" in said and "histogram.h:" in said
    run(copy, "make", "clean")
    run(copy, "make", "CXX=g++", "FIXED=1", "cpu")
    assert run(copy, "./histogram_cpu") == "100000 of 100000 samples are in a bin\n"


# In a container.


@pytest.mark.engine
@pytest.mark.nightly  # an image of 6 GB
def test_the_requirements_become_a_trained_model_in_a_container(engine: DockerEngine, copy: Path) -> None:
    """What a person does who has a folder with train.py and requirements.txt, from an empty HOME."""
    for name in ("envkit.toml", "envkit.lock"):
        (copy / name).unlink()
    home, tag = copy.parent / "home", f"envkit-test/requirements:{uuid.uuid4().hex[:12]}"
    home.mkdir()
    envkit, more = (sys.executable, "-m", "envkit"), {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    try:
        run(copy, *envkit, "init", **more)
        said = run(copy, *envkit, "up", "--tag", tag, "--gpus", "none", **more)
        assert f"run your code in it: envkit run --tag {tag} -- python train.py" in said.splitlines()[-1]
        words = ("run", "--tag", tag, "--gpus", "none", "--env", "PYTHONPATH=src", "--", "python", "train.py")
        said = run(copy, *envkit, *words, **more)
        assert re.search(r"(9\d\.\d|100\.0) % of 1000 unseen points", said)
        lasting = subprocess.run(
            ["docker", "ps", "--all", "--quiet", "--filter", f"ancestor={tag}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert lasting.stdout == ""
    finally:
        engine.remove(tag)
