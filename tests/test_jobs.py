"""The examples under docs/jobs: the Slurm prolog with a program in envkit's place, the Pod as the API would read it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slurm
from clocks import PATIENCE_S, comes

from envkit.host.cdi import parse_yaml
from envkit.payload import guard
from envkit.report import exit_codes

JOBS = Path(__file__).parent.parent / "docs" / "jobs"
PROLOG = JOBS / "slurm-prolog.sh"
WORDS = "doctor --budget 8 --exit-style slurm --expect /etc/envkit/expect.toml --format nagios"
needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="no bash")


def prolog(folder: Path, *lines: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The prolog with as little environment as slurmd gives it, and an ``envkit`` of these lines first on PATH."""
    if lines:
        program(folder / "envkit", *lines)
    program(folder / "logger", f'printf "%s\\n" "$*" >> {folder}/log')
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **more}
    return subprocess.run([PROLOG], env=environment, capture_output=True, text=True, timeout=60, check=False)


def program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


@needs_bash
def test_a_machine_that_keeps_its_contract_gets_the_job_and_nothing_is_said(tmp_path: Path) -> None:
    done = prolog(tmp_path, f'printf "%s" "$*" > {tmp_path}/words', "echo 'ENVKIT OK - 190 checks passed | pass=190'")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "words").read_text() == WORDS
    assert not (tmp_path / "log").exists()


@needs_bash
@pytest.mark.parametrize("code", [1, 2, 3, 70, 139])
def test_any_other_code_drains_with_the_reason_in_the_log(tmp_path: Path, code: int) -> None:
    done = prolog(
        tmp_path,
        "echo 'ENVKIT CRITICAL - 1 errors: 7 GPUs of 8 | pass=1'",
        f"exit {code}",
        SLURM_JOB_ID="17",
        SLURMD_NODENAME="n3",
    )
    reason = f"node n3, job 17, code {code}: ENVKIT CRITICAL - 1 errors: 7 GPUs of 8"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"envkit-prolog: {reason}\n")
    assert (tmp_path / "log").read_text() == f"-t envkit-prolog -p daemon.err -- {reason}\n"


@needs_bash
def test_an_examination_that_does_not_end_drains(tmp_path: Path) -> None:
    program(tmp_path / "timeout", "exit 124")
    done = prolog(tmp_path, "exit 0")
    assert done.returncode == 1
    assert "code 124: envkit doctor did not end within 20 s" in done.stderr


@needs_bash
def test_the_time_limit_is_a_real_one_and_below_slurms(tmp_path: Path) -> None:
    """coreutils' own timeout, made short by a wrapper that changes nothing but the seconds."""
    real = shutil.which("timeout") or pytest.skip("no timeout")
    program(tmp_path / "timeout", f'[ "$2" = 20 ] || exit 99; kill=$1; shift 2; exec {real} "$kill" 0.3 "$@"')
    done = prolog(tmp_path, "exec sleep 30")
    assert (done.returncode, "did not end within 20 s" in done.stderr) == (1, True)
    told = re.search(r"PrologEpilogTimeout=(\d+)", PROLOG.read_text())
    assert told
    assert int(told[1]) > 20 + 2


@needs_bash
def test_an_envkit_that_is_not_there_drains(tmp_path: Path) -> None:
    if any(
        os.access(f"{place}/envkit", os.X_OK) for place in ("/usr/bin", "/bin", "/usr/local/bin", "/opt/envkit/bin")
    ):
        pytest.skip("an envkit is installed where the prolog looks")
    done = prolog(tmp_path)
    assert done.returncode == 1
    assert "code 127: envkit cannot be run: " in done.stderr


@needs_bash
def test_the_prolog_is_a_program_that_bash_reads_and_calls_no_slurm_command() -> None:
    subprocess.run(["bash", "-n", PROLOG], check=True, timeout=120)
    assert os.access(PROLOG, os.X_OK)
    commands = "\n".join(line for line in PROLOG.read_text().splitlines() if not line.startswith("#"))
    assert not re.search(r"\b(scontrol|squeue|sinfo|sacct|srun)\b", commands)
    assert "set -u" in commands
    assert "slurm" in exit_codes.STYLES


# Slurm itself, from Debian's packages: one node, its own key, its own ports

_SLURM = ("munged", "slurmctld", "slurmd", "srun", "sinfo")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A running cluster of one node with the prolog; its folder, and the environment in which clients reach it."""
    lacks = [name for name in _SLURM if not shutil.which(name)]
    if lacks or os.geteuid():
        pytest.skip(f"this needs root and Slurm's programs; here is no {', '.join(lacks) or 'root'}")
    name = socket.gethostname().partition(".")[0]
    (tmp_path / "state").mkdir()
    (tmp_path / "spool").mkdir()
    (tmp_path / "munge.key").write_bytes(os.urandom(128))
    (tmp_path / "munge.key").chmod(0o400)
    program(tmp_path / "prolog.sh", f"export PATH={tmp_path}/bin:/usr/bin:/bin", f"exec {PROLOG}")
    lines = f"""
        ClusterName=envkit
        SlurmctldHost={name}(127.0.0.1)
        SlurmUser=root
        AuthType=auth/munge
        AuthInfo=socket={tmp_path}/munge.sock
        StateSaveLocation={tmp_path}/state
        SlurmdSpoolDir={tmp_path}/spool
        SlurmctldPidFile={tmp_path}/slurmctld.pid
        SlurmdPidFile={tmp_path}/slurmd.pid
        SlurmctldLogFile={tmp_path}/slurmctld.log
        SlurmdLogFile={tmp_path}/slurmd.log
        SlurmctldPort={free_port()}
        ProctrackType=proctrack/linuxproc
        TaskPlugin=task/none
        SelectType=select/linear
        MpiDefault=none
        Prolog={tmp_path}/prolog.sh
        PrologFlags=Alloc
        PrologEpilogTimeout=60
        NodeName=n1 NodeHostname={name} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1
        PartitionName=p Nodes=n1 Default=YES State=UP
        """
    (tmp_path / "slurm.conf").write_text(textwrap.dedent(lines))
    munge = [f"--{word}={tmp_path}/munge.{word.partition('-')[0]}" for word in ("key-file", "pid-file", "log-file")]
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--socket={tmp_path}/munge.sock",
            f"--seed-file={tmp_path}/seed",
            *munge,
        ],
        ["slurmctld", "-D", "-f", f"{tmp_path}/slurm.conf"],
        ["slurmd", "-D", "-N", "n1", "-f", f"{tmp_path}/slurm.conf"],
    ]
    environment = os.environ | {"SLURM_CONF": f"{tmp_path}/slurm.conf"}
    with contextlib.ExitStack() as stack, slurm.guarded(tmp_path):
        for command in commands:
            stack.enter_context(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            if command[0] == "munged":
                comes((tmp_path / "munge.sock").exists, 0.05)
        yield tmp_path, environment


def node(environment: dict[str, str], *wanted: str) -> str:
    """The node's state, as soon as it is one of those wanted; what it is after a while."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        asked = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        state = asked.stdout.strip()
        if state in wanted or time.monotonic() > limit:
            return state
        time.sleep(0.2)


@pytest.mark.engine
def test_slurm_runs_a_job_on_a_good_node_and_drains_a_bad_one(cluster: tuple[Path, dict[str, str]]) -> None:
    folder, environment = cluster
    (folder / "bin").mkdir()
    srun = ["srun", "-N1", "echo", "ran"]
    program(folder / "bin" / "envkit", "echo 'ENVKIT OK - 190 checks passed | pass=190'")
    assert node(environment, "idle") == "idle"
    done = subprocess.run(srun, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert node(environment, "idle") == "idle"
    program(folder / "bin" / "envkit", "echo 'ENVKIT CRITICAL - 1 errors: 7 GPUs of 8 | pass=1'", "exit 1")
    done = subprocess.run(srun, env=environment, capture_output=True, text=True, timeout=60, check=False)
    # Which error srun ends with hangs on how far it came before the node was drained: 1, or one of slurmd's.
    assert done.returncode != 0 and done.stdout == ""
    assert node(environment, "drained", "draining") in ("drained", "draining")
    assert "code 1: ENVKIT CRITICAL - 1 errors: 7 GPUs of 8" in (folder / "slurmd.log").read_text()


# Kubernetes


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    """The manifest, every scalar as text."""
    found = parse_yaml((JOBS / "kubernetes-preflight.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_the_pod_is_one(pod: dict[str, Any]) -> None:
    assert (pod["apiVersion"], pod["kind"], pod["spec"]["restartPolicy"]) == ("v1", "Pod", "Never")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", pod["metadata"]["name"])
    (init,), (job,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert init["command"][:4] == ["envkit", "doctor", "--root", "/host"]
    assert "command" not in job  # it would replace the guard
    told = {variable["name"]: variable["value"] for variable in job["env"]}
    assert told == {"ENVKIT_GPUS": "8", "ENVKIT_SHM": "64g"}
    for one in (init, job):
        assert one["resources"]["limits"]["nvidia.com/gpu"] == told["ENVKIT_GPUS"]
    assert guard.size(told["ENVKIT_SHM"]) == 64 << 30


def test_every_mount_has_its_volume_and_what_is_the_nodes_is_read_only(pod: dict[str, Any]) -> None:
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    used = []
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        for mount in container["volumeMounts"]:
            used.append(mount["name"])
            path = (volumes[mount["name"]].get("hostPath") or {}).get("path")
            if path:
                assert mount["mountPath"] == f"/host{path}"
                assert mount["readOnly"] == "true"
    assert sorted(used) == sorted(volumes)
    assert {"/proc", "/sys", "/etc", "/var/log", "/dev"} <= {
        volume["hostPath"]["path"] for volume in volumes.values() if "hostPath" in volume
    }


def test_nothing_in_the_pod_is_privileged(pod: dict[str, Any]) -> None:
    (init,) = pod["spec"]["initContainers"]
    context = init["securityContext"]
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == ("false", "true")
    assert context["capabilities"]["drop"] == ["ALL"]
    text = (JOBS / "kubernetes-preflight.yaml").read_text()
    assert not re.search(r"privileged|hostPID|hostNetwork|hostIPC", text)
