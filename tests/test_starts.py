"""``check --start`` and ``probe --start``: which start a file describes, and what is laid over the image's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline import Envkit
from test_prove import engine_with, place, quiet

from envkit import facts
from envkit.engine import DeclaredStart
from envkit.errors import UsageError
from envkit.runner import runner
from envkit.static import CheckOptions, built_start, run, settings, starts
from envkit.subjects.start import HandsOn, JobStart

FACTS = facts.load()
DOCKERFILE = """FROM python:3.11-slim
WORKDIR /app
COPY . .
ENTRYPOINT ["/app/entry.sh"]
CMD ["python", "train.py"]
"""
COMPOSE = """services:
  db: {image: postgres:16}
  train:
    build: .
    command: [python, train.py, --fast]
    working_dir: /app
    user: "1000"
    environment: {OMP_NUM_THREADS: "2", TOKEN: }
    volumes: ["./data:/data", "cache:/cache"]
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  securityContext: {runAsUser: 1000}
  containers:
  - name: train
    image: example.org/train:1
    command: [python]
    args: [train.py]
    workingDir: /srv
"""
OWN = DeclaredStart(("/entry.sh",), ("python", "own.py"), {"A": "1", "OMP_NUM_THREADS": "8"}, "root", "/app")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a file of each kind, which is the working folder."""
    files = {
        "Dockerfile": DOCKERFILE, "compose.yaml": COMPOSE, "pod.yaml": POD, "train.py": "x = 1\n",
        "entry.sh": '#!/bin/sh\nset -e\nexec "$@"\n',
        "devcontainer.json": '{"image": "a", "remoteUser": "dev", "containerEnv": {"B": "2"}, "workspaceFolder": "/w"}',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "entry.sh").chmod(0o755)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(name: str, dockerfile: str = "") -> JobStart:
    """The start that the working folder's file describes."""
    return starts.of_file(name, Path(dockerfile) if dockerfile else None, CheckOptions(), FACTS)


def test_a_service_is_laid_over_its_dockerfile(folder: Path) -> None:
    start = read("compose.yaml#train")
    assert start.entrypoint is not None and start.entrypoint.key == "ENTRYPOINT"
    assert [word.value for word in start.job] == ["python", "train.py", "--fast"]
    assert [(one.path, one.hands_on, one.executable) for one in start.scripts] == [
        ("/app/entry.sh", HandsOn.EACH, True)
    ]
    assert start.dropped is not None and start.dropped.key == "CMD"
    assert (start.folder, start.absent, start.lines) == ("/app", (), len(DOCKERFILE.split("\n")))
    assert start.dockerfile is not None and start.dockerfile.steps[-1].user == "1000"


def test_a_word_below_a_mount_hides_no_other_that_is_absent(folder: Path) -> None:
    text = "services:\n  train:\n    build: .\n    entrypoint: [/tools/bin/python, /app/other.py]\n"
    Path("mounted.yaml").write_text(text + '    volumes: ["tools:/tools"]\n')
    assert [one.path for one in read("mounted.yaml#train").absent] == ["/app/other.py"]


def test_a_pod_without_its_dockerfile_leaves_the_image_open(folder: Path) -> None:
    start = read("pod.yaml")
    assert (start.dockerfile, start.why) == (None, "example.org/train:1 is not built here")
    assert [word.value for word in start.job] == ["python", "train.py"]
    named = read("pod.yaml", "Dockerfile")
    assert named.replaced is not None and named.dropped is not None
    assert [one.path for one in named.absent] == ["/srv/train.py"] and named.absent[0].copied == "/app/train.py"


def test_a_dockerfile_is_its_own_start(folder: Path) -> None:
    assert [word.value for word in read("Dockerfile").job] == ["python", "train.py"]


@pytest.mark.parametrize(("flag", "executable"), [("", False), ("--chmod=755 ", True)])
def test_a_script_that_the_dockerfile_holds_may_be_executed_only_where_it_says_so(
    folder: Path, flag: str, executable: bool
) -> None:
    text = f'FROM python:3.11-slim\nCOPY {flag}<<E /entry.sh\n#!/bin/sh\nexec "$@"\nE\nENTRYPOINT ["/entry.sh"]\n'
    (folder / "Dockerfile").write_text(text)
    (folder / "Dockerfile").chmod(0o755)  # which says nothing of what the image will hold
    assert [(one.path, one.executable) for one in read("Dockerfile").scripts] == [("/entry.sh", executable)]


PROJECT = {
    "Dockerfile": 'FROM python:3.11-slim\nWORKDIR /app\nCOPY . .\nCMD ["python", "serve.py"]\n',
    "src/serve.py": "x = 1\n",
    ".git/config": "[core]\n\tfilemode = true\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}


def missing(tmp_path: Path, changed: dict[str, str], path: str = "Dockerfile") -> list[str]:
    """What the checks of a start say of a Dockerfile that nobody named as one."""
    for name, text in {**PROJECT, **changed}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".git" / "objects").mkdir(exist_ok=True)
    (tmp_path / ".git" / "refs").mkdir(exist_ok=True)
    judged = run.check(((tmp_path / path, "dockerfile"),), CheckOptions(), settings.Settings())
    said = [one for each in judged for one in each.results if one.check.startswith("start-")]
    assert len(said) == len(built_start.CHECKS)
    return [finding.message for one in said for finding in one.findings]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ["nothing puts /app/serve.py into the image"]),
        ({"serve.py": "x = 1\n"}, []),
        # Something is said to write it, git leaves it out, or a folder of the host is laid over the image's.
        ({"Makefile": "build:\n\tcp src/serve.py serve.py\n"}, []),
        ({".gitignore": "/serve.py\n"}, []),
        ({"run.sh": "docker run -v $PWD/src:/app x\n"}, []),
        # Another folder is the context.
        ({"compose.yaml": "services:\n  a:\n    build:\n      context: ./src\n      dockerfile: ../Dockerfile\n"}, []),
        ({"Dockerfile": PROJECT["Dockerfile"].replace("COPY . .", "COPY . .\nRUN make")}, []),
        (
            {"Dockerfile": PROJECT["Dockerfile"].replace("serve.py", "$WHICH")},
            ["nobody replaces `$WHICH`, for the exec form starts no shell"],
        ),
    ],
)
def test_a_dockerfile_is_held_to_what_its_checkout_proves_of_its_start(
    tmp_path: Path, changed: dict[str, str], found: list[str]
) -> None:
    assert missing(tmp_path, changed) == found


@pytest.mark.parametrize(("mode", "config", "found"), [(0o644, "true", 1), (0o755, "true", 0), (0o644, "false", 0)])
def test_the_mode_of_a_script_counts_where_git_keeps_modes(tmp_path: Path, mode: int, config: str, found: int) -> None:
    text = 'FROM python:3.11-slim\nCOPY run.sh /run.sh\nENTRYPOINT ["/run.sh"]\n'
    (tmp_path / "run.sh").write_text("#!/bin/sh\nexec python -m http.server\n")
    (tmp_path / "run.sh").chmod(mode)
    changed = {"Dockerfile": text, ".git/config": f"[core]\n\tfilemode = {config}\n"}
    assert len(missing(tmp_path, changed)) == found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("compose.yaml", "describes 2 starts"),
        ("compose.yaml#nobody", "no container `nobody`"),
        ("train.py", "describes no start"),
        ("gone.yaml", "cannot be read"),
    ],
)
def test_what_names_no_start_is_refused(folder: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read(name)


def test_a_service_that_alone_asks_for_gpus_is_meant(folder: Path) -> None:
    (folder / "gpu.yaml").write_text(
        "services:\n  db: {image: postgres:16}\n  t: {image: a, command: [python], gpus: all}\n"
    )
    assert read("gpu.yaml").name == "t"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("compose.yaml#train", DeclaredStart(("/entry.sh",), ("python", "train.py", "--fast"),
                                             {"A": "1", "OMP_NUM_THREADS": "2"}, "1000", "/app")),
        ("pod.yaml", DeclaredStart(("python",), ("train.py",), OWN.environment, "1000", "/srv")),
        ("devcontainer.json", DeclaredStart((), (), {**OWN.environment, "B": "2"}, "dev", "/w")),
    ],
)  # fmt: skip
def test_a_file_takes_the_place_of_what_an_image_says(folder: Path, name: str, expected: DeclaredStart) -> None:
    assert starts.override(name, FACTS).declared(OWN) == expected


def test_folders_of_this_machine_are_mounted_and_unknown_variables_told(folder: Path) -> None:
    made = starts.override("compose.yaml#train", FACTS)
    assert dict(made.mounts) == {"/data": Path("data")}
    assert made.unknown == ("TOKEN",)


def test_a_word_that_nobody_decided_is_refused(folder: Path) -> None:
    (folder / "open.yaml").write_text("services:\n  t: {image: a, command: 'python ${SCRIPT:?}'}\n")
    with pytest.raises(UsageError, match="whose value the file does not say"):
        starts.override("open.yaml", FACTS)


def test_a_probe_starts_as_the_file_says(folder: Path) -> None:
    fake = engine_with()
    fake.starts = OWN
    image = runner.probe(place(fake), quiet, override=starts.override("pod.yaml", FACTS))
    assert fake.runs[0]["words"][0] == "python"
    assert (fake.runs[0]["placed"].user, fake.runs[0]["placed"].workdir) == ("1000", "/srv")
    start = image.start.need("the start")
    assert (start.job, start.named_by, start.user) == (("python", "train.py"), "pod.yaml, train", "1000")


def test_check_judges_the_start_beside_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "entry.sh").chmod(0o644)
    with Envkit(capsys, "check", "--format", "json") as envkit:
        alone = envkit("--start", "compose.yaml#train")
        both = envkit("Dockerfile", "--start", "pod.yaml")
        wrong = envkit("--start", "compose.yaml")
    found = {one["check"]: one["findings"] for one in json.loads(alone.out)["results"] if one["findings"]}
    assert (list(found), alone.code) == (["start-script-not-executable", "start-user-without-home"], 1)
    assert found["start-user-without-home"][0]["where"] == "compose.yaml:7"
    told = {one["check"]: one["outcome"] for one in json.loads(both.out)["results"]}
    assert (told["start-file-missing"], told["pip-python-mismatch"]) == ("fail", "skip")
    assert wrong.code == 2 and "compose.yaml#NAME" in wrong.err
