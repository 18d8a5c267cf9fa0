"""Reads from the package index what the torch table says of PyPI's builds, and compares the two.

    python scripts/make_torch_rows.py RELEASE ...           prints the measured fields, one JSON object a line
    python scripts/make_torch_rows.py --check               compares every release in the table, exit 1 on a difference
    python scripts/make_torch_rows.py --check RELEASE ...   compares only these

The index is the one that uv is configured for on this machine; uv names the wheels of a release, and the METADATA of
one of them (beside the wheel as PEP 658 says, or read out of it by HTTP range) gives the rest.  Architectures are not
among the measured fields: they lie deep inside gigabytes of library.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from envkit.errors import Undecided
from envkit.facts import Facts, TorchRow, load
from envkit.system import proc

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

# A Python each, so that one of them fits any torch release: the lowest that envkit runs on, then newer ones.
_PYTHONS = ("3.11", "3.13", "3.15")
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The fields of a torch row that the index and METADATA show, for PyPI's x86_64 Linux build; as text."""

    torch: str
    cuda: str
    cudnn: str | None
    nccl: str | None
    toolkit: str | None
    triton: str | None
    requires_python: str
    pythons: tuple[str, ...]
    platform: str


class _Remote(io.RawIOBase):
    """A file behind HTTP that can seek, so that zipfile reads only the parts it needs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._at = 0
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            self._size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206:
                raise Undecided(f"the index answers {answer.status} to a range request", "use an index with ranges")
            got: bytes = answer.read()
        view[: len(got)] = got
        self._at += len(got)
        return len(got)


def _compile(*words: str) -> list[str]:
    """uv, asked to resolve what stands on its stdin, without what that depends on."""
    # Without --python uv starts every Python of this machine in search of one.
    return [proc.uv_path(), "pip", "compile", "-", "--python", sys.executable, "--no-deps", "--quiet", *words]


def reachable(timeout_s: float = 10.0) -> str:
    """Empty if uv can resolve a small package within ``timeout_s`` seconds, else why it cannot."""
    done = proc.run(_compile("--refresh-package", "packaging"), timeout_s=timeout_s, stdin="packaging\n")
    if done.timed_out:
        return f"uv did not answer within {timeout_s:g} s"
    return "" if done.exit == 0 else f"uv says: {done.stderr.strip().splitlines()[-1].strip()}"


def _wheels(release: str, python: str) -> list[str]:
    """The addresses of all wheels of a release that are for ``python`` or newer; none if uv finds no solution."""
    argv = _compile("--universal", "--no-header", "--format", "pylock.toml", "--python-version", python)
    done = proc.run(argv, timeout_s=_TIMEOUT_S, stdin=f"torch=={release}\n")
    if done.timed_out:
        raise Undecided(f"uv did not resolve torch {release} within {_TIMEOUT_S:g} s", "look at the network")
    if done.exit != 0:
        if "No solution found" in done.stderr:
            return []
        raise Undecided(f"uv could not resolve torch {release}: {done.stderr.strip()}", "look at the network")
    (package,) = tomllib.loads(done.stdout)["packages"]
    return [wheel["url"] for wheel in package["wheels"]]


def _linux(urls: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Address and platform tag by Python tag, of the x86_64 Linux wheels among ``urls``, lowest Python first."""
    found = {}
    for url in urls:
        tags = parse_wheel_filename(url.rsplit("/", 1)[1])[3]
        for tag in sorted(tags, key=str):
            if tag.platform.startswith("manylinux") and tag.platform.endswith("x86_64"):
                free_threaded = tag.abi.endswith("t")
                found[tag.interpreter + ("t" if free_threaded else "")] = (url, tag.platform)
    return dict(sorted(found.items(), key=lambda item: (int(item[0][3:].rstrip("t")), item[0])))


def _metadata(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}.metadata", timeout=_TIMEOUT_S) as answer:
            text: bytes = answer.read()
            return text.decode()
    except urllib.error.HTTPError as error:
        if error.code not in (403, 404):
            raise
    with zipfile.ZipFile(io.BufferedReader(_Remote(url), 1 << 16)) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return wheel.read(name).decode()


def _pins(requirements: Sequence[str]) -> dict[str, str]:
    """The specifiers of the CUDA side by role: runtime, toolkit, cudnn, nccl, triton."""
    roles = {
        "nvidia-cuda-runtime": "runtime",
        "cuda-toolkit": "toolkit",
        "nvidia-cudnn": "cudnn",
        "nvidia-nccl": "nccl",
        "triton": "triton",
    }
    found: dict[str, str] = {}
    for text in requirements:
        requirement = Requirement(text)
        base, _, line = requirement.name.rpartition("-cu")
        role = roles.get(base if base and line.isdigit() else requirement.name)
        if role is not None and not (requirement.marker and "extra" in str(requirement.marker)):
            found[role] = str(requirement.specifier)
    return found


def measure(release: str) -> Measured:
    """What the index says of PyPI's x86_64 Linux build of a torch release.

    Raises Undecided when the index does not answer or has no such build.
    """
    first = next((wheels for python in _PYTHONS if (wheels := _linux(_wheels(release, python)))), None)
    if first is None:
        raise Undecided(f"the index has no x86_64 Linux wheel of torch {release}", "look at the release's number")
    header = HeaderParser().parsestr(_metadata(next(iter(first.values()))[0]))
    requires_python = header["Requires-Python"]
    wheels = _linux(_wheels(release, requires_python.removeprefix(">=")))
    platforms = {platform for _, platform in wheels.values()}
    if len(platforms) != 1:
        raise Undecided(f"the wheels of torch {release} have several platform tags: {', '.join(sorted(platforms))}")
    pins = _pins(header.get_all("Requires-Dist", []))
    toolkit = pins.get("toolkit", "").removeprefix("==") or None
    runtime = toolkit or pins.get("runtime", "").removeprefix("==")
    if not runtime:
        raise Undecided(f"torch {release} of the index pins no CUDA runtime")
    return Measured(
        torch=release,
        cuda=".".join(runtime.split(".")[:2]),
        cudnn=pins.get("cudnn", "").removeprefix("==") or None,
        nccl=pins.get("nccl", "").removeprefix("==") or None,
        toolkit=toolkit,
        triton=pins.get("triton"),
        requires_python=requires_python,
        pythons=tuple(wheels),
        platform=platforms.pop(),
    )


def differences(measured: Measured, row: TorchRow) -> list[str]:
    """Each field in which the row says something else than the index, as a sentence."""
    told = []
    for field in fields(measured):
        seen, known = getattr(measured, field.name), getattr(row, field.name)
        known = known if known is None or isinstance(known, tuple) else str(known)
        if seen != known:
            told.append(f"torch {row.torch}: {field.name} is {seen} on the index and {known} in the table")
    return told


def default_row(facts: Facts, release: str) -> TorchRow:
    """The table's row for PyPI's build of a release; raises UsageError or ValueError where there is none."""
    (row,) = (row for row in facts.torch(release) if row.default and str(row.torch) == release)
    return row


def main(arguments: Sequence[str]) -> int:
    """Prints measured fields, or differences with ``--check``; 1 when there are differences."""
    parser = argparse.ArgumentParser(description="measure PyPI's torch builds")
    parser.add_argument("releases", nargs="*", help="torch releases; with --check all of the table by default")
    parser.add_argument("--check", action="store_true", help="compare with the table instead of printing")
    options = parser.parse_args(arguments)
    if not options.check:
        if not options.releases:
            parser.error("name at least one release")
        for release in options.releases:
            print(json.dumps(asdict(measure(release))))
        return 0
    releases = options.releases or [str(row.torch) for row in load().torches if row.default]
    told = [line for release in releases for line in differences(measure(release), default_row(load(), release))]
    print("\n".join(told) if told else f"{len(releases)} releases agree with the index")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
