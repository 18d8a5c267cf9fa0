"""Sends the payload into an image and reads back what it saw."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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
from envkit.spec import one_line
from envkit.subjects import Image, SmokeRun
from envkit.subjects.image import NO_PROMISE, Promise, Wheel
from envkit.versions import Sm

LOCK_LABEL = "io.envkit.lock"
FLAVOR_LABEL = "io.envkit.flavor"

PROBE_S = 300.0  # importing torch from a cold disk takes up to a minute, mapping its libraries a few seconds
SMOKE_S = 900.0  # the suite takes about a minute; each test has a budget of its own, far below this

_LABEL_LIMIT = 1 << 20  # characters; the lock of a whole image has twenty thousand
_TAIL = 15  # lines of a dead payload's stderr that are shown


@cache
def _payload() -> bytes:
    """The payload as this process sends it, packed once."""
    return pack.pack()


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

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that a run there is given: "all", or one name each."""
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
        labels = self.engine.labels(self.name)
        text = labels.get(LOCK_LABEL, "")
        if not text:
            return Observed.lost(NO_PROMISE)
        if len(text) > _LABEL_LIMIT:
            raise UsageError(
                f"the label {LOCK_LABEL} of {self.name} has {len(text)} characters, which no lock has",
                "build the image with `envkit build`",
            )
        flavor = labels.get(FLAVOR_LABEL, "")
        if flavor not in locks.FLAVORS:
            raise UsageError(
                f"the label {FLAVOR_LABEL} of {self.name} is {one_line(repr(flavor))}, which is no flavor",
                "build the image with `envkit build`",
            )
        return Observed.of(promise_of(locks.parse(text, f"the label {LOCK_LABEL} of {self.name}"), flavor), LOCK_LABEL)

    def run(self, argv: list[str], timeout_s: float, say: Say) -> Completed:
        """Runs the payload in a container of its own."""
        return self.engine.run(self.name, argv, payload=_payload(), gpus=self.gpus, timeout_s=timeout_s, say=say)


@dataclass(frozen=True, slots=True)
class Here:
    """A Python of this machine, in this machine's own environment.

    ``gpus`` are the GPUs that it must see; names of single ones narrow what it can see.
    """

    python: Path
    gpus: tuple[str, ...] = ()

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
            file.write_bytes(_payload())
            command = [str(self.python), str(file), *argv, "--watch-stdin"]
            environment = dict(os.environ)
            if self.gpus and self.gpus != ("all",):
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
            try:
                return proc.run(command, timeout_s=timeout_s, env=environment, hold_stdin=True, on_line=say)
            except FileNotFoundError:
                raise UsageError(f"there is no {self.python}", "name a Python interpreter") from None


def promise_of(lock: Lock, flavor: str) -> Promise:
    """What an image of ``flavor`` built from ``lock`` must hold."""
    wheels, _ = locks.upto(lock, flavor)
    return Promise(
        torch=lock.torch,
        cuda=lock.cuda,
        wheels=tuple(Wheel(pin.name, pin.version) for pin in wheels),
        gpus=tuple(Sm.parse(capability) for _, capability, _ in lock.gpus),
        lock_sha256=sha256(locks.dump(lock).encode()).hexdigest(),
        whole=not lock.preinstalled,
    )


def default_gpus(wish: str) -> tuple[str, ...]:
    """The GPUs to show: "all", "none", indexes with commas, or "auto": all if this machine has the driver's node."""
    if wish == "auto":
        return ("all",) if os.path.exists("/dev/nvidiactl") else ()
    return () if wish == "none" else tuple(part.strip() for part in wish.split(",") if part.strip())


def _ask(place: Place, what: str, kind: str, words: list[str], timeout_s: float, say: Say) -> Mapping[str, Any]:
    """Runs the payload in ``place`` and gives its document: the last line of its stdout that is not empty.

    A document counts only if the run ended well and if it repeats this run's nonce and the sha256 of the payload that
    was sent: what the image's own code printed at Python's start or end, or left over from elsewhere, is none.  An
    image that forges on purpose can read the nonce and repeat it; the seal is against accidents and cheap lies.
    """
    nonce = secrets.token_hex(16)
    argv = [kind, "--budget", f"{timeout_s:.0f}", *words, "--nonce", nonce]
    done = place.run(argv, timeout_s + 10, lambda line: say(f"{kind}: {line}") if line.strip() else None)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    try:
        document = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        document = None
    left = "left no document"
    if isinstance(document, dict):
        seal = {"nonce": nonce, "payload_sha256": sha256(_payload()).hexdigest()}
        wrong = [key for key, value in seal.items() if document.get(key) != value]
        if not wrong and done.exit == 0 and not done.timed_out:
            return document
        left = f"left a document whose {' and '.join(wrong)} is not this run's" if wrong else "yet left a document"
    how = "was stopped at its budget" if done.timed_out else f"ended with {done.exit}"
    tail = "\n".join(f"  | {line}" for line in (done.stderr or done.stdout).splitlines()[-_TAIL:])
    raise Undecided(
        f"the {what} {how} and {left}" + (f":\n{tail}" if tail else ""),
        "see the lines above; does the image print when its Python starts or ends (sitecustomize, a .pth file)?"
        if isinstance(document, dict)
        else "see the lines above; is the image's Python 3.8 or newer?",
    )


def probe(place: Place, say: Say, timeout_s: float = PROBE_S) -> Image:
    """What the process in ``place`` really maps and binds.  Raises Undecided if it cannot be learned."""
    promise = place.promise()
    say(f"probing {place.name}")
    document = _ask(place, "probe", "probe", [], timeout_s, say)
    return probe_document.read(document, place.name, place.digest, promise, place.gpus)


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
    promise = place.promise().value
    asked = SmokeRun(
        place.name,
        place.digest,
        sabotage=sabotage,
        only=names,
        gpus_given=place.gpus,
        torch_promised=promise.torch if promise else "",
        gpus_promised=tuple(dict.fromkeys(f"sm_{sm.major}{sm.minor}" for sm in promise.gpus)) if promise else (),
    )
    say(f"running the smoke suite in {place.name}")
    words = [word for name in names for word in ("--only", name)] + (["--sabotage", sabotage] if sabotage else [])
    words += [word for sm in asked.gpus_promised for word in ("--sm", sm.removeprefix("sm_"))]
    return smoke_document.read(_ask(place, "smoke suite", "smoke", words, timeout_s, say), asked)


def this_python(gpus: tuple[str, ...] = ()) -> Here:
    """The Python that envkit itself runs under, which must see the GPUs in ``gpus``."""
    return Here(Path(sys.executable), gpus)
