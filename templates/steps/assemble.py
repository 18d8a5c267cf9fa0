"""Makes the files of one layer.

    assemble.py venv                        an empty virtual environment, under /out
    assemble.py wheels LIST PLACE [--keep] [--program NAME PATH]... [--uv=OPTION]...
                                            what LIST (requirements with hashes) names
    assemble.py file SOURCE TARGET          one file, under /out
    assemble.py copy FOLDER                 what FOLDER holds into /, by several threads: torch has 12,000 small files

Runs inside the build, with uv at /installer/uv.  PLACE is "venv" (the virtual environment of this image), "system" (the
Python that runs this) or "out": a tree under /out to be copied into an image that has the virtual environment.  Of the
wheels, what no program needs at run time is taken out (not with --keep), byte code is written that is checked by
content, and each PROGRAM inside site-packages gets a name on PATH.  /vendor/wheels, if it is there, is their only
source.
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
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

UV = "/installer/uv"
VENV = Path("/opt/venv")
OUT = Path("/out")
CACHE = Path("/opt/cache")  # in the same layer, so that files are linked, not copied, and gone with it

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
        **os.environ,
        "UV_CACHE_DIR": str(CACHE),
        "UV_HTTP_TIMEOUT": "300",  # seconds of silence: a mirror that itself fetches a large wheel pauses for a minute
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if os.path.exists("/run/secrets/ca"):
        env["SSL_CERT_FILE"] = "/run/secrets/ca"
    if os.path.isdir("/vendor/wheels"):
        options = [*options, "--offline", "--no-index", "--find-links=/vendor/wheels"]
    command = [UV, "pip", "install", "--python", python, "--no-deps", "--require-hashes", f"-r{requirements}", *options]
    subprocess.run(command, env=env, check=True)
    shutil.rmtree(CACHE)


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


def strip(path: Path) -> tuple[str, str]:
    """Takes symbols and debugging information out of a library; its new hash and size as RECORD has them."""
    subprocess.run(["strip", "--strip-unneeded", path], check=True)
    digest = hashlib.sha256(path.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), str(path.stat().st_size)


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


def finish(requirements: Path, site: Path, keep: bool) -> None:
    """Takes out, strips and links what is worth it unless told to ``keep`` all; puts RECORD right; writes byte code."""
    found = list(records(requirements, site))
    for name, _, rows in found:
        clear(name, site, rows, keep)
    # Wheels of one family share files, and two processes must not write one.
    sources = sorted({str(site / row[0]) for _, _, rows in found for row in rows if row[0].endswith(".py")})
    # Byte code that is valid while its source has the same content, whatever the time.  It takes all processors and
    # strip few, so both are done at once.
    command = [sys.executable, "-m", "compileall", "-qq", "-j0", "--invalidation-mode=checked-hash", "-i-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as compiler, ThreadPoolExecutor() as pool:
        assert compiler.stdin is not None
        compiler.stdin.write("".join(source + "\n" for source in sources))
        compiler.stdin.close()
        heavy = []
        if not keep:
            libraries = (row for _, _, rows in found for row in rows if ".so" in row[0])
            heavy = [row for row in libraries if symbols(site / row[0]) >= WORTH]
        for row, (digest, size) in zip(heavy, pool.map(lambda row: strip(site / row[0]), heavy), strict=True):
            row[1:] = [digest, size]
    if compiler.returncode not in (0, 1):  # 1: a file that is no Python, such as a template
        raise SystemExit(f"compileall ended with {compiler.returncode}")
    for _, record, rows in found:
        if not keep:
            link(site, rows)
        with record.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


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
    """Makes the virtual environment."""
    subprocess.run([UV, "venv", "--quiet", "--no-config", "--python", sys.executable, VENV], check=True)


def wheels(arguments: argparse.Namespace) -> None:
    """What the wheels of a list add."""
    skeleton: list[Path] = []
    if arguments.place == "system":
        python, site = sys.executable, Path(sysconfig.get_path("purelib"))
        arguments.uv.append("--break-system-packages")
    else:
        if arguments.place == "out":
            environment()
            skeleton = [path for path in VENV.rglob("*") if not path.is_dir() or path.is_symlink()]
        python, site = str(VENV / "bin/python"), next(VENV.glob("lib/python3*/site-packages"))
    install(arguments.source, python, arguments.uv)
    finish(arguments.source, site, arguments.keep)
    for name, path in arguments.program:
        program(site, OUT if arguments.place == "out" else Path("/"), name, path)
    for path in skeleton:  # a layer of its own brings it
        path.unlink()
    if arguments.place == "out":
        move()


def move() -> None:
    """Moves the virtual environment to /out, from where a copy of all of it does not touch the folders above."""
    target = OUT / VENV.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    VENV.rename(target)


def copy(source: Path, root: str = "/") -> None:
    """A tree into ``root``; links, permissions and times are kept."""
    links: dict[int, str] = {}

    def one(pair: tuple[str, str]) -> None:
        shutil.copy2(*pair, follow_symlinks=False)

    pairs, folders = [], []
    for folder, _, names in os.walk(source):
        target = os.path.normpath(os.path.join(root, os.path.relpath(folder, source)))
        os.makedirs(target, exist_ok=True)
        folders.append((folder, target))
        for name in names:
            pairs.append((os.path.join(folder, name), os.path.join(target, name)))
        for entry in os.scandir(folder):
            if entry.is_dir() and entry.is_symlink():
                pairs.append((entry.path, os.path.join(target, entry.name)))
    whole = []
    for path, target in pairs:
        info = os.lstat(path)
        if info.st_nlink > 1 and links.setdefault(info.st_ino, target) != target:
            continue
        whole.append((info.st_size, path, target))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, [(path, target) for _, path, target in sorted(whole, reverse=True)]))
    for path, target in pairs:
        info = os.lstat(path)
        if info.st_nlink > 1 and links[info.st_ino] != target:
            os.link(links[info.st_ino], target)
    for folder, target in reversed(folders):
        shutil.copystat(folder, target)


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
    parser.add_argument("what", choices=("venv", "wheels", "file", "copy"))
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("place", nargs="?")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--program", nargs=2, action="append", default=[])
    parser.add_argument("--uv", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.what == "venv":
        environment()
        move()
    elif arguments.what == "wheels":
        with written_early():
            wheels(arguments)
    elif arguments.what == "copy":
        with written_early():
            copy(arguments.source)
    else:
        target = OUT / arguments.place.lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copyfile(arguments.source, target)
        target.chmod(0o644)


if __name__ == "__main__":
    main()
