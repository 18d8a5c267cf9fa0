"""An AOTInductor package: ``build`` makes one, ``load`` loads and runs it, ``cpu`` gives it tensors of the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import torch


class Layer(torch.nn.Module):
    """Enough for one fused kernel."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(given * 2.0) + 1.0


def main(what: str, path: str) -> None:
    given = torch.ones(64, 64)
    if what == "build":
        exported = torch.export.export(Layer().cuda(), (given.cuda(),))
        made = path + ".part.pt2"
        torch._inductor.aoti_compile_and_package(exported, package_path=made)
        Path(made).replace(path)
        return
    loaded = torch._inductor.aoti_load_package(path)
    out = loaded(given if what == "cpu" else given.cuda())
    torch.cuda.synchronize()
    print("sum", float(out.sum()), flush=True)


if __name__ == "__main__":
    import torch._inductor

    main(sys.argv[1], sys.argv[2])
