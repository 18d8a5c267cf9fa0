"""Puts a Host together: what cannot hang is read here, the rest by children that run side by side, each on a
budget.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import envkit
from envkit.errors import UsageError
from envkit.host import driver, machine
from envkit.model import Observed
from envkit.proc import run
from envkit.subjects.codec import from_plain
from envkit.subjects.host import (
    CdiSpec,
    CudaDirectory,
    DaemonConfig,
    DeviceNode,
    Disk,
    Docker,
    DriverLibrary,
    Host,
    LogLine,
    Nvml,
    Toolkit,
)
from envkit.versions import Cuda

T = TypeVar("T")

_CHILD_S = 3.0  # files, log, engine and disks answer in well under a second when they are well
_GRACE_S = 0.4  # a child that SIGTERM does not end hangs in the driver; a second chance helps nobody
_DOCKER_ROOT = "/var/lib/docker"
_LIVE = Path("/")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child printed, by key, and how it ended if not well ("did not answer within 3 s")."""

    values: Mapping[str, Any] = field(default_factory=dict)
    ended: str = ""


class Reader(Protocol):
    """Runs one of the readers of this package to its end or its limit."""

    def __call__(self, name: str, args: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
        """The answer of ``python -m envkit.host.<name> args...`` under ``environ`` within ``limit_s``
        seconds.
        """


def run_child(argv: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
    """Runs a program that prints JSON objects, one a line; what came before a hang or a death is kept."""
    try:
        ended = run(argv, timeout_s=limit_s, env=environ, grace_s=_GRACE_S)
    except OSError as error:
        return Answer({}, f"could not be started: {error}")
    values: dict[str, Any] = {}
    for line in ended.stdout.splitlines():
        try:
            values.update(json.loads(line))
        except (ValueError, TypeError):
            break  # a half-written line is the last one of a child that was stopped
    if ended.timed_out:
        return Answer(values, f"did not answer within {limit_s:g} s")
    if ended.exit < 0:
        return Answer(values, f"was killed by {signal.Signals(-ended.exit).name}")
    if ended.exit > 0:
        last = ended.stderr.strip().splitlines() or ["no message"]
        return Answer(values, f"ended with exit code {ended.exit}: {last[-1]}")
    return Answer(values)


def read_in_child(name: str, args: Sequence[str], environ: Mapping[str, str], limit_s: float) -> Answer:
    """The reader as a child of this Python; -P keeps the working directory's modules out of it."""
    package = str(Path(envkit.__file__).parents[1])
    search = [package, *filter(None, [environ.get("PYTHONPATH", "")])]
    argv = [sys.executable, "-P", "-m", f"envkit.host.{name}", *args]
    return run_child(argv, {**environ, "PYTHONPATH": os.pathsep.join(search)}, limit_s)


def _take(answer: Answer, key: str, kind: type[T], what: str) -> Observed[T]:
    """The value of type ``kind`` that a reader printed, or why there is none."""
    if key not in answer.values:
        return Observed.lost(f"the reader of {what} {answer.ended or 'printed nothing'}")
    try:
        return Observed.of(from_plain(kind, answer.values[key]), what)
    except UsageError as error:
        return Observed.lost(f"the reader of {what} printed something else: {error}")


def _unwrap(seen: Observed[Observed[T]]) -> Observed[T]:
    """A value that its reader already observed, or the loss of the reader's answer."""
    return seen.value if seen.value is not None else Observed.lost(seen.missing, seen.via)


def _nvml(answer: Answer) -> Observed[Nvml]:
    """The conversation; that the driver hung it or killed the child is itself an observation."""
    if "nvml" not in answer.values and answer.ended.startswith("did not answer"):
        return Observed.of(Nvml("hung", f"NVML {answer.ended}"), "NVML")
    if "nvml" not in answer.values and answer.ended.startswith("was killed"):
        return Observed.of(Nvml("killed", f"the process that asked NVML {answer.ended}"), "NVML")
    return _take(answer, "nvml", Nvml, "NVML")


def _nodes(answer: Answer) -> Observed[tuple[DeviceNode, ...]]:
    """The device files; the first one without a result is the one whose open hung or killed the child."""
    paths = answer.values.get("nodes")
    if not isinstance(paths, list):
        return Observed.lost(f"the reader of /dev {answer.ended or 'printed nothing'}")
    nodes: list[DeviceNode] = []
    for path in paths:
        if path not in answer.values:
            nodes.append(DeviceNode(path, f"its opening {answer.ended or 'was not reported'}"))
            break
        nodes.append(DeviceNode(path, answer.values[path]))
    nodes += [
        DeviceNode(path, "it was not tried, for another one's opening ended the try") for path in paths[len(nodes) :]
    ]
    return Observed.of(tuple(nodes), "open")


def _docker(answer: Answer) -> Observed[Docker]:
    if "docker" not in answer.values and answer.ended.startswith("did not answer"):
        return Observed.of(Docker("hung", f"the engine {answer.ended}"), "engine socket")
    return _take(answer, "docker", Docker, "the engine socket")


def _disks(answer: Answer, wishes: Mapping[str, str]) -> Observed[tuple[Disk, ...]]:
    found = []
    for use, path in wishes.items():
        disk = _take(answer, use, Disk, path)
        lost: Observed[int] = Observed.lost(disk.missing)
        found.append(disk.value if disk.value is not None else Disk(use, path, lost, lost))
    return Observed.of(tuple(found), "statvfs")


def observe_host(
    root: Path = _LIVE,
    budget_s: float = 8.0,
    *,
    wanted_cuda: str = "",
    name: str = "",
    environ: Mapping[str, str] | None = None,
    read: Reader = read_in_child,
) -> Host:
    """This machine, or the recorded tree of another one under ``root``, within ``budget_s`` seconds.

    ``wanted_cuda`` is the toolkit version that shall run here, if somebody declared one; ``name`` replaces
    the machine's own; ``environ`` its environment.  NVML cannot be asked about a recorded tree.  Raises
    UsageError if ``wanted_cuda`` is no version.
    """
    if wanted_cuda:
        try:
            Cuda(wanted_cuda)
        except ValueError as error:
            raise UsageError(str(error)) from error
    variables = os.environ if environ is None else environ
    whole = max(0.2, budget_s - 2 * _GRACE_S)
    # engine and disks follow one another and share the budget; what starts a GPU may take all of it, for
    # without persistence mode a start takes seconds a GPU
    limits = {"nvml": whole, "nodes": whole}

    def ask(reader: str, *args: str) -> Answer:
        return read(reader, [str(root), *args], variables, limits.get(reader, min(_CHILD_S, whole / 2)))

    def engine_then_disks() -> tuple[Observed[Docker], Answer, dict[str, str]]:
        engine = _docker(ask("engine"))
        data_root = engine.value.root if engine.value is not None else ""
        wishes = {"images": data_root or _DOCKER_ROOT, "temporary": variables.get("TMPDIR") or "/tmp"}
        return engine, ask("disks", *(f"{use}={path}" for use, path in wishes.items())), wishes

    with ThreadPoolExecutor(5) as pool:
        chain = pool.submit(engine_then_disks)
        nvml = pool.submit(ask, "nvml") if root == _LIVE else None
        nodes, files, log = (pool.submit(ask, reader) for reader in ("nodes", "files", "log"))
        machine_name = name or platform.node() or "this machine"
        kernel, os_name, glibc = machine.kernel(root), machine.os_name(root), machine.glibc(root)
        module, modules, pci_gpus = driver.module(root), driver.modules(root), driver.pci_gpus(root)
    engine, disks, wishes = chain.result()
    found = files.result()
    return Host(
        machine_name,
        wanted_cuda=Observed.of(wanted_cuda, "declared") if wanted_cuda else Observed.lost("none was declared"),
        kernel=kernel,
        os=os_name,
        glibc=glibc,
        cgroup=machine.cgroup(root),
        pci_gpus=pci_gpus,
        device_nodes=_nodes(nodes.result()),
        modules=modules,
        module=module,
        driver_libraries=_unwrap(
            _take(found, "driver_libraries", Observed[tuple[DriverLibrary, ...]], "the driver's libraries")
        ),
        nvml=_nvml(nvml.result()) if nvml else Observed.lost("a recorded tree has no NVML to ask"),
        docker=engine,
        daemon_config=_unwrap(_take(found, "daemon_config", Observed[DaemonConfig], "Docker's configuration")),
        cdi=_unwrap(_take(found, "cdi", Observed[tuple[CdiSpec, ...]], "the CDI specifications")),
        toolkit=_unwrap(_take(found, "toolkit", Observed[Toolkit], "the container toolkit")),
        shm=_unwrap(_take(disks, "shm", Observed[int], "/dev/shm")),
        disks=_disks(disks, wishes),
        limits=machine.limits(root),
        infiniband=machine.infiniband(root),
        log=_unwrap(_take(log.result(), "log", Observed[tuple[LogLine, ...]], "the kernel log")),
        environment=machine.environment(variables),
        cuda_on_path=_unwrap(_take(found, "cuda_on_path", Observed[tuple[CudaDirectory, ...]], "LD_LIBRARY_PATH")),
    )
