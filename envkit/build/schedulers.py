"""A lock and a job to the file by which a scheduler runs it: a Job or a JobSet of Kubernetes, a batch script of Slurm.

Text only.  Kubernetes fills in $(NAME) in commands and variables, which a doubled `$` prevents; what enters a script is
quoted by shlex.quote; the lines `#SBATCH` hold numbers and names of a grammar without quotes or blanks alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from envkit import __version__
from envkit.build import yaml_text
from envkit.build.exporters import apptainer_options, commented
from envkit.build.flags import HOME, WORKSPACE, stack
from envkit.build.task import (
    BROUGHT_GUARD,
    GUARD,
    SHM_BYTES,
    Task,
    amount,
    brought_guard,
    command,
    counted,
    entry,
    environment,
)
from envkit.errors import UsageError, one_line
from envkit.plan.lockfile import Lock
from envkit.subjects.declared import Mount

_CLAIMS = {WORKSPACE: ("workspace", "100Gi"), HOME: ("home", "50Gi")}
_PORT = 29400  # of the first worker, where the others meet it; torchrun's own
_RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def object_name(name: str, most: int = 40) -> str:
    """``name`` as Kubernetes and its names of hosts take it (a label of RFC 1123), with room for what is appended."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:most].strip("-") or "job"


def kubernetes_job(lock: Lock, task: Task) -> str:
    """A Job of one Pod, behind the claims that it mounts, as YAML documents.

    Raises UsageError without a command, for GPUs without a number, and for more than one node.
    """
    if task.nodes != 1:
        raise UsageError(f"a Kubernetes Job does not join {task.nodes} nodes", "take --as jobset")
    name = object_name(lock.name)
    spec = {"backoffLimit": 0, "template": {"spec": _pod(lock, task, name)}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return _documents(lock, task, name, job)


def jobset(lock: Lock, task: Task) -> str:
    """A JobSet whose Pods, one a node, meet by the variables that torchrun reads; see ``kubernetes_job``."""
    name = object_name(lock.name)
    pod = _pod(lock, task, name)
    if task.nodes > 1:
        pod["containers"][0]["env"] += [
            {"name": "PET_NNODES", "value": str(task.nodes)},
            {"name": "PET_NODE_RANK", "valueFrom": _RANK},
            {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
            {"name": "PET_MASTER_PORT", "value": str(_PORT)},
        ]
    job = {
        "parallelism": task.nodes,
        "completions": task.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    spec = {
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "subdomain": name},
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
    }
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}
    return _documents(lock, task, name, made)


def _documents(lock: Lock, task: Task, name: str, job: Mapping[str, Any]) -> str:
    """The job behind what it needs: its guard, and the claims that nobody else makes."""
    made: list[Mapping[str, Any]] = []
    if guard := brought_guard(lock, task):
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-guard"}}
        made.append({**head, "data": {"guard.py": guard}})
    own = [(claim, size) for target, (claim, size) in _CLAIMS.items() if task.needs(target)]
    mode = "ReadWriteOnce" if task.nodes == 1 else "ReadWriteMany"
    for claim, size in own:
        asked = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{name}-{claim}"}}
        made.append({**head, "spec": asked})
    again = f"kubectl delete {job['kind'].lower()} {name}"
    notes = [f"Written by envkit {__version__} from envkit.lock of {lock.name}."]
    notes += [f"Start it with `kubectl apply -f FILE`; before the next time, `{again}`."]
    if own:
        notes.append(f"Adapt the claims to your cluster; {WORKSPACE} must hold your project, unless the image does.")
    if not task.registry:
        notes.append(
            f"Every node must have {task.image}: `envkit push` brings it to a registry, whose name it has then."
        )
    if task.secrets:
        words = " ".join(f'--from-literal={secret}="${secret}"' for secret in task.secrets)
        notes.append(f"Its secrets: kubectl create secret generic {name}-secrets {words}")
    return commented(notes) + "---\n".join(yaml_text.text(one) for one in (*made, job))


def _pod(lock: Lock, task: Task, name: str) -> dict[str, Any]:
    words, gpus = command(task, "Kubernetes"), counted(task, "Kubernetes") if lock.cuda else 0
    values = environment(lock, task, task.shm or SHM_BYTES)
    env: list[dict[str, Any]] = [{"name": key, "value": _plain(value)} for key, value in values.items()]
    for key in task.secrets:
        env.append({"name": key, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": key}}})
    limits: dict[str, Any] = {"nvidia.com/gpu": gpus} if gpus else {}
    limits |= {"memory": amount(task.memory)} if task.memory else {}
    before = entry(lock, task)
    mounts, volumes = _volumes(lock, task, name)
    uid, gid = task.user
    container = {
        "name": "job",
        "image": task.image,
        **({"command": list(before)} if before else {}),
        "args": [_plain(word) for word in words],
        "workingDir": task.workdir,
        "env": env,
        **({"resources": {"limits": limits}} if limits else {}),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsUser": uid,
            "runAsGroup": gid,
            "fsGroup": gid,
            **({"runAsNonRoot": True} if uid else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }


def _volumes(lock: Lock, task: Task, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What the container mounts, and what that is."""
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    memory = {"medium": "Memory", "sizeLimit": amount(task.shm or SHM_BYTES)}
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": memory}]
    if brought_guard(lock, task):
        mounts.append({"name": "guard", "mountPath": BROUGHT_GUARD.rpartition("/")[0], "readOnly": True})
        volumes.append({"name": "guard", "configMap": {"name": f"{name}-guard"}})
    own = [Mount(f"{name}-{claim}", at) for at, (claim, _) in _CLAIMS.items() if task.needs(at)]
    for number, bind in enumerate((*own, *task.binds)):
        what: dict[str, Any] = {"persistentVolumeClaim": {"claimName": bind.source}}
        if bind.source.startswith("/"):
            what = {"hostPath": {"path": bind.source}}
        elif not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", bind.source):
            said = f"`{one_line(bind.source)}` is neither a path of the nodes nor the name of a claim"
            raise UsageError(said, "write /path:TARGET or claim:TARGET")
        read_only = {"readOnly": True} if bind.read_only else {}
        mounts.append({"name": f"files-{number}", "mountPath": bind.target, **read_only})
        volumes.append({"name": f"files-{number}", **what})
    return mounts, volumes


def _plain(text: str) -> str:
    """A text in which Kubernetes fills in nothing."""
    return text.replace("$", "$$")


def _quoted(text: str) -> str:
    """A word for bash in a script without carriage returns, for the sake of which sbatch refuses one."""
    if "\r" not in text:
        return shlex.quote(text)
    return "$'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\r", "\\r") + "'"


_RANKED = 'exec env APPTAINERENV_PET_NODE_RANK="$SLURM_NODEID" "$@"'


def sbatch(lock: Lock, task: Task) -> str:
    """A batch script of Slurm that runs the job by Apptainer, one task a node, and ends with its exit code.

    The folder from which it is submitted is the project.  Raises UsageError without a command, for GPUs without a
    number, and for a volume that is no folder.
    """
    words, gpus = command(task, "Slurm"), counted(task, "Slurm") if lock.cuda else 0
    lines = [f"--job-name={object_name(lock.name)}", f"--nodes={task.nodes}", "--ntasks-per-node=1"]
    lines += ["--output=%x-%j.out"]
    lines += [f"--gpus-per-node={gpus}"] if gpus else []
    lines += [f"--mem={-(-task.memory >> 20)}M"] if task.memory else []
    values = environment(lock, task, task.shm)
    del values["HOME"]  # which Apptainer sets
    sif = f"{object_name(lock.name)}.sif"
    image = f"docker://{task.image}" if task.registry else sif
    body = ["set -euo pipefail", "", f"image=${{ENVKIT_IMAGE:-{shlex.quote(image)}}}", "project=$PWD"]
    body += [f"home=${{XDG_CACHE_HOME:-$HOME/.cache}}/envkit/jobs/{lock.name}/{stack(lock)}", 'mkdir -p "$home"']
    body += ['case $project$home in *[:,]*) echo "$project and $home may hold no : and no ," >&2; exit 2 ;; esac', ""]
    body += [f"export APPTAINERENV_{name}={_quoted(value)}" for name, value in values.items()]
    body += [f'export APPTAINERENV_{name}="${{{name}?is a secret that the job needs}}"' for name in task.secrets]
    ranked = ""
    if task.nodes > 1:
        body += [
            "# The nodes meet at the first of them, by the variables that torchrun reads.",
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f'export APPTAINERENV_PET_NNODES={task.nodes} APPTAINERENV_PET_MASTER_ADDR="$first"',
            f"export APPTAINERENV_PET_MASTER_PORT=$(({_PORT} + SLURM_JOB_ID % 10000))",
        ]
        ranked = f"bash -c {shlex.quote(_RANKED)} bash "
    guarded = ""
    if lock.guard and task.preflight:
        guarded = f"python3 -I -S {GUARD} -- "
    elif guard := brought_guard(lock, task):
        body += [
            "",
            "# Tries the GPUs of each node before the command starts there.",
            "read -r -d '' guard <<'EOF' || true",
            f"{guard}EOF",
        ]
        guarded = 'python3 -I -S -c "$guard" -- '
    options = " ".join(map(_quoted, apptainer_options(task)))
    home = f' --home "$home:{HOME}"' if task.needs(HOME) else ""
    binds = home + (f' --bind "$project:{WORKSPACE}"' if task.needs(WORKSPACE) else "")
    start = f'srun {ranked}apptainer exec{" --nv" if gpus else ""}{binds} {options} "$image"'
    body += ["", start + " \\", f"    {guarded}{' '.join(map(_quoted, (*lock.inside.entrypoint, *words)))}"]
    notes = [
        f"Written by envkit {__version__} from envkit.lock of {lock.name}; submit it in the folder of your project."
    ]
    if not task.registry:
        made = f"`envkit build --output image.tar`, then `apptainer build {sif} oci-archive:image.tar`"
        notes.append(f"ENVKIT_IMAGE names the image, by default {sif} in that folder: {made}.")
    notes += ["Its output is in JOB-ID.out, the exit code is that of the command."]
    notes += [f"{name} is taken from the environment of `sbatch`." for name in task.secrets]
    directives = "".join(f"#SBATCH {line}\n" for line in lines)
    return f"#!/bin/bash\n{directives}{commented(notes)}" + "\n".join(body) + "\n"
