"""The command that examines a machine: saved, judged elsewhere, redacted, compared, and never green in the dark."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import forked
import machines
import pytest
from clocks import costs_less
from gathered import gathered

from envkit import facts, report
from envkit.diff import hosts
from envkit.diff.compare import Weight
from envkit.doctor import anonymize, contracts, doctor
from envkit.errors import UsageError
from envkit.judging import judge
from envkit.model import Finding, Observed, Outcome, Report, Result, Severity, Subject, Verdict
from envkit.report import exit_codes
from envkit.subjects import Host, saved
from envkit.subjects.codec import from_plain, to_plain
from envkit.subjects.host.expected import Expected, ExpectedChecks
from envkit.subjects.host.system import RemoteMount

FACTS = facts.load()
SOURCES = [item.name for item in fields(Host) if item.name not in ("name", "wanted_cuda", "expected", "newer_fields")]
GPU_MACHINES = [name for name in machines.NAMES if name != "bare"]


def written(path: Path, host: Host) -> Path:
    path.write_text(saved.text("host", to_plain(host)))
    return path


def envkit(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return forked.envkit(*argv, env={**os.environ, **(env or {})})


@pytest.mark.slow  # judges every machine once for each source
@gathered(product(GPU_MACHINES, SOURCES))
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
    assert Outcome.CRASHED not in {result.outcome for result in results}


@pytest.mark.parametrize("machine", machines.NAMES)
def test_what_was_saved_is_judged_as_the_machine_was(tmp_path: Path, machine: str) -> None:
    host = machines.host(machine)
    path = written(tmp_path / "host.json", host)
    read = doctor.host(Path("/"), 8.0, "", None, path, False)
    assert judge.judge(read, FACTS) == judge.judge(host, FACTS)


def test_a_contract_is_held_against_a_saved_machine(tmp_path: Path) -> None:
    path = written(tmp_path / "host.json", machines.host("h100"))
    contract = tmp_path / "expect.toml"
    contract.write_text('[gpus]\ncount = 9\n[checks]\nrequire = ["host-contract-nvlink-mismatch"]\n')
    host = doctor.host(Path("/"), 8.0, "", contract, path, False)
    made, _ = doctor.report(host, time.monotonic())
    failed = {result.check for result in made.results if result.outcome is Outcome.FAIL}
    assert failed == {"host-contract-gpus-mismatch", "host-contract-nvlink-mismatch"}


# Each is somebody's; what follows is what it stands for.  Words like them are put into every text of a machine.
CANARIES = {
    "node17.corp.example.org": "the host's name",
    "node17": "its first part",
    "wintermute": "a user",
    "1650723914159": "a serial number",
    "8a3b2c1d-1111-2222-3333-444455556666": "a UUID",
    "0c:42:a1:5e:77:10": "a MAC address",
    "enx0c42a15e7710": "an interface named by it",
    "10.20.30.41": "an address",
    "fd12:3456:789a::7710": "an address",
    "b83f:d203:0012:abcd": "a GUID",
    "0xb83fd2030012abcd": "a GUID in hexadecimal",
    "fe80:0000:0000:0000:b83f:d203:0012:abcd": "a GID",
    "5f3c9a1e7b2d4c6f8a0b1c2d3e4f5a6b": "a machine-id",
}
SHAPES = {"wintermute": "/home/wintermute/x /scratch/wintermute wintermute@there"}


def with_canaries(value: Any, key: str = "") -> Any:
    """The plain machine with every canary behind every text that is nobody's key."""
    if isinstance(value, dict):
        return {inner: with_canaries(item, inner) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_canaries(item, key) for item in value]
    if isinstance(value, str):
        return " ".join([value, *(SHAPES.get(one, one) for one in CANARIES)])
    return value


@pytest.mark.parametrize("machine", machines.NAMES)
def test_a_redacted_machine_tells_nothing_in_any_text(machine: str) -> None:
    plain = with_canaries(to_plain(machines.host(machine)))
    plain["name"] = "node17.corp.example.org"
    plain["nvml"]["value"]["gpus"] = [{"serial": {"value": "1650723914159", "via": "NVML", "missing": ""}}]
    plain["environment"]["value"] = {"USER": "wintermute", "MASTER_ADDR": "node99.corp.example.org"}
    plain["remote_mounts"]["value"] = [{"device": "filer9:/home"}, {"device": "//filer9/share"}]
    plain["docker"]["value"]["endpoint"] = "tcp://filer9:2376"
    plain.pop("packages")  # versions, none of which is an address
    plain.pop("driver_packages")
    text = json.dumps(anonymize.machine(plain))
    assert [one for one in (*CANARIES, "node99", "filer9", "corp.example") if one in text] == []


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1", "node99"])
def test_only_a_master_elsewhere_is_hidden(address: str) -> None:
    plain = to_plain(machines.host(machines.NAMES[0]))
    plain["environment"]["value"] = {"MASTER_ADDR": address}
    shown = anonymize.machine(plain)["environment"]["value"]["MASTER_ADDR"]
    assert (shown == address) == (address != "node99")


@pytest.mark.parametrize("machine", machines.NAMES)
def test_a_redacted_machine_is_judged_as_before(machine: str) -> None:
    redacted = from_plain(Host, anonymize.machine(to_plain(machines.host(machine))))
    before = {result.check: result.outcome for result in judge.judge(machines.host(machine), FACTS)}
    assert {result.check: result.outcome for result in judge.judge(redacted, FACTS)} == before
    assert redacted.name == "machine"
    assert redacted.packages == machines.host(machine).packages


# Nobody's forms: what a person, a site or a program may have put into any text of a machine.
PLANTED = (
    "acmefiler", "nas07", "hunter2planted", "S3cr3tPlanted", "projectxeno", "licsrv01", "wintermute", "jdoe42",
    "dgxpod", "kubeprodns", "slurmq_acme", "müllerplanted", "NVSN1234567X", "abcdef0123456789abcdef0123456789abcdef01",
)  # fmt: skip
AS_TEXT = (
    "{0}:/exports/{4} //{1}.corp.acmesite.net/{4} 27000@{5} http://{6}:{2}@{0}.acmesite.net:3128 /home/{6}/{4} "
    "lowerdir=/var/lib/docker/overlay2/{13}/diff,{8} {9}/{10} {11} SN {12} {7}@{1}: pam for user {6} {3}"
)


def planted(value: Any) -> Any:
    """The plain machine with all of these behind every text."""
    if isinstance(value, dict):
        return {key: planted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [planted(item) for item in value]
    return f"{value} {AS_TEXT.format(*PLANTED)}" if isinstance(value, str) else value


def told(text: str) -> list[str]:
    text = text.encode().decode("unicode_escape") if "\\u" in text else text
    return [one for one in (*PLANTED, "acmesite") if one.lower() in text.lower()]


@pytest.mark.parametrize("machine", machines.NAMES)
def test_no_field_of_a_redacted_machine_keeps_a_word_of_somebodys(machine: str) -> None:
    plain = planted(to_plain(machines.host(machine)))
    plain["environment"]["value"]["https_proxy"] = "storage.cluster.internal:3128"
    plain["environment"]["value"]["NCCL_ACMEFILER_X"] = "1"
    text = json.dumps(anonymize.machine(plain))
    assert told(text) == [] and "storage.cluster" not in text


@pytest.mark.slow  # starts envkit once for each format
@pytest.mark.parametrize("how", ["live", "from"])
def test_a_redacted_machine_is_saved_and_reported_without_them(how: str, tmp_path: Path) -> None:
    """Every byte of the file and of the reports, of this machine and of a recorded one."""
    target = tmp_path / "redacted.json"
    if how == "from":
        host = machines.host("h100")
        lines = tuple(replace(line, text=f"{line.text} {AS_TEXT.format(*PLANTED)}") for line in host.log.value or ())
        mounts = (RemoteMount("/home/wintermute", "nfs4", "acmefiler:/exports/projectxeno", "answered"),)
        host = replace(
            host,
            log=Observed.of(lines, "dmesg"),
            remote_mounts=Observed.of(mounts, "statvfs"),
            name="nas07.acmesite.net",
        )
        source = ["--from", str(written(tmp_path / "host.json", host))]
    else:
        source = []
    variables = {
        "HOME": "/home/wintermute", "USER": "wintermute", "NCCL_SOCKET_IFNAME": "acmefiler",
        "https_proxy": "http://jdoe42:hunter2planted@nas07.acmesite.net:3128", "no_proxy": "licsrv01,dgxpod.acmesite",
        "NVIDIA_LICENSE_SERVER": "27000@licsrv01", "CUDA_CACHE_PATH": "/scratch/projectxeno",
        "TORCH_HOME": "/x/kubeprodns", "LD_LIBRARY_PATH": "/opt/slurmq_acme/lib", "PATH": os.environ["PATH"],
    }  # fmt: skip
    for format in ("json", "console", "junit", "html"):
        words = ["--redact", "--save", str(target), "-f", format, "--observed"]
        done = forked.envkit("doctor", *source, *words, env=variables)
        assert done.returncode in (0, 1, 3), done.stderr
        text = target.read_text() + done.stdout
        assert told(text) == [] and target.stat().st_mode & 0o777 == 0o600
        name = socket.gethostname()  # a short one is a word of the kernel's paths as well ("vm")
        assert how == "from" or len(name) < 5 or not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)


@pytest.mark.parametrize("name", ["docker", "nvidia", "localhost"])
def test_a_host_named_like_something_else_is_judged_as_before(name: str) -> None:
    host = replace(machines.host("h100", {"names.hostname": name}), name=name)
    before = {result.check: result.outcome for result in judge.judge(host, FACTS)}
    redacted = from_plain(Host, anonymize.machine(to_plain(host)))
    assert {result.check: result.outcome for result in judge.judge(redacted, FACTS)} == before


def test_a_host_name_that_is_a_common_word_is_hidden_where_it_occurs() -> None:
    said = {"value": ["mounted memory:/export"], "via": "", "missing": ""}
    assert "memory" in json.dumps(anonymize.machine({"name": "other-host", "mounts": said}))
    assert "memory" not in json.dumps(anonymize.machine({"name": "memory", "mounts": said}))


def test_a_short_host_name_is_no_longer_told_either() -> None:
    made = anonymize.machine({"name": "vm", "names": {"value": {"hostname": "vm"}, "via": "", "missing": ""}})
    assert "vm" not in json.dumps(made)


def test_one_thing_has_one_stand_in() -> None:
    uuid = "GPU-8a3b2c1d-1111-2222-3333-444455556666"
    made = anonymize.machine({"name": "n17", "a": uuid, "b": [f"x {uuid}", uuid.replace("8a", "9b")]})
    assert made["a"] == made["b"][0].removeprefix("x ")
    assert made["a"] != made["b"][1]
    assert made["a"].startswith("GPU-00000000-")


def test_what_works_there_and_not_here_comes_first() -> None:
    good, bad = (
        machines.host("h100"),
        machines.host("h100", {"nvml.gpus.3.remap.failed": True, "kernel": "9.9", "kernels.0.release": "9.9"}),
    )
    changes = hosts.changes(good, bad, FACTS)
    assert changes[0].kind == "check"
    assert changes[0].weight is Weight.BREAKING
    assert "host-row-remap-failed-or-pending: pass there, fail here" in changes[0].text
    assert next(change for change in changes if change.text.startswith("kernel:")).new == "9.9"
    assert hosts.changes(good, good, FACTS) == ()


def test_a_list_is_compared_item_by_item_and_the_same_change_is_told_once() -> None:
    good = machines.host("h100")
    vbios = machines.plain("h100")["nvml"]["value"]["gpus"][0]["vbios"]["value"]
    changes = {"nvml.gpus.*.vbios": "9.9", "nvml.gpus.*.temperature.core": 50, "kernel": "9.9"}
    texts = [one.text for one in hosts.changes(good, machines.host("h100", changes), FACTS) if one.kind == "field"]
    assert [text for text in texts if "vbios" in text] == [f"nvml.gpus.*.vbios (8 times): {vbios} there, 9.9 here"]
    assert not [text for text in texts if "temperature" in text]
    plain = to_plain(good)
    plain["nvml"]["value"]["gpus"] = [one for one in plain["nvml"]["value"]["gpus"] if one["index"] != 3]
    texts = [one.text for one in hosts.changes(good, from_plain(Host, plain), FACTS) if one.kind == "field"]
    assert texts == ["nvml.gpus: #3 there, nothing here"]


def test_a_file_of_another_version_of_envkit_is_judged_by_what_it_holds(tmp_path: Path) -> None:
    """A field that is gone or has yet to be is no fault of the file: the first is not observed, the second unused."""
    plain = json.loads(saved.text("host", to_plain(machines.host("h100"))))
    plain["subject"]["not_yet"] = {"value": 1, "via": "", "missing": ""}
    del plain["subject"]["shm"]
    path = tmp_path / "host.json"
    path.write_text(json.dumps(plain))
    done = envkit("doctor", "--from", str(path))
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr


def test_the_diff_of_a_machine_and_what_is_none_says_which(tmp_path: Path) -> None:
    good = written(tmp_path / "saved-without-suffix", machines.host("h100"))
    assert envkit("diff", str(good), str(good)).returncode == 0
    done = envkit("diff", str(good), "nosuch.file")
    assert done.returncode == 2
    assert "no file nosuch.file" in done.stderr


def test_the_diff_of_two_saved_machines_by_the_command(tmp_path: Path) -> None:
    good = written(tmp_path / "a.json", machines.host("h100"))
    bad = written(tmp_path / "b.json", machines.host("h100", {"nvml.gpus.3.ecc": "off"}))
    done = envkit("diff", str(good), str(bad))
    assert done.returncode == 1
    assert "host-ecc-off: pass there, fail here" in done.stdout
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
    with costs_less(5), pytest.raises(UsageError, match="more than 64 MiB"):
        saved.document(path)


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
        (("--budget", "nan"), "leaves no time"),
        (("--budget", "inf"), "leaves no time"),
        (("--from", "{missing}", "--root", "/tmp"), "both given"),
        (("--from", "{missing}", "--cuda", "banana"), "no version of CUDA"),
        (("--from", "{missing}"), "no such file"),
        (("--root", "{missing}"), "is no directory"),
        (("--expect", "{missing}.toml"), "cannot be read"),
        (("--cuda", "banana"), "banana"),
        (("--exit-style", "zabbix"), "exit style"),
        (("--format", "csv"), "no format"),
    ],
)
def test_wrong_input_is_one_sentence_and_code_2(tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    done = envkit("doctor", *(word.format(missing=tmp_path / "missing") for word in argv))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_input_is_unknown_to_nagios_and_drains_in_slurm() -> None:
    assert envkit("doctor", "--budget", "0", "--exit-style", "nagios").returncode == 3
    assert envkit("doctor", "--budget", "0", "--exit-style", "slurm").returncode == 1


def test_a_machine_without_home_or_path_is_examined() -> None:
    done = forked.envkit("doctor", "--format", "json", env={})
    assert done.returncode in (0, 1, 3), done.stderr
    assert "crashed" not in {result["outcome"] for result in json.loads(done.stdout)["results"]}


def test_the_list_names_every_check_of_a_machine() -> None:
    lines = list(doctor.listing())
    assert len(lines) == sum(Host in check.subjects for check in judge.checks().values())
    assert len(lines) > 200  # README and CHANGELOG say so
    assert any(line.startswith("host-other-xid") for line in lines)


def test_explain_prints_a_page_and_names_the_nearest_of_a_wrong_one() -> None:
    assert "Proven by these faults" in envkit("explain", "host-contract-gpus-mismatch").stdout
    done = envkit("explain", "host-contract-gpus")
    assert done.returncode == 2
    assert "host-contract-gpus-mismatch" in done.stderr


def made(*results: Result) -> Report:
    return Report(Subject("host", 'n"1\\'), results, 0.5)


FOUND = Result("a", Outcome.FAIL, (Finding("a | b", Severity.ERROR),))
WARNED = Result("b", Outcome.FAIL, (Finding("slow", Severity.WARNING),))
OPEN = Result("c", Outcome.UNKNOWN, reason="dark")
WELL = Result("d", Outcome.PASS)


@pytest.mark.parametrize(
    ("results", "nagios", "slurm", "nvsentinel"),
    [
        ((WELL,), 0, 0, 0),
        ((WELL, WARNED), 1, 0, 0),
        ((WELL, FOUND), 2, 1, 1),
        ((WELL, OPEN), 3, 1, 2),
        ((FOUND, OPEN), 2, 1, 1),
        ((), 3, 1, 2),
    ],
)
def test_exit_styles(results: tuple[Result, ...], nagios: int, slurm: int, nvsentinel: int) -> None:
    assert exit_codes.styled(made(*results), Severity.ERROR, "nvsentinel") == nvsentinel
    assert exit_codes.styled(made(*results), Severity.ERROR, "nagios") == nagios
    assert exit_codes.styled(made(*results), Severity.ERROR, "slurm") == slurm
    line = report.render(made(*results), "nagios")
    assert line.startswith(f"ENVKIT {exit_codes.NAGIOS[nagios]} - ")
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
    assert contracts.hold((FOUND,), contract) == (FOUND,)


def test_the_parts_of_a_machine_are_marked_by_their_worst() -> None:
    seen = machines.host("h100", {"nvml.gpus.3.remap.failed": True, "shm": 2 << 30, "shm_free": 2 << 30, "log": None})
    _, (table,) = doctor.report(seen, time.monotonic())
    marks = {row[1]: row[0] for row in table.rows}
    assert (marks["GPUs"], marks["kernel log"], marks["machine"], marks["contract"]) == ("✗", "?", "?", "-")
    assert marks["containers"] == "✓"
    counted = [int(cell) for row in table.rows for cell in row[2:] if cell != "-"]
    assert sum(counted) == len(judge.checks(Host))
