"""Causes that are rows: which line a rule is of, what it says, and which rows are refused."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from logs import told

from envkit import facts
from envkit.logs import knowledge, names
from envkit.logs.causes._worded import worded
from envkit.logs.causes.rules import by_rule, rule_of, stated_by_one_line
from envkit.logs.knowledge import failures, rules, signatures, statements, wordings
from envkit.logs.records import CAUSES, Event, FileSeen, Line, Role, Rule, RuleHypothesis, Strength
from envkit.logs.story import Story

FACTS = facts.load()
TABLES = Path(knowledge.__file__).parent / "rules"
ROW = {
    "category": "out-of-memory",
    "signatures": ["torch-oom"],
    "says": [{"cause": "gpu-memory-exhausted", "strength": "likely", "because": "no room"}],
    "source": "s",
    "seen": "2026-11-22",
}


def event(signature: str, text: str = "x", **values: str) -> Event:
    row = next(row for row in signatures() if row.id == signature)
    return Event(Line("log", 1, text), row, Role.ROOT, values)


def test_of_a_failures_rules_the_first_that_fits_counts() -> None:
    by_signature = rule_of(event("device-busy"))
    assert by_signature is not None and by_signature.says[0].cause == "launch-config"
    last = rule_of(event("unknown-error"))
    assert last is not None and last.signatures == () and last.says[0].cause == "driver-firmware-fault"


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        ("CUDNN_STATUS_ARCH_MISMATCH", ["arch-unsupported"]),
        ("CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING", ["version-mismatch"]),
        ("CUDNN_STATUS_NOT_SUPPORTED", ["gpu-kernel-bug", "gpu-memory-exhausted"]),
        ("CUDNN_STATUS_MAPPING_ERROR", ["gpu-kernel-bug", "gpu-memory-exhausted"]),
        ("CUDNN_STATUS_EXECUTION_FAILED", ["gpu-memory-exhausted", "gpu-kernel-bug"]),
    ],
)
def test_a_status_selects_the_rule(status: str, causes: list[str]) -> None:
    found = list(by_rule(event("cudnn-failed", code=status)))
    assert [each.cause for each in found] == causes
    stated = "MISMATCH" in status or "MISSING" in status
    assert found[0].strength is (Strength.LIKELY if stated else Strength.USUAL)
    assert found[0].over == ("insufficient-evidence",)


def test_no_rule_no_hypothesis() -> None:
    assert rule_of(event("torch-oom")) is None
    assert list(by_rule(event("torch-oom"))) == []


def test_a_sentence_has_the_lines_values() -> None:
    found = told("NVRM: The NVIDIA GPU 0000:01:00.0 is supported through the NVIDIA 470.xx Legacy drivers.\n")
    assert "470.xx" in found.because and "470.xx" in found.fix


def one_of(signature: str, *roles: Role) -> Story:
    """A story of lines of one signature, and of nothing else."""
    known = next(row for row in (*signatures(), *names.kinds()) if row.id == signature)
    values = dict.fromkeys(re.compile(known.pattern).groupindex, "1")
    lines = [Event(Line("log", number, f"line {number}"), known, role, values) for number, role in enumerate(roles, 1)]
    return Story(tuple(lines), (), (FileSeen("log", len(lines), 99),))


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.alone], ids=lambda rule: rule.signatures[0])
def test_a_rule_alone_speaks_once_for_its_first_line(rule: Rule) -> None:
    found = list(stated_by_one_line(one_of(rule.signatures[0], Role.ROOT, Role.ROOT), FACTS))
    assert [each.evidence[0].number for each in found] == [1] * len(rule.says)
    assert [(each.category, each.cause) for each in found] == [(rule.category, says.cause) for says in rule.says]
    assert "{" not in found[0].because + found[0].fix
    after = list(stated_by_one_line(one_of(rule.signatures[0], Role.CASCADE), FACTS))
    assert len(after) == (len(rule.says) if rule.alone == "any" else 0)


def test_every_row_is_of_a_known_failure_and_names_its_source() -> None:
    assert {path.stem for path in TABLES.glob("*.jsonl")} == {"cuda", "kernel", "ranks", "setup"}
    for rule in rules():
        assert rule.category in failures() and rule.source and rule.seen and rule.says
        assert all(says.because and says.because[-1] != "." for says in rule.says)
    for category in {rule.category for rule in rules()}:
        mine = [rule for rule in rules(category) if not rule.alone]
        assert all(rule.signatures or rule.status for rule in mine[:-1]), f"{category}: a rule is never reached"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"category": "out-of-mind"}, "out-of-mind"),
        ({"signatures": ["torch-oops"]}, "torch-oops"),
        ({"signatures": ["torch-oops*"]}, "torch-oops"),
        ({"beside": ["bar-zeros"]}, "bar-zeros"),
        ({"status": "("}, "status"),
        ({"says": [{"cause": "bad-luck", "strength": "likely", "because": "x"}]}, "bad-luck"),
        ({"says": [{"cause": "infra", "strength": "surely", "because": "x"}]}, "surely"),
        ({"alone": "yes"}, "alone"),
        ({"fix": "no such field"}, "fix"),
        ({"says": [{"cause": "infra", "strength": "likely", "because": "{nothing} failed"}]}, "nothing"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    (tmp_path / "some.jsonl").write_text(json.dumps(ROW | change) + "\n", "utf-8")
    with pytest.raises(ValueError, match=says):
        knowledge.read_rules(tmp_path)


def test_a_row_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text(json.dumps(ROW) + "\n", "utf-8")
    saying = RuleHypothesis("gpu-memory-exhausted", "no room", "likely")
    assert knowledge.read_rules(tmp_path) == (Rule("out-of-memory", (saying,), "s", "2026-11-22", ("torch-oom",)),)


def test_every_statement_is_of_a_known_signature_and_cause() -> None:
    known = {row.id for row in signatures()}
    for path in (TABLES.parent / "statements").glob("*.jsonl"):
        for name, row in statements(path.stem).items():
            assert name in known and row.cause in CAUSES and row.source and row.seen, name
            assert row.because and row.because[-1] != ".", name


def worded_calls() -> Iterator[tuple[str, ast.Call]]:
    """The calls by which code says which row words its hypothesis, each with the name of its module."""
    for path in sorted((TABLES.parent / "causes").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "worded":
                yield path.stem, node


def ids(module: str, node: ast.expr) -> set[str]:
    """The ids that a call's first argument can be: those written there, and those of a table that it asks."""
    found = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    tables = [getattr(import_module(f"envkit.logs.causes.{module}"), name, None) for name in names]
    chosen = {str(each) for each in found if each in wordings()}
    return chosen.union(*(each.values() for each in tables if isinstance(each, dict)))


def test_every_call_gives_its_row_the_values_that_it_names_and_every_row_is_used() -> None:
    own = {"strength", "cause", "over"}
    used = set()
    for module, call in worded_calls():
        given = {str(each.arg) for each in call.keywords} - own
        assert ids(module, call.args[0]), ast.unparse(call)
        for id in ids(module, call.args[0]):
            row = wordings()[id]
            texts = (row.because, row.decide_by, row.fix)
            asked = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
            assert asked == given, id
            assert row.cause or any(each.arg == "cause" for each in call.keywords), id
            used.add(id)
    assert used == set(wordings())


def test_a_row_without_a_category_is_told_as_its_first_line_is() -> None:
    found = worded("library-of-rocm", event("lib-gpu"), library="librccl.so")
    assert (found.category, found.cause) == ("missing-shared-library", "wrong-build-installed")
    assert "librccl.so" in found.because and "missing-shared-library" not in found.over
    assert worded("library-of-rocm", event("lib-gpu"), over=("not-gpu-env",), library="x").over == ("not-gpu-env",)
