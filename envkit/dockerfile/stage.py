"""A stage of a Dockerfile while its steps go by, and what installs and removals do to it."""

from __future__ import annotations

import posixpath
from dataclasses import field

from envkit.dockerfile import options, system, torches
from envkit.dockerfile.files import absolute
from envkit.dockerfile.pythons import SYSTEM, Python, Pythons
from envkit.dockerfile.requirements import allows
from envkit.dockerfile.tree import Tree
from envkit.facts import Facts
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Base, Carried, Command, Install, Removal, Torch
from envkit.subjects.resolved import Environment

Env = dict[str, str | None]

SHELL = ("/bin/sh", "-c")  # of a RUN, where no SHELL says otherwise


@dataclass(slots=True)
class StageState:
    """What a stage has after the steps that went by."""

    args: Env
    env: Env
    tree: Tree
    pythons: Pythons
    workdir: str = "/"
    user: str = ""
    shell: tuple[str, ...] = SHELL
    trail: system.Trail = field(default_factory=system.Trail)
    installs: list[Install] = field(default_factory=list)
    last: dict[tuple[str, str], Install] = field(default_factory=dict)  # of pip and uv, by name and environment
    chosen: set[tuple[str, str]] = field(default_factory=set)  # those of ``last`` that came beside a pinned torch
    near: list[Install] = field(default_factory=list)  # those that may decide which torch another one gets
    torches: list[Torch] = field(default_factory=list)
    moved: list[Carried] = field(default_factory=list)  # virtual environments out of other stages
    held: dict[str, Environment] = field(default_factory=dict)  # by folder, where somebody follows the installs

    def child(self) -> StageState:
        """The state that a stage FROM this one begins with."""
        return replace(
            self,
            args=dict(self.args),
            env=dict(self.env),
            tree=self.tree.copy(),
            pythons=self.pythons.copy(),
            installs=list(self.installs),
            last=dict(self.last),
            chosen=set(self.chosen),
            near=list(self.near),
            torches=list(self.torches),
            moved=[],
            held=dict(self.held),
        )

    def seen(self) -> Env:
        """The variables of a RUN: ENV outranks ARG."""
        return {**self.args, **self.env}

    def shell_environment(self) -> str:
        """The environment in which SHELL runs every command, "" for none."""
        argv = self.shell
        if len(argv) > 2 and posixpath.basename(argv[0]) in ("conda", "mamba", "micromamba") and argv[1] == "run":
            return self.pythons.environment(options.value_of(argv, "-n", "--name", "-p", "--prefix"))
        logs_in = not {"-l", "--login", "-i", "-lc", "-ic", "-ilc", "-lic"}.isdisjoint(argv[1:])
        return self.pythons.login if logs_in and posixpath.basename(argv[0]) in system.SHELLS else ""

    def placed(self, install: Install, command: Command, active: str) -> Install:
        """``install`` with the Python and the folder that it goes to, ``active`` being the active environment."""
        if install.manager in ("apt", "dnf", "apk", "yum", "zypper") or install.prefix:
            return install
        where = self.pythons.locate(install, command, command.env, active)
        prefix = _prefix(install, command, where, self.user)
        if install.manager == "uv" and prefix not in {"", SYSTEM, *self.pythons.prefixes}:
            self.pythons.homes[prefix] = self.pythons.uv_home(where.version, command.env)
        if install.target == f"uv:{prefix}":  # which it makes where there is none
            self.pythons.prefixes.setdefault(prefix, where.version)
        if install.name == "pip":
            self.pythons.without_pip.discard(prefix)
        if install.name == "pip" and install.manager == "pip" and where.prefix == SYSTEM == prefix and where.version:
            self.pythons.own_pip = where.version  # its script in /usr/local/bin is what `pip` means from now on
        return replace(install, python=where.version, prefix=prefix)

    def remove(self, removal: Removal) -> None:
        """Takes away what a command surely uninstalls."""
        if not removal.sure:
            return
        self.installs = [i for i in self.installs if i.name != removal.name]
        self.last = {key: i for key, i in self.last.items() if i.name != removal.name}
        for prefix, environment in self.held.items():
            self.held[prefix] = {name: dist for name, dist in environment.items() if name != removal.name}
        if removal.name in ("torch", "pytorch"):
            self.torches.clear()

    def take(self, installs: list[Install], base: Base | None, facts: Facts, *, arm: bool, along: bool = True) -> None:
        """Puts what a command installs to what the stage has, and its torch; ``along``: also what others ask for."""
        here = [
            i
            for i in installs
            if (i.manager == "conda" and i.name in torches.DECIDING) or (i.constraint and i.name == "torch")
        ]
        # One said later in the same words is the one that counts; the rest would only be searched again and again.
        told = {_decides(i) for i in here}
        self.near = [*(i for i in self.near if _decides(i) not in told), *here] if here else self.near
        near = (*here, *self.near)
        new = [i for i in installs if not self._kept(i)]
        pins = {i.prefix for i in installs if i.name == "torch" and i.version and i.sure}  # they choose what is beside
        for install in new:
            self.installs.append(install)
            if install.manager in ("pip", "uv") and not install.constraint:
                key = install.name, install.prefix
                self.last[key] = install
                (self.chosen.add if install.prefix in pins else self.chosen.discard)(key)
            if base is None or not torches.is_torch(install) or not install.sure:
                continue
            pin = next((i for i in reversed(self.near) if i.constraint), None)
            if pin is not None and not install.version and install.manager != "conda":
                install = replace(install, version=pin.version, local=install.local or pin.local)
            torch = torches.of_install(install, near, base, facts, arm=arm)
            if not torches.satisfied(install, self.torches, torch, facts):
                self.torches.append(torch)
        if base is not None and along:
            self._bring_along(new, base, facts, arm=arm)

    def _kept(self, install: Install) -> bool:
        key = install.name, install.prefix
        return torches.kept(install, self.last.get(key), chosen=key in self.chosen)

    def _bring_along(self, installs: list[Install], base: Base, facts: Facts, *, arm: bool) -> None:
        """Puts the torch that a package of one command asks for exactly in the place of the one there was."""
        own = [i for i in installs if torches.is_torch(i) and i.sure]
        if any(i.version or i.url or i.locked or i.manager not in ("pip", "uv") for i in own):
            return  # the same release, or the installer refuses the two
        for install in installs:
            if self._vision_stays(install):
                continue
            near = [i for i in self.torches if not i.prefix or not install.prefix or i.prefix == install.prefix]
            there = near[-1] if near else None
            torch = torches.brought(install, there, base, facts, arm=arm)
            if torch is None:
                continue
            if there is not None and there.install is not None and any(i.span == there.span for i in own):
                # One resolver chooses both, from what the requirement of torch itself allows.
                if install.version and allows(there.install.specifier, torch.version.value or "") is not False:
                    self.torches[self.torches.index(there)] = replace(torch, span=there.span, install=there.install)
                return
            self.torches.append(torch)
            return

    def _vision_stays(self, install: Install) -> bool:
        """Whether a torchvision without a release is asked for, and one is there, of the base's or of its own build."""
        if install.name != "torchvision" or install.version:
            return False
        others = (one for one in self.installs if one is not install)
        held = any(torch.method == "base" for torch in self.torches)
        return held or any(one.name == "torchvision" or "vision" in one.url for one in others)


def _prefix(install: Install, command: Command, where: Python, user: str) -> str:
    """The folder that an install goes below, by its options and its user; "" where only the build knows it."""
    if install.manager not in ("pip", "uv"):
        return where.prefix
    told = {name: value for name, _, value in (option.partition("=") for option in install.options) if value}
    for name in ("--target", "--prefix", "--root"):
        if name in install.options:
            folder = told.get(name, "")
            if not folder or "$" in folder or "`" in folder:
                return ""
            own = where.prefix if name == "--root" else ""
            return posixpath.normpath(f"{absolute(folder, command.cwd)}/{own}")
    home = command.env.get("HOME") or "/root"
    if "--user" in install.options:
        return f"{home}/.local"
    unprivileged = bool(user) and user.split(":")[0] not in ("root", "0")
    if install.manager == "pip" and where.prefix == SYSTEM and unprivileged and command.raw_words:
        return where.prefix if command.raw_words[0].text == "sudo" else f"{home}/.local"
    return where.prefix


def _decides(install: Install) -> tuple[object, ...]:
    """What makes two installs say the same of the torch that another one gets."""
    return install.manager, install.name, install.prefix, install.constraint, bool(install.version or install.specifier)
