"""How the payload takes the place of a job's Python, for each way in which images start it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from test_prove import FakeEngine, engine_with, place, quiet

from envkit import facts
from envkit.engine import CannotStart, DeclaredStart
from envkit.errors import Undecided
from envkit.judging.checks.start import environment_changes
from envkit.judging.judge import judge
from envkit.model import Observed, Outcome, Severity, ValueState
from envkit.payload.begin import BEGAN
from envkit.report import summary
from envkit.runner import runner
from envkit.runner.runner import InEngine
from envkit.runner.start import GUARD, Unclear, planned, unwrapped
from envkit.subjects import Image
from envkit.subjects.image import Content, Process, Start, StartReached, Variable
from envkit.system.proc import Completed

OWN = ["/envkit/envkit.pyz", "probe", "--nonce", "n"]
PAYLOAD = shlex.join(OWN)
ACTIVATE = '#!/bin/bash\nset -e\nsource /opt/conda/etc/profile.d/conda.sh\nconda activate train\nexec "$@"\n'
FILES = {
    "/entry.sh": ACTIVATE,
    "/usr/local/bin/docker-entrypoint.sh": '#!/bin/sh\nif [ -n "$A" ]; then\n  export B=1\nfi\nexec "$@"\n',
    "/app/run.sh": "#!/bin/bash\nulimit -n 4096\nexport A=1\npython -u train.py --lr 1 2>&1 | tee log\n",
    "/app/serve.py": "#!/usr/bin/env python3.11\nprint()\n",
    "/app/start": '#!/bin/sh\nexec python -m app "$@"\n',
    "/init": "\x7fELF",
    "/app/go.rb": "#!/usr/bin/ruby\n",
    "/e2.sh": '#!/bin/bash\nif [ $# -gt 0 ]; then\n  exec "$@"\nelse\n  exec /bin/bash -l\nfi\n',
    "/e3.sh": '#!/bin/sh\nPATH=/o:$PATH A= exec "$@"\n',
    "/app/forever.sh": "#!/bin/sh\nsleep 10\n",
}


def reads(path: str) -> bytes | None:
    """The files of the image."""
    return FILES[path].encode() if path in FILES else None


def started(entrypoint: list[str], command: list[str], asked: str = "") -> tuple[list[str], str, str | None]:
    """The command line for the payload, the job's Python, and its folder."""
    declared = DeclaredStart(tuple(entrypoint), tuple(command), {"PATH": "/usr/local/bin:/usr/bin"}, workdir="/app")
    _, place = planned(declared, shlex.split(asked), reads)
    return list(place.words(OWN)), place.python, place.folder


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("tini -- python a.py", "python a.py"),
        ("tini -- -x", "-x"),  # what stands behind -- is the command, whatever its name
        ("exec tini -g -- env", ""),
        ("/usr/bin/env -i A=1 B=2 python", "python"),
        ("env -u A python", "python"),
        ("env - A=1 python", "python"),
        ("nice -n 5 env A=1 timeout -s KILL 5 python", "python"),
        ("sudo -E A=1 python", "python"),
        ("nice A=1 python", "A=1 python"),  # env and sudo alone take variables
        ("gosu app python", "python"),
        ("python env a", "python env a"),
        ("", ""),
    ],
)
def test_the_command_of_wrappers_begins_behind_their_own_words(line: str, command: str) -> None:
    words = line.split()
    assert words[unwrapped(words) :] == command.split()


@pytest.mark.parametrize(
    ("entrypoint", "command", "words", "python", "folder"),
    [
        ([], [], ["python3", *OWN], "python3", None),
        ([], ["python", "train.py", "--lr", "1"], ["python", *OWN], "python", ""),
        (["/v/bin/python"], ["/srv/a/train.py"], ["/v/bin/python", *OWN], "/v/bin/python", "/srv/a"),
        ([], ["python3", "-X", "dev", "-m", "app.main", "x"], ["python3", "-X", "dev", *OWN], "python3", ""),
        ([], ["python3.11", "-c", "import torch"], ["python3.11", *OWN], "python3.11", ""),
        ([], ["python3"], ["python3", *OWN], "python3", ""),
        ([], ["numactl", "python", "train.py"], ["numactl", "python", *OWN], "python", ""),
        (["/e2.sh"], ["python3", "a.py"], ["/e2.sh", "python3", *OWN], "python3", ""),
        (["/e2.sh"], [], ["/e2.sh", "python3", *OWN], "python3", None),
        (["/e3.sh"], ["python3", "a.py"], ["/e3.sh", "python3", *OWN], "python3", ""),
        (["sh", "-c", "sleep 1"], ["python3", "a.py"], ["sh", "-c", "sleep 1", "python3", *OWN], "python3", ""),
        (["/app/forever.sh"], ["python3", "a.py"], ["/app/forever.sh", "python3", *OWN], "python3", ""),
        (["/nowhere.sh"], ["python3"], ["/nowhere.sh", "python3", *OWN], "python3", ""),
        (["tini", "--"], ["python", "a/b.py"], ["tini", "--", "python", *OWN], "python", "a"),
        (["/usr/bin/tini", "-g", "--", "/entry.sh"], ["python", "b.py"],
         ["/usr/bin/tini", "-g", "--", "/entry.sh"], "python", ""),
        (["dumb-init"], ["env", "A=1", "python", "b.py"], ["dumb-init", "env", "A=1", "python", *OWN], "python", ""),
        (["docker-entrypoint.sh"], ["python", "b.py"], ["docker-entrypoint.sh"], "python", ""),
        (["/init"], ["python", "b.py"], ["/init", "python", *OWN], "python", ""),
        (["conda", "run", "-n", "a", "python"], ["b.py"], ["conda", "run", "-n", "a", "python", *OWN], "python", ""),
        (["uv", "run", "--no-sync"], ["python", "b.py"], ["uv", "run", "--no-sync", "python", *OWN], "python", ""),
        (["/opt/venv/bin/python", "-I", "-S", GUARD, "--"], ["python3", "t.py"],
         ["/opt/venv/bin/python", "-I", "-S", GUARD, "--", "python3", *OWN], "python3", ""),
        ([], ["bash"], ["bash", "-c", 'exec "$@"', "bash", "python3", *OWN], "python3", None),
        (["/entry.sh"], ["bash", "-l"], [], "python3", None),
        ([], ["/bin/sh", "-c", "python train.py --lr 1"], ["/bin/sh", "-c", f"exec python {PAYLOAD}"], "python", ""),
        ([], ["/bin/bash", "-lc", "conda activate a && cd /srv && exec python -O src/train.py > log 2>&1"],
         ["/bin/bash", "-lc", f"conda activate a && cd /srv && exec python -O {PAYLOAD}"], "python", "src"),
        (["/bin/bash", "-c"], ["A=1 python3 train.py; echo done"],
         ["/bin/bash", "-c", f"A=1 exec python3 {PAYLOAD}; echo done"], "python3", ""),
        (["/bin/sh", "-c", 'exec "$@"', "sh"], ["python", "b.py"], ["/bin/sh", "-c", 'exec "$@"', "sh", "python", *OWN],
         "python", ""),
        ([], ["/app/serve.py"], ["/usr/bin/env", "python3.11", *OWN], "/app/serve.py", "/app"),
        ([], ["./serve.py"], ["/usr/bin/env", "python3.11", *OWN], "./serve.py", "."),
    ],
)  # fmt: skip
def test_the_payload_takes_the_python_s_place(
    entrypoint: list[str], command: list[str], words: list[str], python: str, folder: str | None
) -> None:
    found, named, first = started(entrypoint, command)
    assert found[: len(words)] == words or found == words
    assert (named, first) == (python, folder)
    assert found[-len(OWN) :] == OWN or any(PAYLOAD in word for word in found)


def test_the_script_of_a_shell_keeps_all_but_its_job() -> None:
    found, python, folder = started([], ["/app/run.sh"])
    assert found[:2] == ["/bin/bash", "-c"] and found[3:] == ["/app/run.sh"]
    assert found[2] == f"#!/bin/bash\nulimit -n 4096\nexport A=1\nexec python -u {PAYLOAD} | tee log\n"
    assert (python, folder) == ("python", "")
    assert started([], ["bash", "run.sh"])[0][2] == found[2]
    assert started([], ["/app/start"])[0][2] == f"#!/bin/sh\nexec python {PAYLOAD}\n"


def test_a_program_on_path_is_resolved_inside() -> None:
    found, python, folder = started(["/entry.sh"], ["torchrun", "--nproc-per-node", "8", "train.py"])
    assert (
        found[-len(OWN) - 2 :] == ["sh", "torchrun", *OWN] and "sh" in found and (python, folder) == ("torchrun", None)
    )


def test_a_command_that_is_asked_for_replaces_cmd_and_keeps_the_entry_point() -> None:
    found, python, folder = started(["tini", "--"], ["serve"], "python src/train.py --lr 1")
    assert (found, python, folder) == (["tini", "--", "python", *OWN], "python", "src")


@pytest.mark.parametrize(
    ("entrypoint", "command", "why"),
    [
        ([], ["/app/go.rb"], "is a script for ruby"),
        ([], ["/init"], "in another language"),
        ([], ["bash", "gone.sh"], "has no gone.sh"),
        ([], ["python", "--version"], "is no option of a job's Python"),
        ([], ["sh", "-c", "$PYTHON train.py"], "whose value is not known"),
        ([], ["/app/forever.sh"], "which of its commands is the job"),
        (["conda", "run"], ["serve"], "which of the words behind conda"),
        (["/bin/sh", "-c", 'exec "$@"'], [], "it is given none"),
    ],
)
def test_a_start_that_cannot_be_followed_says_why(entrypoint: list[str], command: list[str], why: str) -> None:
    with pytest.raises(Unclear, match=why.replace("(", r"\(")):
        started(entrypoint, command)


# A probe of an image, by its own start.


def probed(
    starts: DeclaredStart, answer: Completed | Exception | None, command: tuple[str, ...] = ()
) -> tuple[Image, FakeEngine]:
    """What a probe sees where the image's own start answers so and a start past it answers well."""
    fake = engine_with()
    fake.starts = starts
    if answer is not None:
        fake.answers["start"] = answer
    return runner.probe(place(fake), quiet, command=command), fake


ENTRY = DeclaredStart(("tini", "--"), ("python", "src/train.py"), {"CUDA_HOME": "/cuda", "PATH": "/bin", "TOKEN": "x"})


def test_a_probe_goes_through_the_image_s_own_start() -> None:
    image, fake = probed(ENTRY, None, ("python", "-u", "serve.py"))
    assert [run["words"][:4] for run in fake.runs] == [["tini", "--", "python", "-u"]]
    argv = fake.runs[0]["argv"]
    assert argv[argv.index("--folder") + 1] == "" and "--announce" in argv
    start = image.start.need("the start")
    assert (start.reached, start.python) == (StartReached.REACHED, "python")
    assert start.job == ("tini", "--", "python", "-u", "serve.py")
    assert (start.variables, start.path) == ((Variable("CUDA_HOME", "/cuda"),), "/bin")


@pytest.mark.parametrize(
    ("answer", "reached", "how"),
    [
        (Completed((), 127, "", "/entry.sh: 3: activate: not found\n"), "failed", "ended with exit code 127: "),
        (Completed((), 0, "hello\n", ""), "dropped", "hello"),
        (Completed((), -9, "", "waiting\n", timed_out=True), "hung", "within 90 s: waiting"),
        (CannotStart("the image job:1 cannot start /gone", "correct it"), "failed", "cannot start /gone"),
    ],
)
def test_a_start_that_does_not_reach_the_job_is_said_and_the_rest_is_still_seen(
    answer: Completed | Exception, reached: str, how: str
) -> None:
    image, fake = probed(ENTRY, answer)
    start = image.start.need("the start")
    assert (start.reached, how in start.how) == (reached, True)
    assert "words" in fake.runs[0] and "words" not in fake.runs[1]
    assert image.torch.value is not None


@pytest.mark.parametrize(
    "stderr",
    [
        "gosu: operation not permitted",
        "touch: '/x': Read-only file system",
        "curl: Could not resolve host",
    ],
)
def test_what_fails_only_in_a_probe_is_no_fault_of_the_image(stderr: str) -> None:
    image, _ = probed(ENTRY, Completed((), 1, "", stderr))
    assert image.start.state is ValueState.MISSING and stderr[:20] in image.start.missing


def test_an_image_whose_python_does_not_start_fails_though_nothing_else_is_seen() -> None:
    """PYTHONHOME at a folder that is none: neither the job nor a start past it runs a line."""
    fake = engine_with()
    fake.starts = DeclaredStart((), ("python", "train.py"))
    ended = Completed((), 1, "", "ModuleNotFoundError: No module named 'encodings'\n")
    fake.answers |= {"start": ended, "probe": ended}
    image = runner.probe(place(fake), quiet)
    results = {result.check: result for result in judge(image, facts.load())}
    (finding,) = results["image-start-fails"].findings
    assert finding.severity is Severity.ERROR and "'encodings'" in finding.message
    assert results["image-torch-import-fails"].outcome is Outcome.UNKNOWN
    assert "before it ran a line of the payload" in results["image-torch-import-fails"].reason
    hung = replace(ended, timed_out=True)
    for starts, answer in ((DeclaredStart(), ended), (fake.starts, hung), (fake.starts, Undecided("gone", "start it"))):
        fake.starts, fake.answers["start"] = starts, answer
        with pytest.raises(Undecided):
            runner.probe(place(fake), quiet)


def test_a_start_that_cannot_be_followed_is_unknown() -> None:
    image, fake = probed(DeclaredStart((), ("sh", "-c", "$RUN")), None)
    assert image.start.state is ValueState.MISSING and "--command" in image.start.missing
    assert len(fake.runs) == 1 and "words" not in fake.runs[0]


def test_a_run_that_began_and_left_no_document_is_undecided() -> None:
    fake = engine_with()
    fake.starts = ENTRY
    fake.answers["start"] = Completed((), 1, "", f"{BEGAN}\nSegmentation fault\n")
    with pytest.raises(Undecided, match="Segmentation fault"):
        runner.probe(place(fake), quiet)
    assert len(fake.runs) == 1


def test_past_its_own_start_nothing_is_asked_of_it() -> None:
    fake = engine_with()
    fake.starts = ENTRY
    image = runner.probe(place(fake), quiet, direct=True)
    assert image.start.is_unsupported and "words" not in fake.runs[0]


def test_envkit_s_own_entry_point_is_passed_without_the_gpus_that_it_would_ask_for() -> None:
    fake = engine_with()
    fake.starts = DeclaredStart(("/opt/venv/bin/python", "-I", "-S", GUARD, "--"), ("python3",))
    runner.probe(InEngine(fake, "job:1", "", ()), quiet)
    assert fake.runs[0]["env"] == {"ENVKIT_GPUS": "0"}
    assert GUARD in (Path(__file__).parents[1] / "templates" / "Dockerfile.j2").read_text()


# What the entry point and Python's own start change.


def test_changes_are_told_by_who_made_them() -> None:
    here = Process(
        "/v/bin/python", "/v", "/app", 0, 0, "root", "/root", "/v/bin:/bin", (Variable("LD_PRELOAD", "/a.so"),)
    )
    seen = Image(
        "x",
        start=Observed.of(Start(("a",), "a", StartReached.REACHED, path="/bin"), "engine"),
        process=Observed.of(here, "/proc"),
        variables=Observed.of((Variable("LD_PRELOAD", "/a.so"), Variable("OMP_NUM_THREADS", "1")), "os.environ"),
    )
    assert [(one.name, one.before, one.after, one.by) for one in environment_changes(seen)] == [
        ("LD_PRELOAD", None, "/a.so", "the entry point"),
        ("PATH", "/bin", "/v/bin:/bin", "the entry point"),
        ("OMP_NUM_THREADS", None, "1", "Python's own start"),
    ]


@pytest.mark.parametrize(
    ("left", "rows"),
    [
        ((), (("by content", "30 libraries, 2.50 GB", ""),)),
        (
            ("/v/libb.so", "/v/liba.so"),
            (
                ("by content", "30 libraries, 2.50 GB", ""),
                ("by size and time alone", "2, 0.50 GB", "liba.so, libb.so"),
            ),
        ),
    ],
)
def test_libraries_that_were_not_compared_by_content_are_named(
    left: tuple[str, ...], rows: tuple[tuple[str, str, str], ...]
) -> None:
    content = Content(30, 2_500_000_000, left, 500_000_000 if left else 0)
    tables = summary.image(Image("x", content=Observed.of(content, "RECORD")))
    assert next(each.rows for each in tables if each.title.startswith("how the libraries were compared")) == rows
