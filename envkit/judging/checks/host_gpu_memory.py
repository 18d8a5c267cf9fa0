"""What is asked of the memory of a machine's GPUs: that it corrects errors, and how worn it is."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._gpus import of_each_gpu, told
from envkit.judging.checks._host import gpu_name, is_workstation
from envkit.judging.checks._outcomes import error, skip_if, warning
from envkit.judging.checks._rows import rows
from envkit.model import Finding, Severity
from envkit.subjects.host import Gpu

_REMAPPED_MOST = 512  # NVIDIA DCGM, common/DcgmGPUHardwareLimits.h: from here on a GPU is bad
_RETIRED_MOST = 63  # the same file: from here on a GPU is bad
_DOUBLE_BIT_MOST = 15  # the same file: more of these are watched
_SRAM_MOST = 4  # stas00/ml-engineering, compute/accelerator/nvidia/debug.md: GPUs with more of them went back

_ECC = "check it with `nvidia-smi -q -d ECC`"
_ROWS = "check it with `nvidia-smi -q -d ROW_REMAPPER`"


@of_each_gpu
def host_ecc_off(gpu: Gpu) -> Iterator[Finding]:
    """ECC is on where the GPU is sold with it on, now and after the next reset."""
    mode = told(gpu.ecc, "an ECC mode")
    skip_if(mode == "unsupported", "no GPU here reports an ECC mode")
    pending = gpu.ecc_pending.need("the pending ECC mode")
    skip_if(is_workstation(gpu) and mode == pending == "off", "workstation GPUs are sold with ECC off")
    if mode == pending == "on":
        return
    yield Finding(
        f"ECC of {gpu_name(gpu)} is {mode}" + ("" if pending == mode else f" and will be {pending} after a reset"),
        Severity.NOTE if is_workstation(gpu) else Severity.WARNING,
        evidence={f"now {mode}": gpu.ecc.via, f"pending {pending}": gpu.ecc_pending.via or gpu.ecc.via},
        fix=f"without it a flipped bit changes results silently: run `nvidia-smi -e 1` and reset the GPU; {_ECC}",
    )


@of_each_gpu
def host_gpu_sram_errors(gpu: Gpu) -> Iterator[Finding]:
    """The GPU's SRAM met few uncorrected errors over its life, and no vendor's threshold was passed."""
    if gpu.sram.value is None and not gpu.sram.is_unsupported and gpu.ecc_uncorrected_ever.value == 0:
        return
    sram = told(gpu.sram, "uncorrected SRAM errors")
    count = sram.uncorrected_parity + sram.uncorrected_secded
    if not sram.exceeded and count <= _SRAM_MOST:
        return
    passed = ", and the driver says that the vendor's threshold is passed" if sram.exceeded else ""
    yield Finding(
        f"the SRAM of {gpu_name(gpu)} met {count} uncorrected errors over its life{passed}",
        Severity.ERROR if sram.exceeded else Severity.WARNING,
        evidence={
            f"parity {sram.uncorrected_parity}, SEC-DED {sram.uncorrected_secded}": gpu.sram.via,
            f"threshold {'passed' if sram.exceeded else 'not passed'}": gpu.sram.via,
        },
        fix=f"SRAM has no spare rows: run the vendor's field diagnostic and replace the GPU; {_ECC}",
    )


@of_each_gpu
def host_row_remap_failed_or_pending(gpu: Gpu) -> Iterator[Finding]:
    """No GPU memory row waits for a remap or failed to be remapped."""
    rows = told(gpu.remap, "row remapping")
    skip_if(not rows.supported, "no GPU here reports row remapping")
    via, name = gpu.remap.via, gpu_name(gpu)
    if rows.failed:
        yield error(
            f"{name} could not remap a faulty memory row",
            evidence={"remapping failed": via},
            fix=f"its memory is worn out: replace the GPU; {_ROWS}",
        )
    if rows.uncorrectable >= _REMAPPED_MOST:
        yield error(
            f"{name} has {rows.uncorrectable} rows remapped after uncorrectable errors, and {_REMAPPED_MOST} is the "
            "limit",
            evidence={str(rows.uncorrectable): via},
            fix=f"replace the GPU; {_ROWS}",
        )
    if rows.pending:
        yield warning(
            f"{name} waits for a reset to remap a faulty memory row",
            evidence={"remapping pending": via},
            fix=f"reset the GPU between two jobs with `nvidia-smi --gpu-reset -i {gpu.index}`; {_ROWS}",
        )


@of_each_gpu
def host_gpu_spare_rows_low(gpu: Gpu) -> Iterator[Finding]:
    """Every bank of the GPU's memory has spare rows left."""
    spare = told(gpu.spare_rows, "spare memory rows")
    for count, words, severity in (
        (spare.none, "no spare row left", Severity.WARNING),
        (spare.low, "few spare rows left", Severity.NOTE),
    ):
        if count:
            yield Finding(
                f"{count} memory banks of {gpu_name(gpu)} have {words}",
                severity,
                evidence={f"{count} with {words}": gpu.spare_rows.via},
                fix=f"the next faulty row there cannot be repaired: plan to replace the GPU; {_ROWS}",
            )


@of_each_gpu
def host_retired_pages_many_or_pending(gpu: Gpu) -> Iterator[Finding]:
    """Few memory pages are retired, and none waits for it.

    GPUs before Ampere retire pages, later ones remap rows.
    """
    pages = told(gpu.retired, "retired memory pages")
    count = pages.single_bit + pages.double_bit
    via, check = gpu.retired.via, "check it with `nvidia-smi -q -d PAGE_RETIREMENT`"
    if count >= _RETIRED_MOST or pages.double_bit > _DOUBLE_BIT_MOST:
        worn = count >= _RETIRED_MOST
        yield Finding(
            f"{gpu_name(gpu)} has retired {count} memory pages, {pages.double_bit} of them after double-bit errors",
            Severity.ERROR if worn else Severity.WARNING,
            evidence={f"{pages.single_bit} single-bit, {pages.double_bit} double-bit": via},
            fix=f"{'replace the GPU' if worn else 'watch it: more than one further page a week means to replace it'}; "
            f"{check}",
        )
    if pages.pending:
        yield warning(
            f"{gpu_name(gpu)} waits for a reset to retire a faulty memory page",
            evidence={"retirement pending": via},
            fix=f"reset the GPU between two jobs with `nvidia-smi --gpu-reset -i {gpu.index}`, or reboot; {check}",
        )


CHECKS = rows(__name__)
