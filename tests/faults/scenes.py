"""Which tests judge one and the same run: for a worker that has it, a second one costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from catalogue import FAULTS
from fault import Case, sound, whole
from stacks import RELEASES, Bench
from xdist.scheduler import LoadScopeScheduling

CLEAN: dict[str, Callable[[Bench], Case]] = {
    **{f"{name}-probe": sound(name) for name in RELEASES},
    **{f"{name}-audit": whole(name) for name in RELEASES},
}
SCENES: dict[str, Callable[[Bench], Case]] = {
    **{f"test_its_twin_is_quiet[{fault.name}]": fault.twin for fault in FAULTS},
    **{f"test_a_clean_stack_has_no_finding[{name}]": scene for name, scene in CLEAN.items()},
}
FIRST = {scene: test for test, scene in reversed(SCENES.items())}


class Together(LoadScopeScheduling):
    """Gives tests of one scene to one worker, and each other test to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        test = nodeid.rpartition("::")[2]
        return FIRST[SCENES[test]] if test in SCENES else nodeid
