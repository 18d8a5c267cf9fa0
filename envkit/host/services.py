"""The units of systemd that GPU machines depend on, by one question to it."""

from __future__ import annotations

from collections.abc import Sequence

from envkit.host.root import HostRoot, Source
from envkit.model import Observed
from envkit.subjects.host import Service
from envkit.system.proc import run

UNITS = (
    "nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex", "nvidia-cdi-refresh", "nvidia-dcgm", "nvidia-powerd",
    "nvlsm", "opensm", "opensmd", "openibd", "rdma-ndd", "docker", "containerd", "crio", "podman", "kubelet", "slurmd",
    "munge", "ssh", "sshd", "chrony", "chronyd", "ntp", "ntpd", "ntpsec", "systemd-timesyncd", "systemd-resolved",
    "systemd-networkd", "NetworkManager", "irqbalance", "numad", "tuned", "unattended-upgrades",
)  # fmt: skip
_ASKED = ("LoadState", "ActiveState", "UnitFileState", "NRestarts")
_ANSWER_S = 2.0


def parse_units(text: str, asked: Sequence[str]) -> dict[str, Service]:
    """What `systemctl show` printed of the units ``asked``: a block of NAME=value for each, an empty line between.

    An alias ("sshd") is answered with its unit's block, and stands under the name that was asked.  Raises ValueError
    for a block without a state, or another number of blocks.
    """
    blocks = text.strip().split("\n\n")
    if len(blocks) != len(asked):
        raise ValueError(f"systemctl answered with {len(blocks)} units of {len(asked)}")
    found: dict[str, Service] = {}
    for name, block in zip(asked, blocks, strict=True):
        said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if not said.get("LoadState") or not said.get("ActiveState"):
            raise ValueError(f"systemctl says no state of {name}")
        restarts = int(said["NRestarts"]) if said.get("NRestarts", "").isdecimal() else 0
        found[name] = Service(said["LoadState"], said["ActiveState"], said.get("UnitFileState", ""), restarts)
    return found


def units(place: HostRoot) -> Observed[dict[str, Service]]:
    """The units by name; none where systemd does not run, lost where it cannot be asked."""
    if not place.exists("run/systemd/system"):  # sd_booted(3)
        return Observed.of({}, "/run/systemd/system is not there")
    if not place.live:
        return Observed.lost("a recorded tree has no systemd to ask")
    argv = ["systemctl", "show", "--no-pager", f"--property={','.join(_ASKED)}", *(f"{name}.service" for name in UNITS)]
    try:
        answer = run(argv, timeout_s=_ANSWER_S)
    except FileNotFoundError:
        return Observed.lost("there is no systemctl")
    if answer.timed_out or answer.exit:
        why = f"no answer within {_ANSWER_S:g} s" if answer.timed_out else answer.stderr.strip()
        last = why.splitlines()[-1] if why else f"exit code {answer.exit}"
        return Observed.lost(f"systemctl: {last}", "systemctl show")
    return Observed.of(parse_units(answer.stdout, UNITS), "systemctl show")


SOURCES: dict[str, Source] = {"services": units}
