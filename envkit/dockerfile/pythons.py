"""Which Python a word means at one moment of a build: ``pip``, ``python3.11 -m pip``, ``/opt/venv/bin/pip``, a conda
name.

A build says so in many places: the base, apt, PATH, links, virtual environments, conda's environments, an installer.
Each is taken down as the steps go by, and a name is looked up as the shell would: through PATH.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from envkit.dockerfile import options, pip, system
from envkit.dockerfile.bases import PATH
from envkit.dockerfile.files import absolute
from envkit.patterns import pattern
from envkit.records import dataclass, replace
from envkit.subjects.dockerfile import Base, Carried, Command, Install, Step

SYSTEM = "/usr/local"  # where pip puts what it installs for a Python of the system, as root
_NUMBERED = pattern(r"(?:python|pip)(\d+\.\d+)")
_PLAIN = pattern(r"(?:python|pip)[23]?")
_PROGRAM = pattern(r"python[0-9.]*")
_CONDAS = ("miniconda", "anaconda", "archiconda", "miniforge", "mambaforge", "micromamba")
_CONDA_ROOT = pattern(r"(?:ana|archi|mini)?(?:conda|forge|mamba)[0-9]?|micromamba")
_GET_PIP = pattern(r"\bget[-_]?pip\w*\.py")  # which a build may store under a name of its own
_UV_VENV = options.grammar("uv venv")
_APT_PYTHON = pattern(r"python(3\.\d+)(?:-(?:minimal|full|dev|venv|distutils))?")
# What brings Python 2 where the package python is that.
_APT_PYTHON2 = pattern(r"python(?:-(?:all|all-dev|dev|minimal|numpy|pip|scipy|setuptools|tk|virtualenv|wheel))?")


_LSB_IN_SHELL = 11  # the minor of Python in the first systems whose lsb-release is no program in Python


@dataclass(frozen=True, slots=True)
class Python:
    """One Python environment: ``version`` "3.11" or "" where not known, ``prefix`` its folder or "" where not known."""

    version: str = ""
    prefix: str = ""


@dataclass(slots=True)
class Pythons:
    """The Pythons of one stage so far; ``copy`` for a stage that is FROM it."""

    distro: str = ""  # the version of the distribution's python3, "" where not known
    packaged: str = ""  # of an image that nobody knows: what a package of its distribution would be
    prefixes: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    has_python3: bool = False
    has_pip: bool = False
    python2: str = ""  # the version of the distribution's package python where that is Python 2
    own_pip: str = ""  # whose pip get-pip.py put into /usr/local/bin
    conda_root: str = ""
    login: str = ""  # the environment that a login shell activates
    priorities: dict[str, int] = field(default_factory=dict)  # of the alternatives among ``links``
    without_pip: set[str] = field(default_factory=set)  # environments that uv made, which have no pip of their own
    managed: str = ""  # the newest Python that uv was asked to install
    known: bool = False  # whether packages, links and prefixes name every Python that is there
    homes: dict[str, str] = field(default_factory=dict)  # of a virtual environment: where its Python is, "" not known

    def copy(self) -> Pythons:
        """A state of its own for another stage."""
        return replace(self, prefixes=dict(self.prefixes), links=dict(self.links), priorities=dict(self.priorities),
                       without_pip=set(self.without_pip), homes=dict(self.homes))  # fmt: skip

    def begin(self, base: Base, distro: str, python2: str = "") -> None:
        """Starts with what an external image holds; its system's python3 is ``distro``, its Python 2 ``python2``."""
        version = _minor(base.python.value or "")
        self.python2 = python2
        self.known = base.sure and not base.digest and base.family in ("os", "nvidia", "python")
        if base.family == "os" or base.family == "nvidia":
            self.distro = distro
            self.has_python3 = self.has_pip = bool(version)
            return
        if version.startswith("2.") and base.family in ("other", "unknown"):
            self.distro, self.python2 = distro, version
            self._bring_python2(with_pip=True)
            return
        self.distro = distro if base.family in ("python", "conda") else distro or version
        if not version and not base.python.missing:
            return
        if base.family in ("conda", "pytorch"):
            self.conda_root = "/opt/conda"
            self.prefixes["/opt/conda"] = version
        elif base.family == "python":
            self.prefixes[SYSTEM] = version
        else:
            self.has_python3 = self.has_pip = True
            # Somebody's own image on a distribution may well hold another Python than that one's.
            self.distro, self.packaged = (version, distro) if base.family == "unknown" else (version or distro, "")
            self.links.setdefault("/usr/bin/python", "python3")

    # ---------------------------------------------------------------- what a command changes

    def take(
        self, command: Command, env: Mapping[str, str | None], active: str, trail: system.Trail | None = None
    ) -> None:
        """Takes down what a command changes; ``active`` is the environment that the RUN has activated."""
        words = [word.text for word in command.words]
        program = command.program
        made = pip.environment(command)
        if made is not None:
            its = self.look(made.python or "python3", env, command.cwd, active)
            place = absolute(made.path, command.cwd)
            self.prefixes[place], self.homes[place] = its.version, self.home(its)
        elif program.startswith("python"):
            self._of_python(words, self.look(words[0], env, command.cwd, active).version, trail)
        elif program == "uv" and words[1:2] == ["venv"]:
            given = options.read(command.words[2:], _UV_VENV)
            chosen = given.last("--python")
            version = _minor(chosen.text if chosen else env.get("UV_PYTHON") or "") or self.managed
            place = (env.get("VIRTUAL_ENV") if words[2:] else "") or ".venv"
            place = absolute(given.rest[-1].text if given.rest else place, command.cwd)
            version = version or self.found(env, command.cwd, active)
            self.homes[place] = self.uv_home(version, env)
            self.prefixes[place] = version
            if "--seed" not in given.names() and "UV_VENV_SEED" not in env:
                self.without_pip.add(place)
        elif program == "pyenv" and words[1:2] in (["global"], ["local"], ["shell"]) and len(words) > 2:
            self.links["pyenv"] = _minor(words[2])
        elif program in ("echo", "printf") and any(
            "bashrc" in r.target.text or "profile" in r.target.text for r in command.redirects
        ):
            found = re.search(r"(?:conda|micromamba|mamba|source) activate ([\w./-]+)", " ".join(words))
            if found:
                self.login = self.environment(found[1])
        for link in system.links(command, trail):
            path = link.name if link.name.startswith("/") else posixpath.join("/usr/bin", link.name)
            if link.priority < 0 or link.priority >= self.priorities.get(path, 0):
                self.links[path] = link.target
                self.priorities[path] = max(link.priority, 0)

    def _of_python(self, words: list[str], version: str, trail: system.Trail | None) -> None:
        """A pip of its own that a Python of this version gets."""
        if _GET_PIP.search(words[1] if words[1:2] not in ([], ["-"]) else trail.piped if trail else ""):
            self.own_pip = version
        elif words[1:3] == ["-m", "ensurepip"]:
            self.own_pip = self.own_pip or version
        elif words[1:3] == ["-m", "easy_install"] and any(re.match(r"pip(?:[=<>]|\Z)", word) for word in words[3:]):
            self.own_pip = version

    def add(self, install: Install) -> None:
        """Takes down an install that is itself a Python or belongs to one."""
        name, manager = install.name, install.manager
        if manager == "apt" and self.python2 and _APT_PYTHON2.fullmatch(name):
            self._bring_python2(with_pip=name == "python-pip")
        elif manager in ("apt", "dnf", "apk", "zypper", "yum"):
            numbered = _APT_PYTHON.fullmatch(name)
            if re.fullmatch(r"python3(?:-(?:minimal|dev|venv|full|setuptools))?", name):
                self.has_python3 = True
                self.distro = self.distro or self.packaged
            elif name in ("python3-pip", "python-pip", "py3-pip", "py-pip"):
                self.has_python3 = self.has_pip = True
                self.distro = self.distro or self.packaged
            elif name == "python-is-python3":
                self.has_python3 = True
                self.links["/usr/bin/python"] = "python3"
            elif manager == "apt" and self._needs_python3(name):
                self.has_python3 = True
                self.distro = self.distro or self.packaged
            elif numbered:
                self.links[f"/usr/bin/python{numbered[1]}"] = f"python{numbered[1]}"
        elif manager == "conda" and name == "python":
            open_end = not install.version and ">" in install.specifier and "<" not in install.specifier
            self.prefixes[self.environment(install.target.removeprefix("conda:"))] = (
                "" if open_end else _minor(install.version or install.specifier)  # of ">=A.B" conda takes the newest
            )
        elif manager == "conda" and install.target.startswith("conda:"):
            self.prefixes.setdefault(self.environment(install.target.removeprefix("conda:")), "")
        elif name == "python" and manager == "uv":
            self.managed = _minor(install.version or install.specifier)
        elif name == "python" and manager == "source":
            version = _minor(install.version)
            if "--pyenv" in install.options or "pyenv" in install.target:
                self.links.setdefault("pyenv", version)
            else:
                self.links[f"/usr/local/bin/python{version}"] = f"python{version}"
                if "altinstall" not in install.options:
                    self.prefixes[SYSTEM] = version
        elif name in _CONDAS and manager == "source":
            root = install.target if install.target.startswith("/") else f"/root/{name}3"
            self.conda_root = root
            found = re.fullmatch(r"py(\d)(\d+)", install.local)
            self.prefixes[root] = f"{found[1]}.{found[2]}" if found else ""

    def _bring_python2(self, *, with_pip: bool) -> None:
        self.links[f"/usr/bin/python{self.python2}"] = f"python{self.python2}"
        for program in ("python", "python2", *(("pip", "pip2") if with_pip else ())):
            self.links.setdefault(f"/usr/bin/{program}", f"python{self.python2}")

    def _needs_python3(self, package: str) -> bool:
        """Whether a package of apt requires python3: those that are named after it, and tools written in it.

        lsb-release is a shell script since Debian 12 and Ubuntu 24.04.
        """
        if package.startswith("python3-") or package == "software-properties-common":
            return True
        minor = self.distro.partition(".")[2]
        return package == "lsb-release" and minor.isdigit() and int(minor) < _LSB_IN_SHELL

    # ---------------------------------------------------------------- questions

    def environment(self, name: str) -> str:
        """The folder of a conda environment, given its name or its folder; "" and "base" are the root."""
        root = self.conda_root or "/opt/conda"
        if name in ("", "base", "root"):
            return root
        if "/" in name:
            return name.rstrip("/")
        return f"{root}/envs/{name}"

    def activated(self, name: str, cwd: str) -> str:
        """The folder of the environment that an activation names; "" where it ends one, or only the build knows."""
        if not name or "$" in name:
            return ""
        return self.environment(name) if "/" not in name else absolute(name, cwd)

    def look(self, program: str, env: Mapping[str, str | None], cwd: str = "", active: str = "") -> Python:
        """The Python that a program's name or path means; empty where the text does not say."""
        name = program.rsplit("/", 1)[-1]
        if re.fullmatch(r"\d+\.\d+(\.\d+)?", program):  # a version instead of a name, as uv and virtualenv take it
            return Python(_minor(program), SYSTEM)
        if "/" in program:
            return self._at(absolute(program, cwd), 0)
        if active and _PLAIN.fullmatch(name) and not (name.startswith("pip") and active in self.without_pip):
            return Python(self.prefixes.get(active, ""), active)
        path = env.get("PATH") or PATH
        for folder in path.split(":"):
            found = self._in(folder.rstrip("/"), name, 0)
            if found is not None:
                return found
        numbered = _NUMBERED.fullmatch(name)
        if numbered:
            return Python(numbered[1], SYSTEM)
        if self.own_pip and name.startswith("pip"):
            return Python(self.own_pip, SYSTEM)
        return Python()

    def _in(self, folder: str, name: str, depth: int) -> Python | None:
        """What ``name`` is in one folder of PATH, None where it is not there as far as is known."""
        path = f"{folder}/{name}"
        prefix = folder.removesuffix("/bin")
        numbered = _NUMBERED.fullmatch(name)
        if folder == "/usr/local/bin" and self.own_pip and name in ("pip", f"pip{self.own_pip[0]}"):
            return Python(self.own_pip, SYSTEM)
        if path in self.links and depth < 8:
            return self._at(self._beside(folder, self.links[path]), depth + 1)
        if "pyenv" in self.links and (folder.endswith("/shims") or "/.pyenv" in folder or "/pyenv" in folder):
            return Python(self.links["pyenv"], folder.removesuffix("/shims"))
        if prefix in self.prefixes and (folder.endswith("/bin") or _CONDA_ROOT.fullmatch(prefix.rsplit("/", 1)[-1])):
            version = self.prefixes[prefix]
            if name.startswith("pip") and prefix in self.without_pip:
                return None
            if numbered:
                return Python(numbered[1], prefix) if version in ("", numbered[1]) else None
            return Python(version, prefix) if _PLAIN.fullmatch(name) else None
        if folder == "/usr/bin":
            if numbered:
                return Python(numbered[1], SYSTEM) if path in self.links or numbered[1] == self.distro else None
            if name == "python3" and self.has_python3:
                return Python(self.distro, SYSTEM)
            if name in ("pip", "pip3") and self.has_pip:
                return self._in("/usr/bin", "python3", depth + 1) if depth < 8 else None
        return None

    def _beside(self, folder: str, target: str) -> str:
        if target.startswith("/"):
            return target
        if "/" in target:
            return posixpath.normpath(posixpath.join(folder, target))
        return f"{folder}/{target}"

    def _at(self, path: str, depth: int) -> Python:
        folder, _, name = path.rpartition("/")
        numbered = _NUMBERED.fullmatch(name)
        if path in self.links and self.links[path].rsplit("/", 1)[-1] == name and numbered:
            return Python(numbered[1], SYSTEM)  # a Python that a package or an installer put there
        found = self._in(folder, name, depth) if depth < 8 else None
        if found is not None:
            return found
        prefix = folder.removesuffix("/bin")
        if prefix in ("/usr", "/usr/local"):
            prefix = SYSTEM
        version = numbered[1] if numbered else self.prefixes.get(prefix, "")
        return Python(version, prefix)

    def home(self, python: Python) -> str:
        """The folder above the ``bin`` that holds the program of a Python, for a virtual environment has a link alone;
        "" where not known."""
        if python.prefix != SYSTEM:
            return self.homes.get(python.prefix, python.prefix if python.prefix in self.prefixes else "")
        if not python.version:
            return ""
        if self.prefixes.get(SYSTEM) == python.version or f"/usr/local/bin/python{python.version}" in self.links:
            return SYSTEM
        of_system = self.has_python3 and self.distro == python.version
        return "/usr" if of_system or f"/usr/bin/python{python.version}" in self.links else ""

    def uv_home(self, version: str, env: Mapping[str, str | None]) -> str:
        """As ``home``, of an environment that uv makes: of the system's Python, or of one that it installs, for it was
        asked to or finds none (uv documentation, UV_PYTHON_INSTALL_DIR and "Automatic Python downloads")."""
        there = self.home(Python(version, SYSTEM))
        if there or not ((version and version == self.managed) or self._without(version)):
            return there
        return (env.get("UV_PYTHON_INSTALL_DIR") or f"{env.get('HOME') or '/root'}/.local/share/uv/python").rstrip("/")

    def _without(self, version: str) -> bool:
        """Whether the stage surely has no Python of this version, of "" none at all, outside of virtual
        environments."""
        if not self.known or self.conda_root or "pyenv" in self.links or self.prefixes.keys() - self.homes - {SYSTEM}:
            return False
        there = {found[1] for path in self.links if (found := _NUMBERED.fullmatch(path.rsplit("/", 1)[-1]))}
        if SYSTEM in self.prefixes:  # the full images of Python hold their distribution's as well
            there |= {self.prefixes[SYSTEM], self.distro}
        if self.has_python3:
            there.add(self.distro)
        return not there if not version else not there & {version, ""}

    def lacks(self, home: str, version: str) -> bool:
        """Whether the Python of this version is surely not below ``home``, as far as packages, links and environments
        say."""
        if any(path.startswith(f"{home}/bin/python") for path in self.links):
            return False
        if home == SYSTEM:
            return self.prefixes.get(SYSTEM, "none") not in ("", version)
        if home == "/usr":
            return not self.has_python3 or self.distro not in ("", version)
        return home not in self.prefixes

    def locate(self, install: Install, command: Command, env: Mapping[str, str | None], active: str) -> Python:
        """The environment that an install goes into."""
        target, cwd = install.target, command.cwd
        if target.startswith("conda:"):
            name = target.removeprefix("conda:")
            prefix = self.environment(name) if name else active or self.environment("")
            return Python(self.prefixes.get(prefix, ""), prefix)
        if target.startswith("uv:"):
            return self._uv(target.removeprefix("uv:"), env, cwd, active)
        tool, colon, place = target.partition(":")
        if colon and tool == "poetry":
            made = self.look("python3", env, cwd, active)
            if not made.version:  # of a distribution's python3 that nothing here installs; the tool runs with another
                made = self.look("python", env, cwd, active)
            if place == "system":
                return made
            # An environment of the tool's own, made of the Python that is there.
            prefix = place if place.startswith("/") else target
            return Python(self.prefixes.get(prefix) or made.version, prefix)
        program = target.split(" ", 1)[0] if target else "pip"
        found = self.look(program, env, cwd, active)
        if not found.version and program in ("pip", "pip3") and not found.prefix:
            # pip is there, or the command would fail; where nothing says whose it is, it is the Python that is there
            return self.look("python3", env, cwd, active)
        return found

    def _uv(self, target: str, env: Mapping[str, str | None], cwd: str, active: str) -> Python:
        if target == "--system":
            return self.look("python3", env, cwd, active)
        if target.startswith("/") and not _PROGRAM.fullmatch(target.rsplit("/", 1)[-1]):
            version = self.prefixes.get(target, "") or _minor(env.get("UV_PYTHON") or "") or self.managed
            return Python(version or self.look("python3", env, cwd, active).version, target)
        if target not in ("", "VENV"):
            version = "" if "/" in target else _minor(target)
            return Python(version, SYSTEM) if version else self.look(target, env, cwd, active)
        folder = env.get("VIRTUAL_ENV") or env.get("UV_PROJECT_ENVIRONMENT") or active
        if folder:
            prefix = absolute(folder, cwd)
        else:
            near = (p for p in _upward(cwd) if p in self.prefixes)
            prefix = next(near, "") or self._venv_on_path(env) or absolute(".venv", cwd)
        version = self.prefixes.get(prefix, "") or _minor(env.get("UV_PYTHON") or "") or self.managed
        return Python(version or self.found(env, cwd, active), prefix)

    def _venv_on_path(self, env: Mapping[str, str | None]) -> str:
        """The virtual environment whose bin comes first on PATH, which ``uv pip`` takes where none is active."""
        for folder in (env.get("PATH") or "").split(":"):
            prefix = folder.rstrip("/").removesuffix("/bin")
            if prefix in self.prefixes and prefix != folder.rstrip("/"):
                conda_made = self.conda_root and f"{prefix}/".startswith(f"{self.conda_root}/")
                return "" if conda_made or prefix == SYSTEM else prefix
        return ""

    def found(self, env: Mapping[str, str | None], cwd: str = "", active: str = "") -> str:
        """The version that uv finds on PATH where nothing asks for one: python3's, else that of the one Python that is
        there by its number alone (uv documentation, "Discovery of Python versions").
        """
        version = self.look("python3", env, cwd, active).version or self.look("python", env, cwd, active).version
        numbered = {found[1] for path in self.links if (found := _NUMBERED.fullmatch(path.rsplit("/", 1)[-1]))}
        return version or (numbered.pop() if len(numbered) == 1 else "")


# What may put a Python beside those that packages, links and environments show.
_ANY_PYTHON = pattern(
    r"/usr/local\b|/usr/bin/python|\b(?:make|tar|ln|curl|wget|conda|mamba|pyenv|uv)\b|-m\s+venv|\bvirtualenv\s"
)


def carried(moved: Sequence[Carried], pythons: Pythons, base: Base, steps: Sequence[Step]) -> tuple[Carried, ...]:
    """The environments out of other stages; those whose Python the stage certainly does not have are left by it."""
    commands = [step for step in steps if step.name in ("RUN", "SHELL")]
    hidden = any(each.system for step in steps for each in step.unread) or any(
        _ANY_PYTHON.search(step.value) for step in commands
    )
    started = [one.program for step in steps if step.name in ("CMD", "ENTRYPOINT") for one in step.commands]
    plain = base.sure and not base.digest and base.family in ("os", "nvidia", "python")
    if hidden or not plain or "uv" in started:  # which makes an environment anew whose Python is gone
        return tuple(moved)
    # Many a package brings the distribution's python3, and Debian's own is in the full images of Python as well.
    apt = any(one.manager == "apt" for step in steps for one in step.installs)
    copied = [posixpath.normpath(step.copy.target) for step in steps if step.copy is not None]

    def left(one: Carried) -> bool:
        if one.home == "/usr" and (base.family == "python" or (apt and pythons.distro == one.version)):
            return False
        comes = any(within(to, one.home) or within(one.home, to) for to in copied)
        return not comes and pythons.lacks(one.home, one.version)

    return tuple(replace(one, left=left(one)) for one in moved)


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _upward(cwd: str) -> list[str]:
    parts = cwd.rstrip("/").split("/")
    return ["/".join(parts[:count]) + "/.venv" for count in range(len(parts), 0, -1)]


def _minor(text: str) -> str:
    """The first two numbers of a version in ``text`` ("3.11.4", "=3.11", "cpython-3.12"), "" without."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return f"{found[1]}.{found[2]}" if found else ""
