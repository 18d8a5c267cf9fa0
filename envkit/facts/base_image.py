"""Which row tells what a public image holds, by its tag."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from envkit.facts.rows import BaseImageRow


def row_of(rows: Iterable[BaseImageRow], image: str, tag: str) -> BaseImageRow | None:
    """The row of ``image`` under ``tag``, "" for latest; "A.B" is the newest release of that minor."""
    tag = tag or "latest"
    names = (image, f"{image.rpartition('/')[0]}/*")
    own = [row for row in rows if row.image in names]
    found = re.match(r"[vr]?([0-9]+(?:[.-][0-9]+)*)", tag) if own else None
    release = (*_numbers(found[1]), math.inf) if found else ()
    best: BaseImageRow | None = None
    for row in own:
        if any(tag == name or tag.startswith(f"{name}-") for name in row.tags):
            return None if re.search(r"[0-9]{8}", tag) else row  # a day's build does not move
        until = (*_numbers(row.until), math.inf) if row.until else (math.inf,)
        if row.since and release and _numbers(row.since) <= release <= until:
            if row.word in tag.split("-"):
                return row
            best = best if row.word else best or row
    return best


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))
