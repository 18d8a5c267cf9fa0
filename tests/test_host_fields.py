"""Every field of every twin of the recorded machines, changed: no verdict of pass that nobody has justified here.

A twin is one of several equal things: a GPU, an NVLink, a PCI function, an RDMA device.  By a fixed rule each field of
one of them comes with each change once; ENVKIT_FUZZ tries it on every one of the twins.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import machines
import pytest
from fuzzed import TIMES
from test_pages import Watched

from envkit import facts
from envkit.judging.checks._twins import table
from envkit.judging.judge import checks, run, unanswered
from envkit.model import Observed, Outcome, Report, Result, Subject, is_observation
from envkit.subjects import Host
from envkit.subjects.codec import from_plain
from envkit.subjects.host import Gpu, PciDevice
from envkit.subjects.host.fabric import RdmaDevice, RdmaPort
from envkit.subjects.host.gpu import NvLink

FACTS = facts.load()
CHECKS = checks(Host)
EVIDENCE = Path(__file__).parent / "data" / "gpu" / "h100-host.json"
LOST = {"value": None, "via": "", "missing": "taken away"}
UNSUPPORTED = {"value": None, "via": "", "missing": "not supported", "reason": "unsupported"}
OTHER = {"on": "off", "off": "on", "usable": "no node", "ACTIVE": "DOWN", "LinkUp": "Polling", "valid": "corrupt"}
Way = tuple[str | int, ...]

WEARS = "each counts its own errors, and few of them are no fault"
WORKS = "it changes with the work"
BRIDGE = "what matters is asked of the devices below the bridge"

# What may change and nothing is said: the field (a place in a list is a *), the changes, the reason.
SILENT: tuple[tuple[str, str, str], ...] = (
    ("driver_gpus.*.firmware", "empty", "a GPU that nothing has used yet shows no firmware there, and NVML tells it"),
    ("driver_gpus.*.uuid", "empty", "a GPU that nothing has used yet shows no UUID there, and NVML tells it"),
    ("infiniband.*.board", "change negate", "another board with the same chip is no twin"),
    ("infiniband.*.counting_s", "change", "counters may have been reset once"),
    ("infiniband.*.name", "negate", "somebody may give a device any name"),
    ("infiniband.*.nets*", "empty change negate", "an adapter need not have a network interface of a certain name"),
    ("infiniband.*.ports.*.counters.*", "change", WEARS),
    ("infiniband.*.ports.*.counters.port_*_data", "empty", WORKS),
    ("nvml.gpus.*.bar1.used", "empty change", WORKS),
    ("nvml.gpus.*.clocks.sm", "empty change", WORKS),
    ("nvml.gpus.*.ecc_corrected", "change", WEARS),
    (
        "nvml.gpus.*.ecc_uncorrected_ever",
        "change",
        "those since the driver was loaded are a finding",
    ),
    ("nvml.gpus.*.links.*.errors.crc_flit", "change", WEARS),
    ("nvml.gpus.*.memory_used", "empty change", WORKS),
    ("nvml.gpus.*.pcie.generation", "change", "a link at rest slows down"),
    ("nvml.gpus.*.pcie.replays", "change", WEARS),
    ("nvml.gpus.*.power.draw", "change", WORKS),
    ("nvml.gpus.*.pstate", "change", WORKS),
    ("nvml.gpus.*.remap.*correctable", "change", WEARS),
    ("nvml.gpus.*.serial", "change negate", "each board has its own, in its maker's form"),
    ("nvml.gpus.*.sram.uncorrected_*", "change", WEARS),
    ("nvml.gpus.*.temperature.*", "empty change", WORKS),
    ("nvml.gpus.*.throttle", "empty", WORKS),
    ("nvml.gpus.*.throttled_us.*", "change", "a second of it is no fault"),
    ("nvml.gpus.*.utilization", "change", WORKS),
    ("pci.bridge.*", "empty change negate", BRIDGE),
    ("pci.*.aer.correctable", "change", WEARS),
    ("pci.*.link.speed", "change", "a link at rest slows down"),
    ("pci.nic.device", "empty change", "a card of another id is no twin"),
    (
        "pci.*.vendor",
        "empty change",
        "a card of another id is no twin; a GPU of another vendor is a finding",
    ),
)
SLOWER = "the machine works, and a job on it is slower or has less to choose from"
# What may change and the verdict stays a pass, because a warning or a note names it: the field and why no more.
WARNED: tuple[tuple[str, str], ...] = (
    ("driver_gpus.*.excluded", "somebody excluded the GPU by an option"),
    ("infiniband.*", SLOWER),
    ("nvml.gpus.*.accounting", "it costs nothing"),
    ("nvml.gpus.*.bar1.total", SLOWER),
    ("nvml.gpus.*.clocks.*", SLOWER),
    ("nvml.gpus.*.display", SLOWER),
    ("nvml.gpus.*.ecc*", "somebody may have switched it off"),
    ("nvml.gpus.*.fabric.cl*", "somebody may have divided the machine"),
    ("nvml.gpus.*.links", SLOWER),
    ("nvml.gpus.*.links.*", SLOWER),
    ("nvml.gpus.*.mig_pending", "it takes a reset to come true"),
    ("nvml.gpus.*.name", "a machine of two products works"),
    ("nvml.gpus.*.part_number", "a GPU that was replaced may be of another delivery"),
    ("nvml.gpus.*.persistence", SLOWER),
    ("nvml.gpus.*.power.*", SLOWER),
    ("nvml.gpus.*.remap.pending", "the faulty row is out of use until the reset"),
    ("nvml.gpus.*.spare_rows.*", "nothing has failed yet"),
    ("nvml.gpus.*.temperature.*", SLOWER),
    ("nvml.gpus.*.vbios", SLOWER),
    ("pci.*", SLOWER),
)


class Case(NamedTuple):
    """One field of one twin of a machine, what is done to it, and what then stands there."""

    machine: str
    way: Way
    change: str
    value: Any

    @property
    def field(self) -> str:
        names = ["*" if isinstance(key, int) else key for key in self.way if key != "value"]
        if names[0] == "pci":
            names[1] = at(plain(self.machine), self.way[:3])["kind"]
        return ".".join(names)


@cache
def plain(machine: str) -> dict[str, Any]:
    if machine == EVIDENCE.stem:
        document: dict[str, Any] = json.loads(EVIDENCE.read_text(encoding="utf-8"))
        return dict(document["subject"])
    return machines.plain(machine)


MACHINES = (*machines.NAMES, EVIDENCE.stem)


def at(item: Any, way: Way) -> Any:
    for key in way:
        item = item[key]
    return item


def listed(found: Any) -> list[Any]:
    return (found or {}).get("value") or []


def twins(machine: str) -> Iterator[list[Way]]:
    """The groups of equal things."""
    whole = plain(machine)
    groups: dict[Any, list[Way]] = {}
    gpus = (listed(whole.get("nvml")) or {}) and whole["nvml"]["value"]["gpus"]
    for place, gpu in enumerate(gpus):
        groups.setdefault(("gpu", gpu["name"]["value"]), []).append(("nvml", "value", "gpus", place))
    for field in ("driver_gpus", "pci_gpus", "fabric_cards", "infiniband", "pci"):
        for place, item in enumerate(listed(whole.get(field))):
            kind = [item.get(key) for key in ("kind", "vendor", "device", "driver")]
            groups.setdefault((field, *kind, len(item.get("above", ()))), []).append((field, "value", place))
    yield from (group for group in groups.values() if len(group) > 1)


def leaves(item: Any, way: Way) -> Iterator[tuple[Way, Any]]:
    """Each observation and each value in ``item``; of a list the list itself and the one in its middle."""
    if isinstance(item, (int, float, str)) or is_observation(item) or (item == [] or item == {}):
        yield way, item
    if is_observation(item):
        yield from leaves(item["value"], (*way, "value"))
    elif isinstance(item, dict):
        for key in item:
            yield from leaves(item[key], (*way, key))
    elif isinstance(item, list) and item:
        yield way, item
        yield from leaves(item[len(item) // 2], (*way, len(item) // 2))


def changes(item: Any) -> Iterator[tuple[str, Any]]:
    """What is done to a value, and what comes of it."""
    if is_observation(item):
        yield from (("blank", LOST), ("unsupport", UNSUPPORTED)) if item["value"] is not None else ()
        return
    if isinstance(item, bool):
        yield "change", not item
    elif isinstance(item, (int, float)):
        yield "change", item + 1 if item < 10 else item + item // 3
        yield "negate", -abs(item) - 5
    elif isinstance(item, str):
        yield "change", OTHER.get(item) or item[:-1] + ("1" if item[-1:] != "1" else "2")
        yield "negate", f"no {item}"
    if item:
        yield "empty", type(item)()


def cases() -> Iterator[Case]:
    for machine in MACHINES:
        for group in twins(machine):
            number = 0
            for way, _ in leaves(at(plain(machine), group[0]), ()):
                for twin in group if TIMES > 1 else [group[number % len(group)]]:
                    try:
                        item = at(plain(machine), (*twin, *way))
                    except (IndexError, KeyError):  # the first has more than this one
                        continue
                    yield from (Case(machine, (*twin, *way), *change) for change in changes(item))
                number += 1


def sample() -> Iterator[Case]:
    """Each field of each kind of thing with each change once, or all of them."""
    seen: set[tuple[str, str, str]] = set()
    for case in cases():
        key = (case.machine, case.field, case.change)
        if TIMES > 1 or key not in seen:
            yield case
        seen.add(key)


class Judged:
    """The machine as it is, and which checks read which field: those alone can say something else of a change."""

    def __init__(self, machine: str) -> None:
        self.host = from_plain(Host, plain(machine))
        self.readers: dict[str, set[str]] = {}
        self.results: dict[str, Result] = {}
        for name, check in CHECKS.items():
            read: set[str] = set()
            self.results[name] = run(check, Watched(self.host, read), FACTS)
            for field in read:
                self.readers.setdefault(field, set()).add(name)

    def changed(self, case: Case) -> tuple[int, list[str]]:
        """The exit code, and the checks that say of the change what they do not say of the machine as it is."""
        field = str(case.way[0])
        part = {"name": "x", field: pickle.loads(pickle.dumps(plain(case.machine)[field]))}
        at(part, case.way[:-1])[case.way[-1]] = case.value
        host = replace(self.host, **{field: getattr(from_plain(Host, part), field)})
        results = self.results | {name: run(CHECKS[name], host, FACTS) for name in self.readers[field]}
        said = [
            name
            for name, result in results.items()
            if result.outcome not in (Outcome.PASS, Outcome.SKIP) and result != self.results[name]
        ]
        whole = (*results.values(), *unanswered(host))
        return Report(Subject("host", "x"), whole).exit_code(), said


@cache
def judged(machine: str) -> Judged:
    return Judged(machine)


def ended(case: Case) -> tuple[str, list[str]]:
    code, said = judged(case.machine).changed(case)
    return ("silent" if not said else "warned" if code == 0 else "failed" if code == 1 else "undecided"), said


def allowed(case: Case, end: str) -> set[str]:
    """The patterns of the table that let a change end so."""
    warned = [(field, case.change) for field, _ in WARNED]
    rows = [(field, ways) for field, ways, _ in SILENT] if end == "silent" else warned
    return {field for field, ways in rows if fnmatchcase(case.field, field) and case.change in ways.split()}


@pytest.mark.slow  # judges a machine a thousand times
@pytest.mark.nightly
def test_no_field_of_a_twin_is_passed_by_unless_somebody_said_why() -> None:
    wrong, used, count = [], {"silent": set[str](), "warned": set[str]()}, 0
    for case in sample():
        count += 1
        end, said = ended(case)
        if end in used:
            used[end] |= allowed(case, end)
            if not allowed(case, end):
                wrong.append(f"{end}: {case.machine} {case.field} {case.change} {str(case.value)[:40]} {said}")
    assert not wrong, f"{len(wrong)} of {count} changes end in a pass:\n" + "\n".join(wrong[:60])
    assert count > 500
    assert {field for field, _, _ in SILENT} == used["silent"], "a row of SILENT that nothing needs"
    assert {field for field, _ in WARNED} == used["warned"], "a row of WARNED that nothing needs"


THINGS: tuple[tuple[str, type[Any]], ...] = (
    ("gpu", Gpu), ("link", NvLink), ("function", PciDevice), ("bridge", PciDevice), ("rdma device", RdmaDevice),
    ("port", RdmaPort),
)  # fmt: skip


def places(kind: Any, way: str) -> Iterator[str]:
    """The fields of a record and of the records in it, as the table of twins names them."""
    if get_origin(kind) is Annotated or get_origin(kind) is Observed:
        yield from places(get_args(kind)[0], way)
    elif is_dataclass(kind):
        for item, hint in get_type_hints(kind).items():
            yield from places(hint, f"{way}.{item}" if way else item)
    else:
        yield way


def test_the_table_of_twins_has_every_field_and_no_other() -> None:
    fields = {(name, field) for name, kind in THINGS for field in places(kind, "")}
    assert fields == set(table())


def test_a_row_of_the_table_names_a_check_that_there_is() -> None:
    assert {row.check for row in table().values() if row.check} <= set(CHECKS)
    assert all(row.reason and row.severity in ("error", "warning", "note") for row in table().values())


if __name__ == "__main__":  # the figures: how many changes end how
    count = Counter((case.change, ended(case)[0]) for case in sample())
    for end in ("silent", "warned", "undecided", "failed"):
        print(end, sum(number for (_, how), number in count.items() if how == end), sep="\t")
    print("all", count.total(), sep="\t")
