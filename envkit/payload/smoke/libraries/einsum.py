"""Contractions of tensors of small integers against their definition, multiply, then sum: exact."""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.libraries._compare import stale

SIZES = {"a": 7, "b": 5, "h": 3, "i": 33, "j": 19, "k": 13, "l": 21, "m": 9, "q": 31, "t": 29}
EQUATIONS = (
    "ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "bhqi,bhti->bhqt", "bqhi,bthi->bhqt", "ijk,kl,jm->ilm", "aij,jb->aib",
    "i,j->ij", "ii->i", "ajj->a", "aij->ja", "ij,ij->", "bqt,bt->bq", "ab,bi,iq->aq",
)  # fmt: skip


def by_definition(equation: str, operands: list[Any]) -> Any:
    """The contraction in integers: each operand spread over all labels, their product, summed over those not kept."""
    given, kept = equation.split("->")
    labels = kept + "".join(sorted(set(given) - set(kept) - {","}))
    product: Any = 1
    for place, names in enumerate(given.split(",")):
        operand = operands[place]
        for name in sorted(set(names)):
            if names.count(name) == 2:
                first = names.index(name)
                operand = operand.diagonal(0, first, names.index(name, first + 1))
                names = names.replace(name, "") + name
        for name in labels:
            if name not in names:
                operand, names = operand.unsqueeze(-1), names + name
        product = product * operand.permute([names.index(name) for name in labels])
    return product.sum(list(range(len(kept), len(labels)))) if len(labels) > len(kept) else product


def run(bench: Bench) -> None:
    """Measures ``<dtype>.einsum``, ``.tensordot``, ``.batched`` and ``.strided``: wrong elements of contractions."""
    bench.plain_math()
    random = bench.random()

    def integers(*shape: int) -> Any:
        # what any of the sums comes to is a bf16 number, and so is each step of a chain
        return torch.randint(-1, 2, shape, generator=random)

    drawn = [
        (equation, [integers(*(SIZES[name] for name in names)) for names in equation.split("->")[0].split(",")])
        for equation in EQUATIONS
    ]
    wanted = [by_definition(equation, operands) for equation, operands in drawn]
    left, right = integers(4, 33, 19, 13), integers(19, 13, 27)
    contracted = by_definition("aijk,jkt->ait", [left, right])
    batch, other, start = integers(6, 33, 40), integers(6, 40, 17), integers(6, 33, 17)
    added = 2 * by_definition("bij,bjk->bik", [batch, other]) + 3 * start
    kinds = (("fp64", torch.float64), ("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16))
    for name, dtype in kinds:

        def here(tensor: Any, dtype: Any = dtype) -> Any:
            return tensor.to(dtype).to(bench.device)

        stale(bench)
        for place, (equation, operands) in enumerate(drawn):
            got = torch.einsum(equation, *map(here, operands))
            bench.exact(name + ".einsum", got, wanted[place].to(dtype))
        bench.exact(name + ".tensordot", torch.tensordot(here(left), here(right), 2), contracted.to(dtype))
        got = torch.baddbmm(here(start), here(batch), here(other), beta=3, alpha=2)
        bench.exact(name + ".batched", got, added.to(dtype))
        # operands that lie transposed, with gaps, or are one matrix that stands for many
        turned = here(batch.transpose(1, 2).contiguous()).transpose(1, 2)
        gaps = here(torch.stack([other, start.new_full(other.shape, 9)], -1))[..., 0]
        single = here(other[:1]).expand(6, 40, 17)
        product = by_definition("bij,bjk->bik", [batch, other])
        bench.exact(name + ".strided", turned @ gaps, product.to(dtype))
        repeated = by_definition("bij,jk->bik", [batch, other[0]])
        bench.exact(name + ".strided", torch.bmm(turned, single), repeated.to(dtype))
