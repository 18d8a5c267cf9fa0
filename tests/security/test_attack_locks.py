"""Specs and locks of somebody else: none of their words is run, leads a solver elsewhere, or is written outside of
their folder; a lock cannot hide what it leaves open."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

from envkit.errors import UsageError
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import seal

IMAGE = Path(__file__).parent.parent.parent / "images" / "torch-2.6-cu124"
SPEC = 'torch = "2.6.0"\npython = "3.11"\n'
PRECIOUS = "what nobody but its owner writes\n"


def envkit(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """envkit where no index answers and HOME is ``home``."""
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple",
        "UV_HTTP_RETRIES": "0", "UV_CACHE_DIR": str(home / "uv"), "DOCKER_HOST": f"unix://{home}/none.sock",
    }  # fmt: skip
    return forked.envkit(*map(str, words), env=env, cwd=home, timeout=120)


# Words of a spec that a shell, uv, apt-get or a Dockerfile would obey.

SPECS: list[Callable[[Path], str]] = [
    lambda canary: f'packages = ["numpy$(touch {canary})"]',
    lambda canary: f'packages = ["numpy`touch {canary}`"]',
    lambda canary: f'packages = ["numpy; touch {canary}"]',
    lambda canary: f'packages = ["numpy\\n-r {canary}"]',
    lambda canary: 'packages = ["--index-url=http://127.0.0.1:2/simple"]',
    lambda canary: 'packages = ["-e ."]',
    lambda canary: f'packages = ["-r {canary}"]',
    lambda canary: f'packages = ["numpy @ file://{canary}"]',
    lambda canary: 'packages = ["numpy @ git+ssh://127.0.0.1/x"]',
    lambda canary: f'apt = ["git;touch {canary}"]',
    lambda canary: f'apt = ["-oDPkg::Pre-Invoke::=touch {canary}"]',
    lambda canary: f'apt = ["/{canary}.deb"]',
    lambda canary: f'name = "x\\nRUN touch {canary}"',
    lambda canary: f'name = "../../{canary.name}"',
    lambda canary: f'base = "nvidia"\ntag = "1\\nRUN touch {canary}"',
    lambda canary: f'os = "debian12\\nRUN touch {canary}"',
    lambda canary: f'gpus = ["H100$(touch {canary})"]',
    lambda canary: f'driver = "550;touch {canary}"',
    lambda canary: f'platform = "linux/amd64 --output={canary}"',
]


@pytest.mark.parametrize("number", range(len(SPECS)))
def test_no_word_of_a_spec_is_obeyed(number: int, tmp_path: Path) -> None:
    canary, job = tmp_path / "canary", tmp_path / "job"
    job.mkdir()
    (job / "envkit.toml").write_text(SPEC + SPECS[number](canary) + "\n")
    for words in (("lock", job, "--engine", "none"), ("check", job), ("diff", job, IMAGE)):
        done = envkit(tmp_path, *words)
        assert done.returncode in (1, 2, 3) and "Traceback" not in done.stderr, done.stderr
    assert not canary.exists()
    assert os.listdir(job) == ["envkit.toml"]


# Locks under a right seal.

LOCKS = [
    ('image = "debian:12-slim"', 'image = "debian:12-slim\\nRUN touch CANARY"'),
    ('image = "debian:12-slim"', 'image = "debian:12-slim AS x"'),
    ('suite = "bookworm"', 'suite = "bookworm; touch CANARY"'),
    ('suite = "bookworm"', 'suite = "../../CANARY"'),
    ('backend = ""', 'backend = "cu124 --index-url http://127.0.0.1:2"'),
    ('python = "3.11"', 'python = "3.11 -c touch"'),
    ('torch = "2.6.0"', 'torch = "2.6.0$(touch CANARY)"'),
    ('archive = "', 'archive = "$(touch CANARY)'),
    ('digest = "sha256:', 'digest = "sha256:$(touch CANARY)'),
    ('components = ["main"]', 'components = ["main", "$(touch CANARY)"]'),
    ('path = "nvidia/', 'path = "../../nvidia/'),
    ('file = "torch-2.6.0', 'file = "../torch-2.6.0'),
    ("given = []", 'given = ["x (= 1)\\nPackage: evil"]'),
]


@pytest.mark.parametrize(("old", "new"), LOCKS)
def test_no_value_of_a_sealed_lock_is_obeyed(old: str, new: str, tmp_path: Path) -> None:
    canary, job = tmp_path / "canary", tmp_path / "job"
    job.mkdir()
    (job / "envkit.toml").write_bytes((IMAGE / "envkit.toml").read_bytes())
    text = (IMAGE / "envkit.lock").read_text()
    body = text[: text.index("# The text above as it was written")]
    changed = body.replace(old, new.replace("CANARY", str(canary)), 1)
    assert changed != body
    (job / "envkit.lock").write_text(seal(changed))
    for words in (("render", job), ("check", job), ("lock", job, "--check"), ("build", job, "--engine", "local")):
        done = envkit(tmp_path, *words)
        assert done.returncode in (2, 3) and "Traceback" not in done.stderr, (words, done.stdout, done.stderr)
    assert not canary.exists()
    assert sorted(os.listdir(job)) == ["envkit.lock", "envkit.toml"]


def test_a_lock_cannot_hide_what_it_leaves_open(tmp_path: Path) -> None:
    """Its first lines are a courtesy: whoever seals a lock can leave them out, and the check reads the values."""
    name = "torch-2.6-cu124-pytorch"
    text = (IMAGE.parent / name / "envkit.lock").read_text()
    body = text[: text.index("# The text above as it was written")]
    told = [line for line in body.splitlines(keepends=True) if not line.startswith("# NOT PINNED")]
    (tmp_path / "envkit.lock").write_text(seal("".join(told)))
    done = envkit(tmp_path, "check", tmp_path / "envkit.lock")
    assert done.stdout.count("warning[packages-lock-not-fully-pinned]") == 2, done.stdout
    assert len(locks.unpinned(locks.parse((tmp_path / "envkit.lock").read_text(), "x"))) == 2


# Links that lead out of the folder.


def theirs(tmp_path: Path, name: str, *, lock: bool) -> tuple[Path, Path]:
    """Somebody's folder, in which ``name`` leads to a file of this user's."""
    job, precious = tmp_path / "job", tmp_path / "precious"
    (job / name).parent.mkdir(parents=True)
    precious.write_text(PRECIOUS)
    (job / "envkit.toml").write_bytes((IMAGE / "envkit.toml").read_bytes())
    if lock:
        (job / "envkit.lock").write_bytes((IMAGE / "envkit.lock").read_bytes())
    (job / name).symlink_to(os.path.relpath(precious, (job / name).parent))
    return job, precious


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Dockerfile", ("render",)),
        ("Dockerfile", ("build", "--engine", "local")),
        ("Dockerfile", ("up", "--engine", "local", "--report", "report.json")),
        ("compose.yaml", ("render", "--as", "compose")),
        (".devcontainer/devcontainer.json", ("render", "--as", "devcontainer")),
        ("job.def", ("render", "--as", "apptainer")),
    ],
)
def test_what_is_written_beside_a_spec_stays_there(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    job, precious = theirs(tmp_path, name, lock=True)
    done = envkit(tmp_path, words[0], job, *words[1:])
    assert done.returncode == 2, done.stderr
    assert "by a link out of" in done.stderr and done.stderr.count("envkit: ") == 1
    assert precious.read_text() == PRECIOUS


def test_a_lock_is_written_through_no_link(tmp_path: Path) -> None:
    job, precious = theirs(tmp_path, "envkit.lock", lock=False)
    made = locks.parse((IMAGE / "envkit.lock").read_text(), "x")
    with pytest.raises(UsageError, match="by a link out of"):
        locks.save(made, job / "envkit.lock")
    assert precious.read_text() == PRECIOUS


def test_a_fix_changes_nothing_behind_a_link(tmp_path: Path) -> None:
    home, job = tmp_path / "home", tmp_path / "job"
    for folder in (home, job):
        folder.mkdir()
    text = (
        "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install --extra-index-url "
        "https://download.pytorch.org/whl/cu124 torch\nRUN apt-get update && apt-get install -y git\n"
    )
    for folder in (home, job):
        (folder / "Dockerfile").write_text(text)
    assert envkit(tmp_path, "check", "--fix", job).returncode in (0, 1, 3)
    assert (job / "Dockerfile").read_text() != text  # there is something to fix
    (job / "Dockerfile").unlink()
    (job / "Dockerfile").symlink_to("../home/Dockerfile")
    done = envkit(tmp_path, "check", "--fix", job / "Dockerfile")
    assert "Traceback" not in done.stderr
    assert (home / "Dockerfile").read_text() == text
