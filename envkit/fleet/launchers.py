"""Who started this process, as its environment says: the node it is, the nodes that shall answer, the launch's name.

One small reader for each launcher.  The set of nodes is what the launcher was asked for, never who has answered.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace

from envkit.errors import UsageError, one_line
from envkit.fleet import hostlist
from envkit.records import dataclass

_FIX = "name them with --hosts, as a list such as n[1-8] or a file with one host a line"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a launcher put this process.

    ``launcher`` is "slurm", "job" (a Kubernetes Indexed Job), "torchrun", "openmpi", "mpich" or "hosts"; ``launch`` the
    name of this start, "" where the launcher has none; ``hosts`` all nodes that shall answer.  ``local`` counts the
    processes of this node from 0, of ``here`` in all.
    """

    launcher: str
    node: str
    hosts: tuple[str, ...]
    launch: str = ""
    local: int = 0
    here: int = 1


def placement(environ: Mapping[str, str], hosts: str = "", node: str = "", count: int = 0) -> Placement:
    """The placement of this process, read from the first launcher that ``environ`` shows, the innermost first.

    ``hosts`` are the nodes that a person named, ``node`` which of them this one is, ``count`` how many there are where
    nodes have numbers for names; each wins over the launcher.  Raises UsageError where the set of nodes is not known,
    or this node is none of it.
    """
    named = hostlist.given(hosts) if hosts else tuple(map(str, range(_bounded(count)))) if count else ()
    found = _found(environ, named) or Placement("hosts", "", named)
    nodes = named or found.hosts
    if not nodes:
        raise UsageError("which nodes shall answer is not known", _FIX)
    own = _own_name(nodes)
    mine = node or (own if named and own in nodes else found.node) or own
    if mine not in nodes:
        mine = _own_name(nodes, mine)
    if mine not in nodes:
        shown = hostlist.compressed(nodes)
        raise UsageError(
            f"this node is `{one_line(mine)}`, which is none of {one_line(shown)}", "name it with --node, or in --hosts"
        )
    return Placement(found.launcher, mine, nodes, found.launch, found.local, found.here)


def expected(environ: Mapping[str, str], hosts: str = "", count: int = 0) -> tuple[str, ...]:
    """The nodes that shall answer, for a process that is none of them; empty where nobody says."""
    if hosts:
        return hostlist.given(hosts)
    if count:
        return tuple(map(str, range(_bounded(count))))
    found = _found(environ, ())
    return found.hosts if found else ()


def topology(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The domains of the network that this node is in, the widest first, from Slurm's topology plugin or from
    ENVKIT_TOPOLOGY ("spine1/leaf3"); empty where nobody says.  Raises UsageError for a name that is none."""
    if given := environ.get("ENVKIT_TOPOLOGY", ""):
        labels = tuple(given.split("/"))
    else:  # "s0.s3.n17", and "switch.switch.node" beside it; a tree alone has switches
        address, pattern = environ.get("SLURM_TOPOLOGY_ADDR", ""), environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "")
        if not pattern.startswith("switch") or address.count(".") != pattern.count("."):
            return ()
        labels = tuple(address.split(".")[:-1])
    if len(labels) > 8 or not all(hostlist.NAME.fullmatch(one) for one in labels):
        raise UsageError(
            f"`{one_line('/'.join(labels))}` names no domains of a network", "give names such as spine1/leaf3"
        )
    return labels


def _found(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    found = next((made for reader in READERS if (made := reader(environ, named))), None)
    if found and found.launcher == "torchrun" and not named:  # in an allocation, nodes have names in place of numbers
        outer = _slurm(environ, ())
        if outer and outer.node and len(outer.hosts) == len(found.hosts):
            found = replace(found, node=outer.node, hosts=outer.hosts, launch=outer.launch)
    if found and not found.launch:
        return replace(found, launch=environ.get("ENVKIT_LAUNCH", ""))
    return found


def _bounded(count: int) -> int:
    if not 0 < count <= hostlist.MOST_NODES:
        raise UsageError(f"{count} is no number of nodes", f"give one from 1 to {hostlist.MOST_NODES}")
    return count


def _own_name(nodes: tuple[str, ...], name: str = "") -> str:
    """The one of ``nodes`` that has this machine's name, with or without its domain; else the machine's name."""
    own = name or socket.gethostname()
    short = own.partition(".")[0]
    alike = [node for node in nodes if node == own or node.partition(".")[0] == short]
    return alike[0] if len(alike) == 1 else own


def _number(environ: Mapping[str, str], name: str, least: int = 0) -> int:
    text = environ.get(name, "")
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise UsageError(f"{name} is `{one_line(text)}`, which is no number of at least {least}", _FIX)
    return int(text)


def _slurm(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    if not environ.get("SLURM_JOB_ID"):
        return None
    step = environ.get("SLURM_STEP_ID", "")
    # Under mpirun the step is that of its daemons, which leaves out the node where mpirun runs.
    inner = _mpi_local(environ) is not None
    listed = "" if inner else environ.get("SLURM_STEP_NODELIST", "")
    nodes = listed or environ.get("SLURM_JOB_NODELIST", "") or environ.get("SLURM_NODELIST", "")
    launch = f"slurm-{environ['SLURM_JOB_ID']}"
    if environ.get("SLURM_RESTART_COUNT", "0") != "0":
        launch += f"r{environ['SLURM_RESTART_COUNT']}"
    if step and step != "4294967291":  # the step of a batch script, SLURM_BATCH_SCRIPT of slurm.h
        launch += f".{step}"
    local = int(environ.get("SLURM_LOCALID", "") or 0) if environ.get("SLURM_LOCALID", "0").isdigit() else 0
    here = _tasks_here(environ)
    if inner:
        local, here = _mpi_local(environ) or (local, here)
    return Placement(
        "slurm", environ.get("SLURMD_NODENAME", ""), hostlist.expand(nodes) if nodes else (), launch, local, here
    )


def _tasks_here(environ: Mapping[str, str]) -> int:
    """How many tasks this node has, of "8(x4),2" for all nodes in order."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts: list[int] = []
    for word in text.split(","):
        found = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", word)
        if not found:
            return 1
        counts += [int(found[1])] * min(int(found[2] or 1), hostlist.MOST_NODES)
    at = environ.get("SLURM_NODEID", "")
    return counts[int(at)] if at.isdigit() and int(at) < len(counts) else 1


def _mpi_local(environ: Mapping[str, str]) -> tuple[int, int] | None:
    for local, here in (
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        if environ.get(local):
            return _number(environ, local), _number(environ, here, 1)
    return None


def _torchrun(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    """A worker of torchrun (GROUP_RANK), or the container in which a training operator will start torchrun (PET_*)."""
    if environ.get("GROUP_RANK") and environ.get("GROUP_WORLD_SIZE"):
        rank, size = _number(environ, "GROUP_RANK"), _number(environ, "GROUP_WORLD_SIZE", 1)
        local = _number(environ, "LOCAL_RANK") if environ.get("LOCAL_RANK") else 0
        here = _number(environ, "LOCAL_WORLD_SIZE", 1) if environ.get("LOCAL_WORLD_SIZE") else 1
        run = environ.get("TORCHELASTIC_RUN_ID", "")
        launch = f"torchrun-{run}" if run not in ("", "none") else ""
        again = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return Placement("torchrun", *_numbered(rank, size, named), launch and f"{launch}r{again}", local, here)
    if environ.get("PET_NNODES") and environ.get("PET_NODE_RANK"):
        if ":" in environ["PET_NNODES"] and not named:
            said = f"PET_NNODES is `{one_line(environ['PET_NNODES'])}`, which leaves open how many nodes shall answer"
            raise UsageError(said, _FIX)
        size = len(named) or _number(environ, "PET_NNODES", 1)
        return Placement("torchrun", *_numbered(_number(environ, "PET_NODE_RANK"), size, named))
    return None


def _openmpi(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    if not environ.get("OMPI_COMM_WORLD_SIZE") or environ.get("SLURM_JOB_ID"):
        return None
    launch = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
    return _mpi("openmpi", environ, named, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch)


def _mpich(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    if not (environ.get("PMI_RANK") and environ.get("PMI_SIZE")) or environ.get("SLURM_JOB_ID"):
        return None
    return _mpi("mpich", environ, named, "PMI_RANK", "PMI_SIZE", "")


def _mpi(
    launcher: str, environ: Mapping[str, str], named: tuple[str, ...], rank: str, size: str, launch: str
) -> Placement:
    """With one process a node the ranks are the nodes; with more, which ranks share a node is the mapping's matter."""
    local, here = _mpi_local(environ) or (0, 1)
    launch = f"{launcher}-{launch}" if launch else ""
    if here > 1 or (named and len(named) != _number(environ, size, 1)):
        if not named:
            raise UsageError(
                f"{here} processes of one MPI launch are on this node, so their ranks do not say which nodes there are",
                "start one process a node, or name the nodes with --hosts",
            )
        return Placement(launcher, "", named, launch, local, here)
    return Placement(launcher, *_numbered(_number(environ, rank), _number(environ, size, 1), named), launch)


def _job(environ: Mapping[str, str], named: tuple[str, ...]) -> Placement | None:
    """An Indexed Job gives each Pod its index; how many there are is for --count, which equals its `completions`."""
    if not environ.get("JOB_COMPLETION_INDEX"):
        return None
    index = _number(environ, "JOB_COMPLETION_INDEX")
    return Placement("job", *_numbered(index, len(named), named)) if named else Placement("job", str(index), ())


def _numbered(rank: int, size: int, named: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The node of this number, by its name where the nodes were named in the launcher's order."""
    if size > hostlist.MOST_NODES:
        raise UsageError(f"{size} is no number of nodes", f"at most {hostlist.MOST_NODES} are judged together")
    nodes = named or tuple(map(str, range(size)))
    if rank >= len(nodes):
        raise UsageError(f"this process is number {rank} of {len(nodes)} nodes, counted from 0", _FIX)
    return nodes[rank], nodes


Reader = Callable[[Mapping[str, str], tuple[str, ...]], Placement | None]
# The innermost launcher first: torchrun may run in a task of srun, mpirun in an allocation.
READERS: tuple[Reader, ...] = (_torchrun, _slurm, _openmpi, _mpich, _job)
