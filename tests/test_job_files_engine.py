"""The files of jobs in the programs that they are for: Compose starts one in a real container, Slurm on real nodes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import slurm
from clocks import PATIENCE_S, comes
from test_job_files import EVERY, LOCK, SECRET, STAND_IN, TASK, TELL

from envkit.build import exporters, schedulers
from envkit.build.task import Task
from envkit.engine import BuildRequest
from envkit.engine.docker import DockerEngine
from envkit.plan.spec import Flavor
from envkit.plan.update import suite_wish

pytestmark = pytest.mark.engine
# The name of a variable that Slurm and a container may both hold; a NUL is none.
JOB = replace(
    TASK, argv=("python3", "-c", TELL, *EVERY), env={f"V{n}": text for n, text in enumerate(EVERY)} | {"SEEN": "seen"},
    gpus=None, binds=(), shm=None, memory=None, user=(os.getuid(), os.getgid()),
)  # fmt: skip
CPU = replace(LOCK, cuda=None, variant="cpu")


@pytest.fixture
def image(engine: DockerEngine, tmp_path: Path) -> Iterator[str]:
    """Debian with Python, under a name of this test's own."""
    base = engine.resolve_base(suite_wish("bookworm"), lambda line: None)
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "Dockerfile").write_text(f"FROM {base.ref}\n")
    name = f"envkit-test/files:{uuid.uuid4().hex[:12]}"
    engine.build(BuildRequest(tmp_path / "context", name, 300, labels={"io.envkit.test": "1"}), lambda line: None)
    yield name
    engine.remove(name)


@pytest.fixture
def composed() -> list[str]:
    """Compose from version 2.23 on, which knows configs with a content."""
    for words in (["docker", "compose"], ["docker-compose"], [os.environ.get("ENVKIT_COMPOSE", "")]):
        if words[0] and shutil.which(words[0]):
            done = subprocess.run([*words, "version", "--short"], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip().lstrip("v") >= "2.23":
                return words
    pytest.skip("there is no docker compose 2.23 or newer")


def test_compose_runs_the_job_as_its_user(image: str, composed: list[str], tmp_path: Path) -> None:
    project = f"envkit-test-{uuid.uuid4().hex[:8]}"
    words = [*composed, "--project-name", project, "-f", str(tmp_path / "compose.yaml")]
    env = {
        **os.environ,
        "HF_TOKEN": SECRET,
        "ENVKIT_UID": "4321",
        "ENVKIT_GID": "8765",
        "V0": "wrong",
        "HOME": str(tmp_path),
    }
    tmp_path.chmod(0o777)
    name = f"{project}-home"

    def run(task: Task) -> subprocess.CompletedProcess[str]:
        text = exporters.compose(CPU, Flavor.RUNTIME, replace(task, image=image))
        text = text.replace(f'"{CPU.name}-home-', f'"{name}-')
        (tmp_path / "compose.yaml").write_text(text)
        return subprocess.run(
            [*words, "run", "--rm", "-T", "envkit"], env=env, capture_output=True, text=True, timeout=PATIENCE_S,
            check=False,
        )  # fmt: skip

    try:
        done = run(replace(JOB, env={**JOB.env, "HF_TOKEN": "x"}, shm=1 << 30))
        assert done.returncode == 0, done.stderr[-2000:]
        argv, environ = json.loads((tmp_path / "seen").read_text())
        assert argv == [*EVERY] and [environ[f"V{n}"] for n in range(len(EVERY))] == [*EVERY]
        assert environ["HF_TOKEN"] == SECRET and environ["HOME"] == "/home/job"
        assert (tmp_path / "seen").stat().st_uid == 4321
        code = "import os; open('/home/job/x', 'w'); f = os.statvfs('/dev/shm'); raise SystemExit(f.f_frsize * f.f_blocks >> 30)"  # noqa: E501
        assert run(replace(JOB, argv=("python3", "-c", code), shm=3 << 30)).returncode == 3
        # The image's own guard is in the file: more shared memory is promised than there is.
        done = run(replace(JOB, env={**JOB.env, "ENVKIT_SHM": "5t"}))
        assert done.returncode == 1 and "ENVKIT_SHM asks for" in done.stderr
    finally:
        subprocess.run([*words, "down", "--volumes", "--timeout", "1"], env=env, capture_output=True, check=False)
        volumes = subprocess.run(["docker", "volume", "ls", "-q"], capture_output=True, text=True, check=True).stdout
        for volume in volumes.split():
            if volume.startswith(name):
                subprocess.run(["docker", "volume", "rm", volume], capture_output=True, check=True)


# Slurm


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """A cluster of two nodes on this machine, by the daemons of Debian's packages; gives the folder of its
    configuration."""
    needed = ("munged", "slurmctld", "slurmd", "sbatch")
    if os.geteuid() != 0 or not all(shutil.which(name) for name in needed):
        pytest.skip("Slurm is not here (slurmctld, slurmd, slurm-client and munge), or this is not root")
    folder = tmp_path / "slurm"
    for name in ("state", "n1", "n2"):
        (folder / name).mkdir(parents=True)
    ports = []
    with ExitStack() as held:
        for _ in range(3):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    host = socket.gethostname().split(".")[0]
    munge = Path(f"/tmp/envkit-munge-{uuid.uuid4().hex[:8]}")
    munge.mkdir(mode=0o755)
    shutil.chown(munge, "munge", "munge")
    (munge / "key").write_bytes(os.urandom(128))
    (munge / "key").chmod(0o400)
    shutil.chown(munge / "key", "munge", "munge")
    nodes = "".join(
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
        for number, port in enumerate(ports[1:], 1)
    )
    (folder / "slurm.conf").write_text(
        f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={ports[0]}\nSlurmUser=root\nSlurmdUser=root\n"
        f"AuthType=auth/munge\nAuthInfo=socket={munge}/s\nCredType=cred/munge\nProctrackType=proctrack/linuxproc\n"
        f"TaskPlugin=task/none\nSwitchType=switch/none\nSelectType=select/linear\nKillWait=3\nReturnToService=2\n"
        f"SlurmdParameters=config_overrides\nMpiDefault=none\nStateSaveLocation={folder}/state\n"
        f"SlurmdSpoolDir={folder}/%n\nSlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/%n.pid\n"
        f"SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/%n.log\n{nodes}"
        "PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n"
    )
    words = [
        ["runuser", "-u", "munge", "--", "munged", "--foreground", "--force", f"--socket={munge}/s",
         f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed", f"--key-file={munge}/key"],
        ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
        *(["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"] for name in ("n1", "n2")),
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    env = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    try:
        with slurm.guarded(folder):
            for one in words:
                started.append(subprocess.Popen(one, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                time.sleep(0.5)

            def idle() -> bool:
                shown = subprocess.run(
                    ["sinfo", "-h", "-o", "%T %D"], env=env, capture_output=True, text=True, check=False
                )
                return shown.stdout == "idle 2\n"

            assert comes(idle), (folder / "ctld.log").read_text()[-2000:]
            yield folder
    finally:
        for process in started:
            process.wait()
        shutil.rmtree(munge)


def submitted(task: Task, cluster: Path, project: Path) -> tuple[int, str]:
    """The exit code of `sbatch --wait` in the folder ``project``, and the output of the job."""
    (project / "bin").mkdir(parents=True)
    (project / "bin" / "apptainer").write_text(STAND_IN)
    (project / "bin" / "apptainer").chmod(0o755)
    (project / "job.sbatch").write_text(schedulers.sbatch(CPU, task))
    env = {
        "PATH": f"{project}/bin:{Path(sys.executable).parent}:/usr/bin:/bin", "SLURM_CONF": f"{cluster}/slurm.conf",
        "HOME": str(project), "IMAGE": "there.sif", "ENVKIT_IMAGE": "there.sif", "HF_TOKEN": SECRET,
        "TOLD": f"{project}/told",
    }  # fmt: skip
    done = subprocess.run(
        ["sbatch", "--wait", "job.sbatch"], cwd=project, env=env, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    outputs = [*project.glob("team-v2-train-*.out")]
    assert len(outputs) == 1, done.stderr
    return done.returncode, done.stderr + outputs[0].read_text()


@pytest.mark.nightly
def test_slurm_runs_the_job_once_a_node_and_ends_with_its_exit_code(cluster: Path, tmp_path: Path) -> None:
    look = (
        "import json, os, sys; open('seen' + os.environ['PET_NODE_RANK'], 'w').write(json.dumps([sys.argv[1:],"
        " dict(os.environ)]))"
    )
    job = replace(JOB, argv=(sys.executable, "-c", look, *EVERY), env={**JOB.env, "HF_TOKEN": "x"}, nodes=2)
    code, said = submitted(job, cluster, tmp_path / "hostile")
    assert code == 0, said
    for rank in "01":
        argv, environ = json.loads((tmp_path / "hostile" / f"seen{rank}").read_text())
        assert argv == [*EVERY] and [environ[f"V{n}"] for n in range(len(EVERY))] == [*EVERY]
        assert environ["HF_TOKEN"] == SECRET and environ["SLURM_JOB_NUM_NODES"] == "2"
        assert (environ["PET_NNODES"], environ["PET_MASTER_ADDR"]) == ("2", "n1")
        assert environ["SLURM_JOB_NAME"] == "team-v2-train"
    code, said = submitted(replace(JOB, argv=("sh", "-c", "echo it ran; exit 7")), cluster, tmp_path / "seven")
    assert (code, "it ran" in said) == (7, True)
    code, said = submitted(replace(JOB, argv=("sh", "-c", "echo it ran"), shm=1 << 50), cluster, tmp_path / "shm")
    assert (code, "it ran" in said) == (1, False) and "ENVKIT_SHM asks for" in said
