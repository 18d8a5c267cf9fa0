"""Run the package: ``python run.py model.pt2``; its input is checked first.

``--unchecked`` leaves the check out, and ``--device cpu`` makes the input on the CPU: with a package for CUDA, both
together are the mistake of this example.
"""

from __future__ import annotations

import argparse

import torch
import torch._inductor
from model import KEY, WIDTH, misfit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--unchecked", action="store_true")
    options = parser.parse_args()

    package = torch._inductor.aoti_load_package(options.package)
    given = torch.ones(options.rows, WIDTH, device=options.device)
    if not options.unchecked and (why := misfit(package.loader.get_metadata()[KEY], given)):
        raise SystemExit(f"run.py: the input does not fit {options.package}: {why}")
    out = package(given)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"{out.shape[0]} rows on {out.device.type}, the first {[round(each, 4) for each in out[0].tolist()]}")


if __name__ == "__main__":
    main()
