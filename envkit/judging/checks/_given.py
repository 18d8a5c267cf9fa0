"""What the checks of a run share that was given GPUs: how many it must see, and what to do if it does not."""

from __future__ import annotations

from collections.abc import Sequence

from envkit.judging.checks._outcomes import skip_if

FIX = "unset CUDA_VISIBLE_DEVICES in the image, run `envkit doctor` on the host, or give none: `--gpus none`"


def must_see(given: Sequence[str]) -> int:
    """How many GPUs a run that was given ``given`` must see: "all" promises at least one, names promise each.

    Raises Skip where none was given.
    """
    skip_if(not given, "no GPU was given to the run")
    return 1 if "all" in given else len(given)
