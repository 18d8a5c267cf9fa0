"""The products of the smoke suite: what their limits promise and, where there is a torch, what their parts do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torches

from envkit import payload
from envkit.judging.checks import _smoke as table
from envkit.payload.smoke.case import Case
from envkit.payload.smoke.gemm import CASES

ROOT = Path(payload.__file__).parents[2]


def torch_says(code: str) -> list[str]:
    done = subprocess.run([torches.PYTHON, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_count_has_the_limit_zero_and_every_device_a_limit(case: Case) -> None:
    rows = table.limits()[case.name]
    counts = [
        (measure, row.most)
        for row in rows
        for measure in row.measures
        if measure.endswith(("wrong", "outside", "differing", "nonfinite"))
    ]
    assert all(most == 0 for _, most in counts)
    assert counts or case.name == "gemm-random"
    kinds = {kind for row in rows for kind in row.devices}
    assert kinds == ({"cpu", "cuda"} if case.cpu else {"cuda"})


def test_a_limit_of_one_element_is_wider_than_that_of_the_norm() -> None:
    for case in CASES:
        rows = table.limits()[case.name]
        bounds = {(measure, kind): row.most for row in rows for measure in row.measures for kind in row.devices}
        for (measure, kind), most in bounds.items():
            if measure.endswith(".frobenius"):
                worst = bounds[measure.replace(".frobenius", ".worst"), kind]
                assert most is not None and worst is not None and most < worst < 0.2


@torches.needs_torch
def test_operands_stay_where_the_result_is_exact() -> None:
    """Bounds on the sums of the largest products, at ten deviations of what the operands were seen to have."""
    code = """
import torch
from envkit.payload.smoke.gemm.freivalds import operand
random = torch.Generator().manual_seed(7)
for top, zeros, depth in ((1, 2, 4096), (1, 6, 8192), (2, 2, 8192), (64, 2, 8192)):
    drawn = operand(500, 400, top, random, zeros).double()
    assert drawn.abs().max() == top and abs(float(drawn.mean())) < 0.02 * top
    print(int(float(drawn.square().mean()) * depth**0.5))
"""
    deviations = [int(word) for word in torch_says(code)]
    for deviation, largest, times in zip(deviations, (2**8, 2**8, 2**11, 2**24), (7, 10, 10, 10), strict=True):
        assert deviation > 1 and deviation * times < largest


@torches.needs_torch
def test_a_bit_that_differs_in_one_repetition_is_seen() -> None:
    code = """
import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.gemm_repeat import repeated
left, right = (torch.randn(64, 64, generator=torch.Generator().manual_seed(3)).bfloat16() for _ in range(2))
class Measuring(Bench):
    def disturb(self, got, exact):
        changed = super().disturb(got, exact)
        self.farthest = int((changed.view(torch.int16).int() - got.view(torch.int16).int()).abs().max())
        return changed
for injected_fault in ("", "ulp", "nan", "block"):
    bench = Measuring("cpu", injected_fault)
    repeated(bench, left, right, 5)
    print(int(bench.measures["differing"]))
    if injected_fault in ("", "ulp"):
        print(bench.farthest)
"""
    assert torch_says(code) == ["0", "0", "1", "1", "1", "256"]


@torches.needs_torch
def test_a_chain_ends_where_its_permutation_says() -> None:
    code = """
import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm.gemm_cublas import Chain
chain = Chain(Bench("cpu"), torch.bfloat16, torch.Generator().manual_seed(3))
chain.poison()
print(int(chain.links[1:].isnan().all()))
for link in range(3):
    chain.forge(link)
want = chain.start
for _ in range(3):
    want = chain.moved(want)
print(int((chain.links[3] == want).all()), int((want != chain.start).any()))
print(int((chain.links[0].double() @ chain.matrix.double() == chain.links[1]).all()))
"""
    assert torch_says(code) == ["1", "1", "1", "1"]


@torches.needs_torch
def test_sums_that_cancel_would_overflow_on_their_way() -> None:
    code = """
import torch
from envkit.payload.smoke.gemm.gemm_split_k import _DEPTH, cancelling
left, right = cancelling(torch.Generator().manual_seed(3))
half = left[:, : _DEPTH // 2].double() @ right[:, : _DEPTH // 2].double().t()
whole = left.double() @ right.double().t()
print(int(half.min() > 65504), int(half.max() < 2**24), int(whole.abs().max() <= 256), int((whole != 0).any()))
"""
    assert torch_says(code) == ["1", "1", "1", "1"]
