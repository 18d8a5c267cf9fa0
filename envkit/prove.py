"""Sends the payload into an image and reads back what it saw."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from envkit import lock as locks
from envkit import proc
from envkit.engine import Engine, Say
from envkit.errors import Undecided, UsageError
from envkit.image import pack
from envkit.image import probe as probe_document
from envkit.image import smoke as smoke_document
from envkit.lock import Lock
from envkit.model import Observed
from envkit.payload.smoke import TESTS
from envkit.payload.smoke.bench import SABOTAGE
from envkit.proc import Completed
from envkit.subjects import Image, SmokeRun
from envkit.subjects.image import NO_PROMISE, Promise, Wheel
from envkit.versions import Sm

LOCK_LABEL = "io.envkit.lock"

PROBE_S = 300.0  # importing torch from a cold disk takes up to a minute, mapping its libraries a few seconds
SMOKE_S = 900.0  # the suite takes about a minute; each test has a budget of its own, far below this

_TAIL = 15  # lines of a dead payload's stderr that are shown


class Place(Protocol):
    """Somewhere the payload can run: an image in an engine, or a Python of this machine."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    @property
    def digest(self) -> str:
        """Its content's name, empty if it has none."""
        ...

    def promise(self) -> Observed[Promise]:
        """What it was built to hold."""
        ...

    def run(self, argv: list[str], timeout_s: float, say: Say) -> Completed:
        """Runs the payload with ``argv`` there."""
        ...


@dataclass(frozen=True, slots=True)
class InEngine:
    """An image of an engine, shown the GPUs in ``gpus``."""

    engine: Engine
    name: str
    digest: str
    gpus: tuple[str, ...]

    def promise(self) -> Observed[Promise]:
        """The lock in the image's label, if envkit built it."""
        text = self.engine.labels(self.name).get(LOCK_LABEL, "")
        if not text:
            return Observed.lost(NO_PROMISE)
        return Observed.of(promise_of(locks.parse(text, f"the label {LOCK_LABEL} of {self.name}")), LOCK_LABEL)

    def run(self, argv: list[str], timeout_s: float, say: Say) -> Completed:
        """Runs the payload in a container of its own."""
        return self.engine.run(self.name, argv, payload=pack.pack(), gpus=self.gpus, timeout_s=timeout_s, say=say)


@dataclass(frozen=True, slots=True)
class Here:
    """A Python of this machine, in this machine's own environment."""

    python: Path

    @property
    def name(self) -> str:
        """The path of the interpreter."""
        return str(self.python)

    @property
    def digest(self) -> str:
        """Nothing: a live environment has no name for its content."""
        return ""

    def promise(self) -> Observed[Promise]:
        """Nothing was promised of it."""
        return Observed.lost(NO_PROMISE)

    def run(self, argv: list[str], timeout_s: float, say: Say) -> Completed:
        """Runs the payload as a child of this process."""
        with tempfile.TemporaryDirectory(prefix="envkit-run-") as scratch:
            file = Path(scratch, "envkit.pyz")
            file.write_bytes(pack.pack())
            command = [str(self.python), str(file), *argv, "--watch-stdin"]
            try:
                return proc.run(command, timeout_s=timeout_s, hold_stdin=True, on_line=say)
            except FileNotFoundError:
                raise UsageError(f"there is no {self.python}", "name a Python interpreter") from None


def promise_of(lock: Lock) -> Promise:
    """What an image built from ``lock`` must hold."""
    return Promise(
        torch=lock.torch,
        cuda=lock.cuda,
        wheels=tuple(Wheel(pin.name, pin.version) for pin in lock.wheels),
        gpus=tuple(Sm.parse(capability) for _, capability, _ in lock.gpus),
        lock_sha256=sha256(locks.dump(lock).encode()).hexdigest(),
        whole=not lock.preinstalled,
    )


def default_gpus(wish: str) -> tuple[str, ...]:
    """The GPUs to show: "all", "none", indexes with commas, or "auto": all if this machine has the driver's node."""
    if wish == "auto":
        return ("all",) if os.path.exists("/dev/nvidiactl") else ()
    return () if wish == "none" else tuple(part.strip() for part in wish.split(",") if part.strip())


def _document(done: Completed, what: str) -> Mapping[str, Any]:
    """The payload's JSON document: the last line of its stdout that is not empty."""
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    how = "was stopped at its budget" if done.timed_out else f"ended with {done.exit}"
    tail = "\n".join(f"  | {line}" for line in (done.stderr or done.stdout).splitlines()[-_TAIL:])
    raise Undecided(
        f"the {what} {how} and left no document" + (f":\n{tail}" if tail else ""),
        "see the lines above; is the image's Python 3.8 or newer?",
    )


def _talk(what: str, say: Say) -> Callable[[str], None]:
    return lambda line: say(f"{what}: {line}") if line.strip() else None


def probe(place: Place, say: Say, timeout_s: float = PROBE_S) -> Image:
    """What the process in ``place`` really maps and binds.  Raises Undecided if it cannot be learned."""
    say(f"probing {place.name}")
    done = place.run(["probe", "--budget", f"{timeout_s:.0f}"], timeout_s + 10, _talk("probe", say))
    return probe_document.read(_document(done, "probe"), place.name, place.digest, place.promise())


def smoke(
    place: Place, say: Say, names: tuple[str, ...] = (), timeout_s: float = SMOKE_S, sabotage: str = ""
) -> SmokeRun:
    """The smoke suite in ``place``, or the tests ``names`` of it.

    ``sabotage`` ("ulp", "one" or "nan") disturbs each result on purpose, to show that the checks go red.  Raises
    UsageError for a test or sabotage that does not exist, Undecided if the suite leaves no document.
    """
    for given, kind, known in (
        (names, "smoke test", [test.name for test in TESTS]),
        ((sabotage,) if sabotage else (), "sabotage", list(SABOTAGE)),
    ):
        for word in given:
            if word not in known:
                raise UsageError(f"there is no {kind} `{word}`", f"one of: {', '.join(known)}")
    say(f"running the smoke suite in {place.name}")
    argv = ["smoke", "--budget", f"{timeout_s:.0f}", *(word for name in names for word in ("--only", name))]
    argv += ["--sabotage", sabotage] if sabotage else []
    done = place.run(argv, timeout_s + 10, _talk("smoke", say))
    return smoke_document.read(_document(done, "smoke suite"), place.name, place.digest)


def this_python() -> Here:
    """The Python that envkit itself runs under."""
    return Here(Path(sys.executable))
