"""The whole main job: a spec becomes a lock, a Dockerfile, an image, and a proof of what the image holds."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from envkit import __version__
from envkit.build import inside, render
from envkit.build.possible import can_be_built
from envkit.engine import Ability, BuildRequest, BuiltImage, DeclaredStart, Engine, ResolvedBase, Say, buildx
from envkit.engine.base import bootstrap
from envkit.errors import UsageError
from envkit.facts import Facts
from envkit.image import oci, tar
from envkit.image.audit.debian import installed
from envkit.judging import judge, required
from envkit.model import Report, Result, Subject
from envkit.plan import compiled, given, sources, wheels
from envkit.plan import lockfile as locks
from envkit.plan.given import GivenWheel
from envkit.plan.indexes import Indexes
from envkit.plan.indexes import of as indexes_of
from envkit.plan.lockfile import Lock
from envkit.plan.spec import Flavor, Spec
from envkit.plan.update import Accept, base_request, ensure_lock
from envkit.records import dataclass
from envkit.report import Table, summary
from envkit.runner import runner
from envkit.subjects import Audit, Image, SmokeRun, codec
from envkit.system import files, no_room, proc
from envkit.system.files import cache_dir

BUILD_S = 3600.0  # three gigabytes of wheels over a slow line

_STATUS = "var/lib/dpkg/status"

VENDORED_BASE = "base.tar"  # in the folder that envkit.build.vendor fills


@dataclass(frozen=True, slots=True)
class Built:
    """An image and where it came from."""

    lock: Lock
    base: ResolvedBase
    image: BuiltImage


def write_dockerfile(spec: Spec, lock: Lock) -> Path:
    """Renders the Dockerfile beside the spec, untouched if it is the same already."""
    path = files.beside(spec.path.parent, "Dockerfile")
    text = render.dockerfile(lock)
    try:
        same = files.content(path) == text.encode()
    except OSError:  # what is wrong with it says who writes it
        same = False
    if not same:
        files.write(path, text)
    return path


def build(
    lock: Lock,
    engine: Engine,
    say: Say,
    *,
    tag: str = "",
    flavor: str = "",
    no_cache: bool = False,
    vendored: Path | None = None,
    apt_mirror: str = "",
    indexes: Indexes | None = None,
    wheels: tuple[GivenWheel, ...] = (),
    spec: Spec | None = None,
    passing: bool = False,
    provenance: bool = False,
) -> Built:
    """Builds the image of ``lock`` and names it ``tag`` (by default envkit/NAME:latest).

    ``flavor`` is the target, by default the lock's.  ``vendored`` is a folder that ``envkit.build.vendor`` filled:
    everything comes from there, and no step has a network.  ``apt_mirror`` is the address of a Debian archive to use
    in place of the base's own, "{date}" in it becoming the time of the lock and "{archive}" the archive's name.
    ``indexes`` are asked for the wheels, and reach the build as a secret; ``wheels`` are those that no index has.
    ``spec`` says where the project lies, of which an image may hold files.  ``passing`` and ``provenance`` are as in
    BuildRequest.

    Raises Undecided when the engine, the network or the disk does not serve.
    """
    can_be_built(lock.platform, tag, apt_mirror)
    flavor = flavor or lock.flavor
    if not engine.containers and lock.preinstalled:
        said = f"base `{lock.base}` contains torch in the image {lock.image}, which needs a container engine"
        raise UsageError(said, "use --engine docker, or base `wheels`")
    if vendored:
        base = engine.load(vendored / VENDORED_BASE, base_request(lock))
    else:
        base = engine.resolve_base(base_request(lock), say)
    say(f"base {base.ref} ({base.how})")
    text = locks.dump(lock)
    args = {"BASE": base.ref, "SOURCE_DATE_EPOCH": str(max(lock.epoch, render.apt_epoch(lock)))}
    if not engine.containers:
        args["PYTHON"] = str(lock.python)
    if apt_mirror:
        args["APT_MIRROR"] = apt_mirror
    labels = {
        runner.LOCK_LABEL: text,
        runner.FLAVOR_LABEL: flavor,
        "org.opencontainers.image.base.name": lock.image,
        "org.opencontainers.image.base.digest": base.sha256,
        "org.opencontainers.image.created": datetime.fromtimestamp(lock.epoch, UTC).isoformat(),
        "org.opencontainers.image.version": str(lock.torch),
    }
    ca = buildx.ca_bundle(os.environ)
    with files.scratch("context") as folder:
        context = folder / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(render.dockerfile(lock), encoding="utf-8")
        (context / "envkit.lock").write_text(text, encoding="utf-8")
        secrets = {"ca": ca} if ca else {}
        if vendored is None and indexes and (secret := indexes.secret()):
            secrets["index"] = folder / "index"  # in a folder that nobody else may read, and not in the context
            files.write(secrets["index"], secret, 0o600)
        pins, _ = locks.upto(lock, flavor)
        (context / "requirements.txt").write_text(locks.requirements(pins), encoding="utf-8")
        contexts = _contexts(lock, vendored)
        if inside.wanted(lock):
            contexts[inside.STAGE] = _project(lock, spec, vendored, folder, say, indexes or Indexes())
            labels |= inside.labels(contexts[inside.STAGE])
        if vendored is None and (wheels or lock.sources):  # those of a vendored lock lie with the others
            contexts["unindexed"] = files.folder(folder / "unindexed")
            given.gather(wheels, contexts["unindexed"])
            again = compiled.compiled_again(lock, engine, workshop, indexes or Indexes(), cache_dir(), say)
            sources.gather(lock, contexts["unindexed"], cache_dir(), say, indexes, anew=no_cache, again=again)
        if not engine.containers and lock.project:
            _beside_the_others(contexts[inside.STAGE], context, contexts, folder)
        image = engine.build(
            BuildRequest(
                context=context,
                tag=tag or f"envkit/{lock.name}:{'latest' if flavor == lock.flavor else flavor}",
                timeout_s=BUILD_S,
                target=flavor,
                ahead=render.CUDA if lock.cuda and not lock.preinstalled else "",
                args=args,
                labels=labels,
                secrets=secrets,
                contexts=contexts,
                offline=vendored is not None,
                no_cache=no_cache,
                passing=passing,
                provenance=provenance,
            ),
            say,
        )
    say(f"built {image.tag} in {image.seconds:.0f} s, {image.size_bytes / 1e9:.2f} GB")
    return Built(lock, base, image)


def write_archive(engine: Engine, image: str, target: Path, say: Say) -> oci.Written:
    """Writes ``image`` into the file ``target`` as an archive in the layout of OCI, whole or not at all.

    Beside it the disk needs room for the image once more meanwhile.  Raises Undecided where it has none.
    """
    if not engine.containers:
        raise UsageError("a virtual environment is no image", "use --engine docker")
    name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    with no_room.into(target), proc.sigterm_raises(), proc.scratch_folder(target.absolute().parent) as folder:
        say(f"saving {image}")
        engine.save(image, folder / "saved")
        written = oci.write(folder / "saved", folder / "archive", name)
        (folder / "archive").chmod(0o644)
        os.replace(folder / "archive", target)
    say(f"wrote {target}: {written.size / 1e9:.2f} GB")
    return written


def _project(lock: Lock, spec: Spec | None, vendored: Path | None, folder: Path, say: Say, indexes: Indexes) -> Path:
    """The folder with what goes into the image of the project: what was vendored, or laid out below ``folder``."""
    if vendored is not None:
        return vendored / inside.STAGE
    if spec is None:
        raise UsageError("the lock names a project, and no spec says where that is", "build it from its spec")
    staged = files.folder(folder / inside.STAGE)
    inside.stage(spec, lock, staged, say, indexes)
    return staged


def _beside_the_others(staged: Path, context: Path, contexts: dict[str, Path], folder: Path) -> None:
    """The project's wheel among those of an environment that is no image."""
    place = contexts.setdefault("unindexed", files.folder(folder / "unindexed"))
    for one in (staged / "wheel").glob("*.whl"):
        shutil.copyfile(one, place / one.name)
    with (context / "requirements.txt").open("a", encoding="utf-8") as listed:
        listed.write((staged / inside.WHEELS).read_text(encoding="utf-8"))


@contextmanager
def workshop(lock: Lock, engine: Engine, indexes: Indexes, say: Say) -> Iterator[compiled.Run]:
    """Containers of the devel flavor of ``lock``, with its torch and none of the spec's packages, to compile in; the
    image goes with the block.  Raises what ``build`` raises."""
    alone = locks.torch_alone(lock)
    built = build(alone, engine, say, flavor=Flavor.DEVEL.value, indexes=indexes, passing=True)

    def run(given: Path, made: Path, say: Say) -> proc.Completed:
        return engine.compile(built.image.tag, compiled.ARGV, given, made, timeout_s=compiled.BUDGET_S, say=say)

    try:
        yield run
    finally:
        engine.remove(built.image.tag)


def _contexts(lock: Lock, vendored: Path | None) -> dict[str, Path]:
    """The folders that stand in for stages of the Dockerfile: what was vendored, and this machine's own uv, if it is
    the very version that the lock pins, which saves the build its installation."""
    found = {"vendor": vendored} if vendored else {}
    if wheels.uv_version() == lock.installer.version:
        # Always from the same place and with the file's own time: the engine then knows that it has it already.
        found["installer"] = files.folder(cache_dir() / "installer" / lock.installer.version)
        uv, kept = Path(proc.uv_path()), found["installer"] / "uv"
        if not kept.is_file() or _stamp(uv) != _stamp(kept):
            with files.scratch("installer", found["installer"].parent) as folder:
                shutil.copy2(uv, folder / "uv")
                (folder / "uv").replace(kept)
    return found


def _stamp(path: Path) -> tuple[int, int]:
    """A file's size in bytes and its time in nanoseconds."""
    return path.stat().st_size, path.stat().st_mtime_ns


@dataclass(frozen=True, slots=True)
class Verdict:
    """What building twice showed: the two images' ids and their layers' hashes, the base's first, and for each layer
    that differs the first file that does."""

    ids: tuple[str, str]
    layers: tuple[tuple[str, ...], tuple[str, ...]]
    differences: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether every layer and all settings of the image are the same."""
        return self.layers[0] == self.layers[1] and not self.differences


def verify(
    lock: Lock,
    engine: Engine,
    say: Say,
    *,
    tag: str = "",
    flavor: str = "",
    vendored: Path | None = None,
    apt_mirror: str = "",
    indexes: Indexes | None = None,
    wheels: tuple[GivenWheel, ...] = (),
    spec: Spec | None = None,
) -> tuple[Built, Verdict]:
    """Builds ``lock`` twice, without any cache, and compares the two layer by layer; a base made from packages is made
    once more as well.  The second image goes again, the first keeps ``tag``."""
    if not engine.containers:
        raise UsageError("a virtual environment has no layers to compare", "use --engine docker")

    def once(name: str) -> Built:
        return build(
            lock, engine, say, tag=name, flavor=flavor, no_cache=True, vendored=vendored, apt_mirror=apt_mirror,
            indexes=indexes, wheels=wheels, spec=spec,
        )  # fmt: skip

    first = once(tag)
    differences: list[str] = []
    if lock.origin == "packages" and vendored is None:
        say("making the base again")
        with files.scratch("verify") as folder:
            request = base_request(lock)
            again = bootstrap(request.suite, request.include, request.epoch, folder, say)
            if again.sha256 != first.base.sha256:
                said = f"the base made from packages is now {again.sha256}, but {first.base.sha256} is locked"
                newer = newer_packages(engine.file(first.base.ref, f"/{_STATUS}"), again.tar)
                differences.append(f"{said}{newer and f': the archive has {newer}'}")
    second = once(f"envkit-verify:{lock.name}")
    try:
        ids = (first.image.id, second.image.id)
        held = (engine.layers(first.image.tag), engine.layers(second.image.tag))
        if held[0] != held[1]:
            differences += compare_images(engine, first.image.tag, second.image.tag)
        elif ids[0] != ids[1] and (
            Ability.SAME_ID in engine.abilities
            or _settings(engine, first.image.tag) != _settings(engine, second.image.tag)
        ):
            differences.append("the layers are the same, but the images' settings differ")
    finally:
        engine.remove(second.image.tag)
    return first, Verdict(ids, held, tuple(differences))


def newer_packages(status: bytes, made: Path) -> str:
    """Which packages have another version in the tree of the tar file ``made`` than in dpkg's ``status`` of a base made
    before: the reason that ``verify`` gives where the archive was updated since.  Empty where all are the same."""
    with tarfile.open(made) as tree:
        file = tree.extractfile(f"./{_STATUS}")
        now = file.read() if file else b""
    before, after = (
        {name: version for name, version, _ in installed(text.decode("utf-8", "replace"))} for text in (status, now)
    )
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    told = (f"{name} {after.get(name, 'no more')} (locked base: {before.get(name, 'none')})" for name in names)
    return ", ".join(told)


def _settings(engine: Engine, image: str) -> tuple[DeclaredStart, dict[str, str]]:
    """What an image says of itself beside its layers."""
    return engine.declared(image), dict(engine.labels(image))


def compare_images(engine: Engine, old: str, new: str) -> list[str]:
    """For each layer in which two images differ, which file is the first that does, and in what."""
    wanted = tar.differing(engine.layers(old), engine.layers(new))
    read = []
    for image in (old, new):
        with files.scratch("layers") as folder:
            saved = folder / "image.tar"
            engine.save(image, saved)
            with saved.open("rb") as stream:
                read.append(tar.read(stream, wanted))
    return [f"layer {one.number}: {one.what}" for one in tar.compare(*read)]


def judge_all(audit: Audit, image: Image, run: SmokeRun, facts: Facts) -> tuple[Result, ...]:
    """What every check says of an image's files, of a process in it and of its smoke run.

    What can be asked of the files and of the process alike is asked of the process, which is nearer to the truth.
    """
    of_files = frozenset(name for name, check in judge.checks().items() if check.subjects == (Audit,))
    said = (*judge.judge(audit, facts, of_files), *judge.unanswered(audit))
    return (*said, *judge.judge(image, facts), *judge.judge(run, facts))


def up(
    spec: Spec,
    facts: Facts,
    engine: Engine,
    say: Say,
    *,
    gpus: tuple[str, ...],
    tag: str = "",
    flavor: str = "",
    no_cache: bool = False,
    refresh_os: bool = False,
    require_gpu: bool = False,
    may_stay_open: Collection[str] = (),
    warn: Say | None = None,
    accept: Accept = lambda spec, facts, lock: None,
) -> tuple[Report, tuple[Table, ...]]:
    """Lock, render, build, audit, probe and smoke; one report with all that was observed, and the tables worth seeing.

    With ``require_gpu`` it is undecided where the probe saw no GPU or the suite computed on none.  ``warn``, by default
    ``say``, is told what a new lock does not pin, and ``accept`` may refuse it.

    Raises what its steps raise; a step that fails leaves no container and no half-written file.
    """
    started = time.monotonic()
    lock = ensure_lock(
        spec, facts, lambda: engine, say,
        refresh_os=refresh_os, may_stay_open=may_stay_open, warn=warn, accept=accept, workshop=workshop,
    )  # fmt: skip
    write_dockerfile(spec, lock)
    named = indexes_of(spec.index, spec.extra_index)
    built = build(
        lock, engine, say, tag=tag, flavor=flavor, no_cache=no_cache, indexes=named, wheels=spec.given, spec=spec
    )
    files_seen = runner.audit(built.image.tag, lambda: engine, say)
    place = runner.InEngine(engine, built.image.tag, built.image.id, gpus)
    image = runner.probe(place, say)
    run = runner.smoke(place, say)
    report = Report(
        Subject("up", lock.name),
        judge_all(files_seen, image, run, facts) + (required.without_gpu(image, run) if require_gpu else ()),
        round(time.monotonic() - started, 3),
        {
            "build": {
                "engine": engine.name,
                "image": built.image.tag,
                "id": built.image.id,
                "size_bytes": built.image.size_bytes,
                "seconds": round(built.image.seconds, 3),
                "base": codec.to_plain(built.base),
                "lock_sha256": sha256(locks.dump(lock).encode()).hexdigest(),
                "envkit": __version__,
            },
            "audit": codec.to_plain(files_seen),
            "image": codec.to_plain(image),
            "smoke": codec.to_plain(run),
        },
        required.covered(files_seen, image, run),
    )
    return report, (*summary.image(image), *summary.smoke(run))
