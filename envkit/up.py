"""The whole main job: a spec becomes a lock, a Dockerfile, an image, and a proof of what the image holds."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from envkit import __version__, files, judge, prove, render, solve
from envkit import lock as locks
from envkit.engine import BaseFound, BaseWish, BuiltImage, Engine, Say, buildx
from envkit.errors import Undecided, UsageError
from envkit.facts import Facts
from envkit.lock import Lock
from envkit.model import Report, Result, Subject
from envkit.report import Table
from envkit.spec import Platform, Spec
from envkit.subjects import Image, SmokeRun, codec
from envkit.subjects.image import Library

BUILD_S = 3600.0  # three gigabytes of wheels over a slow line

# A bootstrapped base is the same for all locks; its files are as old as a zip file can say, the youngest age that
# every tool can write.
BASE_EPOCH = 315532800


@dataclass(frozen=True, slots=True)
class Built:
    """An image and where it came from."""

    lock: Lock
    base: BaseFound
    image: BuiltImage


def cache_dir() -> Path:
    """Where envkit keeps what it can make again: XDG_CACHE_HOME/envkit, by default ~/.cache/envkit."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "envkit")


def connect(name: str, say: Say) -> Engine:
    """The engine ``name``: "docker", "local", or "auto" for Docker if it answers and local otherwise.

    Raises Undecided if Docker was asked for and does not answer.
    """
    if name == "local":
        from envkit.engine.local import LocalEngine

        return LocalEngine(cache_dir())
    if name not in ("docker", "auto"):
        raise UsageError(f"there is no engine `{name}`", "one of: docker, local, auto")
    try:
        from envkit.engine.docker import DockerEngine

        return DockerEngine(cache_dir())
    except Undecided as error:
        if name == "docker":
            raise
        say(f"{error.message}; going on with a private virtual environment (--engine local)")
        return connect("local", say)


def ensure_lock(spec: Spec, facts: Facts, say: Say) -> Lock:
    """The lock beside the spec if it answers the spec; else a new one, written there."""
    found = locks.load(spec)
    if found is not None:
        return found
    path = locks.path_of(spec)
    say(f"{path} {'answers another spec, locking again' if path.exists() else 'is not there yet, locking'}")
    made = solve.lock(spec, facts, say)
    locks.save(made, path)
    say(f"wrote {path}: {len(made.wheels)} wheels")
    return made


def write_dockerfile(spec: Spec, lock: Lock) -> Path:
    """Renders the Dockerfile beside the spec, untouched if it is the same already."""
    path = spec.path.with_name("Dockerfile")
    text = render.dockerfile(lock)
    if not path.is_file() or path.read_bytes() != text.encode():
        files.write(path, text)
    return path


def build(lock: Lock, engine: Engine, say: Say, *, tag: str = "", no_cache: bool = False) -> Built:
    """Builds the image of ``lock`` and names it ``tag`` (by default envkit/NAME:latest).

    Raises Undecided when the engine, the network or the disk does not serve.
    """
    machine = Platform(lock.platform).machine
    if machine != platform.machine():
        raise UsageError(
            f"the lock is for {lock.platform}, this machine is {platform.machine()}",
            f"build it on a machine with {machine}, or change `platform`",
        )
    if engine.name == "local" and lock.preinstalled:
        raise UsageError(
            f"base `{lock.base}` brings torch inside {lock.image}, which needs a container engine",
            "use --engine docker, or base `wheels`",
        )
    wish = BaseWish(ref=lock.image, suite=lock.suite, digest=lock.digest, epoch=BASE_EPOCH)
    base = engine.resolve_base(wish, say)
    say(f"base {base.ref} ({base.how})")
    text = locks.dump(lock)
    args = {"BASE": base.ref, "SOURCE_DATE_EPOCH": str(lock.epoch)}
    if engine.name == "local":
        args["PYTHON"] = lock.python
    labels = {
        prove.LOCK_LABEL: text,
        "io.envkit.base.how": base.how,
        "org.opencontainers.image.base.name": base.ref,
        "org.opencontainers.image.base.digest": base.sha256,
        "org.opencontainers.image.created": datetime.fromtimestamp(lock.epoch, UTC).isoformat(),
        "org.opencontainers.image.version": lock.torch,
    }
    ca = buildx.ca_bundle(os.environ)
    with tempfile.TemporaryDirectory(prefix="envkit-context-") as folder:
        context = Path(folder)
        (context / "Dockerfile").write_text(render.dockerfile(lock), encoding="utf-8")
        (context / "envkit.lock").write_text(text, encoding="utf-8")
        (context / "requirements.txt").write_text(lock.requirements, encoding="utf-8")
        image = engine.build(
            context,
            tag or f"envkit/{lock.name}:latest",
            args=args,
            labels=labels,
            secrets={"ca": ca} if ca else {},
            say=say,
            timeout_s=BUILD_S,
            no_cache=no_cache,
        )
    say(f"built {image.tag} in {image.seconds:.0f} s, {image.size_bytes / 1e9:.2f} GB")
    return Built(lock, base, image)


def judge_all(image: Image, run: SmokeRun, facts: Facts) -> tuple[Result, ...]:
    """What every check says of an image and of its smoke run."""
    return (*judge.judge(image, facts), *judge.judge(run, facts))


def library_table(image: Image) -> Table:
    """The CUDA libraries as loaded: what each says of its version (its wheel's where it says nothing), and its path."""

    def version(lib: Library) -> str:
        return lib.version or (f"{lib.owner_version} (wheel)" if lib.owner_version else "not said")

    rows = tuple(
        (lib.name, version(lib), lib.found_via or "unknown", lib.path)
        for lib in sorted(image.libraries.value or (), key=lambda lib: (lib.name, lib.path))
    )
    return Table(f"libraries as loaded in {image.name}", ("library", "version", "found by", "path"), rows)


def smoke_table(run: SmokeRun) -> Table:
    """The smoke tests: device, how each ended and in how many seconds."""
    rows = tuple(
        (test.name, test.device, test.ended, f"{test.seconds:.1f}")
        for test in run.tests.value or ()
        if test.ended != "unfit"
    )
    return Table("smoke tests, each in a process of its own", ("test", "device", "ended", "seconds"), rows)


def up(
    spec: Spec, facts: Facts, engine: Engine, say: Say, *, gpus: tuple[str, ...], tag: str = "", no_cache: bool = False
) -> tuple[Report, tuple[Table, ...]]:
    """Lock, render, build, probe and smoke; one report with all that was observed, and the tables worth seeing.

    Raises what its steps raise; a step that fails leaves no container and no half-written file.
    """
    started = time.monotonic()
    lock = ensure_lock(spec, facts, say)
    write_dockerfile(spec, lock)
    built = build(lock, engine, say, tag=tag, no_cache=no_cache)
    place = prove.InEngine(engine, built.image.tag, built.image.id, gpus)
    image = prove.probe(place, say)
    run = prove.smoke(place, say)
    report = Report(
        Subject("up", lock.name),
        judge_all(image, run, facts),
        round(time.monotonic() - started, 3),
        {
            "build": {
                "engine": engine.name,
                "image": built.image.tag,
                "id": built.image.id,
                "size_bytes": built.image.size_bytes,
                "seconds": round(built.image.seconds, 3),
                "base": codec.to_plain(built.base),
                "lock_sha256": prove.promise_of(lock).lock_sha256,
                "envkit": __version__,
            },
            "image": codec.to_plain(image),
            "smoke": codec.to_plain(run),
        },
    )
    return report, (library_table(image), smoke_table(run))
