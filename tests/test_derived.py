"""Rows of torch releases that the facts do not have, derived from METADATA: pure, from an index, and in a lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
from index import Index, publish_extras
from inline import Envkit

from envkit.errors import UsageError
from envkit.facts import Facts, load
from envkit.facts import derived as derive_rows
from envkit.facts.rows import DerivedRow, TorchRow
from envkit.plan import derive, solve, wheels
from envkit.plan import lockfile as locks
from envkit.plan.resolve import resolve
from envkit.plan.spec import Spec, parse
from envkit.versions import Cuda, Glibc, Torch

FACTS = load()
# The names and the METADATA (Requires-Python, Requires-Dist without extras) of each release that the table has.
STORED = [json.loads(line) for line in (Path(__file__).parent / "data/torch_wheels.jsonl").read_text().splitlines()]
# What METADATA does not say, and who read it.
UNREAD = {
    "archs", "ptx", "archs_aarch64", "ptx_aarch64", "torchvision", "torchaudio", "note", "source", "seen",
}  # fmt: skip


def derived(stored: Mapping[str, object]) -> DerivedRow:
    metadata, arm = ("\n".join(stored[key] or ()) for key in ("metadata", "metadata_aarch64"))  # type: ignore[arg-type]
    arm_text = None if stored["metadata_aarch64"] is None else metadata if arm == "\n".join("same") else arm
    names = [str(name) for name in stored["names"]]  # type: ignore[attr-defined]
    return derive_rows.row(
        Torch(str(stored["torch"])), names, str(stored["released"]), metadata, arm_text, "2026-11-23"
    )


def known(release: str) -> TorchRow:
    (row,) = (row for row in FACTS.torches if str(row.torch) == release and row.default)
    return row


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: str(stored["torch"]))
def test_a_known_release_derived_is_its_row(stored: Mapping[str, object]) -> None:
    made, row = derived(stored), known(str(stored["torch"]))
    for field in fields(TorchRow):
        if field.name not in UNREAD:
            assert getattr(made, field.name) == getattr(row, field.name), field.name
        elif field.name not in ("note", "source", "seen"):
            assert getattr(made, field.name) is None


def test_every_release_of_the_table_is_tried() -> None:
    assert {stored["torch"] for stored in STORED} == {str(row.torch) for row in FACTS.torches}
    assert len(STORED) >= 12


NAMES = ("torch-9.1.0-cp313-cp313-manylinux_2_34_x86_64.whl", "torch-9.1.0-cp314-cp314-manylinux_2_34_x86_64.whl")
METADATA = 'Requires-Python: >=3.13\nRequires-Dist: cuda-toolkit[cudart]==14.1.3; platform_system == "Linux"\n'


@pytest.mark.parametrize(
    ("names", "metadata", "why"),
    [
        ((), METADATA, "no x86_64 Linux wheel"),
        (("torch-9.1.0-cp313-cp313-win_amd64.whl",), METADATA, "no x86_64 Linux wheel"),
        (("torch-9.1.0-cp313-cp313-musllinux_1_2_x86_64.whl",), METADATA, "no x86_64 Linux wheel"),
        (("torch-9.1.0-cp313-cp313-manylinux_2_34_aarch64.whl",), METADATA, "no x86_64 Linux wheel"),
        ((NAMES[0], NAMES[1].replace("2_34", "2_39")), METADATA, "several platform tags"),
        (NAMES, "Requires-Python: >=3.13\n", "pins no CUDA runtime"),
        (NAMES, METADATA.replace("==14.1.3", ">=14.1"), "pins no CUDA runtime"),
        (NAMES, METADATA.replace("==14.1.3", "==14.1.*"), "pins no CUDA runtime"),
        (NAMES, METADATA.replace("Linux", "Windows"), "pins no CUDA runtime"),
        (NAMES, METADATA.replace('"Linux"', '"Linux" and extra == "cuda"'), "pins no CUDA runtime"),
        (NAMES, METADATA.replace("cuda-toolkit[cudart]==14.1.3", "cuda toolkit!"), "pins no CUDA runtime"),
    ],
)
def test_what_does_not_say_enough_is_no_row(names: tuple[str, ...], metadata: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        derive_rows.row(Torch("9.1.0"), names, "", metadata, None, "2026-11-23")


def test_a_release_for_a_cuda_that_nobody_knows() -> None:
    made = derive_rows.row(Torch("9.1.0"), NAMES, "2027-01-02", METADATA, METADATA, "2027-01-03")
    assert (made.cuda, made.variant, made.toolkit) == (Cuda("14.1"), "cu141", Cuda("14.1.3"))
    assert (made.cudnn, made.nccl, made.triton, made.pypi_aarch64) == (None, None, None, "cuda")
    assert (made.pythons, made.glibc) == (("cp313", "cp314"), Glibc("2.34"))


@pytest.mark.parametrize(
    "name",
    [
        "torch-9.2.0rc1-cp313-cp313-manylinux_2_34_x86_64.whl",
        "torch-9.2.0.dev1-cp313-cp313-manylinux_2_34_x86_64.whl",
        "torch-9.2.0+cu141-cp313-cp313-manylinux_2_34_x86_64.whl", "torch-9.2.0-cp313-cp313-macosx_14_0_arm64.whl",
        "torch-9.2.0.post1.tar.gz", "torch-1!9.2.0-cp313-cp313-manylinux_2_34_x86_64.whl", "torch.whl", "",
    ],
)  # fmt: skip
def test_only_final_releases_for_linux_count(name: str) -> None:
    found = derive_rows.releases([*NAMES, name])
    assert Torch("9.1.0") in found
    assert not found[:-1] or name.startswith("torch-1!")


def test_wheels_of_a_release_by_python() -> None:
    names = [*NAMES, "torch-9.1.0-2-cp314-cp314t-manylinux_2_34_x86_64.whl", "torch-9.1.0-py3-none-any.whl"]
    assert list(derive_rows.wheels(Torch("9.1.0"), names, "x86_64")) == ["cp313", "cp314", "cp314t"]
    assert derive_rows.wheels(Torch("9.1.0"), names, "aarch64") == {}


# From an index to a lock.

NEW = "99.1.0"


def quiet(line: str) -> None:
    pass


@pytest.fixture
def newer(index: Index) -> Index:
    """An index with a torch that no table has, and all that a lock of it needs."""
    for machine in ("x86_64", "aarch64"):
        index.add(
            "torch", NEW, "nvidia-cudnn-cu13==9.99.0.1", "cuda-toolkit==13.9.1", "nvidia-nccl-cu13==2.99.1",
            "triton==9.9.0", tag=f"cp313-cp313-manylinux_2_28_{machine}",
        )  # fmt: skip
    for name, version in (
        ("nvidia-cudnn-cu13", "9.99.0.1"), ("cuda-toolkit", "13.9.1"), ("nvidia-nccl-cu13", "2.99.1"),
        ("triton", "9.9.0"), ("setuptools", "80.9.0"),
    ):  # fmt: skip
        index.add(name, version)
    index.add("uv", wheels.uv_version(), tag="py3-none-manylinux_2_17_x86_64")
    return index


def wish(torch: str = NEW, more: str = "") -> Spec:
    return parse(f'torch = "{torch}"\npython = "3.13"\n{more}', Path("/srv/job/envkit.toml"))


def grown(spec: Spec) -> Facts:
    return derive.for_spec(spec, FACTS, quiet)


def test_a_release_that_the_facts_do_not_know_is_derived(newer: Index) -> None:
    choice = resolve(wish(more='gpus = ["H100"]\ndriver = "580"'), grown(wish()))
    assert isinstance(choice.row, DerivedRow)
    assert (str(choice.torch), choice.cuda, choice.cudnn) == (NEW, Cuda("13.9"), "9.99.0.1")
    assert (choice.nccl, choice.triton, choice.row.pypi_aarch64) == ("2.99.1", "==9.9.0", "cuda")
    assert choice.driver == FACTS.driver_min(Cuda("13.9")).compat
    assert [target.by for target in choice.targets] == ["not read"]
    told = " | ".join(choice.notes)
    newest = max(row.torch for row in FACTS.torches)
    assert f"read up to {FACTS.torches_seen}, end with torch {newest}" in told
    assert "whether torch 99.1.0 has code for sm_90 (H100) is not known before it is built and probed" in told


@pytest.mark.parametrize("torch", [NEW, "99", "99.1", "==99.*", ">=90,<100"])
def test_a_range_above_the_facts_is_derived_too(newer: Index, torch: str) -> None:
    assert str(resolve(wish(torch), grown(wish(torch))).torch) == NEW


def test_a_driver_that_is_too_old_for_its_cuda_is_refused_all_the_same(newer: Index) -> None:
    spec = wish(more='driver = "535"')
    with pytest.raises(UsageError, match="needs driver"):
        resolve(spec, grown(spec))


def test_a_python_that_it_has_no_wheel_for_is_refused_all_the_same(newer: Index) -> None:
    spec = replace(wish(), python=parse('torch = "2.6.0"\npython = "3.11"\n', Path("/x")).python)
    with pytest.raises(UsageError, match="no wheel for Python"):
        resolve(spec, grown(spec))


def test_a_cuda_major_without_drivers_is_granted_with_a_note(index: Index) -> None:
    index.add("torch", NEW, "cuda-toolkit==77.1.2", tag="cp313-cp313-manylinux_2_28_x86_64")
    choice = resolve(wish(more='driver = "580"'), grown(wish()))
    assert choice.driver is None
    assert any("which drivers run CUDA 77.1 is not known" in note for note in choice.notes)


def test_facts_that_know_the_release_are_asked_alone(index: Index) -> None:
    assert derive.for_spec(wish(">=2.6"), FACTS, quiet) is FACTS
    assert derive.for_spec(wish("1.12.1"), FACTS, quiet) is FACTS
    assert not index.asked.is_set()


def test_a_release_that_nobody_has_is_refused_with_the_nearest(newer: Index) -> None:
    with pytest.raises(UsageError, match=r"no facts about the torch release `98.7.6`"):
        resolve(wish("98.7.6"), grown(wish("98.7.6")))


def test_an_index_that_does_not_answer_is_said_and_refuses_as_before(newer: Index) -> None:
    newer.status = 500
    said: list[str] = []
    assert derive.for_spec(wish(), FACTS, said.append) is FACTS
    assert said == ["torch 99.1.0 is not in the facts, and the package index could not be asked: "
                    "the package index answers with HTTP status 500"]  # fmt: skip


def test_no_index_at_all_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "none.toml"))
    said: list[str] = []
    assert derive.for_spec(wish(), FACTS, said.append) is FACTS
    assert "could not be asked: uv does not say" in said[0]


def test_a_release_for_the_cpu_alone_is_said_and_not_derived(index: Index) -> None:
    index.add("torch", NEW, "sympy", tag="cp313-cp313-manylinux_2_28_x86_64")
    said: list[str] = []
    found = derive.for_spec(wish(), FACTS, said.append)
    assert found.torches == FACTS.torches
    assert "was not derived: the METADATA of torch 99.1.0 pins no CUDA runtime" in said[0]


def test_what_is_withdrawn_or_not_final_is_not_derived(newer: Index) -> None:
    withdrawn = newer.add("torch", "99.2.0", "cuda-toolkit==13.9.1", tag="cp313-cp313-manylinux_2_28_x86_64")
    newer.add("torch", "99.3.0rc1", "cuda-toolkit==13.9.1", tag="cp313-cp313-manylinux_2_28_x86_64")
    newer.yanked.add(withdrawn.file)
    found = derive.for_spec(wish("99"), FACTS, quiet)
    assert [str(row.torch) for row in found.torches if isinstance(row, DerivedRow)] == [NEW]


@pytest.mark.slow  # makes whole locks
def test_the_lock_says_that_nobody_verified_it(newer: Index) -> None:
    said: list[str] = []
    lock = partial(solve.lock, may_stay_open=locks.PARTS, warn=said.append)
    facts = grown(wish())
    publish_extras(newer, resolve(wish(), facts).extras.wheels)
    made = lock(wish(), facts, quiet)
    text = locks.dump(made)
    assert made.derived and locks.parse(text, "x") == made
    assert text.count("# DERIVED, NOT VERIFIED: the facts do not have torch 99.1.0") == 1
    assert any(line.startswith("DERIVED, NOT VERIFIED") for line in said)
    with pytest.raises(UsageError, match="edited by hand"):
        locks.parse(text.replace("# DERIVED", "# VERIFIED"), "x")
    assert "DERIVED" not in locks.dump(replace(made, derived=False))


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str]) -> Iterator[Envkit]:
    with Envkit(capsys) as run:
        yield run


@pytest.mark.slow  # makes whole locks
def test_lock_writes_it_and_check_says_it(newer: Index, tmp_path: Path, envkit: Envkit) -> None:
    (tmp_path / "envkit.toml").write_text(f'torch = "{NEW}"\npython = "3.13"\n')
    publish_extras(newer, resolve(wish(), grown(wish())).extras.wheels)
    ended = envkit("lock", tmp_path, "--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")
    assert ended.code == 0, ended.err
    assert "DERIVED, NOT VERIFIED: the facts do not have torch 99.1.0" in ended.err
    assert "# DERIVED, NOT VERIFIED" in (tmp_path / "envkit.lock").read_text()
    checked = envkit("check", tmp_path / "envkit.lock")
    assert "packages-torch-newer-than-facts" in checked.out
    again = envkit("lock", tmp_path, "--engine", "none")
    assert again.code == 0 and "DERIVED, NOT VERIFIED" in again.err
