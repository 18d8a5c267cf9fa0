"""A lock to the flags and files that run its image elsewhere: Compose, a development container, Apptainer.

Text only.  Each value is quoted for the language it lands in: JSON (which YAML holds) by json.dumps, with Compose's own
`$` doubled, and shell by shlex.quote, which is the template's filter `shell`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from envkit import __version__
from envkit.build.flags import JUPYTER_PORT, SSH_PORT, WORKSPACE, image, notes, run_flags
from envkit.build.render import template
from envkit.plan.lockfile import Lock, built_for, requirements, upto
from envkit.plan.spec import Flavor

_EXTENSIONS = ("ms-python.python", "ms-toolsai.jupyter", "ms-vscode.cpptools", "nvidia.nsight-vscode-edition")

_DEVICES = [{"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"], "capabilities": ["gpu"]}]


def _commented(texts: list[str]) -> str:
    return "".join(f"# {text}\n" for text in texts)


def _literal(value: Any) -> Any:
    """The value with each text such that Compose puts nothing in the place of a part of it."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    return value


def compose(lock: Lock, flavor: Flavor) -> str:
    """A compose.yaml with one service; comments, then one JSON document, which is YAML.

    Reads ENVKIT_SSH_KEY and ENVKIT_JUPYTER_TOKEN from the environment of `docker compose`, and holds neither.
    """
    service: dict[str, Any] = {
        "image": image(lock, flavor),
        "build": {"context": ".", "target": flavor.value},
        "init": True,
        "stdin_open": True,
        "tty": True,
        **({"deploy": {"resources": {"reservations": {"devices": _DEVICES}}}} if lock.cuda else {}),
        "shm_size": "8g",
        "ulimits": {"memlock": -1},
    }
    document: dict[str, Any] = {"name": re.sub(r"[^a-z0-9_-]", "-", lock.name), "services": {"envkit": service}}
    if flavor is not Flavor.RUNTIME:
        service["working_dir"] = WORKSPACE
        service["volumes"] = [f"workspace:{WORKSPACE}"]
        document["volumes"] = {"workspace": {"name": f"{lock.name}-workspace"}}
    if flavor is Flavor.DEBUG:
        service |= {
            "command": ["envkit-debug"],
            "cap_add": ["SYS_PTRACE", "PERFMON"],
            "ulimits": {"memlock": -1, "core": -1},
            "ports": [f"127.0.0.1:{SSH_PORT}:{SSH_PORT}", f"127.0.0.1:{JUPYTER_PORT}:{JUPYTER_PORT}"],
        }
    document = _literal(document)
    if flavor is Flavor.DEBUG:  # the first two are Compose's to fill in
        service = document["services"]["envkit"]
        service["environment"] = {
            "ENVKIT_SSH_KEY": "${ENVKIT_SSH_KEY:-}",
            "ENVKIT_JUPYTER_TOKEN": "${ENVKIT_JUPYTER_TOKEN:-}",
            "ENVKIT_STATE": f"{WORKSPACE}/.envkit",
        }
    head = [
        f"Written by envkit {__version__} from envkit.lock: {flavor.value} of {lock.name}.",
        *(f"{' '.join(flag.arguments)}: {flag.why}" for flag in run_flags(lock, flavor)),
        *notes(lock, flavor),
    ]
    if flavor is Flavor.DEBUG:
        head.append('Start it with ENVKIT_SSH_KEY="$(cat ~/.ssh/id_ed25519.pub)" docker compose up.')
    return _commented(head) + json.dumps(document, indent=2) + "\n"


def devcontainer(lock: Lock) -> str:
    """A devcontainer.json for the debug image, JSON without comments; VS Code brings its own server into it."""
    flavor = Flavor.DEBUG
    arguments: list[str] = []
    for flag in run_flags(lock, flavor):
        # What has a key of its own in devcontainer.json, and the ports, which VS Code forwards by itself.
        if flag.arguments[0] not in ("--init", "--cap-add", "--volume", "--publish"):
            arguments += flag.arguments
    settings = {} if lock.preinstalled else {"python.defaultInterpreterPath": "/opt/venv/bin/python"}
    document = {
        "name": lock.name,
        "image": image(lock, flavor),
        "init": True,
        "runArgs": arguments,
        "capAdd": ["SYS_PTRACE", "PERFMON"],
        "workspaceMount": f"source=${{localWorkspaceFolder}},target={WORKSPACE},type=bind",
        "workspaceFolder": WORKSPACE,
        # VS Code's server and its extensions, so that a container made again starts at once.
        "mounts": [{"source": f"{lock.name}-vscode", "target": "/root/.vscode-server", "type": "volume"}],
        "remoteUser": "root",
        "overrideCommand": True,
        "forwardPorts": [JUPYTER_PORT],
        "customizations": {"vscode": {"extensions": list(_EXTENSIONS), "settings": settings}},
    }
    return json.dumps(document, indent=2) + "\n"


def apptainer(lock: Lock) -> str:
    """An Apptainer definition that makes the runtime flavor on a machine without Docker: the same wheels by hash.

    The Debian packages are those of the lock by version.  What it gives is not the image that `envkit build` made and
    proved, and the text says so.
    """
    wheels, debs = upto(lock, Flavor.RUNTIME.value)
    tools = [deb for deb in lock.debs if deb.layer == "tools"]
    exact = bool(lock.archive)
    names = lock.apt.get("runtime", ())
    return template(
        "apptainer.def.j2",
        {
            "lock": lock,
            "version": __version__,
            "built_for": built_for(lock),
            "nv": " --nv" if lock.cuda else "",
            "image": image(lock, Flavor.RUNTIME),
            "base": f"{lock.image}@{lock.digest}" if lock.origin == "registry" and lock.digest else lock.image,
            "packages": tuple(f"{deb.name}={deb.version}" for deb in debs) if exact else names,
            "tools": tuple(f"{deb.name}={deb.version}" for deb in tools) if exact else lock.apt.get("tools", ()),
            "installer": requirements([lock.installer]),
            "requirements": requirements(wheels),
        },
    )
