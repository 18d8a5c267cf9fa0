"""A change is said by what it means, the breaking part first, and what is swapped is said mirrored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.version import Version

from envkit import facts
from envkit.diff import compare, render
from envkit.diff.compare import Change, Weight
from envkit.facts import Facts
from envkit.model import Observed
from envkit.plan import spec as spec_module
from envkit.plan.image_table import ImageTable
from envkit.plan.lockfile import Deb, Lock, Pin, Project, Source, parse
from envkit.plan.spec import Platform, Spec
from envkit.subjects import codec
from envkit.subjects.image import Image
from envkit.versions import Cuda, Driver, Python

DATA = Path(__file__).parent / "data" / "image"
FACTS = facts.load()

# The closures of envkit's own images, as their locks pin them.
TORCH_2_6 = {
    "filelock": "4.2.11", "fsspec": "2026.9.0", "jinja2": "3.1.6", "markupsafe": "3.0.4", "mpmath": "1.3.0",
    "networkx": "3.6.1", "numpy": "2.4.6", "nvidia-cublas-cu12": "12.4.5.8", "nvidia-cuda-cupti-cu12": "12.4.127",
    "nvidia-cuda-nvrtc-cu12": "12.4.127", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-cudnn-cu12": "9.1.0.70",
    "nvidia-cufft-cu12": "11.2.1.3", "nvidia-curand-cu12": "10.3.5.147", "nvidia-cusolver-cu12": "11.6.1.9",
    "nvidia-cusparse-cu12": "12.3.1.170", "nvidia-cusparselt-cu12": "0.6.2", "nvidia-nccl-cu12": "2.21.5",
    "nvidia-nvjitlink-cu12": "12.4.127", "nvidia-nvtx-cu12": "12.4.127", "sympy": "1.13.1", "torch": "2.6.0",
    "triton": "3.2.0", "typing-extensions": "4.16.0",
}  # fmt: skip
TORCH_2_11 = {
    "cuda-bindings": "13.5.0", "cuda-pathfinder": "1.9.0", "cuda-toolkit": "13.0.2", "filelock": "4.2.11",
    "fsspec": "2026.9.0", "jinja2": "3.1.6", "markupsafe": "3.0.4", "mpmath": "1.3.0", "networkx": "3.6.1",
    "numpy": "2.4.6", "nvidia-cublas": "13.1.0.3", "nvidia-cuda-cupti": "13.0.85", "nvidia-cuda-nvrtc": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96", "nvidia-cudnn-cu13": "9.19.0.56", "nvidia-cufft": "12.0.0.61",
    "nvidia-cufile": "1.15.1.6", "nvidia-curand": "10.4.0.35", "nvidia-cusolver": "12.0.4.66",
    "nvidia-cusparse": "12.6.3.3", "nvidia-cusparselt-cu13": "0.8.0", "nvidia-nccl-cu13": "2.28.9",
    "nvidia-nvjitlink": "13.0.88", "nvidia-nvshmem-cu13": "3.4.5", "nvidia-nvtx": "13.0.85", "setuptools": "81.0.0",
    "sympy": "1.14.0", "torch": "2.11.0", "triton": "3.6.0", "typing-extensions": "4.16.0",
}  # fmt: skip
TORCH_2_15 = {
    "cuda-bindings": "13.5.0", "cuda-pathfinder": "1.9.0", "cuda-toolkit": "13.2.2", "filelock": "4.2.11",
    "fsspec": "2026.9.0", "jinja2": "3.1.6", "markupsafe": "3.0.4", "mpmath": "1.3.0", "networkx": "3.7",
    "numpy": "2.5.5", "nvidia-cublas": "13.4.1.3", "nvidia-cuda-cccl": "13.3.5.0.6", "nvidia-cuda-cupti": "13.2.86",
    "nvidia-cuda-nvrtc": "13.2.86", "nvidia-cuda-runtime": "13.2.86", "nvidia-cudnn-cu13": "9.26.0.51",
    "nvidia-cufft": "12.2.0.57", "nvidia-cufile": "1.17.1.22", "nvidia-cusolver": "12.2.0.11",
    "nvidia-cusparse": "12.7.10.12", "nvidia-cusparselt-cu13": "0.8.1", "nvidia-nccl-cu13": "2.30.7",
    "nvidia-nvjitlink": "13.5.37", "nvidia-nvshmem-cu13": "3.7.2", "nvidia-nvtx": "13.2.86", "setuptools": "84.2.1",
    "sympy": "1.14.0", "torch": "2.15.0", "triton": "3.9.0", "typing-extensions": "4.16.0",
}  # fmt: skip


def pin(name: str, version: str, layer: str = "runtime") -> Pin:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Pin(name, version, file, sha256(file.encode()).hexdigest(), 1000, layer, ())


def deb(name: str, version: str, layer: str = "runtime") -> Deb:
    return Deb(name, version, "amd64", sha256(f"{name}{version}".encode()).hexdigest(), 2000, layer)


def lock(
    torch: str,
    wheels: Mapping[str, str],
    gpus: tuple[tuple[str, str], ...] = (),
    drivers: tuple[str, ...] = (),
    os: str = "debian12",
    python: str = "3.11",
    wheel_platform: Platform = Platform.AMD64,
) -> Lock:
    """The lock of a build that the facts know ("X.Y.Z+cuXYZ")."""
    row = next(row for row in FACTS.torches if row.name == torch)
    floor = FACTS.driver_min(row.cuda).compat
    return Lock(
        name="old",
        wish={"torch": str(row.torch), "cuda": "auto", "python": python, "gpus": tuple(n for n, _ in gpus),
              "drivers": drivers},
        torch=Version(str(row.torch)),
        variant=row.variant,
        cuda=row.cuda,
        cudnn=str(row.cudnn or ""),
        nccl=str(row.nccl or ""),
        triton=row.triton or "",
        python=Python(python),
        os=os,
        platform=wheel_platform.value,
        base="wheels",
        flavor="runtime",
        image="debian:12-slim",
        suite="bookworm",
        digest="sha256:" + "1" * 64,
        origin="packages",
        backend="",
        preinstalled=False,
        driver=floor,
        epoch=1794897324,
        archive="2026-11-15T08:12:33Z",
        components=("main",),
        gpus=tuple((name, sm, f"machine code of {sm}") for name, sm in gpus),
        apt={"runtime": ("gcc", "python3")},
        debs=(deb("gcc", "4:12.2.0-3"), deb("python3", "3.11.2-1+b1")),
        programs=(("debug", "py-spy", "../../bin/py-spy"),),
        missing=(("cuda-memcheck", "CUDA 12 has none"),),
        installer=pin("uv", "0.9.10"),
        wheels=tuple(pin(name, version) for name, version in wheels.items()),
        given=("nvidia-driver-libs (= 999)",),
    )  # fmt: skip


def texts(changes: tuple[Change, ...], weight: Weight | None = None) -> list[str]:
    return [change.text for change in changes if weight in (None, change.weight)]


def test_the_same_lock_under_another_name_is_no_change() -> None:
    old = lock("2.6.0+cu124", TORCH_2_6)

    assert compare.locks(old, replace(old, name="new"), FACTS) == ()
    assert render.render_text((), "a", "b") == "a -> b: no change\n"
    assert json.loads(render.to_json((), "lock", "a", "b"))["same"] is True


def test_the_step_to_another_cuda_major_says_who_is_left_behind() -> None:
    gpus = (("V100", "sm_70"), ("H100", "sm_90"))
    old = lock("2.6.0+cu124", TORCH_2_6, gpus, ("550",))
    new = lock("2.11.0+cu130", TORCH_2_11, gpus[1:], ("580.65.06",))
    changes = compare.locks(old, new, FACTS)

    breaking = texts(changes, Weight.BREAKING)
    assert breaking[0] == "drops sm_70 (V100, Quadro GV100, TITAN V)"  # the declared one first, as it was declared
    assert (
        "minimum driver 525.60.13 -> 580.65.06: branches 525 to 575 fall out, the long-term 535 among them" in breaking
    )
    assert "driver 550, declared, is too old for it" in breaking
    assert "CUDA 12.4 -> 13.0, another major: extensions must be built again" in breaking
    assert "torch 2.6.0+cu124 -> 2.11.0+cu130" in breaking
    notable = texts(changes, Weight.NOTABLE)
    assert "gains sm_100 (B200, GB200)" in notable
    assert "no longer declares V100 (sm_70)" in notable
    assert "cuDNN 9.1.0.70 -> 9.19.0.56 (no SASS below sm_75, before none below sm_50)" in notable
    assert "nvJitLink 12.4.127 -> 13.0.88" in notable  # of torch's own CUDA: no more to say
    assert "NCCL 2.21.5 -> 2.28.9" in notable
    assert "Triton 3.2.0 -> 3.6.0" in notable
    plain = texts(changes, Weight.PLAIN)
    assert "nvidia-cublas 12.4.5.8 -> 13.1.0.3" in plain  # renamed from one line to the next, and still one package
    assert "adds setuptools 81.0.0" in plain
    assert [change.weight for change in changes] == sorted((change.weight for change in changes), reverse=True)


def test_torch_2_10_to_2_11_on_one_cuda_drops_the_v100() -> None:
    old = lock("2.10.0+cu128", {"torch": "2.10.0"})
    new = lock("2.11.0+cu128", {"torch": "2.11.0"})
    changes = compare.locks(old, new, FACTS)

    assert "drops sm_70 (Tesla V100, Quadro GV100, TITAN V)" in texts(changes, Weight.BREAKING)
    assert not [change for change in changes if change.kind in ("driver", "cuda")]
    assert "cuDNN 9.10.2.21 -> 9.19.0.56 (no SASS below sm_75, before none below sm_50)" in texts(changes)
    assert "gains sm_70 (Tesla V100, Quadro GV100, TITAN V)" in texts(compare.locks(new, old, FACTS), Weight.NOTABLE)


def test_a_base_that_raises_the_minimum_driver_under_the_same_torch() -> None:
    old = replace(
        lock("2.10.0+cu128", {}), image="pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime", base="pytorch", os=""
    )
    new = replace(
        lock("2.10.0+cu130", {}), image="pytorch/pytorch:2.10.0-cuda13.0-cudnn9-runtime", base="pytorch", os="",
        wish=old.wish,
    )  # fmt: skip
    breaking = texts(compare.locks(old, new, FACTS), Weight.BREAKING)

    assert (
        "minimum driver 525.60.13 -> 580.65.06: branches 525 to 575 fall out, the long-term 535 among them" in breaking
    )
    assert "torch 2.10.0+cu128 -> 2.10.0+cu130" in breaking
    back = texts(compare.locks(new, old, FACTS), Weight.NOTABLE)
    assert "minimum driver 580.65.06 -> 525.60.13: branches 525 to 575 come in, the long-term 535 among them" in back


def test_a_floating_nvjitlink_alone_is_one_notable_change() -> None:
    old = lock("2.11.0+cu130", TORCH_2_11)
    new = lock("2.11.0+cu130", {**TORCH_2_11, "nvidia-nvjitlink": "13.5.37"})

    (there,) = compare.locks(old, new, FACTS)
    assert there.text == "nvJitLink 13.0.88 -> 13.5.37, of CUDA 13.5 beside torch's 13.0"
    assert (there.kind, there.weight, there.old, there.new) == ("library", Weight.NOTABLE, "13.0.88", "13.5.37")
    (back,) = compare.locks(new, old, FACTS)
    assert back.text == "nvJitLink 13.5.37 -> 13.0.88, of torch's own CUDA 13.0 again"


def test_a_cudnn_without_code_for_a_declared_gpu_breaks() -> None:
    gpus = (("V100", "sm_70"), ("A100", "sm_80"))
    old = lock("2.10.0+cu128", {"nvidia-cudnn-cu12": "9.10.2.21"}, gpus)
    new = lock("2.10.0+cu128", {"nvidia-cudnn-cu12": "9.24.0.43"}, gpus)

    (change,) = compare.locks(old, new, FACTS)
    assert (
        change.text == "cuDNN 9.10.2.21 -> 9.24.0.43 (no SASS below sm_75, before none below sm_50: V100 left without)"
    )
    assert change.weight is Weight.BREAKING
    (unknown,) = compare.locks(old, replace(new, wheels=(pin("nvidia-cudnn-cu12", "9.99.0.1"),)), FACTS)
    assert unknown.text == "cuDNN 9.10.2.21 -> 9.99.0.1"  # of an unknown release nothing is said


def test_a_card_that_code_of_an_older_minor_serves_is_not_left_without_any() -> None:
    gpus = (("RTX 4090", "sm_89"), ("A100", "sm_80"))
    old = lock("2.10.0+cu128", {"nvidia-cudnn-cu12": "9.10.2.21"}, gpus)
    new = lock("2.10.0+cu128", {"nvidia-cudnn-cu12": "9.24.0.43"}, gpus)
    (change,) = compare.locks(old, new, FACTS)
    assert change.text == "cuDNN 9.10.2.21 -> 9.24.0.43 (no SASS below sm_75, before none below sm_50)"


def test_swapped_order_gives_the_mirrored_words() -> None:
    old, new = lock("2.6.0+cu124", TORCH_2_6), lock("2.15.0+cu132", TORCH_2_15, os="debian13", python="3.13")
    there, back = texts(compare.locks(old, new, FACTS)), texts(compare.locks(new, old, FACTS))

    def mirrored(text: str) -> str:
        for one, other in (("drops", "gains"), ("adds", "removes"), ("declares", "no longer declares")):
            for this, that in ((one, other), (other, one)):
                if text.startswith(f"{this} "):
                    return f"{that} {text.removeprefix(this + ' ').split(',')[0]}"
        head, arrow, tail = text.partition(" -> ")
        label, _, before = head.rpartition(" ")
        after = tail.split(" ")[0].rstrip(":,")
        return f"{label} {after}{arrow}{before}"

    def cores(lines: list[str]) -> set[str]:
        return {mirrored(mirrored(line)) for line in lines}

    assert len(there) == len(back) > 25
    assert {mirrored(line) for line in there} == cores(back)
    assert {mirrored(line) for line in back} == cores(there)
    assert "python 3.11 -> 3.13" in there
    assert "operating system debian12 -> debian13" in there
    assert "glibc 2.36 -> 2.41" in there


def test_no_field_of_a_lock_changes_in_silence() -> None:
    built = Source("docopt", "docopt-0.6.2.tar.gz", "0" * 64, 25901, "3.11", ("setuptools==80.9.0 --hash=sha256:00",))
    old = replace(lock("2.6.0+cu124", TORCH_2_6, (("A100", "sm_80"),), ("550",)), sources=(built,))
    for to in (replace(built, compiled="8.0"), replace(built, needs=("einops",))):
        assert compare.locks(old, replace(old, sources=(to,)), FACTS)
    seen = set()
    for field in fields(Lock):
        value = getattr(old, field.name)
        if isinstance(value, bool):
            other: object = not value
        elif isinstance(value, str):
            other = "linux/arm64" if field.name == "platform" else f"{value}9"
        elif isinstance(value, (Version, Cuda, Driver, Python)):
            other = type(value)({"driver": "580.65.06", "cuda": "12.6"}.get(field.name, f"{value}9"))
        elif isinstance(value, int):
            other = value + 60
        elif isinstance(value, Pin):
            other = pin("uv", "0.9.11")
        elif isinstance(value, Mapping):
            other = {**value, "devel": ("git",)}
        elif value is None:
            other = Project("demo", "3.11", ())
        elif isinstance(value, ImageTable):
            other = replace(value, user="app")
        else:
            other = value[1:]
        changes = compare.locks(old, replace(old, **{field.name: other}), FACTS)
        if field.name == "name":
            assert changes == ()
        else:
            assert changes, field.name
            assert all(change.text == change.text.strip() and "\n" not in change.text for change in changes)
        seen.add(field.name)
    assert {"wish", "debs", "missing", "programs", "epoch"} <= seen
    covered_otherwise = replace(old, gpus=(("A100", "sm_80", "PTX of compute_80"),))
    assert texts(compare.locks(old, covered_otherwise, FACTS)) == ["gpus differs"]


def test_wheels_that_keep_their_version_and_change_otherwise() -> None:
    old = replace(lock("2.6.0+cu124", {}), cudnn="", nccl="", triton="", wheels=(pin("numpy", "2.4.6"),))

    def only(**to: object) -> str:
        (change,) = compare.locks(old, replace(old, wheels=(replace(old.wheels[0], **to),)), FACTS)
        return change.text

    assert only(layer="devel") == "numpy moves from layer runtime to devel"
    assert only(file="numpy-2.4.6-1-py3-none-any.whl").startswith("numpy 2.4.6 is another file: ")
    assert only(sha256="0" * 64).startswith("numpy 2.4.6 has another content under the same file name: sha256 ")
    assert only(size=7) == "numpy 2.4.6: its recorded size or its wheels for other platforms differ"
    assert only(others=(("a.whl", "0" * 64),)) == only(size=7)


def test_debian_packages_archive_base_tools_and_flavor_are_plain_or_notable() -> None:
    old = lock("2.6.0+cu124", TORCH_2_6)
    new = replace(
        old,
        digest="sha256:" + "2" * 64,
        archive="2026-11-20T20:02:11Z",
        flavor="debug",
        epoch=old.epoch + 60,
        debs=(deb("gcc", "4:12.2.0-4"), deb("binutils", "2.40-2", "tools"), replace(old.debs[1], layer="devel")),
        programs=(("debug", "compute-sanitizer", "nvidia/cu13/bin/compute-sanitizer"),),
        missing=(("cuda-gdb", "no wheel and no Debian package has it"),),
    )
    changes = compare.locks(old, new, FACTS)

    assert texts(changes, Weight.NOTABLE) == [
        "lacks cuda-gdb: no wheel and no Debian package has it",
        "no longer lacks cuda-memcheck",
    ]
    assert texts(changes, Weight.PLAIN) == [
        "adds binutils of the build stage 2.40-2",
        "gcc 4:12.2.0-3 -> 4:12.2.0-4",
        "python3 moves from layer runtime to devel",
        "removes the tool py-spy from debug",
        "adds the tool compute-sanitizer to debug",
        "base digest sha256:111111111111 -> sha256:222222222222",
        "apt archive of 2026-11-15T08:12:33Z -> 2026-11-20T20:02:11Z",
        "default flavor runtime -> debug",
        "time stamps of 2026-11-17T06:35:24Z -> 2026-11-17T06:36:24Z",
    ]
    other = replace(old, debs=(replace(old.debs[0], sha256="0" * 64), old.debs[1]))
    (change,) = compare.locks(old, other, FACTS)
    assert "gcc 4:12.2.0-3 has another content: sha256 " in change.text
    assert change.weight is Weight.NOTABLE


def test_many_plain_changes_become_a_count_and_gpu_packages_keep_their_names() -> None:
    few = {f"package-{letter}": "1" for letter in "abcdefgh"}
    old, new = lock("2.11.0+cu130", {}), lock("2.11.0+cu130", {**few, "nvidia-cublas": "13.1.0.3"})
    changes = compare.locks(old, new, FACTS)
    text = render.render_text(changes, "old", "new")

    assert text == (
        "old -> new: 9 plain\n\nplain\n  adds nvidia-cublas 13.1.0.3\n"
        "  adds 8 wheels: package-a 1, package-b 1, package-c 1 and 5 more\n"
    )
    document = json.loads(render.to_json(changes, "lock", "old", "new"))
    assert len(document["changes"]) == 9
    assert document["schema"] == "envkit.diff/1"
    assert document["subject"] == {"kind": "lock", "old": "old", "new": "new"}
    assert document["same"] is False
    assert set(document["changes"][0]) == {"kind", "weight", "text", "old", "new"}


def test_a_build_whose_code_was_not_read_is_said_to_be_unknown() -> None:
    changes = compare.locks(lock("2.10.0+cu128", {}), lock("2.10.0+cu129", {}), FACTS)
    said = "the machine code of torch 2.10.0+cu129 was not read: what is dropped or gained is not known"
    assert said in texts(changes, Weight.NOTABLE)


def test_on_another_machine_the_code_is_that_of_its_wheel() -> None:
    changes = compare.locks(lock("2.11.0+cu130", {}), lock("2.11.0+cu130", {}, wheel_platform=Platform.ARM64), FACTS)
    assert any(text.startswith("drops sm_75 (Tesla T4, ") for text in texts(changes, Weight.BREAKING))
    assert "machine x86_64 -> aarch64" in texts(changes, Weight.BREAKING)
    assert any(text.startswith("gains sm_110 (Jetson") for text in texts(changes))
    ada = next(text for text in texts(changes, Weight.NOTABLE) if text.startswith("sm_89 (L4, L40, L40S, "))
    assert ada.endswith(" more) runs machine code of sm_86 -> sm_80")
    assert ada[ada.index("(") : ada.index(" and ")].count(", ") == 3, "four products are named, the others counted"


def image(name: str) -> Image:
    document = json.loads((DATA / f"{name}.json").read_text())
    return codec.from_plain(Image, document.get("subject", document))


def test_two_images_are_compared_by_what_their_processes_loaded() -> None:
    old, new = image("torch-2.6-cu124"), image("torch-2.15-cu132")
    changes = compare.images(old, new, FACTS)

    assert "drops sm_70 (Tesla V100, Quadro GV100, TITAN V)" in texts(changes, Weight.BREAKING)
    assert "torch 2.6.0+cu124 -> 2.15.0+cu132" in texts(changes, Weight.BREAKING)
    assert any(text.startswith("minimum driver 525.60.13 -> 580.65.06") for text in texts(changes, Weight.BREAKING))
    notable = texts(changes, Weight.NOTABLE)
    assert "nvJitLink 12.4.127 -> 13.5.37, of CUDA 13.5 beside torch's 13.2" in notable
    assert "cuDNN 9.1.0.70 -> 9.26.0.51 (no SASS below sm_75, before none below sm_50)" in notable
    assert "cudart 12.4.127 -> 13.2.86" in notable
    assert len(set(texts(changes))) == len(changes)
    assert not any("cudnn_ops" in text for text in texts(changes))  # it moved with its package, which is named
    assert "loads nvrtc-builtins 13.2.86" in texts(changes)
    assert compare.images(old, old, FACTS) == ()


@pytest.mark.parametrize(
    ("other", "clean", "said"),
    [
        ("torch-2.15-cudart-twice", "torch-2.15-cu132", "cudart 13.2.86 -> 13.2 and 13.2.86, 1 -> 2 copies"),
        ("torch-2.6-cudnn-mixed", "torch-2.6-cu124", "cuDNN 9.1.0.70 -> 9.5.1"),
        ("torch-2.6-cudnn-9.0", "torch-2.6-cu124", "cuDNN 9.1.0.70 -> 9.0.0.312"),
    ],
)
def test_a_spoilt_image_differs_from_its_clean_twin_by_the_fault(other: str, clean: str, said: str) -> None:
    notable = texts(compare.images(image(clean), image(other), FACTS), Weight.NOTABLE)
    assert any(text.startswith(said) for text in notable), notable


def test_a_library_of_the_same_version_from_elsewhere_differs() -> None:
    old = image("torch-2.6-cu124")
    libraries = old.libraries.value or ()

    def with_nccl(**to: object) -> Image:
        moved = tuple(replace(lib, **to) if lib.name == "nccl" else lib for lib in libraries)
        return replace(old, libraries=Observed.of(moved, "maps"))

    strange = compare.images(old, with_nccl(owner="", owner_version="", path="/usr/lib/libnccl.so.2"), FACTS)
    assert "NCCL 2.21.5 is of nvidia-nccl-cu12 -> /usr/lib/libnccl.so.2" in texts(strange, Weight.NOTABLE)
    (moved,) = texts(compare.images(old, with_nccl(path="/opt/other/libnccl.so.2"), FACTS), Weight.PLAIN)
    assert moved.startswith("NCCL 2.21.5 lies in /opt/venv/")
    assert moved.endswith(" -> /opt/other")


def test_a_library_that_torch_gets_from_elsewhere_differs_though_the_same_ones_are_mapped() -> None:
    old = image("torch-2.6-cu124")
    first, *others = old.bindings.value or ()
    strange = replace(old, bindings=Observed.of((replace(first, path="/usr/lib/other.so"), *others), "dladdr"))

    (change,) = compare.images(old, strange, FACTS)
    assert change.text.startswith(f"{first.caller} gets {first.name} ({first.symbol}) from nvidia-")
    assert change.text.endswith(" -> /usr/lib/other.so")
    assert change.weight is Weight.NOTABLE


def test_a_library_is_said_itself_where_its_distribution_was_not_observed() -> None:
    old, new = image("torch-2.6-cu124"), image("torch-2.15-cu132")
    blind = replace(new, wheels=Observed.lost("no importlib.metadata"))

    said = texts(compare.images(old, blind, FACTS))
    assert "cudnn_ops 9.1.0.70 -> 9.26.0.51" in said
    assert "no longer loads curand 10.3.5.147" in said
    assert "the installed distributions were not observed in the second: no importlib.metadata" in said


def test_what_an_image_did_not_show_is_never_the_same() -> None:
    whole = image("torch-2.6-cu124")
    blind = replace(whole, libraries=Observed.lost("the process died"))

    (one,) = (change for change in compare.images(whole, blind, FACTS))
    assert one.text == "the loaded libraries were not observed in the second: the process died"
    (both,) = (change for change in compare.images(blind, replace(blind, name="other"), FACTS))
    assert both.text == "the loaded libraries were observed in neither: the process died"
    assert both.kind == "not-observed"
    assert compare.images(image("no-torch"), image("no-torch"), FACTS) == ()  # no torch, and that was observed
    named = replace(blind, digest="sha256:" + "1" * 64)
    assert compare.images(named, replace(named, name="other"), FACTS) == ()


def test_an_image_without_torch_says_that_once() -> None:
    changes = compare.images(image("torch-2.6-cu124"), image("no-torch"), FACTS)
    assert texts(changes, Weight.BREAKING) == ["torch 2.6.0+cu124 -> none", "import torch done -> absent"]
    assert not [change for change in changes if change.kind in ("driver", "cuda", "architecture")]


def test_what_an_image_says_reaches_no_terminal_unescaped() -> None:
    change = Change("library", "x lies in /\x1b[31m -> /\udcff", "/\x1b[31m", "/\udcff", Weight.PLAIN)
    assert "\x1b" not in render.render_text((change,), "\x1ba", "b")
    assert json.loads(render.to_json((change,), "image", "a", "b"))["changes"][0]["new"] == "/\\udcff"


def wish(text: str) -> Spec:
    return spec_module.parse(text, Path("envkit.toml"))


WISH = 'torch = "{torch}"\ncuda = "{cuda}"\npython = "3.11"\nos = "debian12"\n'


def test_two_wishes_are_compared_as_asked_and_as_chosen() -> None:
    old = wish(WISH.format(torch="2.6.0", cuda="12.4") + 'gpus = ["V100", "A100"]\n')
    new = wish(WISH.format(torch="2.11.0", cuda="13.0") + 'gpus = ["A100"]\napt = ["jq"]\n')
    changes = compare.specs(old, new, FACTS)

    assert "drops sm_70 (V100, Quadro GV100, TITAN V)" in texts(changes, Weight.BREAKING)
    assert any(text.startswith("minimum driver 525.60.13 -> 580.65.06") for text in texts(changes, Weight.BREAKING))
    assert any(text.startswith("cuDNN 9.1.0.70 -> 9.19.0.56") for text in texts(changes, Weight.NOTABLE))
    wished = {change.text for change in changes if change.kind == "wish"}
    assert wished >= {"spec cuda 12.4 -> 13.0", "spec gpus: drops V100", "spec apt: adds jq"}
    assert compare.specs(old, replace(old, path=Path("elsewhere"), name="other"), FACTS) == ()


def test_a_wish_that_cannot_be_met_is_a_change_of_its_own() -> None:
    old = wish(WISH.format(torch="2.6.0", cuda="12.4"))
    new = replace(old, gpus=("RTX 5090",))

    (first, *_) = compare.specs(old, new, FACTS)
    assert first.weight is Weight.BREAKING
    assert first.text.startswith(
        "the second spec cannot be met: torch 2.6.0+cu124 has no kernels for sm_120 (RTX 5090)"
    )
    (_, second) = sorted(compare.specs(new, old, FACTS), key=lambda change: change.weight)
    assert second.text.startswith("the first spec cannot be met: ")
    assert second.weight is Weight.NOTABLE


def test_changes_put_together_are_said_once_and_by_weight() -> None:
    plain = Change("wheel-added", "adds x", "", "1", Weight.PLAIN)
    loud = Change("torch", "torch 1 -> 2", "1", "2", Weight.BREAKING)
    assert compare.together([plain], [loud, plain]) == (loud, plain)
    assert compare.together([replace(loud, weight=Weight.PLAIN)], [loud]) == (loud,)


def test_the_facts_of_another_day_change_the_words_and_no_code(tmp_path: Path) -> None:
    """The products beside a capability are the rows': with another table they are others."""
    directory = Path(facts.__file__).parent
    for table in directory.glob("*.jsonl"):
        text = table.read_text()
        (tmp_path / table.name).write_text(text.replace("Tesla V100", "Tesla V999") if table.stem == "gpu" else text)
    changes = compare.locks(lock("2.10.0+cu128", {}), lock("2.11.0+cu128", {}), Facts(tmp_path))
    assert any("Tesla V999" in text for text in texts(changes))


def test_a_declared_branch_is_judged_by_its_oldest_release_as_the_solver_does() -> None:
    root = Path(__file__).parent.parent / "images"
    old, new = (
        parse((root / name / "envkit.lock").read_text(), name) for name in ("torch-2.10-cu128", "torch-2.11-cu130")
    )
    assert (old.wish["drivers"], new.wish["drivers"]) == (("570",), ("580",))
    said = [change.text for change in compare.locks(old, new, FACTS)]
    assert "driver 570, declared, is too old for it" in said
    assert not [text for text in said if "580, declared" in text]
