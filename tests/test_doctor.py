"""The command that examines a machine: saved, judged elsewhere, redacted, compared, and never green in the dark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import machines
import pytest

from envkit import examine, exits, expect, facts, host_diff, judge, pseudonyms, report, saved
from envkit.diff import Weight
from envkit.errors import UsageError
from envkit.model import Finding, Outcome, Report, Result, Severity, Subject, Verdict
from envkit.subjects import Host
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host.expected import Expected, ExpectedChecks

FACTS = facts.load()
SOURCES = [item.name for item in fields(Host) if item.name not in ("name", "wanted_cuda", "expected")]
GPU_MACHINES = [name for name in machines.NAMES if name != "bare"]


def written(path: Path, host: Host) -> Path:
    path.write_text(saved.text("host", to_plain(host)))
    return path


def envkit(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "envkit", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.parametrize("machine", GPU_MACHINES)
@pytest.mark.parametrize("source", SOURCES)
def test_no_machine_passes_with_a_source_taken_away(machine: str, source: str) -> None:
    """The issue's own test: take away each source in turn, and the verdict is not pass."""
    host = machines.host(machine)
    results = judge.judge(host, FACTS)
    assert Report(Subject("host", "x"), results).verdict() is Verdict.PASS
    dark = judge.judge(machines.without(host, source), FACTS)
    assert Report(Subject("host", "x"), dark).verdict() is not Verdict.PASS


def test_a_machine_of_which_nothing_is_known_is_undecided() -> None:
    results = judge.judge(Host("dark"), FACTS)
    assert Report(Subject("host", "dark"), results).exit_code() == 3
    assert Outcome.PASS not in {result.outcome for result in results}
    assert Outcome.BROKE not in {result.outcome for result in results}


@pytest.mark.parametrize("machine", machines.NAMES)
def test_what_was_saved_is_judged_as_the_machine_was(tmp_path: Path, machine: str) -> None:
    host = machines.host(machine)
    path = written(tmp_path / "host.json", host)
    read = examine.host(Path("/"), 8.0, "", None, path, False)
    assert judge.judge(read, FACTS) == judge.judge(host, FACTS)


def test_a_contract_is_held_against_a_saved_machine(tmp_path: Path) -> None:
    path = written(tmp_path / "host.json", machines.host("h100"))
    contract = tmp_path / "expect.toml"
    contract.write_text('[gpus]\ncount = 9\n[checks]\nrequire = ["host-expected-nvlink"]\n')
    host = examine.host(Path("/"), 8.0, "", contract, path, False)
    made, _ = examine.report(host, time.monotonic())
    failed = {result.check for result in made.results if result.outcome is Outcome.FAIL}
    assert failed == {"host-expected-gpus", "host-expected-nvlink"}


@pytest.mark.parametrize("machine", machines.NAMES)
def test_a_redacted_machine_tells_nothing_of_its_owner_and_is_judged_the_same(machine: str) -> None:
    plain = to_plain(replace(machines.host(machine), name="node17.cluster.example.org"))
    told = {
        "GPU-8a3b2c1d-1111-2222-3333-444455556666": "uuid",
        "0c:42:a1:5e:77:10": "mac",
        "10.20.30.41": "address",
        "b83f:d203:0012:abcd": "guid",
    }
    plain["log"] = {
        "value": [{"text": f"NVRM: {' '.join(told)} node17.cluster.example.org /home/anna/x"}],
        "via": "/dev/kmsg",
        "missing": "",
    }
    text = json.dumps(pseudonyms.machine(plain))
    assert not [one for one in (*told, "node17", "anna") if one in text]
    redacted = from_plain(Host, pseudonyms.machine(to_plain(machines.host(machine))))
    before = {result.check: result.outcome for result in judge.judge(machines.host(machine), FACTS)}
    assert {result.check: result.outcome for result in judge.judge(redacted, FACTS)} == before


def test_one_thing_has_one_stand_in() -> None:
    uuid = "GPU-8a3b2c1d-1111-2222-3333-444455556666"
    made = pseudonyms.machine({"name": "n17", "a": uuid, "b": [f"x {uuid}", uuid.replace("8a", "9b")]})
    assert made["a"] == made["b"][0].removeprefix("x ")
    assert made["a"] != made["b"][1]
    assert made["a"].startswith("GPU-00000000-")


def test_what_works_there_and_not_here_comes_first() -> None:
    good, bad = machines.host("h100"), machines.host("h100", {"nvml.gpus.3.remap.failed": True, "kernel": "9.9"})
    changes = host_diff.changes(good, bad, FACTS)
    assert changes[0].kind == "check"
    assert changes[0].weight is Weight.BREAKING
    assert "host-row-remap-healthy: pass there, fail here" in changes[0].text
    assert next(change for change in changes if change.text.startswith("kernel:")).new == "9.9"
    assert host_diff.changes(good, good, FACTS) == ()


def test_the_diff_of_two_saved_machines_by_the_command(tmp_path: Path) -> None:
    good = written(tmp_path / "a.json", machines.host("h100"))
    bad = written(tmp_path / "b.json", machines.host("h100", {"nvml.gpus.3.ecc": "off"}))
    done = envkit("diff", str(good), str(bad))
    assert done.returncode == 1
    assert "host-ecc-on: pass there, fail here" in done.stdout
    assert envkit("diff", str(good), str(good)).returncode == 0


def hostile(kind: str) -> str:
    plain: Any = json.loads(saved.text("host", to_plain(machines.host("h100"))))
    if kind == "another schema":
        plain["schema"] = "envkit.subject/99"
    elif kind == "another kind":
        plain["kind"] = "smoke"
    elif kind == "deep":
        return '{"schema": "envkit.subject/1", "kind": "host", "subject": ' + "[" * 90000 + "]" * 90000 + "}"
    elif kind == "deep inside":
        plain["subject"]["kernel"]["value"] = json.loads("[" * 500 + "]" * 500)
    elif kind == "another type":
        plain["subject"]["nvml"]["value"]["gpus"] = "eight"
    elif kind == "cut":
        return json.dumps(plain)[:2000]
    elif kind == "bytes":
        return "\x00\x01\x02"
    return json.dumps(plain)


@pytest.mark.parametrize(
    "kind", ["another schema", "another kind", "deep", "deep inside", "another type", "cut", "bytes"]
)
def test_a_file_that_is_no_machine_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(hostile(kind))
    done = envkit("doctor", "--from", str(path))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_file_beyond_all_sizes_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    began = time.monotonic()
    with pytest.raises(UsageError, match="more than 64 MiB"):
        saved.document(path)
    assert time.monotonic() - began < 5


def test_control_characters_of_a_machine_do_not_reach_the_terminal(tmp_path: Path) -> None:
    host = machines.host("h100", {"nvml.gpus.0.name": "NVIDIA \x1b[2J\x07 H100", "nvml.gpus.0.remap.failed": True})
    done = envkit("doctor", "--from", str(written(tmp_path / "host.json", host)))
    assert done.returncode == 1
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--budget", "0"), "leaves no time"),
        (("--budget", "-1"), "leaves no time"),
        (("--root", "/nonexistent"), "is no directory"),
        (("--expect", "/nonexistent.toml"), "cannot be read"),
        (("--cuda", "banana"), "banana"),
        (("--exit-style", "zabbix"), "exit style"),
        (("--format", "csv"), "no format"),
    ],
)
def test_wrong_input_is_one_sentence_and_code_2(argv: tuple[str, ...], says: str) -> None:
    done = envkit("doctor", *argv)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_input_is_unknown_to_nagios_and_drains_in_slurm() -> None:
    assert envkit("doctor", "--budget", "0", "--exit-style", "nagios").returncode == 3
    assert envkit("doctor", "--budget", "0", "--exit-style", "slurm").returncode == 1


def test_a_machine_without_home_or_path_is_examined() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "doctor", "--format", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={},
    )
    assert done.returncode in (0, 1, 3), done.stderr
    assert "broke" not in {result["outcome"] for result in json.loads(done.stdout)["results"]}


def test_the_list_names_every_check_of_a_machine() -> None:
    lines = list(examine.listing())
    assert len(lines) == sum(Host in check.subjects for check in judge.checks().values())
    assert any(line.startswith("host-xid") for line in lines)


def test_explain_prints_a_page_and_names_the_nearest_of_a_wrong_one() -> None:
    assert "Proven by these faults" in envkit("explain", "host-expected-gpus").stdout
    done = envkit("explain", "host-expected-gpu")
    assert done.returncode == 2
    assert "host-expected-gpus" in done.stderr


def made(*results: Result) -> Report:
    return Report(Subject("host", 'n"1\\'), results, 0.5)


FOUND = Result("a", Outcome.FAIL, (Finding("a | b", Severity.ERROR),))
WARNED = Result("b", Outcome.FAIL, (Finding("slow", Severity.WARNING),))
OPEN = Result("c", Outcome.UNKNOWN, reason="dark")
WELL = Result("d", Outcome.PASS)


@pytest.mark.parametrize(
    ("results", "nagios", "slurm"),
    [
        ((WELL,), 0, 0),
        ((WELL, WARNED), 1, 0),
        ((WELL, FOUND), 2, 1),
        ((WELL, OPEN), 3, 1),
        ((FOUND, OPEN), 2, 1),
        ((), 3, 1),
    ],
)
def test_exit_styles(results: tuple[Result, ...], nagios: int, slurm: int) -> None:
    assert exits.styled(made(*results), Severity.ERROR, "nagios") == nagios
    assert exits.styled(made(*results), Severity.ERROR, "slurm") == slurm
    line = report.render(made(*results), "nagios")
    assert line.startswith(f"ENVKIT {exits.NAGIOS[nagios]} - ")
    assert line.count("\n") == line.count("|") == 1


def test_prometheus_text() -> None:
    text = report.render(made(FOUND, OPEN, WELL), "prometheus")
    of = 'kind="host",subject="n\\"1\\\\"'
    assert f'envkit_check{{{of},check="a",outcome="fail"}} 1\n' in text
    assert f'envkit_findings{{{of},severity="error"}} 1\n' in text
    assert f'envkit_verdict{{{of},verdict="fail"}} 1\n' in text
    assert f'envkit_verdict{{{of},verdict="pass"}} 0\n' in text
    assert f"envkit_elapsed_seconds{{{of}}} 0.500\n" in text


def test_a_contract_never_makes_a_finding_green() -> None:
    contract = Expected(checks=ExpectedChecks(may_be_unknown=("a",)))
    assert expect.hold((FOUND,), contract) == (FOUND,)
