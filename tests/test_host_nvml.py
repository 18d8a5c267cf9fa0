"""The conversation with NVML, held by the unmodified pynvml with the stand-in library."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import standin

from envkit.model import Observed, ValueState
from envkit.subjects.codec import from_plain
from envkit.subjects.host import Nvml, RowRemap
from envkit.subjects.host.gpu import Bar1, Clocks, Gpu, NvLink, PcieLink, Process, RetiredPages, SpareRows, Temperature

Conversation = Callable[..., Nvml]


@pytest.fixture
def ask(tmp_path: Path) -> Conversation:
    """Asks the stand-in with a profile and lines that change it."""
    folder = standin.library()
    if folder is None:
        pytest.skip("there is no C compiler")

    def conversation(profile: str, lines: str = "", limit_s: float = 20.0) -> Nvml:
        overlay = tmp_path / "overlay.profile"
        overlay.write_text(lines)
        plain = standin.ask(folder, [standin.PROFILES / f"{profile}.profile", overlay], Path("/"), limit_s)
        return from_plain(Observed[Nvml], plain).need("NVML")

    return conversation


def missing(gpu: Gpu) -> dict[str, str]:
    """The values that were lost, and why; those that the GPU lacks are none of them."""
    found = {item.name: getattr(gpu, item.name) for item in fields(gpu) if item.name != "index"}
    return {name: seen.missing for name, seen in found.items() if seen.state is ValueState.MISSING}


def lacking(gpu: Gpu) -> set[str]:
    seen = {item.name: getattr(gpu, item.name) for item in fields(gpu)}
    return {name for name, value in seen.items() if isinstance(value, Observed) and value.is_unsupported}


LACKS = {
    "a100": {"retired", "fabric", "license"},
    "h100": {"retired", "license"},
    "h200": {"retired", "license"},
    "b200": {"retired", "license"},
    "l4": {"retired", "license", "links", "fabric", "mig_pending", "mig_instances"},
    "t4": {"license", "links", "fabric", "mig_pending", "mig_instances", "spare_rows", "sram"},
    "rtx4090": {
        "ecc_corrected",
        "ecc_uncorrected_ever",
        "fabric",
        "license",
        "links",
        "mig_instances",
        "mig_pending",
        "part_number",
        "retired",
        "serial",
        "spare_rows",
        "sram",
    },
}


def test_every_profile_is_known_here() -> None:
    assert set(LACKS) == {path.stem for path in standin.PROFILES.glob("*.profile")}


@pytest.mark.parametrize("profile", LACKS)
def test_product_has_what_it_has_and_lacks_the_rest(ask: Conversation, profile: str) -> None:
    seen = ask(profile)
    assert (seen.ended, seen.driver, seen.library, seen.cuda) == ("answered", "580.159.04", "13.580.159.04", "13.0")
    assert len(seen.gpus) == (1 if profile in ("l4", "t4", "rtx4090") else 8)
    for gpu in seen.gpus:
        assert missing(gpu) == {}
        assert gpu.state.value == "answers"
        assert lacking(gpu) == LACKS[profile]
    assert len({gpu.uuid.value for gpu in seen.gpus}) == len({gpu.pci.value for gpu in seen.gpus}) == len(seen.gpus)


def test_values_are_nvmls(ask: Conversation) -> None:
    gpu = ask("h100").gpus[4]
    assert (gpu.pci.value, gpu.sm.value, gpu.minor.value) == ("0000:9d:00.0", "sm_90", 4)
    assert (gpu.brand.value, gpu.architecture.value, gpu.gsp.value) == ("NVIDIA", "Hopper", "580.159.04")
    assert (gpu.memory.value, gpu.memory_used.value) == (81559 << 20, 1 << 20)
    assert gpu.bar1.value == Bar1(128 << 30, 1 << 20)
    # 87 C is the limit: slowdown lies 2 degrees above it
    assert gpu.temperature.value == Temperature(31, 89, 43, 95)
    assert gpu.clocks.value == Clocks(345, 1980, 0)
    assert gpu.pcie.value == PcieLink(5, 16, 5, 16, 0)
    assert gpu.links.need("links")[17] == NvLink(
        17, True, 4, 26562, "switch", {"replay": 0, "recovery": 0, "crc_flit": 0}
    )
    assert gpu.spare_rows.value == SpareRows(full=2560)
    assert gpu.p2p.value == dict.fromkeys("0123567", "ok")
    assert gpu.fabric.need("fabric").cluster == "00000000-0000-0000-0000-000000000000"


def test_older_and_newer_links_have_their_own_counters(ask: Conversation) -> None:
    old = ask("a100", "gpu.3.nvlink.5.crc_data = 7\n").gpus[3].links.need("links")[5]
    assert old == NvLink(5, True, 3, 25000, "switch", {"replay": 0, "recovery": 0, "crc_flit": 0, "crc_data": 7})
    new = ask("b200", "gpu.3.field.214.5 = 2\ngpu.3.field.215.5 = 9\n").gpus[3].links.need("links")[5]
    assert (new.version, new.speed) == (5, 53125)
    assert new.errors == {"recovery": 9, "recovery_failed": 2, "receive": 0, "integrity": 0}


def test_link_that_is_down_is_told_without_the_rest(ask: Conversation) -> None:
    links = ask("h100", "gpu.0.nvlink.2.state = 0\n").gpus[0].links.need("links")
    assert links[2] == NvLink(2, active=False)
    assert len(links) == 18
    assert all(link.active for link in links if link.link != 2)


def test_health_of_the_fabric(ask: Conversation) -> None:
    lines = """
        gpu.0.fabric.health = 0x1a9
        gpu.1.fabric.health = 0x5aa
        gpu.2.fabric.state = 2
        gpu.3.fabric.cluster = 00112233445566778899aabbccddeeff
        gpu.4.fabric.status = 999
        gpu.5.fabric.state = 0
    """
    gpus = ask("b200", lines).gpus
    healths = [gpu.fabric.need("the fabric").health for gpu in gpus[:2]]
    well = dict.fromkeys(
        ("bandwidth degraded", "route recovery", "route unhealthy", "access timeout recovery"), "false"
    )
    assert healths[0] == {**well, "bandwidth degraded": "true", "incorrect configuration": "false"}
    assert healths[1] == {**well, "incorrect configuration": "true"}
    assert gpus[2].fabric.need("the fabric").state == "in progress"
    assert gpus[3].fabric.need("the fabric").cluster == "00112233-4455-6677-8899-aabbccddeeff"
    assert gpus[4].fabric.need("the fabric").status == 999
    assert gpus[5].fabric.is_unsupported


def test_old_gpu_retires_pages(ask: Conversation) -> None:
    gpu = ask("t4", "gpu.retired.single = 3\ngpu.retired.double = 1\ngpu.retired.pending = 1\n").gpus[0]
    assert gpu.retired.value == RetiredPages(3, 1, True)
    assert (gpu.remap.value, gpu.mig.value) == (RowRemap(supported=False), "unsupported")
    # the default of its application clocks lies far below the most: it is not held
    assert gpu.clocks.need("clocks").application_sm == 0


def test_clocks_that_somebody_holds(ask: Conversation) -> None:
    assert ask("a100", "gpu.0.clock.application.graphics = 765\n").gpus[0].clocks.need("x").application_sm == 765


def test_process_is_told_once_and_by_whom(ask: Conversation) -> None:
    me = os.getpid()
    lines = f"""
        gpu.0.processes.graphics = {me} 1000, 4194305 5
        gpu.0.processes.compute = {me} 4000, {me} 6000, 4194306 18446744073709551615
        gpu.0.processes.mps = 4194306 9
    """
    found = ask("h100", lines).gpus[0].processes.need("processes")
    own = Process(me, "compute", 10000, Path("/proc/self/comm").read_text().strip(), True)
    assert found == (own, Process(4194305, "graphics", 5), Process(4194306, "mps", 9))


def test_mig_and_vgpu(ask: Conversation) -> None:
    lines = "gpu.0.mig = 1\ngpu.0.mig.instances = 3\ngpu.1.mig.pending = 1\ngpu.2.virtual = 2\ngpu.2.licensed = 0\n"
    gpus = ask("h100", lines + "gpu.3.virtual = 2\ngpu.3.licensed = 1\ngpu.4.virtual = 2\n").gpus
    assert (gpus[0].mig.value, gpus[0].mig_instances.value) == ("on", 3)
    assert (gpus[1].mig.value, gpus[1].mig_pending.value, gpus[1].mig_instances.value) == ("off", "on", 0)
    assert [gpu.license.value for gpu in gpus[1:5]] == [None, "unlicensed", "licensed", None]
    assert gpus[4].license.is_unsupported


@pytest.mark.parametrize(("feature", "ready", "word"), [(0, 0, "off"), (1, 0, "not ready"), (1, 1, "on")])
def test_confidential_computing(ask: Conversation, feature: int, ready: int, word: str) -> None:
    assert ask("h100", f"confidential = {feature}\nconfidential.ready = {ready}\n").confidential.value == word


def test_throttling_by_its_names(ask: Conversation) -> None:
    lines = "gpu.0.throttle = 0x68\ngpu.1.throttle = 0x804\ngpu.0.field.271 = 5000999\n"
    gpus = ask("h100", lines).gpus
    assert gpus[0].throttle.value == ("hw slowdown", "sw thermal slowdown", "hw thermal slowdown")
    assert gpus[1].throttle.value == ("sw power cap", "reason 0x800")
    assert gpus[0].throttled_us.need("x")["hw power brake"] == 5000


def test_a_driver_that_counts_heat_in_both_fields_is_read_by_the_newer(ask: Conversation) -> None:
    (gpu, *_) = ask("h100", "gpu.0.field.269 = 9000\ngpu.0.field.75 = 7000\n").gpus
    assert gpu.throttled_us.need("x")["thermal"] == 9


# What a driver of another age answers


def test_older_driver_is_asked_in_its_own_words(ask: Conversation) -> None:
    newer = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlSystemGetNVMLVersion",
        "nvmlSystemGetConfComputeState",
    )
    lines = "".join(f"{name} = error 13\n" for name in newer) + "nvmlDeviceGetGpuFabricInfoV = error 25\n"
    # a field that the driver does not know
    lines += "".join(f"gpu.field.{field} = error 2\n" for field in (230, 269, 270, 271)) + "gpu.field.75 = 7000\n"
    seen = ask("h100", lines)
    gpu = seen.gpus[0]
    assert missing(gpu) == {}
    assert gpu.memory_used.value == (454 << 20) + (1 << 20)
    assert gpu.throttle.value == ("gpu idle",)
    assert gpu.throttled_us.value == {"power": 0, "thermal": 7, "sync boost": 0}
    assert gpu.fabric.need("the fabric").state == "completed"
    assert set(gpu.fabric.need("the fabric").health.values()) == {"not supported"}
    assert gpu.recovery.value == "unsupported"
    assert gpu.temperature.value == Temperature(31, -1, 43, 95)
    assert seen.confidential.is_unsupported
    assert "sram" in lacking(gpu)


def test_action_of_a_newer_driver_is_an_action(ask: Conversation) -> None:
    gpus = ask("h100", "gpu.0.field.230 = 2\ngpu.1.field.230 = 99\n").gpus
    assert (gpus[0].recovery.value, gpus[1].recovery.value) == ("node reboot", "action 99")


# Errors


@pytest.mark.parametrize(
    ("lines", "ended", "code", "detail"),
    [
        ("nvmlInit = error 9", "error", 9, "nvmlInit returned NVML_ERROR_DRIVER_NOT_LOADED (9)"),
        ("nvmlInit = error 18", "error", 18, "nvmlInit returned NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)"),
        ("nvmlInit = error 12", "no library", 12, "nvmlInit returned NVML_ERROR_LIBRARY_NOT_FOUND (12)"),
        ("nvmlDeviceGetCount_v2 = error 999", "error", 999, "nvmlDeviceGetCount returned NVML_ERROR_UNKNOWN (999)"),
        ("nvmlInit = error 777", "error", 777, "nvmlInit returned an unnamed NVML error (777)"),
        ("count = 4294967295", "error", 0, "nvmlDeviceGetCount returned 4294967295, which cannot be"),
    ],
)
def test_error_of_the_whole_is_named_with_its_call(
    ask: Conversation, lines: str, ended: str, code: int, detail: str
) -> None:
    seen = ask("t4", lines)
    assert (seen.ended, seen.code, seen.detail, seen.gpus) == (ended, code, detail, ())


def test_machine_without_gpus_answers(ask: Conversation) -> None:
    seen = ask("t4", "count = 0")
    assert (seen.ended, seen.gpus) == ("answered", ())


def test_lost_gpu_costs_itself_alone(ask: Conversation) -> None:
    gpus = ask("h100", "gpu.2.lost = 1\ngpu.5.nvmlDeviceGetHandleByIndex_v2 = error 15\n").gpus
    for index in (2, 5):
        assert gpus[index].state.value == "lost"
        everything = {item.name for item in fields(Gpu)} - {"index", "state"}
        assert set(missing(gpus[index])) == everything
        assert all("NVML_ERROR_GPU_IS_LOST (15)" in why for why in missing(gpus[index]).values())
    assert [gpu.state.value for gpu in gpus].count("answers") == 6
    # its peers cannot reach it, as far as NVML says
    assert gpus[0].p2p.need("p2p")["2"] == "unknown"
    assert "5" not in gpus[0].p2p.need("p2p")
    assert missing(gpus[0]) == {}


def test_gpu_that_falls_off_in_the_middle_is_lost(ask: Conversation) -> None:
    gpu = ask("h100", "gpu.1.nvmlDeviceGetPowerUsage = error 15\n").gpus[1]
    assert (gpu.state.value, gpu.name.value) == ("lost", "NVIDIA H100 80GB HBM3")
    assert gpu.pcie.missing == (
        "nvmlDeviceGetCurrPcieLinkGeneration was not asked, since another call for this GPU returned "
        "NVML_ERROR_GPU_IS_LOST (15)"
    )


def test_gpu_that_needs_a_reset_says_so(ask: Conversation) -> None:
    gpus = ask("h100", "gpu.3.reset = 1\n").gpus
    assert gpus[3].state.value == "needs reset"
    assert gpus[3].temperature.missing == "nvmlDeviceGetTemperature returned NVML_ERROR_RESET_REQUIRED (16)"
    assert gpus[2].state.value == "answers"


def test_gpu_that_may_not_be_asked_says_so(ask: Conversation) -> None:
    gpu = ask("t4", "nvmlDeviceGetHandleByIndex_v2 = error 4\n").gpus[0]
    assert gpu.state.value == "NVML_ERROR_NO_PERMISSION (4)"
    assert "NVML_ERROR_NO_PERMISSION (4)" in gpu.uuid.missing


@pytest.mark.parametrize("code", [6, 8, 10, 17, 19, 21, 777, 999])
def test_gpu_that_answers_nothing_is_named_by_its_error(ask: Conversation, code: int) -> None:
    symbols = {*CALLS.values(), "nvmlDeviceGetInforomImageVersion", "nvmlDeviceGetNvLinkErrorCounter"}
    symbols |= {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}
    symbols |= {"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPowerUsage"}
    symbols |= {"nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetApplicationsClock"}
    gpus = ask("h100", "".join(f"gpu.1.{symbol} = error {code}\n" for symbol in symbols)).gpus
    assert gpus[1].state.need("the state").endswith(f"({code})")
    assert set(missing(gpus[1])) == set(CALLS)
    assert gpus[0].state.value == "answers"
    assert missing(gpus[0]) == {}


def test_limits_are_signed_however_a_driver_types_them(ask: Conversation) -> None:
    gpu = ask("h100", "gpu.0.field.194 = 4294967294\n").gpus[0]
    assert gpu.temperature.value == Temperature(31, 89, 43, 95)


# one call of those that each value is made of
CALLS = {
    "uuid": "nvmlDeviceGetUUID",
    "name": "nvmlDeviceGetName",
    "pci": "nvmlDeviceGetPciInfo_v3",
    "sm": "nvmlDeviceGetCudaComputeCapability",
    "memory": "nvmlDeviceGetMemoryInfo_v2",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "ecc": "nvmlDeviceGetEccMode",
    "ecc_pending": "nvmlDeviceGetEccMode",
    "ecc_uncorrected": "nvmlDeviceGetTotalEccErrors",
    "remap": "nvmlDeviceGetRemappedRows",
    "recovery": "nvmlDeviceGetFieldValues",
    "mig": "nvmlDeviceGetMigMode",
    "mig_pending": "nvmlDeviceGetMigMode",
    "mig_instances": "nvmlDeviceGetMigMode",
    "minor": "nvmlDeviceGetMinorNumber",
    "serial": "nvmlDeviceGetSerial",
    "brand": "nvmlDeviceGetBrand",
    "architecture": "nvmlDeviceGetArchitecture",
    "part_number": "nvmlDeviceGetBoardPartNumber",
    "vbios": "nvmlDeviceGetVbiosVersion",
    "inforom": "nvmlDeviceValidateInforom",
    "gsp": "nvmlDeviceGetGspFirmwareMode",
    "memory_used": "nvmlDeviceGetMemoryInfo_v2",
    "bar1": "nvmlDeviceGetBAR1MemoryInfo",
    "ecc_corrected": "nvmlDeviceGetTotalEccErrors",
    "ecc_uncorrected_ever": "nvmlDeviceGetTotalEccErrors",
    "sram": "nvmlDeviceGetSramEccErrorStatus",
    "retired": "nvmlDeviceGetRetiredPages",
    "spare_rows": "nvmlDeviceGetRowRemapperHistogram",
    "temperature": "nvmlDeviceGetTemperature",
    "power": "nvmlDeviceGetEnforcedPowerLimit",
    "clocks": "nvmlDeviceGetMaxClockInfo",
    "throttle": "nvmlDeviceGetCurrentClocksEventReasons",
    "throttled_us": "nvmlDeviceGetFieldValues",
    "pstate": "nvmlDeviceGetPerformanceState",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "utilization": "nvmlDeviceGetUtilizationRates",
    "processes": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "display": "nvmlDeviceGetDisplayActive",
    "accounting": "nvmlDeviceGetAccountingMode",
    "pcie": "nvmlDeviceGetMaxPcieLinkWidth",
    "links": "nvmlDeviceGetNvLinkState",
    "fabric": "nvmlDeviceGetGpuFabricInfoV",
    "license": "nvmlDeviceGetVirtualizationMode",
    "virtual": "nvmlDeviceGetVirtualizationMode",
    "p2p": "nvmlDeviceGetP2PStatus",
}


def test_every_value_is_lost_with_its_call_and_alone(ask: Conversation) -> None:
    """GPU n of the machine may not ask the n-th call; no value of another call is missing with it."""
    assert set(CALLS) == {item.name for item in fields(Gpu)} - {"index", "state"}
    calls = sorted(set(CALLS.values()))
    for start in range(0, len(calls), 8):
        some = calls[start : start + 8]
        gpus = ask("h100", "".join(f"gpu.{index}.{call} = error 4\n" for index, call in enumerate(some))).gpus
        for gpu, call in zip(gpus, some, strict=False):
            lost = missing(gpu)
            expected = {name for name, asked in CALLS.items() if asked == call}
            # fields serve as parts of others
            more = {"temperature", "links"} if call == "nvmlDeviceGetFieldValues" else set()
            assert set(lost) == expected | more, call
            assert all("NVML_ERROR_NO_PERMISSION (4)" in why for why in lost.values())
            assert gpu.state.value == "answers"


GARBAGE = r"""
gpu.0.name = \xff\xfe\x80
gpu.0.vbios = \x1b[31mred
gpu.0.serial = \xc3
gpu.0.pci = not an address
gpu.0.memory = 18446744073709551615
gpu.0.temperature = 4294967295
gpu.0.power = 4294967295
gpu.0.clock.sm = 4294967295
gpu.0.utilization = 4000
gpu.0.pstate = 32
gpu.0.compute_mode = 77
gpu.0.persistence = 12
gpu.0.ecc.uncorrected = -1
gpu.0.ecc.corrected = 9223372036854775809
gpu.0.remap.uncorrectable = -3
gpu.0.banks.low = 4294967290
gpu.0.throttle = 0xffffffffffffffff
gpu.0.field.74 = -5
gpu.0.pcie.width = 0
gpu.0.processes.compute = many 4294967295
gpu.0.nvlink.count = 4294967295
gpu.0.fabric.state = 200
gpu.0.mig.pending = 9
gpu.0.sm.major = -1
gpu.0.minor = 4294967295
gpu.0.p2p = 4242
gpu.0.bar1 = 18446744073709551615
gpu.0.uuid =
"""


def test_garbage_costs_its_value_and_nothing_else(ask: Conversation) -> None:
    seen = ask("h100", GARBAGE + "driver = \\xffdriver\ncuda = 4294967295\nlibrary = \\x00\n")
    assert (seen.ended, seen.driver, seen.cuda, seen.library) == ("answered", "", "", "")
    gpu = seen.gpus[0]
    lost = {"name", "vbios", "serial", "pci", "memory", "temperature", "power", "clocks", "utilization", "pstate"}
    lost |= {"compute_mode", "persistence", "ecc_corrected", "remap", "spare_rows", "throttle", "throttled_us", "pcie"}
    lost |= {"processes", "fabric", "mig_pending", "sm", "minor", "p2p", "bar1"}
    assert set(missing(gpu)) == lost
    assert gpu.name.missing == "nvmlDeviceGetName returned text that is not UTF-8"
    assert gpu.pstate.missing == "nvmlDeviceGetPerformanceState returned 32, which cannot be"
    # all bits set is NVML's way to say that it has no such number, no text that it has none
    assert (gpu.ecc_uncorrected.value, gpu.uuid.is_unsupported) == (-1, True)
    assert len(gpu.links.need("links")) == 36
    assert gpu.state.value == "answers"
    assert all(missing(other) == {} for other in seen.gpus[1:])


@pytest.mark.parametrize(
    ("lines", "ended", "detail"),
    [
        ("nvmlInit = hang", "hung", "no answer within"),
        ("nvmlInit = crash", "killed", "SIGSEGV"),
        ("gpu.0.nvmlDeviceGetTemperature = hang", "hung", "no answer within"),
        ("gpu.0.nvmlDeviceGetTemperature = crash", "killed", "SIGSEGV"),
    ],
)
def test_library_that_hangs_or_dies(ask: Conversation, lines: str, ended: str, detail: str) -> None:
    seen = ask("t4", lines, limit_s=0.5)
    assert seen.ended == ended
    assert detail in seen.detail


def test_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no ELF file")
    plain: Any = standin.ask(tmp_path, [])
    seen = from_plain(Observed[Nvml], plain).need("NVML")
    assert (seen.ended, seen.detail) == ("no library", "nvmlInit returned NVML_ERROR_LIBRARY_NOT_FOUND (12)")
