"""Facts about a torch release that the tables do not have, from the package index, for a spec that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from envkit.errors import Undecided
from envkit.facts import Facts
from envkit.facts.rows import DerivedRow
from envkit.plan import indexes
from envkit.plan.spec import Base, Spec
from envkit.system import proc
from envkit.versions import Torch

if TYPE_CHECKING:
    from envkit.system.index import Index, IndexFile

_MOST = 3  # releases derived for one spec, the newest ones: of an older one the tables have a row, or will have


def for_spec(spec: Spec, facts: Facts, say: Callable[[str], None]) -> Facts:
    """``facts``, with derived rows where no release that ``spec`` asks for is in them.

    Asks the package index in that case alone.  Where the index does not answer or has no such release, the facts are
    given back as they are, and what is wrong is left to who asks them.
    """
    if spec.base is Base.NGC or any(spec.torch.admits(known.torch) for known in facts.torches_all):
        return facts
    from envkit.facts.derived import releases  # these cost 60 ms, and most locks never come here
    from envkit.system.index import BUDGET_S

    try:
        asked = indexes.of(spec.index, ()).pages(BUDGET_S)
        files = {file.name: file for file in asked.files("torch") if not file.yanked}
        wanted = [release for release in releases(files) if spec.torch.admits(release)][-_MOST:]
        found = [proc.beside(partial(derive, asked, release, files)) for release in wanted]
    except (Undecided, OSError) as error:
        why = error.message if isinstance(error, Undecided) else str(error)
        say(f"torch {spec.torch} is not in the facts, and the package index could not be asked: {why}")
        return facts
    rows = []
    for one in found:
        try:
            rows.append(one())
        except Undecided as error:
            say(f"torch {spec.torch} is not in the facts, and it was not derived: {error.message}")
    return facts.with_torches(rows)


def derive(asked: Index, release: Torch, files: Mapping[str, IndexFile]) -> DerivedRow:
    """The row of one release by its ``files``; raises Undecided where they do not say enough, or the index nothing."""
    from envkit.facts.derived import row, wheels

    first, arm = (next(iter(wheels(release, files, machine).values()), "") for machine in ("x86_64", "aarch64"))
    if not first:
        raise Undecided(f"torch {release} has no x86_64 Linux wheel", "take a release that the facts know")
    of_arm = proc.beside(partial(asked.metadata, files[arm])) if arm else None
    metadata = asked.metadata(files[first])
    today = datetime.now(UTC).date().isoformat()
    try:
        return row(release, files, files[first].uploaded, metadata, of_arm() if of_arm else None, today)
    except ValueError as error:
        raise Undecided(str(error), "take a release that the facts know") from error
