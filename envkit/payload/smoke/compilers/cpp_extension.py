"""A C++ extension of torch, built here, loaded and called: the road that every custom operator on the CPU takes.

It hands strings and vectors over the border to torch's libraries, which works only where both sides agree on the layout
of the C++ library's types.
"""

from __future__ import annotations

from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.compilers import extensions, stages
from envkit.payload.smoke.sources import text_of

SOURCE = text_of("compilers/cpp_extension.cpp")
_SIZE = (1 << 16) + 13


def _use(bench: Bench) -> dict[str, Any]:
    made = extensions.build("smoke_cpp_extension", [SOURCE], [], ["apply", "kind", "new_abi"])
    random = bench.random()
    whole = [torch.randint(-(2**20), 2**20, (_SIZE,), generator=random) for _ in range(2)]
    given = [whole[0].float(), whole[1]]
    got = made.apply(given)
    bench.exact("fp32.wrong", got[0], given[0] * 2 + 1)
    bench.exact("int64.wrong", got[1], given[1] * 2 + 1)
    # how torch calls a kind of tensor differs between releases and tensors, its type is in all of the names
    bench.count("words.wrong", int("Long" not in made.kind(given[1])) + int("Float" not in made.kind(given[0])))
    refused = ""
    try:
        made.apply([given[0].view(-1, 1).expand(-1, 2)])
    except RuntimeError as error:
        refused = str(error)
    bench.count("error.lost", int(not ("not contiguous" in refused and "Float" in refused)))
    bench.count("abi.wrong", int(made.new_abi() != int(torch.compiled_with_cxx11_abi())))
    return stages.told(bench)


def run(bench: Bench) -> None:
    """Measures ``fp32.wrong``, ``int64.wrong``, ``words.wrong`` of a string, ``error.lost`` and ``abi.wrong``."""
    bench.not_applicable_if(extensions.lacking_extension("torch builds its extensions"))
    extensions.build_and_use(bench, "cpp-extension", _use)
