"""LSTM and GRU of two layers in both directions, on whole and on packed sequences, against the same network in fp64."""

from __future__ import annotations

from functools import partial
from typing import Any

from envkit.payload.lazy import torch
from envkit.payload.smoke.bench import Bench, rounded
from envkit.payload.smoke.libraries._compare import all_close, stale

_TIME, _INPUTS, _HIDDEN = 24, 40, 48
_LENGTHS = (24, 24, 19, 11, 10, 3, 1)  # of the packed sequences, longest first


def run(bench: Bench) -> None:
    """Measures the distances ``<dtype>-<kind>`` over outputs, last states and all gradients.

    ``cudnn.offered`` is 1 where torch has cuDNN, and ``cudnn.passed-over`` then counts the passes that did not use it.
    """
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    bench.plain_math()
    random = bench.random()
    offered = bench.on_gpu and torch.backends.cudnn.is_available()
    bench.note("cudnn.offered", offered)
    if offered:
        bench.count("cudnn.passed-over", 0)
    batch = len(_LENGTHS)

    def one_pass(network: Any, sequence: Any, seed: Any, packed: bool) -> tuple[list[Any], bool]:
        leaf = sequence.detach().clone().requires_grad_()
        network.zero_grad()
        given = pack_padded_sequence(leaf, list(_LENGTHS)) if packed else leaf
        out, last = network(given)
        node = str((out.data if packed else out).grad_fn.name())
        if packed:
            out, _ = pad_packed_sequence(out)
        states = list(last) if isinstance(last, tuple) else [last]
        out.backward(seed)
        grads = [parameter.grad.clone() for parameter in network.parameters()]
        return [out, *states, leaf.grad, *grads], "Cudnn" in node

    def compare(name: str, dtype: Any, kind: Any) -> None:
        exact = kind(_INPUTS, _HIDDEN, num_layers=2, bidirectional=True).double()
        with torch.no_grad():
            for parameter in exact.parameters():
                drawn = torch.rand(parameter.shape, generator=random, dtype=torch.float64) - 0.5
                parameter.copy_((drawn * 0.5).to(dtype))
        shapes = ((_TIME, batch, _INPUTS), (_TIME, batch, 2 * _HIDDEN))
        sequence, seed = rounded([torch.randn(*s, generator=random, dtype=torch.float64) for s in shapes], dtype)
        network = kind(_INPUTS, _HIDDEN, num_layers=2, bidirectional=True, device=bench.device, dtype=dtype)
        network.load_state_dict(exact.state_dict())
        for packed in (False, True):
            wanted, _ = one_pass(exact, sequence.double(), seed.double(), packed)
            stale(bench)
            results, by_cudnn = one_pass(network, sequence.to(bench.device), seed.to(bench.device), packed)
            if offered and dtype is not torch.bfloat16:  # for which some releases take their own kernels
                bench.count("cudnn.passed-over", int(not by_cudnn))
            all_close(bench, name, results, wanted)

    kinds = (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU))
    for dtype_name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        for kind_name, kind in kinds:
            name = f"{dtype_name}-{kind_name}"
            bench.attempt(name, partial(compare, name, dtype, kind))
