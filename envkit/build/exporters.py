"""A lock to the files that run its image on one machine without envkit: Compose, a development container, Apptainer.

Text only.  Each value is quoted for the language it lands in: YAML by `yaml_text`, JSON by json.dumps, what Compose
would fill in by doubling its `$`, and shell by shlex.quote, which is the template's filter `shell`.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

from envkit import __version__
from envkit.build import yaml_text
from envkit.build.flags import HOME, JUPYTER_PORT, SSH_PORT, WORKSPACE, Flag, image, notes, run_flags, stack
from envkit.build.render import guard_text, template
from envkit.build.task import BROUGHT_GUARD, SHM_BYTES, Task, brought_guard, entry, environment
from envkit.errors import UsageError, one_line
from envkit.plan.lockfile import Lock, built_for, requirements, upto
from envkit.plan.spec import Flavor
from envkit.subjects.declared import Mount

_EXTENSIONS = ("ms-python.python", "ms-toolsai.jupyter", "ms-vscode.cpptools", "nvidia.nsight-vscode-edition")
_CAPABILITIES = ("SYS_PTRACE", "PERFMON")
# The tools of development containers fill it in, and know no way to write it plain.
_FILLED_IN = re.compile(r"\$\{")


def commented(texts: Iterable[str]) -> str:
    """Comments of YAML and of shell, one line each."""
    return "".join(f"# {one_line(text)}\n" for text in texts)


def _literal(value: Any) -> Any:
    """The value with each text such that Compose puts nothing in the place of a part of it."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    return value


def _gpus(gpus: int | None) -> list[str]:
    """The GPUs as CDI names them."""
    return [f"nvidia.com/gpu={name}" for name in (["all"] if gpus is None else range(gpus))]


def _size(size: int) -> str:
    return f"{size >> 30}g" if size % (1 << 30) == 0 else f"{size}b"


def _volume(bind: Mount) -> dict[str, Any]:
    kind = "bind" if bind.source.startswith(("/", ".", "~")) else "volume"
    made = {"type": kind, "source": bind.source, "target": bind.target}
    return {**made, "read_only": True} if bind.read_only else made


def compose(lock: Lock, flavor: Flavor, task: Task | None = None) -> str:
    """A compose.yaml whose service `envkit` is the job, or for the debug flavor its servers.

    The folder of the file is the project.  HOME is a volume for each stack, which a service of its own hands to the
    job's user before.  The environment of `docker compose` may name another user (ENVKIT_UID, ENVKIT_GID) and has the
    values of secrets, of which the file holds none.
    """
    task = task or Task(image(lock, flavor))
    gpus = _gpus(task.gpus) if lock.cuda else []
    devices = [{"driver": "cdi", "device_ids": gpus, "capabilities": ["gpu"]}]
    service: dict[str, Any] = {
        "image": task.image,
        **({} if task.registry else {"build": {"context": ".", "target": flavor.value}}),
        "init": True,
        **({} if task.argv else {"stdin_open": True, "tty": True}),
        **({"deploy": {"resources": {"reservations": {"devices": devices}}}} if gpus else {}),
        "shm_size": _size(task.shm or SHM_BYTES),
        **({"mem_limit": _size(task.memory)} if task.memory else {}),
        **({"ulimits": {"memlock": -1}} if gpus else {}),  # more than an engine without root's power may give
        "working_dir": task.workdir,
    }
    volumes: dict[str, Any] = {}
    document = {"name": re.sub(r"[^a-z0-9_-]", "-", lock.name), "services": {"envkit": service}, "volumes": volumes}
    of_flavor = _servers if flavor is Flavor.DEBUG else _job
    filled = of_flavor(lock, task, document)
    for number, bind in enumerate(task.binds):
        volume = _volume(bind)
        if volume["type"] == "volume":  # under a key that is none of the file's own
            volumes[f"volume-{number}"] = {"name": bind.source}
            volume["source"] = f"volume-{number}"
        service["volumes"].append(volume)
    document = _literal(document)
    made = document["services"]
    made["envkit"]["environment"] |= dict.fromkeys(task.secrets) | filled  # Compose's own to fill in
    head = [f"Written by envkit {__version__} from envkit.lock: {flavor.value} of {lock.name}."]
    head += [f"{' '.join(flag.arguments)}: {flag.why}" for flag in _of_file(lock, flavor, gpus)]
    head += notes(lock, flavor)
    if flavor is Flavor.DEBUG:
        head.append('Start it with ENVKIT_SSH_KEY="$(cat ~/.ssh/id_ed25519.pub)" docker compose up.')
    else:
        uid, gid = task.user
        user = f"${{ENVKIT_UID:-{uid}}}:${{ENVKIT_GID:-{gid}}}"
        made["envkit"]["user"] = user
        if "home" in made:
            made["home"]["command"] = [user, HOME]
        head.append("Start it with `docker compose run --rm envkit`, whose exit code is the command's.")
        head.append(f"ENVKIT_UID and ENVKIT_GID name the user, by default {uid}:{gid}.")
        head += [f"{name} is taken from your environment." for name in task.secrets]
    return commented(head) + yaml_text.text(document)


def _of_file(lock: Lock, flavor: Flavor, gpus: list[str]) -> list[Flag]:
    """The flags that the file stands for, with their reasons."""
    own = () if flavor is Flavor.DEBUG else ("--volume",)
    for_gpus = () if gpus else ("--device", "memlock=-1")
    return [flag for flag in run_flags(lock, flavor) if not {*own, *for_gpus} & {*flag.arguments}]


def _servers(lock: Lock, task: Task, document: dict[str, Any]) -> dict[str, str]:
    """The debug flavor's service, and the variables that Compose fills in."""
    service = document["services"]["envkit"]
    service |= {
        "command": ["envkit-debug", *task.argv],
        "cap_add": list(_CAPABILITIES),
        "ulimits": {**service.get("ulimits", {}), "core": -1},
        "ports": [f"127.0.0.1:{SSH_PORT}:{SSH_PORT}", f"127.0.0.1:{JUPYTER_PORT}:{JUPYTER_PORT}"],
        "volumes": [],
        "environment": {name: value for name, value in task.env.items() if name not in task.secrets},
    }
    if task.needs(WORKSPACE):
        service["volumes"] = [{"type": "volume", "source": "workspace", "target": WORKSPACE}]
        document["volumes"]["workspace"] = {"name": f"{lock.name}-workspace"}
    return {
        "ENVKIT_SSH_KEY": "${ENVKIT_SSH_KEY:-}",
        "ENVKIT_JUPYTER_TOKEN": "${ENVKIT_JUPYTER_TOKEN:-}",
        "ENVKIT_STATE": f"{WORKSPACE}/.envkit",
    }


def _job(lock: Lock, task: Task, document: dict[str, Any]) -> dict[str, str]:
    """The service of a job, and the one that hands its HOME to its user before, as an engine makes volumes for root."""
    service, volumes = document["services"]["envkit"], document["volumes"]
    if words := entry(lock, task):
        service["entrypoint"] = list(words)
        service["configs"] = [{"source": "guard", "target": BROUGHT_GUARD}]
        document["configs"] = {"guard": {"content": brought_guard(lock, task)}}
    if task.argv:
        service["command"] = list(task.argv)
    service["environment"] = environment(lock, task, task.shm or SHM_BYTES)
    service["volumes"] = []
    if task.needs(WORKSPACE):
        service["volumes"].append({"type": "bind", "source": ".", "target": WORKSPACE})
    if task.needs(HOME):
        home = {"type": "volume", "source": "home", "target": HOME}
        volumes["home"] = {"name": f"{lock.name}-home-{stack(lock)}"}
        service["volumes"].append(home)
        service["depends_on"] = {"home": {"condition": "service_completed_successfully"}}
        document["services"]["home"] = {
            "image": task.image,
            "user": "0:0",
            "network_mode": "none",
            "entrypoint": ["chown"],
            "volumes": [home],
        }
    return {}


def devcontainer(lock: Lock, task: Task | None = None) -> str:
    """A devcontainer.json for the debug image, JSON without comments; VS Code brings its own server into it.

    Before the container starts, a machine that has envkit is examined.  Raises UsageError for a command, which a
    development container does not run, and for a text that its tools would fill in.
    """
    flavor = Flavor.DEBUG
    task = task or Task(image(lock, flavor))
    if task.argv:
        raise UsageError("a development container runs no command", "leave it out, or take --as compose")
    for text in (*task.env.values(), task.image, task.workdir, *(bind.source + bind.target for bind in task.binds)):
        if _FILLED_IN.search(text):
            said = f"`{one_line(text)}` has a part in ${{...}}, which the tools of development containers fill in"
            raise UsageError(said, "leave it out")
    gpus = _gpus(task.gpus) if lock.cuda else []
    arguments = [word for name in gpus for word in ("--device", name)]
    arguments += ["--shm-size", _size(task.shm or SHM_BYTES)]
    arguments += ["--memory", _size(task.memory)] if task.memory else []
    for flag in _of_file(lock, flavor, gpus):
        if flag.arguments[0] == "--ulimit":
            arguments += flag.arguments
    settings = {} if lock.preinstalled else {"python.defaultInterpreterPath": "/opt/venv/bin/python"}
    document = {
        "name": lock.name,
        "image": task.image,
        "init": True,
        "runArgs": arguments,
        "capAdd": list(_CAPABILITIES),
        "workspaceMount": f"source=${{localWorkspaceFolder}},target={WORKSPACE},type=bind",
        "workspaceFolder": task.workdir,
        # VS Code's server and its extensions, and what is compiled or loaded, so that a container made again starts
        # at once.
        "mounts": [
            {"source": f"{lock.name}-vscode", "target": "/root/.vscode-server", "type": "volume"},
            {"source": f"{lock.name}-home-{stack(lock)}", "target": "/root/.cache", "type": "volume"},
            *map(_mounted, task.binds),
        ],
        "containerEnv": {
            **{name: value for name, value in task.env.items() if name not in task.secrets},
            **{name: f"${{localEnv:{name}}}" for name in task.secrets},
        },
        "remoteUser": "root",
        "overrideCommand": True,
        "forwardPorts": [JUPYTER_PORT],
        "customizations": {"vscode": {"extensions": list(_EXTENSIONS), "settings": settings}},
    }
    if task.preflight:
        asked = "none" if not gpus else "all" if task.gpus is None else str(task.gpus)
        document["initializeCommand"] = ["sh", "-c", _PREFLIGHT, "sh", asked, task.image]
    return json.dumps(document, indent=2) + "\n"


def _mounted(bind: Mount) -> dict[str, Any] | str:
    """A mount of a development container, whose only form for one that is read-only is a line with commas."""
    made = _volume(bind)
    if not bind.read_only:
        return made
    if "," in bind.source + bind.target:
        said = f"`{one_line(bind.source)}:{one_line(bind.target)}` has a comma, which ends a word in devcontainer.json"
        raise UsageError(said, "mount it from a path without one, or writable")
    return f"type={made['type']},source={bind.source},target={bind.target},readonly"


# 3 is undecided, which starts all the same, as `envkit run` does.
_PREFLIGHT = (
    "command -v envkit > /dev/null || exit 0; code=0; "
    'envkit preflight --level passive --gpus "$1" "$2" >&2 || code=$?; [ "$code" = 3 ] || exit "$code"'
)


def apptainer_options(task: Task) -> tuple[str, ...]:
    """The words of `apptainer run` and `exec` for what the job sees beside the project, and where it starts."""
    words: list[str] = []
    for bind in task.binds:
        source = bind.source
        if not source.startswith(("/", ".")):
            raise UsageError(f"Apptainer has no volume `{one_line(source)}`", "name a folder, as in ./data:/data")
        fields = ["type=bind", f"source={source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(fields)
        words += ["--mount", line.getvalue()]
    return (*words, "--pwd", task.workdir)


def _plain(text: str) -> str:
    """Words of a shell in which Apptainer finds nothing to fill in, which it does between {{ and }}."""
    return re.sub(r"\{(?=\{)", "{''", text)


def apptainer(lock: Lock, task: Task | None = None) -> str:
    """An Apptainer definition that makes the runtime flavor on a machine without Docker: the same wheels by hash.

    The Debian packages are those of the lock by version.  `apptainer run` starts the command, or what it is given, once
    its GPUs have been tried.  What it gives is not the image that `envkit build` made and proved, and the text says so.
    """
    task = task or Task(image(lock, Flavor.RUNTIME))
    wheels, debs = upto(lock, Flavor.RUNTIME.value)
    tools = [deb for deb in lock.debs if deb.layer == "tools"]
    exact = bool(lock.archive)
    names = lock.apt.get("runtime", ())
    words = (*lock.inside.entrypoint, *task.argv)
    for text in (*words, *task.env.values(), task.workdir, *(one.source + one.target for one in task.binds)):
        if "\n" in text or "\r" in text:
            said = f"`{one_line(text)}` has a line break, and a line of an Apptainer definition may begin a section"
            raise UsageError(said, "leave it out, or read it from a file")
    values = environment(lock, task, task.shm)
    for own in ("HOME", "TORCHINDUCTOR_CACHE_DIR"):  # Apptainer's own, and what lies in that
        if own not in task.env:
            del values[own]
    line = ("apptainer", "run", *(("--nv",) if lock.cuda and task.gpus != 0 else ()), *apptainer_options(task))
    return template(
        "apptainer.def.j2",
        {
            "lock": lock,
            "version": __version__,
            "built_for": built_for(lock),
            "nv": " --nv" if lock.cuda else "",
            "image": task.image if task.registry else image(lock, Flavor.RUNTIME),
            "base": f"{lock.image}@{lock.digest}" if lock.origin == "registry" and lock.digest else lock.image,
            "packages": tuple(f"{deb.name}={deb.version}" for deb in debs) if exact else names,
            "tools": tuple(f"{deb.name}={deb.version}" for deb in tools) if exact else lock.apt.get("tools", ()),
            "installer": requirements([lock.installer]),
            "requirements": requirements(wheels),
            "values": [(name, _plain(shlex.quote(value))) for name, value in values.items()],
            "secrets": task.secrets,
            "guard": brought_guard(lock, task) or (guard_text() if lock.guard and task.preflight else ""),
            "command": _plain(shlex.join((*lock.inside.entrypoint, *task.argv) if task.argv else ())),
            "line": _plain(shlex.join(line)),
        },
    )
