"""What others run envkit by: the pre-commit hook, in a real repository, the GitHub action, by its form, and the
component of GitLab CI, by its form and its script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_sources_run import PROMISED

from envkit import cli
from envkit.cli import files
from envkit.model import Severity
from envkit.static import judged, settings
from envkit.static.check import FORMATS
from envkit.static.kinds import by_name

ROOT = Path(__file__).parent.parent
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
COMPONENT = ROOT / "templates" / "check" / "template.yml"
MIXED = """\
FROM nvidia/cuda:11.8.0-base-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch==2.6.0
"""


# ---------------------------------------------------------------- pre-commit


@pytest.mark.parametrize(
    "path",
    [
        *dict(PROMISED),
        *("a/b/Dockerfile.gpu", "a/requirements-dev.in", "k8s/pod.yml", ".devcontainer/devcontainer.json"),
        *("Dockerfile.md/x.py", "README.md", "poetry.lock"),
    ],
)
def test_the_hook_takes_the_files_that_a_walk_takes(path: str) -> None:
    (hook,) = HOOKS
    taken = re.search(hook["files"], path) and not re.search(hook["exclude"], path)
    assert bool(taken) == bool(by_name(path.rsplit("/", 1)[-1]))


def test_the_hook_is_envkit_check() -> None:
    (hook,) = HOOKS
    assert (hook["id"], hook["entry"], hook["language"]) == ("envkit-check", "envkit check --allow-no-files", "python")


def committed(folder: Path, hook: dict[str, Any], files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A scratch repository with the hook, and what a commit of the files in it says."""
    environment = {
        **os.environ,
        "PRE_COMMIT_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    repository = folder / "repository"

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        name = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        command = ["git", *name, "-C", str(repository), *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    repository.mkdir()
    assert git("init", "-q").returncode == 0
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hook]}))
    for path, text in files.items():
        (repository / path).write_text(text)
    installed = subprocess.run(
        [sys.executable, "-m", "pre_commit", "install"], cwd=repository, env=environment, capture_output=True, text=True
    )
    assert installed.returncode == 0, installed.stderr
    git("add", ".")
    return git("commit", "-m", "x")


def local(*args: str) -> dict[str, Any]:
    """The hook's own definition, run by this Python rather than by one that pre-commit makes from an index."""
    (hook,) = HOOKS
    entry = hook["entry"].replace("envkit", f"{sys.executable} -m envkit", 1)
    return {"repo": "local", "hooks": [{**hook, "language": "system", "entry": entry, "args": list(args)}]}


@pytest.mark.slow  # real commits through pre-commit
def test_a_commit_with_a_finding_is_stopped_and_shown(tmp_path: Path) -> None:
    done = committed(tmp_path, local("--fail-on=warning"), {"Dockerfile": MIXED, "README.md": "hello\n"})
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "envkit check" in said
    assert "warning[torch-cuda-vs-base-mismatch-major]" in said
    assert "Dockerfile:3:32" in said


@pytest.mark.slow  # real commits through pre-commit
def test_a_clean_commit_goes_through(tmp_path: Path) -> None:
    done = committed(tmp_path, local(), {"Dockerfile": MIXED, "README.md": "hello\n"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"envkit check\.+Passed", done.stdout + done.stderr)


@pytest.mark.slow  # real commits through pre-commit
def test_files_that_do_not_concern_it_stop_no_commit(tmp_path: Path) -> None:
    files = {
        "README.md": "hello\n",
        "ci.yml": "on: push\n",
        "requirements.txt": "requests\n",
        "Dockerfile": "FROM scratch\n",
    }
    done = committed(tmp_path, local(), files)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.faults
def test_the_hook_as_others_get_it(tmp_path: Path) -> None:
    """From a repository, in an environment that pre-commit makes: needs a package index."""
    source = tmp_path / "source"
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(source)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    hook = {"repo": str(source), "rev": head, "hooks": [{"id": "envkit-check", "args": ["--fail-on=warning"]}]}
    done = committed(tmp_path, hook, {"Dockerfile": MIXED})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "warning[torch-cuda-vs-base-mismatch-major]" in done.stdout + done.stderr


# ---------------------------------------------------------------- the GitHub action


def test_the_action_has_the_documented_form() -> None:
    """GitHub docs, "Metadata syntax for GitHub Actions"."""
    assert {"name", "description", "runs"} <= set(ACTION) <= {"name", "description", "inputs", "outputs", "runs"}
    assert len(ACTION["description"]) <= 125
    assert ACTION["runs"]["using"] == "composite"
    for given in ACTION["inputs"].values():
        assert given["description"]
        assert isinstance(given["default"], str)
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "run" not in step or step["shell"] == "bash"
        assert "uses" not in step or re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", step["uses"])


def test_no_input_becomes_a_command() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), step["name"]
    text = (ROOT / "action.yml").read_text()
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])


def test_the_action_uses_options_that_exist() -> None:
    script = next(step["run"] for step in ACTION["runs"]["steps"] if step.get("id") == "check")
    command = next(each for each in cli.app.registered_commands if each.callback is files.check)
    assert command is not None
    for format in re.findall(r"--format (\w+)", script):
        assert format in FORMATS


def action(folder: Path, **inputs: str) -> tuple[int, str, str]:
    """The action's own steps, as a runner would run them: exit code, what was printed, the SARIF file's name."""
    folder.mkdir(exist_ok=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "envkit").write_text(f'#!/bin/sh\nexec {sys.executable} -m envkit "$@"\n')
    (folder / "bin" / "envkit").chmod(0o755)
    given = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
    outputs = folder / "outputs"
    said = ""
    code = 0
    for step in ACTION["runs"]["steps"]:
        if step.get("name") not in ("check", "verdict"):
            continue

        def value(match: re.Match[str]) -> str:
            if match[1].startswith("inputs."):
                return given[match[1].removeprefix("inputs.")]
            return outputs.read_text().strip().removeprefix("code=")

        own = {name: re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text) for name, text in step["env"].items()}
        environment = {
            **os.environ, **own, "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(outputs),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        said += done.stdout + done.stderr
        code = done.returncode
    return code, said, given["sarif"]


def test_the_action_annotates_and_ends_as_envkit_does(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(MIXED)
    code, said, sarif = action(tmp_path, **{"fail-on": "warning", "sarif": "out.sarif"})
    assert code == 1, said
    assert "::warning file=Dockerfile,line=3,col=32," in said
    assert '"version": "2.1.0"' in (tmp_path / sarif).read_text()


def test_words_of_an_input_stay_words(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(MIXED)
    code, said, _ = action(tmp_path, paths="Dockerfile $(touch pwned); touch pwned", args="--only unpinned-base")
    assert code == 2, said
    assert not (tmp_path / "pwned").exists()


# ---------------------------------------------------------------- the page


def test_the_table_of_checks_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/file_table.py", "--check"], cwd=ROOT, timeout=60)
    assert done.returncode == 0, "run `python scripts/file_table.py`"


def test_the_examples_say_what_envkit_says() -> None:
    done = subprocess.run([sys.executable, "scripts/example_table.py", "--check"], cwd=ROOT, timeout=60)
    assert done.returncode == 0, "run `python scripts/example_table.py`, and ask the others of a new check"


def test_the_page_names_what_there_is() -> None:
    said = (ROOT / "docs" / "check.md").read_text()
    for name in judged.FIELDS:
        assert f"| `{name}` |" in said
    for name in (
        *FORMATS,
        *settings.RawSettings.__struct_encode_fields__,
        *settings.KnownBase.__struct_encode_fields__,
    ):
        assert name in said, name


def test_paths_of_the_action_may_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.dockerfile").write_text("FROM python:3.12\n")
    (work / "b.dockerfile").write_text(MIXED)
    assert action(work, paths="a.dockerfile\nb.dockerfile\n", **{"fail-on": "warning"})[0] == 1


# ---------------------------------------------------------------- the component of GitLab CI


def component() -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of the component, and its job."""
    head, body = yaml.safe_load_all(COMPONENT.read_text())
    (job,) = body.values()
    return head["spec"]["inputs"], job


def test_the_component_has_the_documented_form() -> None:
    """GitLab docs, "CI/CD components" and "CI/CD inputs": templates/NAME/template.yml, with a head of `spec:inputs`."""
    inputs, job = component()
    assert set(job) == {"stage", "image", "variables", "script", "artifacts"}
    for name, given in inputs.items():
        assert set(given) <= {"description", "default", "options"}
        assert given["description"]
        assert f"$[[ inputs.{name} ]]" in COMPONENT.read_text()
    assert inputs["fail-on"]["default"] in inputs["fail-on"]["options"] == [each.name.lower() for each in Severity]
    assert set(re.findall(r"inputs\.([\w-]+)", COMPONENT.read_text())) == set(inputs)


def test_no_input_of_the_component_becomes_a_command() -> None:
    _, job = component()
    assert not any("$[[" in line for line in job["script"])
    assert {name for line in job["script"] for name in re.findall(r"\$(ENVKIT_\w+)", line)} == set(job["variables"])


@pytest.mark.slow  # starts envkit four times
@pytest.mark.parametrize(("fail_on", "code"), [("warning", 1), ("error", 0)])
def test_the_component_shows_what_it_finds_and_ends_by_it(tmp_path: Path, fail_on: str, code: int) -> None:
    _, job = component()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").write_text(MIXED)
    (tmp_path / "docker*").mkdir()  # a folder whose name a shell would take for a pattern
    (tmp_path / "docker*" / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "envkit.py").write_text("raise SystemExit('of the merge request')\n")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **dict.fromkeys(job["variables"], ""),
        "ENVKIT_PATHS": "docker docker*",
        "ENVKIT_FAIL_ON": fail_on,
    }
    command = ["bash", "-e", "-o", "pipefail", "-c", job["script"][-1]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    assert "warning[torch-cuda-vs-base-mismatch-major]" in done.stdout
    report = json.loads((tmp_path / job["artifacts"]["reports"]["codequality"]).read_text())
    assert [(each["check_name"], each["location"]["path"]) for each in report] == [
        ("torch-cuda-vs-base-mismatch-major", "docker/Dockerfile")
    ]
