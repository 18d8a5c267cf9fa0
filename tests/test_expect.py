"""Contracts: what they may say, and what holding a machine to them makes of its results."""

from __future__ import annotations

from pathlib import Path

import machines
import pytest

from envkit import facts
from envkit.doctor import contracts
from envkit.errors import UsageError
from envkit.judging import judge
from envkit.model import Outcome, Result
from envkit.subjects.host.expected import Expected, ExpectedChecks, ExpectedGpus

CHECKS = judge.checks()


def written(folder: Path, text: str) -> Expected:
    path = folder / "expect.toml"
    path.write_text(text)
    return contracts.load(path, CHECKS)


def test_a_whole_contract(tmp_path: Path) -> None:
    read = written(
        tmp_path,
        '[gpus]\ncount = 8\nname = "NVIDIA H100*"\nmemory_gib = 79\nmig = "off"\n'
        '[driver]\nversion = ">=550.54.15,<581"\n[nvlink]\nlinks = 18\n[infiniband]\nports = 8\nrate_gbps = 400\n'
        '[machine]\nservices = ["slurmd"]\n'
        '[checks]\nrequire = ["host-other-xid"]\nmay_be_unknown = ["host-glibc-too-old-for-torch"]\n',
    )
    assert read.gpus == ExpectedGpus(8, "NVIDIA H100*", 79, "off")
    assert read.infiniband.rate_gbps == 400
    assert read.checks == ExpectedChecks(("host-other-xid",), ("host-glibc-too-old-for-torch",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gpus]\ncoumt = 8\n", "did you mean `count`"),
        ("[gpu]\ncount = 8\n", "did you mean `gpus`"),
        ("gpus = 8\n", "`gpus` must be a table, not 8"),
        ('[gpus]\ncount = "eight"\n', "`gpus.count` must be a whole number, not text"),
        ("[gpus]\nname = 80\n", "`gpus.name` is the number 80; it must be text"),
        ("[machine]\nservices = [true]\n", "`machine.services` must be a list of texts, and holds true or false"),
        ("[gpus]\ncount = 8.5\n", "`gpus.count` must be a whole number, not 8.5"),
        ("[gpus]\nmemory_gib = 8" + "0" * 400 + "\n", "Number out of range - at `$.gpus.memory_gib`"),
        ("[infiniband]\nrate_gbps = nan\n", "expects nan"),
        ("[gpus]\ncount = -1\n", "expects -1"),
        ('[gpus]\nmig = "disabled"\n', "neither on nor off"),
        ('[driver]\nversion = "newest"\n', "no version specifier"),
        ('[checks]\nrequire = ["host-other-xi"]\n', "did you mean `host-other-xid`"),
        ("[gpus\n", "cannot be read"),
        ("a = " + "[" * 5000, "cannot be read"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        written(tmp_path, text)
    assert says in f"{error.value.message} {error.value.fix}"


def test_a_contract_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        contracts.load(tmp_path / "gone.toml", CHECKS)


def test_a_required_check_may_not_be_skipped() -> None:
    held = contracts.hold(
        (Result("a", Outcome.SKIP, reason="no GPU"), Result("b", Outcome.SKIP, reason="no GPU")),
        Expected(checks=ExpectedChecks(require=("a",))),
    )
    assert [result.outcome for result in held] == [Outcome.FAIL, Outcome.SKIP]
    assert "no GPU" in held[0].findings[0].message


def test_what_may_be_unknown_is_skipped_and_says_so() -> None:
    held = contracts.hold(
        (Result("a", Outcome.UNKNOWN, reason="dark"), Result("b", Outcome.UNKNOWN, reason="dark")),
        Expected(checks=ExpectedChecks(may_be_unknown=("a",))),
    )
    assert [result.outcome for result in held] == [Outcome.SKIP, Outcome.UNKNOWN]
    assert "dark" in held[0].reason


def test_a_machine_that_lost_everything_breaks_its_contract() -> None:
    """Every question about a GPU is skipped where there is none; the contract alone knows that there should be."""
    host = machines.host("bare", {"expected": {"gpus": {"count": 8}, "nvlink": {"links": 18}}})
    outcomes = {result.check: result.outcome for result in judge.judge(host, facts.load())}
    assert outcomes["host-contract-gpus-mismatch"] is outcomes["host-contract-nvlink-mismatch"] is Outcome.FAIL


def test_no_contract_changes_nothing() -> None:
    results = (Result("a", Outcome.UNKNOWN, reason="dark"),)
    assert contracts.hold(results, None) is results
