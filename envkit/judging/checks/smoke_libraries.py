"""The libraries that torch calls."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_conv(run: SmokeRun) -> Iterator[Finding]:
    """Convolutions and their gradients are as precise as their type in both layouts."""
    yield from judged("conv", run)


def smoke_attention(run: SmokeRun) -> Iterator[Finding]:
    """Attention and its gradients are as precise as their type, whichever kernel is chosen."""
    yield from judged("attention", run)


def smoke_fft(run: SmokeRun) -> Iterator[Finding]:
    """Fourier transforms agree with their definition and invert."""
    yield from judged("fft", run)


def smoke_solve(run: SmokeRun) -> Iterator[Finding]:
    """LU, Cholesky and SVD leave residuals of the size that rounding explains."""
    yield from judged("solve", run)


def smoke_sparse(run: SmokeRun) -> Iterator[Finding]:
    """Sparse products of integers have not one wrong element."""
    yield from judged("sparse", run)


def smoke_conv_variants(run: SmokeRun) -> Iterator[Finding]:
    """Convolutions of every kind and their gradients are as precise as their type, whichever algorithm is taken."""
    yield from judged("conv-variants", run)


def smoke_rnn(run: SmokeRun) -> Iterator[Finding]:
    """LSTM and GRU run in cuDNN where it is there, and with their gradients are as precise as their type."""
    yield from judged("rnn", run)


def smoke_attention_kernels(run: SmokeRun) -> Iterator[Finding]:
    """Each attention kernel that is offered runs when it is asked for and is as precise as its type."""
    yield from judged("attention-kernels", run)


def smoke_normalization(run: SmokeRun) -> Iterator[Finding]:
    """Normalisations and softmax are as precise as their type, and sums of integers are exact."""
    yield from judged("normalization", run)


def smoke_linalg(run: SmokeRun) -> Iterator[Finding]:
    """Factorisations, least squares and inverses leave residuals of the size that rounding explains."""
    yield from judged("linalg", run)


def smoke_random(run: SmokeRun) -> Iterator[Finding]:
    """Random numbers repeat with their seed, differ without it, and have the moments of their distribution."""
    yield from judged("random", run)


def smoke_sort_scatter(run: SmokeRun) -> Iterator[Finding]:
    """Sorting, searching and adding to computed places have not one wrong element."""
    yield from judged("sort-scatter", run)


def smoke_elementwise(run: SmokeRun) -> Iterator[Finding]:
    """Functions keep their documented precision, and special values, casts and integer division are exact."""
    yield from judged("elementwise", run)


def smoke_embedding(run: SmokeRun) -> Iterator[Finding]:
    """Lookups and their gradients are exact, losses and sampling as precise as their type."""
    yield from judged("embedding", run)


def smoke_einsum(run: SmokeRun) -> Iterator[Finding]:
    """Contractions of integers have not one wrong element, however their operands lie in memory."""
    yield from judged("einsum", run)


def smoke_sparse_formats(run: SmokeRun) -> Iterator[Finding]:
    """Products of integers have not one wrong element in any sparse format."""
    yield from judged("sparse-formats", run)


def smoke_indexing_large(run: SmokeRun) -> Iterator[Finding]:
    """A tensor of more than 2^31 elements is filled, read, summed, copied and written at the right places."""
    yield from judged("indexing-large", run)
