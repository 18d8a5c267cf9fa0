"""What a run ends with where there is no verdict to give: a fault of envkit, a reader that went away, a full stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from envkit.errors import FAULT, READER_GONE

IMAGE = Path(__file__).parent.parent / "images" / "torch-2.6-cu124"

# A fault planted in what every judging verb calls, whatever the verb; the rest is envkit as it is.
BROKEN = """
import sys
from envkit import cli{imports}
def broken(*words, **more):
    raise LookupError("a planted fault")
{place} = broken
sys.argv[0] = "envkit"
cli.main()
"""


def broken(place: str, imports: str, *words: object) -> subprocess.CompletedProcess[str]:
    code = BROKEN.format(imports="".join(f"\nimport {name}" for name in imports.split()), place=place)
    return run([sys.executable, "-c", code, *map(str, words)])


def run(argv: list[str], **streams: IO[bytes]) -> subprocess.CompletedProcess[str]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(argv, text=True, timeout=120, check=False, **given)  # type: ignore[call-overload,no-any-return]


def envkit(*words: object, **streams: IO[bytes]) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "envkit", *map(str, words)], **streams)


@contextmanager
def unread() -> Iterator[IO[bytes]]:
    """A pipe whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        yield gone


# A fault of envkit itself.

FAULTS = [
    ("envkit.facts.load", "envkit.facts", ("init", "{folder}")),
    ("envkit.spec.load", "envkit.spec", ("lock", IMAGE)),
    ("envkit.spec.load", "envkit.spec", ("up", IMAGE, "--engine", "local")),
    ("envkit.render.dockerfile", "envkit.render", ("render", IMAGE, "-o", "-")),
    ("envkit.check.answer", "envkit.check", ("check", IMAGE)),
    ("envkit.facts.show.describe", "envkit.facts.show", ("facts", "torch", "2")),
    ("envkit.examine.host", "envkit.examine", ("doctor",)),
    ("envkit.examine.host", "envkit.examine", ("doctor", "--exit-style", "slurm")),
    ("envkit.examine.listing", "envkit.examine", ("doctor", "--list")),
    ("envkit.preflight.run", "envkit.preflight", ("preflight", "--", "true")),
    ("envkit.prove.probe", "envkit.prove", ("probe",)),
    ("envkit.prove.smoke", "envkit.prove", ("smoke",)),
    ("envkit.prove.audit", "envkit.prove", ("audit", IMAGE)),
    ("envkit.explain.answer", "envkit.explain", ("explain", IMAGE / "Dockerfile")),
    ("envkit.debug.run", "envkit.debug", ("debug", "--", "true")),
    ("envkit.saved.document", "envkit.saved", ("judge", IMAGE / "envkit.toml")),
    ("envkit.compare.changes", "envkit.compare", ("diff", IMAGE, IMAGE)),
]


@pytest.mark.parametrize(("place", "module", "words"), FAULTS, ids=[" ".join(map(str, row[2][:1])) for row in FAULTS])
def test_a_fault_of_envkit_is_70_in_every_verb(
    place: str, module: str, words: tuple[object, ...], tmp_path: Path
) -> None:
    done = broken(place, module, *(str(word).format(folder=tmp_path) for word in words))
    assert done.returncode == FAULT, done.stderr
    assert "LookupError: a planted fault" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("envkit: this is a fault of envkit itself")
    assert "PASS" not in done.stdout


@pytest.mark.parametrize("verb", [("doctor",), ("preflight",)])
def test_nagios_hears_unknown_of_a_fault(verb: tuple[str, ...]) -> None:
    module = {"doctor": "examine.host", "preflight": "preflight.run"}[verb[0]]
    done = broken(f"envkit.{module}", "envkit.examine envkit.preflight", *verb, "--exit-style", "nagios")
    assert done.returncode == 3
    assert done.stdout.startswith("ENVKIT UNKNOWN - ")
    assert "LookupError: a planted fault" in done.stderr and "fault of envkit itself" in done.stderr


def test_a_report_that_cannot_be_rendered_is_a_fault_in_every_style() -> None:
    for style, code in (("envkit", FAULT), ("slurm", FAULT), ("nagios", 3)):
        words = ("doctor", "--from", "{saved}", "--exit-style", style)
        done = broken("envkit.report.render", "envkit.report envkit.examine", *words[:1], "--exit-style", style)
        assert done.returncode == code, (style, done.stderr)


def test_a_stream_that_ends_early_is_no_finding() -> None:
    """The parser makes "Aborted!" and 1, which reads as "found", of an EOFError."""
    code = BROKEN.format(imports="\nimport envkit.saved", place="envkit.saved.document").replace(
        "LookupError", "EOFError"
    )
    done = run([sys.executable, "-c", code, "judge", str(IMAGE / "envkit.toml")])
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
    assert (done.returncode, done.stderr) == (READER_GONE, "")


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
        "envkit: stdout does not take the answer: No space left on device",
        "  fix: send it where there is room",
    ]
    assert sum(line.startswith("envkit: ") for line in lines) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stdout_at_its_limit_is_one_sentence(tmp_path: Path, unbuffered: str) -> None:
    """Python without a buffer drops what a short write left, and says nothing."""
    shell = 'ulimit -f 1; PYTHONUNBUFFERED=$1 exec "$0" -m envkit check --list'
    with (tmp_path / "out").open("wb") as out:
        done = run(["sh", "-c", shell, sys.executable, unbuffered], stdout=out)
    assert (done.returncode, done.stderr.count("envkit: ")) == (3, 1), done.stderr
    assert "stdout does not take the answer: File too large" in done.stderr
