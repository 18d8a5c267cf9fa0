"""The tables keep their own rules, and the questions to them get the answers that the sources give."""

from __future__ import annotations

import ast
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import envkit.facts
from envkit.errors import UsageError
from envkit.facts import BaseImageRow, Coverage, Facts, load, show
from envkit.facts.rows import OsRow, TorchRow, columns, read_table
from envkit.facts.xid import XidCategory
from envkit.versions import Cuda, Cudnn, Driver, Python, Sm, Torch

FACTS = load()
HOME = Path(envkit.facts.__file__).parent
TABLES: dict[str, tuple[Any, ...]] = {
    "torch": FACTS.torches,
    "cuda": FACTS.cudas,
    "arch": FACTS.archs,
    "gpu": FACTS.gpus,
    "driver": FACTS.drivers,
    "cudnn": FACTS.cudnns,
    "image": FACTS.images,
    "os": FACTS.oses,
    "ngc": FACTS.ngcs,
    "tool": FACTS.tools,
    "cuda_error": FACTS.cuda_errors,
    "xid": FACTS.xids,
    "variant": FACTS.variants,
    "dependency": FACTS.dependencies,
    "known_bad": FACTS.known_bad,
    "ptx": FACTS.ptx_isas,
    "peak": FACTS.peaks,
    "good": FACTS.goods,
    "link": FACTS.links,
    "toolkit_fault": FACTS.toolkit_faults,
    "toolkit_regression": FACTS.toolkit_regressions,
    "torch_old": FACTS.torches_old,
    "ngc_wide": FACTS.ngcs_wide,
    "image_old": FACTS.images_old,
    "image_env": FACTS.image_envs,
    "pytorch_image": FACTS.pytorch_images,
    "base_image": FACTS.base_images,
    "last_release": FACTS.last_releases,
    "wheel_python": FACTS.wheel_pythons,
    "refused": FACTS.refused_packages,
    "sdist": FACTS.sdists,
    "metadata_refused": FACTS.metadata_refused,
    "torch_abi": FACTS.torch_abis,
    "apt_key": FACTS.apt_keys,
    "installer": FACTS.installers,
    "os_life": FACTS.os_lives,
    "python_life": FACTS.python_lives,
    "cuda_old": FACTS.cudas_old,
    "gpu_package": FACTS.gpu_packages,
    "variable": FACTS.variables,
    "variable_pair": FACTS.variable_pairs,
    "package_build": tuple(FACTS.package_builds.values()),
    "nccl": FACTS.nccls,
    "torch_need": FACTS.torch_needs,
    "wide_need": FACTS.wide_needs,
    "cuda_build": FACTS.cuda_builds,
    "torch_use": FACTS.torch_uses,
    "milestone": FACTS.milestones,
    "glibc_only": FACTS.glibc_only,
    "system_library": FACTS.system_libraries,
    "source_python": FACTS.source_pythons,
    "needs_python": FACTS.needs_pythons,
    "require": FACTS.requires,
    "require_use": FACTS.require_uses,
    "nvidia_need": FACTS.nvidia_needs,
    "wheel_page": FACTS.wheel_pages,
    "source_arch": FACTS.source_archs,
    "package_arch": FACTS.package_archs,
}
KEYS: dict[str, Any] = {
    "toolkit_fault": lambda row: row.cve,
    "toolkit_regression": lambda row: row.id,
    "torch_old": lambda row: (row.torch, row.cuda),
    "image_old": lambda row: (row.image, row.cuda, row.os),
    "image_env": lambda row: (row.image, row.since),
    "pytorch_image": lambda row: row.torch,
    "base_image": lambda row: (
        row.image,
        tuple(int(part) for part in re.findall(r"[0-9]+", row.since)),
        row.tags,
        row.word,
    ),
    "last_release": lambda row: (row.name, row.python),
    "wheel_python": lambda row: (row.package, Version(row.since)),
    "refused": lambda row: row.name,
    "sdist": lambda row: row.name,
    "metadata_refused": lambda row: row.name,
    "torch_abi": lambda row: row.package,
    "apt_key": lambda row: row.image,
    "installer": lambda row: row.name,
    "os_life": lambda row: row.name,
    "python_life": lambda row: row.python,
    "cuda_old": lambda row: row.version,
    "gpu_package": lambda row: (row.name, tuple(int(part) for part in re.findall(r"[0-9]+", row.since))),
    "package_build": lambda row: row.name,
    "variable": lambda row: row.name,
    "variable_pair": lambda row: row.id,
    "nccl": lambda row: row.version,
    "torch_need": lambda row: (row.package, Version(row.since)),
    "wide_need": lambda row: row.package,
    "require": lambda row: (row.package, Version(row.since)),
    "require_use": lambda row: (row.package, Version(row.since)),
    "nvidia_need": lambda row: (row.package, Version(row.since), row.extras),
    "cuda_build": lambda row: (row.package, Version(row.since)),
    "torch_use": lambda row: (row.package, Version(row.since)),
    "milestone": lambda row: row.name,
    "glibc_only": lambda row: row.name,
    "system_library": lambda row: row.package,
    "source_python": lambda row: row.package,
    "needs_python": lambda row: (row.package, Version(row.since)),
    "wheel_page": lambda row: row.package,
    "source_arch": lambda row: (row.package, Version(row.since)),
    "package_arch": lambda row: (row.package, Version(row.since)),
    "cuda_error": lambda row: row.code,
    "xid": lambda row: row.code,
    "variant": lambda row: row.package,
    "dependency": lambda row: row.package,
    "known_bad": lambda row: row.id,
    "ptx": lambda row: row.cuda,
    "peak": lambda row: row.gpu,
    "good": lambda row: (row.gpu, row.test, row.measure),
    "link": lambda row: (row.way, row.gbit or 0.0),
    "torch": lambda row: (row.torch, row.cuda),
    "cuda": lambda row: row.version,
    "arch": lambda row: row.sm,
    "gpu": lambda row: (row.sm, row.name),
    "driver": lambda row: row.branch,
    "cudnn": lambda row: row.version,
    "image": lambda row: (row.image, row.torch or Torch("0"), row.cuda, row.os or ""),
    "os": lambda row: row.name,
    "ngc": lambda row: (row.image, row.tag),
    "ngc_wide": lambda row: (row.image, row.tag),
    "tool": lambda row: (row.tool, row.how, row.package, row.cuda_major or 0, row.version or "", row.os or ""),
}


def build(name: str) -> TorchRow:
    """The one build that pip calls ``name``."""
    (row,) = FACTS.torch(name)
    return row


# The data


def test_every_file_is_a_table() -> None:
    assert {path.stem for path in HOME.glob("*.jsonl")} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_sorted_and_unique(name: str) -> None:
    keys = [KEYS[name](row) for row in TABLES[name]]
    assert keys
    assert len(set(keys)) == len(keys)
    if name == "tool":  # its rows follow the CUDA they belong to; only the tools themselves are in order
        keys = list(dict.fromkeys(row.tool for row in FACTS.tools))
    assert keys == sorted(keys)


@pytest.mark.parametrize("name", TABLES)
def test_rows_name_source_and_day(name: str) -> None:
    for row in TABLES[name]:
        assert len(row.source) > 5, row
        assert re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", row.seen), row


@pytest.mark.parametrize("name", TABLES)
def test_null_stays_unknown_and_empty_stays_none(name: str) -> None:
    lines = (HOME / f"{name}.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == len(TABLES[name])
    for line, row in zip(lines, TABLES[name], strict=True):
        data = json.loads(line)
        assert tuple(data) == columns(type(row))
        for label, value in data.items():
            assert (value is None) == (getattr(row, label) is None), (label, row)
            if isinstance(value, (list, dict)):
                assert len(value) == len(getattr(row, label))


@pytest.mark.parametrize("path", sorted(HOME.glob("*.jsonl")), ids=lambda path: path.name)
def test_files_are_small_and_name_no_package_registry(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text) < 400_000
    assert not re.search(r"pypi\.(org|nvidia)|pythonhosted|deb\.debian|npmjs|\.\./", text, re.IGNORECASE)


def test_code_holds_no_release() -> None:
    known = {str(row.torch) for row in FACTS.torches} | {str(row.cuda) for row in FACTS.torches}
    known |= {str(row.first) for row in FACTS.drivers if row.first}
    for path in HOME.glob("*.py"):
        numbers = set(re.findall(r"[0-9]+(?:\.[0-9]+)+", path.read_text("utf-8")))
        assert not numbers & known, path


def test_each_torch_is_built_for_a_known_cuda() -> None:
    minors = {row.version.upto(2) for row in FACTS.cudas}
    for row in FACTS.torches:
        assert row.cuda in minors, row.name
        assert row.variant == f"cu{row.cuda.major}{row.cuda.minor}"
        assert row.toolkit is None or row.toolkit.upto(2) == row.cuda
    cudnns = {row.version for row in FACTS.cudnns}
    assert all(row.cudnn in cudnns for row in FACTS.torches if row.cudnn)


def test_each_release_has_one_default_with_all_measured_fields() -> None:
    for release in {row.torch for row in FACTS.torches}:
        (row,) = (row for row in FACTS.torches if row.torch == release and row.default)
        measured = (row.cudnn, row.nccl, row.triton, row.pythons, row.platform, row.glibc, row.archs, row.ptx)
        assert row.published is True
        assert None not in measured, row.name
        assert row.pypi_aarch64 in ("cpu", "cuda")
    assert all(row.pythons is None and row.platform is None for row in FACTS.torches if not row.default)


def test_no_build_holds_code_its_toolkit_cannot_make() -> None:
    targets = {row.version.upto(2): set(row.archs) for row in FACTS.cudas}
    for row in FACTS.torches:
        for archs in (row.archs, row.ptx, row.archs_aarch64, row.ptx_aarch64):
            assert set(archs or ()) <= targets[row.cuda], row.name


def test_arch_bounds_agree_with_the_toolkits() -> None:
    for arch in FACTS.archs:
        having = [row.version.upto(2) for row in FACTS.cudas if arch.sm in row.archs]
        if arch.dropped_in is None:
            assert arch.last is None
            assert having[-1] == FACTS.cudas[-1].version.upto(2)
        else:
            assert having[-1] == arch.last
            assert arch.last is not None
            assert arch.last < arch.dropped_in
        if arch.first is not None and arch.first > having[0]:
            pytest.fail(f"{arch.sm} is in CUDA {having[0]}, its row says from {arch.first} on")
        for exact in arch.exact:
            assert (exact.major, exact.minor) == (arch.sm.major, arch.sm.minor)


def test_driver_floors_rise_with_cuda() -> None:
    floors = [row.floor for row in FACTS.cudas]
    assert floors == sorted(floors)
    assert {len({row.floor for row in FACTS.cudas if row.version.major == major}) for major in (11, 12, 13)} == {1}
    minimums = [row.driver for row in FACTS.cudas if row.driver]
    assert minimums == sorted(minimums)
    assert all(row.driver >= row.floor for row in FACTS.cudas if row.driver)


def test_compat_packages_serve_branches_up_to_their_own_cuda() -> None:
    branches = {row.branch: row for row in FACTS.drivers}
    read = [row for row in FACTS.cudas if row.compat is not None]
    assert len(read) > 20
    for row in FACTS.cudas:
        assert (row.compat is None) == (not row.compat_source), row.version
    for row in read:
        assert row.compat
        assert list(row.compat) == sorted(set(row.compat))
        for branch in row.compat:
            native = branches[branch].cuda
            assert native is None or native <= row.version.upto(2), (row.version, branch)
    assert {row.version.major for row in read if 470 in (row.compat or ())} == {11, 12}


def test_driver_branches_speak_ever_newer_cuda() -> None:
    native = [row.cuda for row in FACTS.drivers if row.cuda]
    assert native == sorted(native)
    for row in FACTS.drivers:
        for release in (row.first, row.latest):
            assert release is None or release.major == row.branch


def test_each_gpu_has_an_architecture_and_the_same_tegra_mark() -> None:
    archs = {row.sm: row for row in FACTS.archs}
    for row in FACTS.gpus:
        assert row.sm in archs, row.name
        assert row.tegra == archs[row.sm].tegra, row.name
        assert not (row.tegra and row.datacenter)
        assert FACTS.gpu(row.name) is row
        assert all(FACTS.gpu(alias) is row for alias in row.aliases)


def test_image_tags_are_well_formed() -> None:
    nvidia = re.compile(r"[0-9.]+(-cudnn[89]?)?-(base|runtime|devel)-[a-z0-9.]+\Z")
    pytorch = re.compile(r"[0-9.]+-cuda[0-9.]+-cudnn[89]-(runtime|devel)\Z")
    for row in FACTS.images:
        assert row.tags
        for tag in row.tags:
            assert (nvidia if row.image == "nvidia/cuda" else pytorch).match(tag), tag
            assert str(row.cuda) in tag
            assert str(row.os or "") in tag
        assert set(row.digests) <= set(row.tags)
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in row.digests.values())
        assert row.cudnn is None or any("-cudnn" in tag for tag in row.tags)


@pytest.mark.parametrize("cuda", ["12.2.0", "12.3.0", "12.3.1", "12.4.0", "12.5.0"])
def test_cuda_images_that_never_had_cudnn(cuda: str) -> None:
    assert FACTS.image_tags("nvidia/cuda", cuda=Cuda(cuda), cudnn=False)
    assert FACTS.image_tags("nvidia/cuda", cuda=Cuda(cuda), cudnn=True) == ()


@pytest.mark.parametrize(
    ("cudnn", "cuda", "sm", "machine", "state"),
    [
        ("9.1.0.70", "12.4", "sm_70", "x86_64", "has"),
        ("9.1.0.70", "12.4", "sm_89", "x86_64", "has"),
        ("9.10.2.21", "12.8", "sm_103", "x86_64", "has"),
        ("9.24.0.43", "13.0", "sm_70", "x86_64", "unseen"),
        ("9.24.1.1", "12.9", "sm_61", "x86_64", "unseen"),
        ("9.17.0.29", "12.8", "sm_70", "x86_64", "none"),
        ("9.17.0.29", "12.8", "sm_70", "aarch64", "none"),
        ("9.17.0.29", "12.8", "sm_75", "x86_64", "has"),
        ("9.17.0.29", "12.8", "sm_90", "aarch64", "unknown"),
        ("9.17.0.29", "11.8", "sm_75", "x86_64", "unknown"),
        ("8.9.7.29", "12.1", "sm_70", "x86_64", "unknown"),
        ("8.5.0.96", "11.7", "sm_37", "x86_64", "unknown"),
        ("9.99.0.1", "13.0", "sm_90", "x86_64", "unknown"),
    ],
)
def test_what_a_cudnn_has_for_a_gpu(cudnn: str, cuda: str, sm: str, machine: str, state: str) -> None:
    found = FACTS.cudnn_code(Cudnn(cudnn), Cuda(cuda), Sm.parse(sm), machine=machine)
    assert found.state == state
    assert found.row is None or found.row.version == Cudnn(cudnn)


def test_no_late_cudnn_has_code_below_turing() -> None:
    late = [row for row in FACTS.cudnns if row.version >= Cudnn("9.24")]
    assert late
    for row in late:
        for line in row.archs or {}:
            states = {
                str(arch.sm): FACTS.cudnn_code(row.version, Cuda(f"{line[2:]}.0"), arch.sm, arch.tegra).state
                for arch in FACTS.archs
            }
            below = {state for sm, state in states.items() if Sm.parse(sm) < Sm(7, 5)}
            assert below == {"unseen"}, row.version
            assert states["sm_75"] == states["sm_89"] == states["sm_103"] == "has"


def test_a_bare_branch_is_its_oldest_release() -> None:
    assert FACTS.oldest_release(Driver("580")) == Driver("580.65.06")
    assert FACTS.oldest_release(Driver("580.178.04")) == Driver("580.178.04")
    assert FACTS.oldest_release(Driver("999")) == Driver("999")


def test_the_compat_package_of_a_minor_is_that_of_its_newest_release_read() -> None:
    row = FACTS.forward_compat(Cuda("13.0"))
    assert row is not None
    assert (str(row.version), row.compat) == ("13.0.2", (535, 550, 565, 570, 575))
    assert FACTS.forward_compat(Cuda("13.4")) is None
    assert FACTS.forward_compat(Cuda("99.0")) is None


def test_the_list_of_an_image_is_its_publishers() -> None:
    assert FACTS.image_list("nvidia/cuda").retired is not None
    assert FACTS.image_list("pytorch/pytorch").image == "pytorch/pytorch"
    with pytest.raises(UsageError, match="no facts about the image"):
        FACTS.image_list("plan9/cuda")


def test_cudnn_left_old_gpus_at_the_recorded_release() -> None:
    with_volta = [row.version for row in FACTS.cudnns if Sm(7, 0) in (row.archs or {}).get("cu12", ())]
    without = [row.version for row in FACTS.cudnns if row.archs and Sm(7, 0) not in row.archs.get("cu12", ())]
    assert str(max(with_volta)) == "9.10.2.21"
    assert str(min(without)) == "9.11.0.98"


def test_each_torch_has_an_nccl_of_the_table() -> None:
    known = {row.version for row in FACTS.nccls}
    assert all(row.nccl in known for row in FACTS.torches if row.nccl and row.default and row.cuda.major > 11)


def test_releases_of_a_package_stand_in_one_row_of_torch_need() -> None:
    assert len(FACTS.torch_needs) >= 200
    assert len(FACTS.torch_needs_of) >= 25
    for name, rows in FACTS.torch_needs_of.items():
        bounds = [Version(bound) for row in rows for bound in (row.since, row.until)]
        assert bounds == sorted(bounds), name
        for row in rows:
            SpecifierSet(row.torch or "")
            assert bool(row.note) == (not row.torch), row


def test_what_a_release_asks_of_others_is_in_one_row_and_its_own_metadata_comes_first() -> None:
    for table in (FACTS.requires, FACTS.require_uses):
        for name in {row.package for row in table}:
            rows = [row for row in table if row.package == name]
            ends = [Version(end) for row in rows for end in (row.since, row.until)]
            assert ends == sorted(ends), name
            for row in rows:
                for other, specifier in row.requires.items():
                    SpecifierSet(specifier.replace("{version}", row.until))
                    assert re.fullmatch(r"[a-z0-9-]+", other)
    metadata, use = FACTS.require_rows("vllm", "0.11.0")
    assert metadata in FACTS.requires and use in FACTS.require_uses and use.note
    assert FACTS.require_rows("transformers", "4.45.2")[0].requires["tokenizers"] == "<0.21,>=0.20"
    assert FACTS.require_rows("transformers", "0.0.1") == () == FACTS.require_rows("nobody", "1.0")


def test_torch_need_agrees_with_the_pairs_of_the_torch_table() -> None:
    """Where torchvision and torchaudio name one torch exactly, both tables must say the same."""
    tried = 0
    for row in FACTS.torches:
        for package, versions in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
            for version in versions or ():
                need = FACTS.torch_need(package, version)
                if need is not None and need.torch:
                    tried += 1
                    assert SpecifierSet(need.torch).contains(str(row.torch)), (package, version)
    assert tried > 20


def test_what_a_release_asks_of_torch() -> None:
    row = FACTS.torch_need("vllm", "0.6.3")
    assert row is not None and row.torch == "==2.4.0"
    assert FACTS.torch_need("vllm", "0.6.3.post1") is not None
    assert FACTS.torch_need("vllm", "9999.0") is None
    assert FACTS.torch_need("vllm", "of today") is None
    assert FACTS.torch_need("nobody", "1.0") is None


# Reading


OS_ROW = (
    '{"name": "a1", "codename": "b", "glibc": "2.36", "python": "3.11", "image": "a:1", "note": "",'
    ' "source": "here", "seen": "2026-01-01"}'
)


def test_a_row_is_read(tmp_path: Path) -> None:
    (tmp_path / "os.jsonl").write_text(OS_ROW)
    (row,) = Facts(tmp_path).oses
    assert (row.name, row.python) == ("a1", Python("3.11"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seen"', '"sean"'),
        ('"note": "",', ""),
        ('"note": ""', '"note": "", "more": 1'),
        ('"2.36"', "2.36"),
        ('"2.36"', "null"),
        ('"2.36"', '"two"'),
        ('"a:1"', '["a:1"]'),
    ],
)
def test_a_row_that_does_not_fit_stops_the_program(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "os.jsonl"
    path.write_text(f"{OS_ROW}\n{OS_ROW.replace(old, new)}\n")
    with pytest.raises(ValueError, match=r"os\.jsonl:2: "):
        read_table(OsRow, path)


def test_the_images_are_read_when_they_are_asked_for() -> None:
    facts = Facts()
    assert facts.torches and facts.cudas and facts.gpus and facts.oses
    assert "images" not in vars(facts)
    assert facts.images


# Questions


def test_torch_by_release_prefix_variant_and_specifier() -> None:
    assert [row.name for row in FACTS.torch("2.6")] == ["2.6.0+cu126", "2.6.0+cu124", "2.6.0+cu118"]
    assert FACTS.torch("2.6.0") == FACTS.torch("2.6") == FACTS.torch("torch==2.6.0")
    assert build("2.6.0+cu124").default
    assert {str(row.torch) for row in FACTS.torch(">=2.6,<2.8")} == {"2.6.0", "2.7.0", "2.7.1"}
    assert str(FACTS.torch(">=2.6,<2.8")[0].torch) == "2.7.1"
    assert {str(row.torch) for row in FACTS.torch("2.1")} == {"2.1.0", "2.1.1", "2.1.2"}


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("2.6.1", "nearest known: 2.6.0"),
        ("2.6.0+cu125", "its builds: cu118, cu124, cu126"),
        ("torch==1.12.1", "take 2.0.0 or a newer one"),
        (">=9", "write a range with one of them, such as >=2."),
        (">=2.6,<2.5", "write a range with one of them, such as >=2."),
        ("latest", "newest known: 2."),
        ("", "newest known: 2."),
        ("2.6.x", "nearest known: 2.6.0"),
    ],
)
def test_an_unknown_torch_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        FACTS.torch(text)
    assert text.removeprefix("torch==") in caught.value.message
    assert near in caught.value.fix


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("rtx-4090", "GeForce RTX 4090"),
        ("rtx4090", "GeForce RTX 4090"),
        ("4090", "GeForce RTX 4090"),
        ("1080 ti", "GeForce GTX 1080 Ti"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "GeForce RTX 3080"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("a100 80gb pcie", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "Tesla V100"),
        ("T4", "Tesla T4"),
        ("L4", "L4"),
        ("A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("quadro rtx 6000", "Quadro RTX 6000"),
        ("DGX Spark", "GB10"),
        ("Jetson Orin", "Jetson AGX Orin"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server Edition"),
    ],
)
def test_gpu_names_as_people_write_them(text: str, name: str) -> None:
    assert FACTS.gpu(text).name == name


def test_gpu_by_capability() -> None:
    assert FACTS.gpu("sm_90").sm == FACTS.gpu("9.0").sm == Sm(9, 0)
    assert FACTS.gpu("sm_90").datacenter is None
    assert FACTS.gpu("sm_87").tegra


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("RTX 4091", "GeForce RTX 4090"),
        ("GeForce RTX 509", "GeForce RTX 5090"),
        ("RTX 6000", "RTX 6000"),
        ("sm_91", "sm_90"),
        ("Radeon VII", ""),
        ("", ""),
        ("nvidia", ""),
    ],
)
def test_an_unknown_gpu_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        FACTS.gpu(text)
    assert near in caught.value.fix
    assert caught.value.fix


@given(st.text(max_size=30))
def test_no_text_breaks_a_lookup(text: str) -> None:
    for topic in show.TOPICS:
        try:
            assert show.describe(FACTS, topic, text)
        except UsageError as error:
            told = (error.message, error.fix)
            assert all(told)


@pytest.mark.parametrize("text", ["debian12", "Debian 12", "debian:12", "bookworm", "DEBIAN-12"])
def test_os_names(text: str) -> None:
    row = FACTS.os(text)
    assert (row.name, str(row.glibc), str(row.python)) == ("debian12", "2.36", "3.11")


def test_an_unknown_os_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        FACTS.os("ubuntu22.10")
    assert "ubuntu22.04" in caught.value.fix


def test_cuda_by_minor_release_and_variant() -> None:
    assert str(FACTS.cuda("12.4").version) == "12.4.1"
    assert str(FACTS.cuda("12.4.0").version) == "12.4.0"
    assert FACTS.cuda("cu124") is FACTS.cuda("CUDA 12.4") is FACTS.cuda("12.4")
    with pytest.raises(UsageError, match=r"12\.7") as caught:
        FACTS.cuda("12.7")
    assert caught.value.fix.startswith("nearest known: 12.8.")


def test_driver_minimums() -> None:
    minor = FACTS.driver_min(Cuda("12.4"))
    assert (str(minor.own), str(minor.compat)) == ("550.54.14", "525.60.13")
    assert "Table 3" in minor.own_source
    assert minor.compat_source
    assert str(FACTS.driver_min(Cuda("12.4.1")).own) == "550.54.15"


def test_driver_minimums_that_were_not_read_stay_unknown() -> None:
    assert FACTS.driver_min(Cuda("13.4")).own is None
    assert FACTS.driver_min(Cuda("12.9.2")).own is None
    never_released = FACTS.driver_min(Cuda("12.7"))
    assert (never_released.own, str(never_released.compat)) == (None, "525.60.13")
    assert FACTS.driver_min(Cuda("8.0")).compat is None
    assert str(FACTS.driver_min(Cuda("10.2.89")).compat) == "440.33"


def test_native_cuda_by_branch() -> None:
    assert FACTS.native_cuda(Driver("550.163.01")) == Cuda("12.4")
    assert FACTS.native_cuda(Driver("580.65.06")) == Cuda("13.0")
    assert FACTS.native_cuda(Driver("440.33.01")) is None
    assert FACTS.native_cuda(Driver("999.1")) is None


def test_image_tags_by_wish() -> None:
    tags = FACTS.image_tags("nvidia/cuda", cuda=Cuda("12.4"), os="ubuntu22.04", flavor="devel", cudnn=True)
    assert [tag.reference for tag in tags] == ["nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"]
    assert tags[0].digest == "sha256:622e78a1d02c0f90ed900e3985d6c975d8e2dc9ee5e61643aed587dcf9129f42"
    assert str(tags[0].row.cudnn) == "9.1.0.70"
    torch = FACTS.image_tags("pytorch/pytorch", torch=Torch("2.6.0"))
    assert "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel" in {tag.reference for tag in torch}
    newest = FACTS.image_tags("nvidia/cuda", flavor="base")
    assert newest[0].row.cuda >= newest[-1].row.cuda
    assert FACTS.image_tags("nowhere/nothing") == ()


def test_an_image_tells_what_it_cannot_hold_from_what_is_unknown() -> None:
    base = dict(show.describe(FACTS, "image", "nvidia/cuda:13.4.1-devel-ubuntu24.04"))
    assert "torch" not in base
    assert base["retired"] == "unknown"
    assert dict(show.describe(FACTS, "image", "nvidia/cuda:12.4.0-devel-ubuntu22.04"))["retired"] == "yes"
    assert dict(show.describe(FACTS, "image", "nvidia/cuda:12.4.1-devel-ubuntu22.04"))["retired"] == "no"


def test_peaks_are_found_by_the_whole_name() -> None:
    sxm, pcie = FACTS.peak("NVIDIA H100 80GB HBM3"), FACTS.peak("NVIDIA H100 PCIe")
    assert sxm is not None and pcie is not None
    assert (sxm.memory_gbs, pcie.memory_gbs) == (3350.0, 2000.0)
    for name in ("NVIDIA H100", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""):
        assert FACTS.peak(name) is None
    good = FACTS.good("NVIDIA H100 80GB HBM3", "speed-gemm", "bf16.tflops")
    assert good is not None and good.value > 700.0
    assert FACTS.good("NVIDIA H100 PCIe", "speed-gemm", "bf16.tflops") is None


def test_no_name_has_two_peaks_and_what_was_reached_is_below_the_peak() -> None:
    names = [name for row in FACTS.peaks for name in row.names]
    assert len(set(names)) == len(names)
    peaks = {row.gpu: row for row in FACTS.peaks}
    fields_of = {"copy": "memory_gbs", "triad": "memory_gbs", "h2d": "pcie_gbs", "d2h": "pcie_gbs"}
    for good in FACTS.goods:
        assert good.gpu in peaks
        what = good.measure.partition(".")[0]
        peak = getattr(peaks[good.gpu], fields_of.get(what, what), None)
        assert peak is None or 0.3 * peak < good.value < peak, good


def test_ngc_images_are_shown_with_their_torch() -> None:
    (entry,) = show.data(FACTS, "image", "nvcr.io/nvidia/pytorch:24.04-py3")
    assert entry["torch"].startswith("2.3.0a0")
    assert len(show.data(FACTS, "image", "nvcr.io/nvidia/pytorch")) == len(FACTS.ngcs)


def test_image_tag_by_reference() -> None:
    found = FACTS.image_tag("docker.io/nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04@sha256:" + "0" * 64)
    assert found is not None
    assert (found.flavor, found.cudnn) == ("runtime", True)
    assert FACTS.image_tag("nvidia/cuda:12.4.0-cudnn-runtime-ubuntu22.04") is None
    assert FACTS.image_tag("nvidia/cuda") is None


def test_old_torches_are_for_reading_and_never_for_choosing() -> None:
    assert FACTS.torches_old[-1].torch < FACTS.torches[0].torch
    with pytest.raises(UsageError):
        FACTS.torch("1.13.1")
    for release in {row.torch for row in FACTS.torches_old} - {Torch("1.8.2")}:  # the LTS was never on PyPI
        (default,) = [row for row in FACTS.torches_old if row.torch == release and row.default]
        assert default.pythons and default.published


@pytest.mark.parametrize(
    ("version", "variants", "default"),
    [
        ("1.13.1", {"cu116", "cu117"}, "cu117"),
        ("1.12.1+cu113", {"cu102", "cu113", "cu116"}, "cu102"),
        ("1.7.1", {"cu92", "cu101", "cu102", "cu110"}, "cu102"),
        ("1.4", {"cu92", "cu101"}, "cu101"),
        ("1.0.0", {"cu80", "cu90", "cu100"}, "cu90"),
        ("1.8.2", {"cu102", "cu111"}, ""),
        ("2.1.0", {"cu118", "cu121"}, "cu121"),
        ("0.4.1", set(), ""),
        ("", set(), ""),
    ],
)
def test_builds_of_any_age(version: str, variants: set[str], default: str) -> None:
    builds = FACTS.torch_builds(version)
    assert {build.variant for build in builds} == variants
    assert [build.variant for build in builds if build.default] == [default] * bool(default)


def test_the_newest_torch_of_an_index() -> None:
    assert FACTS.newest_torch(None) == FACTS.newest_torch("cpu") == "2.15.0"
    assert FACTS.newest_torch("cu118") == "2.7.1"
    assert FACTS.newest_torch("cu121") == "2.5.1"
    assert FACTS.newest_torch("cu113") == "1.12.1"
    assert FACTS.newest_torch("rocm6.0") == FACTS.newest_torch("cu99") == ""


@pytest.mark.parametrize(
    ("package", "version", "torches"),
    [
        ("torchvision", "0.8.2", ("1.7.1",)),
        ("torchvision", "0.9.1+cu111", ("1.8.1",)),
        ("torchvision", "0.15.2", ("2.0.1",)),
        ("torchaudio", "0.12.1", ("1.12.1",)),
        ("torchaudio", "2.1.2", ("2.1.2",)),
        ("torchvision", "9.9.9", ()),
        ("torchtext", "0.8.0", ()),
    ],
)
def test_which_torch_a_sister_package_was_made_for(package: str, version: str, torches: tuple[str, ...]) -> None:
    assert FACTS.torches_of(package, version) == torches


@pytest.mark.parametrize(
    ("name", "eol", "moved", "python"),
    [
        ("ubuntu20.04", "2025-05-29", False, "3.8"),
        ("bionic", "2023-05-31", False, "3.6"),
        ("ubuntu23.10", "2024-07-11", True, "3.11"),
        ("debian11", "2026-08-31", False, "3.9"),
        ("buster", "2024-06-30", True, "3.7"),
        ("centos7", "2024-06-30", True, "3.6"),
        ("rockylinux8", "2029-05-31", False, "3.6"),
        ("alpine3.18", "2025-05-09", False, ""),
    ],
)
def test_the_end_of_a_distribution(name: str, eol: str, moved: bool, python: str) -> None:
    row = FACTS.os_life(name)
    assert row is not None
    assert (row.eol, row.moved, FACTS.os_python(name)) == (eol, moved, python)
    assert FACTS.os_life("plan9") is None
    assert FACTS.os_python("plan9") == ""


def test_systems_to_choose_from_agree_with_their_ends() -> None:
    for row in FACTS.oses:
        life = FACTS.os_life(row.name)
        assert life is not None
        assert (life.codename, life.python) == (row.codename, row.python)
    names = {row.codename for row in FACTS.os_lives if row.codename}
    assert len(names) == sum(bool(row.codename) for row in FACTS.os_lives)


def test_the_wide_table_of_ngc_images_never_contradicts_the_other() -> None:
    for row in FACTS.ngcs:
        wide = FACTS.ngc(row.tag)
        assert wide is not None
        for field in ("torch", "cuda", "cudnn", "nccl", "python", "os", "driver_min_branch"):
            assert getattr(row, field) in (None, getattr(wide, field)), (row.tag, field)
    assert FACTS.ngc("20.12-py3") is not None
    assert FACTS.ngc("99.01-py3") is None


def test_the_cuda_of_ngc_images_never_falls() -> None:
    known = [row.cuda.upto(2) for row in map(FACTS.ngc, _ngc_tags()) if row is not None and row.cuda is not None]
    assert known == sorted(known)


def _ngc_tags() -> list[str]:
    return sorted({row.tag for row in (*FACTS.ngcs, *FACTS.ngcs_wide)})


def test_the_end_of_a_python() -> None:
    row = FACTS.python_life("3.9.16")
    assert row is not None
    assert row.eol == "2025-10-31"
    assert FACTS.python_life("2.6") is None


@pytest.mark.parametrize(
    ("cuda", "known", "unknown"),
    [
        ("10.2", "sm_75", "sm_80"),
        ("11.0", "sm_80", "sm_86"),
        ("11.1.1", "sm_86", "sm_89"),
        ("11.8", "sm_90", "sm_100"),
        ("12.4", "sm_90", "sm_35"),
        ("12.8.1", "sm_120", "sm_37"),
        ("13.0", "sm_75", "sm_70"),
    ],
)
def test_what_nvcc_can_target(cuda: str, known: str, unknown: str) -> None:
    archs = FACTS.nvcc_archs(cuda)
    assert archs is not None
    assert Sm.parse(known) in archs
    assert Sm.parse(unknown) not in archs


def test_a_toolkit_that_was_not_read_targets_nothing_known() -> None:
    assert FACTS.nvcc_archs("7.5") is None
    assert FACTS.nvcc_archs("99.0") is None


def test_old_toolkits_join_the_new_ones() -> None:
    assert FACTS.cudas_old[-1].version < FACTS.cudas[0].version
    assert FACTS.toolkits(Cuda("11.3")) == (Cuda("11.3.0"), Cuda("11.3.1"))
    assert FACTS.toolkits(Cuda("12.7")) == ()
    assert FACTS.toolkits(Cuda("10.2")) is None
    assert FACTS.toolkits(Cuda("99.0")) is None


@pytest.mark.parametrize(
    ("name", "version", "build", "cuda", "cudnn"),
    [
        ("onnxruntime-gpu", "1.18.1", "wheel", "11.8", "8"),
        ("onnxruntime-gpu", "1.19.0", "wheel", "12", "9"),
        ("onnxruntime-gpu", "1.26.0", "wheel", "12", "9"),
        ("onnxruntime-gpu", "", "wheel", "13", "9"),
        ("tensorflow", "2.15.1", "wheel", "12.2", "8"),
        ("tensorflow", "2.10.0", "wheel", "11.2", "8.1"),
        ("ctranslate2", "4.4.0", "wheel", "12", "8"),
        ("ctranslate2", "4.5.0", "wheel", "12", "9"),
        ("flash-attn", "2.5.8", "source", None, None),
        ("deepspeed", "", "jit", None, None),
    ],
)
def test_what_a_package_wants_of_cuda(name: str, version: str, build: str, cuda: str | None, cudnn: str | None) -> None:
    row = FACTS.gpu_package(name, version)
    assert row is not None
    assert (row.build, row.cuda, row.cudnn) == (build, cuda, cudnn)


def test_a_package_or_version_without_a_row_is_unknown() -> None:
    assert FACTS.gpu_package("numpy") is None
    assert FACTS.gpu_package("faiss-gpu", "1.9.0") is None
    assert FACTS.gpu_package("tensorflow-gpu", "2.12.0") is None


@pytest.mark.parametrize(
    ("specifier", "cuda"),
    [
        (">=2.7.0,<2.10.0", "11.2"),
        (">=2.5,<=2.10", "11.2"),
        (">2.1,<2.4", "10.1"),
        (">=2.3,<2.5", ""),  # of two rows
        (">=2.5", ""),  # any release that may come
        (">=2.11,<2.12", ""),  # of none
        (">=2.7,!=2.8,<2.10", ""),
    ],
)
def test_a_range_whose_releases_are_all_of_one_row_is_of_that_cuda(specifier: str, cuda: str) -> None:
    row = FACTS.gpu_package_among("tensorflow-gpu", specifier)
    assert (row.cuda if row else "") == cuda
    assert FACTS.gpu_package("tensorflow", "1.14.0") is None


def test_packages_that_compile_name_what_they_need() -> None:
    for row in FACTS.gpu_packages:
        assert row.build in ("wheel", "source", "jit"), row
        assert row.compiler or not row.nvcc, row
        if row.build == "wheel":
            assert not row.nvcc, row
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row.name), row


def test_what_decides_over_a_packages_cuda_code_is_said_in_known_words() -> None:
    assert len(FACTS.package_repositories) == sum(bool(row.repository) for row in FACTS.package_builds.values())
    for name, row in FACTS.package_builds.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), row
        assert row.ready_made in ("", "index", "release"), row
        assert bool(row.forced_by) == (row.ready_made == "release"), row
        assert not (row.asked_by and row.needs_gpu), row
        assert all(re.fullmatch(r"--[a-z_]+|[A-Z][A-Z0-9_]*\*?", word) for word in row.asked_by), row
        assert all(re.fullmatch(r"([A-Z][A-Z0-9_]*(=0)?)?", word) for word in (row.forced_by, row.skipped_by)), row
        assert row.arch_list in ("", "TORCH_CUDA_ARCH_LIST", "TCNN_CUDA_ARCHITECTURES"), row
        assert row.torch or not row.arch_list, row


# Questions of their own: imports that are judged as torch's, packages that ask for one torch, and launchers.
ELSEWHERE = {
    "frameworks.py": {"flash-attn", "vllm", "deepspeed"},
    "_cuda_stack.py": {"vllm"},
    "dockerfile_pins.py": {"vllm"},
    "launch_limits.py": {"deepspeed"},
}


def test_no_check_knows_a_package_by_its_name_that_the_facts_know() -> None:
    names = set(FACTS.package_builds)
    read = set()
    for path in (Path(envkit.__file__).parent / "judging" / "checks").glob("*.py"):
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert words & names == ELSEWHERE.get(path.name, set()), path.name
        read.add(path.name)
    assert {"_compiles.py", *ELSEWHERE} <= read


def test_each_release_of_pytorchs_image_is_known_as_a_build() -> None:
    known = {row.torch for row in (*FACTS.torches, *FACTS.torches_old)}
    for row in FACTS.pytorch_images:
        assert row.torch in known
        assert row.os is None or FACTS.os_life(row.os) is not None


def test_pythons() -> None:
    assert build("2.6.0+cu124").runs_on_python(Python("3.13")) is True
    assert build("2.6.0+cu124").runs_on_python(Python("3.14")) is False
    assert build("2.6.0+cu126").runs_on_python(Python("3.12")) is None
    assert build("2.15.0+cu130").runs_on_python(Python("3.10")) is False
    assert build("2.5.0+cu124").runs_on_python(Python("3.8")) is False


# Coverage


@pytest.mark.parametrize(
    ("torch", "gpu", "state", "by"),
    [
        ("2.7.0+cu128", "V100", "none", None),
        ("2.8.0+cu128", "V100", "sass", "sm_70"),
        ("2.9.1+cu128", "V100", "sass", "sm_70"),
        ("2.10.0+cu128", "V100", "sass", "sm_70"),
        ("2.11.0+cu128", "V100", "none", None),
        ("2.14.1+cu126", "V100", "sass", "sm_70"),
        ("2.6.0+cu124", "RTX 4090", "sass", "sm_86"),
        ("2.6.0+cu124", "RTX 5090", "none", None),
        ("2.7.0+cu128", "RTX 5090", "sass", "sm_120"),
        ("2.6.0+cu124", "H100", "sass", "sm_90"),
        ("2.6.0+cu118", "A100", "unknown", None),
        ("2.7.0+cu118", "RTX 5090", "unknown", None),
        ("2.7.0+cu118", "A100", "sass", "sm_80"),
        ("2.12.0+cu132", "GB10", "sass", "sm_120"),
        ("2.12.0+cu132", "B300", "sass", "sm_100"),
        ("2.6.0+cu124", "GTX 1080", "sass", "sm_60"),
    ],
)
def test_coverage_on_x86(torch: str, gpu: str, state: str, by: str | None) -> None:
    product = FACTS.gpu(gpu)
    covered = FACTS.coverage(build(torch), product.sm, product.tegra)
    assert (covered.state, str(covered.by) if covered.by else None) == (state, by)


def test_no_word_of_tegra_means_a_gpu_that_runs_code_of_its_major() -> None:
    assert FACTS.coverage(build("2.7.1+cu126"), Sm(8, 9)) == Coverage("sass", Sm(8, 6))
    assert FACTS.coverage(build("2.7.1+cu126"), Sm(8, 9), tegra=True) == Coverage("none")


def test_coverage_by_ptx() -> None:
    row = build("2.12.0+cu132")
    assert FACTS.coverage(row, Sm(13, 0)) == Coverage("ptx", Sm(12, 0))
    assert FACTS.coverage(build("2.15.0+cu132"), Sm(13, 0)) == Coverage("none")


def test_coverage_on_arm() -> None:
    row = build("2.11.0+cu130")
    assert FACTS.coverage(row, Sm(9, 0), machine="aarch64") == Coverage("sass", Sm(9, 0))
    thor, orin = FACTS.gpu("Jetson Thor"), FACTS.gpu("Jetson Orin")
    assert FACTS.coverage(row, thor.sm, thor.tegra, "aarch64") == Coverage("sass", Sm(11, 0))
    assert FACTS.coverage(row, orin.sm, orin.tegra, "aarch64") == Coverage("none")
    assert FACTS.coverage(build("2.8.0+cu128"), Sm(9, 0), machine="aarch64") == Coverage("unknown")
    assert FACTS.coverage(row, Sm(9, 0), machine="riscv64") == Coverage("unknown")


# Showing


QUERIES = {
    "torch": "2.6.0",
    "gpu": "L4",
    "cuda": "12.4",
    "driver": "550.54.14",
    "cudnn": "9.1.0.70",
    "nccl": "2.21",
    "image": "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04",
    "os": "noble",
    "tool": "nsys",
    "toolkit": "1.19.0",
    "peak": "NVIDIA H100 80GB HBM3",
    "xid": "79",
    "package": "Flash_Attn",
}


@pytest.mark.parametrize(("topic", "query"), QUERIES.items())
def test_each_topic_shows_its_sources(topic: str, query: str) -> None:
    lines = show.describe(FACTS, topic, query)
    labels = [label for label, _ in lines]
    assert lines[0][1] == ""
    assert labels.count("source") == labels.count("seen") == sum(1 for _, text in lines if text == "") >= 1
    plain = json.loads(json.dumps(show.data(FACTS, topic, query)))
    assert [entry["title"] for entry in plain] == [label for label, text in lines if text == ""]


def test_all_topics_are_tested() -> None:
    assert tuple(QUERIES) == show.TOPICS


def test_what_a_container_toolkit_broke_is_shown() -> None:
    shown = [entry.title for entry in show.entries(FACTS, "toolkit", "v1.20.0")]
    assert shown == ["cdi-0-7-written of container toolkit 1.20.0", "cuinit-unknown of container toolkit 1.20.0"]
    assert all(entry.title.startswith("CVE-") for entry in show.entries(FACTS, "toolkit", "1.19.0"))
    for row in FACTS.toolkit_regressions:
        assert row.since <= row.seen_in and (row.fixed is None or row.seen_in < row.fixed)


def test_what_is_shown() -> None:
    torch = dict(show.describe(FACTS, "torch", "2.6.0+cu118"))
    assert torch["archs"] == "unknown"
    assert torch["oldest driver"] == "450.80.02"
    assert dict(show.describe(FACTS, "torch", "2.6.0+cu124"))["ptx"] == "none"
    assert dict(show.describe(FACTS, "gpu", "V100"))["newest torch with code for it (x86_64)"] == "2.14.1+cu126"
    driver = dict(show.describe(FACTS, "driver", "550.54.14"))
    assert driver["cuda"] == "12.4"
    assert driver["CUDA by minor-version compatibility"] == "11.x, 12.x"
    assert "CUDA by minor-version compatibility" not in dict(show.describe(FACTS, "driver", "R550"))
    (entry,) = show.data(FACTS, "torch", "2.6.0+cu118")
    assert entry["archs"] is None
    assert entry["cudnn"] == "9.1.0.70"


@pytest.mark.parametrize(
    ("topic", "query", "fix"),
    [
        ("color", "red", "torch, gpu"),
        ("driver", "12", "550"),
        ("driver", "new", "550"),
        ("image", "ubuntu:22.04", "nvidia/cuda"),
        ("os", "trixy", "trixie"),
        ("tool", "nvprof", "nsys"),
    ],
)
def test_a_wrong_query_is_a_usage_error(topic: str, query: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        show.describe(FACTS, topic, query)
    assert fix in caught.value.fix


def test_xids_are_sorted_into_categories_and_severities() -> None:
    assert {row.severity for row in FACTS.xids} == {"note", "warning", "error"}
    assert [row.code for row in FACTS.xids] == sorted(row.code for row in FACTS.xids)
    for row in FACTS.xids:
        if (
            row.action in ("RESET_GPU", "RESTART_BM", "RESTART_VM", "CHECK_MECHANICALS")
            and row.category is not XidCategory.RETIREMENT
        ):
            assert row.severity == "error", row.code
        if row.suspect == "application":  # a program's fault never condemns a machine
            assert row.severity != "error", row.code
    fallen = FACTS.xid(79)
    assert fallen is not None
    assert (fallen.category, fallen.action) == (XidCategory.BUS, "RESTART_BM")
    assert FACTS.xid(100_000) is None


def test_wheels_are_known_by_release_and_python() -> None:
    row = FACTS.wheel_python("tensorflow", "2.4")
    assert row is not None
    assert row.pythons == ("3.6", "3.7", "3.8")
    assert FACTS.wheel_python("tensorflow", "99.0") is None
    assert FACTS.wheel_python("tensorflow", "no version") is None
    assert FACTS.wheel_python("numpy", "2.0.0") is None


@pytest.mark.parametrize("row", FACTS.base_images, ids=lambda row: f"{row.image}:{row.since or row.tags[0]}-{row.word}")
def test_an_image_is_found_by_its_release_and_its_tags(row: BaseImageRow) -> None:
    image, word = row.image.replace("*", "anything"), f"-{row.word}" if row.word else ""
    for tag in (*row.tags, *((row.since, row.until) if row.since else ())):
        assert tag == "" or FACTS.base_image(image, f"{tag}{word}") == row
    assert FACTS.base_image(f"somebody/{image.replace('/', '-')}", row.since) is None


@pytest.mark.parametrize("image", sorted({row.image for row in FACTS.base_images}))
def test_no_release_of_an_image_is_in_two_rows(image: str) -> None:
    rows = [row for row in FACTS.base_images if row.image == image]
    tags = [tag for row in rows for tag in row.tags]
    assert len(tags) == len(set(tags))
    for word in {row.word for row in rows}:
        ranges = [row for row in rows if row.since and row.word == word]
        assert all(row.until for row in ranges[:-1])
        for before, after in pairwise(ranges):
            suffix = f"-{word}" if word else ""
            assert FACTS.base_image(image, f"{before.until}{suffix}") == before
            assert FACTS.base_image(image, f"{after.since}{suffix}") == after


def test_a_day_of_a_tag_that_moves_is_in_no_row() -> None:
    assert FACTS.base_image("debian", "stable-slim") is not None
    assert FACTS.base_image("debian", "stable-20240101") is None
