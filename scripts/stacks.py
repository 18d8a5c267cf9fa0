"""Locks, installs, imports and probes the stacks of tests/stacks/specs.toml; writes docs/stacks.md.

    python scripts/stacks.py [NAME...] [--nightly] [--days N] [--lock-only] [--no-write]

One stack after the other: `envkit lock --engine none`, `envkit build --engine local`, the spec's modules imported in
a child, `envkit probe`; then the environment goes again.  It needs each Python that a spec names: those that uv finds.
What each showed becomes a row of tests/stacks/rows.jsonl, and the page is written from the rows after each stack.  A
stack whose row is for its present spec, younger than N days (default 30) and without a fault is left out, so that a
run which was cut short goes on where it ended.

The environments and a cache of uv's own lie in XDG_CACHE_HOME/envkit-stacks: they share their files, so room comes
back only where both go.  Where less than 22 GB are free the wheels in the cache go, and where that is not enough the
run ends.  Exit code 1 where a stack showed a fault, 3 where the disk had no room for the rest.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envkit.credentials import redacted_text
from envkit.engine.local import LocalEngine
from envkit.errors import EnvkitError, Interrupted, UsageError
from envkit.plan import lockfile as locks
from envkit.plan import spec as specs
from envkit.plan.lockfile import Lock
from envkit.system import files, proc
from envkit.system.proc import Completed

ROOT = Path(__file__).parent.parent
SPECS = ROOT / "tests" / "stacks" / "specs.toml"
ROWS = ROOT / "tests" / "stacks" / "rows.jsonl"
PAGE = ROOT / "docs" / "stacks.md"
OWN = ("field", "import", "frameworks", "nightly")  # of a table; the other keys are those of envkit.toml
ROOM_GB = 22.0
LOCK_S, BUILD_S, IMPORT_S, PROBE_S = 900.0, 1800.0, 600.0, 900.0
_MOST_SAID = 300  # characters of a fault

# Each module by itself, so that one that fails hides no other; in one process, as a program has them.
IMPORT = """
import importlib, sys
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
        said = ""
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    print(sys.argv[1], name, " ".join(said.split()), flush=True)
"""


class Row(msgspec.Struct, omit_defaults=True):
    """What one stack showed on ``day``; ``spec`` is the digest of its table.

    ``wheels`` are those of the image, ``gb`` (10^9 bytes) the environment as installed, ``taken`` what was asked for
    as it was locked, ``imported`` the modules, ``probe`` its verdict with what it is based on.  ``seconds`` are of the
    whole.  ``fault`` is what went wrong first, empty where nothing did; what comes after it is missing then.
    """

    name: str
    spec: str
    day: date
    torch: str = ""
    cuda: str = ""
    python: str = ""
    wheels: int = 0
    taken: tuple[str, ...] = ()
    gb: float = 0.0
    imported: tuple[str, ...] = ()
    probe: str = ""
    seconds: int = 0
    fault: str = ""

    @property
    def good(self) -> bool:
        """Whether it was locked, imported and probed, all well."""
        return bool(self.torch and self.imported and self.probe.startswith("pass") and not self.fault)


Table = Mapping[str, Any]
Say = Callable[[str], None]


def tables() -> dict[str, Table]:
    """The stacks by name, in their order."""
    return tomllib.loads(SPECS.read_text(encoding="utf-8"))


def digest(table: Table) -> str:
    """What a row names its spec by: another digest, another spec."""
    return sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:12]


def envkit_toml(name: str, table: Table) -> str:
    """The spec as a file; JSON's strings, numbers and lists of strings are TOML's too."""
    keys = {"name": name} | {key: value for key, value in table.items() if key not in OWN}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def rows() -> dict[str, Row]:
    """The rows that are there."""
    lines = ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else []
    return {row.name: row for row in (msgspec.json.decode(line, type=Row) for line in lines)}


# One stack.


class Bench:
    """Where stacks are made, by one run at a time: a cache folder of their own, and an environment for envkit.

    Raises UsageError where another run is at work in ``root``; what a killed one left goes.
    """

    def __init__(self, root: Path) -> None:
        self.root = files.folder(root)
        self._held = (root / "lock").open("w")  # the kernel frees it at death
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another run is at work in {root}", "wait for its end") from None
        shutil.rmtree(root / "envkit" / "venvs", ignore_errors=True)
        shutil.rmtree(root / "envkit" / "tags", ignore_errors=True)
        self.env = {**os.environ, "XDG_CACHE_HOME": str(root), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        self.engine = LocalEngine(files.folder(root / "envkit"))

    def envkit(self, words: Sequence[str], timeout_s: float, say: Say) -> Completed:
        """A run of the real command line."""

        def heard(line: str) -> None:
            if not line.startswith(("uv: ", "run it with ", "NOT PINNED")):
                say(line.rstrip())

        argv = [sys.executable, "-m", "envkit", *words]
        return proc.run(argv, timeout_s=timeout_s, env=self.env, on_line=heard)

    def room(self, say: Say) -> bool:
        """Whether the disk has room for one more, after the cache was emptied if need be."""
        if self._free() < ROOM_GB and (self.root / "uv").exists():
            say(f"{self._free():.0f} GB are free, less than {ROOM_GB:.0f}: taking the wheels out of the cache of uv")
            argv = [proc.uv_path(), "cache", "prune", "--ci", "--quiet"]  # what it read of them stays
            proc.run(argv, timeout_s=600, env=self.env)
        return self._free() >= ROOM_GB

    def _free(self) -> float:
        return shutil.disk_usage(self.root).free / 1e9


def last_words(done: Completed) -> str:
    """A failure as one line of text."""
    if done.timed_out:
        return "did not end within its budget"
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if line.startswith(("envkit: ", "error: "))), -6)
    return redacted_text(" ".join(lines[first:]))[:_MOST_SAID] or f"exit code {done.exit}"


def try_stack(name: str, table: Table, bench: Bench, lock_only: bool, say: Say) -> Row:
    """Locks, installs, imports and probes one stack, as far as it goes; nothing of it stays but its lock."""
    started = time.monotonic()
    row = Row(name, digest(table), datetime.now(UTC).date())
    folder = bench.root / "specs" / name
    shutil.rmtree(folder, ignore_errors=True)
    files.folder(folder)
    files.write(folder / "envkit.toml", envkit_toml(name, table))
    tag = f"envkit-stacks/{name}:latest"
    try:
        _through(row, table, folder, tag, bench, lock_only, say)
    finally:
        bench.engine.remove(tag)
        row.seconds = round(time.monotonic() - started)
    return row


def _through(row: Row, table: Table, folder: Path, tag: str, bench: Bench, lock_only: bool, say: Say) -> None:
    """The steps; each fills in what it showed, and the first that fails is the last."""
    say("locking")
    open_parts = ("--allow-unpinned", "os", "--allow-unpinned", "base")
    done = bench.envkit(["lock", str(folder), "--engine", "none", *open_parts], LOCK_S, say)
    lock = locks.load(specs.load(folder)) if done.exit == 0 else None
    if lock is None:
        row.fault = f"lock: {last_words(done)}"
        return
    _held(row, lock, table)
    if lock_only:
        return
    done = bench.envkit(["build", str(folder), "--engine", "local", "--tag", tag], BUILD_S, say)
    if done.exit != 0:
        row.fault = f"install: {last_words(done)}"
        return
    stored = bench.engine.stored(tag)
    row.gb = round(stored.size / 1e9, 2)
    say(f"importing {', '.join(table['import'])}")
    row.imported, row.fault = imports(stored.roots[0] / "bin" / "python", table["import"], bench.env)
    words = ["probe", tag, "--engine", "local", "--format", "json"]
    for framework in ("torch", *table["frameworks"]) if "frameworks" in table else ():
        words += ["--framework", framework]
    done = bench.envkit(words, PROBE_S, say)
    files.write(folder / "probe.json", done.stdout)
    row.probe, fault = probed(done)
    row.fault = row.fault or fault


def _held(row: Row, lock: Lock, table: Table) -> None:
    row.torch, row.cuda, row.python = str(lock.torch), str(lock.cuda), str(lock.python)
    held = {pin.name: pin.version for pin in locks.upto(lock, lock.flavor)[0]}
    row.wheels = len(held)
    asked = dict.fromkeys(canonicalize_name(Requirement(line).name) for line in table.get("packages", ()))
    row.taken = tuple(f"{name} {held[name]}" for name in asked if name in held)


def imports(python: Path, modules: Sequence[str], env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The modules that this Python imports, and the first fault.

    What they write to a home folder goes with it.
    """
    with files.scratch("stack") as home:
        steered = {**env, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)}
        steered.pop("PYTHONPATH", None)
        mark = f"<{home.name}>"
        argv = [str(python), "-c", IMPORT, mark, *modules]
        done = proc.run(argv, timeout_s=IMPORT_S, env=steered, cwd=home)
    said = {}
    for line in done.stdout.splitlines():
        if line.startswith(mark):
            name, _, fault = line.removeprefix(f"{mark} ").partition(" ")
            said[name] = fault
    good = tuple(name for name in modules if said.get(name) == "")
    bad = [f"{name}: {said.get(name) or last_words(done)}" for name in modules if said.get(name) != ""]
    return good, f"import of {redacted_text(bad[0])}"[:_MOST_SAID] if bad else ""


def probed(done: Completed) -> tuple[str, str]:
    """The verdict of a probe's document with what it is based on, and its first fault."""
    try:
        report = json.loads(done.stdout)
        verdict, results = str(report["verdict"]), list(report["results"])
    except (ValueError, KeyError, TypeError):
        return "", f"probe: {last_words(done)}"
    passed = sum(one["outcome"] == "pass" for one in results)
    said = f"{verdict}, {passed} checks"
    if verdict == "pass":
        return said, ""
    for one in sorted(results, key=lambda one: one["outcome"] == "unknown"):
        wrong = [finding["message"] for finding in one["findings"] if finding["severity"] == "error"]
        if wrong or one["outcome"] == "unknown":
            return said, f"probe: {one['check']}: {redacted_text(one['reason'] or wrong[0])}"[:_MOST_SAID]
    return said, f"probe: {verdict}"


# The page.


def page(found: Mapping[str, Row], wanted: Mapping[str, Table]) -> str:
    """The text of docs/stacks.md."""
    held = [(name, table, found[name]) for name, table in wanted.items() if name in found]
    locked = sum(bool(row.torch) for _, _, row in held)
    good = sum(row.good for _, _, row in held)
    lines = [
        "# Stacks that were tried",
        "",
        "Written by `scripts/stacks.py` (`make stacks`) from `tests/stacks/specs.toml`. What people run: each stack is",
        "locked on the public package index by `envkit lock` and installed from the lock by `envkit build --engine",
        "local`; its modules are imported, and `envkit probe` examines the environment. The machine had no GPU: GPUs",
        "and drivers are those that the spec declares, and a verdict is based on files and CPU.",
        "",
        f"{len(wanted)} stacks, of which {locked} were locked and {good} imported and probed without a fault.",
        "",
        "| stack | field | GPUs, driver | Python | torch | CUDA | taken | wheels | GB | imported | probe | s | day |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(name, table, row) for name, table, row in held),
        "",
    ]
    faults = [f"- {name}: {row.fault}" for name, _, row in held if row.fault]
    left = [name for name in wanted if name not in found]
    if faults:
        lines += ["## Faults", "", *faults, ""]
    if left:
        lines += ["## Not tried yet", "", ", ".join(left), ""]
    return "\n".join(lines)


def _line(name: str, table: Table, row: Row) -> str:
    modules = table["import"]
    imported = f"{len(row.imported)} of {len(modules)}" if row.gb else "not tried"
    cells = (
        name, table["field"], f"{', '.join(table.get('gpus', ()))}; {table.get('driver', 'any')}", row.python or "-",
        row.torch or "refused", row.cuda or "-", ", ".join(row.taken) or "-", str(row.wheels or "-"),
        f"{row.gb:.1f}" if row.gb else "-", imported, row.probe or "not tried", str(row.seconds), str(row.day),
    )  # fmt: skip
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def write(found: Mapping[str, Row], wanted: Mapping[str, Table]) -> None:
    """The rows and the page, each whole or not at all; rows of stacks that are gone go too."""
    kept = [found[name] for name in wanted if name in found]
    files.write(ROWS, "".join(msgspec.json.encode(row).decode() + "\n" for row in kept))
    files.write(PAGE, page(found, wanted))


def due(
    chosen: Iterable[str], wanted: Mapping[str, Table], found: Mapping[str, Row], days: int, today: date
) -> list[str]:
    """The stacks that have no row without a fault, or one that is old or of another spec; first those without a row."""

    def fresh(row: Row | None, table: Table) -> bool:
        return row is not None and row.good and row.spec == digest(table) and (today - row.day).days < days

    return sorted((name for name in chosen if not fresh(found.get(name), wanted[name])), key=found.__contains__)


def main(arguments: Sequence[str]) -> int:
    """Tries the stacks that are due."""
    parser = argparse.ArgumentParser(description="try the stacks of tests/stacks/specs.toml")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a stack; by default all")
    parser.add_argument("--nightly", action="store_true", help="those that run every night, whatever their rows say")
    parser.add_argument("--days", type=int, default=30, help="a row without a fault counts for so long (30)")
    parser.add_argument("--lock-only", action="store_true", help="lock them and install nothing")
    parser.add_argument("--no-write", action="store_true", help="write neither rows nor page")
    options = parser.parse_args(arguments)
    wanted, found = tables(), rows()
    if unknown := [name for name in options.names if name not in wanted]:
        parser.error(f"no stack is called {unknown[0]}; they are in {SPECS.relative_to(ROOT)}")
    nightly = [name for name, table in wanted.items() if table.get("nightly")]
    chosen = options.names or (nightly if options.nightly else list(wanted))
    days = 0 if options.nightly else options.days
    names = due(chosen, wanted, found, days, datetime.now(UTC).date())
    bench = Bench(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envkit-stacks")
    bad = 0
    for number, name in enumerate(names, 1):

        def say(text: str, about: str = f"[{number}/{len(names)}] {name}") -> None:
            print(f"{about}: {text}", file=sys.stderr, flush=True)

        if not options.lock_only and not bench.room(say):
            say(f"less than {ROOM_GB:.0f} GB are free; run it again when there is room, it goes on from here")
            return 3
        row = try_stack(name, wanted[name], bench, options.lock_only, say)
        bad += bool(row.fault)
        say(f"FAULT: {row.fault}" if row.fault else f"good: torch {row.torch}, {row.wheels} wheels, {row.seconds} s")
        found[name] = row
        if not options.no_write:
            write(found, wanted)
    if not names and not options.no_write:
        write(found, wanted)
    print(f"{len(names)} tried, {bad} with a fault")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        with proc.sigterm_raises():
            sys.exit(main(sys.argv[1:]))
    except EnvkitError as error:
        print(f"{error.message}\n  fix: {error.fix}", file=sys.stderr)
        sys.exit(error.code)
    except Interrupted as error:
        print("stopped; run it again, it goes on from here", file=sys.stderr)
        sys.exit(error.code)
