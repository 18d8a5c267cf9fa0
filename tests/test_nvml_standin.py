"""Sick GPUs end to end: the stand-in library, the real reader, the real checks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import machines
import pytest
import standin

from envkit import facts
from envkit.judging import judge
from envkit.model import Observed, Outcome, Result
from envkit.subjects import Host
from envkit.subjects.codec import from_plain
from envkit.subjects.host import Nvml

FACTS = facts.load()


@pytest.fixture(scope="module")
def library() -> Path:
    folder = standin.library()
    if folder is None:
        pytest.skip("there is no C compiler")
    return folder


def judged(host: Host) -> dict[str, Result]:
    return {result.check: result for result in judge.judge(host, FACTS)}


def observed(library: Path, overlay: Path, lines: str, limit_s: float) -> Host:
    """The healthy 8-GPU machine, whose NVML is the stand-in with these lines."""
    overlay.write_text(lines)
    plain = standin.ask(library, [standin.PROFILES / "h100.profile", overlay], limit_s=limit_s)
    return replace(machines.host("h100"), nvml=from_plain(Observed[Nvml], plain))


@pytest.mark.parametrize("name", standin.MACHINES)
def test_data_of_the_machines_is_what_the_reader_finds(library: Path, tmp_path: Path, name: str) -> None:
    text = (machines.DATA / name / "nvml.json").read_text(encoding="utf-8")
    assert text == standin.machine(name, library, tmp_path), "write it again with `python tests/standin.py`"


@pytest.mark.parametrize("profile", ["h100", "h200", "b200", "a100"])
def test_no_check_of_the_gpus_fires_on_a_healthy_machine(library: Path, profile: str) -> None:
    """Eight GPUs of any product; what else the machine says of itself names the product of the h100."""
    plain = standin.ask(library, [standin.PROFILES / f"{profile}.profile"])
    host = replace(machines.host("h100"), nvml=from_plain(Observed[Nvml], plain))
    fired = {
        check: result.outcome
        for check, result in judged(host).items()
        if result.outcome not in (Outcome.PASS, Outcome.SKIP) and check in OF_GPUS
    }
    assert fired == {}


# what is planted, the check that must fail, and words of its message
FAULTS = {
    "a GPU fell off the bus": ("gpu.2.lost = 1", "host-gpu-not-responding", "GPU 2"),
    "a GPU has no handle": ("gpu.2.nvmlDeviceGetHandleByIndex_v2 = error 15", "host-gpu-not-responding", "GPU 2"),
    "a GPU needs a reset": ("gpu.7.reset = 1", "host-gpu-not-responding", "GPU 7"),
    "the library is of another driver": ("nvmlInit = error 18", "host-nvml-not-working", "MISMATCH"),
    "the driver is not loaded": ("nvmlInit = error 9", "host-nvml-not-working", "DRIVER_NOT_LOADED"),
    "initialising hangs": ("nvmlInit = hang", "host-nvml-not-working", "no answer within"),
    "one call of one GPU hangs": ("gpu.5.nvmlDeviceGetPciInfo_v3 = hang", "host-nvml-not-working", "no answer within"),
    "initialising crashes": ("nvmlInit = crash", "host-nvml-not-working", "SIGSEGV"),
    "one call crashes": ("nvmlDeviceGetNvLinkState = crash", "host-nvml-not-working", "SIGSEGV"),
    "four billion GPUs": ("count = 4294967295", "host-nvml-not-working", "4294967295"),
    "an uncorrected memory error": ("gpu.1.ecc.uncorrected = 3", "host-ecc-uncorrected-errors", "3 uncorrected"),
    "ECC is off": ("gpu.1.ecc = 0\ngpu.1.ecc.pending = 0", "host-ecc-off", "GPU 1"),
    "a row waits for its remap": ("gpu.6.remap.pending = 1", "host-row-remap-failed-or-pending", "GPU 6"),
    "a row could not be remapped": ("gpu.6.remap.failed = 1", "host-row-remap-failed-or-pending", "GPU 6"),
    "the driver asks for a reset": ("gpu.3.field.230 = 1", "host-gpu-recovery-action-pending", "gpu reset"),
    "persistence mode is off": ("gpu.0.persistence = 0", "host-persistence-mode-off", "GPU 0"),
    "the infoROM is corrupt": ("gpu.4.inforom.corrupt = 1", "host-inforom-corrupt", "GPU 4"),
    "SRAM errors beyond the threshold": ("gpu.4.sram.exceeded = 1", "host-gpu-sram-errors", "GPU 4"),
    "no spare row is left": ("gpu.4.banks.none = 1", "host-gpu-spare-rows-low", "GPU 4"),
    "the hardware slows the GPU down": ("gpu.5.throttle = 0x48", "host-gpu-hardware-slowdown-active", "GPU 5"),
    "the GPU is too hot": ("gpu.5.temperature = 90\ngpu.5.margin = -3", "host-gpu-near-slowdown-temperature", "GPU 5"),
    "the power limit is low": ("gpu.0.power.limit = 350000", "host-gpu-power-limit-lowered", "GPU 0"),
    "clocks are held": (
        "gpu.0.clock.application.graphics = 1200\ngpu.0.throttle = 2",
        "host-gpu-clock-capped-by-setting",
        "GPU 0",
    ),
    "the GPU did not register": ("gpu.3.fabric.state = 2", "host-fabric-gpu-not-registered", "GPU 3"),
    "the registration failed": ("gpu.3.fabric.status = 999", "host-fabric-gpu-not-registered", "GPU 3"),
    "a GPU is of another clique": ("gpu.3.fabric.clique = 7", "host-fabric-clique-mismatch", "GPU 3"),
    "a route is unhealthy": ("gpu.3.fabric.health = 0x1a6a", "host-fabric-unhealthy", "GPU 3"),
    "a link is down": ("gpu.1.nvlink.4.state = 0", "host-nvlink-down", "GPU 1"),
    "a link is slow": ("gpu.1.field.164.4 = 13281", "host-nvlink-speed-reduced", "GPU 1"),
    "a link counts errors": ("gpu.1.field.162.4 = 12", "host-nvlink-errors-counted", "GPU 1"),
    "the PCIe link is narrow": ("gpu.2.pcie.width = 8", "host-pcie-width-reduced", "GPU 2"),
    "peers may not read": ("gpu.0.p2p.1 = 1", "host-gpu-peer-access-unavailable", "GPU 0"),
    "MIG waits for a reset": ("gpu.0.mig.pending = 1", "host-mig-change-pending", "GPU 0"),
    "MIG has no instances": ("gpu.0.mig = 1\ngpu.0.mig.pending = 1", "host-mig-without-instances", "GPU 0"),
    "nobody else may use it": ("gpu.0.compute_mode = 2", "host-compute-mode-not-default", "prohibited"),
    "a vGPU has no license": ("gpu.virtual = 2\ngpu.licensed = 0", "host-vgpu-unlicensed", "GPU 0"),
    "confidential GPUs take no work": (
        "confidential = 1\nconfidential.ready = 0",
        "host-confidential-computing-not-ready",
        "not",
    ),
}
OF_GPUS = {check for _, check, _ in FAULTS.values()}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found_by_its_check(library: Path, tmp_path: Path, fault: str) -> None:
    lines, check, words = FAULTS[fault]
    host = observed(library, tmp_path / "fault.profile", lines, 0.5 if "hang" in lines else 20.0)
    results = judged(host)
    assert results[check].outcome is Outcome.FAIL, json.dumps([results[check].reason, host.nvml.missing])
    assert words in " ".join(finding.message for finding in results[check].findings)
    assert not [result for result in results.values() if result.outcome is Outcome.CRASHED]


def test_garbage_breaks_no_check_and_passes_none_that_it_concerns(library: Path, tmp_path: Path) -> None:
    keys = ("throttle", "pcie.width", "fabric.state", "remap.pending", "compute_mode")
    keys += ("ecc", "mig", "persistence", "p2p", "banks.low", "inforom", "name", "pci", "sm.major")
    lines = (
        "".join(f"gpu.{key} = 4294967290\n" for key in (*keys, "0.temperature", "0.power"))
        + "gpu.uuid = \\xff\ndriver = \\xff\ncuda = 7\n"
    )
    results = judged(observed(library, tmp_path / "fault.profile", lines, 20.0))
    assert not [result for result in results.values() if result.outcome is Outcome.CRASHED]
    concerned = (
        "host-gpu-near-slowdown-temperature",
        "host-gpu-hardware-slowdown-active",
        "host-pcie-width-reduced",
        "host-ecc-off",
    )
    concerned += (
        "host-fabric-gpu-not-registered",
        "host-row-remap-failed-or-pending",
        "host-compute-mode-not-default",
        "host-persistence-mode-off",
    )
    assert {results[check].outcome for check in concerned} == {Outcome.UNKNOWN}
