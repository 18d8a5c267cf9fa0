"""A real Slurm on this machine: a controller and eight nodes with eight fake GPUs each, from Debian's packages.

Everything lies in one folder and listens on loopback; nothing of the machine's own configuration is read or changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from clocks import PATIENCE_S, comes

NODES = 8
GPUS = 8
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo", "scancel", "munged")


def missing() -> list[str]:
    """The programs of Slurm that this machine lacks, and what else a cluster needs."""
    found = [name for name in PROGRAMS if not shutil.which(name)]
    return found + (["root"] if os.geteuid() else [])


@dataclass
class Cluster:
    """A running cluster in ``folder``; its clients need ``environment``."""

    folder: Path
    environment: dict[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    controller: subprocess.Popen[bytes] | None = None

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        """A client of Slurm, in a session of its own."""
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **environment},
            cwd=self.folder,
            start_new_session=True,
        )

    def run(self, *argv: str, **environment: str) -> tuple[int, str, str]:
        """A client of Slurm, to its end."""
        process = self.start(*argv, **environment)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, out, err

    def state(self, node: str) -> str:
        """What the controller says of a node, in small letters ("idle", "drained", "down*")."""
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T")[1].strip()

    def wait_idle(self) -> None:
        """Waits until every node is free again; raises AssertionError where one does not become so."""
        assert comes(lambda: self.run("sinfo", "-h", "-o", "%D %T")[1].split() == [str(NODES), "idle"], 0.2), self.run(
            "sinfo", "-N", "-l"
        )[1]

    def boot(self, node: str) -> None:
        """Starts the daemon of one node."""
        argv = ["slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf")]
        self.nodes[node] = self._daemon(argv, f"{node}.log")

    def control(self) -> None:
        """Starts the controller."""
        self.controller = self._daemon(["slurmctld", "-D", "-f", str(self.folder / "slurm.conf")], "slurmctld.out")

    def _daemon(self, argv: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            made = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment, start_new_session=True
            )
        self.daemons.append(made)
        return made


def processes_of(folder: Path) -> list[int]:
    """The processes, but for this one and its parent, that name a file below ``folder`` in their command line or
    variables or have one open: a cluster's daemons, its clients and its steps, which are nobody's children, with what
    these run."""
    sign = f"{folder}/".encode()
    return [number for number in map(int, filter(str.isdigit, os.listdir("/proc"))) if _names(number, sign)]


def _names(number: int, sign: bytes) -> bool:
    if number in (os.getpid(), os.getppid()):
        return False
    process = f"/proc/{number}"
    with suppress(OSError):  # it may end in the middle of this
        for file in ("cmdline", "environ"):
            if sign in Path(process, file).read_bytes():
                return True
        return any(os.readlink(each.path).encode().startswith(sign) for each in os.scandir(f"{process}/fd"))
    return False


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """No process of the cluster in ``folder`` outlives the block, nor the process that runs it, however that ends: a
    process of its own waits for the end of a pipe, which also comes with SIGKILL."""
    guard = subprocess.Popen([sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate(timeout=2 * PATIENCE_S)
    assert guard.returncode == 0, f"processes of the cluster in {folder} are left: {processes_of(folder)}"


def _end(folder: Path) -> bool:
    """Kills the cluster's processes until there are none."""

    def none() -> bool:
        found = processes_of(folder)
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return not found

    return comes(none, 0.05)


def free_ports(many: int) -> list[int]:
    """Free ports, all different."""
    held = [socket.socket() for _ in range(many)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


_CONF = """
ClusterName=envkit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
PrologFlags=Alloc
KillWait=3
SlurmdTimeout=10
SlurmctldTimeout=30
ReturnToService=2
InactiveLimit=10
MinJobAge=300
{more}
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports}] CPUs=8 Gres=gpu:h100:{gpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def configuration(folder: Path, more: Mapping[str, str] | None = None) -> str:
    """slurm.conf of a cluster in ``folder``."""
    controller = free_ports(1)[0]
    first = _range(NODES)
    return _CONF.format(
        host=socket.gethostname().partition(".")[0], controller=controller, folder=folder, nodes=NODES, gpus=GPUS,
        ports=f"{first}-{first + NODES - 1}", more="\n".join(f"{key}={value}" for key, value in (more or {}).items()),
    )  # fmt: skip


def _range(many: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(20000 + os.getpid() % 5000, 32000, many):
        with suppress(OSError):
            held = [socket.socket() for _ in range(many)]
            try:
                for number, each in enumerate(held):
                    each.bind(("127.0.0.1", first + number))
                return first
            finally:
                for each in held:
                    each.close()
    raise AssertionError("no row of free ports")


def _munge(cluster: Cluster) -> None:
    inside = cluster.folder / "munge"
    inside.mkdir(mode=0o711)
    (inside / "key").write_bytes(os.urandom(1024))
    (inside / "key").chmod(0o600)
    options = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    words = [f"--{name}={inside / file}" for name, file in options.items()]
    cluster._daemon(["munged", "--foreground", "--force", *words], "munged.out")
    assert comes((inside / "socket").exists), (cluster.folder / "munged.out").read_text()


@contextmanager
def cluster(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster whose nodes are all idle, for as long as the block lasts."""
    folder.chmod(0o755)
    for inner in ("state", "spool"):
        (folder / inner).mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(configuration(folder, more))
    devices = [folder / f"gpu{number}" for number in range(GPUS)]
    for path in devices:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))  # /dev/null under another name
    (folder / "gres.conf").write_text(f"NodeName=n[1-{NODES}] Name=gpu Type=h100 File={folder}/gpu[0-{GPUS - 1}]\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTEST"))}
    made = Cluster(folder, {**kept, "SLURM_CONF": str(conf)})
    try:
        with guarded(folder):
            _munge(made)
            made.control()
            for number in range(1, NODES + 1):
                made.boot(f"n{number}")
            made.wait_idle()
            yield made
    finally:
        for daemon in made.daemons:
            daemon.wait()


if __name__ == "__main__":
    sys.stdin.read()
    sys.exit(0 if _end(Path(sys.argv[1])) else 1)
