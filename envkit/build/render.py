"""A lock to the text of a Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

import jinja2

from envkit import __version__
from envkit.plan.flavors import stand_in
from envkit.plan.image_table import NOTHING, Healthcheck
from envkit.plan.lockfile import TORCH_NEEDS, Lock, built_for, dump, requirements
from envkit.records import dataclass
from envkit.system import files

# The entry point of an image with a guard; the command stands behind it.
GUARD = ("/opt/venv/bin/python", "-I", "-S", "/usr/share/envkit/guard.py", "--")
CUDA = "cuda"  # the stage of CUDA's libraries, which takes most of the bytes, and the name of their wheels' group


@dataclass(frozen=True, slots=True)
class Group:
    """Wheels that make one layer of the image: the build stage's name, the flavor that first holds it, requirement
    lines with hashes, and the programs inside (name, path in site-packages) that get a name on PATH.

    ``apart``: made in a stage of its own beside the others and copied, which doubles the writing; else made in place.
    CUDA's libraries are most of the bytes, so they are made in place; torch takes one processor as long to unpack, so
    that is done meanwhile, and a step of its own brings it in and writes its byte code.  Triton waits for neither: it
    shrinks to a quarter (benchmarks/README.md has the figures).  Without CUDA what torch needs is made in place, first.
    ``unindexed``: no index has some of them."""

    stage: str
    layer: str
    requirements: str
    apart: bool
    programs: tuple[tuple[str, str], ...] = ()
    unindexed: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the template needs beside the lock."""

    lock: Lock
    installer: str
    groups: tuple[Group, ...]
    apt_epoch: int
    components: str
    stand_in: str
    cuda_home: bool
    lock_sha256: str
    guard: str
    entrypoint: tuple[str, ...]

    def debs(self, layer: str) -> tuple[str, ...]:
        """The packages of a layer as apt-get takes them, with their versions where the lock holds these."""
        pinned = tuple(f"{deb.name}={deb.version}" for deb in self.lock.debs if deb.layer == layer)
        return pinned if self.lock.archive else self.lock.apt.get(layer, ())

    @property
    def cuda(self) -> bool:
        """Whether the wheels bring CUDA: not where the base does, and not beside a torch without it."""
        return self.lock.cuda is not None and not self.lock.preinstalled

    @property
    def staged(self) -> bool:
        """Whether something of the project goes into the image."""
        return self.lock.project is not None or bool(self.lock.inside.copy)

    @property
    def latest(self) -> int:
        """The latest time that a file of any layer bears, in seconds since 1970."""
        return max(self.lock.epoch, self.apt_epoch)

    @property
    def built_for(self) -> str:
        """What torch computes with, in words."""
        return built_for(self.lock)

    @property
    def tools(self) -> tuple[str, ...]:
        """The packages of the stage that makes the other layers: of the tools, those that the image has as well; all
        where versions, and with them whole closures, are unknown."""
        tools, own = self.debs("tools"), set(self.debs("runtime"))
        return tuple(deb for deb in tools if deb in own) if self.lock.archive and not self.lock.preinstalled else tools

    @property
    def installers(self) -> tuple[str, ...]:
        """The other tools: what a build without envkit needs to install the installer."""
        tools = {*self.tools}
        return tuple(deb for deb in self.debs("tools") if deb not in tools)

    def step(self, name: str) -> str:
        """The text of a file that goes into a build as it is."""
        return (files.shipped("templates") / name).read_text(encoding="utf-8")


def groups(lock: Lock) -> tuple[Group, ...]:
    """The layers of wheels, in the order of the image: what changes least comes first."""
    return tuple(_groups(lock))


def _groups(lock: Lock) -> Iterator[Group]:
    runtime = [pin for pin in lock.wheels if pin.layer == "runtime"]
    first = CUDA if lock.cuda else "torch-needs"
    if lock.preinstalled:
        kinds = {"wheels": runtime}
    else:
        kinds = {
            CUDA: [pin for pin in runtime if lock.cuda and pin.name.startswith("nvidia-")],
            "triton": [pin for pin in runtime if pin.name == "triton"],
            "torch": [pin for pin in runtime if pin.name == "torch"],
            "torch-needs": [pin for pin in runtime if pin.name in TORCH_NEEDS],
        }
        used = {pin for pins in kinds.values() for pin in pins}
        kinds["packages"] = [pin for pin in runtime if pin not in used]
        if not lock.cuda:  # what is made in place begins the environment
            kinds = {first: kinds.pop(first), **kinds}
    for stage, pins in kinds.items():
        if pins:
            apart = not lock.preinstalled and stage != first
            made = any(pin.name in lock.unindexed for pin in pins)
            yield Group(stage, "runtime", requirements(pins), apart, unindexed=made)
    for layer in ("devel", "debug"):
        pins = [pin for pin in lock.wheels if pin.layer == layer]
        programs = tuple((name, path) for of, name, path in lock.programs if of == layer and "/" in path)
        if pins:
            made = any(pin.name in lock.unindexed for pin in pins)
            yield Group(f"{layer}-wheels", layer, requirements(pins), True, programs, made)


def _label(text: str) -> str:
    """A text as the double-quoted value of a Dockerfile LABEL: quote, backslash and dollar are escaped."""
    if "\n" in text or "\r" in text:
        raise ValueError("a label's value has one line")
    return '"' + re.sub(r'(["\\$])', r"\\\1", text) + '"'


def _options(check: Healthcheck) -> str:
    """The options of a HEALTHCHECK, each with a blank behind it."""
    held = {"interval": check.interval, "timeout": check.timeout, "start-period": check.start_period}
    held |= {"retries": str(check.retries or "")}
    return "".join(f"--{name}={value} " for name, value in held.items() if value)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(files.shipped("templates")),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # this writes Dockerfiles; each value is held to a grammar and quoted for where it lands
    )
    environment.filters["label"] = _label
    environment.filters["shell"] = shlex.quote
    environment.filters["json"] = json.dumps  # in ASCII: nothing in it ends a line of a Dockerfile
    environment.filters["options"] = _options
    return environment


def guard_text() -> str:
    """The entry point of images with a guard, as it goes into them."""
    return (Path(__file__).parents[1] / "payload" / "guard.py").read_text(encoding="utf-8")


def template(name: str, values: Mapping[str, object]) -> str:
    """The template ``name`` filled with ``values``."""
    return _environment().get_template(name).render(values)


def apt_epoch(lock: Lock) -> int:
    """The time that files of the layers of Debian packages bear, in seconds since 1970: the archive's, where it is
    known; no change of a wheel touches these layers then."""
    return int(datetime.fromisoformat(lock.archive).timestamp()) if lock.archive else lock.epoch


def dockerfile(lock: Lock) -> str:
    """The Dockerfile for ``lock``: the same text for the same lock and envkit."""
    plan = _Plan(
        lock=lock,
        installer=requirements([lock.installer]),
        groups=groups(lock),
        apt_epoch=apt_epoch(lock),
        components=" ".join(part for part in lock.components if part != "main") or "-",
        stand_in=stand_in(lock.given),
        cuda_home=lock.cuda is not None and not lock.preinstalled and "nvcc" not in {tool for tool, _ in lock.missing},
        lock_sha256=sha256(dump(lock).encode()).hexdigest(),
        guard=guard_text() if lock.guard else "",
        entrypoint=GUARD if lock.guard else (),
    )
    below = "-base" if lock.project or lock.inside != NOTHING else ""
    values = {"lock": lock, "plan": plan, "large": CUDA, "below": below, "version": __version__}
    return template("Dockerfile.j2", values)
