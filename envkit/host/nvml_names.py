"""The numbers of nvml.h as words; what is not in a table here NVML named after this was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from envkit.subjects.host.gpu import ComputeMode, FabricState, Mode, Peer, Truth, Virtual
from envkit.subjects.host.values import LanesOrNone

# NVML_GPU_RECOVERY_ACTION_*
ACTIONS = {
    0: "none", 1: "gpu reset", 2: "node reboot", 3: "drain peer-to-peer traffic", 4: "drain and reset",
    5: "recover imex domain", 6: "bus reset", 7: "system reboot",
}  # fmt: skip
# nvmlClocksEventReason*, by bit
REASONS = (
    "gpu idle", "applications clocks setting", "sw power cap", "hw slowdown", "sync boost", "sw thermal slowdown",
    "hw thermal slowdown", "hw power brake slowdown", "display clock setting", "board limit", "reliability",
)  # fmt: skip
COMPUTE_MODES: Mapping[int, ComputeMode] = {
    0: "default",
    1: "exclusive thread",
    2: "prohibited",
    3: "exclusive process",
}
VIRTUAL: Mapping[int, Virtual] = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
P2P: Mapping[int, Peer] = {
    0: "ok", 1: "chipset not supported", 2: "gpu not supported", 3: "topology not supported", 4: "disabled by regkey",
    5: "not supported", 6: "unknown",
}  # fmt: skip
BRANDS = {
    0: "unknown", 1: "Quadro", 2: "Tesla", 3: "NVS", 4: "GRID", 5: "GeForce", 6: "TITAN", 7: "NVIDIA vApps",
    8: "NVIDIA vPC", 9: "NVIDIA vCS", 10: "NVIDIA vWS", 11: "NVIDIA Cloud Gaming", 12: "Quadro RTX", 13: "NVIDIA RTX",
    14: "NVIDIA", 15: "GeForce RTX", 16: "TITAN RTX",
}  # fmt: skip
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
LINK_VERSIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}  # nvmlNvlinkVersion_t counts half versions too
# nvmlIntNvLinkDeviceType_t; the others are no ends of a GPU's traffic
REMOTES: Mapping[int, Literal["gpu", "switch"]] = {0: "gpu", 2: "switch"}
FABRIC_STATES: Mapping[int, FabricState] = {1: "not started", 2: "in progress", 3: "completed"}
# NVML_GPU_FABRIC_HEALTH_MASK_*: the shift of two bits each, 0 not supported, 1 true, 2 false
FABRIC_HEALTH = {"bandwidth degraded": 0, "route recovery": 2, "route unhealthy": 4, "access timeout recovery": 6}
FABRIC_TRUTH: Mapping[int, Truth] = {0: "not supported", 1: "true", 2: "false"}
FABRIC_CONFIGURATION = 8  # the shift of four bits: 0 not supported, 1 nothing incorrect, above what is
LANES: Mapping[int, LanesOrNone] = {lanes: lanes for lanes in get_args(LanesOrNone) if lanes}
MODES: Mapping[int, Mode] = {0: "off", 1: "on"}  # nvmlEnableState_t
