"""The main job on real wheels in a real engine, and the same image made wrong on purpose.

One torch 2.6 and one torch 2.15 image are built for the whole module; a fault is a small layer on top of one of them,
put there by the same installer that a user would use.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import binaries
import jsonschema
import machines
import pytest
from buildcache import drop_cache
from clocks import comes
from index import Index
from leftovers import containers, drafts, processes, stay, volumes
from test_sources import publish

from envkit.engine import BuildRequest, buildx
from envkit.engine.docker import DockerEngine
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.case import chosen
from envkit.plan import lockfile as locks
from envkit.plan.wheels import uv_cache
from envkit.runner.runner import LOCK_LABEL
from envkit.subjects import saved
from envkit.subjects.codec import to_plain
from envkit.system import proc
from envkit.system.index import _of_uv

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("room")]

ROOT = Path(__file__).parent.parent
SCHEMA = ROOT / "envkit" / "report" / "report-1.schema.json"
SITE = "/opt/venv/lib/python3.{minor}/site-packages/nvidia"


class Run(NamedTuple):
    """One call of the command line."""

    exit: int
    out: str
    err: str


class Up(NamedTuple):
    """One ``envkit up`` and the report it wrote."""

    tag: str
    run: Run
    report: dict[str, Any]
    lock: str
    spec: Path


def envkit(*argv: str, cwd: Path = ROOT, env: dict[str, str] | None = None, timeout_s: float = 1200) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "envkit", *argv],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=timeout_s,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def no_cache_left() -> Iterator[None]:
    """A build leaves as much again as its image; the image itself stays for the next test."""
    yield
    drop_cache()


def up(name: str, folder: Path, change: Callable[[str], str] = str, env: dict[str, str] | None = None) -> Up:
    """Brings up images/``name`` under a tag of its own, from a copy of its lock and of its spec after a ``change``."""
    spec = folder / name
    shutil.copytree(ROOT / "images" / name, spec)
    (spec / "envkit.toml").write_text(change((spec / "envkit.toml").read_text()))
    tag = f"envkit-test/{name}:{uuid.uuid4().hex[:12]}"
    report = folder / "report.json"
    # The archive moves on: today's base and packages, the locked wheels.
    run = envkit("up", str(spec), "--refresh-os", "--verbose", "--tag", tag, "--report", str(report), env=env)
    assert report.exists(), run.err
    return Up(tag, run, json.loads(report.read_text()), (spec / "envkit.lock").read_text(), spec)


@pytest.fixture(scope="module")
def torch26(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The reference environment, brought up."""
    made = up("torch-2.6-cu124", tmp_path_factory.mktemp("torch26"))
    yield made
    engine.remove(made.tag)


def with_wheel(engine: DockerEngine, base: str, wheel: str, folder: Path) -> str:
    """``base`` after somebody installed ``wheel`` into it; the labels, and with them the promise, stay."""
    shutil.copy(proc.uv_path(), folder / "uv")
    (folder / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN --mount=type=bind,source=uv,target=/tmp/uv --mount=type=secret,id=ca,required=false "
        "if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi; "
        f"/tmp/uv --no-cache pip install --python /opt/venv/bin/python --no-deps {wheel}\n"
    )
    tag = f"envkit-test/fault:{uuid.uuid4().hex[:12]}"
    ca = buildx.ca_bundle(os.environ)
    engine.build(BuildRequest(folder, tag, 600, secrets={"ca": ca} if ca else {}), lambda line: None)
    return tag


def libraries(report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for library in report["observed"]["image"]["libraries"]["value"]:
        found.setdefault(library["name"], []).append(library)
    return found


def test_up_ends_with_the_report_of_a_real_image(torch26: Up) -> None:
    assert torch26.run.exit == 0, torch26.run.out + torch26.run.err
    jsonschema.validate(torch26.report, json.loads(SCHEMA.read_text()))
    assert torch26.report["verdict"] == "pass"
    build = torch26.report["observed"]["image"]["torch"]["value"]
    assert (build["version"], build["cuda"]) == ("2.6.0+cu124", "12.4")
    loaded = libraries(torch26.report)
    site = SITE.format(minor=11)
    for name, version, path in (
        ("cudnn", "9.1.0", "cudnn/lib/libcudnn.so.9"),
        ("nccl", "2.21.5", "nccl/lib/libnccl.so.2"),
        ("cudart", "12.4", "cuda_runtime/lib/libcudart.so.12"),
    ):
        assert [(one["version"], one["path"]) for one in loaded[name]] == [(version, f"{site}/{path}")]
        assert f"{site}/{path}" in torch26.run.out
    wanted = (
        "cudart cublas cublasLt cudnn cudnn_graph cudnn_ops cudnn_cnn cudnn_adv nccl nvrtc nvjitlink cusparse cusolver"
        " cufft"
    )
    for name in wanted.split():
        assert loaded[name][0]["found_via"], name


def test_up_says_what_a_machine_without_gpu_did_not_prove(torch26: Up) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    skipped = {row["check"]: row["reason"] for row in torch26.report["results"] if row["outcome"] == "skip"}
    for name in ("smoke-streams-events", "smoke-vector-add-nvrtc", "smoke-triton-add"):
        assert "no GPU" in skipped[name]
    assert "not proven here" in torch26.run.out


@pytest.mark.nightly  # ten minutes where both processors are busy
def test_every_smoke_test_has_run_or_said_why_not(torch26: Up) -> None:
    whole = envkit("smoke", torch26.tag, "--level", "full", "--gpus", "none", "--format", "json", "--observed")
    assert whole.exit == 0, whole.out + whole.err
    report = json.loads(whole.out)
    tests = report["observed"]["tests"]["value"]
    assert {test["name"] for test in tests} == {test.name for test in chosen(TESTS, "full")}
    assert {test["ended"] for test in tests} <= {"ran", "not-applicable"}
    ran = {test["name"] for test in tests if test["ended"] == "ran"}
    assert ran >= {test.name for test in TESTS if test.cpu and not test.several} - {
        "gemm-fp8",  # this release has no fp8 products on a CPU
        "cpp-extension",  # nor does the image hold ninja
    }
    outcomes = {row["check"]: row["outcome"] for row in report["results"]}
    assert {outcomes[f"smoke-{name}"] for name in ran} == {"pass"}
    assert {test["device"] for test in tests if test["ended"] == "ran"} == {
        "cpu",
        "gpus",
    }  # nothing of a GPU is claimed


def test_a_page_of_a_smoke_run_shows_every_test(torch26: Up) -> None:
    page = envkit("smoke", torch26.tag, "--gpus", "none", "--format", "html")
    assert page.exit == 0, page.err
    assert page.out.lower().startswith("<!doctype html>")
    assert {test.name for test in chosen(TESTS, "quick") if f"smoke-{test.name}" not in page.out} == set()


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.nightly)])
def test_nothing_is_left_of_a_smoke_run_that_is_killed_at_any_moment(torch26: Up, times: int) -> None:
    dice = random.Random(20261121)
    for _ in range(times):
        process = subprocess.Popen(
            [sys.executable, "-m", "envkit", "smoke", torch26.tag, "--level", "full", "--gpus", "none"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        time.sleep(dice.uniform(0.3, 12.0))
        process.send_signal(signal.SIGKILL)
        process.wait(120)
        assert comes(lambda: not (containers(torch26.tag) or processes(torch26.tag)), 0.1), processes(torch26.tag)


def test_the_lock_is_in_the_image_as_label_and_as_file(engine: DockerEngine, torch26: Up, tmp_path: Path) -> None:
    text = engine.labels(torch26.tag)[LOCK_LABEL]
    assert text == torch26.lock
    checked_in = (ROOT / "images" / "torch-2.6-cu124" / "envkit.lock").read_text()
    # The Debian packages are today's, see up; the wheels are those that were checked in.  How large one is only some
    # indexes say.
    mine, theirs = (
        [replace(pin, size=0) for pin in locks.parse(lock, "envkit.lock").wheels] for lock in (text, checked_in)
    )
    assert mine == theirs
    (tmp_path / "Dockerfile").write_text(f"FROM {torch26.tag}\nRUN sha256sum /usr/share/envkit/envkit.lock >&2\n")
    file = subprocess.run(
        ["docker", "run", "--rm", "--network=none", torch26.tag, "cat", "/usr/share/envkit/envkit.lock"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert file.stdout == torch26.lock


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy machine with eight H100, as `doctor --save` would have written it."""
    path = tmp_path_factory.mktemp("h100") / "host.json"
    path.write_text(saved.text("host", to_plain(machines.host("h100"))))
    return path


def flight(image: str, host: Path, *argv: str) -> tuple[Run, list[str]]:
    """A passive preflight of ``image`` on a saved machine, and the causes it names."""
    run = envkit("preflight", image, "--level", "passive", "--host", str(host), *argv)
    return run, [line.removeprefix("cause: ") for line in run.err.splitlines() if line.startswith("cause: ")]


def test_preflight_lets_the_image_onto_an_h100(torch26: Up, h100: Path) -> None:
    run, causes = flight(
        torch26.tag, h100, "--gpus", "all", "--shm-size", "16g", "--workers", "8", "--ulimit", "memlock=-1"
    )
    report = json.loads(envkit("preflight", torch26.tag, "--level", "passive", "--host", str(h100), "-f", "json").out)
    unknown = [one["check"] for one in report["results"] if one["outcome"] in ("unknown", "crashed")]
    assert (run.exit, causes, unknown) == (0, [], [])


def changed_host(folder: Path, **changes: Any) -> Path:
    path = folder / "host.json"
    paths = {name.replace("__", "."): value for name, value in changes.items()}
    path.write_text(saved.text("host", to_plain(machines.host("h100", paths))))
    return path


def test_preflight_names_kernels_that_the_image_lacks(torch26: Up, tmp_path: Path) -> None:
    b200 = changed_host(tmp_path, nvml__gpus__0__sm="sm_100", nvml__gpus__0__name="NVIDIA B200")
    run, causes = flight(torch26.tag, b200, "--gpus", "all")
    assert run.exit == 1
    assert "sm_100" in causes[0]


def test_preflight_names_a_driver_that_is_too_old(torch26: Up, tmp_path: Path) -> None:
    old = changed_host(tmp_path, module__version="470.256.02", nvml__driver="470.256.02", nvml__cuda="11.4")
    run, causes = flight(torch26.tag, old, "--gpus", "all")
    assert run.exit == 1
    assert "470.256.02" in causes[0]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--shm-size", "64m", "--workers", "8"), "64"),
        (("-e", "CUDA_VISIBLE_DEVICES=9", "--shm-size", "16g"), "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_preflight_names_what_the_job_says_wrong(torch26: Up, h100: Path, words: tuple[str, ...], names: str) -> None:
    run, causes = flight(torch26.tag, h100, "--gpus", "all", *words)
    assert run.exit == 1
    assert names in causes[0]


def test_preflight_names_a_forward_compatibility_library_of_the_wrong_branch(
    engine: DockerEngine, torch26: Up, h100: Path, tmp_path: Path
) -> None:
    """The compat libcuda of a branch older than the machine's driver, on the image's library path."""
    (tmp_path / "libcuda.so.550.54.15").write_bytes(binaries.library())
    (tmp_path / "Dockerfile").write_text(
        f"FROM {torch26.tag}\nCOPY libcuda.so.550.54.15 /usr/local/cuda/compat/\n"
        "RUN ln -s libcuda.so.550.54.15 /usr/local/cuda/compat/libcuda.so.1\n"
        "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n"
    )
    tag = f"envkit-test/compat:{uuid.uuid4().hex[:12]}"
    engine.build(BuildRequest(tmp_path, tag, 600), lambda line: None)
    try:
        run, causes = flight(tag, h100, "--gpus", "all", "--shm-size", "16g")
    finally:
        engine.remove(tag)
    assert run.exit == 1
    assert "compat" in causes[0]
    assert "550.54.15" in causes[0]


def test_preflight_goes_into_the_image_and_the_command_starts_on_a_pass_only(torch26: Up, tmp_path: Path) -> None:
    """This machine has no GPU: a job that gets none may start, one that gets them may not."""
    started, report = tmp_path / "started", tmp_path / "report.json"
    words = ("--level", "probe", "--report", str(report), "--", "touch", str(started))
    assert envkit("preflight", torch26.tag, "--gpus", "all", *words).exit == 1
    assert not started.exists()
    run = envkit("preflight", torch26.tag, "--gpus", "none", *words)
    made = json.loads(report.read_text())
    bound = [one["outcome"] for one in made["results"] if one["check"] == "image-cudnn-older-than-build"]
    assert bound == ["pass"], run.err
    assert started.exists() == (made["verdict"] == "pass") == (run.exit == 0)


def test_preflight_runs_probe_and_suite_beside_one_another(torch26: Up, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = envkit("preflight", torch26.tag, "--gpus", "none", "--level", "quick", "--report", str(report))
    made = json.loads(report.read_text())
    assert {"host", "launch", "image", "smoke"} <= set(made["observed"]), run.err
    ended = {one["check"]: one["outcome"] for one in made["results"]}
    assert ended["smoke-error-crash"] == ended["image-cudnn-older-than-build"] == "pass"


def test_the_ca_bundle_is_in_no_layer(torch26: Up) -> None:
    ca = buildx.ca_bundle(os.environ)
    if ca is None:
        pytest.skip("this machine has no CA bundle of its own")
    history = subprocess.run(
        ["docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", torch26.tag],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert str(ca) not in history.stdout
    left = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            "--network=none",
            torch26.tag,
            "sh",
            "-c",
            "ls -A /run/secrets /tools 2>/dev/null; true",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert left.stdout == ""


@pytest.mark.parametrize("wheel", ["nvidia-cudnn-cu12==9.0.0.312"])
def test_an_older_cudnn_forced_in_is_named_with_path_and_both_versions(
    engine: DockerEngine, torch26: Up, tmp_path: Path, wheel: str
) -> None:
    tag = with_wheel(engine, torch26.tag, wheel, tmp_path)
    try:
        red = envkit("probe", tag, "--format", "json")
    finally:
        engine.remove(tag)
    assert red.exit == 1, red.out + red.err
    failed = {row["check"]: row["findings"] for row in json.loads(red.out)["results"] if row["outcome"] == "fail"}
    (older, *_) = failed["image-cudnn-older-than-build"]
    path = SITE.format(minor=11) + "/cudnn/lib/libcudnn.so.9"
    assert "9.0.0" in older["message"] and "9.1.0" in older["message"]
    assert path in older["message"] + older["where"]
    assert older["fix"]
    assert any("nvidia-cudnn-cu12" in finding["message"] for finding in failed["image-wheels-not-locked"])
    twin = envkit("probe", torch26.tag)
    assert twin.exit == 0, twin.out + twin.err


def audited(image: str) -> tuple[int, dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """The exit code of an audit, the findings by check, and what was observed."""
    run = envkit("audit", image, "--format", "json", "--observed")
    assert run.exit in (0, 1), run.err
    report = json.loads(run.out)
    found = {result["check"]: result["findings"] for result in report["results"] if result["findings"]}
    return run.exit, found, report["observed"]


def test_the_audit_lists_what_the_real_image_holds_and_finds_nothing(torch26: Up) -> None:
    code, found, seen = audited(torch26.tag)
    assert (code, found) == (0, {})
    sass = set(seen["code"]["value"]["sass"])
    assert sass == {"sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_90a"}  # by cuobjdump --list-elf
    assert [package["name"] for package in seen["packages"]["value"][:5]] == [
        "torch",
        "nvidia-cudnn-cu12",
        "nvidia-cublas-cu12",
        "nvidia-cufft-cu12",
        "nvidia-cusparse-cu12",
    ]
    assert len(seen["layers"]["value"]) > 1 and seen["size"]["value"] > 4e9


def test_the_audit_finds_five_planted_faults(engine: DockerEngine, torch26: Up, tmp_path: Path) -> None:
    site = SITE.format(minor=11)
    key = "-----BEGIN OPENSSH PRIVATE " + "KEY-----"
    planted = {
        "audit-library-unresolved": f"rm {site}/curand/lib/libcurand.so.10",
        "audit-secret-inside": f"mkdir -p /root/.ssh && echo '{key}' > /root/.ssh/id_rsa",
        "audit-driver-inside": f"cp {site}/nvtx/lib/libnvToolsExt.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "audit-library-shadowed": f"mkdir /opt/own && cp {site}/cudnn/lib/libcudnn_ops.so.9 /opt/own",
        "image-files-overwritten": f"echo >> {site}/nccl/lib/libnccl.so.2",
    }
    steps = "".join(f"RUN {step}\n" for step in planted.values())
    (tmp_path / "Dockerfile").write_text(f"FROM {torch26.tag}\n{steps}ENV LD_LIBRARY_PATH=/opt/own\n")
    tag = f"envkit-test/fault:{uuid.uuid4().hex[:12]}"
    engine.build(BuildRequest(tmp_path, tag, 600), lambda line: None)
    try:
        code, found, _ = audited(tag)
    finally:
        engine.remove(tag)
    assert code == 1
    assert planted.keys() <= found.keys()
    named = {check: str(found[check]) for check in planted}
    assert "libcurand.so.10" in named["audit-library-unresolved"]
    assert "/root/.ssh/id_rsa" in named["audit-secret-inside"] and key not in named["audit-secret-inside"]
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1" in named["audit-driver-inside"]
    assert "/opt/own" in named["audit-library-shadowed"]
    assert "libnccl.so.2" in named["image-files-overwritten"]


def test_a_disturbed_suite_is_red(torch26: Up) -> None:
    red = envkit(
        "smoke", torch26.tag, "--only", "gemm-exact", "--only", "fft", "--inject-fault", "ulp", "--format", "json"
    )
    assert red.exit == 1, red.out + red.err
    outcomes = {row["check"]: row["outcome"] for row in json.loads(red.out)["results"]}
    assert outcomes["smoke-gemm-exact"] == outcomes["smoke-fft"] == "fail"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_probe_is_stopped(engine: DockerEngine, torch26: Up, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "smoke", torch26.tag],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " ran " in line:  # a test has ended, the next is under way
            break
    assert containers(torch26.tag) != []
    process.send_signal(number)
    process.wait(120)
    process.stderr.close()
    assert process.returncode == (-number if number is signal.SIGKILL else 130)
    assert comes(lambda: not containers(torch26.tag), 0.2)
    assert containers(torch26.tag) == []


def test_a_build_that_is_interrupted_leaves_no_image(engine: DockerEngine, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "images" / "torch-2.6-cu124", tmp_path / "spec")
    tag = f"envkit-test/stopped:{uuid.uuid4().hex[:12]}"
    before, others = sorted((tmp_path / "spec").iterdir()), drafts()
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "build", str(tmp_path / "spec"), "--refresh-os", "--tag", tag, "--no-cache"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "RUN" in line:
            break
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(120) == 130, said
    assert sorted((tmp_path / "spec").iterdir()) == before
    listed = subprocess.run(["docker", "images", "-q", tag], capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout == ""
    assert stay(drafts, others) == set()


@pytest.mark.nightly  # `make stacks` does it with ten locks
def test_the_same_lock_runs_without_an_engine(engine: DockerEngine, tmp_path: Path) -> None:
    if shutil.which("python3.11") is None:
        pytest.skip("the reference environment needs python3.11 on this machine")
    report = tmp_path / "report.json"
    cache = tmp_path / "cache"
    try:
        done = envkit(
            "up", "images/torch-2.6-cu124", "--engine", "local", "--report", str(report),
            env={"XDG_CACHE_HOME": str(cache), "UV_CACHE_DIR": str(cache / "uv")},
        )  # fmt: skip
    finally:
        shutil.rmtree(cache, ignore_errors=True)  # 5 GB, which pytest would keep for three runs
    assert done.exit == 0, done.out + done.err
    made = json.loads(report.read_text())
    jsonschema.validate(made, json.loads(SCHEMA.read_text()))
    assert [one["version"] for one in libraries(made)["cudnn"]] == ["9.1.0"]


@pytest.mark.nightly
def test_a_build_with_the_network_off_is_the_same(engine: DockerEngine, torch26: Up, tmp_path: Path, tag: str) -> None:
    """The last that is done with that image: beside it an overlay2 store would pack what is built next another way."""
    layers = engine.layers(torch26.tag)
    vendored = envkit("vendor", str(tmp_path / "saved"), str(torch26.spec))
    assert vendored.exit == 0, vendored.err[-2000:]
    engine.remove(torch26.tag)
    drop_cache()
    built = envkit("build", str(torch26.spec), "--from", str(tmp_path / "saved"), "--no-cache", "--tag", tag)
    shutil.rmtree(tmp_path / "saved")  # 3 GB, which pytest would keep for three runs
    assert built.exit == 0, built.err[-2000:]
    assert "(vendored)" in built.err
    assert built.out.split()[1] == torch26.report["observed"]["build"]["id"]  # a hash over all of it
    assert engine.layers(tag) == layers


# The newest torch, last in this file: its image stands beside the other until the end.

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, {kind}
setup(
    name="{name}", version="1.0", install_requires=["numpy"], cmdclass={{"build_ext": BuildExtension}},
    ext_modules=[{kind}("{name}", {sources})],
)
"""
CPP = """
#include <torch/extension.h>
torch::Tensor twice(torch::Tensor x) { return x + x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
BINDING = """
#include <torch/extension.h>
int kernels();
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("kernels", &kernels); }
"""
CUDA = """
__global__ void fill(float *out) { out[threadIdx.x] = 1.0f; }
int kernels() { cudaFuncAttributes one; return cudaFuncGetAttributes(&one, fill) == cudaSuccess; }
"""


def extension(index: Index, name: str, kind: str, **sources: str) -> None:
    """Publishes the source of an extension of torch."""
    listed = {file.replace("_", "."): text for file, text in sources.items()}
    setup = SETUP.format(name=name, kind=kind, sources=list(listed))
    publish(index, name, "1.0", {**listed, "setup.py": setup})


class Compiled(NamedTuple):
    """The newest torch with extensions that were compiled for it, and the index that has their sources."""

    up: Up
    folder: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def torch215(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """The newest torch, brought up with an extension in C++ and one in CUDA, for one GPU."""
    folder, index = tmp_path_factory.mktemp("torch215"), Index()
    extension(index, "cppext", "CppExtension", one_cpp=CPP)
    extension(index, "cudaext", "CUDAExtension", bind_cpp=BINDING, kernel_cu=CUDA)
    extension(index, "wrongext", "CUDAExtension", bind_cpp="#include <cusparse_of_another_day.h>\n")
    # the machine's own index for all else, as if it were one more
    env = {"UV_DEFAULT_INDEX": index.url, "UV_INDEX": _of_uv(configured=True)}

    def change(text: str) -> str:
        changed = re.sub("gpus = .*", 'gpus = ["H100"]\nbuild = ["cppext==1.0", "cudaext==1.0"]', text)
        assert changed != text
        return changed

    made = up("torch-2.15-cu132", folder, change, env)
    yield Compiled(made, folder / "torch-2.15-cu132", env)
    engine.remove(made.tag)
    index.server.shutdown()
    index.server.server_close()


@pytest.mark.nightly
def test_extensions_are_compiled_for_the_gpu_and_pinned_and_start(torch215: Compiled, tmp_path: Path) -> None:
    made = torch215.up
    assert made.run.exit == 0, made.run.out + made.run.err
    lock = locks.parse(made.lock, "envkit.lock")
    assert {(one.name, one.compiled, one.needs) for one in lock.sources} == {
        ("cppext", "9.0", ("numpy",)),
        ("cudaext", "9.0", ("numpy",)),
    }
    code = "import torch, cppext, cudaext; print(cppext.twice(torch.ones(2)).tolist(), cudaext.kernels())"
    start = ["docker", "run", "--rm", "--network=none", made.tag, "python3", "-c", code]
    done = subprocess.run(start, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[2.0, 2.0] 0\n", done.stderr  # no kernel answers without a GPU
    before = drafts(), volumes()
    # The engine has the layers still: only now does the next one cost nothing but its own failure.
    spec = tmp_path / "wrong"
    shutil.copytree(torch215.folder, spec)
    text = (spec / "envkit.toml").read_text()
    (spec / "envkit.toml").write_text(text.replace('"cppext==1.0"', '"wrongext==1.0"'))
    wrong = envkit("lock", str(spec), env=torch215.env)
    assert wrong.exit == 2
    assert "wrongext 1.0 cannot be compiled against torch 2.15.0 for 9.0" in wrong.err
    assert "fatal error: cusparse_of_another_day.h: No such file or directory" in wrong.err
    assert (spec / "envkit.lock").read_text() == made.lock
    assert (stay(drafts, before[0]), stay(volumes, before[1])) == (set(), set())


@pytest.mark.nightly
def test_what_is_compiled_again_elsewhere_is_the_same(
    engine: DockerEngine, torch215: Compiled, tag: str, tmp_path: Path
) -> None:
    """A build without the wheels compiles them with the tools in the lock, and is refused if one differs."""
    env = {**torch215.env, "XDG_CACHE_HOME": str(tmp_path), "UV_CACHE_DIR": uv_cache(), "MAX_JOBS": "1"}
    again = envkit("build", str(torch215.folder), "--tag", tag, env=env)
    assert again.exit == 0, again.err[-2000:]
    assert "compiling cudaext 1.0 from its source for 9.0: its wheel is not here" in again.err
    assert engine.layers(tag) == engine.layers(torch215.up.tag)


@pytest.mark.nightly
def test_a_cuda_12_nccl_over_a_cuda_13_one_is_named_with_path_and_both_versions(
    engine: DockerEngine, torch215: Compiled, tmp_path: Path
) -> None:
    assert torch215.up.run.exit == 0, torch215.up.run.out + torch215.up.run.err
    (right,) = libraries(torch215.up.report)["nccl"]
    tag = with_wheel(engine, torch215.up.tag, "nvidia-nccl-cu12==2.21.5", tmp_path)
    try:
        red = envkit("probe", tag, "--format", "json")
    finally:
        engine.remove(tag)
    assert red.exit == 1, red.out + red.err
    failed = {row["check"]: row["findings"] for row in json.loads(red.out)["results"] if row["outcome"] == "fail"}
    (finding, *_) = [one for one in failed["image-files-overwritten"] if one["where"].endswith("libnccl.so.2")]
    said = finding["message"] + finding["where"] + json.dumps(finding["evidence"])
    assert right["path"] in said
    assert "2.21.5" in said and right["owner_version"] in said
    assert "nvidia-nccl-cu12" in said and "nvidia-nccl-cu13" in said
    twin = envkit("probe", torch215.up.tag)
    assert twin.exit == 0, twin.out + twin.err
