"""Steps of training."""

from __future__ import annotations

from collections.abc import Iterator

from envkit.judging.checks._smoke import judged
from envkit.model import Finding
from envkit.subjects.smoke import SmokeRun


def smoke_freeze_unfreeze(run: SmokeRun) -> Iterator[Finding]:
    """Every gradient is right after part of a model was frozen and unfrozen."""
    yield from judged("freeze-unfreeze", run)


def smoke_wkv(run: SmokeRun) -> Iterator[Finding]:
    """A recurrent kernel of one's own computes right inside a model, forward and backward."""
    yield from judged("wkv", run)


def smoke_autocast_training(run: SmokeRun) -> Iterator[Finding]:
    """Training under autocast follows fp64 in fp16 and bf16, with the types that autocast promises."""
    yield from judged("autocast-training", run)


def smoke_grad_scaler(run: SmokeRun) -> Iterator[Finding]:
    """A gradient that is not finite skips its step and lowers the scale, exactly."""
    yield from judged("grad-scaler", run)


def smoke_checkpointing(run: SmokeRun) -> Iterator[Finding]:
    """Activation checkpointing gives the gradients of the run without it, bit for bit."""
    yield from judged("checkpointing", run)


def smoke_optimizers(run: SmokeRun) -> Iterator[Finding]:
    """SGD and AdamW follow their formulas in every implementation, and go on from a saved state."""
    yield from judged("optimizers", run)


def smoke_accumulate(run: SmokeRun) -> Iterator[Finding]:
    """Accumulated gradients are those of the whole batch, and are clipped to exactly the norm asked for."""
    yield from judged("accumulate", run)


def smoke_deterministic(run: SmokeRun) -> Iterator[Finding]:
    """Two runs with deterministic algorithms are the same, bit for bit."""
    yield from judged("deterministic", run)
