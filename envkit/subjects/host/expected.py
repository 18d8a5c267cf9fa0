"""What somebody expects of a machine: the contract in expect.toml."""

from __future__ import annotations

from dataclasses import field

from envkit.records import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """``name`` is a pattern with ``*``; ``memory_gib`` the least of each; a mode is "on" or "off"."""

    count: int | None = None
    name: str = ""
    memory_gib: float | None = None
    mig: str = ""
    ecc: str = ""
    persistence: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedDriver:
    """Version specifiers (">=MAJOR.MINOR,<MAJOR"): of the driver, and of the newest CUDA that it supports."""

    version: str = ""
    cuda: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedNvlink:
    """How many links of each GPU are up."""

    links: int | None = None


@dataclass(frozen=True, slots=True)
class ExpectedInfiniband:
    """How many ports are active, and the least rate of each in Gb/s."""

    ports: int | None = None
    rate_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class ExpectedMachine:
    """Patterns with ``*`` for the kernel's release and the distribution's name; units of systemd that must run."""

    kernel: str = ""
    os: str = ""
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedChecks:
    """Checks that must pass and may not be skipped; checks that may stay unknown here."""

    require: tuple[str, ...] = ()
    may_be_unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """The whole contract; what it does not say is not judged.

    ``require`` names what a verdict must stand on: "gpu".
    """

    require: tuple[str, ...] = ()
    gpus: ExpectedGpus = field(default_factory=ExpectedGpus)
    driver: ExpectedDriver = field(default_factory=ExpectedDriver)
    nvlink: ExpectedNvlink = field(default_factory=ExpectedNvlink)
    infiniband: ExpectedInfiniband = field(default_factory=ExpectedInfiniband)
    machine: ExpectedMachine = field(default_factory=ExpectedMachine)
    checks: ExpectedChecks = field(default_factory=ExpectedChecks)
