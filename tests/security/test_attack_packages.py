"""Specs, projects, locks and indexes that a stranger wrote, under the verbs that read and change a list of packages:
nothing of them is run or followed out of its folder, and no secret and no escape sequence is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import envkit
from index import Index, Publish
from test_attack_trees import LOCK, SECRET, SPEC, Canary, Listener, lay, steered

ALONE = LOCK[1:]
PROJECT = '[project]\nname = "a"\nversion = "1"\ndependencies = ["numpy"]\n'
TABLE = '[tool.envkit]\ntorch = "2.6.0"\npython = "3.11"\n'
# Run by whoever builds or installs the project, or starts a Python in its folder.
TRAPS = ("setup.py", "sitecustomize.py", "usercustomize.py", "hatch_build.py", "backend.py", "torch.py", "conftest.py")
READING = (("why", "numpy"), ("tree",), ("outdated",), ("lock", "--check", "."))


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def shelf(index: Index, published: Publish) -> Index:
    """An index with the one torch that the specs here ask for."""
    published("2.6.0", "3.11", "nvidia-cudnn-cu12", "numpy")
    index.add("numpy", "2.2.0")
    index.add("tiny", "1.0")
    return index


def trapped(folder: Path, canary: Canary) -> Path:
    run = f"import os\nos.system({str(canary.program)!r})\n"
    return lay(
        folder, {**dict.fromkeys(TRAPS, run), ".envrc": f"{canary.program}\n", ".env": f"X=$({canary.program})\n"}
    )


@pytest.mark.slow  # seven times uv
def test_no_verb_of_packages_asks_another_index_or_runs_a_file_beside_the_spec(
    tmp_path: Path, shelf: Index, canary: Canary, listener: Listener
) -> None:
    job = trapped(lay(tmp_path / "job", {"envkit.toml": SPEC + 'packages = ["numpy"]\n'}), canary)
    steered(job, listener.port)
    for words in (LOCK, *READING, ("add", "tiny", *ALONE), ("remove", "tiny", *ALONE)):
        ended = envkit(*words, cwd=job, timeout=300)
        assert ended.returncode in (0, 1), (words, ended)
        assert not canary.sings() and not listener.came, words
    subprocess.run([sys.executable, "setup.py"], cwd=job, check=True, timeout=60, stdin=subprocess.DEVNULL)
    assert canary.sings(), "the traps are none, so the above shows nothing"
    assert 'packages = ["numpy"]' in (job / "envkit.toml").read_text()


@pytest.mark.slow  # uv, twice
def test_a_project_is_locked_without_being_built(tmp_path: Path, shelf: Index, canary: Canary) -> None:
    """A build backend of the project's own, dynamic fields and scripts: [tool.envkit] asks for none of them."""
    backend = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    hooks = '[tool.hatch.build.hooks.custom]\n[project.scripts]\ntorch = "backend:main"\n[tool.uv]\npackage = true\n'
    job = trapped(lay(tmp_path / "job", {"pyproject.toml": backend + PROJECT + hooks + TABLE}), canary)
    for words in (LOCK, ("lock", "--check", ".")):
        ended = envkit(*words, cwd=job, timeout=300)
        assert ended.returncode == 0, (words, ended)
        assert not canary.sings(), words


@pytest.mark.parametrize("verb", [("add", "tiny", *ALONE), ("remove", "numpy", *ALONE)], ids=lambda verb: verb[0])
@pytest.mark.parametrize("name", ["envkit.toml", "pyproject.toml"])
def test_a_spec_is_not_changed_through_a_link(verb: tuple[str, ...], name: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim.toml"
    victim.write_text(SPEC + 'packages = ["numpy"]\n' if name == "envkit.toml" else PROJECT + TABLE)
    before = victim.read_bytes()
    job = lay(tmp_path / "job", {})
    job.mkdir()
    (job / name).symlink_to(victim)
    ended = envkit(*verb, cwd=job, env={**os.environ, "UV_OFFLINE": "1"})
    assert ended.returncode in (2, 3) and "Traceback" not in ended.stderr, ended
    assert victim.read_bytes() == before


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "secret"])
def test_a_lock_of_uv_that_is_no_file_of_the_project_is_refused_at_once(what: str, tmp_path: Path) -> None:
    job = lay(tmp_path / "job", {"pyproject.toml": PROJECT + TABLE})
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    if what == "pipe":
        os.mkfifo(job / "uv.lock")
    else:
        (job / "uv.lock").symlink_to(what if what.startswith("/") else tmp_path / what)
    for words in (LOCK, ("add", "tiny", *ALONE), ("lock", "--check", "."), ("render", ".")):
        ended = envkit(*words, cwd=job, timeout=120)
        assert ended.returncode in (2, 3) and "Traceback" not in ended.stderr, (words, ended)
        assert SECRET not in ended.stdout + ended.stderr, words


ADDRESS = f"https://me:{SECRET}@h.invalid/simple"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("envkit.toml", SPEC + f'index = "{ADDRESS}"\n'),
        ("envkit.toml", SPEC + f'extra-index = ["{ADDRESS}"]\n'),
        ("envkit.toml", SPEC + f'packages = ["tiny @ {ADDRESS}/tiny-1-py3-none-any.whl"]\n'),
        ("pyproject.toml", PROJECT + TABLE + f'index = "{ADDRESS}"\n'),
        ("pyproject.toml", PROJECT + TABLE + f'[[tool.uv.index]]\nurl = "{ADDRESS}"\n'),
    ],
)
def test_no_verb_shows_the_credential_of_an_index(name: str, text: str, tmp_path: Path) -> None:
    job = lay(tmp_path / "job", {name: text})
    for words in (
        *READING,
        ("add", "numpy", *ALONE),
        ("remove", "tiny", *ALONE),
        ("run", "--engine", "local", "--", "a"),
    ):
        ended = envkit(*words, cwd=job, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}, timeout=120)
        assert ended.returncode in (2, 3), (words, ended)
        assert SECRET not in ended.stdout + ended.stderr, words
    assert [path for path in job.iterdir() if path.name != name] == []


@pytest.mark.parametrize(
    "word",
    [
        f"tiny @ {ADDRESS}",
        f"git+{ADDRESS}",
        "--index-url=https://h.invalid",
        "-r/etc/passwd",
        "tiny; $(touch canary)",
        "tiny\n[envkit]",
        "../tiny",
        "\x1b]0;owned\x07",
    ],
)
def test_what_is_added_is_a_requirement_and_nothing_else(word: str, tmp_path: Path) -> None:
    job = lay(tmp_path / "job", {"envkit.toml": SPEC})
    ended = envkit("add", *ALONE, "--", word, cwd=job, env={**os.environ, "UV_OFFLINE": "1"})
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) <= 2, ended
    assert SECRET not in ended.stdout + ended.stderr and "\x1b" not in ended.stdout + ended.stderr
    assert [path.name for path in job.iterdir()] == ["envkit.toml"] and (job / "envkit.toml").read_text() == SPEC
