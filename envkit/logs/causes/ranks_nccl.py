"""What NCCL itself says: its warnings, the CUDA failures inside it, and its bare results."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.facts import Facts
from envkit.logs.causes._cuda import lines_of
from envkit.logs.causes._ranks import family, quoted
from envkit.logs.causes._setup import words_seen
from envkit.logs.causes._worded import worded
from envkit.logs.codes import inner_failure, nccl_version
from envkit.logs.records import Event, Hypothesis, Role, Strength
from envkit.logs.story import Story

_CUDA = "nccl-unhandled-cuda-error"
_SYSTEM = "nccl-unhandled-system-error"
_REMOTE = "nccl-remote-error"
# the signatures of bare results, and the row that words each
_STATUSES = {
    "nccl-status-cuda": "bare-cuda-error", "nccl-status-system": "bare-system-error",
    "nccl-status-internal": "bare-system-error", "nccl-status-usage": "bare-invalid-usage",
    "nccl-status-remote": "bare-remote-error",
}  # fmt: skip
_ALL = ("nccl-timeout-hang", _CUDA, _SYSTEM, _REMOTE)
_TWO = 2
_QUOTED = re.compile(r"(?:Cuda|CUDA) (?:failure|error):?\s?(?:\d{1,4} )?'([^']{3,120})'")


def versions_differ(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """NCCL compares releases when a communicator is made (NVIDIA/nccl src/init.cc) and names both."""
    for event in family(story, "nccl-version-differs")[:1]:
        one, other = (_release(event.values.get(name)) for name in ("nccl", "nccl_other"))
        rank, other_rank = (event.values.get(name) for name in ("rank", "other_rank"))
        yield worded("nccl-versions-differ", event, rank=rank, one=one, other_rank=other_rank, other=other)
        return
    said = {event.values["nccl"]: event for event in reversed(story.of("nccl-version-line"))}
    failed = [root for root in story.roots if root.category in _ALL]
    if len(said) == _TWO and failed and len({event.line.process for event in said.values()}) == _TWO:
        lines = sorted(said.values(), key=story.events.index)
        one, other = (event.values["nccl"] for event in lines)
        rank, other_rank = (event.line.host if event.line.rank is None else str(event.line.rank) for event in lines)
        lines.append(failed[0])
        likely = Strength.LIKELY
        yield worded(
            "nccl-versions-differ", *lines, strength=likely, rank=rank, one=one, other_rank=other_rank, other=other
        )


def symbol_missing(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A library asks for a function that the loaded libnccl does not have: another release was found first."""
    for event in family(story, "nccl-symbol-missing", "nccl-old-symbol")[:1]:
        system = re.search(r"/usr/(?:local/)?(?:lib|cuda)", event.line.text.partition("undefined symbol")[0])
        system = system if "site-packages" not in event.line.text else None
        # torch brings the NCCL that it needs, so another one on the path is found first
        clash = system or words_seen(story, "ld_library_path", "module load", "ld_preload")
        cause = "library-path-clash" if clash else "version-mismatch"
        yield worded("nccl-symbol-missing", *quoted([event]), cause=cause, symbol=event.values.get("symbol"))


def duplicate_gpu(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """NCCL refuses a communicator in which two ranks have one bus id (NVIDIA/nccl src/init.cc)."""
    if found := family(story, "nccl-duplicate"):
        rank, other_rank, pci = (found[0].values.get(name) for name in ("rank", "other_rank", "pci"))
        yield worded("two-ranks-on-one-gpu", *quoted(found), rank=rank, other_rank=other_rank, pci=pci)


def shared_memory(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """NCCL makes its segments in /dev/shm, which docker makes 64 MB large (NCCL user guide, troubleshooting)."""
    full = family(story, "nccl-shm-full")
    other = family(story, "nccl-shm-create", "nccl-shm-attach", "nccl-shm-open")
    if full or other:
        event = (full or other)[0]
        size = f" of {event.values['wanted']} bytes" if event.values.get("wanted") else ""
        strength = Strength.DECISIVE if full else Strength.LIKELY
        yield worded("nccl-segment-not-made", *quoted((*full, *other)), strength=strength, size=size)


def inner_cuda_failure(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A CUDA failure inside NCCL is told as what it is; what only NCCL meets stays NCCL's.

    NVLink multicast is set up by the Fabric Manager, so its failures are that one's (NVIDIA/nccl src/transport/nvls.cc
    says so itself).  Memory is shared between ranks by IPC handles, which end at a container (src/transport/p2p.cc).
    """
    if multicast := family(story, "nccl-multicast") or family(story, "nccl-cuda-nvls"):
        words = multicast[0].values.get("error") or "no reason given"
        if "out of memory" not in words:
            yield worded("multicast-not-set-up", *quoted(multicast), words=words)
            return
    found = [event for event in story.events if _inner(event) and event.role is not Role.ADVICE]
    # what is left after a root of its own is a consequence (the story has settled it), unless nothing else is there
    roots = [event for event in found if event.role is Role.ROOT] or [event for event in found if not story.roots]
    for event in roots[:1]:
        words = _inner(event)
        between = "transport/" in event.line.text
        category, cause = _read(words, between_processes=between)
        # NCCL's source file says that it was memory of another process, which the failure's words alone do not
        strength = Strength.DECISIVE if between and category == _CUDA else Strength.LIKELY
        strength = strength if cause != "unknown" else Strength.POSSIBLE
        wrapped = [other for other in found if other.line.process == event.line.process and other is not event]
        buffers = family(story, "nccl-calloc", "nccl-oom-calloc", roots=False)
        lines = lines_of(event, *buffers[:1], *wrapped[:1])
        over = tuple(each for each in (*_ALL, "invalid-argument-device-mismatch") if each != category)
        why = f"a CUDA call inside NCCL failed with '{words}'"
        yield Hypothesis(category, cause, strength, lines, why, over=over)


def plugin(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A network that NCCL_NET asks for and no plugin offers (NVIDIA/nccl src/plugin/net.cc)."""
    for event in family(story, "net-not-found", "net-plugin-failed")[:1]:
        beside = family(story, "net-plugin-absent", roots=False)[:1]
        named = (event.values.get("lib") or "").strip()
        # without a name it is what the variables of the job leave of the networks that are there
        cause = "" if named else "launch-config"
        yield worded("nccl-network-absent", event, *beside, cause=cause, lib=named or "asked for")


def bare_result(story: Story, facts: Facts) -> Iterator[Hypothesis]:
    """A result without NCCL's own line before it: the kind is known, the cause is not.

    Two results are as good as a cause: invalid usage is most often one GPU for two ranks, and a remote error means
    that a peer is gone (NVIDIA/nccl src/nccl.h.in).
    """
    for event in family(story, *_STATUSES)[:1]:
        names = [each for each in story.events if each.signature.id.startswith("nccl-status-name-")]
        kind = next(name for name in _STATUSES if event.signature.id.startswith(name))
        yield worded(_STATUSES[kind], event, *names[:1])


def _read(words: str, *, between_processes: bool) -> tuple[str, str]:
    """Category and cause of a CUDA failure; memory that is shared between processes fails where they are kept apart."""
    found = inner_failure(words)
    if between_processes and (found is None or found[0] in (_CUDA, "invalid-device-ordinal")) and "peer" not in words:
        return _CUDA, "container-config"
    return found or (_CUDA, "unknown")


def _inner(event: Event) -> str:
    """The words of the CUDA failure that NCCL quotes in this line, "" where it quotes none."""
    found = _QUOTED.search(event.line.text)
    return found.group(1) if found else ""


def _release(number: str | None) -> str:
    text = number or ""
    return (nccl_version(int(text)) if text.isdigit() else None) or text or "another release"
