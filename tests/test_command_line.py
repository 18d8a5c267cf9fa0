"""The command line's own comforts: help, choices, completion, how much is printed, `init`, and envkit's own images."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import forked
import machines
import pytest
import typer
from inline import Envkit

from envkit import __version__, cli, facts
from envkit.build import draft
from envkit.cli import options
from envkit.engine import base
from envkit.engine.choice import ENGINES
from envkit.errors import UsageError
from envkit.explain import explain
from envkit.facts import show
from envkit.host import observe, products
from envkit.launch import preflight
from envkit.model import Severity
from envkit.payload.placement import WAYS
from envkit.payload.precision.work import DTYPES
from envkit.payload.smoke.case import FAULT_KINDS, LEVELS
from envkit.payload.smoke.sanitize import TOOLS
from envkit.plan import lockfile, shipped
from envkit.plan.resolve import resolve
from envkit.plan.spec import Flavor, load
from envkit.report import FORMATS, exit_codes
from envkit.static import check

ROOT = Path(__file__).parent.parent
FACTS = facts.load()
NAME = "torch-2.6-cu124"


@pytest.fixture
def envkit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Envkit]:
    monkeypatch.chdir(tmp_path)
    with Envkit(capsys) as run:
        yield run


# Choices.

MEANT = [
    (options.FORMATS, FORMATS),
    (options.CHECK_FORMATS, check.FORMATS),
    (options.PAGE_FORMATS, explain.FORMATS),
    (options.ENGINES, ENGINES),
    (options.SEVERITIES, [each.name.lower() for each in Severity]),
    (options.STYLES, exit_codes.STYLES),
    (options.FLAVORS, list(Flavor)),
    (options.PARTS, lockfile.PARTS),
    (options.SUITES, base.SUITES),
    (options.SMOKE_LEVELS, LEVELS),
    (options.FLIGHT_LEVELS, preflight.LEVELS),
    (options.FAULT_KINDS, ("all", *FAULT_KINDS)),
    (options.SANITIZERS, TOOLS),
    (options.PLACEMENT_WAYS, WAYS),
    (options.DTYPES, DTYPES),
    (options.TOPICS, show.TOPICS),
]


@pytest.mark.parametrize(("choice", "known"), MEANT, ids=lambda each: getattr(each, "kind", ""))
def test_choices_are_what_the_verbs_take(choice: options.Choice, known: list[str]) -> None:
    assert sorted(choice.words) == sorted(known)


def test_no_switch_is_on_by_itself() -> None:
    """What a verb does or prints besides is asked for."""
    group = typer.main.get_command(cli.app)
    assert isinstance(group, click.Group)
    switches = {
        f"{verb} {option.opts[0]}": option.default
        for verb, command in group.commands.items()
        for option in command.params
        if isinstance(option, click.Option) and option.is_flag
    }
    assert len(switches) > 20
    assert [name for name, default in switches.items() if default] == []


def test_help_shows_choices_and_no_bare_text(envkit: Envkit) -> None:
    for verb, command in cli.parser("").commands.items():
        text = envkit(verb, "--help").out
        for each in command.params:
            if isinstance(each, click.Option) and isinstance(each.type, click.Choice):
                assert f"[{'|'.join(each.type.choices)}]" in text, (verb, each.name)
            if isinstance(each, click.Argument):
                assert re.search(rf"(?m)^  {re.escape(each.make_metavar(click.Context(command)))} {{2,}}\S", text), verb


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lcok",), "there is no command `lcok`; did you mean `lock`?"),
        (("check", "--formt", "json"), "`envkit check` has no option `--formt`; did you mean `--format`?"),
        (("doctor", "--format", "jsno"), "there is no format `jsno`; did you mean `json`?"),
        (("facts", "gup"), "there is no topic `gup`; did you mean `gpu`?"),
        (("render", ".", "--flavor", "debgu"), "there is no flavor `debgu`; did you mean `debug`?"),
        (("doctor", "--fail-on", "eror"), "there is no severity `eror`; did you mean `error`?"),
    ],
)
def test_what_was_meant_is_asked_once(words: tuple[str, ...], said: str, envkit: Envkit) -> None:
    ended = envkit(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[0] == f"envkit: {said}"
    assert ended.err.lower().count("did you mean") == 1 and ended.err.count("\n  fix: ") == 1


def test_wrong_words_end_by_the_exit_style(envkit: Envkit) -> None:
    assert envkit("doctor", "--exit-style", "nagios", "--format", "yaml").code == 3
    assert envkit("doctor", "--exit-style", "slurm", "--budget", "soon").code == 1


# Help.


def test_help_is_in_groups_and_cuts_no_sentence(envkit: Envkit) -> None:
    text = envkit("--help").out
    titles = re.findall(r"(?m)^(\S.*):$", text)
    assert titles == [
        "Make an image", "Packages of a spec", "Examine an image", "Run a job", "Examine a machine", "Files and facts",
        "Failing jobs", "Shell", "Options",
    ]  # fmt: skip
    assert "..." not in text.split("Make an image:")[1]
    groups = re.findall(r"(?m)^(\S.*):$", envkit("preflight", "-h").out)
    assert groups == ["Arguments", "Options", "Where it runs", "The job, as for `docker run`", "Output", "Many nodes"]


def test_help_in_a_terminal_is_as_wide_as_it_and_in_a_pipe_a_line_an_option(tmp_path: Path) -> None:
    mine, its = os.openpty()
    env = {**os.environ, "COLUMNS": "60", "TERM": "xterm"}
    with os.fdopen(its, "wb") as terminal:
        forked.envkit("check", "--help", env=env, stdout=terminal)
    shown = os.read(mine, 100_000).decode().splitlines()
    os.close(mine)
    assert 40 < max(map(len, shown)) <= 60
    piped = forked.envkit("check", "--help", env=env).stdout.splitlines()
    assert max(map(len, piped)) > 60
    assert next(line for line in piped if "--diff" in line).endswith("change nothing.")


@pytest.mark.parametrize("verb", ["preflight", "run", "debug"])
def test_usage_shows_the_command(verb: str, envkit: Envkit) -> None:
    assert envkit(verb, "-h").out.splitlines()[0].endswith(" [-- COMMAND ...]")
    assert "COMMAND" not in envkit("probe", "-h").out.splitlines()[0]


def test_the_version_has_a_letter(envkit: Envkit) -> None:
    assert envkit("-V") == envkit("--version")
    assert envkit("-V").out == f"envkit {__version__}\n"


def test_no_words_are_answered_with_help_on_stderr(envkit: Envkit) -> None:
    ended = envkit()
    assert (ended.code, ended.out) == (2, "") and "Make an image:" in ended.err


# Completion.


def completed(*words: str, shell: str = "bash") -> list[str]:
    """What a shell is told where its user asks for the last word."""
    line = " ".join(words) if shell != "fish" else " ".join(words[:-1])
    at = words[-1] if shell == "fish" else str(len(words) - 1)
    env = {**os.environ, "_ENVKIT_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": at}
    ended = forked.envkit(env=env)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("envkit", "pre"), ["plain,preflight"]),
        (("envkit", "doctor", "--forma"), ["plain,--format"]),
        (("envkit", "doctor", "--format", "j"), ["plain,json", "plain,junit"]),
        (("envkit", "doctor", "--budget", "so", "--fail-on", "e"), ["plain,error"]),
        (("envkit", "facts", "x"), ["plain,xid"]),
        (("envkit", "check", "Dock"), ["file,Dock"]),
        (("envkit", "debug", "-f", "json", "--", "py"), ["file,py"]),
        (("envkit", "no-such", "x"), []),
        (("envkit", "up", f"{NAME}-pyt"), [f"file,{NAME}-pyt", f"plain,{NAME}-pytorch"]),
    ],
)
def test_words_are_completed(words: tuple[str, ...], said: list[str]) -> None:
    assert completed(*words) == said


def test_other_shells_are_answered_in_their_own_form() -> None:
    assert completed("envkit", "pre", shell="zsh")[:2] == ["plain", "preflight"]
    assert completed("envkit", "pre", shell="fish")[0].startswith("plain")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell: str, envkit: Envkit) -> None:
    ended = envkit("completion", shell)
    assert ended.code == 0 and f"_ENVKIT_COMPLETE={shell}_complete" in ended.out


def test_bash_itself_completes(tmp_path: Path, envkit: Envkit) -> None:
    program = tmp_path / "envkit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m envkit "$@"\n')
    program.chmod(0o755)
    script = envkit("completion", "bash").out
    ask = 'COMP_WORDS=(envkit doctor --exit-style na); COMP_CWORD=3; _envkit_completion envkit; echo "${COMPREPLY[@]}"'
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("nagios\n", "")


# How much is printed.


def test_quiet_and_verbose(envkit: Envkit, tmp_path: Path) -> None:
    from test_cli import saved

    path = saved(tmp_path, "image", "torch-2.6-cudnn-8")
    plain, quiet, verbose = (envkit("judge", path, *more).out for more in ((), ("-q",), ("-v",)))
    assert "\npassed: " in verbose and "  skipped: " in verbose
    assert "\npassed: " not in plain and "  skipped: " not in plain
    found, all_but_lists = (text.split("\n", 1)[1].rstrip("\n") for text in (quiet, plain))  # the first line has a time
    assert "error: " in found and all_but_lists.startswith(found)
    assert "unknown: " in all_but_lists and "unknown: " not in found
    assert envkit("judge", path, "-q").code == envkit("judge", path, "-v").code == 1
    refused = envkit("judge", path, "-q", "-v")
    assert refused.code == 2 and "--quiet and --verbose cannot be used together" in refused.err


def test_quiet_ends_progress_and_keeps_errors(envkit: Envkit, tmp_path: Path) -> None:
    said = envkit("probe", "--static", "--save", tmp_path / "a.json").err
    assert "probing" in said and "wrote" in said
    assert envkit("probe", "--static", "-q", "--save", tmp_path / "b.json").err == ""
    assert "envkit: " in envkit("judge", tmp_path / "none.json", "-q").err
    assert "probing" in envkit("probe", "--static").err  # the next run is as loud as ever


def test_no_sentence_is_broken_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\nRUN pip install --no-cache-dir torch==2.6.0\n"
    )
    ended = forked.envkit("check", "Dockerfile", "--format", "console", cwd=tmp_path)
    notes = [line for line in ended.stdout.splitlines() if re.match(r" *= (because|fix): ", line)]
    assert notes and max(map(len, notes)) > 100
    assert not re.search(r"(?m)^ {10}", ended.stdout)  # which begins what was broken off a line


# Facts.


def test_facts_lists_what_may_be_asked(envkit: Envkit) -> None:
    listed = envkit("facts").out
    assert [line.partition(" (")[0] for line in listed.splitlines() if not line.startswith(" ")] == list(show.TOPICS)
    document = json.loads(envkit("facts", "-f", "json").out)
    assert [each["topic"] for each in document] == list(show.TOPICS)
    for each in document:
        assert each["rows"] >= len(each["names"]) or each["topic"] == "image", each["topic"]
        for name in (each["names"][0], each["names"][-1]):
            assert envkit("facts", each["topic"], name).code == 0, (each["topic"], name)


def test_facts_of_a_topic_lists_its_names(envkit: Envkit) -> None:
    text = envkit("facts", "gpu").out
    assert all(row.name in text for row in FACTS.gpus)
    assert "more" not in text


# A spec to start from.


def written(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "envkit.toml").read_text(encoding="utf-8"))


def test_init_makes_its_folder(envkit: Envkit, tmp_path: Path) -> None:
    assert envkit("init", "new/deep").out == "new/deep/envkit.toml\n"
    assert resolve(load(tmp_path / "new" / "deep"), FACTS)
    again = envkit("init", "new/deep")
    assert again.code == 2 and "already exists" in again.err


def test_init_writes_what_it_was_told(envkit: Envkit, tmp_path: Path) -> None:
    assert envkit("init", "a", "--torch", "2.8", "--gpu", "H100", "--gpu", "RTX 4090").code == 0
    spec = written(tmp_path / "a")
    assert (spec["torch"], spec["gpus"]) == ("2.8", ["H100", "RTX 4090"]) and "driver" not in spec
    assert str(resolve(load(tmp_path / "a"), FACTS).torch).startswith("2.8")


def test_init_takes_the_newest_torch_that_fits(envkit: Envkit, tmp_path: Path) -> None:
    assert envkit("init", "old", "--gpu", "V100").code == envkit("init", "new").code == 0
    assert resolve(load(tmp_path / "old"), FACTS)
    assert str(written(tmp_path / "old")["torch"]) != str(written(tmp_path / "new")["torch"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "Voodoo 3"), "there are no facts about the GPU `Voodoo 3`"),
        (("--torch", "newest"), "not a release or a range"),
        (("--torch", "\U0001d7da.8"), "not a release or a range"),
        (("--torch", '2.8"\napt = ["x"]'), "`torch` holds"),
        (("--torch", "2.6", "--gpu", "B200"), "B200"),
        (("--from-host", "--gpu", "H100"), "--from-host and --gpu cannot be used together"),
    ],
)
def test_init_refuses_what_cannot_be_and_makes_nothing(
    words: tuple[str, ...], said: str, envkit: Envkit, tmp_path: Path
) -> None:
    ended = envkit("init", "a/b", *words)
    assert (ended.code, ended.out) == (2, "") and said in ended.err.splitlines()[0], ended.err
    assert "\n  fix: " in ended.err or "\n  nearest: " in ended.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("machine", "gpus"), [("h100", ("H100",)), ("desk", ("GeForce RTX 4090",))])
def test_a_spec_of_a_machine(machine: str, gpus: tuple[str, ...], tmp_path: Path) -> None:
    host = machines.host(machine)
    found, driver = products.of_machine(host, FACTS)
    assert host.nvml.value is not None
    assert (found, driver) == (gpus, host.nvml.value.driver)
    (tmp_path / "envkit.toml").write_text(draft.text(FACTS, tmp_path / "envkit.toml", gpus=found, driver=driver))
    spec = load(tmp_path)
    assert (spec.gpus, str(spec.driver)) == (gpus, driver) and resolve(spec, FACTS)


def test_init_takes_the_gpus_and_the_driver_of_this_machine(
    envkit: Envkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machines.host("h100")
    monkeypatch.setattr(observe, "observe_gpus", lambda: host)
    assert envkit("init", "new", "--from-host").code == 0
    assert host.nvml.value is not None
    spec = written(tmp_path / "new")
    assert (spec["gpus"], spec["driver"]) == (["H100"], host.nvml.value.driver)


def test_a_machine_without_gpus_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="no NVIDIA GPU was found on this machine") as caught:
        products.of_machine(machines.host("bare"), FACTS)
    assert "--gpu" in caught.value.fix


# Envkit's own images.


def test_an_image_of_envkits_is_copied_into_the_working_folder(envkit: Envkit, tmp_path: Path) -> None:
    ended = envkit("lock", NAME)
    assert ended.code == 0 and "the lock is up to date with this spec" in ended.err, ended.err
    assert sorted(os.listdir(tmp_path / NAME)) == ["Dockerfile", "envkit.lock", "envkit.toml"]
    for name in os.listdir(tmp_path / NAME):
        assert (tmp_path / NAME / name).read_bytes() == (ROOT / "images" / NAME / name).read_bytes()
    (tmp_path / NAME / "envkit.toml").write_text('torch = "2.8.0"\npython = "3.11"\n')
    assert envkit("render", NAME).code == 2  # the copy is what counts from then on, and it is not written over
    assert written(tmp_path / NAME)["torch"] == "2.8.0"


def test_what_is_no_such_image_is_no_spec(envkit: Envkit, tmp_path: Path) -> None:
    assert NAME in shipped.names() and len(shipped.names()) > 10
    for name in ("torch-9.9", f"./{NAME}/x", "", f"../{NAME}"):
        assert not shipped.is_name(Path(name))
    ended = envkit("up", "torch-9.9", "--engine", "local")
    assert ended.code == 2 and "there is no spec at torch-9.9" in ended.err
    assert os.listdir(tmp_path) == []
