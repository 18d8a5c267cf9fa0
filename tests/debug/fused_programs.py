"""Six programs whose fault lies in a kernel that torch.compile fused or copied, labelled before they met
`envkit debug`, and their twins.

``python fused_programs.py NAME fault|clean`` on a machine with a GPU.  The line of the compiled function that makes the
bad access bears ``# here``, the one that calls the compiled function ``# call``; a line of a Triton kernel of the
program's own has its own mark in ``fused_kernel.py``.  ``LABELS`` holds what the cause must say: of each group of words
one, and the mark of the kernel's line.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

NAME, KIND = [*sys.argv[1:3], "", ""][:2]
FAULTY = KIND == "fault"
WIDE = 256

LABELS: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
    "looked": ((("index", "assert"),), ""),
    "unchecked": ((("out of bounds",), ("triton_",)), ""),
    "sized": ((("scale_rows",), ("out of bounds",)), "sized"),
    "promised": ((("add_shifted",), ("misaligned",)), "promised"),
    "shrunk": ((("out of bounds",), ("triton_",)), ""),
    "declared": ((("out of bounds",), ("triton_",)), ""),
}


class Table(nn.Module):
    """Rows of a table, mixed with what goes in."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, WIDE))

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The rows of the tokens, added."""
        x = torch.relu(x) * 2.0
        rows = self.table[tokens]  # here
        return torch.tanh(x + rows)


def looked() -> None:
    """A token lies behind the table, which the compiled kernel asserts."""
    model = torch.compile(Table(1000).cuda())
    x = torch.randn(64, WIDE, device="cuda")
    tokens = torch.arange(64, device="cuda")
    if FAULTY:
        tokens[9] = 1000
    with torch.no_grad():
        out = model(x, tokens)  # call
    print(float(out.sum()), flush=True)


@torch.compile
def smoothed(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Each number beside the one that ``where`` names."""
    near = x.flatten()[where] * 0.5  # here
    return (torch.sigmoid(near) + x.flatten()[: where.numel()]).clamp(min=0.0)


def unchecked() -> None:
    """Assertions of indices are turned off for speed, and an index lies far beyond."""
    import torch._inductor.config as settings

    settings.assert_indirect_indexing = False
    x = torch.randn(128, WIDE, device="cuda")
    where = torch.arange(4096, device="cuda")
    if FAULTY:
        where[77] = 1 << 33
    out = smoothed(x, where)  # call
    print(float(out.sum()), flush=True)


@torch.compile
def scaled(x: torch.Tensor, scales: torch.Tensor, width: int) -> torch.Tensor:
    """Rows by their scales, in a kernel of the program's own, between others."""
    from fused_kernel import scale_rows

    x = x + 1.0
    out = torch.empty_like(x)
    blocks = (x.numel() + 1023) // 1024
    torch.library.wrap_triton(scale_rows)[(blocks,)](x, scales, out, x.numel(), width, BLOCK=1024)  # here
    return torch.relu(out)


def sized() -> None:
    """A row is told to be of one number, so that there are more rows than scales."""
    x = torch.randn(4096, WIDE, device="cuda")
    scales = torch.rand(4096, device="cuda")
    out = scaled(x, scales, 1 if FAULTY else WIDE)  # call
    print(float(out.sum()), flush=True)


@torch.library.triton_op("fused_programs::shifted", mutates_args={})
def shifted(x: torch.Tensor, shift: int) -> torch.Tensor:
    """An operation of the program's own, as torch asks it to be written."""
    from fused_kernel import add_shifted

    out = torch.zeros_like(x)
    count = x.numel() - 64
    torch.library.wrap_triton(add_shifted)[(count // 1024 + 1,)](x, out, shift, count, BLOCK=1024)  # here
    return out


@torch.compile
def moved(x: torch.Tensor, shift: int) -> torch.Tensor:
    """The operation beside others."""
    return shifted(x * 2.0, shift).abs()


def promised() -> None:
    """A kernel promises the compiler that its pointer is aligned, and is given an odd shift."""
    x = torch.randn(1 << 20, device="cuda")
    out = moved(x, 3 if FAULTY else 32)  # call
    print(float(out[:-64].sum()), flush=True)


@torch.compile
def stepped(weight: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """A step of an optimizer."""
    kept = weight * 0.99  # here
    return kept - torch.sign(grad) * 0.01


def shrunk() -> None:
    """The storage below a view of a flat parameter was made smaller, as sharding does between steps."""
    flat = torch.randn(64 << 20, device="cuda")
    weight = flat[32 << 20 :].view(-1, 1024)
    grad = torch.ones_like(weight)
    print(float(stepped(weight, grad).sum()), flush=True)
    if FAULTY:
        flat.untyped_storage().resize_(4 << 20)
        torch.cuda.empty_cache()
    out = stepped(weight, grad)  # call
    print(float(out.sum()), flush=True)


@torch.library.custom_op("fused_programs::kept", mutates_args=())
def kept(x: torch.Tensor, rows: int) -> torch.Tensor:
    """The first rows."""
    return x[:rows].clone()


@kept.register_fake
def _(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty_like(x) if FAULTY else x.new_empty(rows, x.shape[1])


@torch.compile
def pruned(x: torch.Tensor, rows: int) -> torch.Tensor:
    """What is left of the rows, through an activation."""
    left = kept(x, rows)
    return torch.nn.functional.gelu(left) * 3.0  # here


def declared() -> None:
    """An operation declares the strides and rows of its input and gives fewer, and the asserts of sizes are off."""
    import torch._inductor.config as settings

    settings.size_asserts = False
    x = torch.randn(65536, 1024, device="cuda")
    out = pruned(x, 16)  # call
    print(float(out.sum()), flush=True)


if __name__ == "__main__":
    globals()[NAME]()
    print("done", flush=True)
