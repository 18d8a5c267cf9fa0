"""Export the model with AOTInductor: ``python export.py model.pt2``, for the GPU if there is one."""

from __future__ import annotations

import sys

import torch
import torch._inductor
from model import INPUT, KEY, WIDTH, Layer


def main(path: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model, example = Layer().eval().to(device), torch.randn(8, WIDTH, device=device)
    batch = torch.export.Dim("batch", min=1, max=1024)
    exported = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    stated = {KEY: INPUT.format(device=device)}
    torch._inductor.aoti_compile_and_package(
        exported, package_path=path, inductor_configs={"aot_inductor.metadata": stated}
    )
    print(f"{path}: {KEY} is {stated[KEY]}")


if __name__ == "__main__":
    main(sys.argv[1])
