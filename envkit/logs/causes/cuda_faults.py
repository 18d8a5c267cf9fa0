"""Kernels that fault: wrong addresses, failed assertions, broken code, time-outs, and failures without a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import AFTERMATH, code_of, first, hardware, innermost, lines_of, neighbours, second_gpu
from envkit.logs.causes._readers import of_category
from envkit.logs.causes._setup import in_container
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule
from envkit.logs.records import Event, Hypothesis, Strength
from envkit.logs.story import Story

_ACCESS = "illegal-memory-access"
_SANITIZER = (
    "sanitizer-access", "sanitizer-remote-access", "sanitizer-uninitialized", "sanitizer-race", "sanitizer-hazard",
    "sanitizer-barrier",
)  # fmt: skip
_MISALIGNED = ("sanitizer-misaligned", "sanitizer-misaligned-access")
# Operations that take indices without looking at them on the GPU: the tables of torch's own assertions.
_INDEXING = re.compile(
    r"embedding|cross_entropy|nll_loss|\bgather\b|scatter|index_select|index_put|one_hot|take_along|index_add|gather\("
)
_PROBABILITY = re.compile(r"multinomial|categorical|torch\.bernoulli|\.sample\(")
_NUMBERS = re.compile(
    r"\bnan\b|\binf\b|isfinite|cumdist|\bval >= |\bge\(val|sum > |sum_val|input\[0\] != 0", re.IGNORECASE
)
_RANGE = re.compile(r"(?:input_val|\*input|target_val|input) ?>= ?(?:zero|0)")
_INDEX = re.compile(
    r"index|indices|\bind\b|idx|srcselectdimsize|n_classes|nclasses|num_classes|target|label|\bt >= 0|dim_size"
    r"|size\[|sizes\[|\btmp[0-9]+ ?<",
    re.IGNORECASE,
)
_OWN_KERNELS = re.compile(r"aten|/thc|\bthc|thcunn|torch|inductor|triton|tensorflow|paddle|\bat::", re.IGNORECASE)


_WITH_DISPLAY = re.compile(r"GeForce|\bQuadro|\bRTX (?:A\d{4}|\d{4})\b|\bWSL|\bTDR\b|Windows|[A-Z]:\\")
_WITHOUT_DISPLAY = re.compile(
    r"\b(?:A(?:2|10|16|30|40|100|800)|L(?:4|20|40S?)|[HB][12]00|GB?[23]00|T4|[VP]100|H800|H20)\b(?!-)"
)


def illegal_memory_access(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A kernel used an address that is not its own.

    The sanitizer's report is the cause itself; else the usual cause is a kernel, unless the program works on a GPU that
    is not the current one, or the kernel log names the hardware.
    """
    roots = story.in_category(_ACCESS)
    reports = [event for event in roots if event.signature.id in _SANITIZER]
    report = next((event for event in reports if not neighbours(story, event, _MISALIGNED)), None)
    if report:
        around = neighbours(story, report, ("sanitizer-where", "sanitizer-out-of-bounds"), 4)
        what = f"the sanitizer reports `{report.line.text.strip('= ')}`"
        yield worded("illegal-access-by-sanitizer", *lines_of(report, *around)[:4], why=what)
        return
    event = first(each for each in roots if each.signature.id not in _SANITIZER)
    if event is None:
        return
    usual = Strength.LIKELY
    if broken := hardware(story):
        yield worded("illegal-access-beside-hardware", event, broken)
        usual = Strength.POSSIBLE
    if elsewhere := second_gpu(story, event):
        yield worded("illegal-access-on-another-gpu", event, elsewhere=elsewhere)
        usual = Strength.POSSIBLE
    if unchecked := _INDEXING.search(innermost(story, event, 2)):
        yield worded("illegal-access-behind-indices", event, unchecked=unchecked[0])
    yield worded("illegal-access-of-a-kernel", event, strength=usual)


@of_category("watchdog-timeout")
def launch_timeout(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A kernel was cut by the driver's limit, which it keeps for GPUs that drive a display (cudaErrorLaunchTimeout)."""
    if not event.signature.id.startswith("launch-timeout"):
        return
    if headless := _headless(story):
        yield worded("launch-cut-without-a-display", event, over=AFTERMATH, what=headless)
        yield worded("launch-cut-by-a-display", event, strength=Strength.POSSIBLE)
        return
    yield worded("launch-cut-by-a-display", event, over=AFTERMATH)
    yield worded("endless-kernel-is-cut", event)


def _headless(story: Story) -> str:
    """What shows that the GPU drives no display, in words: its name, or that the program ran in a container."""
    told = [line.text for seen in story.files for line in (*seen.head, *seen.tail)]
    if any(_WITH_DISPLAY.search(text) for text in told):
        return ""
    named = next((found for text in told if (found := _WITHOUT_DISPLAY.search(text))), None)
    return f"an {named[0]}" if named else "the GPU of a container" if in_container(story) else ""


def misaligned_address(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A wide load or store at an odd address: always some kernel's code, or the code generator's."""
    roots = story.in_category("misaligned-address")
    report = next((event for event in roots if event.signature.id in _MISALIGNED), None)
    event = report or first(roots)
    if event is None:
        return
    near = neighbours(story, event, ("sanitizer-access",), 4) if report else ()
    width = f" of {near[0].values['wanted']} bytes" if near and near[0].values.get("wanted") else ""
    strength = Strength.DECISIVE if report else Strength.LIKELY
    yield worded("misaligned-access", *lines_of(event, *near)[:3], strength=strength, width=width)


@of_category("device-side-assert")
def device_side_assert(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """A check in a kernel failed; its text says which, and the Python line is only where it was noticed."""
    told = [each for each in story.in_category(event.category) if each.signature.id.startswith("kernel-assert")]
    if not told:
        yield from _assert_unseen(story, event)
        return
    event = told[0]
    text = event.values.get("op", "")
    place = _kernel_file(event)
    evidence = lines_of(*told[:2])
    if _NUMBERS.search(text) or "probability tensor" in text:
        yield worded("assert-of-probabilities", *evidence, text=text)
        return
    if _RANGE.search(text):
        yield worded("assert-of-a-range", *evidence, text=text)
        why = f"a value is out of range (`{text}`)"
        yield Hypothesis(event.category, "program-bug", Strength.POSSIBLE, evidence, why)
        return
    if _INDEX.search(text) or _OWN_KERNELS.search(place) or not place:
        known = Strength.DECISIVE if _INDEX.search(text) else Strength.LIKELY
        yield worded("assert-of-an-index", *evidence, strength=known, text=text)
        return
    yield worded("assert-of-own-kernel", *evidence, text=text, place=place)


def _kernel_file(event: Event) -> str:
    """The source file that an assertion's line begins with ("a.cu:12: kernel: block: ..."), "" without one."""
    before = event.line.text.partition("lock: [")[0].split(":", 1)[0].split()
    return before[-1] if before and "." in before[-1] else ""


def _assert_unseen(story: Story, event: Event) -> Iterator[Hypothesis]:
    over = (_ACCESS, *AFTERMATH)
    if found := _PROBABILITY.search(innermost(story, event, 3)):
        yield worded("unseen-assert-while-sampling", event, over=over, found=found[0])
    named = _INDEXING.search(code_of(story, event))
    where = f", with `{named[0]}` among the calls" if named else ""
    yield worded("unseen-assert", event, over=over, where=where)


@of_category("gpu-hardware-unknown-error")
def gpu_unknown_error(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """Failures that CUDA has no better name for; the code in the name tells the usual cause."""
    if broken := hardware(story):
        yield worded("unnamed-failure-beside-hardware", broken, event)
    else:
        yield from by_rule(event)


@of_category("illegal-instruction")
def illegal_instruction(story: Story, facts: Facts, event: Event) -> Iterator[Hypothesis]:
    """An instruction that the CPU lacks (SIGILL), or broken code on the GPU."""
    if event.has("cuda"):
        yield worded("illegal-instruction-on-gpu", event)
        yield worded("illegal-instruction-of-failing-gpu", event)
        return
    stated = event.signature.id.startswith("avx-missing")
    what = event.values.get("op") or "an instruction set that a package was built for"
    lacks = f"{what} is missing" if stated else "the process ended by SIGILL"
    yield worded(
        "illegal-instruction-on-cpu", event, strength=Strength.DECISIVE if stated else Strength.LIKELY, lacks=lacks
    )
