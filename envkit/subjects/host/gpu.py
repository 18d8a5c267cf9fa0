"""GPUs as the driver's management library shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from envkit.model import Observed

Mode = Literal["on", "off", "unsupported"]
Virtual = Literal["none", "passthrough", "vgpu", "host vgpu", "host vsga"]
ProcessKind = Literal["compute", "graphics", "mps"]
FabricState = Literal["not supported", "not started", "in progress", "completed"]
NvmlEnded = Literal["answered", "no library", "error", "hung", "killed"]


@dataclass(frozen=True, slots=True)
class RowRemap:
    """The row remapper of a GPU: rows remapped so far, a remap that waits for a reset, one that failed."""

    supported: bool = True
    correctable: int = 0
    uncorrectable: int = 0
    pending: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Clocks:
    """Frequencies in MHz: now, the most that the GPU can do, and what applications are held to (0: not held, which
    includes the driver's default).
    """

    sm: int = 0
    most_sm: int = 0
    application_sm: int = 0


@dataclass(frozen=True, slots=True)
class Temperature:
    """Degrees Celsius; a threshold that the GPU does not have is -1."""

    now: int
    slowdown: int = -1
    memory: int = -1
    memory_most: int = -1


@dataclass(frozen=True, slots=True)
class Power:
    """Milliwatts: drawn now, the limit in force, the default one, and the bounds of what may be set."""

    draw: int
    limit: int
    default: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class RetiredPages:
    """Pages taken out of use after single-bit and double-bit errors, and whether some wait for a reboot."""

    single_bit: int = 0
    double_bit: int = 0
    pending: bool = False


@dataclass(frozen=True, slots=True)
class SpareRows:
    """How many memory banks have so many of their spare rows left (nvmlRowRemapperHistogramValues_t)."""

    full: int = 0
    high: int = 0
    partial: int = 0
    low: int = 0
    none: int = 0


@dataclass(frozen=True, slots=True)
class Sram:
    """Uncorrected errors of the GPU's SRAM over its life; ``exceeded`` once the vendor's threshold was passed."""

    uncorrected_parity: int = 0
    uncorrected_secded: int = 0
    exceeded: bool = False


@dataclass(frozen=True, slots=True)
class PcieLink:
    """Generations and lanes: in force now, and the most that GPU and slot can do together; ``replays`` since the
    driver was loaded, -1 if it does not say.
    """

    generation: int
    width: int
    most_generation: int
    most_width: int
    replays: int = -1


@dataclass(frozen=True, slots=True)
class Bar1:
    """Bytes of the window through which the bus sees the GPU's memory."""

    total: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process on the GPU: "compute", "graphics" or "mps"; ``memory`` in bytes, -1 if the driver does not tell.
    ``name`` is empty if it could not be read; ``mine`` says whether it belongs to this user.
    """

    pid: int
    kind: ProcessKind
    memory: int = -1
    name: str = ""
    mine: bool = False


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link: ``version`` of NVLink, MB/s in one direction (0: not told), the other end ("gpu", "switch", "other")
    and its error counters by name (replay, recovery, crc_flit, crc_data; since Blackwell recovery, recovery_failed,
    receive, integrity), each only where the driver has it.  Of an inactive link nothing else is told.
    """

    link: int
    active: bool
    version: int = 0
    speed: int = 0
    remote: Literal["gpu", "switch", "other", ""] = ""
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fabric:
    """How the GPU stands in the NVLink fabric.

    ``state`` is "not started", "in progress" or "completed" (a GPU without a fabric has no Fabric: it is missing as
    unsupported); ``status`` the NVML return code of the registration (0: well); ``cluster`` a UUID and ``clique`` a
    number, which must be the same on all GPUs that shall talk; ``health`` maps "bandwidth degraded", "route recovery",
    "route unhealthy", "access timeout recovery" and "incorrect configuration" to "true", "false" or "not supported".
    """

    state: FabricState
    status: int = 0
    cluster: str = ""
    clique: int = 0
    health: Mapping[str, str] = field(default_factory=dict)


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

    index: int
    state: Observed[str] = field(default_factory=Observed)
    uuid: Observed[str] = field(default_factory=Observed)
    name: Observed[str] = field(default_factory=Observed)
    pci: Observed[str] = field(default_factory=Observed)
    sm: Observed[str] = field(default_factory=Observed)
    memory: Observed[int] = field(default_factory=Observed)
    persistence: Observed[Mode] = field(default_factory=Observed)
    ecc: Observed[Mode] = field(default_factory=Observed)
    ecc_pending: Observed[Mode] = field(default_factory=Observed)
    ecc_uncorrected: Observed[int] = field(default_factory=Observed)
    remap: Observed[RowRemap] = field(default_factory=Observed)
    recovery: Observed[str] = field(default_factory=Observed)
    mig: Observed[Mode] = field(default_factory=Observed)
    mig_pending: Observed[Mode] = field(default_factory=Observed)
    mig_instances: Observed[int] = field(default_factory=Observed)
    minor: Observed[int] = field(default_factory=Observed)
    serial: Observed[str] = field(default_factory=Observed)
    brand: Observed[str] = field(default_factory=Observed)
    architecture: Observed[str] = field(default_factory=Observed)
    part_number: Observed[str] = field(default_factory=Observed)
    vbios: Observed[str] = field(default_factory=Observed)
    inforom: Observed[str] = field(default_factory=Observed)
    gsp: Observed[str] = field(default_factory=Observed)
    memory_used: Observed[int] = field(default_factory=Observed)
    bar1: Observed[Bar1] = field(default_factory=Observed)
    ecc_corrected: Observed[int] = field(default_factory=Observed)
    ecc_uncorrected_ever: Observed[int] = field(default_factory=Observed)
    sram: Observed[Sram] = field(default_factory=Observed)
    retired: Observed[RetiredPages] = field(default_factory=Observed)
    spare_rows: Observed[SpareRows] = field(default_factory=Observed)
    temperature: Observed[Temperature] = field(default_factory=Observed)
    power: Observed[Power] = field(default_factory=Observed)
    clocks: Observed[Clocks] = field(default_factory=Observed)
    throttle: Observed[tuple[str, ...]] = field(default_factory=Observed)
    throttled_us: Observed[Mapping[str, int]] = field(default_factory=Observed)
    pstate: Observed[int] = field(default_factory=Observed)
    compute_mode: Observed[str] = field(default_factory=Observed)
    utilization: Observed[int] = field(default_factory=Observed)
    processes: Observed[tuple[Process, ...]] = field(default_factory=Observed)
    display: Observed[Mode] = field(default_factory=Observed)
    accounting: Observed[Mode] = field(default_factory=Observed)
    pcie: Observed[PcieLink] = field(default_factory=Observed)
    links: Observed[tuple[NvLink, ...]] = field(default_factory=Observed)
    fabric: Observed[Fabric] = field(default_factory=Observed)
    license: Observed[str] = field(default_factory=Observed)
    virtual: Observed[Virtual] = field(default_factory=Observed)
    p2p: Observed[Mapping[str, str]] = field(default_factory=Observed)


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
    code: int = 0
    driver: str = ""
    cuda: str = ""
    library: str = ""
    confidential: Observed[str] = field(default_factory=Observed)
    gpus: tuple[Gpu, ...] = ()
