"""The checks of the container engine where more than one way leads to a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hosts import recorded, said

from envkit.model import Observed, Outcome, Severity
from envkit.subjects.host import CdiSpec, Toolkit

HEALTHY = recorded("healthy-h100.json")
LOADED = HEALTHY.module.need("the module").version
DEVICES = ("nvidia.com/gpu=0", "nvidia.com/gpu=all")


def test_engine_that_reads_other_cdi_directories_is_not_accused() -> None:
    host = recorded("healthy-h100.json")
    docker = replace(
        host.docker.need("Docker"),
        runtimes=("runc",),
        cdi_dirs=Observed.of(("/opt/cdi",), "/info CDISpecDirs"),
        cdi_devices=Observed.lost("too old"),
    )
    bare = replace(host, docker=Observed.of(docker, "socket"), toolkit=Observed.of(Toolkit(), "directories"))
    assert said("host-docker-reaches-gpu", bare).outcome is Outcome.UNKNOWN
    for directory, outcome in (
        ("/etc/cdi", Outcome.FAIL),
        ("/run/cdi/", Outcome.PASS),
    ):  # the spec's is /var/run
        usual = replace(docker, cdi_dirs=Observed.of((directory,), "/info CDISpecDirs"))
        known = replace(bare, docker=Observed.of(usual, "socket"))
        assert said("host-docker-reaches-gpu", known).outcome is outcome


@pytest.mark.parametrize(
    ("lower", "severities"),
    [
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, versions=(LOADED,)), []),
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, versions=("470.82.01",)), [Severity.WARNING]),
        (CdiSpec("/etc/cdi/nvidia.yaml", devices=DEVICES, files=1, missing=("/x",)), [Severity.WARNING]),
        (CdiSpec("/etc/cdi/a.yaml", devices=(*DEVICES, "nvidia.com/gpu=1"), versions=("470.82.01",)), [Severity.ERROR]),
        (CdiSpec("/etc/cdi/a.yaml", error="a tab indents a line"), [Severity.ERROR]),
        (CdiSpec("/run/cdi/other.yaml", devices=DEVICES[:1], versions=(LOADED,)), [Severity.ERROR]),
    ],
)
def test_specification_of_this_boot_outranks_that_of_the_machine(lower: CdiSpec, severities: list[Severity]) -> None:
    both: tuple[CdiSpec, ...] = (lower, CdiSpec("/var/run/cdi/nvidia.yaml", devices=DEVICES, versions=(LOADED,)))
    result = said("host-cdi-fresh", replace(HEALTHY, cdi=Observed.of(both, "/etc/cdi, /var/run/cdi")))
    assert [finding.severity for finding in result.findings] == severities


def test_engine_with_a_runtime_of_its_own_needs_no_toolkit_here() -> None:
    none: tuple[CdiSpec, ...] = ()
    bare = replace(HEALTHY, toolkit=Observed.of(Toolkit(), "directories"), cdi=Observed.of(none, "/etc/cdi"))
    docker = HEALTHY.docker.need("Docker")
    for runtimes, severity in ((("nvidia", "runc"), Severity.WARNING), (("runc",), Severity.ERROR)):
        host = replace(bare, docker=Observed.of(replace(docker, runtimes=runtimes), "socket"))
        assert [finding.severity for finding in said("host-toolkit-installed", host).findings] == [severity]
