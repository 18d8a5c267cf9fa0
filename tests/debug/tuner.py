"""A tuner: a forked child for each candidate; one dies of a misaligned address, and the tuner goes on."""

from __future__ import annotations

import multiprocessing
import os
import sys


def candidate(offset: int) -> None:
    """What a child does; it ends as a C++ runtime ends a process that does not catch an error of CUDA."""
    import torch
    from launching import Kernel

    kernel = Kernel("misaligned.cu", "add_quads")
    whole = torch.ones(4097, device="cuda")
    out = torch.zeros(1024, device="cuda")
    kernel.launch(8, 128, whole[offset:], out, 1023)  # launched here
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        sys.stderr.write(f"terminate called after throwing an instance of 'c10::Error'\n  what():  {error}\n")
        sys.stderr.flush()
        os.abort()


def main(fault: bool) -> None:
    fork = multiprocessing.get_context("fork")
    for offset in (0, 1 if fault else 4):
        child = fork.Process(target=candidate, args=(offset,))
        child.start()
        child.join()
        print(f"candidate {offset}: {child.exitcode}", flush=True)


main(sys.argv[1] == "fault")
