"""A spec for machines without a GPU: torch for the CPU from an index that has it, nothing of CUDA beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from index import Index, asked_by_uv

from envkit.build import exporters, render
from envkit.diff import compare
from envkit.errors import EnvkitError, Undecided, UsageError
from envkit.facts import load as load_facts
from envkit.plan import compiled, cpu, solve, wheels
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Lock
from envkit.plan.resolve import resolve
from envkit.plan.spec import Flavor, Spec, parse
from envkit.runner.runner import promise_of
from envkit.static import CheckOptions
from envkit.static.before_writing import refuse
from envkit.static.packages import of_lock

FACTS = load_facts()
TAG = "cp311-cp311-manylinux_2_28_x86_64"
OPEN = ("os", "base")


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Index, Index]]:
    """An index as PyPI, which uv is configured for, and one with builds for the CPU; PyTorch's own is not in reach."""
    both = Index(), Index()
    for number, one in enumerate(both):
        one.folder = tmp_path / f"index-{number}"
        one.folder.mkdir()
    pypi, _ = both
    asked_by_uv(pypi, tmp_path / "cache", monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # where nobody listens
    pypi.add("torch", "2.6.0", "nvidia-cudnn-cu12", tag=TAG)
    pypi.add("torch", "2.7.1", "nvidia-cudnn-cu12", tag=TAG)
    pypi.add("nvidia-cudnn-cu12", "9.1.0.70")
    pypi.add("setuptools", "80.9.0")
    pypi.add("numpy", "2.2.0")
    pypi.add("uv", wheels.uv_version(), tag="py3-none-manylinux_2_17_x86_64")
    for name in ("jupyterlab", "py-spy"):
        pypi.add(name, "1.0")
    yield both
    for one in both:
        one.server.shutdown()
        one.server.server_close()


def spec_of(*lines: str, torch: str = ">=2.5,<2.8", index: Index | None = None) -> Spec:
    named = [f'extra-index = ["{index.url}"]'] if index else []
    text = "\n".join([f'torch = "{torch}"', 'python = "3.11"', 'cuda = "cpu"', *named, *lines, ""])
    return parse(text, Path("/srv/job/envkit.toml"))


def locked(spec: Spec, said: list[str] | None = None) -> Lock:
    return solve.lock(spec, FACTS, (said if said is not None else []).append, may_stay_open=OPEN)


def test_the_build_for_the_cpu_is_locked_from_the_index_that_has_it(indexes: tuple[Index, Index]) -> None:
    _, own = indexes
    pin = own.add("torch", "2.6.0+cpu", "numpy", tag=TAG)
    spec, said = spec_of(index=own), list[str]()
    made = locked(spec, said)
    held = {each.name: each for each in made.wheels}
    assert (held["torch"].version, held["torch"].sha256) == ("2.6.0+cpu", pin.sha256)
    assert (str(made.torch), made.cuda, made.variant, made.backend) == ("2.6.0", None, "cpu", "")
    assert (made.driver, made.cudnn, made.nccl, made.triton, made.missing) == (None, "", "", "", ())
    assert not [name for name in held if name.startswith(("nvidia-", "cuda-", "triton"))]
    assert any("torch 2.6.0 for the CPU" in line for line in said)
    assert not any("PyTorch" in line for line in said)
    text = locks.dump(made)
    assert 'cuda = "cpu"' in text
    assert locks.parse(text, "envkit.lock") == made
    assert not locks.problems(spec, made)
    assert locks.problems(parse('torch = "2.6.0"\npython = "3.11"\n', spec.path), made)
    refuse(spec, FACTS, made)


@pytest.mark.slow  # solves for each release
def test_the_newest_release_that_the_packages_go_with_is_taken(indexes: tuple[Index, Index]) -> None:
    pypi, own = indexes
    for release in ("2.5.1", "2.6.0", "2.7.1"):
        own.add("torch", f"{release}+cpu", tag=TAG)
    pypi.add("peft", "0.9.0", "torch<2.7")
    assert str(locked(spec_of(index=own)).torch) == "2.7.1"
    assert str(locked(spec_of('packages = ["peft"]', index=own)).torch) == "2.6.0"
    assert str(locked(spec_of('packages = ["torch<2.6"]', index=own)).torch) == "2.5.1"


def test_an_index_in_place_of_the_default_one_may_hold_all_builds(indexes: tuple[Index, Index]) -> None:
    pypi, _ = indexes
    for build in ("cpu", "cu118", "cu126", "rocm6.2"):
        pypi.add("torch", f"2.6.0+{build}", tag=TAG)
    pypi.add("torch", "2.7.1+cu128", tag=TAG)
    pypi.add("torch", "2.7.1+cpu", tag=TAG.replace("cp311", "cp312"))
    made = locked(spec_of())
    assert [pin.version for pin in made.wheels if pin.name == "torch"] == ["2.6.0+cpu"]


def test_a_wheel_of_pypis_for_aarch64_is_one_for_the_cpu_where_the_facts_say_so(indexes: tuple[Index, Index]) -> None:
    pypi, _ = indexes
    pypi.add("torch", "2.6.0", tag=TAG.replace("x86_64", "aarch64"))
    pypi.add("uv", wheels.uv_version(), tag="py3-none-manylinux_2_17_aarch64")
    row = next(row for row in FACTS.torches if str(row.torch) == "2.6.0" and row.default)
    assert row.pypi_aarch64 == "cpu"
    made = locked(spec_of('platform = "linux/arm64"', torch="2.6.0"))
    assert [(pin.version, pin.file[-11:]) for pin in made.wheels if pin.name == "torch"] == [("2.6.0", "aarch64.whl")]
    assert (made.cuda, made.variant) == (None, "cpu")


def refused(spec: Spec) -> EnvkitError:
    with pytest.raises(EnvkitError) as caught:
        locked(spec)
    return caught.value


def test_where_no_index_in_reach_has_one_it_is_said_with_what_to_do(indexes: tuple[Index, Index]) -> None:
    error = refused(spec_of('packages = ["numpy"]'))
    assert isinstance(error, Undecided)
    assert error.message.startswith(
        "no package index in reach has torch >=2.5,<2.8 for the CPU and Python 3.11 (PyPI has none for Linux on "
        "x86_64), and PyTorch's own does not answer: "
    )
    assert "extra-index" in error.fix
    assert "\n" not in error.message
    _, own = indexes
    own.add("torch", "2.4.0+cpu", tag=TAG)
    assert "(the index in use has 2.4.0+cpu alone)" in refused(spec_of(index=own)).message


def test_what_cannot_be_solved_names_the_change_that_can(indexes: tuple[Index, Index]) -> None:
    pypi, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    own.add("torch", "2.5.1+cpu", tag=TAG)
    pypi.add("peft", "0.9.0", "torch==2.5.1")
    error = refused(spec_of('packages = ["peft"]', torch="2.6.0", index=own))
    assert isinstance(error, UsageError)
    assert "torch 2.5.1 without CUDA" in " ".join(getattr(error, "nearest", ()))


@pytest.mark.slow  # solves for each release
def test_what_brings_cuda_is_refused_with_who_asks_for_it(indexes: tuple[Index, Index]) -> None:
    pypi, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    pypi.add("nvidia-nccl-cu12", "2.21.5")
    pypi.add("xgboost", "2.1.0", "nvidia-nccl-cu12")
    pypi.add("nvidia-ml-py", "12.0")
    error = refused(spec_of('packages = ["xgboost"]', index=own))
    assert isinstance(error, UsageError)
    assert error.message == "`cuda` is `cpu`, but xgboost asks for nvidia-nccl-cu12 2.21.5, which belongs to CUDA"
    asked = refused(spec_of('packages = ["nvidia-nccl-cu12"]', index=own)).message
    assert asked == "`cuda` is `cpu`, but the spec asks for nvidia-nccl-cu12 2.21.5, which belongs to CUDA"
    made = locked(spec_of('packages = ["nvidia-ml-py"]', index=own))  # plain Python that asks a driver if there is one
    assert "nvidia-ml-py==12.0" in render.dockerfile(made)


def test_a_torchvision_for_cuda_is_refused_and_the_one_for_the_cpu_is_taken(indexes: tuple[Index, Index]) -> None:
    pypi, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    pypi.add("torchvision", "0.21.0", "torch==2.6.0", tag=TAG)
    error = refused(spec_of('packages = ["torchvision"]', index=own))
    assert isinstance(error, Undecided)
    assert "torchvision 0.21.0+cpu" in error.fix
    own.add("torchvision", "0.21.0+cpu", "torch==2.6.0", tag=TAG)
    made = locked(spec_of('packages = ["torchvision"]', index=own))
    assert {pin.version for pin in made.wheels if pin.name == "torchvision"} == {"0.21.0+cpu"}


def test_a_package_made_for_gpus_is_named(indexes: tuple[Index, Index]) -> None:
    pypi, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    pypi.add("bitsandbytes", "0.45.0", "torch")
    said: list[str] = []
    locked(spec_of('packages = ["bitsandbytes"]', index=own), said)
    assert any(line.startswith("bitsandbytes 0.45.0 is made for GPUs: ") for line in said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('gpus = ["A100"]', "`gpus` is about GPUs"),
        ('driver = "550"', "`driver` is about GPUs"),
        ("guard = true", "`guard` is about GPUs"),
        ('base = "nvidia"', "the images of base `nvidia` hold CUDA"),
        ('base = "ngc"\ntag = "25.01-py3"', "the images of base `ngc` hold CUDA"),
    ],
)
def test_what_contradicts_it_is_refused(line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec_of(line)
    assert caught.value.message == f"`cuda` is `cpu`, a build of torch without CUDA, and {said}"


def test_what_is_made_of_the_lock_has_nothing_of_cuda(indexes: tuple[Index, Index]) -> None:
    _, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    made = locked(spec_of(index=own))
    every = [render.dockerfile(made), exporters.compose(made, Flavor.DEBUG), exporters.apptainer(made)]
    every += [exporters.devcontainer(made)]
    for text in every:
        words = ("NVIDIA_VISIBLE_DEVICES=", "CUDA_HOME=", "nvidia.com/gpu", "--nv", "driver", "CUDA None", "cuda-home")
        assert not [word for word in words if word in text]
    assert "ENV PATH=/opt/venv/bin:$PATH VIRTUAL_ENV=/opt/venv\n" in every[0]
    assert "# torch 2.6.0 for the CPU; Python 3.11 on debian12\n" in every[0]
    assert "FROM os AS runtime\n" in every[0]
    assert compiled.architectures(made, FACTS) == "cpu"
    promise = promise_of(made, "runtime")
    assert (promise.torch, promise.cuda, promise.gpus) == ("2.6.0", "", ())
    judged = of_lock(locks.dump(made), "envkit.lock", None, CheckOptions(), FACTS)
    assert judged.observed["torch_cuda"] == "cpu"


def test_a_change_to_or_from_cuda_says_what_it_means(indexes: tuple[Index, Index]) -> None:
    _, own = indexes
    own.add("torch", "2.6.0+cpu", tag=TAG)
    made = locked(spec_of(index=own))
    with_cuda = parse('torch = "2.6.0"\npython = "3.11"\n', Path("/srv/job/envkit.toml"))
    without = spec_of(torch="2.6.0")
    there = {change.text for change in compare.specs(with_cuda, without, FACTS)}
    assert "torch 2.6.0+cpu is built without CUDA: it runs on no GPU" in there
    assert any(text.startswith("CUDA 12.4 -> none") for text in there)
    assert any(text.startswith("minimum driver ") and text.endswith(" -> none") for text in there)
    back = [change.text for change in compare.specs(without, with_cuda, FACTS)]
    assert any(text.startswith("minimum driver none -> ") for text in back)
    assert compare.locks(made, made, FACTS) == ()


def test_a_refusal_of_the_facts_names_the_build() -> None:
    with pytest.raises(UsageError) as caught:
        resolve(spec_of('os = "ubuntu20.04"', torch="2.6.0"), FACTS)
    assert "None" not in " ".join((caught.value.message, caught.value.fix, *getattr(caught.value, "nearest", ())))


def test_what_belongs_to_cuda_is_known_by_its_name() -> None:
    for name in (
        "nvidia-nccl-cu12",
        "nvidia-cublas",
        "cuda-toolkit",
        "cuda-bindings",
        "cupy-cuda12x",
        "faiss-gpu-cu12",
    ):
        with pytest.raises(UsageError):
            cpu.refuse_cuda([locks.Pin(name, "1.0", "", "")], "x86_64", dict)
    for name in ("nvidia-ml-py", "numba", "cudf", "onnxruntime", "accelerate", "cupy"):
        cpu.refuse_cuda([locks.Pin(name, "1.0", "", "")], "x86_64", dict)
