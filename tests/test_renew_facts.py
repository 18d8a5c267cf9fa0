"""scripts/renew_facts.py: the tables against a package index of hand-made wheels, and the real one if it answers."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from index import Index

from envkit.errors import EnvkitError
from envkit.facts import Facts, load
from envkit.system import index as client
from envkit.versions import Nccl

SCRIPT = Path(__file__).parent.parent / "scripts" / "renew_facts.py"
FACTS = load()


@cache
def script() -> Any:
    """scripts/renew_facts.py as a module."""
    spec = importlib.util.spec_from_file_location("renew_facts", SCRIPT)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def asked() -> client.Index:
    return client.configured(60)


# torch


def test_a_new_release_is_printed_as_a_row(index: Index) -> None:
    index.add("torch", "99.1.0", "cuda-toolkit==13.9.1", tag="cp313-cp313-manylinux_2_28_x86_64")
    told = list(script().torches(asked(), FACTS, ["99.1.0"]))
    assert len(told) == 1
    assert told[0].startswith('torch 99.1.0 is new:\n{"torch": "99.1.0", "variant": "cu139", "cuda": "13.9", ')
    assert '"toolkit": "13.9.1"' in told[0] and '"archs": null' in told[0]


def test_a_release_that_says_something_else_than_its_row_is_told(index: Index) -> None:
    for python in ("cp39", "cp310"):
        index.add("torch", "2.6.0", "nvidia-cuda-runtime-cu12==12.4.127", "triton==3.2.0",
                  tag=f"{python}-{python}-manylinux1_x86_64")  # fmt: skip
    told = list(script().torches(asked(), FACTS, ["2.6.0"]))
    assert "torch 2.6.0: cudnn is None on the index and 9.1.0.70 in the table" in told
    assert not any(" cuda is" in line or " triton is" in line for line in told)


def test_releases_that_are_gone_or_say_nothing_are_told(index: Index) -> None:
    index.add("torch", "2.6.0", tag="cp39-cp39-manylinux1_x86_64")
    told = list(script().torches(asked(), FACTS, []))
    assert "torch 2.15.0: not on the index any more" in told
    assert "torch 2.6.0: the METADATA of torch 2.6.0 pins no CUDA runtime" in told


# Toolkits and libraries


def test_what_is_newer_than_its_table_is_told(index: Index) -> None:
    index.add("nvidia-nccl-cu13", str(FACTS.nccls[-1].version))
    index.add("cuda-toolkit", "99.9.1")
    index.add("cuda-toolkit", "99.9.2rc1")
    told = list(script().versions(asked(), FACTS))
    assert told == [f"cuda-toolkit 99.9.1 of 2025-01-02 is new; the table ends with {FACTS.cudas[-1].version}"]


def test_the_tables_of_this_day_end_with_what_the_index_had() -> None:
    assert FACTS.nccls[-1].version >= Nccl("2.32.3")


# Who is built for which torch


def torch_of(*lines: str, python: str = ">=3.10") -> Any:
    return script().torch_of("\n".join([f"Requires-Python: {python}", *(f"Requires-Dist: {line}" for line in lines)]))


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["torch==2.4.0", "numpy"], ("==2.4.0", "")),
        (["torch (==1.13.1)"], ("==1.13.1", "")),
        (["Torch>=2,<3"], ("<3,>=2", "")),
        (["torch>=2", "torch<2.9"], ("<2.9,>=2", "")),
        (["torch"], ("", "asks for any torch")),
        (["numpy"], ("", "asks for no torch")),
        (['torch>=2; extra == "gpu"'], ("", "asks for no torch")),
        (['torch==2.4.0; platform_machine == "aarch64"', 'torch==2.5; platform_machine != "aarch64"'], ("==2.5", "")),
        (['torch==2.4.0; sys_platform == "darwin"', 'torch==2.5.0; sys_platform == "linux"'], ("==2.5.0", "")),
        (["torch !!"], ("", "asks for no torch")),
        (['torch>=2.6; python_version >= "3.13"', 'torch>=2.1; python_version < "3.13"'],
         (None, "depends on the Python: >=2.1 or >=2.6")),
    ],
)  # fmt: skip
def test_what_metadata_asks_of_torch(lines: list[str], answer: tuple[str | None, str]) -> None:
    assert torch_of(*lines) == answer


def test_a_python_that_it_does_not_run_on_decides_nothing() -> None:
    lines = ('torch>=2.6; python_version >= "3.13"', 'torch>=2.1; python_version < "3.13"')
    assert torch_of(*lines, python=">=3.10,<3.13") == (">=2.1", "")


def nothing(line: str) -> None:
    pass


def test_releases_that_ask_alike_stand_in_one_row(index: Index) -> None:
    asks = {"1.0": "==2.1.0", "1.1": "==2.1.0", "1.2": "==2.2.0", "1.10": "==2.2.0", "2.0rc1": ""}
    for version, torch in asks.items():
        index.add("engine", version, f"torch{torch}")
    rows = script().need(asked(), "engine", nothing)
    found = [(row.since, row.until, row.torch) for row in rows]
    assert found == [("1.0", "1.1", "==2.1.0"), ("1.2", "1.10", "==2.2.0")]


def test_a_release_that_cannot_be_read_stands_in_no_row_and_is_said(index: Index) -> None:
    for version in ("1.0", "1.1", "1.2"):
        pin = index.add("engine", version, "torch==2.1.0")
        if version == "1.1":
            index.wheels[pin.file] = b"no wheel"
    said: list[str] = []
    rows = script().need(asked(), "engine", said.append)
    assert [(row.since, row.until) for row in rows] == [("1.0", "1.0"), ("1.2", "1.2")]
    assert len(said) == 1 and said[0].startswith("engine-1.1-")


def test_a_source_release_says_it_in_its_pkg_info(index: Index) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        text = b"Metadata-Version: 2.2\nName: engine\nVersion: 1.0\nRequires-Dist: torch>=2.3\n"
        entry = tarfile.TarInfo("engine-1.0/PKG-INFO")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    index.wheels["engine-1.0.tar.gz"] = out.getvalue()
    (row,) = script().need(asked(), "engine", nothing)
    assert (row.since, row.torch) == ("1.0", ">=2.3")


def test_rows_that_say_the_same_keep_their_day(index: Index) -> None:
    index.add("engine", "1.0", "torch==2.1.0")
    (row,) = script().need(asked(), "engine", nothing)
    facts = Facts()
    vars(facts)["torch_needs"] = (replace(row, seen="2026-01-01"),)
    (again,) = script().needs(asked(), facts, ["engine"], nothing)
    assert again.seen == "2026-01-01"


# Who asks for which releases of others


def test_what_metadata_asks_of_others_holds_whichever_the_python() -> None:
    lines = [
        "Requires-Python: >=3.10,<3.13",
        "Requires-Dist: tokenizers<0.21,>=0.20",
        "Requires-Dist: transformers",
        "Requires-Dist: torch==2.5.1",
        "Requires-Dist: a-package-of-no-table==1.0",
        'Requires-Dist: peft<0.14; extra == "peft"',
        'Requires-Dist: numpy<2,>=1.21; python_version < "3.11"',
        'Requires-Dist: numpy<2,>=1.26; python_version >= "3.11"',
        'Requires-Dist: scipy<1.8; python_version < "3.10"',
    ]
    assert script().asked_of("\n".join(lines)) == {"numpy": "<2", "tokenizers": "<0.21,>=0.20", "transformers": ""}


def test_the_last_release_of_each_minor_is_read_and_all_of_one_that_differs(index: Index, tmp_path: Path) -> None:
    asks = {"1.0": "1", "1.1": "1", "2.0": "1", "2.1": "2", "2.2": "2", "3.0": "2", "3.1": "2"}
    for version, most in asks.items():
        index.add("engine", f"1.{version}", f"tokenizers<{most}")
    rows = script().require(asked(), "engine", tmp_path, nothing)
    assert [(row.since, row.until, dict(row.requires)) for row in rows] == [
        ("1.1.0", "1.2.0", {"tokenizers": "<1"}),
        ("1.2.1", "1.3.1", {"tokenizers": "<2"}),
    ]
    kept = {path.name.split("-")[1] for path in tmp_path.glob("*.metadata")}
    assert kept == {"1.1.0", "1.1.1", "1.2.0", "1.2.1", "1.2.2", "1.3.1"}, "1.3.0 says what 1.3.1 and 1.2.2 say"


def test_what_others_are_asked_for_keeps_the_rows_of_other_packages_and_its_day(index: Index) -> None:
    index.add("engine", "1.0", "tokenizers<1")
    facts = Facts()
    other, mine = FACTS.requires[0], replace(FACTS.requires[0], package="engine", since="1.0", until="1.0")
    vars(facts)["requires"] = (other, replace(mine, requires={"tokenizers": "<1"}, seen="2026-01-01"))
    rows = script().requires(asked(), facts, ["engine"], None, nothing)
    assert rows == sorted(facts.requires, key=lambda row: row.package)


def test_nvidias_wheels_are_read_by_extra_and_through_what_brings_them(index: Index) -> None:
    """Extras and releases that ask for the same stand in one row; what the base asks for too is in no extra's row."""
    index.add("jax-cuda12-plugin", "1.0", 'nvidia-cudnn-cu12<10,>=9.0; extra == "with-cuda"', "numpy")
    index.add("jax-cuda12-plugin", "1.2", 'nvidia-cudnn-cu12<10,>=9.8; extra == "with-cuda"')
    heads = tuple(f"Provides-Extra: {extra}" for extra in ("cuda", "cuda12", "k8s"))
    brings = 'jax-cuda12-plugin[with_cuda]<=1.{0},>=1.{0}; extra == "{1}"'
    for version, plugin in (("1.0", 0), ("1.1", 0), ("1.2", 2)):
        both = [brings.format(plugin, extra) for extra in ("cuda", "cuda12")]
        index.add("jax", version, *both, 'nvidia-ml-py; extra == "k8s"', heads=heads)
    rows = script().nvidia(asked(), "jax", nothing)
    assert [(row.since, row.until, row.extras, dict(row.requires)) for row in rows] == [
        ("1.0", "1.1", ("cuda", "cuda12"), {"nvidia-cudnn-cu12": "<10,>=9.0"}),
        ("1.2", "1.2", ("cuda", "cuda12"), {"nvidia-cudnn-cu12": "<10,>=9.8"}),
    ]


def test_an_index_that_does_not_answer_is_no_difference(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    index.status = 500
    assert script().main(["torch"]) == 3
    assert "HTTP status 500" in capsys.readouterr().err


# The real index

RELEASES = ("2.0.0", "2.6.0", "2.11.0", "2.15.0")


@pytest.mark.slow  # the index is asked for some seconds
def test_rows_agree_with_the_real_index() -> None:
    try:
        real = client.configured(120)
        found = {file.name: file for file in real.files("torch")}
        if not any(name.startswith(f"torch-{RELEASES[-1]}-") for name in found):
            pytest.skip("the package index holds no torch, or another one")
        with ThreadPoolExecutor(len(RELEASES)) as pool:
            rows = list(pool.map(partial(script().derive, real, files=found), map(script().Torch, RELEASES)))
    except EnvkitError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    known = {str(row.torch): row for row in FACTS.torches if row.default}
    assert [line for row in rows for line in script().differences(row, known[str(row.torch)])] == []
