"""The command line: reads the wish, calls one function, prints what it gives, and exits by it.

Data goes to stdout, talk to stderr.  Every module that costs time is imported by the verb that needs it, so that
``envkit --help`` costs no more than the parser.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import click
import typer
import typer.core
import typer.main

from envkit import __version__
from envkit.errors import FAULT, READER_GONE, EnvkitError, Interrupted, Undecided, Unsatisfiable, UsageError

if TYPE_CHECKING:
    from envkit.model import Report, Severity
    from envkit.plan.lockfile import Lock
    from envkit.plan.spec import Flavor
    from envkit.report import Bar, Table
    from envkit.runner.runner import Place
    from envkit.subjects import SmokeRun

app = typer.Typer(
    name="envkit",
    help="GPU container environments that are pinned, proven and explained.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: loading rich for it would take as long as all the rest
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="envkit.toml, or the directory that holds it.")]
EngineName = Annotated[str, typer.Option("--engine", help="docker, local (a private virtual environment) or auto.")]
Format = Annotated[str, typer.Option("--format", "-f", help="console, json, junit or html.")]
FailOn = Annotated[str, typer.Option("--fail-on", help="Lowest severity that makes the exit code 1.")]
WithObserved = Annotated[bool, typer.Option("--observed", help="Put all that was observed into the JSON.")]
Gpus = Annotated[str, typer.Option("--gpus", help="auto, all, none, or indexes with commas.")]
ExitStyle = Annotated[str, typer.Option("--exit-style", help="envkit, nagios or slurm: whose exit codes.")]
Save = Annotated[Path | None, typer.Option("--save", help="Write what was observed to this file, for `envkit judge`.")]


class _Verb(typer.core.TyperCommand):
    """A verb that refuses an empty value of any option or argument that was given.

    An unset variable would else leave out what the option asks for, or name the current folder, and the verdict would
    be of something else.  The words are looked at before they become paths, for Path("") is Path(".").
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        with _exits(str(given.get("exit_style") or "").strip() or "envkit"):
            for each in order:
                value = given.get(each.name or "")
                words = value if isinstance(value, (list, tuple)) else [value]
                if any(isinstance(word, str) and not word.strip() for word in words):
                    name = each.opts[0] if isinstance(each, click.Option) else each.make_metavar(ctx).strip("[].")
                    raise UsageError(f"{name} is empty", "look at the variable that should hold it, or leave it out")
        return super().parse_args(ctx, args)


Target = Annotated[
    str | None, typer.Argument(metavar="IMAGE", help="An image; without one, the Python envkit runs under.")
]
RequireGpu = Annotated[
    bool, typer.Option("--require-gpu", help="Undecided (exit 3) unless a GPU had a part in the verdict.")
]
Frameworks = Annotated[
    list[str] | None,
    typer.Option("--framework", help="In place of torch: jax, tensorflow, ... or none; may be given again."),
]
PythonPath = Annotated[Path | None, typer.Option("--python", help="Another Python of this machine.")]

Tag = Annotated[str, typer.Option("--tag", "-t", help="The image's name; by default envkit/NAME:latest.")]
FlavorName = Annotated[str, typer.Option("--flavor", help="runtime, devel or debug; by default the spec's.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Build every layer anew.")]
RefreshOs = Annotated[
    bool, typer.Option("--refresh-os", help="Take today's base and Debian packages into the lock; wheels stay.")
]
AllowUnpinned = Annotated[
    list[str] | None,
    typer.Option("--allow-unpinned", help="os or base: lock though it cannot be pinned; may be given again."),
]


def say(line: str) -> None:
    """One line of progress or of an error on stderr, without credentials; what an image or another program put into it
    cannot steer the terminal."""
    from envkit.credentials import redacted_text
    from envkit.report.text import visible

    with suppress(OSError, ValueError):  # its reader is gone or its disk is full: progress is no part of a verdict
        print(visible(redacted_text(line)), file=sys.stderr, flush=True)


def _severity(word: str) -> Severity:
    from envkit.model import Severity

    if word.upper() not in Severity.__members__:
        raise UsageError(f"there is no severity `{word}`", "one of: note, warning, error")
    return Severity[word.upper()]


@contextmanager
def _exits(style: str) -> Iterator[None]:
    """Inside, wrong input and a fault of envkit end with the codes that ``style`` has for them."""
    from envkit.report import exit_codes

    exit_codes.check(style)
    try:
        yield
    except EnvkitError as error:
        if style == "envkit":
            raise
        _tell(error)
        raise typer.Exit(exit_codes.wrong_input(style)) from error
    except (click.exceptions.Exit, click.ClickException):
        raise
    except Exception as error:
        code = _failed(error)
        if style == "nagios" and code == FAULT:  # which knows the codes 0 to 3, and shows the first line of stdout
            print("ENVKIT UNKNOWN - a fault of envkit itself, see its stderr")
        raise typer.Exit(exit_codes.fault(style) if code == FAULT else code) from error


def _flavor(word: str) -> Flavor | None:
    """The flavor asked for, None where the spec's is meant; raises UsageError for one that does not exist."""
    from envkit.plan.spec import Flavor

    known = [flavor.value for flavor in Flavor]
    if word and word not in known:
        raise UsageError(f"there is no flavor `{word}`", f"one of: {', '.join(known)}")
    return Flavor(word) if word else None


def _open_parts(words: list[str] | None) -> tuple[str, ...]:
    """The parts of a lock that may stay open; raises UsageError for what is no part."""
    from envkit.plan.lockfile import PARTS

    for word in words or ():
        if word not in PARTS:
            raise UsageError(f"`{word}` is nothing that a lock may leave open", f"one of: {', '.join(PARTS)}")
    return tuple(words or ())


def _printable(format: str, fail_on: str, *files: Path | None) -> None:
    """Refuses, before the work rather than after it, what its result could not be printed or written by."""
    from envkit.report import FORMATS
    from envkit.system.files import can_be_written

    _severity(fail_on)
    if format not in FORMATS:
        raise UsageError(f"there is no format `{format}`", f"one of: {', '.join(FORMATS)}")
    for file in files:
        if file is not None:
            can_be_written(file)


def _finish(
    report: Report,
    tables: tuple[Table, ...] = (),
    *,
    bars: tuple[Bar, ...] = (),
    format: str,
    fail_on: str,
    observed: bool,
    style: str = "envkit",
    out: TextIO | None = None,
) -> NoReturn:
    """Prints the report and exits by it."""
    import shutil
    from dataclasses import replace

    from envkit.report import render, wants_color
    from envkit.report.exit_codes import styled

    least = _severity(fail_on)
    shown = report if observed else replace(report, observed={})
    width = shutil.get_terminal_size((100, 24)).columns
    stream = out or sys.stdout
    color = wants_color(stream, os.environ)
    filled = tuple(table for table in tables if table.rows)
    try:
        stream.write(render(shown, format, fail_on=least, tables=filled, bars=bars, color=color, width=width))
        stream.flush()
    except OSError:
        if stream is not sys.stderr:  # whoever reads that has the exit code all the same
            raise
    raise typer.Exit(styled(report, least, style))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"envkit {__version__}")
        raise typer.Exit


@app.callback()
def _envkit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """GPU container environments that are pinned, proven and explained.

    Exit codes: 0 nothing found, 1 something found, 2 wrong input, 3 undecided (not known is never green), 70 a fault of
    envkit itself.
    """


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to write it.")] = Path(),
) -> None:
    """Write a commented envkit.toml to start from."""
    from envkit import facts
    from envkit.build import render
    from envkit.system import files

    path = directory / "envkit.toml"
    if path.exists():
        raise UsageError(f"{path} is there already", "edit it, or name another directory")
    known = facts.load()
    newest = max((row for row in known.torches if row.default), key=lambda row: row.torch)
    fitting = [row for row in known.oses if newest.runs_on_python(row.python)]
    values = {
        "torch": str(newest.torch),
        "python": str(fitting[0].python),
        "oses": ", ".join(f"{row.name} (Python {row.python})" for row in known.oses),
        "driver": str(max(row.branch for row in known.drivers if row.latest)),
    }
    files.write(path, render.template("envkit.toml.j2", values))
    print(path)


@app.command()
def lock(
    spec: SpecPath = Path(),
    engine: Annotated[str, typer.Option("--engine", help="docker, none, or auto: whose base is locked.")] = "auto",
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Solve everything anew.")] = False,
    upgrade_package: Annotated[
        list[str] | None, typer.Option("--upgrade-package", "-P", help="Solve only this one anew; may be given again.")
    ] = None,
    refresh_os: RefreshOs = False,
    allow_unpinned: AllowUnpinned = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when spec and lock disagree.")] = False,
) -> None:
    """Choose versions by the facts; pin the base, every wheel and every Debian package in envkit.lock."""
    from envkit import facts
    from envkit.engine.choice import connect, known_engine
    from envkit.plan import lockfile as locks
    from envkit.plan import update
    from envkit.plan.spec import load

    known_engine(engine, ("docker", "none", "auto"))
    if check and (upgrade or upgrade_package or refresh_os):
        raise UsageError("--check changes nothing, and --upgrade, -P and --refresh-os do", "give one or the other")
    may_stay_open = _open_parts(allow_unpinned)
    wish = load(spec)
    path = locks.path_of(wish)
    try:
        found = locks.read(wish)
    except UsageError as error:
        if check:
            raise
        say(f"{error.message}; locking anew")
        found = None
    if check:
        disagreements = locks.problems(wish, found) if found else [f"{path} does not exist"]
        for line in disagreements:
            print(line)
        _say_unpinned(found)
        raise typer.Exit(1 if disagreements else 0)
    names = None if not (upgrade or upgrade_package) else () if upgrade else tuple(upgrade_package or ())
    if found and names is None and not refresh_os and not locks.problems(wish, found):
        say("the lock answers this spec already; --upgrade solves again")
        _say_unpinned(found)
        made = found
    else:
        if refresh_os and names != ():
            names = (*(names or ()), *update.debs_of(found)) or None
        made = update.make_lock(
            wish,
            facts.load(),
            lambda: None if engine == "none" else connect(engine, say),
            say,
            previous=found,
            upgrade=names,
            may_stay_open=may_stay_open,
        )
    debs = f"{len(made.debs)} Debian packages of {made.archive}" if made.archive else "Debian packages by name"
    print(f"{path}: torch {made.torch} for CUDA {made.cuda}, {len(made.wheels)} wheels, {debs}, base {made.image}")


def _say_unpinned(lock: Lock | None) -> None:
    from envkit.plan import lockfile as locks

    for part, clause in (locks.unpinned(lock) if lock else {}).items():
        say(f"NOT PINNED ({part}): {clause}")


@app.command()
def render(
    spec: SpecPath = Path(),
    output: Annotated[str, typer.Option("--output", "-o", help="A file, or - for stdout.")] = "",
    kind: Annotated[str, typer.Option("--as", help="dockerfile, compose, devcontainer or apptainer.")] = "dockerfile",
    flavor: FlavorName = "",
) -> None:
    """Write the Dockerfile of a locked spec, or what runs its image elsewhere, from the same lock."""
    from envkit.build import exporters
    from envkit.build import render as renderer
    from envkit.plan import lockfile as locks
    from envkit.plan.spec import Flavor, load
    from envkit.system import files

    target = _flavor(flavor)
    wish = load(spec)
    found = locks.load(wish)
    if found is None:
        state = "answers another spec" if locks.path_of(wish).exists() else "does not exist"
        raise UsageError(f"{locks.path_of(wish)} {state}", f"run `envkit lock {spec}` first")
    kinds: dict[str, tuple[str, Callable[[], str]]] = {
        "dockerfile": ("Dockerfile", lambda: renderer.dockerfile(found)),
        "compose": ("compose.yaml", lambda: exporters.compose(found, target or Flavor(found.flavor))),
        "devcontainer": (".devcontainer/devcontainer.json", lambda: exporters.devcontainer(found)),
        "apptainer": (f"{found.name}.def", lambda: exporters.apptainer(found)),
    }
    if kind not in kinds:
        raise UsageError(f"there is no output `{kind}`", f"one of: {', '.join(kinds)}")
    name, text = kinds[kind][0], kinds[kind][1]()
    if output == "-":
        sys.stdout.write(text)
        return
    path = Path(output) if output else files.beside(wish.path.parent, name)
    if not output:
        files.folder(path.parent)
    files.write(path, text)
    print(path)


@app.command()
def base(suite: Annotated[str, typer.Argument(help="A Debian suite.")] = "bookworm") -> None:
    """Make a base image from Debian's packages, named by the hash of its content."""
    from envkit.engine.choice import connect
    from envkit.plan.update import suite_wish

    found = connect("docker", say).resolve_base(suite_wish(suite), say)
    print(f"{found.ref} {found.sha256} ({found.how})")


@app.command()
def build(
    spec: SpecPath = Path(),
    engine: EngineName = "docker",
    tag: Tag = "",
    flavor: FlavorName = "",
    no_cache: NoCache = False,
    refresh_os: RefreshOs = False,
    allow_unpinned: AllowUnpinned = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Build twice without a cache and compare layer by layer; exit 1 on a difference."
        ),
    ] = False,
    vendored: Annotated[
        Path | None, typer.Option("--from", help="Build from what `envkit vendor` saved there, with the network off.")
    ] = None,
    apt_mirror: Annotated[
        str,
        typer.Option(
            "--apt-mirror", help="A Debian archive that keeps old versions; {date} and {archive} are filled in."
        ),
    ] = "",
) -> None:
    """Lock, render and build an image."""
    import shlex

    from envkit import facts
    from envkit.build import exporters, vendor
    from envkit.build import up as pipeline
    from envkit.engine.choice import connect
    from envkit.plan.spec import Flavor, load
    from envkit.plan.update import ensure_lock

    target = _flavor(flavor)
    may_stay_open = _open_parts(allow_unpinned)
    wish = load(spec)
    pipeline.can_be_built(wish.platform.value, tag, apt_mirror)
    connected = connect(engine, say)
    if vendored:
        made = vendor.load(vendored, say)
    else:
        made = ensure_lock(
            wish, facts.load(), lambda: connected, say, refresh_os=refresh_os, may_stay_open=may_stay_open
        )
        pipeline.write_dockerfile(wish, made)
    verdict = None
    if verify:
        built, verdict = pipeline.verify(
            made, connected, say, tag=tag, flavor=flavor, vendored=vendored, apt_mirror=apt_mirror
        )
    else:
        built = pipeline.build(
            made, connected, say, tag=tag, flavor=flavor, no_cache=no_cache, vendored=vendored, apt_mirror=apt_mirror
        )
    for flag in exporters.run_flags(made, target or Flavor(made.flavor)):
        say(f"run it with {shlex.join(flag.arguments)}: {flag.why}")
    print(f"{built.image.tag} {built.image.id}")
    if verdict is not None:
        for number, layer in enumerate(verdict.layers[0], 1):
            print(f"layer {number} {layer}")
        for line in verdict.differences:
            print(f"differs: {line}")
        print("the same, built twice" if verdict.same else "NOT the same, built twice")
        raise typer.Exit(0 if verdict.same else 1)


@app.command(name="vendor")
def save_inputs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to save them: a new or an empty folder.")],
    spec: SpecPath = Path(),
    engine: EngineName = "docker",
    allow_unpinned: AllowUnpinned = None,
) -> None:
    """Save all that a build needs: base, wheels, Debian packages, installer; for `envkit build --from DIR`."""
    from envkit import facts
    from envkit.build import vendor
    from envkit.engine.choice import connect
    from envkit.plan.spec import load
    from envkit.plan.update import ensure_lock
    from envkit.system import no_room

    vendor.can_be_filled(directory)
    may_stay_open = _open_parts(allow_unpinned)
    wish = load(spec)
    connected = connect(engine, say)
    made = ensure_lock(wish, facts.load(), lambda: connected, say, may_stay_open=may_stay_open)
    with no_room.into(directory):
        vendor.save(made, directory, connected, facts.load(), say)
    print(directory)


@app.command()
def up(
    spec: SpecPath = Path(),
    engine: EngineName = "docker",
    gpus: Gpus = "auto",
    tag: Tag = "",
    flavor: FlavorName = "",
    no_cache: NoCache = False,
    refresh_os: RefreshOs = False,
    allow_unpinned: AllowUnpinned = None,
    report: Annotated[Path, typer.Option("--report", help="Where the JSON report goes.")] = Path("report.json"),
    require_gpu: RequireGpu = False,
    format: Format = "console",
    fail_on: FailOn = "error",
    observed: WithObserved = False,
) -> None:
    """Do all of it: lock, render, build, probe, smoke, and one report."""
    from envkit import facts
    from envkit import report as reports
    from envkit.build import up as pipeline
    from envkit.engine.choice import connect
    from envkit.plan.spec import load
    from envkit.runner import runner
    from envkit.system import files

    _printable(format, fail_on, report)
    _flavor(flavor)
    shown = runner.default_gpus(gpus)
    _some_gpu(require_gpu, gpus)
    may_stay_open = _open_parts(allow_unpinned)
    wish = load(spec)
    pipeline.can_be_built(wish.platform.value, tag)
    connected = connect(engine, say)
    runner.are_here(shown, connected)
    made, tables = pipeline.up(
        wish,
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
    )
    files.write(report, reports.render(made, "json", fail_on=_severity(fail_on)), 0o600)
    say(f"wrote {report}")
    _finish(made, tables, format=format, fail_on=fail_on, observed=observed)


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="A", help="A lock, a spec, an image, or what `probe --save` wrote.")],
    new: Annotated[str, typer.Argument(metavar="B", help="Another one of the same kind.")],
    probe: Annotated[bool, typer.Option("--probe", help="Of two images, compare also what runs inside.")] = False,
    engine: EngineName = "docker",
    format: Annotated[str, typer.Option("--format", "-f", help="console or json.")] = "console",
) -> None:
    """Say what a change means: GPUs lost, drivers needed, libraries moved. Exit 0: the same, 1: not."""
    from envkit import facts
    from envkit.diff import compare as meaning
    from envkit.diff import diff
    from envkit.engine.choice import known_engine

    known_engine(engine)
    if format not in ("console", "json"):
        raise UsageError(f"there is no format `{format}` here", "one of: console, json")
    kind, changes = diff.changes(old, new, facts.load(), engine, probe, say)
    if format == "json":
        print(meaning.to_json(changes, kind, old, new))
    else:
        sys.stdout.write(meaning.render_text(changes, old, new))
    raise typer.Exit(1 if changes else 0)


def _some_gpu(required: bool, gpus: str) -> None:
    """Refuses what contradicts itself, before any work."""
    if required and gpus == "none":
        raise UsageError("--require-gpu and --gpus none were given together", "take one of them")


def _place(image: str | None, python: Path | None, engine: str, gpus: str) -> Any:
    from envkit.engine.choice import connect, known_engine
    from envkit.runner import runner

    if image and python:
        raise UsageError("an image and --python were both given", "name one of them")
    shown = runner.default_gpus(gpus)
    known_engine(engine)
    if image:
        connected = connect(engine, say)
        runner.are_here(shown, connected)
        return runner.InEngine(connected, image, "", shown)
    runner.are_here(shown)
    return runner.Here(runner.interpreter(python), shown) if python else runner.this_python(shown)


def _save(path: Path | None, kind: str, subject: object) -> None:
    from envkit.subjects import codec, saved
    from envkit.system import files

    if path is not None:
        files.write(path, saved.text(kind, codec.to_plain(subject)), 0o600)
        say(f"wrote {path}")


def _judged(
    kind: str, seen: Any, started: float, tables: tuple[Table, ...] = (), require_gpu: bool = False
) -> tuple[Report, tuple[Table, ...]]:
    """The report on one subject, all of its checks run."""
    from envkit import facts
    from envkit.judging import judge, required
    from envkit.model import Report, Subject
    from envkit.subjects import codec

    results = judge.judge(seen, facts.load()) + (required.without_gpu(seen) if require_gpu else ())
    elapsed = round(time.monotonic() - started, 3)
    return Report(Subject(kind, seen.name), results, elapsed, codec.to_plain(seen), required.covered(seen)), tables


def _finish_smoke(
    run: SmokeRun, started: float, require_gpu: bool, *, format: str, fail_on: str, observed: bool
) -> NoReturn:
    """Judges a smoke run, prints it with its speeds, and exits by it."""
    from envkit import facts
    from envkit.report import summary

    known = facts.load()
    judged = _judged("smoke", run, started, (*summary.smoke(run), *summary.speeds(run, known)), require_gpu)
    _finish(*judged, bars=summary.bars(run, known), format=format, fail_on=fail_on, observed=observed)


@app.command()
def audit(
    target: Annotated[
        str, typer.Argument(metavar="IMAGE", help="An image, a file that `docker save` wrote, or a directory.")
    ],
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="A GPU it must run on (H100, sm_90); may be given again.")
    ] = None,
    hash_all: Annotated[
        bool, typer.Option("--hash", help="Compare all files of torch and CUDA with their wheels' hashes; slow.")
    ] = False,
    framework: Frameworks = None,
    engine: EngineName = "docker",
    save: Save = None,
    format: Format = "console",
    fail_on: FailOn = "error",
    observed: WithObserved = False,
) -> None:
    """Read what an image holds, its own files only: nothing of it is run and no GPU is needed."""
    from envkit import facts
    from envkit.engine.choice import connect, known_engine
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    _printable(format, fail_on, save)
    known_engine(engine)
    known = facts.load()
    gpus = tuple(sorted({known.gpu(name).sm for name in gpu or ()}))
    asked = runner.asked_frameworks(framework or ())
    seen = runner.audit(target, lambda: connect(engine, say), say, gpus=gpus, hash_all=hash_all, frameworks=asked)
    _save(save, "audit", seen)
    _finish(*_judged("audit", seen, started, summary.audit(seen)), format=format, fail_on=fail_on, observed=observed)


@app.command()
def probe(
    image: Target = None,
    python: PythonPath = None,
    static: Annotated[bool, typer.Option("--static", help="Import nothing: what is installed and set.")] = False,
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            metavar="MODULE:FACTORY",
            help="Where the tensors live of the model and inputs it returns.",
        ),
    ] = "",
    aoti: Annotated[
        Path | None, typer.Option("--aoti", metavar="PACKAGE", help="How an AOTInductor package loads and runs there.")
    ] = None,
    inputs: Annotated[
        str,
        typer.Option(
            "--inputs",
            metavar="MODULE:FUNCTION",
            help="With --aoti: what returns the arguments.",
        ),
    ] = "",
    code: Annotated[
        Path | None, typer.Option("--code", help="The folder that MODULE lies in, read-only in a container.")
    ] = None,
    how: Annotated[
        str, typer.Option("--how", help="With --placement: run (on a GPU), fake or trace (without one), or auto.")
    ] = "auto",
    ranks: Annotated[
        Path | None, typer.Option("--ranks", help="With --placement: a folder in which a job's ranks meet.")
    ] = None,
    framework: Frameworks = None,
    engine: EngineName = "docker",
    gpus: Gpus = "auto",
    require_gpu: RequireGpu = False,
    save: Save = None,
    format: Format = "console",
    fail_on: FailOn = "error",
    observed: WithObserved = False,
) -> None:
    """Prove which CUDA libraries a process in the image really binds, or where a model's tensors live."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    _printable(format, fail_on, save)
    if (static, bool(placement), aoti is not None).count(True) > 1:
        raise UsageError("--static, --placement and --aoti were given together", "take one of them")
    if inputs and aoti is None:
        raise UsageError("--inputs belongs to --aoti", "name the package with --aoti, or use --placement")
    if framework and (placement or aoti is not None):
        raise UsageError("--framework belongs to a probe alone", "leave it out with --placement and --aoti")
    asked = runner.asked_frameworks(framework or ())
    _some_gpu(require_gpu, gpus)
    place = _place(image, python, engine, gpus)
    if placement:
        followed = runner.placement(place, placement, say, code or Path(), how, ranks)
        _save(save, "placement", followed)
        made = _judged("placement", followed, started, summary.placement(followed), require_gpu)
    elif aoti is not None:
        ran = runner.aoti(place, say, aoti, inputs=inputs, code=code or (Path() if inputs else None))
        _save(save, "aoti", ran)
        made = _judged("aoti", ran, started, summary.aoti(ran), require_gpu)
    else:
        seen = runner.probe(place, say, static=static, frameworks=asked)
        _save(save, "image", seen)
        made = _judged("image", seen, started, summary.image(seen), require_gpu)
    _finish(*made, format=format, fail_on=fail_on, observed=observed)


@app.command()
def smoke(
    image: Target = None,
    level: Annotated[str, typer.Option("--level", help="quick, full, or stress (with --minutes).")] = "quick",
    minutes: Annotated[float, typer.Option("--minutes", help="How long --level stress repeats its tests.")] = 0.0,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this test; may be given again.")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Not this test; may be given again.")] = None,
    extra: Annotated[
        list[Path] | None, typer.Option("--extra", help="A file of your own: its functions smoke_*(bench) are tests.")
    ] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the tests of the level and run none.")] = False,
    python: PythonPath = None,
    engine: EngineName = "docker",
    gpus: Annotated[str, typer.Option("--gpus", "--gpu", help="auto, all, none, or indexes with commas.")] = "auto",
    sabotage: Annotated[
        str,
        typer.Option(
            "--sabotage",
            help="Disturb each result on purpose: a kind, or all. Every test must go red (exit 1).",
        ),
    ] = "",
    sanitize: Annotated[
        str,
        typer.Option(
            "--sanitize",
            help="Under compute-sanitizer: memcheck, racecheck, initcheck or synccheck.",
        ),
    ] = "",
    require_gpu: RequireGpu = False,
    save: Save = None,
    format: Format = "console",
    fail_on: FailOn = "error",
    observed: WithObserved = False,
) -> None:
    """Run the standard kernel tests, each in a process of its own."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    _printable(format, fail_on, save)
    wish = runner.SmokeWish(
        level,
        tuple(only or ()),
        tuple(exclude or ()),
        tuple(extra or ()),
        sabotage,
        sanitize,
        minutes or float(list_them and level == "stress"),  # a list takes no time
    )
    wish.check()
    if list_them:
        for line in summary.smoke_list(level, wish.only, wish.exclude):
            print(line)
        return
    _some_gpu(require_gpu, gpus)
    place = _place(image, python, engine, gpus)
    run = runner.smoke(place, say, wish)
    _save(save, "smoke", run)
    _finish_smoke(run, started, require_gpu, format=format, fail_on=fail_on, observed=observed)


@app.command()
def doctor(
    cuda: Annotated[str, typer.Option("--cuda", help="The CUDA version that shall run here.")] = "",
    expect: Annotated[
        Path | None, typer.Option("--expect", help="A contract in TOML: what must be there; see docs/doctor.md.")
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds for all sources together.")] = 8.0,
    root: Annotated[
        Path, typer.Option("--root", help="Where this machine's / lies, if elsewhere: in a container, or a recording.")
    ] = Path("/"),
    saved: Annotated[
        Path | None, typer.Option("--from", help="Judge what --save wrote on a machine instead of this one.")
    ] = None,
    save: Save = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Stand-ins for serials, UUIDs, names and addresses, in file and report.")
    ] = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the checks and look at nothing.")] = False,
    format: Annotated[
        str, typer.Option("--format", "-f", help="console, json, junit, html, prometheus or nagios.")
    ] = "console",
    fail_on: FailOn = "error",
    exit_style: ExitStyle = "envkit",
    observed: WithObserved = False,
) -> None:
    """Examine this machine: driver, GPUs, fabric, container engine, kernel log, limits; nothing on it is changed."""
    from envkit.doctor import doctor

    started = time.monotonic()
    with _exits(exit_style):
        if list_them:
            for line in doctor.listing():
                print(line)
            return
        _printable(format, fail_on, save)
        host = doctor.host(root, budget, cuda, expect, saved, redact)
        _save(save, "host", host)
        report, tables = doctor.report(host, started)
        _finish(report, tables, format=format, fail_on=fail_on, observed=observed, style=exit_style)


@app.command()
def explain(
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOG]...|ID", help="Logs, - for stdin; or the id of a check or of a kind of failure."),
    ] = None,
    kernel_log: Annotated[
        list[str] | None,
        typer.Option("--kernel-log", help="A log of the kernel (dmesg, journalctl -k); may be given again."),
    ] = None,
    beside: Annotated[
        Path | None, typer.Option("--with", help="A report of probe or doctor in JSON, or what --save wrote.")
    ] = None,
    rank: Annotated[
        list[str] | None, typer.Option("--rank", help="RANK=FILE, where its name does not say it; may be given again.")
    ] = None,
    timeline: Annotated[
        int | None, typer.Option("--timeline", min=0, help="Lines of the timeline; by default 12, in documents all.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Stand-ins for machines, addresses, users, serial numbers and ids.")
    ] = False,
    format: Annotated[str, typer.Option("--format", "-f", help="console, json or html.")] = "console",
) -> None:
    """Name the cause of a failure from its logs; or print the page of a check or of a kind of failure.

    Exit codes: 1 a cause was found, 3 the logs do not tell it, 2 wrong input, 0 a page was printed.
    """
    from envkit.explain import explain as verb

    words = tuple(logs or ())
    if verb.is_page(words) and not (kernel_log or beside or rank):
        sys.stdout.write(verb.page(words[0]))
        return
    if format not in verb.FORMATS:
        raise UsageError(f"there is no format `{format}` here", f"one of: {', '.join(verb.FORMATS)}")
    if not words and not kernel_log and not rank:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("there is nothing to explain", "name logs, pipe one in, or name a check or failure")
        words = ("-",)
    asked = verb.Asked(words, tuple(kernel_log or ()), beside, tuple(rank or ()), redact)
    found = verb.answer(asked, say)
    sys.stdout.write(verb.printed(found, format, timeline, sys.stdout))
    raise typer.Exit(verb.exit_code(found))


@app.command()
def preflight(
    context: typer.Context,
    image: Target = None,
    level: Annotated[
        str, typer.Option("--level", help="passive, probe, quick or full: each holds those before it.")
    ] = ("quick"),
    host: Annotated[
        Path | None,
        typer.Option("--host", help="A machine that `doctor --save` wrote, in place of this one; it starts nothing."),
    ] = None,
    python: PythonPath = None,
    expect: Annotated[Path | None, typer.Option("--expect", help="The contract of the machine, as for doctor.")] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="As `docker run` takes it: all, a count, or device=0,1.")
    ] = None,
    way: Annotated[str | None, typer.Option("--way", help="How GPUs enter the container: cdi, hook or none.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Machines of the job.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", help="Processes of the job on this machine.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Data loader processes of one rank.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; may be given again.")] = None,
    env_file: Annotated[list[Path] | None, typer.Option("--env-file", help="Lines NAME=VALUE, as docker's.")] = None,
    shm_size: Annotated[str | None, typer.Option("--shm-size", help="Size of /dev/shm, such as 16g.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m", help="Memory limit, such as 64g.")] = None,
    ipc: Annotated[str | None, typer.Option("--ipc", help="private or host.")] = None,
    network: Annotated[str | None, typer.Option("--network", help="bridge, host or none.")] = None,
    ulimit: Annotated[list[str] | None, typer.Option("--ulimit", help="As memlock=-1; may be given again.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="UID, UID:GID or a name.")] = None,
    volume: Annotated[list[str] | None, typer.Option("--volume", "-v", help="SOURCE:TARGET[:ro].")] = None,
    tmpfs: Annotated[list[str] | None, typer.Option("--tmpfs", help="A path inside.")] = None,
    device: Annotated[list[str] | None, typer.Option("--device", help="A device of the machine.")] = None,
    cap_add: Annotated[list[str] | None, typer.Option("--cap-add", help="A capability.")] = None,
    privileged: Annotated[bool, typer.Option("--privileged", help="The container has all privileges.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="The container's root is read-only.")] = False,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Where the job writes, as it sees it.")] = None,
    checkpoint_size: Annotated[str | None, typer.Option("--checkpoint-size", help="How much, such as 200g.")] = None,
    may_be_unknown: Annotated[
        list[str] | None, typer.Option("--may-be-unknown", help="A check that may stay open here; may be given again.")
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds for all levels; 0: what they need.")] = 0.0,
    framework: Frameworks = None,
    require_gpu: RequireGpu = False,
    engine: EngineName = "docker",
    report: Annotated[Path | None, typer.Option("--report", help="Where the JSON report goes.")] = None,
    format: Annotated[
        str, typer.Option("--format", "-f", help="console, json, junit, html, prometheus or nagios.")
    ] = "console",
    fail_on: FailOn = "error",
    exit_style: ExitStyle = "envkit",
    observed: WithObserved = False,
) -> None:
    """Decide before a job starts whether image, machine and job fit; `-- COMMAND` starts it on a pass only.

    Options of the job are those of `docker run`. With a command, the report goes to stderr, and on a pass the command
    takes this process's place.
    """
    from envkit import report as reports
    from envkit.engine.choice import connect, known_engine
    from envkit.launch import launch
    from envkit.launch import preflight as flights
    from envkit.runner import runner
    from envkit.system import files

    command: tuple[str, ...] = context.obj or ()
    with _exits(exit_style):
        if context.obj == ():  # a script whose variable is empty would take "passed" for "ran"
            raise UsageError("there is no command after --", "name one, or leave -- out")
        if command and host is not None:  # the pass of another machine says nothing of the one that would run it
            raise UsageError(
                f"{host} is a saved machine, which is judged and starts no command, and `{command[0]}` was given",
                "leave out --host to judge this machine and start it here, or leave out the command",
            )
        _printable(format, fail_on, report)
        _startable(command)
        known_engine(engine)
        job = launch.job_from(
            gpus=gpus,
            way=way,
            nodes=nodes,
            ranks=ranks,
            workers=workers,
            env=env or (),
            env_files=env_file or (),
            shm=shm_size,
            memory=memory,
            ipc=ipc,
            network=network,
            ulimits=ulimit,
            user=user,
            mounts=volume,
            tmpfs=tmpfs,
            devices=device,
            capabilities=cap_add,
            privileged=privileged or None,
            read_only=read_only or None,
            checkpoint=checkpoint,
            checkpoint_size=checkpoint_size,
        )
        shown = job.gpus.value if job.gpus.value is not None else runner.default_gpus("auto")
        asked = runner.asked_frameworks(framework or ())
        open_ones = tuple(may_be_unknown or ())
        wish = flights.Wish(
            image or "", job, level, host, python, expect, budget, open_ones, require_gpu, frameworks=asked
        )
        made = flights.run(wish, lambda: connect(engine, say), shown, say)
        if report:
            files.write(report, reports.render(made, "json", fail_on=_severity(fail_on)), 0o600)
            say(f"wrote {report}")
        found = flights.cause(made, _severity(fail_on))
        if found:
            say(f"cause: {found.message}")
            say(f"fix: {found.fix}")
        elif made.exit_code(_severity(fail_on)) == 3:
            say(f"undecided: {flights.doubt(made) or 'nothing was judged'}")
        if command and made.exit_code(_severity(fail_on)) == 0:
            say(f"passed in {made.elapsed_s:.1f} s; starting {command[0]}")
            _become(command)
        _finish(
            made,
            format=format,
            fail_on=fail_on,
            observed=observed,
            style=exit_style,
            out=sys.stderr if command else sys.stdout,
        )


def _startable(command: tuple[str, ...]) -> None:
    """Raises UsageError for a command that does not exist, before anything is looked at."""
    import shutil

    if command and not shutil.which(command[0]):
        raise UsageError(f"there is no program `{command[0]}`", "name one that is on PATH, or its path")


def _become(command: tuple[str, ...]) -> NoReturn:
    """This process becomes the command: same pid, process group and files; signals act as they do by default."""
    sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}", "check its permissions") from error


def _debug_precision(
    place: Place, target: str, dtype: str, autocast: bool, code: Path, budget_s: float, format: str
) -> NoReturn:
    """Judges one step of a model in a narrow dtype, prints the report, and exits by it: a warning is found, too."""
    from envkit.report import summary
    from envkit.runner import runner

    started = time.monotonic()
    seen = runner.precision(place, target, say, dtype=dtype, autocast=autocast, code=code, timeout_s=budget_s)
    judged = _judged("precision", seen, started, summary.precision(seen))
    _finish(*judged, format=format, fail_on="warning", observed=False)


@app.command(context_settings={"allow_extra_args": True})  # a command without -- gets a sentence of its own
def debug(
    context: typer.Context,
    image: Annotated[str | None, typer.Option("--image", help="Run the command in a container of this image.")] = None,
    gpus: Annotated[str, typer.Option("--gpus", help="With --image: all, none, or indexes with commas.")] = "auto",
    network: Annotated[str, typer.Option("--network", help="With --image: bridge, host or none.")] = "bridge",
    volume: Annotated[
        list[str] | None, typer.Option("--volume", "-v", help="With --image: SOURCE:TARGET[:ro]; may be given again.")
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds for all rungs.")] = 1800.0,
    rung_budget: Annotated[float, typer.Option("--rung-budget", help="Seconds for one rung.")] = 600.0,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="The command is several ranks (torchrun, srun ...): see why they hang.")
    ] = False,
    hang_after: Annotated[
        float | None,
        typer.Option("--hang-after", help="With --ranks: seconds without a step of any rank; by default 10."),
    ] = None,
    quiet: Annotated[
        float, typer.Option("--quiet-for", help="Seconds of silence after which stacks are compared; 0: never.")
    ] = 120.0,
    only: Annotated[list[str] | None, typer.Option("--only", help="A rung; may be given again.")] = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", help="A rung to leave out; may be given again.")] = None,
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", help="Part of a kernel's name: compute-sanitizer checks no other.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The new folder for all files.")] = None,
    precision: Annotated[
        str,
        typer.Option("--precision", metavar="MODULE:FACTORY", help="No command: one step of its model, in two dtypes."),
    ] = "",
    dtype: Annotated[str, typer.Option("--dtype", help="With --precision: bfloat16, float16 or float32.")] = "bfloat16",
    autocast: Annotated[
        bool, typer.Option("--autocast", help="With --precision: under torch.autocast, with nothing cast before.")
    ] = False,
    code: Annotated[Path | None, typer.Option("--code", help="With --precision: the folder of MODULE.")] = None,
    python: PythonPath = None,
    format: Annotated[str, typer.Option("--format", "-f", help="console, json or html.")] = "console",
) -> None:
    """Run a failing command up a ladder of tools until the cause is named: `envkit debug -- python train.py`.

    As it is, with blocking launches, under compute-sanitizer, with a core dump of the GPU; of a hang, the stacks of
    every process. Exit code 0: it succeeded and nothing was found; 1: found; 3: undecided.
    """
    import shlex

    from envkit import debug as climbing
    from envkit import facts
    from envkit.debug import job, render
    from envkit.system import no_room

    if context.args:
        words = shlex.join([*context.args, *(context.obj or ())])
        raise UsageError(f"`{context.args[0]}` stands where no command is expected", f"envkit debug -- {words}")
    if format not in ("console", "json", "html"):
        raise UsageError(f"there is no format `{format}`", "one of: console, json, html")
    if not precision and (autocast or code or python or dtype != "bfloat16"):
        raise UsageError("--dtype, --autocast, --code and --python belong to --precision", "name a model's factory")
    if precision:
        if context.obj:
            raise UsageError("--precision and a command were given together", "take one of them")
        _debug_precision(
            _place(image, python, "docker", gpus), precision, dtype, autocast, code or Path(), budget, format
        )
    if not image and (volume or network != "bridge" or gpus != "auto"):
        raise UsageError("--volume, --network and --gpus belong to --image", "name the image, or leave them out")
    if hang_after is not None and not (ranks and hang_after > 0):
        raise UsageError(f"--hang-after {hang_after:g} says nothing here", "give it seconds above 0, and --ranks")
    wish = climbing.Wish(
        command=context.obj or (),
        budget_s=budget,
        rung_s=rung_budget,
        quiet_s=quiet,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        kernels=tuple(kernel or ()),
        hang_after_s=(hang_after or climbing.ranks.HANG_AFTER_S) if ranks else 0.0,
        folder=out,
    )
    ground: job.Ground = job.Here()
    if image:
        from envkit.debug import container
        from envkit.engine.docker import DockerEngine
        from envkit.runner import runner
        from envkit.system.files import cache_dir

        shown, bound = runner.default_gpus(gpus), container.volumes(volume or ())
        engine = DockerEngine(cache_dir())
        runner.are_here(shown, engine)
        ground = container.Container(engine, image, shown, say, container.network(network), bound)
    with no_room.into(out or Path()):
        made = climbing.run(wish, ground, facts.load(), say)
    if format == "html":
        from envkit.debug import as_html

        sys.stdout.write(as_html.render(made))
    else:
        sys.stdout.write(render.document(made) if format == "json" else render.text(made))
    raise typer.Exit(made.code)


@app.command()
def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders, by default this one; - is a Dockerfile on stdin."),
    ] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The build context; by default each Dockerfile's own folder.")
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help='A GPU it must run on, "H100"; may be given again.')
    ] = None,
    driver: Annotated[str, typer.Option("--driver", help='The oldest driver it will meet, "550".')] = "",
    fix: Annotated[bool, typer.Option("--fix", help="Make the safe fixes, after their diff was printed.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print the diff of the safe fixes and change nothing.")] = False,
    pin: Annotated[
        bool, typer.Option("--pin", help="With --fix or --diff: the digests of bases, as registries give them today.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="One check; may be given again.")] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Findings that this file holds do not count.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write the findings of now into this file.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="An envkit.toml with a [check] table; by default the nearest.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", "-f", help="console, json, sarif, github, gitlab, junit or html.")
    ] = "console",
    fail_on: Annotated[
        str, typer.Option("--fail-on", help="Lowest severity that makes the exit code 1: note, warning, error.")
    ] = "",
    if_any: Annotated[
        bool, typer.Option("--if-any", help="Exit with 0 where nothing concerns envkit, as hooks want it.")
    ] = False,
    observed: Annotated[bool, typer.Option("--observed", help="Put what the files say into the JSON.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
) -> None:
    """Judge anybody's Dockerfile, requirements, compose or Kubernetes file: what does not fit, and the fix."""
    import shutil

    from envkit.report import wants_color
    from envkit.static import check as verb

    if list_checks:
        sys.stdout.write(verb.listed())
        return
    if format not in verb.FORMATS:
        raise UsageError(f"there is no format `{format}` here", f"one of: {', '.join(verb.FORMATS)}")
    if pin and not (fix or diff):
        raise UsageError("--pin changes files", "add --diff to see what it would write, or --fix to write it")
    asked = verb.Asked(
        tuple(paths or (".",)),
        context,
        tuple(gpu or ()),
        driver,
        config,
        baseline,
        write_baseline,
        tuple(only or ()),
        if_any,
    )
    if write_baseline:
        from envkit.system.files import can_be_written

        can_be_written(write_baseline)
    settings = verb.config_of(asked)
    least = _severity(fail_on or settings.fail_on or "error")
    found = verb.answer(asked, settings)
    if fix or diff:
        more = verb.pinned(found.judged, _digests, say) if pin else {}
        shown, texts = verb.mended(found.judged, more)
        if diff:
            sys.stdout.write(shown)
            raise typer.Exit(found.code(least, if_any))
        # A document on stdout stays one document.
        (sys.stdout if format == "console" else sys.stderr).write(shown)
        verb.write(found.judged, texts, say)
        if texts:
            found = verb.answer(asked, settings)
    for line in verb.remarks(found):
        say(f"envkit: {line}")
    if write_baseline:
        found, count = verb.taken_down(found, write_baseline)
        say(f"wrote {write_baseline}: {count} finding{'' if count == 1 else 's'}")
    width = shutil.get_terminal_size((100, 24)).columns
    color = wants_color(sys.stdout, os.environ)
    sys.stdout.write(verb.printed(found, format, least, observed=observed, color=color, width=width))
    raise typer.Exit(found.code(least, if_any))


def _digests() -> Callable[[str], str]:
    """What asks the registries, by way of the engine; raises Undecided where there is no engine."""
    from envkit.engine.docker import DockerEngine
    from envkit.system.files import cache_dir

    return DockerEngine(cache_dir()).digest


@app.command(name="judge")
def judge_saved(
    saved: Annotated[Path, typer.Argument(metavar="FILE", help="What --save wrote.")],
    require_gpu: RequireGpu = False,
    format: Format = "console",
    fail_on: FailOn = "error",
    observed: WithObserved = False,
) -> None:
    """Judge a saved observation, from any machine."""
    from envkit.subjects import KINDS, codec
    from envkit.subjects import saved as files

    started = time.monotonic()
    _printable(format, fail_on)
    kind, plain = files.document(saved)
    subject: Any = codec.from_plain(KINDS[kind], plain)
    if kind == "smoke":
        _finish_smoke(subject, started, require_gpu, format=format, fail_on=fail_on, observed=observed)
    if kind == "host":  # its contract was saved with it
        from envkit.doctor import doctor

        _finish(*doctor.report(subject, started, require_gpu), format=format, fail_on=fail_on, observed=observed)
    _finish(*_judged(kind, subject, started, (), require_gpu), format=format, fail_on=fail_on, observed=observed)


@app.command(name="facts")
def facts_about(
    topic: Annotated[str, typer.Argument(help="torch, gpu, cuda, driver, cudnn, image, os or tool.")],
    query: Annotated[str, typer.Argument(help='What about it: a release, "RTX 4090", a branch, ...')] = "",
    format: Annotated[str, typer.Option("--format", "-f", help="console or json.")] = "console",
) -> None:
    """Print what is known, each row with its source."""
    import json

    from envkit import facts
    from envkit.facts import show

    if format == "json":
        print(json.dumps(show.data(facts.load(), topic, query), indent=1))
        return
    if format != "console":
        raise UsageError(f"there is no format `{format}` here", "one of: console, json")
    for label, text in show.describe(facts.load(), topic, query):
        print(f"  {label}: {text}" if text else label)


def _stopped(number: int, frame: FrameType | None) -> None:
    """The first signal stops the run; further ones wait for the cleaning up, every step of which has a budget."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def _dropped(lost: sys.UnraisableHookArgs) -> None:
    """A stop that fell into code whose exceptions Python drops (a callback of a fork, a destructor) comes once more."""
    stop = lost.exc_value
    if not isinstance(stop, Interrupted):
        sys.__unraisablehook__(lost)
        return

    def once_more(number: int, frame: FrameType | None) -> None:
        raise stop

    signal.signal(signal.SIGALRM, once_more)
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def _tell(error: EnvkitError) -> None:
    say(f"envkit: {error.message}")
    if isinstance(error, Unsatisfiable):
        for fact in error.chain:
            say(f"  because: {fact}")
        for wish in error.nearest:
            say(f"  nearest: {wish}")
    if error.fix:
        say(f"  fix: {error.fix}")


@cache
def parser(verb: str) -> click.Group:
    """The parser that knows ``verb`` alone, made in 2 ms; if there is no such verb that of all verbs, made in 20."""
    alone = copy(app)
    alone.registered_commands = [each for each in app.registered_commands if _name(each) == verb]
    for each in app.registered_commands:
        each.cls = _Verb
    return typer.main.get_group(alone if alone.registered_commands else app)


def _name(command: typer.models.CommandInfo) -> str:
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def invoke(words: Sequence[str], command: tuple[str, ...] | None = None) -> None:
    """Runs the verb that ``words`` begin with; ``command`` is what stood behind ``--``.

    Raises: EnvkitError and Interrupted of the verb, what is a fault of envkit, and SystemExit with the exit code.
    """
    try:
        code = parser(words[0] if words else "")(args=list(words), obj=command, standalone_mode=False)
    except click.ClickException as error:
        from envkit.credentials import redacted_text

        shown = io.StringIO()
        error.show(shown)
        with suppress(OSError):
            print(redacted_text(shown.getvalue()), end="", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except click.Abort as error:  # which the parser makes of any EOFError
        raise error.__cause__ or error from None
    raise SystemExit(code or 0)


def run(command: Callable[[], object]) -> int:
    """Runs ``command`` and gives the exit code; every error becomes a message and a code of the contract."""
    signal.signal(signal.SIGINT, _stopped)
    signal.signal(signal.SIGTERM, _stopped)
    sys.unraisablehook = _dropped
    try:
        command()
        code = 0
    except EnvkitError as error:
        _tell(error)
        code = error.code
    except Interrupted as stop:
        say(f"envkit: stopped by {stop}")
        code = stop.code
    except SystemExit as exit:
        if isinstance(exit.__context__, BrokenPipeError):  # the parser ends with 1 there, which would read as "found"
            code = _failed(exit.__context__)
        else:
            code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 2
    except Exception as error:
        code = _failed(error)
    return _flushed(code)


_STDOUT = "<stdout>"  # the file that errors of writing the answer name


def _failed(error: Exception) -> int:
    """The code for what is none of envkit's own errors; said are the world's part in it, or that envkit is at fault."""
    if isinstance(error, OSError):
        from envkit.system.no_room import NoRoom, refusal

        if error.filename == _STDOUT:
            return READER_GONE if isinstance(error, BrokenPipeError) else _unanswered(error)
        if known := refusal(error):
            _tell(known)
            return known.code
        if isinstance(error, FileNotFoundError) and "usable temporary directory" in str(error):  # tempfile's words
            words = "no folder for temporary files may be written to, or their disk is full"
            _tell(NoRoom(words, "point TMPDIR at one that may"))
            return NoRoom.code
    if isinstance(error, MemoryError):
        _tell(
            Undecided("this machine, or the limit of this process, has no memory left", "free some, or raise ulimit -v")
        )
        return Undecided.code
    from envkit.credentials import redacted_text

    with suppress(OSError, ValueError):
        print(redacted_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    say("envkit: this is a fault of envkit itself; please report it with the lines above")
    return FAULT


def _unanswered(error: OSError) -> int:
    """Says that stdout takes nothing more; what is left in its buffer, which Python would write again, goes nowhere."""
    say(f"envkit: stdout does not take the answer: {error.strerror}")
    say("  fix: send it where there is room")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 3


def _flushed(code: int) -> int:
    """``code`` once stdout has taken all of the answer; of a verdict that it did not take, the code for having none."""
    try:
        sys.stdout.flush()
    except OSError as error:
        lost = READER_GONE if isinstance(error, BrokenPipeError) else _unanswered(error)
        code = lost if code in (0, 1, 3) else code
    return code


class _Answer(io.FileIO):
    """stdout, whose errors say whose they are.  It has a buffer above it even under PYTHONUNBUFFERED: Python without
    one loses what a short write leaves, in silence."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _STDOUT
            raise


def main() -> None:
    """The console script."""
    if sys.stderr is None:  # closed by the caller; what is printed to no file would go to stdout
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        say("envkit: stdout is closed, so that no answer can be given")
        sys.exit(3)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Answer(1, "w", closefd=False)),
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
        line_buffering=bool(sys.stdout.line_buffering),
    )
    argv = sys.argv[1:]
    command: tuple[str, ...] | None = None
    if argv[:1] in (["preflight"], ["debug"]) and "--" in argv:
        at = argv.index("--")
        argv, command = argv[:at], tuple(argv[at + 1 :])
    code = run(lambda: invoke(argv, command))
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)  # taking a hundred modules down takes 60 ms, and frees what the kernel frees anyway
