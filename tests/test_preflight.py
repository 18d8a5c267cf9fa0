"""One verdict before a launch, and a command that starts on a pass only and is then alone in its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import machines
import pytest

from envkit.errors import UsageError
from envkit.launch import preflight
from envkit.launch.docker_options import job_from
from envkit.model import Finding, Outcome, Report, Result, Severity, Subject
from envkit.subjects import Host, saved
from envkit.subjects.codec import to_plain

# A process of its own in which this machine is the one that a file holds: what is tested is how a command starts.
ON_MACHINE = """
import sys
from envkit import cli
from envkit.launch import preflight
from envkit.subjects import saved
from envkit.subjects import Host
machine = saved.of_kind(sys.argv.pop(1), Host)
preflight.observe_host = lambda **wishes: machine
cli.main()
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "host.json"
    path.write_text(saved.text("host", to_plain(machines.host("h100"))))
    return path


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "host.json"
    host = machines.host("h100", {"nvml.gpus.3.remap.failed": True})
    path.write_text(saved.text("host", to_plain(host)))
    return path


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dark") / "host.json"
    path.write_text(saved.text("host", to_plain(machines.host("h100", {"log": None}))))
    return path


def fly(host: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return forked.envkit("preflight", "--level", "passive", "--host", str(host), *argv)


def on(machine: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """As ``fly``, where the machine is the one that envkit runs on."""
    host = saved.of_kind(machine, Host)
    return forked.envkit(
        "preflight", "--level", "passive", *argv, before=lambda: setattr(preflight, "observe_host", lambda **_: host)
    )


def started_on(machine: Path, *command: str) -> list[str]:
    """The words of a Python of its own, for what a fork of the tests cannot show."""
    return [sys.executable, "-c", ON_MACHINE, str(machine), "preflight", "--level", "passive", "--", *command]


@pytest.mark.parametrize("more", [(), ("--require-gpu", "--framework", "none"), ("--gpus", "none"), ("trainer:1",)])
def test_the_pass_of_a_saved_machine_starts_no_command(good: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    """What another machine passes was never asked of this one, on which the command would run."""
    started = tmp_path / "started"
    done = fly(good, *more, "--report", str(tmp_path / "report.json"), "--", "touch", str(started))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a saved machine, which cannot start the command" in done.stderr
    assert "level passive" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_healthy_machine_passes_and_a_sick_one_says_why(good: Path, bad: Path) -> None:
    assert fly(good).returncode == 0
    done = fly(bad)
    assert done.returncode == 1
    assert "cause: GPU 3" in done.stderr
    assert "fix: " in done.stderr


@pytest.mark.parametrize("code", [0, 1, 2, 3, 7, 255])
def test_the_command_starts_on_a_pass_and_its_code_is_the_answer(good: Path, code: int) -> None:
    done = on(good, "--", "sh", "-c", f"echo said; exit {code}")
    assert (done.returncode, done.stdout) == (code, "said\n")


def test_the_command_gets_its_own_arguments_untouched(good: Path) -> None:
    done = on(good, "--", "printf", "%s|", "--level", "x", "--", "-h", "a b")
    assert done.stdout == "--level|x|--|-h|a b|"


@pytest.mark.parametrize("name", ["bad", "dark"])
def test_the_command_does_not_start_otherwise(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    started = tmp_path / "started"
    done = on(request.getfixturevalue(name), "--", "touch", str(started))
    assert done.returncode == {"bad": 1, "dark": 3}[name]
    assert not started.exists()
    assert done.stdout == ""  # the command's, which did not run


def test_what_may_be_unknown_does_not_stop_the_command(dark: Path) -> None:
    report = json.loads(fly(dark, "--format", "json").stdout)
    unknown = [result["check"] for result in report["results"] if result["outcome"] == "unknown"]
    assert unknown
    words = [word for check in unknown for word in ("--allow-unknown", check)]
    assert on(dark, *words, "--", "true").returncode == 0


def test_the_command_takes_the_process_over(good: Path) -> None:
    """Same pid and process group; what Python had ignored acts again; nothing of envkit's is left."""
    script = (
        'echo $$ $(ps -o pgid= -p $$) $(grep SigIgn /proc/$$/status); ls /proc/$$/fd; env | grep -ci "^envkit" || true'
    )
    with subprocess.Popen(
        started_on(good, "sh", "-c", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        out = process.communicate(timeout=60)[0].split()
    pid, group, _, ignored, *rest = out
    assert int(pid) == int(group) == process.pid
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0
    assert [int(fd) for fd in rest[:-1] if fd.isdecimal() and int(fd) > 2] in ([], [3])  # 3 is ls's own
    assert int(rest[-1]) == sum(name.lower().startswith("envkit") for name in os.environ)


def test_a_signal_reaches_the_command(good: Path) -> None:
    argv = started_on(good, "sh", "-c", "trap 'exit 42' TERM; echo up; while :; do sleep 0.05; done")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 42


def test_a_stop_before_the_verdict_starts_nothing(good: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    argv = started_on(good, "touch", str(started))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=120)
    assert code != 0
    assert not started.exists()


def test_a_stop_that_falls_into_a_callback_of_a_fork_is_not_lost() -> None:
    """Python drops what is raised there: the run went on, and the command behind it would have started."""
    script = (
        "import os, signal, time\n"
        "from envkit import cli\n"
        "os.register_at_fork(after_in_parent=lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(0)))\n"
        "def work():\n"
        "    if not os.fork(): os._exit(0)\n"
        "    time.sleep(600)\n"
        "print(cli.run(work))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "130\n", done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--level", "deep"), "no level"),
        (("--level", "quick"), "can start nothing"),
        (("--workers", "-1"), "workers"),
        (("--allow-unknown", "host-x"), "no check"),
        (("--budget", "-3"), "leaves no time"),
        (("--env-file", "{missing}"), "missing"),
        (("--",), "no command after --"),
        (("--budget", "nan"), "leaves no time"),
        (("--engine", "banana"), "no engine"),
        (("--python", "{missing}"), "no Python"),
        (("--gpus", "-3"), "names no GPUs"),
        (("--gpus", "all,capabilities=utility"), "names no GPUs"),
        (("--ipc", "foo"), "share memory"),
        (("--ulimit", "foo=3"), "no limit"),
        (("--ulimit", "nofile=5:3"), "above the hard one"),
        (("--user", "a:b:c"), "no user"),
        (("--tmpfs", "relative"), "no path"),
        (("--shm-size", "9" * 400), "no size"),
        (("--expect", "{missing}"), "no such file"),
    ],
)
def test_wrong_input_is_one_sentence_and_code_2(good: Path, tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    done = fly(good, *(word.format(missing=tmp_path / "missing") for word in argv))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_there_is_wrong_input(good: Path) -> None:
    done = on(good, "--", "no-such-program-here")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no program `no-such-program-here`" in done.stderr


def test_the_cause_is_what_fits_least_together() -> None:
    def failed(check: str, severity: Severity) -> Result:
        return Result(check, Outcome.FAIL, (Finding(check, severity),))

    results = (
        failed("host-a", Severity.ERROR),
        failed("launch-b", Severity.ERROR),
        failed("image-c", Severity.WARNING),
    )
    told = preflight.cause(Report(Subject("preflight", "x"), results), Severity.ERROR)
    assert told is not None
    assert told.message == "launch-b"
    assert preflight.cause(Report(Subject("preflight", "x"), results[2:]), Severity.ERROR) is None


def test_the_gravest_finding_is_the_cause_whoever_made_it() -> None:
    results = (
        Result("host-a", Outcome.FAIL, (Finding("sick", Severity.ERROR),)),
        Result("launch-b", Outcome.FAIL, (Finding("slow", Severity.WARNING),)),
    )
    told = preflight.cause(Report(Subject("preflight", "x"), results), Severity.WARNING)
    assert told is not None
    assert told.message == "sick"


def test_a_job_without_gpus_runs_where_there_are_none(tmp_path: Path) -> None:
    host = machines.host("bare", {"pci_gpus": [], "device_nodes": []})
    path = tmp_path / "host.json"
    path.write_text(saved.text("host", to_plain(host)))
    for argv, outcome in (((), "fail"), (("--gpus", "none"), "skip")):
        results = json.loads(fly(path, *argv, "--format", "json").stdout)["results"]
        assert next(one["outcome"] for one in results if one["check"] == "host-no-gpu") == outcome


def test_a_spent_budget_is_undecided_and_starts_no_container() -> None:
    def connect() -> preflight.Engine:
        raise AssertionError("no engine is asked once the budget is spent")

    request = preflight.PreflightRequest("", job_from(), "probe", budget_s=0.01)
    report = preflight.run(request, connect, (), lambda line: None)
    assert report.exit_code() in (1, 3)
    assert {result.check for result in report.results} <= {"preflight-passive", "preflight-probe"}


def test_an_image_and_a_python_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="both given"):
        preflight.PreflightRequest("image", job_from(), python=Path(sys.executable)).check()


def test_without_an_image_no_engine_is_judged(good: Path) -> None:
    checks = {result["check"] for result in json.loads(fly(good, "--format", "json").stdout)["results"]}
    assert (
        not {
            "host-docker-unreachable",
            "host-cdi-spec-stale",
            "host-toolkit-missing",
            "host-podman-without-gpu-support",
        }
        & checks
    )
    assert "host-nvml-not-working" in checks


@pytest.mark.parametrize(
    ("gpus", "level", "wanted"),
    [("none", "probe", False), ("none", "full", False), ("all", "probe", True), (None, "quick", True),
     ("all", "passive", False), (None, "passive", False)],
)  # fmt: skip
def test_a_gpu_must_have_had_a_part_where_the_job_gets_one_and_something_ran(
    gpus: str | None, level: str, wanted: bool
) -> None:
    request = preflight.PreflightRequest("", job_from(gpus=gpus), level)
    assert preflight._needs_gpu(request, None) is wanted


@pytest.mark.parametrize(
    ("modes", "shared"),
    [(("default", "default"), True), (("default", "exclusive process"), False), (("prohibited", "default"), False)],
)
def test_tests_begin_beside_the_probe_only_where_every_gpu_takes_several_processes(
    modes: tuple[str, str], shared: bool
) -> None:
    changes = {f"nvml.gpus.{number}.compute_mode": mode for number, mode in enumerate(modes)}
    assert preflight._shared(machines.host("h100", changes)) is shared
