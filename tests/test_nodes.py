"""YAML and JSON with comments: places, merges, templates, and files that try to make more of themselves."""

from __future__ import annotations

import time

import answers
import pytest
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile.nodes import Node, documents, json_with_comments, template_line


def one(text: str) -> Node:
    roots = documents(text, "f")
    assert not isinstance(roots, str), roots
    return answers.same("nodes", text, roots[0])


def test_every_node_knows_its_place() -> None:
    root = one("a:\n  - b: 'x y'\n")
    value = root.listed("a")[0].get("b")
    assert value is not None
    assert (value.span.line, value.span.column, value.span.end_line, value.span.end_column) == (2, 8, 2, 13)
    key = root.listed("a")[0].key("b")
    assert key is not None
    assert key.span.column == 5


def test_quotes_decide_what_is_plain() -> None:
    root = one("a: ~\nb: '~'\nc: yes\nd: 'null'\n")
    assert [root.get(name).empty for name in "abd"] == [True, False, False]
    assert root.get("c") is not None
    assert root.get("c").true


def test_a_merge_key_brings_what_is_not_there() -> None:
    root = one("x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  a: 9\n")
    found = {key.text: value.text for key, value in root.pairs("z")}
    assert found == {"a": "9", "b": "2", "c": "4"}


def test_an_alias_is_the_node_that_it_names() -> None:
    root = one("a: &a [1, 2]\nb: *a\n")
    assert root.get("a") is root.get("b")


def test_an_anchor_holds_in_its_document_alone() -> None:
    assert isinstance(documents("a: &a 1\n---\nb: *a\n", "f"), tuple | str)
    roots = documents("a: &a 1\n---\nb: 2\n", "f")
    assert len(roots) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n{{- if x }}\nb: 2\n", 2),
        ("a: {{ .Values.x }}b\n", 1),
    ],
)
def test_a_template_is_named(text: str, line: int) -> None:
    why = documents(text, "f")
    assert isinstance(why, str)
    assert why.startswith(f"line {line} holds a template")


def test_a_template_that_reads_as_yaml_is_seen() -> None:
    roots = documents("a: 1\nb: {{ .Values.x }}\n", "f")
    assert isinstance(roots, tuple)
    assert template_line(roots) == 2
    assert template_line(documents("a: {b: {c: 1}}\n", "f")) == 0


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)),
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: 1}}\n" for i in range(1, 600)),
        "[" * 100_000,
        "- " * 50_000,
        "a: &a [*a]\n",
        "? " * 10_000,
        "a: " + "x" * 4_000_000,
        "\n".join("a: 1" for _ in range(300_000)),
    ],
    ids=["aliases", "merges", "brackets", "dashes", "itself", "keys", "long", "many"],
)
def test_no_file_takes_long(text: str) -> None:
    begin = time.process_time()
    roots = documents(text, "f")
    if isinstance(roots, tuple):
        template_line(roots)
    assert time.process_time() - begin < 20  # what blows up takes hours


def test_json_may_hold_comments_and_trailing_commas() -> None:
    root = json_with_comments('{\n  // "a": 1,\n\t"b": "http://x", /* , */\n  "c": [1, 2, /* x */ ],\n}\n', "f")
    assert isinstance(root, Node)
    assert [key.text for key, _ in root.pairs()] == ["b", "c"]
    assert root.get("b") is not None
    assert root.get("b").text == "http://x"
    assert len(root.listed("c")) == 2


@pytest.mark.parametrize(
    "text", ['{"a": "' + "\\\\" * 400_000, ", /**/" * 100_000, "/*" * 400_000, ",\t" * 400_000, '"' * 400_000]
)
def test_no_json_takes_long(text: str) -> None:
    begin = time.process_time()
    json_with_comments(text, "f")
    assert time.process_time() - begin < 20


@given(st.text(alphabet=st.sampled_from("{}[]:,-&*<>?|#'\"\n\t ab~!%@`$/\\0\u0085\ud800"), max_size=60))
@examples(120)
def test_any_text_is_read_or_named(text: str) -> None:
    for found in (documents(text, "f"), json_with_comments(text, "f")):
        assert found or found == ()
