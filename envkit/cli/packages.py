"""Verbs about the packages of a spec: add, remove, why, tree, outdated."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from envkit.cli import options
from envkit.cli.app import PACKAGES, app
from envkit.cli.ending import say, warn
from envkit.cli.generate import accept, headline, workshop
from envkit.cli.options import DATA_FORMATS, LOCK_ENGINES
from envkit.errors import UsageError

if TYPE_CHECKING:
    from envkit.plan.lockfile import Lock
    from envkit.plan.requires import Member
    from envkit.plan.spec import Spec

_Wanted = Annotated[
    list[str], Argument(metavar="PKG...", help='Packages, also with extras and bounds: numpy "vllm[audio]>=0.9".')
]
_Names = Annotated[list[str], Argument(metavar="PKG...", help="Names of packages.")]
_Spec = Annotated[
    Path,
    Option(
        "--spec",
        metavar="SPEC",
        click_type=options.SPEC,
        help="envkit.toml or its directory; by default the one in the current directory.",
    ),
]
_Engine = Annotated[
    str,
    Option("--engine", click_type=LOCK_ENGINES, help="The engine whose base image is locked; none uses no engine."),
]
_Format = Annotated[str, options.format_option(DATA_FORMATS)]


@app.command(rich_help_panel=PACKAGES)
def add(
    packages: _Wanted,
    spec: _Spec = Path(),
    engine: _Engine = "auto",
    allow_unpinned: options.AllowUnpinned = None,
) -> None:
    """Add packages to envkit.toml and lock again; where no lock can be made, both files stay as they are."""
    from envkit.plan import edit

    _change(spec, lambda text, parsed: edit.added(text, parsed, packages), engine, allow_unpinned)


@app.command(rich_help_panel=PACKAGES)
def remove(
    packages: _Names,
    spec: _Spec = Path(),
    engine: _Engine = "auto",
    allow_unpinned: options.AllowUnpinned = None,
) -> None:
    """Remove packages from envkit.toml and lock again; where no lock can be made, both files stay as they are."""
    from envkit.plan import edit

    _change(spec, lambda text, parsed: edit.removed(text, parsed, packages), engine, allow_unpinned)


def _change(at: Path, change: Callable[[str, Spec], str], engine: str, allow_unpinned: list[str] | None) -> None:
    """Changes the spec's text, makes the lock of the new one, and writes both."""
    from envkit import facts
    from envkit.engine.choice import connect
    from envkit.plan import lockfile as locks
    from envkit.plan import update
    from envkit.plan.spec import gathered, load, parse
    from envkit.system import files

    was = load(options.spec_at(at))
    before = files.text(was.path, "check the file and its permissions")
    after = change(before, was)
    now = gathered(parse(after, was.path))
    found = _read(was)
    if after == before and found and not locks.problems(now, found):
        say("the spec asks for this already, and the lock answers it")
        return
    made = update.new_lock(
        now,
        facts.load(),
        lambda: None if engine == "none" else connect(engine, say),
        say,
        previous=found,
        may_stay_open=tuple(allow_unpinned or ()),
        warn=warn,
        accept=accept,
        workshop=workshop,
    )
    update.save_both(was, before, after, made)
    for line in _moved(found, made) if found else [headline(locks.path_of(was), made)]:
        print(line)
    say(f"wrote {was.path} and {locks.path_of(was)}: {len(made.wheels)} wheels, {len(made.debs)} Debian packages")


def _read(spec: Spec) -> Lock | None:
    """The lock beside the spec; one that cannot be read is made anew, and that is said."""
    from envkit.plan import lockfile as locks

    try:
        return locks.read(spec)
    except UsageError as error:
        say(f"{error.message}; locking again")
        return None


def _moved(old: Lock, new: Lock) -> Iterable[str]:
    """The wheels that come, go and change, a line each."""
    had = {pin.name: pin.version for pin in old.wheels}
    has = {pin.name: pin.version for pin in new.wheels}
    for name in sorted({*had, *has}):
        if name not in had:
            yield f"+ {name} {has[name]}"
        elif name not in has:
            yield f"- {name} {had[name]}"
        elif had[name] != has[name]:
            yield f"~ {name} {had[name]} -> {has[name]}"


@app.command(rich_help_panel=PACKAGES)
def why(
    package: Annotated[str, Argument(metavar="PKG", help="A wheel or a Debian package of the lock.")],
    spec: _Spec = Path(),
    format: _Format = "console",
) -> None:
    """Say why a package is in the lock: who asks for it, and with which bounds."""
    from envkit.errors import Undecided
    from envkit.plan import indexes, requires
    from envkit.system.index import BUDGET_S

    parsed, lock, _ = _locked(spec)
    name = requires.in_lock(lock, package)
    document: dict[str, object]
    if name not in {pin.name for pin in lock.wheels}:
        deb, clauses = next(deb for deb in lock.debs if deb.name == name), [requires.because_of_deb(lock, name)]
        document = {"name": name, "version": deb.version, "layer": deb.layer, "kind": "deb"}
        kind = "a Debian package"
    else:
        held, asked, unread = _members(lock, parsed), dict[str, str](), ""
        if held[name].by:
            try:
                asked, unread = requires.bounds(
                    held, name, lock, indexes.of(parsed.index, parsed.extra_index).pages(BUDGET_S)
                )
            except Undecided as error:
                unread = error.message
        if unread:
            say(f"not all bounds of {name} were read: {unread}")
        by = [(each, held[each].pin.version) for each in held[name].by if each in held]
        clauses, kind = list(requires.because(held, name, asked)), "a wheel"
        needed = [{"name": each, "version": version, "asks": asked.get(each)} for each, version in by]
        document = {**_plain(held[name]), "required_by": needed}
    head = f"{name} {document['version']} is {kind} of the lock ({document['layer']})"
    _print(format, "why", {**document, "because": clauses}, [head, *(f"  because {each}" for each in clauses)])


@app.command(rich_help_panel=PACKAGES)
def tree(
    spec: options.SpecPath = Path(),
    depth: Annotated[int | None, Option("--depth", min=0, help="Show so many steps below what was asked for.")] = None,
    format: _Format = "console",
) -> None:
    """Print what the lock contains as a tree: what the spec asks for, and what that requires."""
    from envkit.plan import requires

    parsed, lock, path = _locked(spec)
    held = _members(lock, parsed)
    needs = requires.needed(held)
    packages = [{**_plain(member), "requires": needs[name]} for name, member in sorted(held.items())]
    marked = list(requires.tree(held, depth))
    if any("(*)" in line for line in marked):
        marked.append("(*) what it requires is shown elsewhere or left out")
    _print(format, "tree", {"lock": str(path), "packages": packages}, marked)


@app.command(rich_help_panel=PACKAGES)
def outdated(
    spec: options.SpecPath = Path(),
    system: Annotated[
        bool, Option("--os", help="Also look at the base and the Debian packages; needs a container engine.")
    ] = False,
    engine: _Engine = "auto",
    format: _Format = "console",
    quiet: options.Quiet = False,
) -> None:
    """Say what `lock --upgrade` would change and what that means: GPUs dropped, drivers needed. Writes nothing.

    Exit 0: nothing would change, 1: something would.
    """
    from envkit import facts
    from envkit.diff import compare, render
    from envkit.engine.choice import connect
    from envkit.plan import update
    from envkit.plan.lockfile import PARTS
    from envkit.plan.spec import load

    options.detail(quiet, False)
    parsed, known = load(options.spec_at(spec)), facts.load()
    old, path = _locked_beside(parsed)
    connected = connect(engine, say) if system and engine != "none" else None
    new = update.new_lock(
        parsed,
        known,
        lambda: connected,
        say,
        previous=old,
        upgrade=() if connected else tuple(sorted(pin.name for pin in old.wheels)),
        may_stay_open=PARTS,
        warn=lambda line: None,  # of a lock that is not written nothing is left open
        accept=accept,
        workshop=None,
    )
    # when the archive was read and the wheels were uploaded means nothing by itself
    changes = compare.locks(old, replace(new, archive=old.archive, epoch=old.epoch), known)
    if format == "json":
        print(render.to_json(changes, "lock", str(path), "a new lock"))
    else:
        sys.stdout.write(render.render_text(changes, str(path), "a new lock"))
    raise Exit(1 if changes else 0)


def _locked(at: Path) -> tuple[Spec, Lock, Path]:
    from envkit.plan.spec import load

    spec = load(options.spec_at(at))
    return spec, *_locked_beside(spec)


def _locked_beside(spec: Spec) -> tuple[Lock, Path]:
    """The lock beside the spec and its path; that it is for another spec is said."""
    from envkit.plan import lockfile as locks

    path = locks.path_of(spec)
    found = locks.read(spec)
    if found is None:
        raise UsageError(f"{path} does not exist", f"run `envkit lock {spec.path.parent}` first")
    for line in locks.problems(spec, found):
        warn(f"{path} is for another spec: {line}")
    return found, path


def _members(lock: Lock, spec: Spec) -> dict[str, Member]:
    from envkit import facts
    from envkit.plan import requires

    return requires.members(lock, spec, facts.load(), say)


def _plain(member: Member) -> dict[str, object]:
    pin = member.pin
    return {"name": pin.name, "version": pin.version, "layer": pin.layer, "kind": "wheel", "asked": member.asked}


def _print(format: str, kind: str, document: dict[str, object], lines: Sequence[str]) -> None:
    from envkit import __version__
    from envkit.report.text import visible

    if format == "json":
        head = {"schema": f"envkit.{kind}/1", "tool": {"name": "envkit", "version": __version__}}
        print(json.dumps({**head, **document}, indent=2))
        return
    for line in lines:
        print(visible(line))
