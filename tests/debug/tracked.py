"""An operator with torch's tracked assertions, ``kernels/tracked.cu``: ``tracked.py LIBRARY fault|clean``.

``LIBRARY.registry.so`` beside it, if there is one, holds torch's own ``c10/cuda/CUDADeviceAssertionHost.cpp`` compiled
with ``TORCH_USE_CUDA_DSA``, in the place of the same functions of a torch that was built without.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path


def main(library: str, kind: str) -> None:
    """Places what starts at given numbers; one of the numbers is behind the end."""
    registry = Path(f"{library}.registry.so")
    if registry.exists():  # before torch, whose library then takes its functions from there
        spec = importlib.util.find_spec("torch")
        assert spec and spec.origin
        ctypes.CDLL(str(Path(spec.origin).with_name("lib") / "libc10.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(registry), ctypes.RTLD_GLOBAL)
    import torch

    torch.ops.load_library(library)
    starts = torch.arange(1000, device="cuda")
    if kind == "fault":
        starts[999] = 1000
    order = torch.full((1000,), 1 << 40, device="cuda")
    out = torch.zeros(1000, device="cuda")
    torch.ops.tracked.placed(starts, order, out)  # here
    torch.cuda.synchronize()
    print("sum", float(out.sum()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
