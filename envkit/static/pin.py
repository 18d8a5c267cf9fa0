"""``--pin``: what a Dockerfile is FROM, with the digest that a registry has for it today."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from envkit.dockerfile.evaluate import read
from envkit.errors import EnvkitError
from envkit.facts import Facts
from envkit.model import Edit, Span
from envkit.static import JudgedFile
from envkit.subjects.dockerfile import Base

_BUDGET_S = 12.0  # for all of them, side by side; the engine gives a registry 10 s for its first word


def unpinned(judged: JudgedFile, facts: Facts) -> tuple[Base, ...]:
    """The external images that stages are FROM and that have no digest."""
    if judged.kind != "dockerfile" or judged.unreadable:
        return ()
    stages = read(judged.text, judged.path, facts).stages
    bases = (stage.base for stage in stages if stage.parent is None)
    return tuple(base for base in bases if not base.scratch and not base.digest)


def obstacle(base: Base, text: str) -> str:
    """Why a digest cannot be written behind FROM's word, a clause; "" where it can.

    What a build argument decides would be pinned to the one image that its default names.
    """
    if not base.sure or "$" in _written(base.span, text):
        return "build arguments decide it"
    if not base.tag:
        return "it has no tag, and a digest would hide that"
    return ""


def digests(
    references: Iterable[str], ask: Callable[[str], str], say: Callable[[str], None], budget_s: float = _BUDGET_S
) -> Mapping[str, str]:
    """The digest that ``ask`` gives of each reference within ``budget_s`` seconds; ``say`` hears of the others."""
    wanted = sorted(set(references))
    found: dict[str, str | EnvkitError] = {}

    def one(reference: str) -> None:
        try:
            found[reference] = ask(reference)
        except EnvkitError as error:
            found[reference] = error

    threads = [threading.Thread(target=one, args=(reference,), daemon=True) for reference in wanted]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + budget_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    known: dict[str, str] = {}
    for reference in wanted:
        answer = found.get(reference)
        if isinstance(answer, str):
            known[reference] = answer
        else:
            why = answer.message if answer is not None else f"no registry answered within {budget_s:.0f} s"
            say(f"{reference} stays without a digest: {why}")
    return known


def edits(judged: JudgedFile, bases: Iterable[Base], known: Mapping[str, str]) -> tuple[Edit, ...]:
    """What writes the digests behind FROM's words."""
    return tuple(
        Edit(_end(base.span), f"@{known[base.reference]}")
        for base in bases
        if base.reference in known and not obstacle(base, judged.text)
    )


def _end(span: Span) -> Span:
    line, column = span.end_line or span.line, span.end_column or span.column
    return replace(span, line=line, column=column, end_line=line, end_column=column)


def _written(span: Span, text: str) -> str:
    line = text.split("\n")[span.line - 1]
    return line[span.column - 1 : span.end_column - 1] if span.end_line in (0, span.line) else "$"
