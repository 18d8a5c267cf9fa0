"""What the nodes of a run left, from whatever carried it: its folder, logs with framed lines, results of Pods.

Nothing that lies there is trusted: a file is read within limits, belongs to the run by its nonce, and is named with the
reason where it is refused.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from envkit.errors import UsageError, one_line
from envkit.fleet import folder as folders
from envkit.fleet import frames, pods
from envkit.fleet.documents import MOST_BYTES, MOST_RUN_BYTES, Beat, Document, Refused, Run, belongs, decoded, read_as
from envkit.fleet.links import MOST_ROUNDS
from envkit.fleet.pods import Carried, NodeReport
from envkit.fleet.trials import Answer, Plan, Record
from envkit.records import dataclass
from envkit.system import files

MOST_LOG_BYTES = 1 << 30
_ANSWER = re.compile(r"([0-9]{1,6})\.([A-Za-z0-9][A-Za-z0-9._-]{0,251})\.json")
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,251})\.([0-9a-f]{16,64})\.json")
_MOST_ENTRIES = 4  # files a node in a folder; what is beyond is somebody's flood


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file or a group of lines that is no answer of this run; ``node`` is whose it claims to be, "" if it does not
    say, and ``damaged`` whether it may have been one."""

    source: str
    node: str
    why: str
    damaged: bool = False


@dataclass(slots=True)
class Gathered:
    """What was found of a run: the documents and the last heartbeat of each node, what a carrier says of it beside
    ("OOMKilled"), the trials of links, and what was rejected.

    ``machines`` are the nodes of Kubernetes on which a node's Pod is, ``open`` says why a node that left nothing may be
    well."""

    run: Run
    documents: dict[str, list[Document]] = field(default_factory=dict)
    beats: dict[str, Beat] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    record: Record = field(default_factory=Record)
    expected: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """The nodes of the run as a set, for a run has ten thousand."""
        self.expected = frozenset(self.run.hosts)

    def add(self, document: Document, source: str) -> None:
        """Takes a document of this run; the same one from a second carrier counts once."""
        head = document.head
        try:
            belongs(self.run.run, self.run.nonce, head.run, head.nonce)
            if head.node not in self.expected:
                raise Refused("no such node was expected")
        except Refused as refused:
            self.reject(source, head.node, refused)
            return
        held = self.documents.setdefault(head.node, [])
        if all((one.head.attempt, one.head.sha256) != (head.attempt, head.sha256) for one in held):
            held.append(document)

    def reject(self, source: str, node: str, refused: Refused) -> None:
        """Names what is no answer of this run."""
        self.rejected.append(Rejected(source, node, refused.why, refused.damaged))


def gather(place: Path, also: Sequence[Path], hosts: tuple[str, ...]) -> Gathered:
    """What lies in ``place``, a run's folder or a file that a carrier made, and in the files ``also``.

    ``hosts`` are the nodes that shall answer; a folder's run.json says so by itself, and must agree.  Raises UsageError
    where nobody says which nodes were expected, or where a file cannot be read.
    """
    carriers = [*also] if os.path.isdir(place) else [place, *also]
    run = folders.run_in(place) if os.path.isdir(place) else None
    if run is not None and hosts and set(hosts) != set(run.hosts):
        raise UsageError(
            f"{place} expects {len(run.hosts)} nodes and {len(hosts)} others were named",
            "leave out --hosts: the run names its nodes",
        )
    read = [(path, _carried(path)) for path in carriers]
    if run is None:
        run = _assumed(place, hosts or next((found.hosts for _, found in read if found.hosts), ()), read)
    made = Gathered(run)
    if os.path.isdir(place):
        _read_folder(made, place)
    for path, found in read:
        for each in found.reports:
            take(made, each, str(path))
    return made


def again(made: Gathered, place: Path) -> Gathered:
    """``made`` with what has come to the folder since; documents that were read are not read again."""
    made.rejected.clear()
    _read_folder(
        made, place, {f"{node}.{one.head.attempt}.json" for node, held in made.documents.items() for one in held}
    )
    return made


def _assumed(place: Path, hosts: tuple[str, ...], read: Sequence[tuple[Path, Carried]]) -> Run:
    """The run of carriers that bring no run.json: that of all their documents, which must be one."""
    runs = {
        (one.document.head.run, one.document.head.nonce, one.document.head.level)
        for _, found in read
        for one in found.reports
        if one.document is not None
    }
    if len(runs) > 1:
        names = ", ".join(sorted({one_line(name) for name, _, _ in runs}))
        raise UsageError(
            f"{place} holds documents of {len(runs)} runs: {names}", "name the run's folder, or a log of one run alone"
        )
    if not hosts:
        if os.path.isdir(place) and (inner := sorted(each.parent.name for each in place.glob("*/run.json"))):
            raise UsageError(
                f"{place} holds {len(inner)} runs and is none: {one_line(', '.join(inner[:5]))}",
                "name the folder of one",
            )
        raise UsageError(f"which nodes shall answer is not known: {place} has no run.json", "name them with --hosts")
    name, nonce, level = runs.pop() if runs else ("unknown", secrets.token_hex(16), "unknown")
    return Run("envkit.run/1", name, nonce, hosts, 0.0, 0.0, level)


def _read_folder(made: Gathered, place: Path, known: set[str] | frozenset[str] = frozenset()) -> None:
    most = _MOST_ENTRIES * len(made.run.hosts) + 1000
    for name, node in _listed(made, place / "nodes", most):
        if name in known:
            continue
        source = f"nodes/{name}"
        try:
            document = decoded(_content(place / "nodes" / name))
            if document.head.node != node:
                raise Refused(f"it is of the node `{one_line(document.head.node)}`")
        except Refused as refused:
            made.reject(source, node, refused)
        else:
            made.add(document, source)
    for name, node in _listed(made, place / "beats", most):
        try:
            beat = read_as(Beat, _content(place / "beats" / name))
            belongs(made.run.run, made.run.nonce, beat.run, beat.nonce)
        except Refused as refused:
            made.reject(f"beats/{name}", node, Refused(refused.why))
            continue
        if node == beat.node and (node not in made.beats or made.beats[node].at < beat.at):
            made.beats[node] = beat
    if made.run.links:
        read_trials(made, place)


def plan_file(place: Path, number: int) -> Path:
    """Where the plan of a round lies."""
    return place / "links" / f"plan-{number:03}.json"


def round_folder(place: Path, number: int) -> Path:
    """Where the answers of a round lie."""
    return place / "links" / f"{number:03}"


def read_trials(made: Gathered, place: Path) -> None:
    """The plans and answers of trials that have come since ``made`` was read."""
    record = made.record
    for number in range(max(record.plans, default=0) + 1, MOST_ROUNDS + 2):
        path = plan_file(place, number)
        if not path.exists():
            break
        try:
            plan = read_as(Plan, _content(path, MOST_RUN_BYTES))
            belongs(made.run.run, made.run.nonce, plan.run, plan.nonce)
            if plan.round != number or not _fits(plan, made.expected, record.nodes if number > 1 else plan.nodes):
                raise Refused(f"it is no plan of round {number} of this run", damaged=True)
        except Refused as refused:
            made.reject(f"links/{path.name}", "", refused)
            break
        record.plans[number] = plan
    for number in record.plans:
        if not record.answered(number):
            _read_answers(made, round_folder(place, number), number)


def _fits(plan: Plan, expected: frozenset[str], taking: Sequence[str]) -> bool:
    """Whether the nodes that take part are of the run, each once, and each trial has some of them, each in one."""
    named = [name for nodes in plan.trials for name in nodes]
    inside = set(taking)
    return len(inside) == len(taking) and expected >= inside >= set(named) and len(named) == len(set(named))


def _read_answers(made: Gathered, folder: Path, number: int) -> None:
    most = 3 * len(made.run.hosts) + 1000
    for name in _names(made, folder, most):
        found = _ANSWER.fullmatch(name)
        if not found or found[2] in made.record.answers.get((number, int(found[1])), {}):
            continue
        source = f"links/{folder.name}/{name}"
        try:
            answer = read_as(Answer, _content(folder / name))
            belongs(made.run.run, made.run.nonce, answer.run, answer.nonce)
            if (answer.round, answer.trial, answer.node) != (number, int(found[1]), found[2]):
                raise Refused(f"it is of the node `{one_line(answer.node)}`, or of another trial", damaged=True)
        except Refused as refused:
            made.reject(source, found[2], refused)
        else:
            made.record.add(answer)


def _listed(made: Gathered, inner: Path, most: int) -> Iterator[tuple[str, str]]:
    """The files of a folder of the run that have a node's name, and the node; others are nobody's and left alone."""
    for name in _names(made, inner, most):
        if found := _FILE.fullmatch(name):
            yield name, found[1]


def _names(made: Gathered, inner: Path, most: int) -> list[str]:
    names: list[str] = []
    try:
        with os.scandir(inner) as entries:
            for entry in entries:
                if len(names) >= most:
                    made.reject(inner.name, "", Refused(f"more than {most} files lie there; the others were not read"))
                    break
                names.append(entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{inner} cannot be read: {files.why(error)}", "name the folder of a run") from error
    return sorted(names)


def _content(path: Path, most: int = MOST_BYTES) -> bytes:
    try:
        if path.is_symlink():
            raise Refused("it is a link")
        return files.content(path, most)
    except OSError as error:
        raise Refused(f"it cannot be read: {files.why(error)}", damaged=True) from error


def take(made: Gathered, each: NodeReport, source: str) -> None:
    """Adds what a carrier says of one node."""
    if each.note:
        made.notes[each.node] = each.note
    if each.machine:
        made.machines[each.node] = each.machine
    if each.open:
        made.open[each.node] = each.open
    if each.document is not None:
        made.add(each.document, source)
    elif each.refused is not None:
        made.reject(source, each.node, each.refused)


def _carried(path: Path) -> Carried:
    """What a log with framed lines holds, or what the API server or a file says of each Pod."""
    if pods.is_asked(path):
        return pods.asked(str(path), os.environ)
    try:
        data = files.content(path, MOST_LOG_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {files.why(error)}", "name a run's folder, a log, or Pods as JSON"
        ) from error
    if data.lstrip()[:1] == b"{":
        return Carried(tuple(pods.reports(pods.in_file(data, path))))
    framed = frames.documents(data.split(b"\n"))
    return Carried(tuple(NodeReport(one.node, one.document, one.refused) for one in framed))
