"""Of all tracebacks the one that tells: not a launcher's, not a clean-up's, and of a chain the one that means it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.logs.codes import exception_causes
from envkit.logs.ends import service
from envkit.logs.records import Event, Role, Traceback
from envkit.logs.story import Process, Story
from envkit.logs.survived import STUMBLES, words

_CAUGHT = 2  # exceptions of a chain
Chain = tuple[Traceback, ...]
LIBRARY = re.compile(r"(?:site|dist)-packages[\\/]([\w-]+)|[\\/]lib[\\/]python3?[\d.]*[\\/]([\w-]+)")

# raised by whoever waited for, started or talked to the process that failed
_WRAPPED = re.compile(
    r"Engine core initialization failed|Engine process failed to start|initialization failed due to an exception in a"
    r"|See (?:the )?(?:root cause|stack trace)|^DataLoader worker|worker(?:s| process(?:es)?)? (?:died|exited|failed)"
    r"|[Aa]ctor died|Background loop|Server process .{0,40}(?:died|exited)|Job (?:has )?failed|Command .{0,2000} failed"
    r"|Error building extension|Error compiling objects for extension|returned non-zero exit status"
)
_PEER_GONE = re.compile(r"multiprocessing[\\/](?:connection|managers|queues|resource_sharer)\.py|socketserver\.py")
_ANSWERS = ("HTTPError", "HTTPStatusError", "HfHubHTTPError", "InternalServerError", "APIStatusError")
_SERVER_FAILED = re.compile(r"\b50[0-4]\b")
_CLEAN_UP = re.compile(r"^(?:__del__|__exit__|_?cleanup|_?shutdown\w*|_?close|_exit_function|_run_exitfuncs|finalize)$")
# an exception of these kinds is often only the way to find out; what is raised while it is handled says what it means
_PROBES = frozenset(
    ["KeyError", "AttributeError", "ImportError", "ModuleNotFoundError", "IndexError", "StopIteration", "LookupError"]
)


def short_kind(trace: Traceback) -> str:
    """The exception's name without its module."""
    return trace.kind.rpartition(".")[2]


def is_wrapper(trace: Traceback) -> bool:
    """Whether it only passes on that another process failed."""
    kind = short_kind(trace)
    if exception_causes().get(kind) == "" or kind.startswith("RayTaskError") or _WRAPPED.search(words(trace)):
        return True
    return kind in ("EOFError", "ConnectionRefusedError") and any(_PEER_GONE.search(each.file) for each in trace.frames)


def is_answer(trace: Traceback) -> bool:
    """Whether it tells of a server that failed while it answered; if that server's own words are there, they tell."""
    return short_kind(trace) in _ANSWERS and bool(_SERVER_FAILED.search(words(trace)))


def is_clean_up(trace: Traceback) -> bool:
    """Whether it was raised while something else was being ended."""
    return bool(trace.frames) and bool(_CLEAN_UP.match(trace.frames[-1].function))


def chains(story: Story) -> list[Chain]:
    """Tracebacks that hang together, each chain with its first exception first."""
    found: list[list[Traceback]] = []
    last: dict[tuple[str, str, int | None, int | None], list[Traceback]] = {}
    for trace in story.tracebacks:
        mine = last.get(trace.line.process)
        if trace.within and mine is not None:
            mine.append(trace)
            continue
        fresh = [trace]
        found.append(fresh)
        last[trace.line.process] = fresh
    return [tuple(chain) for chain in found]


def fatal(story: Story) -> Chain:
    """The chain that ended the first process to fail, without its wrappers; empty where there is none.

    A process goes on after what it only reports, so of one process the last chain counts, and where the same exception
    stands before it too (another rank's, or one that was passed on), its first print.  Of several processes the one
    that speaks first counts: the others fail because of it.
    """
    of_process: dict[tuple[Process, str], Chain] = {}
    found = [chain for chain in (_without_wrappers(each) for each in chains(story)) if chain]
    telling = [chain for chain in found if not is_clean_up(chain[0])] or found
    for chain in [each for each in telling if not is_answer(each[-1])] or telling:
        of_process[chain[0].line.process, service(chain[0].line)] = chain
    if not of_process:
        return ()
    # whom nobody answered waits for one that failed by itself
    alone = (each for each in of_process.values() if short_kind(each[0]) != "ConnectionRefusedError")
    first = next(alone, next(iter(of_process.values())))
    key = [(each.kind, each.message[:80]) for each in first]
    for chain in telling:
        if [(each.kind, each.message[:80]) for each in chain][: len(key)] == key:
            return chain
    return first


def _without_wrappers(chain: Chain) -> Chain:
    kept = tuple(each for each in chain if each.kind and not is_wrapper(each))
    return tuple(each for each in kept if not is_clean_up(each)) or kept


def telling(chain: Chain) -> Traceback:
    """The exception of a chain that names the failure: the first, unless it was only the way to find out."""
    first = chain[0]
    for later in chain[1:]:
        if later.within == "during" and short_kind(first) in _PROBES:
            first = later
        else:
            break
    return first


def events_in(story: Story, trace: Traceback) -> Iterator[Event]:
    """The events that are lines of this traceback or of its message."""
    end = trace.line.number + words(trace).count("\n")
    for event in story.events:
        line = event.line
        if line.file == trace.line.file and trace.first.number <= line.number <= end and event.role is not Role.ADVICE:
            yield event


def stumbled(story: Story) -> tuple[Traceback, Traceback] | None:
    """The exception of the GPU's memory that a program caught, and that by which its own handler then failed.

    A program that lacks memory can go on, and catches that; what stops it is then what happened while it was handled.
    """
    chain = fatal(story)
    if len(chain) != _CAUGHT or chain[1].within != "during" or short_kind(chain[1]) not in STUMBLES:
        return None
    first, last = chain
    own = bool(last.frames) and not LIBRARY.search(last.frames[-1].file)
    met = {event.category for event in events_in(story, first) if event.category}
    if own and met == {"out-of-memory"} and not any(event.category for event in events_in(story, last)):
        return first, last
    return None
