"""Judges what was gathered of a run, a pure function: each node is ok, failed or unknown, and why.

A node that did not answer fails by its name.  Drift is judged within one hardware class against the value that more
than half of it have; where no value has that, every node of the class is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from fnmatch import fnmatchcase

from envkit.errors import one_line
from envkit.fleet import floors, links, trials
from envkit.fleet.documents import Body, Document, Ended, Found, Run
from envkit.fleet.evidence import Fleet, Tried
from envkit.fleet.fingerprint import UNSUPPORTED
from envkit.fleet.folder import GRACE_S
from envkit.fleet.gather import Gathered, Rejected
from envkit.fleet.links import LinkVerdict
from envkit.model import Finding, Severity
from envkit.records import dataclass

CLOCK_S = (
    30.0  # how far a node's clock may be from the shared folder's; NFS, TLS and logs of ranks go wrong beyond minutes
)
_VARIABLE = "variable "
_NOT_SET = "not set"
_NAMED = 3  # nodes named beside a value that others share


class State(StrEnum):
    """What a node is after judging."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why a node is not ok, for programs."""

    NONE = ""
    FOUND = "found"  # its own checks found a fault
    OPEN = "open"  # one of its own checks stayed open
    NEVER_STARTED = "never started"
    DIED = "died"
    HUNG = "hung"
    SILENT = "silent"  # it began and said nothing more
    RUNNING = "running"
    NOT_DELIVERED = "not delivered"
    DAMAGED = "damaged"
    TWICE = "twice"
    CLOCK = "clock"
    DRIFT = "drift"
    NO_MAJORITY = "no majority"
    ALONE = "alone"
    CONTRACT = "contract"
    LINKS = "links"


@dataclass(frozen=True, slots=True)
class ClassContract:
    """What each node of a hardware class must be: ``hardware`` is a pattern of its name with * and ?, ``values`` the
    properties by name, each a pattern too."""

    name: str
    hardware: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run is judged: contracts of classes, properties that may differ, the lowest severity that fails a node."""

    contracts: tuple[ClassContract, ...] = ()
    may_differ: tuple[str, ...] = ()
    fail_on: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """One node: its state, the first cause of it, all that was found, and what is open.

    ``reasons`` say what stayed open.  ``checks`` are its checks that did not pass, by their outcome.  Times are seconds
    since 1970 by the node's own clock, 0 where it left none.
    """

    node: str
    state: State
    cause: Cause = Cause.NONE
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    hardware: str | None = None
    checks: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0

    @property
    def sentence(self) -> str:
        """The first thing that is wrong or open, "" of a node that is ok."""
        if self.state is State.FAIL:
            return max(self.findings, key=lambda one: one.severity).message
        return next(iter(self.reasons), "")


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """A run that was judged: its nodes in the order of the launch, and what was no answer to it.

    ``links`` is what trials between nodes showed, None where none were asked for; ``network`` is what is wrong with all
    of them alike, ``tried`` the trials.  ``machines`` are the nodes of Kubernetes behind the run's own names.
    """

    run: Run
    nodes: tuple[NodeVerdict, ...]
    rejected: tuple[Rejected, ...] = ()
    not_compared: tuple[str, ...] = ()
    fail_on: Severity = Severity.ERROR
    links: LinkVerdict | None = None
    network: tuple[str, ...] = ()
    machines: Mapping[str, str] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()

    def named(self, state: State) -> tuple[str, ...]:
        """The nodes of this state."""
        return tuple(one.node for one in self.nodes if one.state is state)

    def left_out(self) -> tuple[str, ...]:
        """The nodes that no job should get: those that are not ok, and of each bad link or boundary one side."""
        bad = {one.node for one in self.nodes if one.state is not State.OK}
        fleet = Fleet(tuple(one.node for one in self.nodes))
        gone = links.left_out(fleet, bad, self.links.crossings if self.links else ())
        return tuple(name for name in fleet.nodes if name in gone)

    @property
    def exit_code(self) -> int:
        """0: every node and link is ok; 1: one failed; 3: none failed and one is unknown."""
        states = {one.state for one in self.nodes}
        if self.links is not None:
            states |= {State.FAIL if one.sure else State.UNKNOWN for one in self.links.crossings}
            states |= {State.UNKNOWN} if self.links.open else set()
        states |= {State.FAIL} if self.network else set()
        return 1 if State.FAIL in states else 0 if states == {State.OK} else 3


@dataclass(slots=True)
class _Judged:
    """A node while it is judged."""

    node: str
    findings: list[tuple[Cause, Finding]] = field(default_factory=list)
    reasons: list[tuple[Cause, str]] = field(default_factory=list)
    hardware: str | None = None
    checks: dict[str, str] = field(default_factory=dict)
    body: Body | None = None
    started: float = 0.0
    ended: float = 0.0

    def fail(self, cause: Cause, message: str, fix: str = "", severity: Severity = Severity.ERROR) -> None:
        self.findings.append((cause, Finding(message, severity, fix=fix)))

    def open(self, cause: Cause, reason: str) -> None:
        self.reasons.append((cause, reason))

    def verdict(self, fail_on: Severity) -> NodeVerdict:
        failed = [cause for cause, finding in self.findings if finding.severity >= fail_on]
        opened = [cause for cause, _ in self.reasons]
        state = State.FAIL if failed else State.UNKNOWN if opened else State.OK
        cause = failed[0] if failed else opened[0] if opened else Cause.NONE
        return NodeVerdict(
            self.node, state, cause, tuple(one for _, one in self.findings), tuple(one for _, one in self.reasons),
            self.hardware, self.checks, self.started, self.ended,
        )  # fmt: skip


def judge(found: Gathered, now: float, rules: Rules | None = None, alone: bool = False) -> FleetVerdict:
    """Every expected node of the run, judged.  ``now`` is the time of judging, by the clock of the shared folder: a
    node that began and whose budget is not over may still answer.  With ``alone``, trials of links count for nothing.
    """
    rules = rules or Rules()
    damaged: dict[str, list[Rejected]] = {}
    for each in found.rejected:
        damaged.setdefault(each.node, []).append(each)
    nodes = {name: _node(name, found, damaged.get(name, []), now) for name in found.run.hosts}
    not_compared = _drift([one for one in nodes.values() if one.body is not None], rules)
    tested, network, made = (None, (), ()) if alone or not found.run.links else _linked(found, nodes)
    judged = tuple(one.verdict(rules.fail_on) for one in nodes.values())
    return FleetVerdict(
        found.run, judged, tuple(found.rejected), not_compared, rules.fail_on, tested, network, found.machines, made
    )


def tried(found: Gathered) -> tuple[Fleet, tuple[Tried, ...], tuple[str, ...]]:
    """The nodes whose links are tested, each trial as it ended, and what is wrong with all of them alike."""
    bodies = {name: held[0].body for name, held in found.documents.items() if held}
    fleet = Fleet(found.record.nodes, {name: body.labels for name, body in bodies.items() if body.labels})
    cards = frozenset(name for name, body in bodies.items() if _has_cards(body.fingerprint))
    least = {name: floors.floors(bodies[name]) for name in fleet.nodes if name in bodies}
    return (fleet, *trials.judged(fleet, found.record, trials.Wanted(found.run.floor, cards, least)))


def _has_cards(values: Mapping[str, str | None]) -> bool:
    """Whether a node has cards of InfiniBand or RoCE that no variable turns off."""
    off = values.get("variable NCCL_IB_DISABLE", "0") != "0" or values.get("variable NCCL_NET") == "Socket"
    return values.get("network cards") not in (None, "0", UNSUPPORTED) and not off


def _linked(found: Gathered, nodes: Mapping[str, _Judged]) -> tuple[LinkVerdict, tuple[str, ...], tuple[Tried, ...]]:
    fleet, all_, network = tried(found)
    made = links.judge(fleet, all_, found.run.links)
    for name, (_, sentence) in made.bad.items():
        nodes[name].fail(Cause.LINKS, sentence, "see its network cards, their cables and counters, and its kernel log")
    for name, sentence in made.unknown.items():
        nodes[name].open(Cause.LINKS, sentence)
    taking = frozenset(fleet.nodes)
    for name, one in nodes.items():
        if name not in taking and not one.findings and not one.reasons:
            one.open(Cause.LINKS, "its links were not tested: it had not passed when the first round was planned")
    return made, network, all_


def _node(name: str, found: Gathered, rejected: Sequence[Rejected], now: float) -> _Judged:
    made = _Judged(name)
    held = found.documents.get(name, [])
    if len(held) > 1:
        made.open(Cause.TWICE, f"{len(held)} processes of this run answered for {name}, so none of them is believed")
    if not held:
        _absent(made, found, rejected, now)
    for document in held:
        _answered(made, document, found.notes.get(name, ""))
    if len(held) > 1:  # a fault that one of them found is there whatever the other says; nothing else of them counts
        made.body = None
    return made


def _absent(made: _Judged, found: Gathered, rejected: Sequence[Rejected], now: float) -> None:
    """A node without a document: what is known of it says how it went missing."""
    beat, budget = found.beats.get(made.node), found.run.budget_s
    note = f" ({found.notes[made.node]})" if made.node in found.notes else ""
    other = f"; a file there is no answer of this run: {rejected[0].why}" if rejected else ""
    if any(one.damaged for one in rejected):
        made.open(Cause.DAMAGED, f"its document is damaged: {next(one.why for one in rejected if one.damaged)}{note}")
    elif beat is None and made.node in found.open:
        made.open(Cause.RUNNING, f"{found.open[made.node]}{note}")
    elif beat is None:
        fix = "see whether the launcher could start a process there, and whether it reaches the shared folder"
        made.fail(Cause.NEVER_STARTED, f"it never started: there is no sign of it{note}{other}", fix)
    elif now < beat.started + budget + GRACE_S and (not note or made.node in found.open):
        made.open(Cause.RUNNING, f"it is still at {_level(beat.level)}")
    else:
        made.started, made.ended = beat.started, beat.at
        lasted = f"{max(beat.at - beat.started, 0.0):.0f} s after it began"
        said = f"it began and then fell silent at {_level(beat.level)}: its last word came {lasted}{note}{other}"
        made.fail(
            Cause.SILENT,
            said,
            "see the node's console and kernel log: it crashed, was reset, or its process was killed",
        )


def _level(word: str) -> str:
    return {"start": "its start", "writing": "writing its document"}.get(word, f"the level {word}")


def _answered(made: _Judged, document: Document, note: str) -> None:
    head, body = document.head, document.body
    made.started, made.ended, made.body, made.hardware = head.started, head.ended, body, body.hardware
    note = f" ({note})" if note else ""
    if head.ended_as is Ended.HUNG:
        said = f"it hangs at {_level(head.level)}: {one_line(head.detail)}{note}"
        made.fail(Cause.HUNG, said, "see what it waits for: the driver, a file system, the container engine")
    elif head.ended_as is Ended.DIED:
        made.fail(
            Cause.DIED, f"its check died at {_level(head.level)}: {one_line(head.detail)}{note}", "see its kernel log"
        )
    for one in body.found:
        _own(made, one)
    if head.ended_as is Ended.FINISHED and not body.passed and not body.found:
        made.open(Cause.OPEN, "nothing was judged there")
    if body.shortened:
        made.open(Cause.OPEN, "its carrier had no room for all that it found")
    if head.trouble:
        made.open(Cause.NOT_DELIVERED, f"it could not write to the shared folder: {one_line(head.trouble)}")
    ahead = head.clock_ahead_s
    if ahead is not None and abs(ahead) > CLOCK_S:
        way = "ahead of" if ahead > 0 else "behind"
        said = f"its clock is {abs(ahead):.0f} s {way} that of the shared folder"
        made.fail(Cause.CLOCK, said, "set it, and see that chrony or systemd-timesyncd keeps it")


def _own(made: _Judged, one: Found) -> None:
    """What a check of the node itself said."""
    made.checks[one.check] = one.outcome
    if one.outcome == "fail":
        for severity, message, fix in one.findings:
            made.fail(Cause.FOUND, f"{one.check}: {one_line(message)}", one_line(fix), Severity[severity.upper()])
    if one.outcome != "fail" or not one.findings:
        made.open(Cause.OPEN, f"{one.check}: {one_line(one.reason) or one.outcome}")


def _drift(nodes: Sequence[_Judged], rules: Rules) -> tuple[str, ...]:
    """Holds the nodes of each class to one another and to their contract; gives the properties nobody could read."""
    classes: dict[str, list[_Judged]] = {}
    for one in nodes:
        if one.hardware is None:
            one.open(Cause.OPEN, "its hardware class is not known, so that it was compared with no other node")
        else:
            classes.setdefault(one.hardware, []).append(one)
    blank: set[str] = set()
    for hardware, members in sorted(classes.items()):
        contract = _contract(hardware, members, rules)
        if contract is None and len(members) == 1 and len(nodes) > 1:
            members[0].open(
                Cause.ALONE,
                f"no other node that answered is of its class, {one_line(hardware)}, so that nothing shows its drift",
            )
        for key in sorted({key for one in members for key in _values(one)}):
            if contract and key in contract.values:
                continue
            if any(fnmatchcase(key, pattern) for pattern in rules.may_differ):
                continue
            if not _compare(key, members):
                blank.add(key)
    return tuple(sorted(blank))


def _contract(hardware: str, members: Sequence[_Judged], rules: Rules) -> ClassContract | None:
    if not rules.contracts:
        return None
    found = next((one for one in rules.contracts if fnmatchcase(hardware, one.hardware)), None)
    for one in members:
        if found is None:
            one.fail(Cause.CONTRACT, f"no class of the contract has its hardware, {one_line(hardware)}")
            continue
        for key, wanted in sorted(found.values.items()):
            value = _value(one, key)
            if value is None:
                one.open(
                    Cause.CONTRACT,
                    f"{key} was not observed, and the contract of {found.name} asks for {one_line(wanted)}",
                )
            elif not fnmatchcase(value, wanted):
                said = f"{key} is {one_line(value)}, and the contract of {found.name} asks for {one_line(wanted)}"
                one.fail(Cause.CONTRACT, said)
    return found


def _values(one: _Judged) -> Mapping[str, str | None]:
    return one.body.fingerprint if one.body is not None else {}


def _value(one: _Judged, key: str) -> str | None:
    values = _values(one)
    # A variable that is not set is seen only by its absence.
    return values.get(key, _NOT_SET if key.startswith(_VARIABLE) else None)


def _compare(key: str, members: Sequence[_Judged]) -> bool:
    """Whether anybody's value is known; each node that has another than the majority fails, an unknown one is open."""
    values = {one.node: _value(one, key) for one in members}
    counted = Counter(value for value in values.values() if value is not None)
    if not counted:
        return False
    if len(counted) == 1 and None not in values.values():
        return True
    known = sum(counted.values())
    (common, many), *_ = counted.most_common(1)
    if 2 * many <= known and len(counted) > 1:
        shown = "; ".join(f"{one_line(value)} on {_some(value, values)}" for value, _ in counted.most_common(3))
        for one in members:
            one.open(Cause.NO_MAJORITY, f"{key} differs and no value has a majority of its class: {shown}")
        return True
    for one in members:
        value = values[one.node]
        if value is None:
            one.open(Cause.OPEN, f"{key} was not observed here and is {one_line(common)} on {many} nodes of its class")
        elif value != common:
            said = f"{key} is {one_line(value)} here and {one_line(common)} on {many} of {known} nodes of its class"
            one.fail(Cause.DRIFT, said, f"make it the same, or judge with --may-differ '{key}'")
    return True


def _some(value: str, values: Mapping[str, str | None]) -> str:
    names = [name for name, own in values.items() if own == value]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def by_cause(verdict: FleetVerdict) -> Iterator[tuple[State, str, tuple[str, ...]]]:
    """The nodes that are not ok, those with one sentence together, failed ones first and the rarest sentence first."""
    groups: dict[tuple[State, str], list[str]] = {}
    for one in verdict.nodes:
        if one.state is not State.OK:
            groups.setdefault((one.state, one.sentence), []).append(one.node)
    for (state, sentence), names in sorted(
        groups.items(), key=lambda item: (item[0][0] is not State.FAIL, len(item[1]))
    ):
        yield state, sentence, tuple(names)
