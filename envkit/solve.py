"""A wish to a lock: the facts choose the versions, uv finds the closure of wheels and their hashes."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from envkit import proc
from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.facts import Facts
from envkit.lock import Lock, Pin, digest_of
from envkit.resolve import Choice, resolve
from envkit.spec import Spec
from envkit.versions import Glibc, Python

Say = Callable[[str], None]

_BUDGET_S = 300.0  # a cold resolve of torch's closure takes about a second; the rest is for slow indexes

# Glibc minors for which uv has a --python-platform, besides the manylinux2014 baseline (its help text).
_MANYLINUX = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


def uv_version() -> str:
    """The version of that uv."""
    said = proc.run([proc.uv_path(), "--version"], timeout_s=30)
    match = re.search(r"uv (\S+)", said.stdout)
    if said.exit != 0 or not match:
        raise Undecided(f"uv does not say its version: {said.stderr.strip()[-200:]}", "install uv anew")
    return match[1]


def platform_tag(machine: str, glibc: Glibc) -> str:
    """uv's name for Linux on ``machine`` with ``glibc``: the newest manylinux it knows that is not newer."""
    fitting = [minor for minor in _MANYLINUX if (2, minor) <= (glibc.major, glibc.minor)]
    if not fitting:
        raise UsageError(f"glibc {glibc} is older than any wheel of torch expects", "choose a newer `os`")
    return f"{machine}-manylinux_2_{fitting[-1]}"


def closure(
    requirements: tuple[str, ...], *, python: Python, machine: str, glibc: Glibc, backend: str, say: Say
) -> tuple[tuple[Pin, ...], int]:
    """Every wheel that ``requirements`` need on that Python and machine, and the newest upload time among them.

    ``backend`` ("cuXYZ" or empty) takes torch and its kin from PyTorch's own index.  The pins are sorted by name; the
    time is in seconds since 1970, 0 if the index gives none.  Raises Unsatisfiable when no set of wheels meets the wish
    and Undecided when the index could not be asked.
    """
    say(f"solving {len(requirements)} requirements for Python {python} on {machine}")
    with tempfile.TemporaryDirectory(prefix="envkit-lock-") as folder:
        wish, answer = Path(folder, "wish.in"), Path(folder, "pylock.toml")
        wish.write_text("".join(line + "\n" for line in requirements), encoding="utf-8")
        argv = [
            proc.uv_path(), "pip", "compile", "--quiet", "--no-config", "--no-header", "--only-binary", ":all:",
            "--python", sys.executable,  # or uv starts every Python of this machine in search of that version
            "--python-version", str(python), "--python-platform", platform_tag(machine, glibc),
            *(["--torch-backend", backend] if backend else []),
            "--output-file", str(answer), str(wish),
        ]  # fmt: skip
        done = proc.run(argv, timeout_s=_BUDGET_S, env={**os.environ, "NO_COLOR": "1"})
        if done.timed_out:
            raise Undecided(
                f"the package index did not answer within {_BUDGET_S:.0f} s", "check the network, try again"
            )
        if done.exit != 0:
            raise _failure(done.stderr)
        table = tomllib.loads(answer.read_text(encoding="utf-8"))
    pins, newest, ranks = [], 0, _ranks(python, machine, glibc)
    for package in table.get("packages", []):
        pin, uploaded = _wheel(package, ranks)
        pins.append(pin)
        newest = max(newest, uploaded)
    return tuple(sorted(pins, key=lambda pin: pin.name)), newest


def _ranks(python: Python, machine: str, glibc: Glibc) -> Mapping[Tag, int]:
    """The wheel tags that Python on that machine takes, the best one lowest, as every installer orders them.

    The newest manylinux comes first; the older names stand beside the version they mean (PEP 600).
    """
    legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    platforms = []
    for minor in range(glibc.minor, 4, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        platforms += [f"{legacy[minor]}_{machine}"] if minor in legacy else []
    platforms.append(f"linux_{machine}")
    version = (python.major, python.minor)
    interpreter = f"cp{python.major}{python.minor}"
    ordered = [*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def _wheel(package: Mapping[str, object], ranks: Mapping[Tag, int]) -> tuple[Pin, int]:
    """The pin of the wheel that an installer on the target would take, and when it was uploaded."""
    name, offered = str(package.get("name")), package.get("wheels")
    fitting = []
    for wheel in offered if isinstance(offered, list) else []:
        file = str(wheel.get("name") or str(wheel.get("url", wheel.get("path", ""))).rsplit("/", 1)[-1])
        file = file.replace("%2B", "+")
        # The version is the file's: an index page may leave out the local part ("+cu...").
        _, version, _, tags = parse_wheel_filename(file)
        known = [ranks[tag] for tag in tags if tag in ranks]
        if known:
            fitting.append((min(known), file, str(version), wheel))
    if not fitting:
        raise UsageError(f"{name} comes from no wheel of an index, so it cannot be pinned", f"name a release of {name}")
    _, file, release, best = min(fitting, key=lambda one: one[:2])
    digest = best.get("hashes", {}).get("sha256", "")
    if not digest:
        raise UsageError(f"the index gives no sha256 for {file}", "use an index that does")
    uploaded = best.get("upload-time")
    seconds = int(uploaded.timestamp()) if isinstance(uploaded, datetime) else 0
    return Pin(canonicalize_name(name), release, file, digest), seconds


_UNREACHED = re.compile(
    r"dns error|error sending request|failed to fetch|connection refused|timed out|could not connect|"
    r"network is unreachable|request failed",
    re.IGNORECASE,
)
# uv goes on without an index that wants a password, as if it were empty, and says so in a hint alone.
_REFUSED = re.compile(r"could not be queried|returned a 403 Forbidden")
_UNTRUSTED = re.compile(r"invalid peer certificate|certificate verify failed|UnknownIssuer", re.IGNORECASE)


_DRAWING = " \u00d7\u2570\u2500\u25b6\u251c\u2502\u00b7"  # the lines and arrows with which uv draws its reports


def _failure(stderr: str) -> Unsatisfiable | Undecided:
    """uv's failure as one of ours; uv's own explanation is kept as the chain."""
    lines = [re.sub(r"\s+", " ", line).strip(_DRAWING) for line in stderr.splitlines()]
    said = tuple(line for line in lines if line)
    if _UNTRUSTED.search(stderr):
        return Undecided(
            "the package index shows a certificate that this machine does not trust",
            "point SSL_CERT_FILE at the CA bundle of your network",
        )
    if _UNREACHED.search(stderr):
        return Undecided(
            f"the package index cannot be reached: {said[-1] if said else 'no answer'}", "check the network"
        )
    if _REFUSED.search(stderr):
        return Undecided(
            "the package index refuses to answer: it wants credentials", "give them in the index's address or in netrc"
        )
    if "no space left" in stderr.lower():
        return Undecided("the disk is full: uv could not write its cache", "free some space, or move UV_CACHE_DIR")
    return Unsatisfiable("no set of wheels meets the spec", said, (), "loosen one of the requirements named above")


def lock(spec: Spec, facts: Facts, say: Say) -> Lock:
    """The lock that answers ``spec`` today.

    Raises Unsatisfiable or UsageError when nothing can, Undecided when the package index could not be asked.
    """
    choice = resolve(spec, facts)
    say(f"torch {choice.torch} for CUDA {choice.cuda} on {choice.image}")

    def ask(requirements: tuple[str, ...], backend: str = "") -> tuple[tuple[Pin, ...], int]:
        return closure(
            requirements,
            python=spec.python,
            machine=spec.platform.machine,
            glibc=choice.glibc,
            backend=backend,
            say=say,
        )

    wheels, epoch = ask(choice.requirements, choice.backend) if choice.requirements else ((), 0)
    if choice.preinstalled:
        # The base brings torch and what torch needs; of that only what was asked for by name goes on top.
        torch = tuple(f"torch=={pin.version}" for pin in wheels if pin.name == "torch")
        brought = choice.base_requirements or torch
        held = {pin.name for pin in ask(brought)[0]} if brought else set[str]()
        asked = {canonicalize_name(Requirement(text).name) for text in spec.packages} - {"torch"}
        wheels = tuple(pin for pin in wheels if pin.name in asked or pin.name not in held)
    _one_line(choice, wheels)
    (installer,), _ = ask((f"uv=={uv_version()}",))
    return Lock(
        name=spec.name,
        spec=digest_of(spec),
        torch=choice.torch,
        variant=choice.row.variant if choice.row else "",
        cuda=choice.cuda,
        cudnn=choice.cudnn,
        nccl=choice.nccl,
        triton=choice.triton,
        python=str(spec.python),
        os=choice.os,
        platform=spec.platform.value,
        base=spec.base.value,
        flavor=spec.flavor.value,
        image=choice.image,
        suite=choice.suite,
        digest="",
        backend=choice.backend,
        preinstalled=choice.preinstalled,
        driver=choice.driver,
        epoch=epoch,
        gpus=tuple((target.name, str(target.sm), target.by) for target in choice.targets),
        apt=choice.apt,
        tools=tuple((tool.tool, tool.path or "") for tool in choice.tools),
        installer=installer,
        wheels=wheels,
    )


def _one_line(choice: Choice, wheels: tuple[Pin, ...]) -> None:
    """Refuses wheels of another CUDA line than torch's: both unpack into the same folders, and the last one wins.

    A wheel "nvidia-*-cuNN" of one major owns the same paths as its twin of another (read in their RECORD files).
    """
    major = choice.cuda.split(".")[0]
    for pin in wheels:
        found = re.fullmatch(r"nvidia-.+-cu([0-9]+)", pin.name)
        if found and found[1] != major:
            raise UsageError(
                f"{pin.name} {pin.version} belongs to CUDA {found[1]}, torch {choice.torch} to CUDA {choice.cuda}: "
                "their files lie at the same paths",
                f"ask for the package of CUDA {major}, or drop it from `packages`",
            )
