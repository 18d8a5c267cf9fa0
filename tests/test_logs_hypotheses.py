"""Hypotheses that a log gets for one line of it alone, each by the row of its sentence."""

from __future__ import annotations

import re
import string

import pytest

from envkit import facts
from envkit.logs.knowledge import wordings
from envkit.logs.verdict import weigh
from tests.logs import story

FACTS = facts.load()


def sentences(text: str) -> str:
    """A pattern of the sentence ``text``, any words in the place of each of its values."""
    return "".join(
        re.escape(before) + (".*" if value is not None else "")
        for before, value, _, _ in string.Formatter().parse(text)
    )


def rows_told(text: str) -> set[str]:
    said = [each.because for each in weigh(story(text), FACTS)]
    patterns = {id: re.compile(sentences(row.because)) for id, row in wordings().items()}
    return {id for id, pattern in patterns.items() if any(map(pattern.fullmatch, said))}


def import_error(library: str) -> str:
    return f"ImportError: {library}: cannot open shared object file: No such file or directory\n"


FORKED = 'File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 66, in _launch\n'
TRACE = 'Traceback (most recent call last):\n  File "/srv/job/train.py", line 4, in main\n    {code}\n'
NO_GPU = "RuntimeError: No CUDA GPUs are available\n"
SYMBOL = "ImportError: /e/my_ops/my_ops.so: undefined symbol: "
INVALID = "RuntimeError: CUDA error: invalid argument\n"


@pytest.mark.parametrize(
    ("row", "text", "near"),
    [
        (
            "cuda-lost-as-by-a-fork",
            "CUDA error: initialization error\n",
            TRACE.format(code="start()") + f"  {FORKED}    code()\nRuntimeError: CUDA error: initialization error\n",
        ),
        (
            "jetson-memory-refused",
            "NvRmMemInitNvmap failed with Permission denied\n" + NO_GPU,
            NO_GPU,
        ),
        (
            "platform-without-cuda",
            "File /Users/kim/train.py ran on macOS 14\n" + TRACE.format(code="x.cuda()") + NO_GPU,
            TRACE.format(code="x.cuda()") + NO_GPU,
        ),
        ("torch-without-cuda-library", import_error("libc10_cuda.so"), import_error("libc10.so")),
        ("torch-without-cuda-library", import_error("libtorch_cuda.so"), import_error("libtorch_cuda_cu.so")),
        ("library-of-older-torch", import_error("libtorch_cuda_cu.so"), import_error("libtorch_cuda.so")),
        ("torch-library-not-on-path", import_error("libc10.so"), import_error("libc10_cuda.so")),
        ("library-not-in-torch", import_error("libtorch_global_deps.so"), import_error("libtorch_cpu.so")),
        (
            "bitsandbytes-of-another-cuda",
            "Could not find the bitsandbytes CUDA binary at PosixPath('/e/libbitsandbytes_cuda130.so')\n",
            "RuntimeError: CUDA Setup failed despite GPU being available.\n",
        ),
        (
            "bitsandbytes-without-runtime",
            "RuntimeError: CUDA Setup failed despite GPU being available.\n",
            "Could not find the bitsandbytes CUDA binary at PosixPath('/e/libbitsandbytes_cuda130.so')\n",
        ),
        ("argument-wrong", TRACE.format(code="y = x.clone()") + INVALID, TRACE.format(code="x.pin_memory()") + INVALID),
        ("copy-refused", TRACE.format(code="y.copy_(x)") + INVALID, TRACE.format(code="x.pin_memory()") + INVALID),
        (
            "illegal-instruction-of-failing-gpu",
            "RuntimeError: CUDA error: an illegal instruction was encountered\n",
            "Illegal instruction (core dumped)\n",
        ),
        (
            "kernel-tuned-for-another-gpu",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, "
            "Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        ),
        (
            "backward-yields-nan",
            "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.\n",
            "Loss is nan, stopping training\n",
        ),
        (
            "bare-cuda-error",
            "torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed.\n",
            "torch.distributed.DistBackendError: ncclSystemError: System call or external library call failed.\n",
        ),
        (
            "container-started-without-gpus",
            "$ docker run --rm trainer python train.py\n" + NO_GPU,
            "$ docker run --rm --gpus all trainer python train.py\n" + NO_GPU,
        ),
        ("extension-of-another-torch", SYMBOL + "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\n", SYMBOL + "my_own\n"),
        (
            "package-of-another-torch",
            "RuntimeError: operator torchvision::nms does not exist\n",
            SYMBOL + "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs\n",
        ),
    ],
)
def test_a_row_is_told_and_not_beside_it(row: str, text: str, near: str) -> None:
    assert row in rows_told(text)
    assert row not in rows_told(near)


def test_one_missing_plugin_is_shown_beside_the_network_that_was_asked_for() -> None:
    lines = [f"node1:1:2 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net-{name}.so.\n" for name in ("a", "b")]
    asked = "node1:1:2 [0] NCCL WARN Error: network AWS Libfabric not found.\n"
    (found,) = (each for each in weigh(story("".join(lines) + asked), FACTS) if "AWS Libfabric" in each.because)
    assert [line.number for line in found.evidence] == [3, 1]
