"""YAML, and JSON with comments, as nodes that know their places.

Not through a loader: depth and number of nodes have a bound, an alias is the node that it names and no copy, and merge
keys ("<<") are put in once, so that no file can make more of itself than it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from envkit.model import Span
from envkit.patterns import pattern
from envkit.records import dataclass

MOST = 100_000  # parts of one file; a manifest of every custom resource of a cluster has fewer
DEEPEST = 60  # levels; a sensible file has fifteen
_MERGED = 100_000  # keys that merges may add in one file
_JSON_MARK = pattern(
    r'"(?:[^"\\\n]++|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)|,(?=(?:\s++|//[^\n]*+|/\*(?>.*?\*/))*[}\]])|\t', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Node:
    """A text, a list, or keys with values; ``plain`` is a text without quotes, ``flow`` marks { } and [ ]."""

    span: Span
    text: str = ""
    plain: bool = False
    items: tuple[Node, ...] | None = None
    keys: dict[str, tuple[Node, Node]] | None = None
    flow: bool = False
    odd: bool = field(default=False, compare=False)  # it has a key that is no text, as a template has

    def get(self, *path: str) -> Node | None:
        """The value under the keys, None where there is none."""
        node: Node | None = self
        for key in path:
            found = node.keys.get(key) if node is not None and node.keys is not None else None
            node = found[1] if found else None
        return node

    def key(self, name: str) -> Node | None:
        """The key itself, for its place."""
        found = (self.keys or {}).get(name)
        return found[0] if found else None

    def pairs(self, *path: str) -> Iterator[tuple[Node, Node]]:
        """Keys with their values of the mapping under the keys of ``path``, none where there is no mapping."""
        node = self.get(*path)
        if node is not None and node.keys is not None:
            yield from node.keys.values()

    def listed(self, *path: str) -> tuple[Node, ...]:
        """The items of the list under the keys, none where there is no list."""
        node = self.get(*path)
        return (node.items or ()) if node is not None else ()

    @property
    def empty(self) -> bool:
        """Whether it is null."""
        leaf = self.items is None and self.keys is None
        return leaf and self.plain and self.text in ("", "~", "null", "Null", "NULL")

    @property
    def true(self) -> bool:
        """Whether it is a true truth value (YAML 1.1)."""
        return self.text.lower() in ("true", "yes", "on")


def documents(text: str, path: str, most: int = MOST) -> tuple[Node, ...] | str:
    """The documents of a YAML file of at most ``most`` parts, or a clause that says why there are none."""
    import yaml  # costs 30 ms, and most files need none

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    anchors: dict[str, Node] = {}
    stack: list[tuple[bool, str, bool, int, int, list[Node]]] = []
    found: list[Node] = []
    count, merged = 0, [0]
    try:
        for event in yaml.parse(text, Loader=loader):
            count += 1
            if count > most:
                return f"it has more than {most} parts"
            if len(stack) > DEEPEST:
                return f"it has more than {DEEPEST} levels"
            if isinstance(event, yaml.DocumentStartEvent):
                anchors = {}
                continue
            start, end = event.start_mark, event.end_mark
            line, column = (start.line + 1, start.column + 1) if start else (1, 1)
            if isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
                mapping = isinstance(event, yaml.MappingStartEvent)
                stack.append((mapping, event.anchor or "", bool(event.flow_style), line, column, []))
                continue
            if isinstance(event, yaml.ScalarEvent):
                last, after = (end.line + 1, end.column + 1) if end else (line, column)
                node = Node(Span(path, line, column, last, after), event.value, event.style in (None, ""))
                anchor = event.anchor or ""
            elif isinstance(event, yaml.AliasEvent):
                node, anchor = anchors.get(event.anchor or "", Node(Span(path, line, column), "", True)), ""
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                mapping, anchor, flow, line, column, parts = stack.pop()
                last, after = (end.line + 1, end.column + 1) if end and flow else (line, column + 1)
                span = Span(path, line, column, last, after)
                node = _mapping(span, parts, flow, merged) if mapping else Node(span, items=tuple(parts), flow=flow)
                if merged[0] > _MERGED:
                    return f"its merge keys add more than {_MERGED} keys"
            else:
                continue
            if anchor:
                anchors[anchor] = node
            if stack:
                stack[-1][5].append(node)
            else:
                found.append(node)
    except (yaml.YAMLError, ValueError) as error:
        template = _template(text)
        if template:
            return f"line {template} holds a template ({{{{ }}}}), so it is no YAML before it is rendered"
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", "") or error).splitlines()[0]
        return f"it is no YAML (line {mark.line + 1}: {reason[:100]})" if mark else f"it is no YAML ({reason[:100]})"
    return tuple(found)


def _mapping(span: Span, parts: list[Node], flow: bool, merged: list[int]) -> Node:
    keys: dict[str, tuple[Node, Node]] = {}
    sources: list[Node] = []
    odd = False
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        if key.items is not None or key.keys is not None:
            odd = True
        elif key.plain and key.text == "<<":
            sources += value.items if value.items is not None else (value,)
        else:
            keys[key.text] = (key, value)
    for source in sources:
        for name, pair in (source.keys or {}).items():
            merged[0] += 1
            keys.setdefault(name, pair)
    return Node(span, keys=keys, flow=flow, odd=odd)


def _template(text: str) -> int:
    """The first line with a template's braces that is no comment, 0 for none."""
    for number, line in enumerate(text.splitlines(), 1):
        if "{{" in line and "}}" in line and not line.lstrip().startswith("#"):
            return number
    return 0


def template_line(roots: tuple[Node, ...]) -> int:
    """The line of the first mapping with a key that is none: an unquoted {{ }} of a template reads so; 0 for none."""
    seen: set[int] = set()
    stack = list(roots)
    lines = []
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.odd:
            lines.append(node.span.line)
        stack += [*node.listed(), *(value for _, value in node.pairs())]
    return min(lines, default=0)


def json_with_comments(text: str, path: str) -> Node | str:
    """A JSON document that may hold comments and trailing commas, or a clause that says why there is none.

    They are blotted out in place, and what is left is YAML too, so that every place stays what it was.
    """

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    roots = documents(_JSON_MARK.sub(blank, text), path)
    if isinstance(roots, str):
        return roots.replace("no YAML", "no JSON")
    return roots[0] if roots else "it is empty"
