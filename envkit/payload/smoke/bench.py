"""What every test of the suite works with: its device, its seed, its numbers, and the fault injected into it.

A test returns numbers and judges nothing.  Two kinds of number exist.  A count of wrong things (``exact``,
``count``) is 0 in a healthy stack.  A distance (``close``) is a pair: ``.frobenius``, the norm of the difference by
the norm of the reference, and ``.worst``, the largest difference of one element by that element's size plus the root
mean square of all, which sees a single wrong element that the norm hides.  Both are NaN when anything compared is.

A injected fault disturbs the result before it is compared, so that the way from a wrong element to a red verdict is
proven for every test.  Some are done here to any result: "ulp" changes one element by the least the test promises to
see (one unit in the last place where the test is exact, a ``.worst`` of about 1 elsewhere), "one" adds 1 to one
element, "nan" makes one NaN (of a type that has it), "scale" makes the whole an eighth larger, "block" leaves a
sixteenth of it unwritten.  Others are the test's own: "order" drops a barrier or a wait, "device" puts a tensor on the
wrong device, "fault" leaves out the fault that a test provokes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envkit.payload.isolate import NotApplicable
from envkit.payload.lazy import torch
from envkit.payload.smoke.case import GENERIC

SEED = 1618033


def worse(one: float, other: float) -> float:
    """The larger of two numbers, NaN if either is."""
    return other if one == one and not other <= one else one


@dataclass
class Bench:
    """One test on one device.

    ``targets`` are the architectures, as "sm_90", that the run was told its kernels are for, whatever GPU is here;
    ``gpus`` is how many GPUs the run sees; ``level`` is the run's.
    """

    device: str
    injected_fault: str = ""
    targets: Sequence[str] = ()
    scratch: str = ""
    gpus: int = 0
    level: str = "quick"
    measures: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    detail: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a CUDA device."""
        return self.device != "cpu"

    def random(self) -> Any:
        """A torch generator on the CPU with the suite's seed: every device computes with the same numbers."""
        return torch.Generator().manual_seed(SEED)

    def random_here(self) -> Any:
        """The same on the bench's own device: large operands are drawn where they are used."""
        return torch.Generator(self.device).manual_seed(SEED)

    def folder(self) -> str:
        """A folder of the whole run's, which goes with it.  Raises RuntimeError where none could be made."""
        if not self.scratch:
            raise RuntimeError("no folder for temporary files can be written to")
        return self.scratch

    def not_applicable(self, reason: str) -> None:
        """Ends the test because this machine lacks what it needs."""
        raise NotApplicable(reason)

    def not_applicable_if(self, lacking: str) -> None:
        """As ``not_applicable``, if ``lacking`` names something."""
        if lacking:
            self.not_applicable(lacking)

    def note(self, name: str, value: float) -> None:
        """Records a number; of several under one name the worst counts."""
        value = float(value)
        self.measures[name] = worse(self.measures[name], value) if name in self.measures else value

    def limit(self, name: str, most: float) -> None:
        """Bounds a measure of a test from outside the suite, which has no limits anywhere else; counts have 0."""
        self.limits[name] = float(most)

    def count(self, name: str, wrong: int) -> None:
        """Records how many things are wrong; several counts under one name add up."""
        self.measures[name] = self.measures.get(name, 0.0) + wrong

    def disturb(self, got: Any, exact: bool) -> Any:
        """The tensor as it is, or changed when one of the injected faults that change results is asked for."""
        if self.injected_fault not in GENERIC or not got.numel():
            return got
        flat = got.detach().cpu().contiguous().clone().reshape(-1)
        place = flat.numel() // 2
        real = flat.is_floating_point()
        if self.injected_fault == "scale":
            return ((flat.double() if real else flat) * 9 / 8).to(flat.dtype).reshape(got.shape)
        if self.injected_fault == "block":
            flat[place : place + max(1, flat.numel() // 16)] = 0
            return flat.reshape(got.shape)
        if self.injected_fault == "nan" and (real or flat.is_complex()):
            flat[place] = math.nan
        elif not exact:
            flat[place] += flat[place].abs() + flat.abs().square().mean().sqrt()
        elif self.injected_fault == "ulp" and real:
            flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])[place] += 1
        else:
            flat[place] += 1
        return flat.reshape(got.shape)

    def exact(self, name: str, got: Any, want: Any) -> None:
        """Counts the elements that differ, on the device of ``want``; NaN differs from everything."""
        got = self.disturb(got.detach(), exact=True).to(want.device)
        if got.shape != want.shape:
            raise AssertionError(f"{name}: shape {tuple(got.shape)}, expected {tuple(want.shape)}")
        self.count(name, int((~(got == want)).sum()))

    def close(self, name: str, got: Any, want: Any) -> None:
        """Records the two distances between ``got`` and the fp64 (or complex128) CPU tensor ``want``."""
        got = self.disturb(got.detach().cpu().to(want.dtype), exact=False)
        if got.shape != want.shape:
            raise AssertionError(f"{name}: shape {tuple(got.shape)}, expected {tuple(want.shape)}")
        far = (got - want.detach()).abs()
        size = want.detach().abs()
        self.note(name + ".frobenius", float(far.norm()) / float(size.norm()))
        self.note(name + ".worst", float((far / (size + size.square().mean().sqrt())).max()))

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Does ``work`` and says by the measure ``NAME.offered`` (1 or 0) whether this device offers it at all."""
        try:
            work()
        except (RuntimeError, NotImplementedError) as error:
            text = str(error)
            if not any(words in text for words in ("not implemented", "No available kernel", "No viable backend")):
                raise
            self.note(name + ".offered", 0)
        else:
            self.note(name + ".offered", 1)

    def plain_math(self) -> None:
        """Turns off what trades accuracy for speed, so that one limit holds for every image."""
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def travelling(measures: dict[str, float]) -> dict[str, float | str]:
    """The measures as JSON can carry them: what is no finite number becomes "nan", "inf" or "-inf"."""
    return {name: value if math.isfinite(value) else str(value) for name, value in sorted(measures.items())}


def rounded(tensors: Sequence[Any], dtype: Any) -> list[Any]:
    """The tensors rounded to ``dtype``: inputs of the device, and after ``.double()`` of the reference as well."""
    return [tensor.to(dtype) for tensor in tensors]
