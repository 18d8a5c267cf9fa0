"""Launchers that are there: nodes that ssh, mpirun and torchrun start for real, each as it says who must answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torches
from clocks import comes, spent
from slurm import free_ports

from envkit.fleet import gather
from envkit.fleet.verdict import FleetVerdict, State, judge

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # whole examinations

PREFLIGHT = f"{sys.executable} -m envkit preflight --level passive --gpus none"


def needs(*programs: str) -> pytest.MarkDecorator:
    lacking = [name for name in programs if not shutil.which(name) and not Path(f"/usr/sbin/{name}").exists()]
    return pytest.mark.skipif(bool(lacking), reason=f"this machine lacks {', '.join(lacking)}")


def judged(place: Path, hosts: tuple[str, ...] = ()) -> FleetVerdict:
    return judge(gather.gather(place, (), hosts), time.time() + 3600)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def begun(argv: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[list[str]]:
    """The words of an ssh to hosts n1 to n3: a daemon on loopback with keys of its own, for n3 nobody listens."""
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, timeout=60)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port, nobody = free_ports(2)
    (folder / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    (folder / "config").write_text(
        f"Host n3\nPort {nobody}\nHost *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {folder}/user\n"
        "IdentitiesOnly yes\n"
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd.conf"], stderr=log)
    words = ["ssh", "-F", str(folder / "config")]
    try:
        assert comes(
            lambda: subprocess.run([*words, "n1", "true"], capture_output=True, timeout=60).returncode == 0, 0.2
        )
        yield words
    finally:
        daemon.terminate()
        daemon.wait()


@needs("sshd", "ssh", "ssh-keygen")
@pytest.mark.skipif(os.geteuid() != 0, reason="sshd lets its own user in without a password file only as root")
def test_hosts_that_ssh_reaches_and_one_that_it_does_not(ssh: list[str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1\nn2\nn3\n")
    words = f"{PREFLIGHT} --fleet {tmp_path}/run --hosts {tmp_path}/hosts"
    nodes = [begun([*ssh, name, f"{words} --node {name}"]) for name in ("n1", "n2", "n3")]
    assert [ended(each)[0] for each in nodes] == [0, 0, 255]
    found = judged(tmp_path / "run")
    assert (found.named(State.OK), found.named(State.FAIL)) == (("n1", "n2"), ("n3",))
    assert "never started" in found.nodes[2].sentence


def test_eight_nodes_cost_eight_times_what_one_costs(tmp_path: Path) -> None:
    """Processor time, half as much again at the most, with and without waiting for one another's answers."""

    def cost(run: str, nodes: int, *command: str) -> float:
        names = [f"n{number}" for number in range(nodes)]
        words = [*PREFLIGHT.split(), "--fleet", f"{tmp_path}/{run}", "--hosts", ",".join(names)]
        began = spent()
        started = [begun([*words, "--node", name, *command]) for name in names]
        assert [ended(each)[0] for each in started] == [0] * nodes
        return (spent() - began) / nodes

    cost("warm", 1)  # what a first run compiles
    one = cost("one", 1)
    each, waiting = cost("eight", 8), cost("waiting", 8, "--", "true")
    print(f"seconds of a processor a node: {one:.2f} alone, {each:.2f} of eight, {waiting:.2f} of eight that wait")
    assert max(each, waiting) < 1.5 * one, f"{each:.2f} s and {waiting:.2f} s of a processor; alone {one:.2f} s"


@needs("mpirun.mpich")
def test_mpich_starts_one_process_a_node(tmp_path: Path) -> None:
    """Its process manager starts by fork what it takes for two hosts; a name of the launch comes from a variable."""
    argv = ["mpirun.mpich", "-launcher", "fork", "-hosts", "h1,h2", "-ppn", "1", "-n", "2"]
    show = ["--", "bash", "-c", "echo rank $PMI_RANK is node $ENVKIT_NODE_RANK of $ENVKIT_NODES"]
    given = [*argv, *PREFLIGHT.split(), "--fleet", str(tmp_path), *show]
    code, out, err = ended(begun(given, ENVKIT_LAUNCH="first"))
    assert (code, sorted(out.splitlines())) == (0, [f"rank {at} is node {at} of 2" for at in (0, 1)]), err
    assert judged(tmp_path / "first").exit_code == 0
    code, _, err = ended(begun([*argv[:3], "-n", "2", *PREFLIGHT.split(), "--fleet", str(tmp_path / "b")]))
    assert code != 0 and "2 processes of one MPI launch are on this node" in err


@needs("mpirun.openmpi")
def test_open_mpi_starts_one_process_a_node(tmp_path: Path) -> None:
    """Its own daemon for each of two hosts, which an agent in place of ssh starts here."""
    (agent := tmp_path / "agent").write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    agent.chmod(0o755)
    argv = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", str(agent)]
    argv += ["-H", "h1,h2", "-npernode", "1", "-np", "2"]
    show = ["--", "bash", "-c", "echo rank $OMPI_COMM_WORLD_RANK is node $ENVKIT_NODE_RANK of $ENVKIT_NODES"]
    code, out, err = ended(begun([*argv, *PREFLIGHT.split(), "--fleet", str(tmp_path / "runs"), *show]))
    assert (code, sorted(out.splitlines())) == (0, [f"rank {at} is node {at} of 2" for at in (0, 1)]), err
    (place,) = (each.parent for each in tmp_path.glob("runs/**/run.json"))
    assert judged(place).exit_code == 0
    both = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    code, _, err = ended(begun([*both, *PREFLIGHT.split(), "--fleet", str(tmp_path / "both")]))
    assert code != 0 and "2 processes of one MPI launch are on this node" in err


@needs("mpirun.mpich")
def test_documents_come_through_the_stdout_of_mpirun(tmp_path: Path) -> None:
    argv = ["mpirun.mpich", "-prepend-rank", "-launcher", "fork", "-hosts", "h1,h2,h3", "-ppn", "1", "-n", "3"]
    code, out, err = ended(begun([*argv, *PREFLIGHT.split(), "--fleet", "-"], ENVKIT_LAUNCH="second"))
    assert code == 0, err
    log = tmp_path / "job.log"
    log.write_text(out)
    assert judged(log, ("0", "1", "2")).exit_code == 0
    assert judged(log, ("0", "1", "2", "3")).named(State.FAIL) == ("3",)


@torches.needs_torch
@pytest.mark.torch
def test_torchrun_counts_the_nodes_and_reads_where_it_is_started(tmp_path: Path) -> None:
    """Two agents on loopback, whose workers are the nodes; and two nodes of which each becomes an agent."""
    (port,) = free_ports(1)
    torchrun = [torches.PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
    script = tmp_path / "node.sh"
    script.write_text(f"#!/bin/bash\nexec {PREFLIGHT} --fleet {tmp_path}/run\n")
    script.chmod(0o755)
    rendezvous = [
        "--nnodes",
        "2",
        "--rdzv-id",
        "job7",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{port}",
    ]
    agents = [begun([*torchrun, *rendezvous, "--no-python", str(script)]) for _ in range(2)]
    assert [ended(each)[0] for each in agents] == [0, 0]
    assert judged(tmp_path / "run" / "torchrun-job7r0").exit_code == 0
