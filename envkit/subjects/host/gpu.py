"""GPUs as the driver's management library shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from msgspec import Meta

from envkit.model import Observed
from envkit.records import dataclass
from envkit.subjects.host.values import (
    Capability,
    Celsius,
    Count,
    Generation,
    GpuBytes,
    GpuUuid,
    LanesOrNone,
    Megahertz,
    Milliwatts,
    PciAddress,
    Percent,
    Text,
    Threshold,
    Told,
    Version,
)

Mode = Literal["on", "off", "unsupported"]
Virtual = Literal["none", "passthrough", "vgpu", "host vgpu", "host vsga"]
ProcessKind = Literal["compute", "graphics", "mps"]
FabricState = Literal["not supported", "not started", "in progress", "completed"]
NvmlEnded = Literal["answered", "no library", "error", "hung", "killed"]
ComputeMode = Literal["default", "exclusive thread", "prohibited", "exclusive process"]
Confidential = Literal["off", "on", "not ready"]
Truth = Literal["true", "false", "not supported"]
Peer = Literal[
    "ok", "chipset not supported", "gpu not supported", "topology not supported", "disabled by regkey", "not supported",
    "unknown",
]  # fmt: skip
# lists that drivers lengthen: what is not named is given by its number
Recovery = Annotated[
    str,
    Meta(
        pattern="^(none|gpu reset|node reboot|drain peer-to-peer traffic|drain and reset|recover imex domain|bus reset"
        "|system reboot|unsupported|action [0-9]+)$"
    ),
]
Throttle = Annotated[
    str,
    Meta(
        pattern="^(gpu idle|applications clocks setting|sw power cap|hw slowdown|sync boost|sw thermal slowdown"
        "|hw thermal slowdown|hw power brake slowdown|display clock setting|board limit|reliability"
        "|reason 0x[0-9a-f]+)$"
    ),
]
Inforom = Annotated[str, Meta(pattern=r"^(valid|corrupt|[0-9A-Z][0-9A-Z.]+)$")]
Gsp = Annotated[str, Meta(pattern=r"^(off|[0-9]+(\.[0-9]+)+)$")]


@dataclass(frozen=True, slots=True)
class RowRemap:
    """The row remapper of a GPU: rows remapped so far, a remap that waits for a reset, one that failed."""

    supported: bool = True
    correctable: Count = 0
    uncorrectable: Count = 0
    pending: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Clocks:
    """Frequencies in MHz: now, the most that the GPU can do, and what applications are held to (0: not held, which
    includes the driver's default).
    """

    sm: Megahertz = 0
    most_sm: Megahertz = 0
    application_sm: Megahertz = 0


@dataclass(frozen=True, slots=True)
class Temperature:
    """Degrees Celsius; a threshold that the GPU does not have is -1."""

    now: Celsius
    slowdown: Threshold = -1
    memory: Threshold = -1
    memory_most: Threshold = -1


@dataclass(frozen=True, slots=True)
class Power:
    """Milliwatts: drawn now, the limit in force, the default one, and the bounds of what may be set."""

    draw: Milliwatts
    limit: Milliwatts
    default: Milliwatts
    least: Milliwatts
    most: Milliwatts


@dataclass(frozen=True, slots=True)
class RetiredPages:
    """Pages taken out of use after single-bit and double-bit errors, and whether some wait for a reboot."""

    single_bit: Count = 0
    double_bit: Count = 0
    pending: bool = False


@dataclass(frozen=True, slots=True)
class SpareRows:
    """How many memory banks have so many of their spare rows left (nvmlRowRemapperHistogramValues_t)."""

    full: Count = 0
    high: Count = 0
    partial: Count = 0
    low: Count = 0
    none: Count = 0


@dataclass(frozen=True, slots=True)
class Sram:
    """Uncorrected errors of the GPU's SRAM over its life; ``exceeded`` once the vendor's threshold was passed."""

    uncorrected_parity: Count = 0
    uncorrected_secded: Count = 0
    exceeded: bool = False


@dataclass(frozen=True, slots=True)
class PcieLink:
    """Generations and lanes: in force now, and the most that GPU and slot can do together; ``replays`` since the
    driver was loaded, -1 if it does not say.
    """

    generation: Generation
    width: LanesOrNone
    most_generation: Generation
    most_width: LanesOrNone
    replays: Told = -1


@dataclass(frozen=True, slots=True)
class Bar1:
    """Bytes of the window through which the bus sees the GPU's memory."""

    total: Count
    used: Count = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process on the GPU: "compute", "graphics" or "mps"; ``memory`` in bytes, -1 if the driver does not tell.
    ``name`` is empty if it could not be read; ``mine`` says whether it belongs to this user.
    """

    pid: Count
    kind: ProcessKind
    memory: Told = -1
    name: str = ""
    mine: bool = False


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link: ``version`` of NVLink, MB/s in one direction (0: not told), the other end ("gpu", "switch", "other")
    and its error counters by name (replay, recovery, crc_flit, crc_data; since Blackwell recovery, recovery_failed,
    receive, integrity), each only where the driver has it.  Of an inactive link nothing else is told.
    """

    link: Count
    active: bool
    version: Count = 0
    speed: Count = 0
    remote: Literal["gpu", "switch", "other", ""] = ""
    errors: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fabric:
    """How the GPU stands in the NVLink fabric.

    ``state`` is "not started", "in progress" or "completed" (a GPU without a fabric has no Fabric: it is missing as
    unsupported); ``status`` the NVML return code of the registration (0: well); ``cluster`` a UUID and ``clique`` a
    number, which must be the same on all GPUs that shall talk; ``health`` maps "bandwidth degraded", "route recovery",
    "route unhealthy", "access timeout recovery" and "incorrect configuration" to "true", "false" or "not supported".
    """

    state: FabricState
    status: Count = 0
    cluster: str = ""
    clique: Count = 0
    health: Mapping[str, Truth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML shows it; a mode is "on", "off" or "unsupported".

    ``memory`` is in bytes; ``ecc_uncorrected`` counts uncorrected errors since the driver was loaded, -1 where ECC is
    not supported; ``recovery`` is NVML's recovery action ("none", "gpu reset", ...) or "unsupported"; ``sm`` is a
    compute capability ("sm_86").

    What follows ``mig`` is unsupported where the GPU, or its driver, has no such thing. ``state``
    is "answers", "lost" (it fell off the bus), "needs reset" or the name and number of another NVML error of every
    call; a GPU that was lost is not asked any further. ``inforom`` is "valid", "corrupt" or the image's version where
    it cannot be validated; ``gsp`` the version of the GSP's firmware, "off" where it is not used; ``virtual`` "none",
    "passthrough", "vgpu", "host vgpu" or "host vsga"; ``license`` "licensed" or "unlicensed" for a vGPU, unsupported
    for any other GPU; ``display`` "on" if a program draws on a screen of it. ``memory`` and ``memory_used`` are in
    bytes; what the driver keeps for itself is used only where an old driver does not tell it apart. ``ecc_corrected``
    counts since the driver was loaded, ``ecc_uncorrected_ever`` over the GPU's life. ``throttle`` names the reasons
    that hold the clocks down now ("gpu idle", "applications clocks setting", "sw power cap", "hw slowdown", "sync
    boost", "sw thermal slowdown", "hw thermal slowdown", "hw power brake slowdown", "display clock setting", "board
    limit", "reliability", or "reason 0x..." for a bit that is none of these); ``throttled_us`` maps "power", "thermal",
    "hw thermal", "hw power brake", "sync boost" to microseconds since the driver was loaded, each only where the driver
    has it. ``utilization`` is in percent. ``p2p`` maps the index of each other GPU to "ok" or to why NVML denies
    peer-to-peer reads.
    """

    index: Count
    state: Observed[str] = field(default_factory=Observed)
    uuid: Observed[GpuUuid] = field(default_factory=Observed)
    name: Observed[Text] = field(default_factory=Observed)
    pci: Observed[PciAddress] = field(default_factory=Observed)
    sm: Observed[Capability] = field(default_factory=Observed)
    memory: Observed[GpuBytes] = field(default_factory=Observed)
    persistence: Observed[Mode] = field(default_factory=Observed)
    ecc: Observed[Mode] = field(default_factory=Observed)
    ecc_pending: Observed[Mode] = field(default_factory=Observed)
    ecc_uncorrected: Observed[Told] = field(default_factory=Observed)
    remap: Observed[RowRemap] = field(default_factory=Observed)
    recovery: Observed[Recovery] = field(default_factory=Observed)
    mig: Observed[Mode] = field(default_factory=Observed)
    mig_pending: Observed[Mode] = field(default_factory=Observed)
    mig_instances: Observed[Count] = field(default_factory=Observed)
    minor: Observed[Count] = field(default_factory=Observed)
    serial: Observed[Text] = field(default_factory=Observed)
    brand: Observed[Text] = field(default_factory=Observed)
    architecture: Observed[Text] = field(default_factory=Observed)
    part_number: Observed[Text] = field(default_factory=Observed)
    vbios: Observed[Text] = field(default_factory=Observed)
    inforom: Observed[Inforom] = field(default_factory=Observed)
    gsp: Observed[Gsp] = field(default_factory=Observed)
    memory_used: Observed[Count] = field(default_factory=Observed)
    bar1: Observed[Bar1] = field(default_factory=Observed)
    ecc_corrected: Observed[Count] = field(default_factory=Observed)
    ecc_uncorrected_ever: Observed[Count] = field(default_factory=Observed)
    sram: Observed[Sram] = field(default_factory=Observed)
    retired: Observed[RetiredPages] = field(default_factory=Observed)
    spare_rows: Observed[SpareRows] = field(default_factory=Observed)
    temperature: Observed[Temperature] = field(default_factory=Observed)
    power: Observed[Power] = field(default_factory=Observed)
    clocks: Observed[Clocks] = field(default_factory=Observed)
    throttle: Observed[tuple[Throttle, ...]] = field(default_factory=Observed)
    throttled_us: Observed[Mapping[str, Count]] = field(default_factory=Observed)
    pstate: Observed[Count] = field(default_factory=Observed)
    compute_mode: Observed[ComputeMode] = field(default_factory=Observed)
    utilization: Observed[Percent] = field(default_factory=Observed)
    processes: Observed[tuple[Process, ...]] = field(default_factory=Observed)
    display: Observed[Mode] = field(default_factory=Observed)
    accounting: Observed[Mode] = field(default_factory=Observed)
    pcie: Observed[PcieLink] = field(default_factory=Observed)
    links: Observed[tuple[NvLink, ...]] = field(default_factory=Observed)
    fabric: Observed[Fabric] = field(default_factory=Observed)
    license: Observed[Text] = field(default_factory=Observed)
    virtual: Observed[Virtual] = field(default_factory=Observed)
    p2p: Observed[Mapping[str, Peer]] = field(default_factory=Observed)


@dataclass(frozen=True, slots=True)
class Nvml:
    """How the conversation with NVML ended.

    ``ended`` is "answered", "no library" (libnvidia-ml.so.1 cannot be loaded), "error" (it returned an error;
    ``code`` is its number, ``detail`` its name and the call), "hung" or "killed" (``detail`` says after what,
    by what). ``cuda`` is the highest CUDA the driver supports, which is not the toolkit's; ``library`` the version of
    libnvidia-ml itself, the driver's behind the major number of a CUDA.  Each is empty where NVML said nothing that
    reads as one.  ``confidential`` is "off", "on", or "not ready" while GPUs of a confidential machine take no work.
    """

    ended: NvmlEnded
    detail: str = ""
    code: Count = 0
    driver: Version = ""
    cuda: Version = ""
    library: Version = ""
    confidential: Observed[Confidential] = field(default_factory=Observed)
    gpus: tuple[Gpu, ...] = ()
