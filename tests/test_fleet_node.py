"""Nodes as processes of their own: what each leaves in the shared folder, however its examination ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fleet
import msgspec
import processes
import pytest
from clocks import comes
from inline import Envkit

from envkit.cli.fleets import words_of_examination
from envkit.fleet import answers, folder, gather, node, verdict
from envkit.fleet.documents import Body, Ended, decoded
from envkit.fleet.launchers import Placement

PASSING = ("--level", "passive", "--gpus", "none")


def start(
    place: Path, name: str, *words: str, hosts: str = "n[1-2]", command: tuple[str, ...] = (), **environment: str
) -> subprocess.Popen[str]:
    """A node of a run, as a launcher starts it."""
    argv = ["preflight", *PASSING, "--fleet", str(place), "--hosts", hosts, "--node", name, *words]
    return subprocess.Popen(
        [sys.executable, "-m", "envkit", *argv, *(("--", *command) if command else ())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def asked_too_much(place: Path) -> tuple[str, str]:
    """A contract that a node breaks which gets no GPU."""
    path = place / "contract.toml"
    path.write_text('[checks]\nrequire = ["host-no-gpu"]\n')
    return "--expect", str(path)


def ended(*nodes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    made = []
    for each in nodes:
        out, err = each.communicate(timeout=120)
        made.append((each.returncode, out, err))
    return made


def verdict_of(place: Path) -> verdict.FleetVerdict:
    return verdict.judge(gather.gather(place, (), ()), time.time() + 3600)


@pytest.mark.slow  # five whole examinations
def test_the_words_of_a_node_itself_go_and_those_of_its_examination_stay() -> None:
    words = ("--fleet", "RUN", "--level", "quick", "--node=n1", "--gpus", "all", "--frames", "--hosts", "a,b", "image")
    assert words_of_examination(words) == ("--level", "quick", "--gpus", "all", "image")


def test_nodes_pass_and_the_command_starts_on_the_chosen_ones(tmp_path: Path) -> None:
    show = (sys.executable, "-c", "import os; print(os.environ['ENVKIT_NODE_RANK'], os.environ.get('PET_NNODES'))")
    done = ended(*(start(tmp_path / "run", name, command=show) for name in ("n1", "n2")))
    assert [(code, out.strip()) for code, out, _ in done] == [(0, "0 None"), (0, "1 None")]
    assert verdict_of(tmp_path / "run").exit_code == 0
    # n1 is asked for what it skips: it fails, and the spare takes its place.
    spares = ("--spares", "1", "--may-differ", "variable *")
    three = [
        start(tmp_path / "spare", "n1", *spares, *asked_too_much(tmp_path), hosts="n[1-3]", command=show),
        *(start(tmp_path / "spare", name, *spares, hosts="n[1-3]", command=show) for name in ("n2", "n3")),
    ]
    assert [(code, out.strip()) for code, out, _ in ended(*three)] == [(0, ""), (0, "0 2"), (0, "1 2")]
    found = verdict_of(tmp_path / "spare")
    assert found.named(verdict.State.FAIL) == ("n1",)


@pytest.mark.slow  # two whole examinations
@pytest.mark.nightly
def test_a_failed_node_stops_the_start_on_all(tmp_path: Path) -> None:
    touched = tmp_path / "started"
    command = ("touch", str(touched))
    bad = start(tmp_path / "run", "n1", *asked_too_much(tmp_path), command=command)
    good = start(tmp_path / "run", "n2", command=command)
    (first, _, _), (second, _, err) = ended(bad, good)
    assert (first, second, touched.exists()) == (1, 1, False)
    assert "n2: touch does not start here: 1 of 2 nodes are ok, and 2 are needed; n1: " in err


@pytest.mark.slow  # an examination, and the end of a budget
@pytest.mark.nightly
def test_a_node_that_never_comes_is_waited_for_until_the_budget_and_named(tmp_path: Path) -> None:
    ((code, _, err),) = ended(start(tmp_path / "run", "n1", "--budget", "12", command=("true",)))
    assert code == 1
    assert "n2: it never started" in err


HANGS = "import time; time.sleep(600)"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("at", "how", "state", "level"),
    [
        ("start", HANGS, Ended.HUNG, "start"),
        ("start", DIES, Ended.DIED, "start"),
        ("level", HANGS, Ended.HUNG, "passive"),
    ],
)
def test_an_examination_that_hangs_or_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, how: str, state: Ended, level: str
) -> None:
    """In the examination's own process, which reads sitecustomize: before it begins, or once it has said its level."""
    (tmp_path / "sitecustomize.py").write_text(
        how if at == "start" else f"import sys\nprint('level passive', file=sys.stderr, flush=True)\n{how}"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    levels: list[str] = []
    found = node.examine(PASSING, 1.0, levels.append, lambda line: None)
    assert (found.ended, found.level, levels) == (state, level, [level] if at == "level" else [])
    assert found.body == Body()


def test_a_sentence_in_place_of_a_report_is_a_finding() -> None:
    found = node.examine(("--level", "no-such-level"), 60.0, lambda level: None, lambda line: None)
    assert found.ended is Ended.FINISHED
    assert found.body.found[0].check == "preflight-refused"
    assert "no-such-level" in found.body.found[0].findings[0][1]


def placed(name: str = "n1", hosts: tuple[str, ...] = ("n1", "n2"), launch: str = "slurm-17.0") -> Placement:
    return Placement("slurm", name, hosts, launch)


def test_all_nodes_join_one_run(tmp_path: Path) -> None:
    first = folder.join(tmp_path, placed(), folder.Terms("quick", 60.0))
    second = folder.join(tmp_path, placed("n2"), folder.Terms("quick", 60.0))
    assert (first.folder, first.run) == (second.folder, second.run)
    assert first.folder == tmp_path / "slurm-17.0"
    assert folder.join(tmp_path, placed(launch="slurm-18.0"), folder.Terms("quick", 60.0)).run.nonce != first.run.nonce
    assert first.ahead_s is not None and abs(first.ahead_s) < 1  # the kernel dates files by its last tick


@pytest.mark.parametrize(
    ("hosts", "level", "budget", "spares", "words"),
    [
        (("n1", "n3"), "quick", 60.0, 0, "nodes"),
        (("n1", "n2"), "full", 60.0, 0, "level"),
        (("n1", "n2"), "quick", 61.0, 0, "budget"),
        (("n1", "n2"), "quick", 60.0, 1, "spares"),
    ],
)
def test_nodes_that_do_not_agree_are_refused(
    tmp_path: Path, hosts: tuple[str, ...], level: str, budget: float, spares: int, words: str
) -> None:
    folder.join(tmp_path, placed(), folder.Terms("quick", 60.0))
    with pytest.raises(folder.UsageError, match=f"the {words} of this run"):
        folder.join(tmp_path, placed(hosts=hosts), folder.Terms(level, budget, spares))


def test_a_run_that_is_over_is_not_joined(tmp_path: Path) -> None:
    joined = folder.join(tmp_path, placed(launch=""), folder.Terms("quick", 60.0))
    assert folder.join(tmp_path, placed("n2", launch=""), folder.Terms("quick", 60.0)).run == joined.run
    old = fleet.replace
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(old(joined.run, created=1.0)))
    with pytest.raises(folder.UsageError, match="which is over"):
        folder.join(tmp_path, placed(launch=""), folder.Terms("quick", 60.0))


def test_a_folder_that_does_not_answer_is_given_up() -> None:
    with pytest.raises(folder.Hangs, match="did not answer within"):
        folder.in_time(lambda: time.sleep(600), 0.05)


def test_a_document_that_the_folder_does_not_take_goes_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder.join(tmp_path, placed(), folder.Terms("passive", 60.0))
    for inner in ("nodes", "beats"):  # root may write to a read-only folder, and nobody below a file
        (place.folder / inner).rmdir()
        (place.folder / inner).touch()
    (tmp_path / "sitecustomize.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    who = node.identity(place.run.run, place.run.nonce, "n1")
    said: list[str] = []
    made, taken = node.answer(who, node.Carriers(place), PASSING, 60.0, said.append)
    out = capsys.readouterr().out
    assert not taken and "cannot be written" in made.head.trouble
    log = tmp_path / "job.out"
    log.write_text(out)
    found = verdict.judge(gather.gather(log, (), ("n1",)), time.time())
    assert found.nodes[0].cause is verdict.Cause.DIED
    assert any("its document is on stdout" in line for line in said)


@pytest.mark.slow  # a budget that is waited out
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_that_is_stopped_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "sitecustomize.py").write_text(
        "import sys, time\nif '--observed' in sys.orig_argv:\n    open(__file__ + '.hangs', 'w')\n    time.sleep(600)\n"
    )
    running = start(tmp_path / "run", "n1", PYTHONPATH=str(inner))
    assert comes(lambda: list((tmp_path / "run").glob("beats/*")))
    assert comes((inner / "sitecustomize.py.hangs").exists)
    time.sleep(1)  # who is killed before it has said which process it started, microseconds after that, leaves it
    running.send_signal(number)
    ((code, _, _),) = ended(running)
    assert code == (130 if number == signal.SIGTERM else -9)
    assert comes(lambda: not [pid for pid in processes.named("--observed") if str(inner) in _environ(pid)])
    found = verdict_of(tmp_path / "run")
    one = fleet.node_of(found, "n1")
    if number == signal.SIGTERM:
        assert (one.cause, "stopped by SIGTERM" in one.sentence) == (verdict.Cause.DIED, True)
    else:
        assert (one.cause, "its start" in one.sentence) == (verdict.Cause.SILENT, True)


def _environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


# -- the command line


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str]) -> object:
    return Envkit(capsys)


@pytest.mark.parametrize(
    "words",
    [
        ("--hosts", "n1"),
        ("--count", "2"),
        ("--spares", "1"),
        ("--node", "n1"),
        ("--frames",),
        ("--may-differ", "driver"),
        ("--contract", "x"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--contract", "FILE"),
        ("--termination-log", "x"),
        ("--fleet", "RUN"),
        ("--fleet", "RUN", "--hosts", "n[", "--node", "n1"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n3"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--spares", "1"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--report", "RUN"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--format", "json"),
        ("--fleet", "RUN", "--count", "0", "--node", "0"),
        ("--fleet", "RUN", "--count", "2", "--hosts", "n[1-2]", "--node", "n1"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--budget", "1e300"),
        ("--fleet", "RUN", "--count", "200000", "--node", "0"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--budget", "0.5"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--trial-budget", "60"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--link-floor", "40"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--links", "pairs", "--trial-budget", "4"),
        ("--fleet", "RUN", "--hosts", "n[1-2]", "--node", "n1", "--budget", "-1"),
        ("--fleet", "FILE", "--hosts", "n[1-2]", "--node", "n1"),
    ],
)
def test_wrong_words_of_a_node(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    given = [word.replace("RUN", str(tmp_path / "run")).replace("FILE", str(tmp_path / "file")) for word in words]
    with Envkit(capsys) as run:
        done = run("preflight", *PASSING, *given)
    assert done.code == 2, done
    assert "fix: " in done.err
    assert not (tmp_path / "run").exists()


def test_wrong_words_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["preflight", *PASSING, "--hosts", "n[1-2]", "--node", "n1"]
    with Envkit(capsys) as run:
        no_folder = run.split([*base, "--fleet", "-"], ("true",))
        too_many = run.split([*base, "--fleet", str(tmp_path / "run"), "--spares", "2"], ("true",))
    assert (no_folder.code, too_many.code) == (2, 2)
    assert "without a shared folder" in no_folder.err and "leave no node for the job" in too_many.err


def test_a_judged_run_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = fleet.lay(
        tmp_path / "run", *fleet.healthy(n3=None, n5=fleet.document("n5", fleet.body(found=(fleet.fault(),))))
    )
    schema = json.loads((Path(answers.__file__).parent / "fleet-1.schema.json").read_text())
    with Envkit(capsys) as run:
        done = run("judge", place, "--out", tmp_path / "out")
        assert done.code == 1
        assert done.out.startswith("FAIL: run slurm-17.0: 6 of 8 nodes ok; 2 failed (n[3,5])\n")
        assert done.out.endswith("--exclude=n[3,5]\n")
        document = run("judge", place, "--format", "json").document(schema)
        assert (document["verdict"], document["exclude"], document["fail"]) == ("fail", "n[3,5]", ["n3", "n5"])
        junit = run("judge", place, "--format", "junit").out
        assert 'tests="8" failures="2"' in junit and 'name="n3"' in junit
        assert 'check="n5",outcome="fail"' in run("judge", place, "--format", "prometheus").out
        page = run("judge", place, "--format", "html").out
        assert "host-gpu-lost" in page and "--exclude=n[3,5]" in page
    assert (tmp_path / "out" / "nodes.fail").read_text() == "n3\nn5\n"
    assert (tmp_path / "out" / "nodes.ok").read_text().split() == ["n1", "n2", "n4", "n6", "n7", "n8"]
    assert (tmp_path / "out" / "exclude").read_text() == "n[3,5]\n"
    assert (tmp_path / "out" / "nodes.unknown").read_text() == ""


def test_the_decision_that_ft_launcher_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its contract: a file that is not empty keeps the job, or the task of an array, from starting there again."""
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    bad = fleet.lay(tmp_path / "bad", *fleet.healthy(n3=None))
    ok = fleet.lay(tmp_path / "ok", *fleet.healthy())
    other = fleet.lay(tmp_path / "other", run=fleet.run(run="by-hand"))
    segments = tmp_path / "segments"
    path = segments / "segment_health_check.17.17"
    with Envkit(capsys) as run:
        assert run("judge", bad, "--segment-health-check", segments).code == 1
        assert path.read_text() == "FAIL: run slurm-17.0: 7 of 8 nodes ok; 1 failed (n3)\n"
        assert run("judge", ok, "--segment-health-check", segments).code == 0
        assert path.read_text() == "" and len(list(segments.iterdir())) == 1
        unknown = run("judge", other, "--segment-health-check", segments, "--out", tmp_path / "out")
        assert unknown.code == 2 and "inside the job" in unknown.err and not (tmp_path / "out").exists()
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "90")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "4")
        assert run("judge", other, "--segment-health-check", segments).code == 1
    assert (segments / "segment_health_check.90.4").stat().st_size > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no `[[class]]`"),
        ("class = 3", "has no `[[class]]`"),
        ("[gpus]\ncount = 8", "has the key `gpus`"),
        ("[[class]]\nname = 'a'", "hardware"),
        ("[[class]]\nname = 'a'\nhardware = '*'\nvalue = 3", "value"),
        ("[[class]]\nname = 'a'\nhardware = '*'\n[class.values]\ngpus = [8]", "gpus"),
        ("[[class]]\nname = 'a'\nhardware = '*'\n" * 2, "two classes of one name"),
        ("[[", "cannot be read"),
    ],
)
def test_a_contract_that_means_nothing(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = fleet.lay(tmp_path / "run", *fleet.healthy())
    (tmp_path / "fleet.toml").write_text(text)
    with Envkit(capsys) as run:
        done = run("judge", place, "--contract", tmp_path / "fleet.toml")
    assert done.code == 2 and words in done.err, done


def test_options_of_a_saved_file_are_refused_for_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of nodes without a GPU would else pass that must have one."""
    place = fleet.lay(tmp_path / "run", *fleet.healthy())
    with Envkit(capsys) as run:
        for option in ("--require-gpu", "--observed"):
            done = run("judge", place, option)
            assert done.code == 2 and f"{option} is for a file" in done.err, done


def test_options_of_a_run_are_refused_for_a_saved_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "saved.json").touch()
    with Envkit(capsys) as run:
        for option in ("--contract", "--may-differ", "--out", "--segment-health-check"):
            done = run("judge", tmp_path / "saved.json", option, "x")
            assert done.code == 2 and option in done.err


def test_a_document_reads_back(tmp_path: Path) -> None:
    given = fleet.document("n1", fleet.body(found=(fleet.fault(),)))
    read = decoded(fleet.encoded(given))
    assert read.body == given.body and read.head.node == "n1"
