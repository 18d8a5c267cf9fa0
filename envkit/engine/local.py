"""The same lock without an engine: a private virtual environment, made by uv from the same hashed requirements.

It isolates nothing: the payload runs as this user, on this machine's network, driver and system libraries, and the
labels of every environment say so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from envkit.credentials import names_secret
from envkit.engine import (
    Ability,
    Attend,
    BaseRequest,
    BuildRequest,
    BuiltImage,
    DeclaredStart,
    JobEnd,
    JobLine,
    JobRequest,
    ResolvedBase,
    Say,
    Start,
    StoredImage,
    cannot,
    where_they_lie,
)
from envkit.engine.transfer import Transfer
from envkit.engine.trouble import explain
from envkit.errors import Undecided, UsageError
from envkit.system import files, proc
from envkit.system.no_room import refused
from envkit.system.proc import Completed
from envkit.system.terminal import Live

ISOLATION_LABEL = "io.envkit.isolation"
_COMPLETE = "envkit-complete.json"  # written last; an environment without it is a ruin and is made again


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock file ``path``: two envkits that want one environment make it once.  The kernel frees it at
    death."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _size(root: Path) -> int:
    return sum(entry.lstat().st_size for entry in root.rglob("*") if not entry.is_dir())


def _is_here(tool: str, python: str, environment: Mapping[str, str]) -> bool:
    """Whether uv finds that Python on this machine."""
    find = [tool, "python", "find", "--no-config", "--no-project", "--no-python-downloads", "--system", python]
    return proc.run(find, timeout_s=60, env=environment).exit == 0


class LocalEngine:
    """Environments under ``root``: ``venvs/<hash of what is in it>`` and ``tags/``, a name for each."""

    name = "local"
    containers = False
    abilities = frozenset({Ability.BUILD})
    where = "this machine"

    def __init__(self, root: Path) -> None:
        self._venvs = files.folder(root / "venvs")
        self._tags = files.folder(root / "tags")

    def resolve_base(self, request: BaseRequest, say: Say) -> ResolvedBase:
        """This machine as it is: there is no other base here, and nothing of it is pinned."""
        fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.M))
        machine = f"{fields.get('ID', 'linux')}:{fields.get('VERSION_ID', 'unknown')}"
        say(f"the local engine runs on this machine ({machine}) in place of {request.ref}")
        return ResolvedBase(machine, "this machine", "local", "")

    def _record(self, tag: str) -> Path:
        return self._tags / (hashlib.sha256(tag.encode()).hexdigest()[:32] + ".json")

    def _find(self, image: str) -> tuple[Path, dict[str, str]]:
        """The environment behind a tag or an id, and its labels."""
        record = self._record(image)
        if record.is_file():
            content = json.loads(record.read_text())
            venv = self._venvs / content["venv"]
            if (venv / _COMPLETE).is_file():
                return venv, dict(content["labels"])
        raise UsageError(
            f"the local engine has no environment {image}", "build it first: envkit up SPEC --engine local"
        )

    def build(self, request: BuildRequest, say: Say) -> BuiltImage:
        """Makes the environment of ``requirements.txt`` in the context (every line with its hashes) for the Python
        version ``args["PYTHON"]``, also from wheels in ``contexts["unindexed"]``; the same requirements are installed
        once and shared by all tags.

        ``secrets["ca"]`` is the CA bundle for uv, ``secrets["index"]`` the variables that name its indexes.  Raises
        UsageError without requirements or version, Undecided if uv fails or ``timeout_s`` seconds pass.
        """
        started = time.monotonic()
        requirements = request.context / "requirements.txt"
        if not requirements.is_file():
            raise UsageError(f"{requirements} does not exist", "run envkit lock and envkit render first")
        python = request.args.get("PYTHON", "")
        if not python:
            raise UsageError("the local engine was not told which python to use", "name python in the spec")
        text = requirements.read_bytes()
        key = hashlib.sha256(text + b"\0" + python.encode()).hexdigest()[:32]
        venv = self._venvs / key
        deadline = started + request.timeout_s
        with proc.sigterm_raises(), _locked(self._venvs / f"{key}.lock"):
            if request.no_cache or not (venv / _COMPLETE).is_file():
                links = [f"--find-links={request.contexts['unindexed']}"] if "unindexed" in request.contexts else []
                self._make(venv, requirements, python, links, request.secrets, say, deadline)
            else:
                say(f"the environment {key[:12]} is here already")
            size = json.loads((venv / _COMPLETE).read_text())["size_bytes"]
        self._name(request.tag, key, {**request.labels, ISOLATION_LABEL: "none"})
        return BuiltImage(f"venv:{key}", request.tag, size, time.monotonic() - started)

    def _name(self, tag: str, key: str, labels: Mapping[str, str]) -> None:
        files.write(self._record(tag), json.dumps({"tag": tag, "venv": key, "labels": dict(labels)}), 0o600)

    def _make(
        self,
        venv: Path,
        requirements: Path,
        python: str,
        links: list[str],
        secrets: Mapping[str, Path],
        say: Say,
        deadline: float,
    ) -> None:
        """Builds beside the final place and renames: a relocatable environment has no path of its own in it."""
        environment = {**proc.FOR_INDEX, **os.environ}
        if "ca" in secrets:
            environment["SSL_CERT_FILE"] = str(secrets["ca"])
        if "index" in secrets:  # lines for a shell, "export NAME=VALUE"
            words = [word.partition("=") for word in shlex.split(secrets["index"].read_text(encoding="utf-8"))]
            environment.update((name, value) for name, there, value in words if there)
        tool = proc.uv_path()
        draft = self._venvs / f".making-{venv.name}"  # ours alone by the lock; a killed envkit's ruin goes first
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            say(f"making a virtual environment for python {python}")
            # Without --no-config uv would be steered by the uv.toml or pyproject.toml of the folder that envkit was
            # started in; variables (UV_DEFAULT_INDEX) steer it, as they do when the lock is solved.
            try:
                self._uv([tool, "venv", "--no-config", "--no-project", "--quiet", "--relocatable", "--python", python,
                          str(draft / "venv")], environment, say, deadline)  # fmt: skip
            except Undecided as error:
                if _is_here(tool, python, environment):
                    raise
                said = f"this machine has no Python {python}, and uv could not get one: {error.message}"
                raise Undecided(said, f"install python{python}, or use --engine docker") from None
            say("installing the locked wheels")
            self._uv(
                [tool, "pip", "install", "--no-config", "--require-hashes", "--no-deps", "--only-binary=:all:", *links,
                 "--python", str(draft / "venv/bin/python"), "--requirement", str(requirements)],
                environment, say, deadline,
            )  # fmt: skip
            complete = {"size_bytes": _size(draft / "venv"), "python": python}
            (draft / "venv" / _COMPLETE).write_text(json.dumps(complete))
            if venv.exists():
                venv.rename(draft / "old")
            (draft / "venv").rename(venv)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _uv(self, argv: list[str], environment: Mapping[str, str], say: Say, deadline: float) -> None:
        budget = max(1.0, deadline - time.monotonic())
        came = Transfer()

        def progress(line: str) -> None:
            say(f"uv: {line.strip()}")
            if came.line(line) and str(came):
                say(Live(f"downloaded {came}"))

        done = proc.run(argv, timeout_s=budget, env=environment, on_line=progress)
        if done.timed_out:
            raise Undecided(f"uv did not end within {budget:.0f} s", "check the speed of the network, and run again")
        if done.exit == 0:
            return
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        known = explain(lines, where=str(self._venvs), free=shutil.disk_usage(self._venvs).free)
        known = known or refused(done, f"uv {argv[1]}", (self._venvs, os.environ.get("TMPDIR", "")))
        if known is not None:
            raise known
        fence = "".join(f"\n{line}" for line in ["```", *lines[-30:], "```"])
        raise Undecided(f"uv {argv[1]} ended with exit code {done.exit}{fence}", "fix what it names and run again")

    def layers(self, image: str) -> tuple[str, ...]:
        """There are none: a virtual environment has no layers."""
        raise UsageError(f"the environment {image} has no layers", "use --engine docker")

    def stored(self, image: str) -> StoredImage:
        """The environment behind ``image``, which is one folder."""
        venv, _ = self._find(image)
        size = json.loads((venv / _COMPLETE).read_text())["size_bytes"]
        return StoredImage(f"venv:{venv.name}", size, roots=(venv,))

    def follow(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Mapping[str, tuple[Path, bool]],
        gpus: tuple[str, ...] = (),
        network: str = "",
        placed: DeclaredStart | None = None,
        timeout_s: float,
        say: Say,
    ) -> Completed:
        """Not possible: without --image, `envkit debug` runs a command of this machine."""
        raise cannot(self, Ability.FOLLOW)

    def digest(self, ref: str) -> str:
        """Not possible: it speaks to no registry."""
        raise cannot(self, Ability.DIGEST)

    def file(self, image: str, path: str) -> bytes:
        """Not possible: what is not in the virtual environment is this machine's own."""
        raise UsageError(f"the environment {image} is no image", "use --engine docker")

    def load(self, saved: Path, request: BaseRequest) -> ResolvedBase:
        """Not possible: there is no other base here than this machine."""
        raise UsageError("a saved base needs a container engine", "use --engine docker")

    def save(self, image: str, target: Path) -> None:
        """Not possible: a virtual environment is no image."""
        raise UsageError(f"the environment {image} is no image", "use --engine docker")

    def push(self, image: str, ref: str, say: Say) -> str:
        """Never: no registry takes an environment."""
        raise cannot(self, Ability.PUSH)

    def join(self, index: str, pinned: str, platform: str, say: Say) -> str:
        """Never, as for ``push``."""
        raise cannot(self, Ability.JOIN)

    def elsewhere(self) -> bool:
        """Never."""
        return False

    def labels(self, image: str) -> Mapping[str, str]:
        """The labels of ``image``, which say that it isolates nothing."""
        return self._find(image)[1]

    def declared(self, image: str) -> DeclaredStart:
        """Nothing: its Python is started as it is."""
        return DeclaredStart()

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        payload: bytes,
        gpus: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        start: Start | None = None,
        placed: DeclaredStart | None = None,
        mounts: Mapping[str, Path] | None = None,
        timeout_s: float,
        say: Say,
        stop: Callable[[], bool] | None = None,
    ) -> Completed:
        """Runs the payload under the environment's own Python as a child of this process, in this process's
        environment: what a user who starts that Python here would get.

        Such an environment has no start of its own.
        """
        interpreter = self._find(image)[0] / "bin" / "python3"
        if not interpreter.exists():
            said = f"the environment {image} has no python3: {interpreter} does not exist or points nowhere"
            raise Undecided(said, "was the python it was made with removed? build it again with --no-cache")
        environment = {**os.environ, **(env or {})}
        if gpus != ("all",):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        with proc.scratch_folder() as scratch:
            file = scratch / "envkit.pyz"
            file.write_bytes(payload)
            file.chmod(0o400)
            command = [str(interpreter), str(file), *where_they_lie(argv, mounts or {}), "--watch-stdin"]
            with proc.sigterm_raises():
                return proc.run(
                    command, timeout_s=timeout_s, env=environment, cwd=scratch, hold_stdin=True, on_line=say, stop=stop
                )

    def job_line(self, request: JobRequest) -> JobLine:
        """`env` with the environment's programs first on PATH, in the project's folder."""
        venv = self._find(request.image)[0]
        own = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{os.environ.get('PATH', os.defpath)}"}
        if request.gpus != ("all",):
            own["CUDA_VISIBLE_DEVICES"] = ",".join(request.gpus)
        secrets = {name: value for name, value in request.env.items() if names_secret(name)}
        given = {**own, **{name: value for name, value in request.env.items() if name not in secrets}}
        words = [f"{name}={value}" for name, value in given.items()]
        return JobLine(("env", f"--chdir={request.project}", *words, *request.argv), secrets)

    def attend(self, request: JobRequest, attend: Attend) -> JobEnd:
        """A process of this machine, with all that this user may do; `env` has a shell's codes for what does not
        start."""
        code = attend(self.job_line(request))
        return JobEnd(128 - code if code < 0 else code)

    def compile(
        self, image: str, argv: Sequence[str], given: Path, made: Path, *, timeout_s: float, say: Say
    ) -> Completed:
        """Not possible: it would run a package's own code with all that this user may do."""
        raise Undecided("nothing is compiled without a container engine", "use --engine docker")

    def remove(self, image: str) -> None:
        """Takes the tag away, and the environment if no other tag names it."""
        record = self._record(image)
        if not record.is_file():
            return
        key = json.loads(record.read_text())["venv"]
        record.unlink()
        if any(json.loads(other.read_text())["venv"] == key for other in self._tags.glob("*.json")):
            return
        with _locked(self._venvs / f"{key}.lock"):
            shutil.rmtree(self._venvs / key, ignore_errors=True)
