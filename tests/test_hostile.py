"""A hostile spec or lock can fail, never inject.

What is accepted is rendered, read back as its reader would, and compared: with the values themselves, and in its shape
with what a plain lock of the same build gives.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzzed import TIMES
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from envkit.build import exporters, flags, render
from envkit.errors import UsageError
from envkit.plan.image_table import Healthcheck, ImageTable
from envkit.plan.lockfile import (
    Deb,
    Lock,
    Pin,
    Project,
    debs_in_order,
    dump,
    in_order,
    parse,
    requirements,
    seal,
    spec_items,
)
from envkit.plan.spec import Flavor, Spec
from envkit.plan.spec import parse as parse_spec
from envkit.versions import Cuda, Driver, Python

MANY = 10_000 if TIMES > 1 else 1_000  # cases in all
HURRIED: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.generate, Phase.shrink),
    "report_multiple_bugs": False,
}
SHA = "0123456789abcdef" * 4
WHERE = Path("/srv/jobs/trainer/envkit.toml")
PLAIN = Lock(
    name="trainer",
    wish=spec_items(parse_spec('torch = "2.6.0"\npython = "3.13"\n', WHERE)),
    torch=Version("2.6.0"),
    variant="cu124",
    cuda=Cuda("12.4"),
    cudnn="9.1.0.70",
    nccl="2.21.5",
    triton="==3.2.0",
    python=Python("3.13"),
    os="debian13",
    platform="linux/amd64",
    base="wheels",
    flavor="debug",
    image="debian:13-slim",
    suite="trixie",
    digest="sha256:" + SHA,
    origin="packages",
    backend="cu124",
    preinstalled=False,
    driver=Driver("525.60.13"),
    epoch=1700000000,
    archive="2026-11-15T08:12:33Z",
    components=("main", "non-free"),
    gpus=(("RTX 4090", "sm_89", "machine code of sm_86"),),
    apt={"runtime": ("g++", "libnuma1"), "devel": ("git",), "debug": ("gdb",), "tools": ("python3-venv",)},
    debs=(
        Deb("g++", "4:14.2.0-1", "amd64", SHA, 1356, "runtime"),
        Deb("libnuma1", "2.0.18-1", "amd64", SHA, 1, "runtime"),
        Deb("git", "1:2.47.3-0+deb13u1", "amd64", SHA, 1, "devel"),
        Deb("gdb", "16.3-1", "amd64", SHA, 1, "debug"),
        Deb("python3.13-venv", "3.13.5-2", "amd64", SHA, 1, "tools"),
    ),
    programs=(("debug", "compute-sanitizer", "nvidia/cu13/bin/compute-sanitizer"), ("debug", "py-spy", "")),
    missing=(("cuda-gdb", "no source holds it (here)"),),
    given=("nvidia-cuda-dev (= 12.4.127~12.4.1-2)", "opencl-dev"),
    installer=Pin("uv", "0.8.0", "uv-0.8.0-py3-none-manylinux_2_17_x86_64.whl", SHA, 17, "tools"),
    wheels=(
        Pin("filelock", "3.16.1", "filelock-3.16.1-py3-none-any.whl", SHA),
        Pin("numpy", "2.2.0", "numpy-2.2.0-cp313-cp313-manylinux_2_27_x86_64.whl", SHA, 16, "runtime",
            (("numpy-2.2.0-cp313-cp313-manylinux_2_27_aarch64.whl", SHA),)),
        Pin("nvidia-cublas-cu12", "12.4.5.8", "nvidia_cublas_cu12-12.4.5.8-py3-none-manylinux2014_x86_64.whl", SHA),
        Pin("nvidia-cudnn-cu12", "9.1.0.70", "nvidia_cudnn_cu12-9.1.0.70-py3-none-manylinux2014_x86_64.whl", SHA),
        Pin("torch", "2.6.0+cu124", "torch-2.6.0+cu124-cp313-cp313-linux_x86_64.whl", SHA),
        Pin("ninja", "1.13.2", "ninja-1.13.2-py3-none-manylinux2014_x86_64.whl", SHA, 0, "devel"),
        Pin("py-spy", "0.4.3", "py_spy-0.4.3-py2.py3-none-manylinux_2_5_x86_64.whl", SHA, 0, "debug"),
    ),
    project=Project("demo", "3.13", (f"hatchling==1.27.0 --hash=sha256:{SHA}",), ("src", ".")),
    inside=ImageTable(
        copy=("train.py", "configs/a b"), workdir="/srv/app", user="me:2000", env=(("GREETING", "a $b"), ("N", "1")),
        expose=("8080", "53/udp"), entrypoint=("/start.sh", "--now"), cmd=("python", "-c", "print('$HOME')"),
        healthcheck=Healthcheck(("true", "$x"), "30s", "1m30s", "5s", 3),
    ),
)  # fmt: skip
ADDED = tuple(pin for pin in PLAIN.wheels if pin.name not in ("torch", "filelock") and "nvidia" not in pin.name)
LOCKS = (
    PLAIN,
    replace(PLAIN, archive="", debs=(), given=(), suite="", origin="registry", flavor="runtime", project=None,
            inside=ImageTable()),
    replace(PLAIN, base="pytorch", preinstalled=True, image="pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", suite="",
            origin="registry", backend="", wheels=ADDED, missing=(), inside=ImageTable(copy=(".",), user="root")),
)  # fmt: skip

# The attacks.  Most of them are no value of any key; some are one of another key, and those must come out as they are.

FRAGMENTS = (
    ";", "; id", "&& id", "| id", "> /etc/x", "$(id)", "`id`", "${HOME}", "$HOME", "${BASE}", "$$", "\n", "\r",
    "\r\n", "\nRUN id", "\nUSER root\n", "\nEOF\nRUN id\n", "EOF", "\nEND\n", "\n%post\n  id\n", "%post",
    "\nLABEL a=b", '"', "'", '"""', "'''", '"\nname = "x"', '", "', '"]', "]\n[wish]", '"}', "},", "{{ lock }}",
    "{% raw %}", "{# x #}", "\\", "\\\\", "\\\n", "\\n", "\\u0022", "\\x41", " \\", "#", " # x", "# syntax=x",
    "# escape=`", "\x00", "\x07", "\x1b[2J", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", "\u202e", "\ufeff",
    "\U000e0041", "\u2179", "\uff11", "\u0661", "\u0131", "-", "--", "-r", "-y", "--hash=sha256:00",
    " --index-url x", "-oDPkg::Pre-Invoke::=id", "--keep", "--program", " -y", "../", "/../../etc/passwd",
    "/etc/passwd", "/", "//", "://x", "@", "@sha256:" + SHA, ":", "::", "=", "==", "=-", "*", "?", "[a]", "!",
    "~", "<<EOF", '<<"EOF"', "<(id)", "&anchor", "*alias", "!!python/object", "- ", ": ", "|\n", "yes", "null",
    "1e9", "0x1", "<!--", " ", "\t", "\x0b", "\x0c", ",", "(", ")", "^", "%", "%s", "{0}", "a", "A", "0", "1.0",
    ".", "..", "_", "+", "x" * 70, "9" * 300, "a" * 5000,
)  # fmt: skip
ATTACKS = st.tuples(
    st.integers(0, 4),
    st.integers(0, 1 << 16),
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join),
)


def spoilt(plain: str, attack: tuple[int, int, str]) -> str:
    """``plain`` with an attack in it, before it, behind it or in its place, or a plain value of another place."""
    kind, number, text = attack
    cut = number % (len(plain) + 1)
    return (plain[:cut] + text + plain[cut:], text + plain, plain + text, text, PLAINS[number % len(PLAINS)])[kind]


# Readers, each as small as what it reads allows.


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile: its name, its text on one line, and its heredocs' lines."""

    name: str
    text: str
    bodies: tuple[tuple[str, ...], ...]


@lru_cache(64)  # the plain twins are few
def dockerfile(text: str) -> list[Instruction]:
    """The instructions as BuildKit reads them: comments, continued lines, quoted heredocs."""
    lines = re.split(r"\r?\n", text.removesuffix("\n"))
    assert not re.match(r"#\s*[a-z]+\s*=", lines[0])  # it would be a directive to the parser
    found, at = [], 0
    while at < len(lines):
        line = lines[at].lstrip()
        at += 1
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\"):
            while lines[at].lstrip().startswith("#"):
                at += 1
            line, at = line[:-1] + lines[at], at + 1
        bodies = []
        name, _, rest = line.partition(" ")
        for word in re.findall(r'<<-?"?(\w+)"?', rest) if name in ("RUN", "COPY", "ADD") else ():
            end = lines.index(word, at)  # ValueError: not closed
            bodies.append(tuple(lines[at:end]))
            at = end + 1
        found.append(Instruction(name, rest, tuple(bodies)))
    return found


@lru_cache(1024)  # most commands are the same in all of them
def words(text: str) -> list[str]:
    """The words of a shell's command, its operators words of their own."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def alive(text: str) -> int:
    """How many characters of a shell's command or of a Dockerfile's value would be replaced by something else."""
    bare = re.sub(r"'[^']*'", "", text)
    return len(re.findall(r"(?<!\\)[$`]", bare))


def labels(text: str) -> dict[str, str]:
    """The values of a LABEL instruction."""
    pair = re.compile(r'\s*([A-Za-z0-9._]+)="((?:[^"\\$]|\\["\\$])*)"')
    found, at = {}, 0
    while at < len(text):
        match = pair.match(text, at)
        assert match, text[at:]
        found[match[1]], at = re.sub(r"\\(.)", r"\1", match[2]), match.end()
    return found


def literal(source: str) -> tuple[object, ...]:
    """What the Python source compares with in its only assert."""
    (test,) = (node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    assert isinstance(test, ast.Compare)
    value = ast.literal_eval(test.comparators[0])
    assert isinstance(value, tuple)
    return value


def sections(text: str) -> dict[str, str]:
    """The sections of an Apptainer definition in their order, the header under ""."""
    parts = re.split(r"(?m)^\s*%([a-zA-Z]+)[^\n]*\n", text)
    assert len(parts[1::2]) == len(set(parts[1::2]))
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def heredocs(text: str) -> tuple[str, list[str]]:
    """A shell script without its heredocs, and these."""
    bodies: list[str] = []

    def cut(found: re.Match[str]) -> str:
        bodies.append(found[1])
        return "\n"

    return re.sub(r"<<'EOF'\n((?:.*\n)*?)EOF\n", cut, text), bodies


# What a lock must come out as.


def tame(lock: Lock) -> Lock:
    """A lock of the same shape that holds plain values where the other has free text."""

    def called(number: int, pin: Pin) -> str:
        """Another name that goes into the same layer."""
        if pin.name in ("torch", "filelock"):
            return pin.name
        own = re.match(r"nvidia-(?:(?:cudnn|cusparselt|nccl|nvshmem)\b)?", pin.name)
        return f"{own[0] if own else ''}-w{number}".lstrip("-")

    return replace(
        lock,
        name="n",
        torch=Version("1"),
        variant="1",
        cuda=Cuda("1"),
        os="1",
        cudnn=lock.cudnn and "1",
        nccl=lock.nccl and "1",
        triton=lock.triton and "1",
        driver=lock.driver and Driver("1"),
        image="b",
        gpus=tuple(("g", "sm_70", "b") for _ in lock.gpus),
        apt={layer: tuple(f"a{number}" for number, _ in enumerate(names)) for layer, names in lock.apt.items()},
        debs=tuple(replace(deb, name=f"d{number}", version="1") for number, deb in enumerate(lock.debs)),
        programs=tuple((layer, "p", "a/b" if "/" in path else "") for layer, _, path in lock.programs),
        missing=tuple((name if name == "nvcc" else "m", "w") for name, _ in lock.missing),
        given=tuple("v" for _ in lock.given),
        installer=replace(lock.installer, name="i", version="1"),
        wheels=tuple(replace(pin, name=called(number, pin), version="1") for number, pin in enumerate(lock.wheels)),
        inside=replace(
            lock.inside,
            workdir=lock.inside.workdir and "/tame",
            user="tame" if lock.inside.account else lock.inside.user,
            env=tuple((f"TAME{number}", "tame") for number, _ in enumerate(lock.inside.env)),
            expose=tuple(str(number) for number, _ in enumerate(lock.inside.expose, 1)),
            entrypoint=lock.inside.entrypoint and ("tame",),
            cmd=lock.inside.cmd and ("tame",),
            healthcheck=lock.inside.healthcheck and Healthcheck(("tame",)),
        ),
    )


def of_the_project(lock: Lock) -> list[tuple[str, object]]:
    """The instructions that [image] must come out as, each with its value, flavor by flavor."""
    held, check = lock.inside, lock.inside.healthcheck
    guard = [*render.GUARD] if lock.guard else []
    found: list[tuple[str, object]] = []
    for flavor in Flavor:
        found += [("ENV", {name: value}) for name, value in held.env]
        found += [("WORKDIR", held.place)] if held.place else []
        found += [("EXPOSE", port) for port in held.expose]
        if flavor is Flavor.DEBUG:
            continue
        if held.account:
            found.append(("ENV", {"HOME": held.account.home}))
            found.append(("USER", f"{held.account.uid}:{held.account.uid}"))
        elif held.user:
            found.append(("USER", "root"))
        if check:
            times = (check.interval, check.timeout, check.start_period, str(check.retries or ""))
            found.append(("HEALTHCHECK", ([time for time in times if time], [*check.command])))
        found += [("ENTRYPOINT", [*guard, *held.entrypoint])] if held.entrypoint else []
        found += [("CMD", [*held.cmd])] if held.cmd else []
    return found


def value_of(one: Instruction) -> object:
    """The value of an instruction that [image] may write, as BuildKit reads it."""
    assert one.text.isprintable()
    if one.name == "ENV":
        return labels(one.text)
    if one.name == "HEALTHCHECK":
        found = re.fullmatch(r"((?:--[a-z-]+=[0-9a-z]+ )*)CMD (\[.*\])", one.text)
        assert found
        return re.findall(r"=(\w+)", found[1]), json.loads(found[2])
    if one.name in ("ENTRYPOINT", "CMD"):
        assert one.text.isascii()
        return json.loads(one.text)
    assert re.fullmatch(r"[A-Za-z0-9:/._-]+", one.text)
    return one.text


def closed(lock: Lock) -> None:
    """Those values are of a few that are known, whatever else the lock says: ``tame`` leaves them as they are."""
    for value, grammar in (
        (str(lock.python), r"3\.[0-9]+"),
        (lock.backend, r"(cu[0-9]+)?"),
        (lock.suite, r"[a-z]*"),
        (lock.digest, r"(sha256:[0-9a-f]{64})?"),
        (lock.archive, r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?"),
        (lock.image, r"[a-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]{64})?"),
        (lock.flavor, "runtime|devel|debug"),
        (lock.platform, "linux/(amd64|arm64)"),
        (" ".join(lock.components), r"[a-z -]*"),
    ):
        assert re.fullmatch(grammar, value), value
    assert type(lock.epoch) is int and lock.epoch >= 0
    for pin in (*lock.wheels, lock.installer):
        for file, digest in ((pin.file, pin.sha256), *pin.others):
            assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.!+-]*\.whl", file) and re.fullmatch("[0-9a-f]{64}", digest)
    for deb in lock.debs:
        # What apt-get takes for an option, for a pattern, for a file, or for a wish to remove.
        assert not re.search(r"^[-.~?/]|[-/^*?]$|[*?^/]", f"{deb.name}={deb.version}")
        assert re.fullmatch("[0-9a-f]{64}", deb.sha256) and re.fullmatch("[a-z0-9-]+", deb.arch)
    for name in (name for names in lock.apt.values() for name in names):
        assert not re.search(r"^[-.~?/]|[-/^*?]$|[*?^/]", name)


def packages(lock: Lock, layer: str) -> list[str]:
    """The arguments that apt-get must get for a layer."""
    if not lock.archive:
        return list(lock.apt.get(layer, ()))
    return [f"{deb.name}={deb.version}" for deb in lock.debs if deb.layer == layer]


def check_dockerfile(lock: Lock) -> None:
    text, plain = render.dockerfile(lock), render.dockerfile(tame(lock))
    assert len(text.splitlines()) == len(plain.splitlines())
    asked, programs, wheels, own = [], [], [], list[tuple[str, object]]()
    last = ""
    for one, other in zip(dockerfile(text), dockerfile(plain), strict=True):
        last = one.text if one.name == "FROM" else last
        of_flavor = last.endswith(tuple(f" AS {flavor}" for flavor in Flavor)) and "-base AS" in last
        if of_flavor and one.name in ("ENV", "WORKDIR", "EXPOSE", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
            assert one.name == other.name and not one.bodies
            own.append((one.name, value_of(one)))
            continue
        assert (one.name, len(one.bodies)) == (other.name, len(other.bodies))
        if one.name == "LABEL":
            assert labels(one.text) == {
                **labels(other.text),
                "org.opencontainers.image.title": lock.name,
                "org.opencontainers.image.base.name": lock.image,
                "io.envkit.lock.sha256": sha256(dump(lock).encode()).hexdigest(),
            }
            continue
        if one.name == "ARG" and one.text.startswith("BASE="):
            assert one.text == f"BASE={lock.image}" + (f"@{lock.digest}" if lock.digest and not lock.suite else "")
            continue
        if one.name == "RUN" and not one.bodies:
            said, plainly = words(one.text), words(other.text)
            assert len(said) == len(plainly) and alive(one.text) == alive(other.text)
            if "/steps/apt.sh" in plainly:
                start = len(plainly) - next(
                    n for n, word in enumerate(reversed(plainly)) if not re.match("[ad][0-9]", word)
                )
                asked.append(said[start:])
            elif "--program" in plainly:
                start = plainly.index("--program")
                stop = len(plainly) - 1 - plainly[::-1].index("--program") + 3
                programs += [said[start + 1 + step : start + 3 + step] for step in range(0, stop - start, 3)]
                assert said[stop:] == plainly[stop:]
            elif "/steps/account.sh" in plainly:
                start = plainly.index("/steps/account.sh") + 1
                account = lock.inside.account
                assert account and said[start:] == [account.name, str(account.uid), account.home] + (
                    [lock.inside.place] if lock.inside.place else []
                )
            elif "/steps/tree.sh" in plainly:
                start = plainly.index("/steps/tree.sh") + 2
                uid = lock.inside.account.uid if lock.inside.account else 0
                assert said[start:] == [lock.inside.place, str(uid)]
            elif plainly[-3:-1] == ["mkdir", "-p"]:
                start = len(plainly) - 1
                assert said[start:] == [lock.inside.place]
            elif plainly[:2] == ["python3", "-c"]:
                assert literal(said[2]) == (str(lock.python), str(lock.torch), str(lock.cuda))
                start = 2
            else:
                start = len(plainly)
            assert said[:start] == plainly[:start]
            continue
        assert one.text == other.text
        for body, usual in zip(one.bodies, other.bodies, strict=True):
            if one.text.endswith("/wheels.txt"):
                wheels += body
            elif one.text.endswith("/installer.txt"):
                assert body == (
                    f"{lock.installer.name}=={lock.installer.version} --hash=sha256:{lock.installer.sha256}",
                )
            elif one.text.endswith("/stand-in"):
                assert [line for line in body if line not in usual] in ([], [f"Provides: {', '.join(lock.given)}"])
                assert len(body) == len(usual)
            else:
                assert body == usual
    assert own == of_the_project(lock)
    assert asked == [names for layer in ("runtime", "tools", "devel", "debug") if (names := packages(lock, layer))]
    assert sorted(wheels) == sorted(requirements(lock.wheels).splitlines())
    held = {pin.layer for pin in lock.wheels}
    assert sorted(programs) == sorted(
        [n, p] for layer, n, p in lock.programs if "/" in p and layer in held - {"runtime"}
    )


def shape(value: object) -> object:
    """A JSON document without its texts."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "" if isinstance(value, str) else value


def composed(lock: Lock, flavor: Flavor) -> tuple[int, dict[str, Any]]:
    """How many comments a compose.yaml begins with, and its document with nothing left for Compose to fill in."""
    lines = exporters.compose(lock, flavor).splitlines()
    start = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    document = yaml.safe_load("\n".join(lines[start:]))
    for key in ("environment", "user"):  # where Compose does fill in
        document["services"]["envkit"].pop(key, None)
    if flavor is not Flavor.DEBUG:
        document["services"]["home"].pop("command")
    text = json.dumps(document)
    assert "$" not in text.replace("$$", "")
    return start, json.loads(text.replace("$$", "$"))


def check_outputs(lock: Lock) -> None:
    plain = tame(lock)
    for flavor in Flavor:
        comments, document = composed(lock, flavor)
        usual, example = composed(plain, flavor)
        assert comments == usual and shape(document) == shape(example)
        tag = "latest" if flavor.value == lock.flavor else flavor.value
        assert document["services"]["envkit"]["image"] == f"envkit/{lock.name}:{tag}"
        if flavor is Flavor.DEBUG:
            assert document["volumes"]["workspace"]["name"] == f"{lock.name}-workspace"
        for flag, other in zip(flags.run_flags(lock, flavor), flags.run_flags(plain, flavor), strict=True):
            if flag.arguments[0] == "--volume":
                source, target = flag.arguments[1].split(":")
                # What is no name of a volume is a folder of the host.
                assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", source) and target == flags.WORKSPACE
            else:
                assert flag == other
    document, example = json.loads(exporters.devcontainer(lock)), json.loads(exporters.devcontainer(plain))
    assert shape(document) == shape(example)
    assert document == {
        **example,
        "name": lock.name,
        "image": flags.image(lock, Flavor.DEBUG),
        "mounts": [
            {**example["mounts"][0], "source": f"{lock.name}-vscode"},
            {**example["mounts"][1], "source": f"{lock.name}-home-{flags.stack(lock)}"},
        ],
        "initializeCommand": [*example["initializeCommand"][:-1], flags.image(lock, Flavor.DEBUG)],
    }
    # Docker's grammar of a reference; one that is none could be anything to another reader.
    assert re.fullmatch(r"envkit/[a-z0-9]+(?:[._-]+[a-z0-9]+)*:[a-z]+", document["image"])


def check_apptainer(lock: Lock) -> None:
    text, plain = exporters.apptainer(lock), exporters.apptainer(tame(lock))
    assert len(text.splitlines()) == len(plain.splitlines())
    found, usual = sections(text), sections(plain)
    assert [*found] == [*usual]
    header = [line for line in found[""].splitlines() if not line.startswith("#")]
    pinned = f"@{lock.digest}" if lock.origin == "registry" and lock.digest else ""
    assert [line for line in header if line] == ["Bootstrap: docker", f"From: {lock.image}{pinned}"]
    script, bodies = heredocs(found["post"])
    example, _ = heredocs(usual["post"])
    said, plainly = words(script), words(example)
    assert len(said) == len(plainly) and alive(script) == alive(example)
    free = [number for number, word in enumerate(plainly) if re.fullmatch(r"[ad][0-9]+(=1)?", word)]
    assert [said[number] for number in free] == packages(lock, "runtime") + packages(lock, "tools")
    assert all(said[number] == word for number, word in enumerate(plainly) if number not in free)
    of_image = [pin for pin in lock.wheels if pin.layer == "runtime"]
    assert bodies == [requirements([lock.installer]), requirements(of_image)]
    _, (test,) = heredocs(found["test"])
    assert literal(test) == (str(lock.python), str(lock.torch), str(lock.cuda))
    for name in ("environment", "runscript", "labels"):
        assert found[name] == usual[name]


def check(lock: Lock) -> None:
    """What is written from an accepted lock says what the lock says, and nothing more."""
    closed(lock)
    check_dockerfile(lock)
    check_outputs(lock)
    check_apptainer(lock)


# The cases.


def sites(node: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Where a lock holds text, and which."""
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from sites(value, (*path, key))
    elif isinstance(node, tuple):
        for number, value in enumerate(node):
            yield from sites(value, (*path, number))
    elif isinstance(node, (Lock, Pin, Deb, Project, ImageTable, Healthcheck)):
        for field in fields(node):
            yield from sites(getattr(node, field.name), (*path, field.name))


def put(node: Any, path: tuple[Any, ...], value: str) -> Any:
    """The lock, or the part of one, with ``value`` at the place that ``path`` leads to."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(node, dict):
        return {**node, first: put(node[first], rest, value)}
    if isinstance(node, tuple):
        return (*node[:first], put(node[first], rest, value), *node[first + 1 :])
    return replace(node, **{first: put(getattr(node, first), rest, value)})


SITES = [(number, *site) for number, lock in enumerate(LOCKS) for site in sites(lock) if site[0][-1] != "layer"]
SPECS: dict[str, tuple[str, ...]] = {
    "name": ("trainer", "a.b_c-d", "0"),
    "torch": ("2.6.0", ">=2.4,<2.7", "2"),
    "cuda": ("auto", "12.4", "12.4.1"),
    "python": ("3.11", "3.13"),
    "os": ("auto", "debian12"),
    "base": ("wheels", "nvidia", "pytorch", "ngc"),
    "tag": ("", "26.07-py3"),
    "flavor": ("runtime", "devel", "debug"),
    "platform": ("linux/amd64", "linux/arm64"),
    "packages": ("numpy>=2; python_version > '3.8'", "Foo_Bar[a,b]==1.0.*", "einops"),
    "apt": ("libnuma1=2.0.14-3+b1", "g++", "git"),
    "gpus": ("RTX 4090", "sm_90"),
    "driver": ("550", "580.65.06"),
    "image.copy": ("train.py", "configs/a b.yaml", "."),
    "image.workdir": ("/srv/app", "", "/workspace"),
    "image.user": ("app", "1234", "me:2000", "root", ""),
    "image.env.GREETING": ("hello", "a 'b' $HOME `id` c", ""),
    "image.expose": ("8080", "53/udp"),
    "image.entrypoint": ("/start.sh", "tini"),
    "image.cmd": ("python", "$HOME"),
    "image.healthcheck.command": ("true", "curl"),
    "image.healthcheck.interval": ("30s", "1m30s"),
}
LISTS = frozenset(["packages", "apt", "gpus"]) | {
    f"image.{key}" for key in ("copy", "expose", "entrypoint", "cmd", "healthcheck.command")
}
PLAINS = sorted({value for _, _, value in SITES} | {value for values in SPECS.values() for value in values})


def refused(error: UsageError) -> None:
    """Refused in one line that a terminal can show, with its fix."""
    assert error.message.isprintable() and error.fix.isprintable() and len(error.message) < 1000


def accepted(text: str) -> Lock | None:
    """The lock in ``text``, None if it was refused; anything else raised is a fault."""
    try:
        return parse(text, "x/envkit.lock")
    except UsageError as error:
        refused(error)
        return None


def test_the_plain_locks_pass_what_the_hostile_ones_must() -> None:
    for lock in LOCKS:
        assert parse(dump(lock), "x") == lock
        check(lock)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\nRUN id"},
        {"name": "/etc/x"},
        {"torch": '2"); import os; ("'},
        {"torch": "2'; id; '"},
        {"image": "debian:13\nRUN id"},
        {"image": "debian:13 AS os"},
        {"image": "${HOME}"},
        {"backend": "cu1 --index-url=x"},
        {"driver": "550\nRUN id"},
        {"missing": (("gdb", "x\nRUN id"),)},
        {"given": ("x\nEOF\nRUN id",)},
        {"apt": {"runtime": ("-oDPkg::Pre-Invoke::=id",)}, "archive": "", "debs": ()},
        {"debs": (Deb("gcc", "12-", "amd64", SHA, 1, "runtime"),)},
        {"programs": (("debug", "x; id", "a/b"),)},
        {"programs": (("debug", "x", "a/$(id)"),)},
        {"installer": replace(PLAIN.installer, version="1\nEOF\nid")},
        {"wheels": (replace(PLAIN.wheels[0], version="1\nEOF\nRUN id"),)},
        {"wheels": (replace(PLAIN.wheels[0], file="../x.whl"),)},
    ],
)
def test_the_checks_of_this_file_see_what_a_lock_would_inject(change: dict[str, Any]) -> None:
    """Past the grammars: here it is this file's own eyes that are tried."""
    for lock in (PLAIN, LOCKS[2]):
        try:
            check(replace(lock, **change))
        except (AssertionError, ValueError, SyntaxError):
            return
    raise AssertionError("nothing was seen")


@pytest.mark.hypothesis
@pytest.mark.slow  # a thousand random attacks, on locks read and written each time
def test_no_value_of_a_lock_becomes_more_than_a_value() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=MANY * 4 // 10, **HURRIED)
    @given(st.lists(st.tuples(st.sampled_from(SITES), ATTACKS), min_size=1, max_size=2))
    def tried(attacks: list[tuple[tuple[int, tuple[Any, ...], str], tuple[int, int, str]]]) -> None:
        which = attacks[0][0][0]
        lock = LOCKS[which]
        for (number, path, value), attack in attacks:
            if number == which:
                lock = put(lock, path, spoilt(value, attack))
        found = accepted(dump(lock))
        seen["refused" if found is None else "accepted"] += 1
        if found is not None:
            ordered = replace(lock, wheels=in_order(lock.wheels), debs=debs_in_order(lock.debs))
            assert found == replace(ordered, inside=found.inside)  # paths are in their shortest form, once
            assert accepted(dump(found)) == found
            check(found)

    tried()
    assert min(seen["refused"], seen["accepted"]) > MANY // 50, seen


BODIES = [dump(lock).split("# The text above as it was written")[0] for lock in LOCKS]
LINES = [(number, at) for number, text in enumerate(BODIES) for at in range(text.count("\n"))]


@pytest.mark.hypothesis
@pytest.mark.slow  # hundreds of random attacks on whole texts
def test_no_text_under_a_right_seal_becomes_more_than_values() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=MANY * 2 // 10, **HURRIED)
    @given(st.sampled_from(LINES), ATTACKS)
    def tried(line: tuple[int, int], attack: tuple[int, int, str]) -> None:
        lines = BODIES[line[0]].split("\n")
        lines[line[1]] = spoilt(lines[line[1]], attack)
        found = accepted(seal("\n".join(lines).replace("\r\n", "\n")))
        seen["refused" if found is None else "accepted"] += 1
        if found is not None:
            check(found)

    tried()
    assert min(seen["refused"], seen["accepted"]) > MANY // 200, seen


def locked(spec: Spec) -> Lock:
    """A lock with all that a spec hands on to one."""
    return replace(
        LOCKS[1],
        wish=spec_items(spec),
        name=spec.name,
        flavor=spec.flavor.value,
        platform=spec.platform.value,
        base=spec.base.value,
        python=spec.python,
        cuda=spec.cuda or Cuda("12.4"),
        driver=spec.driver,
        os=spec.os,
        image=f"pytorch/pytorch:{spec.tag}" if spec.tag else "debian:13-slim",
        gpus=tuple((name, "sm_89", "PTX of compute_80") for name in spec.gpus),
        apt={**LOCKS[1].apt, "runtime": spec.apt},
        inside=spec.image,
    )


def toml(values: dict[str, str], raw: bool) -> str:
    """A spec as a person or a program would write it; ``raw`` is one that does not escape what it writes."""
    lines = []
    for key, value in values.items():
        text = f'"{value}"' if raw else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        lines.append(f"{key} = {f'[{text}]' if key in LISTS else text}\n")
    return "".join(lines)


@pytest.mark.hypothesis
@pytest.mark.slow  # a thousand random attacks, on specs that become locks
def test_no_value_of_a_spec_becomes_more_than_a_value() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=MANY * 4 // 10, **HURRIED)
    @given(
        st.fixed_dictionaries({key: st.sampled_from(values) for key, values in SPECS.items()}),
        st.lists(st.tuples(st.sampled_from([*SPECS]), ATTACKS), min_size=1, max_size=2),
        st.integers(0, 3),
    )
    def tried(values: dict[str, str], attacks: list[tuple[str, tuple[int, int, str]]], way: int) -> None:
        for key, attack in attacks:
            values[key] = spoilt(values[key], attack)
        try:
            spec = parse_spec(toml(values, raw=not way), WHERE)
        except UsageError as error:
            refused(error)
            seen["refused"] += 1
            return
        seen["accepted"] += 1
        lock = locked(spec)
        assert accepted(dump(lock)) == lock
        check(lock)

    tried()
    assert min(seen["refused"], seen["accepted"]) > MANY // 50, seen


@pytest.mark.slow  # hundreds of attacks
def test_every_key_of_a_spec_is_attacked_alone() -> None:
    """Each attack in the place of each key; where one is accepted, it is in a lock what it was in the spec."""
    taken = 0
    for key in SPECS:
        for fragment in FRAGMENTS:
            values = {name: plain[0] for name, plain in SPECS.items()} | {key: fragment}
            try:
                spec = parse_spec(toml(values, raw=False), WHERE)
            except UsageError as error:
                refused(error)
                continue
            taken += 1
            assert accepted(dump(locked(spec))) == locked(spec)
    assert taken
