"""What the kernel log tells, from made-up lines in the words of the driver and the kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clocks import costs_less
from logs import story, told
from test_host_log import HEALTHY

from envkit import facts
from envkit.facts.xid import Xid, read_xid
from envkit.logs import knowledge
from envkit.logs.knowledge import signatures
from envkit.logs.records import Explanation, Strength
from envkit.logs.verdict import weigh
from envkit.logs.xid import nvlink5, nvlink_faults, nvlink_sympathetic, parsed, sxid_row, xid_signatures

FACTS = facts.load()
AT = "NVRM: Xid (PCI:0000:3b:00): "
OTHER = "NVRM: Xid (PCI:0000:86:00): "
LOST = "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
MMU = (
    "31, pid=77, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ "
    "0x7f12_00001000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"
)
SM = "13, pid={}, name=python3, Graphics SM Warp Exception on (GPC {}, TPC 1, SM 0): Out Of Range Address\n"
LINK = "74, pid=7, name=python3, NVLink: fatal error detected on link 3({}, 0x0, {}, 0x0, 0x0, 0x0, 0x0)\n"
NVLINK5 = "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0 0x0 0x0 0x0 0x0)\n"
DBE = "48, pid=77, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU\n"
RPC = (
    "119, pid=7, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 "
    "(GSP_RM_CONTROL) (0x20802a02 0x8).\n"
)


def answer(text: str, *more: str) -> tuple[str, str]:
    found = told(text, *more)
    return found.category, found.cause


def quoted(found: Explanation) -> str:
    return found.evidence[0].line.text


def one(text: str) -> Xid:
    (event,) = story(text).events
    found = parsed(event)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "pci", "mig"),
    [
        ("[  101.123456] NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost", "0000:01:00", ""),
        ("[  101.123456] [ T1946] NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost", "0000:01:00", ""),
        ("Aug 10 15:36:05 host kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost", "0000:01:00", ""),
        (
            "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, x",
            "0000:01:00",
            "",
        ),
        ("[Tue Aug 11 03:14:22 2026] NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost", "0000:01:00", ""),
        ("4,1234,56789,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost", "0000:01:00", ""),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 79, pid=1234, name=python3, lost", "0000:01:00", "05"),
        ("NVRM: Xid (PCI:0018:01:00): 79, pid=1234, name=python3, lost", "0018:01:00", ""),
        ("NVRM: Xid (PCI:0000:01:00.0): 79, pid='1234', name=python3, lost", "0000:01:00", ""),
        (
            '[XID found] (5 minutes ago) "NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, lost"',
            "0000:01:00",
            "",
        ),
    ],
)
def test_every_form_of_an_xid_line_is_read(line: str, pci: str, mig: str) -> None:
    found = one(line + "\n")
    assert (found.code, found.slot, found.mig, found.pid, found.name) == (79, pci, mig, 1234, "python3")


@pytest.mark.parametrize("who", ["pid='<unknown>', name=<unknown>", "pid=<n/a>, name=<n/a>"])
def test_an_unknown_process_is_none(who: str) -> None:
    found = one(f"NVRM: Xid (PCI:0000:01:00): 62, {who}, 32260b5e 000154b0\n")
    assert (found.pid, found.name, found.text) == (None, "", "32260b5e 000154b0")


def test_the_old_form_has_neither_bus_word_nor_process() -> None:
    found = one("NVRM: Xid (0000:03:00): 14, Channel 00000001\n")
    assert (found.code, found.pci, found.pid, found.channel) == (14, "0000:03:00", None, "00000001")


def test_the_signatures_hold_what_their_anchors_promise() -> None:
    mine = [row for row in signatures() if row.id.startswith(("nvrm-", "gsp-", "nvswitch-", "aer-", "kernel-"))]
    assert len(mine) > 30
    assert all(len(row.anchor) >= 5 for row in mine)


@pytest.mark.parametrize(
    ("text", "category", "cause"),
    [
        (LOST, "xid-79", "hardware-fault"),
        ("54, GPU auxiliary power is not connected\n", "xid-54", "hardware-fault"),
        ("92, High single-bit ECC error rate\n", "xid-other", "hardware-fault"),
        ("121, C2C error\n", "xid-74", "hardware-fault"),
        ("143, Error status 0x65 while polling for FSP boot complete, 0xff\n", "xid-143", "driver-firmware-fault"),
        ("159, CHI Non-Data Error\n", "xid-74", "hardware-fault"),
        ("166, NVLINK_SECURE_CRYPTO_ERR\n", "xid-74", "driver-firmware-fault"),
        ("170, NVLINK_SECURE_OTHER\n", "xid-74", "driver-firmware-fault"),
        ("173, C2C_FATAL_LINK_FAILURE\n", "xid-74", "hardware-fault"),
        (DBE, "xid-48", "hardware-fault"),
        ("94, pid=7, name=a, Contained: SM (0x1). RST: No, D-RST: No\n", "xid-94/95", "hardware-fault"),
        ("95, pid=7, name=a, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No\n", "xid-94/95", "hardware-fault"),
        ("140, An uncorrectable ECC error was met\n", "ecc-uncorrectable", "hardware-fault"),
        ("63, Row Remapper: New row marked for remapping, reset gpu to activate.\n", "xid-63/64", "hardware-fault"),
        ("64, Row Remapper: Error recording the row\n", "xid-63/64", "hardware-fault"),
        ("62, 32260b5e 000154b0\n", "xid-62", "hardware-fault"),
        (RPC, "xid-119/120 GSP", "driver-firmware-fault"),
        ("120, GSP task exception: load access page fault\n", "xid-119/120 GSP", "driver-firmware-fault"),
        (LINK.format("0x10", "0x0"), "xid-74", "hardware-fault"),
        (NVLINK5, "xid-144-150-nvlink5", "hardware-fault"),
        (MMU, "xid-31", "gpu-kernel-bug"),
        (SM.format(5, 0), "xid-13", "gpu-kernel-bug"),
        ("69, pid=5, name=a, Class Error: ChId 0010, Class 0000c6c0\n", "xid-13", "gpu-kernel-bug"),
        ("8, pid=5, name=a, Channel 00000010\n", "xid-8", "gpu-kernel-bug"),
        ("109, pid=5, name=a, Ch 00000008, errorString CTX SWITCH TIMEOUT\n", "xid-8", "driver-firmware-fault"),
        ("43, pid=5, name=a, Ch 00000008\n", "xid-43", "gpu-kernel-bug"),
        ("45, pid=5, name=a, Ch 00000008\n", "xid-45", "gpu-kernel-bug"),
        ("78, vGPU type is not supported\n", "xid-other", "version-mismatch"),
        ("66, Illegal access by driver\n", "xid-other", "driver-firmware-fault"),
        ("137, pid=7, name=a, NVLink: remote MMU fault\n", "xid-74", "gpu-kernel-bug"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)\n", "xid-154", "hardware-fault"),
    ],
)
def test_an_xid_alone(text: str, category: str, cause: str) -> None:
    found = told(AT + text)
    assert (found.category, found.cause) == (category, cause)
    assert quoted(found).startswith(AT[:10])


@pytest.mark.parametrize(
    ("first", "then", "category"),
    [
        (LINK.format("0x0", "0x10000").join([OTHER, ""]), AT + LOST, "xid-79"),  # the neighbour's view of a lost GPU
        (AT + LOST, OTHER + LINK.format("0x0", "0x10000"), "xid-79"),
        (AT + MMU, AT + "43, pid=77, name=python3, Ch 00000010\n", "xid-31"),
        (AT + "43, pid=77, name=python3, Ch 00000010\n", AT + MMU, "xid-31"),
        (AT + MMU, AT + "62, 2023b230 20238a3a\n", "xid-31"),  # the controller went down with the program
        (OTHER + MMU, AT + "62, 2023b230 20238a3a\n", "xid-62"),
        (AT + SM.format(5, 0), AT + DBE, "xid-48"),
        (AT + DBE, AT + "63, Row Remapper: New row marked for remapping\n", "xid-48"),
        (AT + "63, Row Remapper: New row\n", AT + "94, pid=7, name=a, Contained: SM (0x1). RST: No\n", "xid-94/95"),
        (AT + RPC, AT + LOST, "xid-119/120 GSP"),  # it hung first and was lost then
        (AT + LOST, AT + RPC, "xid-79"),
        (AT + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n", AT + DBE, "xid-48"),
        ("nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 20034, Fatal, Link 28 LTSSM Fault Up\n", AT + DBE, "sxid-nvlink"),
        ("nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 20034, Fatal, Link 28 LTSSM Fault Up\n", AT + LOST, "xid-79"),
    ],
)
def test_root_and_consequence(first: str, then: str, category: str) -> None:
    assert told(first + then).category == category


def test_a_clean_up_names_its_cause_where_that_line_is_missing() -> None:
    found = told(OTHER + "45, pid=7, name=a, Ch 00000001 caused by previous Xid 149\n")
    assert (found.category, found.cause) == ("xid-144-150-nvlink5", "hardware-fault")
    assert "Xid 149" in found.because and "not here" in found.because
    whole = told(OTHER + NVLINK5 + OTHER + "45, pid=7, name=a, Ch 00000001 caused by previous Xid 149\n")
    assert "149, NETIR" in quoted(whole)


def test_an_error_that_is_not_fatal_counts_only_where_it_took_a_program_down() -> None:
    mild = AT + "145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000002 0x0 0x0 0x0 0x0 0x0)\n"
    assert told(mild).confidence < 0.6
    assert told(mild + AT + "45, pid=9, name=a, Ch 00000002 caused by previous Xid 145\n").confidence > 0.9
    assert told(AT + SM.format(5, 0) + mild).category == "xid-13"


def test_one_place_under_three_programs_is_the_chip_and_several_places_are_the_program() -> None:
    same = "".join(AT + SM.format(pid, 2) for pid in (5, 6, 7))
    assert answer(same) == ("xid-13", "hardware-fault")
    assert answer("".join(AT + SM.format(pid, pid) for pid in (5, 6, 7)))[1] == "gpu-kernel-bug"
    assert answer(same.replace("pid=7", "pid=6"))[1] == "gpu-kernel-bug"


def test_errors_of_the_bus_before_a_lost_gpu_are_quoted_too() -> None:
    aer = "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
    found = told("[  100.2] " + aer + "[  101.0] " + AT + LOST)
    assert [mark.line.number for mark in found.evidence] == [2, 1]
    assert "PCIe port" in found.because
    assert len(told("[  100.2] " + AT + LOST + "[  101.0] " + aer).evidence) == 1


def test_a_lost_gpu_without_a_code() -> None:
    text = (
        "[ 10.0] NVRM: The NVIDIA GPU 0000:a7:00.0\n"
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    found = told(text)
    assert (found.category, found.cause, found.evidence[0].line.number) == ("xid-79", "hardware-fault", 3)
    assert "0000:a7:00" in found.because
    assert answer("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n") == ("xid-79", "hardware-fault")


@pytest.mark.parametrize(
    "text",
    [
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
        "Unable to determine the device handle for GPU0000:07:00.0: GPU is lost.  Reboot the system to recover\n",
        "pynvml.NVMLError_GpuIsLost: GPU is lost\n",
    ],
)
def test_tools_that_cannot_reach_a_gpu(text: str) -> None:
    assert answer(text) == ("xid-79", "hardware-fault")
    assert told(text + AT + RPC).category == "xid-119/120 GSP"  # what the driver wrote itself counts more


def test_the_driver_asks_for_a_recovery_and_the_fix_says_so() -> None:
    asks = AT + "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n"
    assert "Node Reboot Required" in told(AT + LOST + asks).fix
    over = AT + "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)\n"
    assert "recovery" not in told(AT + LOST + over).fix


PROGRAM = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 3, in <module>\n'
    "    loss.backward()\n"
    "RuntimeError: CUDA error: {}\n"
)


@pytest.mark.parametrize("kernel_first", [False, True])
def test_a_programs_own_fault_stays_the_programs(kernel_first: bool) -> None:
    program = PROGRAM.format("an illegal memory access was encountered")
    logs = (AT + MMU, program) if kernel_first else (program, AT + MMU)
    found = told(*logs)
    assert (found.category, found.cause) == ("illegal-memory-access", "gpu-kernel-bug")
    assert "illegal memory access" in quoted(found)


def test_the_tie_of_a_program_and_the_kernel_is_told() -> None:
    program = "2026-08-10T15:36:05Z " + PROGRAM.format("an illegal memory access was encountered").splitlines()[-1]
    both = story(program + "\n", "2026-08-10T15:36:06Z " + AT + MMU)
    ties = [each.because for each in weigh(both, FACTS) if "kernel log has it too" in each.because]
    assert len(ties) == 1 and "same second" in ties[0] and "0x7f1200001000" in ties[0]
    apart = story(program + "\n", "2026-08-10T17:36:06Z " + AT + MMU)
    assert not any("same second" in each.because for each in weigh(apart, FACTS))


@pytest.mark.parametrize(("who", "tied"), [("(Worker pid=77) ", True), ("(Worker pid=78) ", False), ("", False)])
def test_a_program_and_the_kernel_are_tied_by_the_process_that_both_name(who: str, tied: bool) -> None:
    program = who + PROGRAM.format("an illegal memory access was encountered").splitlines()[-1]
    (beside,) = [
        each for each in weigh(story(program + "\n", AT + MMU), FACTS) if "kernel log has it too" in each.because
    ]
    assert ("for the same process" in beside.because) is tied
    assert beside.strength is (Strength.LIKELY if tied else Strength.POSSIBLE)


@pytest.mark.parametrize(
    ("message", "xid", "category"),
    [
        ("unspecified launch failure", DBE, "xid-48"),
        ("unknown error", LOST, "xid-79"),
        ("uncorrectable ECC error encountered", "94, pid=7, name=a, Contained: SM (0x1). RST: No\n", "xid-94/95"),
        ("unspecified launch failure", NVLINK5, "xid-144-150-nvlink5"),
    ],
)
def test_a_hardware_error_explains_what_the_program_saw(message: str, xid: str, category: str) -> None:
    assert answer(PROGRAM.format(message), AT + xid) == (category, "hardware-fault")
    assert told(PROGRAM.format(message)).category != category


def test_an_error_of_another_day_explains_nothing() -> None:
    program = "2026-08-10T15:36:05Z " + PROGRAM.format("unspecified launch failure").splitlines()[-1] + "\n"
    near = weigh(story(program, "2026-08-10T15:36:04Z " + AT + LOST), FACTS)
    far = weigh(story(program, "2026-08-01T15:36:04Z " + AT + LOST), FACTS)
    assert "gpu-hardware-unknown-error" in near[0].over
    assert not any("gpu-hardware-unknown-error" in each.over for each in far)


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        "cudaErrorECCUncorrectable",
        "NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
    ],
)
def test_an_ecc_error_of_a_program(message: str) -> None:
    assert answer(message + "\n") == ("ecc-uncorrectable", "hardware-fault")


def test_counters_of_nvidia_smi_count_where_they_are_not_zero() -> None:
    assert answer("        Remapping Failure Occurred        : Yes\n") == ("xid-63/64", "hardware-fault")
    assert answer("            SRAM Uncorrectable            : 3\n")[0] == "ecc-uncorrectable"
    clean = (
        "SRAM Uncorrectable : 0\nDRAM Uncorrectable : 0\nRemapping Failure Occurred : No\nGPU Recovery Action : None\n"
    )
    assert told(clean).category == "insufficient-evidence"


BOOT = "NVRM: GPU 0000:98:00.0: RmInitAdapter failed! ({})\nNVRM: GPU 0000:98:00.0: rm_init_adapter failed, device 0\n"


@pytest.mark.parametrize(
    ("text", "category", "cause"),
    [
        (BOOT.format("0x62:0x65:1792"), "xid-119/120 GSP", "driver-firmware-fault"),
        ("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n", "xid-119/120 GSP", "driver-firmware-fault"),
        (
            "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP\n",
            "xid-119/120 GSP",
            "driver-firmware-fault",
        ),
        ("NVRM: _kgspIsHeartbeatTimedOut: Heartbeat timed out\n", "xid-119/120 GSP", "driver-firmware-fault"),
        (BOOT.format("0x26:0xffff:1375"), "cuda-init-no-device", "driver-firmware-fault"),
        (
            "NVRM: osInitNvMapping: *** Cannot attach gpu\n" + BOOT.format("0x22:0x56:894"),
            "xid-79",
            "hardware-fault",
        ),
        ("NVRM: The NVIDIA probe routine was not called for 2 device(s).\n", "cuda-init-no-device", "no-gpu-or-driver"),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).\n", "cuda-init-no-device", "driver-firmware-fault"),
        (
            "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n",
            "cuda-init-no-device",
            "wrong-build-installed",
        ),
        (
            "NVRM:  supported through the NVIDIA 390.xx Legacy drivers. Please\n",
            "cuda-init-no-device",
            "version-mismatch",
        ),
        (
            "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7\n",
            "cuda-init-no-device",
            "no-gpu-or-driver",
        ),
        (
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n",
            "cuda-init-no-device",
            "no-gpu-or-driver",
        ),
        (
            "NVRM: API mismatch: the client has the version 470.57.02, but\n"
            "NVRM: this kernel module has the version 460.91.03.  Please\n",
            "driver-library-mismatch",
            "version-mismatch",
        ),
        ("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 4: be00000000000000\n", "not-gpu-env", "hardware-fault"),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify\n", "xid-8", "gpu-kernel-bug"),
    ],
)
def test_sentences_without_a_code(text: str, category: str, cause: str) -> None:
    assert answer(text) == (category, cause)


def test_both_versions_of_a_mismatch_are_told_in_either_form() -> None:
    old = (
        "NVRM: API mismatch: the client has the version 470.57.02, but\n"
        "NVRM: this kernel module has the version 460.91.03.  Please\n"
    )
    new = (
        "NVRM: API mismatch: the client 'python3' (pid 987)\n"
        "NVRM: has the version 470.57.02, but this kernel module has\n"
        "NVRM: the version 460.91.03.  Please make sure that this\n"
    )
    for text in (old, new):
        assert "470.57.02 against 460.91.03" in told(text).because


def test_a_segfault_inside_the_driver_and_its_twin_elsewhere() -> None:
    line = "[ 1.0] python3[4711]: segfault at 8 ip 00007f1 sp 00007ff error 4 in {}[7f00+1000]\n"
    assert answer(line.format("libcuda.so.575.51.03")) == ("segfault-in-driver", "driver-firmware-fault")
    assert answer(line.format("libnccl.so.2"))[0] == "segfault-in-driver"
    assert told(line.format("libfoo.so")).category != "segfault-in-driver"


def test_a_virtual_machine_that_crashed_in_the_driver_and_its_twin_elsewhere() -> None:
    report = (
        "# A fatal error has been detected by the Java Runtime Environment:\n#\n"
        "#  SIGSEGV (0xb) at pc=0x00007f1122334455, pid=3201, tid=3202\n#\n# Problematic frame:\n# C  [{}+0x2b4455]\n"
    )
    assert answer(report.format("libcuda.so.1")) == ("segfault-in-driver", "driver-firmware-fault")
    assert answer(report.format("libcudart.so.12")) == ("segfault-in-driver", "program-bug")
    assert answer(report.format("librender.so")) == ("not-gpu-env", "program-bug")


def test_a_segfault_after_a_cuda_error_is_its_fallout() -> None:
    text = PROGRAM.format("an illegal memory access was encountered") + (
        "[ 1.0] python3[4711]: segfault at 8 ip 00007f1 sp 00007ff error 4 in libcuda.so.575.51.03[7f00+1000]\n"
    )
    assert told(text).category == "illegal-memory-access"


def test_a_stack_with_the_driver_on_top() -> None:
    head = "[node1:123  :0:123] Caught signal 11 (Segmentation fault: address not mapped to object)\n"
    stack = (
        "{} 0x0000000000012730 __funlockfile()  ???:0\n{} 0x00000000000612ab ncclGroupEnd()  /opt/lib/libnccl.so.2\n"
    )
    assert told(head + stack.format(" 0", " 1")).category == "segfault-in-driver"
    assert told(head + stack.format("14", "15")).category != "segfault-in-driver"


def test_what_healthy_kernels_write_is_no_failure() -> None:
    text = HEALTHY + (
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel\n"
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 239\n"
        "NVRM: GPU at PCI:0000:3d:00: GPU-4a28de72-0000-0000-0000-000000000000\n"
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0\n"
        "nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 11012, Correctable, Link 28 ingress\n"
    )
    found = told(text)
    assert (found.category, found.cause) == ("insufficient-evidence", "unknown")
    assert not story(text).roots


def test_a_programs_bug_is_not_laid_to_a_clean_up_or_a_row_to_be_replaced() -> None:
    bug = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    x["a"]\nKeyError: \'a\'\n'
    for harmless in (
        "45, pid=5, name=a, Ch 00000008\n",
        "43, pid=5, name=a, Ch 00000008\n",
        "63, Row Remapper: New row\n",
    ):
        assert told(bug, AT + harmless).category == "not-gpu-env"


def test_talk_about_an_xid_is_no_xid() -> None:
    text = "maybe the GPU has fallen off the bus again, like the Xid 79 we had in May?\n"
    assert told(text).category == "insufficient-evidence"


def bare(code: int, text: str) -> Xid:
    return Xid(code, "0000:3b:00", "", None, "", text)


def test_an_mmu_fault_is_taken_apart() -> None:
    fault = one(AT + MMU).mmu_fault
    assert fault is not None
    assert (fault.engine, fault.client, fault.kind, fault.access) == (
        "GRAPHICS",
        "GPCCLIENT_T1_0",
        "FAULT_PDE",
        "ACCESS_TYPE_VIRT_READ",
    )
    assert fault.address == 0x7F1200001000 and not fault.near_null
    assert "reading address 0x7f1200001000" in told(AT + MMU).because
    low = told(AT + MMU.replace("0x7f12_00001000", "0x0_00000008"))
    assert "null pointer" in low.because
    newer = one(AT + MMU.replace("GRAPHICS GPC", "GRAPHICS GPC6 GPC")).mmu_fault
    assert newer is not None and newer.client == "GPCCLIENT_T1_0"
    assert one(AT + "31, Ch 00000003, engmask 00000101, intr 10000000\n").mmu_fault is None


def test_the_rules_of_nvlink_5_take_both_generations_of_words() -> None:
    (early,) = nvlink5(one(AT + NVLINK5))
    assert (early.unit, early.investigate, early.side) == (
        "NETIR_LINK_EVT/NETIR_LINK_DOWN",
        "INVESTIGATE_LINK_SI",
        "HW",
    )
    (late,) = nvlink5(bare(145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040 0x0 0x0 0x0 0x0 0x0)"))
    assert (late.unit, late.action, late.severity) == ("RLW_REMAP", "RESET_GPU", "Fatal")
    assert nvlink5(bare(145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x40000000 0x0)")) == ()
    assert nvlink5(bare(149, "no words at all")) == ()
    whole = bare(149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0 0x0 0x0)")
    assert whole.link is None and [row.unit for row in nvlink5(whole)] == ["NETIR/NETIR_INT"]


def test_a_rule_of_software_is_no_fault_of_hardware() -> None:
    word = 0b001111 << 20 | 0b0010001
    found = told(AT + f"149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08 ({word:#010x} 0x00000000 0x0 0x0 0x0 0x0 0x0)\n")
    assert (found.category, found.cause) == ("xid-144-150-nvlink5", "driver-firmware-fault")
    assert "INVESTIGATE_SW_USER" in found.because


def test_the_registers_of_an_nvlink_error() -> None:
    assert nvlink_faults(one(OTHER + LINK.format("0x10", "0x0"))) == ("parity or ECC errors inside the link's logic",)
    assert nvlink_faults(one(OTHER + LINK.format("0x100", "0x0"))) == (
        "errors that a badly seated board or bridge makes",
    )
    assert nvlink_sympathetic(one(OTHER + LINK.format("0x2", "0x0")))
    assert not nvlink_sympathetic(one(OTHER + LINK.format("0x12", "0x0")))
    assert not nvlink_sympathetic(bare(74, "NVLink: fatal error"))


def test_an_sxid_is_named() -> None:
    row = sxid_row(20034)
    assert row is not None and row.fatal == "yes" and row.name == "LTSSM Fault Up"
    assert sxid_row(1) is None


def test_the_words_of_an_xid() -> None:
    found = one(AT + RPC)
    assert found.rpc == (6, "GPU0", 76, "GSP_RM_CONTROL")
    assert "not to blame" in told(AT + RPC).because
    assert one(AT + SM.format(5, 3)).place == "GPC 3, TPC 1, SM 0"
    assert one(AT + SM.format(5, 3)).exception == "Out Of Range Address"
    assert bare(95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes").contained == "LTC TAG (0x2,0x0)"


def test_the_patterns_are_fast_on_hostile_lines() -> None:
    hostile = [
        "NVRM: Xid (PCI:" + "0" * 20000,
        "NVRM: " + "GPU 0000:3b:00.0: " * 1200,
        "| " * 10000 + "err! ",
        "nvidia " * 3000 + "failed with error -",
        "a[1]: " * 4000 + "segfault at 0 ip ",
        " " * 20000,
        "xid (" * 4000,
    ]
    mine = Path(knowledge.__file__).parent / "signatures" / "kernel.jsonl"
    rows = [re.compile(json.loads(line)["pattern"]) for line in mine.read_text("utf-8").splitlines()]
    rows += [re.compile(row.pattern) for row in xid_signatures(FACTS)]
    for text in hostile:
        with costs_less(2.0):
            for pattern in rows:
                pattern.search(text)
            read_xid(text)
