"""One step of a sound model and of one with a fault of precision, on several releases of torch, without a GPU.

What one release shows is in tests/test_precision_models.py.
"""

from __future__ import annotations

import pytest
import stacks
from precision_steps import failed, judged, line, taken

pytestmark = pytest.mark.faults
RELEASES = ("t24", "t26", "t215")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [
        pytest.param("bfloat16", False, marks=pytest.mark.nightly),
        pytest.param("float16", False, marks=pytest.mark.nightly),  # minutes
        ("bfloat16", True),
    ],
)
def test_a_sound_model_passes(release: str, dtype: str, autocast: bool) -> None:
    model = taken(stacks.pristine(release).python, "words", dtype, autocast)
    assert failed(judged(model)) == set()
    step = model.wanted.need("the step")
    assert step.backward == "ran"
    assert step.unfollowed == ()
    assert {"output 0", "the loss", "all gradients as one"} <= {each.what for each in step.results}
    assert all(0 < each.error < 0.1 for each in step.results if not each.noise)


@pytest.mark.parametrize("release", RELEASES)
def test_the_first_fault_is_named_on_every_release(release: str) -> None:
    (finding,) = judged(taken(stacks.pristine(release).python, "cancels"))["error-explodes"].findings
    assert finding.where == line("cancels")
