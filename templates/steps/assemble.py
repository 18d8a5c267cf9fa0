"""Makes the files of one layer.

    assemble.py wheels LIST PLACE [--keep] [--program NAME PATH]... [--uv=OPTION]...
                                            what LIST (requirements with hashes) names
    assemble.py unpack LIST [--uv=OPTION]...
                                            the same wheels as they are, in the virtual environment of a stage
    assemble.py place LIST FOLDER           those into this image, from where that environment is mounted
    assemble.py file SOURCE TARGET          one file, under /out

Runs inside the build, with uv at /installer/uv.  PLACE is "venv" (the virtual environment of this image, made if there
is none), "system" (the Python that runs this) or "out": a tree under /out to be copied into an image that has the
virtual environment.  Of the wheels, what no program needs at run time is taken out (not with --keep), byte code is
written that is checked by content, and each PROGRAM inside site-packages gets a name on PATH.  /vendor/wheels, if it is
there, is their only source.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

UV = "/installer/uv"
VENV = Path("/opt/venv")
OUT = Path("/out")
VENDOR = Path("/vendor")
SECRETS = Path("/run/secrets")
CACHE = Path("/opt/cache")  # in the same layer, so that files are linked, not copied

# What the wheels bring and nothing loads, by distribution.  envkit's own tests import, compile and run without them.
UNUSED = {
    "mpmath": ["mpmath/tests/*"],
    "networkx": ["networkx/*/tests/*"],
    "numpy": ["numpy/tests/*", "numpy/*/tests/*"],
    "sympy": ["sympy/*/tests/*"],
    "torch": ["torch/bin/protoc*"],
    "triton": ["triton/instrumentation/*Test*"],
}
WORTH = 0.15  # strip a library when at least this part of it is symbols and debugging information


def install(requirements: Path, python: str, options: list[str]) -> None:
    """The wheels of the list into the environment of ``python``."""
    env = {
        "RES_OPTIONS": "timeout:1 attempts:5",  # resolv.conf(5): a lost answer costs a second, not five
        **os.environ,
        "UV_CACHE_DIR": str(CACHE),
        # Each connection asks for its host's address, and some name services drop the questions of a burst: groups of
        # wheels are fetched side by side, so each takes few at once and tries for a minute longer than uv by itself.
        "UV_CONCURRENT_DOWNLOADS": "4",
        "UV_HTTP_RETRIES": "6",
        "UV_HTTP_TIMEOUT": "300",  # seconds of silence: a mirror that itself fetches a large wheel pauses for a minute
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if (SECRETS / "ca").exists():
        env["SSL_CERT_FILE"] = str(SECRETS / "ca")
    if (SECRETS / "index").exists():  # lines for a shell, "export NAME=VALUE"
        words = [word.partition("=") for word in shlex.split((SECRETS / "index").read_text(encoding="utf-8"))]
        env.update((name, value) for name, there, value in words if there)
    if (VENDOR / "wheels").is_dir():
        options = [*options, "--offline", "--no-index", f"--find-links={VENDOR}/wheels"]
    command = [UV, "pip", "install", "--python", python, "--no-deps", "--require-hashes", f"-r{requirements}", *options]
    subprocess.run(command, env=env, check=True)
    # uv leaves the file that it locked, at times and at times not.
    for lock in (VENV / ".lock", *Path(tempfile.gettempdir()).glob("uv-*.lock")):
        lock.unlink(missing_ok=True)


def symbols(path: Path) -> float:
    """The part of an ELF file that is never loaded (0 to 1); 0 for anything else, one that ends too early among it.

    Reads the section headers of a 64-bit little-endian file (System V ABI, chapter 4).
    """
    whole = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return 0.0
        at = int.from_bytes(head[40:48], "little")
        width, count = int.from_bytes(head[58:60], "little"), int.from_bytes(head[60:62], "little")
        if width < 64 or at + width * count > whole:
            return 0.0
        file.seek(at)
        table = file.read(width * count)
    unloaded = 0
    for start in range(0, len(table), width):
        kind = int.from_bytes(table[start + 4 : start + 8], "little")
        flags = int.from_bytes(table[start + 8 : start + 16], "little")
        if kind != 8 and not flags & 2:  # SHT_NOBITS takes no room; SHF_ALLOC is what the loader maps
            unloaded += int.from_bytes(table[start + 32 : start + 40], "little")
    return unloaded / whole if unloaded <= whole else 0.0


def strip(source: Path, target: Path) -> tuple[str, str]:
    """Takes symbols and debugging information out of a library; its new hash and size as RECORD has them."""
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)
    digest = hashlib.sha256(target.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), str(target.stat().st_size)


Rows = list[list[str]]  # of a RECORD: path below site-packages, hash, size


def records(requirements: Path, site: Path) -> Iterator[tuple[str, Path, Rows]]:
    """The name, the RECORD and its rows of each distribution of the list, in its order."""
    # Wheels write their names as they like, with dots and capitals; the list has them normalised.
    infos = {re.sub(r"[-_.]+", "-", info.name.split("-")[0]).lower(): info for info in site.glob("*.dist-info")}
    for line in requirements.read_text().splitlines():
        name = line.split("==")[0]
        record = infos[re.sub(r"[-_.]+", "-", name).lower()] / "RECORD"
        with record.open(newline="", encoding="utf-8") as file:
            yield name, record, list(csv.reader(file))


def clear(name: str, site: Path, rows: Rows, keep: bool) -> None:
    """Takes out what is unused, unless told to ``keep`` it, and uv's note of when it found a local file."""
    patterns = ["*.dist-info/uv_cache.json", *([] if keep else UNUSED.get(name, []))]
    for row in [row for row in rows if any(fnmatch.fnmatchcase(row[0], pattern) for pattern in patterns)]:
        (site / row[0]).unlink()
        rows.remove(row)


def link(site: Path, rows: Rows) -> None:
    """Makes one file of those large ones that are the same."""
    first: dict[str, Path] = {}
    for row in rows:
        path = site / row[0]
        twin = first.setdefault(row[1], path) if row[1] and path.stat().st_size > 1 << 20 else path
        if twin != path:
            path.unlink()
            os.link(twin, path)


def finish(requirements: Path, site: Path, keep: bool, source: Path | None = None) -> None:
    """Takes out, strips and links what is worth it unless told to ``keep`` all; puts RECORD right; writes byte code.

    The files lie in ``site``, or come from ``source``, another site-packages that nobody needs afterwards.
    """
    start = source or site
    found = list(records(requirements, start))
    for name, _, rows in found:
        clear(name, start, rows, keep)
    rows = [row for _, _, rows in found for row in rows]
    heavy = [] if keep else [row for row in rows if ".so" in row[0] and symbols(start / row[0]) >= WORTH]
    # Wheels of one family share files, and two processes must not write one.
    sources = sorted({row[0] for row in rows if row[0].endswith(".py")})
    with ThreadPoolExecutor() as pool:
        # The compiler takes all processors, strip few and the disk none, so all is done at once.
        stripped = [pool.submit(strip, start / row[0], made(site / row[0])) for row in heavy]
        if source:
            list(pool.map(partial(bring, source, site), sources))
        compiled = pool.submit(write_byte_code, [site / path for path in sources])
        if source:
            others = {row[0] for row in rows} - {row[0] for row in heavy} - set(sources)
            list(pool.map(partial(bring, source, site), sorted(others, key=lambda path: -size(source / path))))
        for row, done in zip(heavy, stripped, strict=True):
            row[1:] = done.result()
        compiled.result()
    for _, record, rows in found:
        if not keep:
            link(site, rows)
        with (site / record.relative_to(start)).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def size(path: Path) -> int:
    """In bytes."""
    return path.stat().st_size


def made(path: Path) -> Path:
    """The path, its folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def bring(source: Path, site: Path, path: str) -> None:
    """One file of another site-packages, with its permissions and times."""
    shutil.copy2(source / path, made(site / path))


def write_byte_code(sources: list[Path]) -> None:
    """Byte code that is valid while its source has the same content, whatever the time.

    Each processor gets a list of its own: handing out file by file, as compileall does with -j, takes longer than the
    compiling.
    """
    count = min(os.cpu_count() or 1, len(sources))
    command = [sys.executable, "-m", "compileall", "-qq", "--invalidation-mode=checked-hash", "-i-"]
    with contextlib.ExitStack() as ended:
        compilers = [
            (ended.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, text=True)), sources[at::count])
            for at in range(count)
        ]
        for compiler, share in compilers:
            assert compiler.stdin is not None
            compiler.stdin.write("".join(f"{path}\n" for path in share))
            compiler.stdin.close()
    for compiler, _ in compilers:
        if compiler.returncode not in (0, 1):  # 1: a file that is no Python, such as a template
            raise SystemExit(f"compileall ended with {compiler.returncode}")


def program(site: Path, root: Path, name: str, path: str) -> None:
    """A name on PATH for a program that lies inside site-packages, some without the permission to execute."""
    inside = site / path
    inside.chmod(inside.stat().st_mode | 0o111)
    # The sanitizer finds its own libraries only when told where they are.
    more = f' --injection-path "{inside.parent.parent}/lib"' if "cuda_sanitizer_api" in path else ""
    script = root / "usr/local/bin" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec "{inside}"{more} "$@"\n')
    script.chmod(0o755)


def environment() -> None:
    """Makes the virtual environment if there is none."""
    if not VENV.exists():
        command = [UV, "venv", "--quiet", "--no-config", "--no-cache", "--python", sys.executable, str(VENV)]
        subprocess.run(command, check=True)


def wheels(arguments: argparse.Namespace) -> None:
    """What the wheels of a list add."""
    skeleton: list[Path] = []
    if arguments.place == "system":
        python, site = sys.executable, Path(sysconfig.get_path("purelib"))
        arguments.uv.append("--break-system-packages")
    else:
        environment()
        if arguments.place == "out":
            skeleton = [path for path in VENV.rglob("*") if not path.is_dir() or path.is_symlink()]
        python, site = str(VENV / "bin/python"), next(VENV.glob("lib/python3*/site-packages"))
    install(arguments.source, python, arguments.uv)
    shutil.rmtree(CACHE)
    finish(arguments.source, site, arguments.keep)
    for name, path in arguments.program:
        program(site, OUT if arguments.place == "out" else Path("/"), name, path)
    for path in skeleton:  # a layer of its own brings it
        path.unlink()
    if arguments.place == "out":  # from where a copy of all of it does not touch the folders above
        target = OUT / VENV.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        VENV.rename(target)


def unpack(requirements: Path, options: list[str]) -> None:
    """The wheels of a list, untouched, for a step that brings them to their place; uv's cache stays in the stage."""
    environment()
    install(requirements, str(VENV / "bin/python"), options)


def place(requirements: Path, unpacked: Path, keep: bool) -> None:
    """What ``unpack`` left at ``unpacked`` becomes part of this image's virtual environment."""
    site = next(VENV.glob("lib/python3*/site-packages"))
    finish(requirements, site, keep, unpacked / site.relative_to(VENV))


@contextlib.contextmanager
def written_early() -> Iterator[None]:
    """Has the disk write while the network and the processors work: the engine waits for every byte at a step's end."""
    done = threading.Event()

    def write() -> None:
        while not done.wait(0.5):
            os.sync()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def main() -> None:
    """One layer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("wheels", "unpack", "place", "file"))
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("place", nargs="?")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--program", nargs=2, action="append", default=[])
    parser.add_argument("--uv", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.what == "wheels":
        with written_early():
            wheels(arguments)
    elif arguments.what == "unpack":
        with written_early():
            unpack(arguments.source, arguments.uv)
    elif arguments.what == "place":
        with written_early():
            place(arguments.source, Path(arguments.place), arguments.keep)
    else:
        target = OUT / arguments.place.lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copyfile(arguments.source, target)
        target.chmod(0o644)


if __name__ == "__main__":
    main()
