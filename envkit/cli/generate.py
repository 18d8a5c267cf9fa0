"""Verbs that write: init, lock, base, build, vendor, up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from envkit.cli import options
from envkit.cli.app import MAKE, app
from envkit.cli.ending import say, warn
from envkit.cli.options import IMAGE_ENGINES, LOCK_ENGINES, OUTPUT, SUITES
from envkit.cli.verdict import Printing, finish
from envkit.engine import Ability, needs
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.engine import Engine
    from envkit.facts import Facts
    from envkit.plan.compiled import Run
    from envkit.plan.indexes import Indexes
    from envkit.plan.lockfile import Lock
    from envkit.plan.spec import Spec


@app.command(rich_help_panel=MAKE)
def init(
    directory: Annotated[
        Path, Argument(metavar="DIRECTORY", help="Where to write it; created if it does not exist.")
    ] = Path(),
    torch: Annotated[
        str, Option("--torch", metavar="VERSION", help="A release or a range; by default the newest that fits.")
    ] = "",
    gpu: Annotated[
        list[str] | None,
        Option("--gpu", metavar="GPU", help='A GPU it must run on, such as "H100" or sm_90; may be given again.'),
    ] = None,
    from_host: Annotated[
        bool, Option("--from-host", help="Use the GPUs and the driver of this machine as the ones it must run on.")
    ] = False,
) -> None:
    """Write a commented envkit.toml to start from."""
    from envkit import facts
    from envkit.build import draft
    from envkit.system import files

    path = directory / "envkit.toml"
    if os.path.lexists(path):
        raise UsageError(f"{path} already exists", "edit it, or name another directory")
    if from_host and gpu:
        raise UsageError("--from-host and --gpu cannot be used together", "use only one of them")
    known, gpus, driver = facts.load(), tuple(gpu or ()), ""
    if from_host:
        from envkit.host import products
        from envkit.host.observe import observe_gpus

        gpus, driver = products.of_machine(observe_gpus(), known)
    text = draft.text(known, path, torch, gpus, driver)
    files.folder(directory, "name a folder that can be created")
    files.write(path, text)
    print(path)


@app.command(rich_help_panel=MAKE)
def lock(
    spec: options.SpecPath = Path(),
    engine: Annotated[
        str,
        Option("--engine", click_type=LOCK_ENGINES, help="The engine whose base image is locked; none uses no engine."),
    ] = "auto",
    upgrade: Annotated[bool, Option("--upgrade", help="Solve everything again.")] = False,
    upgrade_package: Annotated[
        list[str] | None, Option("--upgrade-package", "-P", help="Solve only this package again; may be given again.")
    ] = None,
    refresh_os: options.RefreshOs = False,
    allow_unpinned: options.AllowUnpinned = None,
    check: Annotated[bool, Option("--check", help="Change nothing; exit 1 if spec and lock disagree.")] = False,
) -> None:
    """Choose versions that fit; pin the base, every wheel and every Debian package in envkit.lock."""
    from envkit.plan import lockfile as locks
    from envkit.plan.spec import load

    if check and (upgrade or upgrade_package or refresh_os):
        raise UsageError(
            "--check changes nothing, so it cannot be used with --upgrade, -P or --refresh-os", "leave one of them out"
        )
    may_stay_open = tuple(allow_unpinned or ())
    parsed_spec = load(options.spec_at(spec))
    path = locks.path_of(parsed_spec)
    try:
        found = locks.read(parsed_spec)
    except UsageError as error:
        if check:
            raise
        say(f"{error.message}; locking again")
        found = None
    if check:
        disagreements = locks.problems(parsed_spec, found) if found else [f"{path} does not exist"]
        for line in disagreements:
            print(line)
        _say_unpinned(found)
        raise Exit(1 if disagreements else 0)
    names = None if not (upgrade or upgrade_package) else () if upgrade else tuple(upgrade_package or ())
    if found and names is None and not refresh_os and not locks.problems(parsed_spec, found):
        say("the lock is up to date with this spec; --upgrade solves again")
        _say_unpinned(found)
        made = found
    else:
        from envkit import facts  # a lock that answers its spec waits for none of these
        from envkit.engine.choice import connect
        from envkit.plan import update

        if refresh_os and names != ():
            names = (*(names or ()), *update.debs_of(found)) or None
        made = update.new_lock(
            parsed_spec,
            facts.load(),
            lambda: None if engine == "none" else connect(engine, say),
            say,
            previous=found,
            upgrade=names,
            may_stay_open=may_stay_open,
            warn=warn,
            accept=accept,
            workshop=workshop,
            meanwhile=import_checks,
        )
        update.save(parsed_spec, made, say)
    print(headline(path, made))


def headline(path: Path, made: Lock) -> str:
    """What a lock holds, as one line."""
    from envkit.plan.lockfile import built_for

    debs = f"{len(made.debs)} Debian packages of {made.archive}" if made.archive else "Debian packages by name"
    return f"{path}: torch {made.torch} for {built_for(made)}, {len(made.wheels)} wheels, {debs}, base {made.image}"


def accept(spec: Spec, known: Facts, made: Lock) -> None:
    """Holds a new lock to the checks of files; they are imported where there is one."""
    from envkit.static.before_writing import refuse

    refuse(spec, known, made)


def import_checks() -> None:
    """Imports what ``accept`` needs."""
    from envkit.static.before_writing import prepare

    prepare()


@contextmanager
def workshop(lock: Lock, engine: Engine, indexes: Indexes, say: Callable[[str], None]) -> Iterator[Run]:
    """Where the packages of `build` are compiled; what that takes is imported where there are some."""
    from envkit.build import up as pipeline

    with pipeline.workshop(lock, engine, indexes, say) as run:
        yield run


def _say_unpinned(lock: Lock | None) -> None:
    from envkit.plan import lockfile as locks

    for part, clause in (locks.unpinned(lock) if lock else {}).items():
        warn(f"NOT PINNED ({part}): {clause}")
    if lock and (clause := locks.unverified(lock)):
        warn(f"DERIVED, NOT VERIFIED: {clause}")


@app.command(rich_help_panel=MAKE)
def base(
    suite: Annotated[str, Argument(metavar="SUITE", click_type=SUITES, help="bookworm or trixie.")] = "bookworm",
    engine: Annotated[
        str, Option("--engine", click_type=IMAGE_ENGINES, help="The engine that takes it in.")
    ] = "docker",
) -> None:
    """Make a base image from Debian's packages, named by the hash of its content."""
    from envkit.engine.choice import connect
    from envkit.plan.update import suite_wish

    found = connect(engine, say).resolve_base(suite_wish(suite), say)
    print(f"{found.ref} {found.sha256} ({found.how})")


@app.command(rich_help_panel=MAKE)
def build(
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    tag: options.Tag = "",
    flavor: options.FlavorName = "",
    no_cache: options.NoCache = False,
    refresh_os: options.RefreshOs = False,
    allow_unpinned: options.AllowUnpinned = None,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write the image to this file, an OCI archive.")
    ] = None,
    provenance: Annotated[
        bool, Option("--provenance", help="Attest how it was built, as buildx does; needs the containerd image store.")
    ] = False,
    verify: Annotated[
        bool, Option("--verify", help="Build twice without a cache and compare layer by layer; exit 1 on a difference.")
    ] = False,
    vendored: Annotated[
        Path | None, Option("--from", help="Build from the folder that `envkit vendor` filled, without a network.")
    ] = None,
    apt_mirror: Annotated[
        str,
        Option(
            "--apt-mirror", help="URL of a Debian archive that keeps old versions; {date} and {archive} are filled in."
        ),
    ] = "",
) -> None:
    """Lock, render and build an image."""
    import shlex

    from envkit import facts
    from envkit.build import up as pipeline
    from envkit.build import vendor
    from envkit.build.flags import run_flags
    from envkit.build.possible import can_be_built
    from envkit.engine.choice import connect
    from envkit.plan import indexes
    from envkit.plan.spec import Flavor, load
    from envkit.plan.update import ensure_lock

    target = Flavor(flavor) if flavor else None
    may_stay_open = tuple(allow_unpinned or ())
    parsed_spec = load(options.spec_at(spec))
    can_be_built(parsed_spec.platform.value, tag, apt_mirror)
    options.writable(output)
    if provenance and (verify or output):
        said = "--provenance makes every build another image, so it cannot be used with --verify or --output"
        raise UsageError(said, "use only one of them; `envkit push` brings the attestation to a registry")
    connected = connect(engine, say)
    needs(connected, Ability.BUILD)
    if Ability.LAYERS not in connected.abilities and (output or provenance):
        raise UsageError("--engine local makes no image to save or to attest", "use --engine docker")
    if vendored:
        made = vendor.load(vendored, say)
    else:
        made = ensure_lock(
            parsed_spec, facts.load(), lambda: connected, say,
            refresh_os=refresh_os, may_stay_open=may_stay_open, accept=accept, workshop=pipeline.workshop,
        )  # fmt: skip
        pipeline.write_dockerfile(parsed_spec, made)
    named = None if vendored else indexes.of(parsed_spec.index, parsed_spec.extra_index)
    verdict = None
    if verify:
        built, verdict = pipeline.verify(
            made, connected, say, tag=tag, flavor=flavor, vendored=vendored, apt_mirror=apt_mirror, indexes=named,
            wheels=parsed_spec.given, spec=parsed_spec,
        )  # fmt: skip
    else:
        built = pipeline.build(
            made, connected, say, tag=tag, flavor=flavor, no_cache=no_cache, vendored=vendored, apt_mirror=apt_mirror,
            indexes=named, wheels=parsed_spec.given, spec=parsed_spec, provenance=provenance,
        )  # fmt: skip
    for flag in run_flags(made, target or Flavor(made.flavor)):
        say(f"{shlex.join(flag.arguments)}: {flag.why}")
    if output:
        pipeline.write_archive(connected, built.image.tag, output, say)
    print(f"{built.image.tag} {built.image.id}")
    sys.stdout.flush()
    say(_how_to_run(spec, connected, tag, flavor))
    if verdict is not None:
        for number, layer in enumerate(verdict.layers[0], 1):
            print(f"layer {number} {layer}")
        for line in verdict.differences:
            print(f"differs: {line}")
        print("both builds are the same" if verdict.same else "the two builds are NOT the same")
        raise Exit(0 if verdict.same else 1)


def _how_to_run(spec: Path, engine: Engine, tag: str, flavor: str) -> str:
    """The line to paste, with the options that name the same image."""
    import shlex

    words = ["envkit", "run", *([] if spec == Path() else [str(spec)])]
    words += [] if engine.name == "docker" else ["--engine", engine.name]
    words += ["--tag", tag] if tag else ["--flavor", flavor] if flavor else []
    return f"run your code in it: {shlex.join(words)} -- python train.py (--print shows the engine's own line)"


@app.command(name="vendor", rich_help_panel=MAKE)
def save_inputs(
    directory: Annotated[Path, Argument(metavar="DIR", help="Where to save them: a new or empty folder.")],
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    allow_unpinned: options.AllowUnpinned = None,
) -> None:
    """Save everything that a build needs (base, wheels, Debian packages, installer) for `envkit build --from DIR`."""
    from envkit import facts
    from envkit.build import vendor
    from envkit.engine.choice import connect
    from envkit.plan import indexes
    from envkit.plan.spec import load
    from envkit.plan.update import ensure_lock
    from envkit.system import no_room

    vendor.can_be_filled(directory)
    may_stay_open = tuple(allow_unpinned or ())
    parsed_spec = load(options.spec_at(spec))
    connected = connect(engine, say)
    needs(connected, Ability.BUILD)
    made = ensure_lock(
        parsed_spec, facts.load(), lambda: connected, say,
        may_stay_open=may_stay_open, accept=accept, workshop=workshop,
    )  # fmt: skip
    with no_room.into(directory):
        named = indexes.of(parsed_spec.index, parsed_spec.extra_index)
        vendor.save(made, directory, connected, say, named, parsed_spec.given, parsed_spec)
    print(directory)


@app.command(rich_help_panel=MAKE)
def up(
    spec: options.SpecPath = Path(),
    engine: options.EngineName = "docker",
    gpus: options.Gpus = "auto",
    tag: options.Tag = "",
    flavor: options.FlavorName = "",
    no_cache: options.NoCache = False,
    refresh_os: options.RefreshOs = False,
    allow_unpinned: options.AllowUnpinned = None,
    report: Annotated[Path, Option("--report", help="Where to write the JSON report.", rich_help_panel=OUTPUT)] = Path(
        "report.json"
    ),
    require_gpu: options.RequireGpu = False,
    format: options.Format = "console",
    fail_on: options.FailOn = "error",
    observed: options.WithObserved = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Run all steps with one report: lock, render, build, probe, smoke."""
    from envkit import facts
    from envkit import report as reports
    from envkit.build import up as pipeline
    from envkit.build.possible import can_be_built
    from envkit.engine.choice import connect
    from envkit.plan.spec import load
    from envkit.runner import runner
    from envkit.system import files

    printing = Printing(format, fail_on, observed, options.detail(quiet, verbose))
    options.writable(report)
    shown = runner.default_gpus(gpus)
    options.consistent(require_gpu, gpus)
    may_stay_open = tuple(allow_unpinned or ())
    parsed_spec = load(options.spec_at(spec))
    can_be_built(parsed_spec.platform.value, tag)
    connected = connect(engine, say)
    needs(connected, Ability.BUILD)
    runner.are_here(shown, connected)
    made, tables = pipeline.up(
        parsed_spec,
        facts.load(),
        connected,
        say,
        gpus=shown,
        tag=tag,
        flavor=flavor,
        no_cache=no_cache,
        refresh_os=refresh_os,
        require_gpu=require_gpu,
        may_stay_open=may_stay_open,
        warn=warn,
        accept=accept,
    )
    files.write(report, reports.render(made, "json", fail_on=options.severity(fail_on)), 0o600)
    say(f"wrote {report}")
    finish(made, tables, printing, next_step=_how_to_run(spec, connected, tag, flavor))
