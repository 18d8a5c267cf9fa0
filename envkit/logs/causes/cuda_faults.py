"""Kernels that fault: wrong addresses, failed assertions, broken code, time-outs, and failures without a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import AFTERMATH, code_of, first, hardware, innermost, lines_of, neighbours, second_gpu
from envkit.logs.causes.rules import by_rule
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_ACCESS = "illegal-memory-access"
_SANITIZER = (
    "sanitizer-access",
    "sanitizer-remote-access",
    "sanitizer-uninitialized",
    "sanitizer-race",
    "sanitizer-hazard",
    "sanitizer-barrier",
)
_MISALIGNED = ("sanitizer-misaligned", "sanitizer-misaligned-access")
# Operations that take indices without looking at them on the GPU: the tables of torch's own assertions.
_INDEXING = re.compile(
    r"embedding|cross_entropy|nll_loss|\bgather\b|scatter|index_select|index_put|one_hot|take_along|index_add|gather\("
)
_PROBABILITY = re.compile(r"multinomial|categorical|torch\.bernoulli|\.sample\(")
_NUMBERS = re.compile(
    r"\bnan\b|\binf\b|isfinite|cumdist|val >= |\bge\(val|sum > |sum_val|input\[0\] != 0", re.IGNORECASE
)
_RANGE = re.compile(r"(?:input_val|\*input|target_val|input) ?>= ?(?:zero|0)")
_INDEX = re.compile(
    r"index|indices|\bind\b|idx|srcselectdimsize|n_classes|nclasses|num_classes|target|label|\bt >= 0|dim_size"
    r"|size\[|sizes\[|\btmp[0-9]+ ?<",
    re.IGNORECASE,
)
_OWN_KERNELS = re.compile(r"aten|/thc|\bthc|thcunn|torch|inductor|triton|tensorflow|paddle|\bat::", re.IGNORECASE)


def illegal_memory_access(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A kernel used an address that is not its own.

    The sanitizer's report is the cause itself; else the usual cause is a kernel, unless the program works on a GPU that
    is not the current one, or the kernel log names the hardware.
    """
    roots = story.in_category(_ACCESS)
    report = next(
        (event for event in roots if event.signature.id in _SANITIZER and not neighbours(story, event, _MISALIGNED)),
        None,
    )
    if report:
        around = neighbours(story, report, ("sanitizer-where", "sanitizer-out-of-bounds"), 4)
        what = f"the sanitizer reports `{report.line.text.strip('= ')}`"
        yield Hypothesis(
            _ACCESS, "gpu-kernel-bug", Strength.DECISIVE, lines_of(report, *around)[:4], what, over=AFTERMATH
        )
        return
    event = first(each for each in roots if each.signature.id not in _SANITIZER)
    if event is None:
        return
    broken = hardware(story)
    elsewhere = second_gpu(story, event)
    usual = Strength.POSSIBLE if broken or elsewhere else Strength.LIKELY
    decide = "compute-sanitizer names the kernel; CUDA_LAUNCH_BLOCKING=1 moves the Python line to the launch"
    if broken:
        yield Hypothesis(
            _ACCESS,
            "hardware-fault",
            Strength.POSSIBLE,
            lines_of(event, broken),
            "the kernel log names the GPU beside an illegal access",
            decide,
            over=AFTERMATH,
        )
    if elsewhere:
        yield Hypothesis(
            _ACCESS,
            "device-mixup",
            Strength.LIKELY,
            lines_of(event),
            f"an illegal access in a program that works on another GPU than the first one (`{elsewhere}`)",
            "it goes away with one visible GPU",
            over=AFTERMATH,
        )
    unchecked = _INDEXING.search(innermost(story, event, 2))
    if unchecked:
        yield Hypothesis(
            _ACCESS,
            "bad-index-or-label",
            Strength.POSSIBLE,
            lines_of(event),
            f"an illegal access was noticed in `{unchecked[0]}`, which takes indices",
            "the same call on the CPU raises an exception with the index",
            over=AFTERMATH,
        )
    yield Hypothesis(
        _ACCESS,
        "gpu-kernel-bug",
        usual,
        lines_of(event),
        "a kernel accessed memory that is not its own, and nothing in the log points away from the kernel",
        decide,
        over=AFTERMATH,
    )


def misaligned_address(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A wide load or store at an odd address: always some kernel's code, or the code generator's."""
    roots = story.in_category("misaligned-address")
    report = next((event for event in roots if event.signature.id in _MISALIGNED), None)
    event = report or first(roots)
    if event is None:
        return
    near = neighbours(story, event, ("sanitizer-access",), 4) if report else ()
    width = f" of {near[0].values['wanted']} bytes" if near and near[0].values.get("wanted") else ""
    yield Hypothesis(
        "misaligned-address",
        "gpu-kernel-bug",
        Strength.DECISIVE if report else Strength.LIKELY,
        lines_of(event, *near)[:3],
        f"a kernel made an access{width} at an address that is no multiple of its size",
        "compute-sanitizer names the kernel and the width; it fails only for odd sizes or offsets",
        over=(_ACCESS, *AFTERMATH),
    )


def device_side_assert(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A check in a kernel failed; its text says which, and the Python line is only where it was noticed."""
    category = "device-side-assert"
    told = [event for event in story.in_category(category) if event.signature.id.startswith("kernel-assert")]
    event = told[0] if told else first(story.in_category(category))
    if event is None:
        return
    rest = (_ACCESS, *AFTERMATH)
    if not told:
        yield from _assert_unseen(story, event, rest)
        return
    text = event.values.get("op", "")
    place = _kernel_file(event)
    evidence = lines_of(*told[:2])
    if _NUMBERS.search(text) or "probability tensor" in text:
        yield Hypothesis(
            category,
            "precision",
            Strength.LIKELY,
            evidence,
            f"the kernel wants probabilities and was given others (`{text}`)",
            "is the input finite",
            over=(*rest, "nan-or-inf-mixed-precision"),
        )
        return
    if _RANGE.search(text):
        yield Hypothesis(
            category,
            "bad-index-or-label",
            Strength.LIKELY,
            evidence,
            f"a value is outside of the range that the loss allows (`{text}`)",
            "print the least and the largest value",
            over=rest,
        )
        yield Hypothesis(category, "program-bug", Strength.POSSIBLE, evidence, f"a value is out of range (`{text}`)")
        return
    if _INDEX.search(text) or _OWN_KERNELS.search(place) or not place:
        known = Strength.DECISIVE if _INDEX.search(text) else Strength.LIKELY
        yield Hypothesis(
            category,
            "bad-index-or-label",
            known,
            evidence,
            f"the kernel's check `{text}` failed",
            "the same batch on the CPU raises an exception with the value",
            over=rest,
        )
        return
    yield Hypothesis(
        category,
        "gpu-kernel-bug",
        Strength.LIKELY,
        evidence,
        f"the check `{text}` failed in a kernel of the program's own ({place})",
        over=rest,
    )


def _kernel_file(event: Event) -> str:
    """The source file that an assertion's line begins with ("a.cu:12: kernel: block: ..."), "" without one."""
    before = event.line.text.partition("lock: [")[0].split(":", 1)[0].split()
    return before[-1] if before and "." in before[-1] else ""


def _assert_unseen(story: Story, event: Event, over: tuple[str, ...]) -> Iterator[Hypothesis]:
    code = code_of(story, event)
    decide = (
        "the assertion's text, further up or on the other stream, names the operation; the CPU raises with the value"
    )
    if found := _PROBABILITY.search(innermost(story, event, 3)):
        yield Hypothesis(
            event.category,
            "precision",
            Strength.POSSIBLE,
            lines_of(event),
            f"an assertion was noticed while sampling (`{found[0]}`)",
            decide,
            over=over,
        )
    named = _INDEXING.search(code)
    where = f", with `{named[0]}` among the calls" if named else ""
    yield Hypothesis(
        event.category,
        "bad-index-or-label",
        Strength.LIKELY,
        lines_of(event),
        f"an assertion of a kernel failed and its text is not in the log{where}",
        decide,
        over=over,
    )


def gpu_unknown_error(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """Failures that CUDA has no better name for; the code in the name tells the usual cause."""
    category = "gpu-hardware-unknown-error"
    event = first(story.in_category(category))
    if event is None:
        return
    broken = hardware(story)
    if broken:
        yield Hypothesis(
            category,
            "hardware-fault",
            Strength.POSSIBLE,
            lines_of(broken, event),
            "the kernel log names the GPU beside a failure without a name",
            over=AFTERMATH,
        )
        return
    yield from by_rule(event)


def watchdog_timeout(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """The driver ended a kernel because a display waits behind it."""
    event = first(story.in_category("watchdog-timeout"))
    if event is not None:
        yield from by_rule(event)


def illegal_instruction(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """An instruction that the CPU lacks (SIGILL), or broken code on the GPU."""
    event = first(story.in_category("illegal-instruction"))
    if event is None:
        return
    if event.has("cuda"):
        yield Hypothesis(
            "illegal-instruction",
            "gpu-kernel-bug",
            Strength.LIKELY,
            lines_of(event),
            "the GPU met code that it cannot run",
            "another GPU of the same kind runs it or not",
            over=AFTERMATH,
        )
        yield Hypothesis(
            "illegal-instruction",
            "hardware-fault",
            Strength.POSSIBLE,
            lines_of(event),
            "a failing GPU misreads code too",
        )
        return
    stated = event.signature.id == "avx-missing"
    lacks = f"{event.values['op']} is missing" if stated else "the process ended by SIGILL"
    yield Hypothesis(
        "illegal-instruction",
        "cpu-arch-unsupported",
        Strength.DECISIVE if stated else Strength.LIKELY,
        lines_of(event),
        f"the CPU met an instruction that it does not have ({lacks})",
        "gdb shows the instruction, lscpu what the CPU has",
        over=("insufficient-evidence",),
    )
