"""Lists of packages: what their readers make of them, beside what the pages of the checks show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import written
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit import facts as tables
from envkit.dockerfile.context import Context
from envkit.judging.checks._torch_fit import driver_misfit, gpu_misfit, index_lacks, pair_misfit, python_misfit
from envkit.model import Outcome, Severity, Unknown
from envkit.static import CheckOptions, JudgedFile
from envkit.static.packages import READERS

FACTS = tables.load()


def fields(kind: str, text: str) -> tuple[str | None, str | None, str | None]:
    seen = written.file(kind, text, FACTS).observed
    return seen["torch_version"], seen["torch_cuda"], seen["python_version"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("requirements", "torch==2.6.0\n", ("2.6.0", "12.4", None)),
        ("requirements", "--index-url https://download.pytorch.org/whl/cu118\ntorch==2.6.0\n", ("2.6.0", "11.8", None)),
        ("requirements", "--index-url https://download.pytorch.org/whl/cpu\ntorch==2.6.0\n", ("2.6.0", "cpu", None)),
        ("requirements", "torch\n-c c.txt\n--- c.txt ---\ntorch==2.1.0\n", ("2.1.0", "12.1", None)),
        ("requirements", "numpy\n", (None, None, None)),
        ("requirements", 'torch==2.1.0 ; sys_platform == "darwin"\n', (None, None, None)),
        ("requirements", "# pip-compile with Python 3.10\ntorch==2.1.0\n", ("2.1.0", "12.1", "3.10")),
        (
            "requirements",
            "#    uv pip compile requirements.in --python-version 3.12 -o requirements.txt\ntorch==2.6.0\n",
            ("2.6.0", "12.4", "3.12"),
        ),
        (
            "conda",
            "channels: [pytorch, nvidia]\ndependencies: [python=3.10.4, pytorch=2.1.0, pytorch-cuda=11.8]\n",
            ("2.1.0", "11.8", "3.10"),
        ),
        (
            "conda",
            "name: x\ndependencies:\n- python>=3.10\n- cpuonly\n- pytorch=2.1.0\n",
            ("2.1.0", "cpu", None),
        ),
        (
            "pyproject",
            '[project]\nrequires-python = "==3.11.*"\ndependencies = ["torch==2.6.0"]\n'
            '[tool.uv.sources]\ntorch = {index = "t"}\n'
            '[[tool.uv.index]]\nname = "t"\nurl = "https://download.pytorch.org/whl/cu126"\nexplicit = true\n',
            ("2.6.0", "12.6", "3.11"),
        ),
        (
            "pyproject",
            '[tool.poetry.dependencies]\npython = "~3.11"\ntorch = "2.6.0"\n',
            ("2.6.0", "12.4", "3.11"),
        ),
        ("pyproject", '[project]\n[project.optional-dependencies]\ngpu = ["torch==2.6.0"]\n', (None, None, None)),
        (
            "uv-lock",
            'version = 1\nrequires-python = "==3.12.*"\n\n[[package]]\nname = "torch"\nversion = "2.6.0"\n'
            'source = { registry = "https://example.org/simple" }\n'
            'resolution-markers = [\n    "sys_platform == \'darwin\'",\n]\n\n[[package]]\nname = "torch"\n'
            'version = "2.6.0+cu118"\nsource = { registry = "https://download.pytorch.org/whl/cu118" }\n'
            "resolution-markers = [\n    \"sys_platform == 'linux'\",\n]\n",
            ("2.6.0", "11.8", "3.12"),
        ),
        ("spec", 'torch = "2.10.0"\ncuda = "12.8"\npython = "3.13"\n', ("2.10.0", "12.8", "3.13")),
        ("spec", '[check]\nfail-on = "warning"\n', (None, None, None)),
    ],
)
def test_the_fields_are_read(kind: str, text: str, expected: tuple[str | None, str | None, str | None]) -> None:
    assert fields(kind, text) == expected


def test_every_field_says_where_it_comes_from() -> None:
    seen = written.file("requirements", "torch==2.6.0\n", FACTS).observed
    assert set(seen["origins"]) == {"torch_version", "torch_cuda", "python_version"}
    assert all(seen["origins"].values())


CLEAN = [
    ("requirements", "--extra-index-url https://download.pytorch.org/whl/cu124\ntorch==2.6.0\ntorchvision==0.21.0\n"),
    ("requirements", "numpy==1.26.4\ntqdm>=4\n"),
    ("conda", "name: x\nchannels: [conda-forge]\ndependencies: [python=3.11, pytorch=2.5.1, cuda-version=12.4]\n"),
    ("pyproject", '[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = ["torch>=2.2", "numpy"]\n'),
    ("spec", 'torch = "2.10.0"\ncuda = "12.8"\npython = "3.13"\n'),
]


@pytest.mark.parametrize(("kind", "text"), CLEAN)
def test_nothing_is_said_of_a_clean_file(kind: str, text: str) -> None:
    results = written.file(kind, text, FACTS).results
    assert {result.outcome for result in results} <= {Outcome.PASS, Outcome.SKIP}
    assert any(result.outcome is Outcome.PASS for result in results)


def at(folder: Path, name: str, text: str) -> JudgedFile:
    (folder / name).write_text(text, encoding="utf-8")
    kind = "pyproject" if name.endswith("toml") else "requirements"
    return READERS[kind](text, str(folder / name), Context(folder), CheckOptions(), FACTS)


def outcome(judged: JudgedFile, check: str) -> Outcome:
    return next(result.outcome for result in judged.results if result.check == check)


def test_an_included_file_is_read_from_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("torch==2.1.0\n", encoding="utf-8")
    judged = at(tmp_path, "requirements.txt", "-r base.txt\ntorchvision==0.17.0\n")
    found = [finding for result in judged.results for finding in result.findings]
    assert [finding.severity for finding in found] == [Severity.ERROR]
    assert found[0].span is not None
    assert found[0].span.path == str(tmp_path / "requirements.txt")


def test_a_missing_included_file_is_no_pass(tmp_path: Path) -> None:
    judged = at(tmp_path, "requirements.txt", "-r base.txt\ntorchvision==0.17.0\n")
    assert outcome(judged, "packages-torchvision-mismatch") is Outcome.UNKNOWN


def test_constraints_pin_and_install_nothing(tmp_path: Path) -> None:
    judged = at(tmp_path, "constraints.txt", "torch==2.1.0\ntorchvision==0.17.0\n")
    assert outcome(judged, "packages-unpinned-torch") is Outcome.SKIP
    assert outcome(judged, "packages-torchvision-mismatch") is Outcome.FAIL


def test_an_open_requirements_in_is_no_fault(tmp_path: Path) -> None:
    assert outcome(at(tmp_path, "requirements.in", "torch\n"), "packages-unpinned-torch") is Outcome.SKIP


@pytest.mark.parametrize("kind", sorted(READERS))
@given(text=st.text(alphabet=st.sampled_from("[]{}=\"'-:#;<>!~@\\ \n\tat0.,r\u2028"), max_size=80))
@examples(30)
def test_any_text_is_judged_or_named(kind: str, text: str) -> None:
    judged = READERS[kind](text, "f", None, CheckOptions(), FACTS)
    assert judged.unreadable or judged.results
    assert not [result for result in judged.results if result.outcome is Outcome.CRASHED]


def test_what_fits_gives_none() -> None:
    assert python_misfit("2.6.0", ("3.12",), FACTS) is None
    assert pair_misfit("torchvision", "0.21.0", "2.6.0", FACTS) is None
    assert gpu_misfit("2.6.0", "12.4", "H100", FACTS) is None
    assert driver_misfit("12.4", "550", "torch", FACTS) is None
    assert index_lacks("2.6.0", "cu124", FACTS) is None


def test_a_torchvision_that_asks_for_a_range_goes_with_later_releases() -> None:
    assert pair_misfit("torchvision", "0.29.0", "2.14.1", FACTS) is None
    assert pair_misfit("torchvision", "0.19.0", "2.4.1", FACTS) is not None


@pytest.mark.parametrize(
    ("torch", "pythons", "fix"),
    [
        ("2.6.0", (), "take torchvision==0.21.0, or torch==2.5.0"),
        ("2.6.0", ("3.12",), "take torchvision==0.21.0, or torch==2.5.0"),
        ("2.4.0", ("3.8",), "take torchvision==0.19.0"),
        ("2.6.0", ("3.8",), "take torch==2.4.1 with torchvision==0.19.1"),
        ("2.6.0", ("3.3",), "take torch==2.5.0 and a Python that it has a wheel for"),
    ],
)
def test_the_fix_of_a_pair_names_what_has_a_wheel_for_the_python(torch: str, pythons: Sequence[str], fix: str) -> None:
    misfit = pair_misfit("torchvision", "0.20.0", torch, FACTS, pythons)
    assert misfit is not None and misfit.fix == fix


@pytest.mark.parametrize(
    "ask",
    [
        lambda: python_misfit("99.0.0", ("3.12",), FACTS),
        lambda: pair_misfit("torchvision", "99.0", "2.6.0", FACTS),
        lambda: gpu_misfit("2.6.0", "12.4", "Voodoo 2", FACTS),
        lambda: gpu_misfit("2.6.0", "9.9", "H100", FACTS),
        lambda: driver_misfit("99.1", "550", "torch", FACTS),
        lambda: driver_misfit("12.4", "new", "torch", FACTS),
        lambda: index_lacks("99.0.0", "cu124", FACTS),
    ],
)
def test_what_no_fact_knows_is_unknown(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(Unknown):
        ask()
