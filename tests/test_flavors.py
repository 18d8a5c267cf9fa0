"""What each flavor holds, by the facts; and that the stand-in says to dpkg what it must."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gathered import gathered
from packaging.requirements import Requirement

from envkit import facts
from envkit.plan import flavors, spec
from envkit.plan.flavors import Extras
from envkit.versions import Cuda

FACTS = facts.load()


def made(cuda: str, os: str, base: str = "wheels", flavor: str = "runtime", **more: object) -> Extras:
    """The extras for a build of ``cuda`` on ``os``; ``more`` are other keys of the spec."""
    keys = {"torch": "2.6.0", "python": "3.11", "base": base, "flavor": flavor, "name": "x", **more}
    text = "".join(f"{key} = {value!r}\n" for key, value in keys.items())
    wish = spec.parse(text, Path("envkit.toml"))
    return flavors.extras(wish, FACTS, FACTS.os(os), Cuda(cuda), base in ("pytorch", "ngc"))


def reasons(extras: Extras) -> dict[str, str]:
    return dict(extras.missing)


EVERY = [
    (cuda, os, base)
    for cuda in sorted({str(row.cuda) for row in FACTS.torches})
    for os in [row.name for row in FACTS.oses]
    for base in ("wheels", "nvidia", "pytorch", "ngc")
]


@gathered(EVERY)
def test_every_tool_is_there_or_the_reason_is(cuda: str, os: str, base: str) -> None:
    extras = made(cuda, os, base, "debug")
    assert {*extras.apt} == {"runtime", "devel", "debug", "tools"}
    assert {*extras.wheels} == {"devel", "debug"}
    for names in extras.apt.values():
        assert list(names) == sorted(set(names))
        assert all(spec.APT.match(name) for name in names)
    for layer, texts in extras.wheels.items():
        names = [Requirement(text).name for text in texts]
        assert len(names) == len(set(names)), (layer, names)
    for layer, name, path in extras.programs:
        assert path.startswith("nvidia/") and path.endswith("/" + name)
        assert layer in ("devel", "debug")
    for tool, why in extras.missing:
        assert why and why == why.strip().removesuffix("."), (tool, why)
        assert len(why) < 160, why
    if base == "wheels":
        held = {name for _, name, _ in extras.programs}
        held |= {
            row.tool
            for row in FACTS.tools
            if row.how == "apt" and row.os == os and row.package in (*extras.apt["devel"], *extras.apt["debug"])
        }
        tools = {"nvcc", "compute-sanitizer", "cuda-gdb", "cuobjdump", "nvdisasm", "nsys", "ncu", "cuda-memcheck"}
        assert tools <= held | {*reasons(extras)}
        assert not held & {*reasons(extras)}


def test_the_runtime_holds_compilers_and_headers_and_no_more() -> None:
    extras = made("13.2", "debian13", apt=["libgl1", "g++"])
    assert extras.apt["runtime"] == ("ca-certificates", "g++", "libgl1", "libpython3-dev", "python3")
    assert made("12.4", "ubuntu22.04", "pytorch").apt["runtime"] == ("g++",)


def test_the_flavor_asked_for_changes_nothing_of_a_base_without_torch() -> None:
    for base in ("wheels", "nvidia"):
        assert made("12.4", "debian13", base, "debug") == made("12.4", "debian13", base)


def test_debian_13_holds_every_tool_of_its_own_cuda() -> None:
    extras = made("12.4", "debian13")
    assert "nvidia-cuda-toolkit" in extras.apt["devel"]
    assert {"nvidia-cuda-gdb", "nsight-compute", "nsight-systems", "openssh-server"} <= {*extras.apt["debug"]}
    assert "nvidia-cuda-toolkit" not in extras.apt["debug"]
    assert extras.components == ("main", "non-free")
    assert [*reasons(extras)] == ["cuda-memcheck"]
    assert "compute-sanitizer" in reasons(extras)["cuda-memcheck"]
    # nvcc compiles against the wheels of the same minor, and never against a second copy of CUDA.
    assert [Requirement(text).name for text in extras.wheels["devel"]] == [
        "nvidia-cuda-nvcc-cu12",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-cccl-cu12",
    ]
    assert all("==12.4.*" in text for text in extras.wheels["devel"])


def test_no_driver_and_no_second_cuda_come_with_debians_tools() -> None:
    extras = made("12.4", "debian13")
    paragraph = flavors.stand_in(extras.given)
    provided = re.search(r"(?m)^Provides: (.*)$", paragraph)
    assert provided is not None
    names = {text.split()[0] for text in provided[1].split(", ")}
    assert {"nvidia-cuda-dev", "nvidia-profiler", "opencl-dev", "libcuda-12.4-1"} == names
    # A general library must never be stood in for: other packages would trust in it and fail.
    assert not any(name.startswith("lib") and not name.startswith("libcuda") for name in names)
    assert paragraph.startswith("Package: envkit-given\nStatus: install ok installed\n") and paragraph.endswith("\n\n")
    assert flavors.stand_in(made("13.2", "debian13").given) == ""


def test_the_reference_image_on_debian_12_has_the_sanitizer_from_its_wheel() -> None:
    extras = made("12.4", "debian12")
    assert "nvidia-cuda-sanitizer-api-cu12==12.9.*,>=12.9.79" in extras.wheels["debug"]
    assert [name for _, name, _ in extras.programs] == ["compute-sanitizer"]
    assert extras.components == ("main",)
    assert extras.given == ()
    assert {"nvcc", "cuda-gdb", "nsys", "ncu"} <= {*reasons(extras)}
    assert "debian13 has" in reasons(extras)["nvcc"] and "cuda-nvcc-12-4" in reasons(extras)["nvcc"]


@pytest.mark.parametrize("minor", ["13.0", "13.2", "13.4"])
def test_nvcc_of_cuda_13_comes_as_wheels_of_the_very_minor(minor: str) -> None:
    extras = made(minor, "debian13")
    wheels = {Requirement(text).name: text for text in extras.wheels["devel"]}
    for name in ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime"):
        assert f"=={minor}.*" in wheels[name]
    assert "nvidia-cuda-cccl" in wheels
    assert ("devel", "nvcc", "nvidia/cu13/bin/nvcc") in extras.programs
    assert ("devel", "ptxas", "nvidia/cu13/bin/ptxas") in extras.programs
    assert "nvcc" not in reasons(extras)
    assert f"cuda-gdb-{minor.replace('.', '-')}" in reasons(extras)["cuda-gdb"]


def test_a_tool_of_another_minor_serves_and_an_nvcc_does_not() -> None:
    extras = made("13.0", "debian13")  # no cuobjdump was published for it
    assert "nvidia-cuda-cuobjdump==13.2.*,>=13.2.86" in extras.wheels["debug"]
    assert "nvcc" in reasons(made("12.6", "debian13"))
    # Debian's cuobjdump of another minor would put its nvcc on PATH.
    other = made("12.6", "debian13")
    assert "nvidia-cuda-toolkit" not in {*other.apt["devel"], *other.apt["debug"]}
    assert "nvidia-cuda-gdb" in other.apt["debug"]
    assert any(text.startswith("nvidia-cuda-sanitizer-api-cu12==12.9") for text in other.wheels["debug"])


def test_a_tool_that_does_not_know_a_declared_gpu_is_left_out() -> None:
    extras = made("12.8", "debian13", gpus=["RTX 5090"])
    assert "nsight-compute" not in extras.apt["debug"]
    assert "sm_120" in reasons(extras)["ncu"] and "RTX 5090" in reasons(extras)["ncu"]
    assert "ncu" not in reasons(made("12.8", "debian13", gpus=["H100"]))
    assert "compute-sanitizer" not in reasons(extras)


def test_cuda_memcheck_is_there_while_cuda_has_it() -> None:
    assert "cuda-memcheck" not in reasons(made("11.8", "debian12"))
    assert "nvidia-cuda-toolkit" in made("11.8", "debian12").apt["devel"]
    assert "removed in 12.0" in reasons(made("12.1", "debian12"))["cuda-memcheck"]


def test_nvidias_base_takes_the_tools_from_nvidias_own_packages() -> None:
    extras = made("12.4", "ubuntu22.04", "nvidia")
    assert "cuda-nvcc-12-4" in extras.apt["devel"]
    assert {"cuda-gdb-12-4", "cuda-nsight-compute-12-4", "cuda-nsight-systems-12-4"} <= {*extras.apt["debug"]}
    assert extras.wheels["devel"] == ()
    assert extras.given == ()


def test_a_base_with_torch_holds_the_tools_or_says_so() -> None:
    assert {"nsys", "cuda-memcheck"} == {*reasons(made("12.4", "ubuntu22.04", "pytorch", "debug"))}
    assert "runtime images" in reasons(made("12.4", "ubuntu22.04", "pytorch"))["nvcc"]


def test_debians_cuda_packages_were_read_for_one_processor() -> None:
    extras = made("12.4", "debian13", platform="linux/arm64")
    assert "nvidia-cuda-toolkit" not in extras.apt["devel"]
    assert "debian13" in reasons(extras)["nvcc"]
    assert made("13.2", "debian13", platform="linux/arm64").programs == made("13.2", "debian13").programs


def test_a_broken_row_stops() -> None:
    (row,) = [row for row in FACTS.tools if row.tool == "nvcc" and row.how == "wheel" and row.version == "13.2.86"]
    with pytest.raises(ValueError, match="no requirement"):
        list(flavors._requirements(replace(row, needs=("==",))))


def test_all_that_is_chosen_is_a_row_with_a_source() -> None:
    known = {row.package for row in FACTS.tools} | {"envkit"}
    for cuda, os, _ in EVERY:
        extras = made(cuda, os)
        needed = {Requirement(text).name for texts in extras.wheels.values() for text in texts}
        beside = {Requirement(re.split("[=<>]", text)[0]).name for row in FACTS.tools for text in row.needs}
        assert needed <= known | beside
