"""What a run ends with where there is no verdict to give: a fault of envkit, a reader that went away, a full stdout."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import forked
import pytest

from envkit.errors import FAULT, READER_GONE

IMAGE = Path(__file__).parent.parent / "images" / "torch-2.6-cu124"


def broken(place: str, *words: object, fault: type[Exception] = LookupError) -> subprocess.CompletedProcess[str]:
    """A run with a fault planted in what every judging verb calls, whatever the verb; the rest is envkit as it is."""
    module, _, name = place.rpartition(".")

    def broken(*words: object, **more: object) -> None:
        raise fault("a planted fault")

    def plant() -> None:
        found = importlib.import_module(module)
        assert callable(getattr(found, name))
        setattr(found, name, broken)

    return forked.envkit(*map(str, words), timeout=120, before=plant)


def run(argv: list[str], **streams: IO[bytes]) -> subprocess.CompletedProcess[str]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(argv, text=True, timeout=120, check=False, **given)  # type: ignore[call-overload,no-any-return]


def envkit(
    *words: object, stdout: IO[bytes] | None = None, stderr: IO[bytes] | None = None
) -> subprocess.CompletedProcess[str]:
    return forked.envkit(*map(str, words), stdout=stdout, stderr=stderr, timeout=120)


@contextmanager
def unread() -> Iterator[IO[bytes]]:
    """A pipe whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        yield gone


# A fault of envkit itself.

FAULTS = [
    ("envkit.facts.load", ("init", "{folder}")),
    ("envkit.plan.spec.load", ("lock", IMAGE)),
    ("envkit.plan.spec.load", ("up", IMAGE, "--engine", "local")),
    ("envkit.build.render.dockerfile", ("render", IMAGE, "-o", "-")),
    ("envkit.static.check.answer", ("check", IMAGE)),
    ("envkit.facts.show.describe", ("facts", "torch", "2")),
    ("envkit.doctor.doctor.host", ("doctor",)),
    ("envkit.doctor.doctor.host", ("doctor", "--exit-style", "slurm")),
    ("envkit.doctor.doctor.listing", ("doctor", "--list")),
    ("envkit.launch.preflight.run", ("preflight", "--", "true")),
    ("envkit.runner.runner.probe", ("probe",)),
    ("envkit.runner.runner.smoke", ("smoke",)),
    ("envkit.runner.runner.audit", ("audit", IMAGE)),
    ("envkit.explain.explain.answer", ("explain", IMAGE / "Dockerfile")),
    ("envkit.debug.run", ("debug", "--", "true")),
    ("envkit.subjects.saved.document", ("judge", IMAGE / "envkit.toml")),
    ("envkit.diff.diff.changes", ("diff", IMAGE, IMAGE)),
]


@pytest.mark.parametrize(("place", "words"), FAULTS, ids=[" ".join(map(str, row[1][:1])) for row in FAULTS])
def test_a_fault_of_envkit_is_70_in_every_verb(place: str, words: tuple[object, ...], tmp_path: Path) -> None:
    done = broken(place, *(str(word).format(folder=tmp_path) for word in words))
    assert done.returncode == FAULT, done.stderr
    assert "LookupError: a planted fault" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("envkit: this is an internal error of envkit")
    assert "PASS" not in done.stdout


@pytest.mark.parametrize("verb", [("doctor",), ("preflight",)])
def test_nagios_hears_unknown_of_a_fault(verb: tuple[str, ...]) -> None:
    module = {"doctor": "doctor.doctor.host", "preflight": "launch.preflight.run"}[verb[0]]
    done = broken(f"envkit.{module}", *verb, "--exit-style", "nagios")
    assert done.returncode == 3
    assert done.stdout.startswith("ENVKIT UNKNOWN - ")
    assert "LookupError: a planted fault" in done.stderr and "an internal error of envkit" in done.stderr


def test_a_report_that_cannot_be_rendered_is_a_fault_in_every_style() -> None:
    for style, code in (("envkit", FAULT), ("slurm", FAULT), ("nagios", 3)):
        words = ("doctor", "--from", "{saved}", "--exit-style", style)
        done = broken("envkit.report.render", *words[:1], "--exit-style", style)
        assert done.returncode == code, (style, done.stderr)


def test_a_stream_that_ends_early_is_no_finding() -> None:
    """The parser makes "Aborted!" and 1, which reads as "found", of an EOFError."""
    done = broken("envkit.subjects.saved.document", "judge", IMAGE / "envkit.toml", fault=EOFError)
    assert done.returncode == FAULT, done.stderr
    assert "EOFError: a planted fault" in done.stderr


# Readers that went away.

SPOKEN = [
    ("--help",),
    ("--version",),
    ("lock", "--help"),
    ("facts", "torch", "2"),
    ("facts", "torch", "2", "-f", "json"),
    ("check", "--list"),
    ("check", str(IMAGE)),
    ("check", str(IMAGE), "-f", "sarif"),
    ("render", str(IMAGE), "-o", "-"),
    ("explain", "unpinned-base"),
    ("doctor", "--budget", "2", "-f", "html", "--exit-style", "nagios"),
]


@pytest.mark.parametrize("words", SPOKEN, ids=lambda words: " ".join(words[:1] + words[2:]))
def test_a_closed_stdout_is_quiet_and_no_verdict(words: tuple[str, ...]) -> None:
    with unread() as gone:
        done = envkit(*words, stdout=gone)
        whole = run([sys.executable, "-m", "envkit", *words], stdout=gone) if words == ("--version",) else done
    assert (done.returncode, done.stderr) == (whole.returncode, whole.stderr) == (READER_GONE, "")


@pytest.mark.parametrize("words", [("check", str(IMAGE)), ("lcok",), ("doctor", "--budget", "2"), ("facts", "x")])
def test_a_closed_or_full_stderr_turns_no_verdict(words: tuple[str, ...]) -> None:
    plain = envkit(*words)
    with unread() as gone:
        done = envkit(*words, stderr=gone)
    with open("/dev/full", "wb") as full:
        filled = envkit(*words, stderr=full)
    assert done.returncode == filled.returncode == plain.returncode
    if "doctor" not in words:  # whose report says how long it took
        assert done.stdout == filled.stdout == plain.stdout


def test_a_command_behind_preflight_starts_whoever_reads_its_stderr(tmp_path: Path) -> None:
    """The report goes to stderr there; a pass stays a pass, and what is no pass starts nothing."""
    words = ("preflight", "--level", "passive", "--", "touch", str(tmp_path / "ran"))
    plain = envkit(*words)
    ran = (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink(missing_ok=True)
    with unread() as gone:
        done = envkit(*words, stderr=gone)
    assert (done.returncode, (tmp_path / "ran").exists()) == (plain.returncode, ran)


@pytest.mark.parametrize("words", [("--help",), ("check", str(IMAGE)), ("doctor", "--budget", "2", "-f", "json")])
def test_a_full_stdout_is_one_sentence_and_a_fix(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = envkit(*words, stdout=full)
    lines = done.stderr.splitlines()
    assert done.returncode == 3
    assert lines[-2:] == [
        "envkit: the output could not be written to stdout: No space left on device",
        "  fix: write it to a place with enough space",
    ]
    assert sum(line.startswith("envkit: ") for line in lines) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stdout_at_its_limit_is_one_sentence(tmp_path: Path, unbuffered: str) -> None:
    """Python without a buffer drops what a short write left, and says nothing."""
    shell = 'ulimit -f 1; PYTHONUNBUFFERED=$1 exec "$0" -m envkit check --list'
    with (tmp_path / "out").open("wb") as out:
        done = run(["sh", "-c", shell, sys.executable, unbuffered], stdout=out)
    assert (done.returncode, done.stderr.count("envkit: ")) == (3, 1), done.stderr
    assert "the output could not be written to stdout: File too large" in done.stderr
