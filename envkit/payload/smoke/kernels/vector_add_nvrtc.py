"""A kernel compiled by NVRTC, to machine code and to PTX, and launched through the driver, with no framework: exact.

It adds one by one and four by four, from bases that are aligned to 4 bytes only, and must leave what lies around.
"""

from __future__ import annotations

import ctypes
from typing import Any

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import CudaFault, Driver, number_of
from envkit.payload.smoke.driver_only.driver_ptx import added
from envkit.payload.smoke.nvrtc import Compiler, targets_for
from envkit.payload.smoke.sources import text_of

_PTX_TOO_NEW = 222  # CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cuda.h
_SIZE = (1 << 17) + 13
_GUARD = 64
_SOURCE = text_of("kernels/vector_add_nvrtc.cu")


def _wrong(driver: Driver, kernel: Any, operands: list[bytes], want: bytes, shift: int, injected_fault: str) -> int:
    """Bytes that differ after one launch from bases moved by ``shift`` elements, the guards included."""
    room = 4 * (_SIZE + 2 * _GUARD)
    start = 4 * (_GUARD + shift)
    with driver.room(room, room, room) as bases:
        for base in bases:
            driver.fill(base, raw.POISON, room)
        for place, values in enumerate(operands):
            driver.write(bases[place] + start, values)
        arguments = [*(ctypes.c_uint64(base + start) for base in bases), ctypes.c_uint(_SIZE)]
        blocks = (_SIZE + 255) // 256 - (injected_fault == "block")
        driver.launch(kernel, blocks, 256, arguments)
        driver.synchronize()
        got = driver.read(bases[2], room)
    return raw.differing(raw.disturbed(got, injected_fault), raw.framed(want, start, room))


def run(bench: Bench) -> None:
    """Measures ``cubin.wrong`` and ``ptx.wrong``, and by ``.offered`` whether either form can be used here.

    Machine code is not offered where this NVRTC does not know the GPU; PTX is not offered where it is newer than the
    driver can compile.  Injected faults: "ulp", and "block", which launches one block fewer.
    """
    index = number_of(bench.device)
    driver, compiler = Driver(), Compiler()
    driver.context(index)
    bench.detail = f"nvrtc {compiler.version()} from {compiler.path}"
    one, two = raw.fresh(4 * _SIZE, 1), raw.fresh(4 * _SIZE, 2)
    want = added(one, two)
    machine, virtual = targets_for(compiler.targets(), driver.capability(index))
    for form, target in (("cubin", machine), ("ptx", virtual)):
        if not target:
            bench.note(form + ".offered", 0)
            continue
        try:
            module = driver.module(compiler.compile(_SOURCE, "add.cu", target, form.upper()), f"{form} for {target}")
        except CudaFault as fault:
            if form != "ptx" or fault.cuda_code != _PTX_TOO_NEW:
                raise
            bench.note(form + ".offered", 0)
            continue
        bench.note(form + ".offered", 1)
        for name in ("add_one", "add_four"):
            kernel = driver.kernel(module, name)
            for shift in range(4):
                bench.count(form + ".wrong", _wrong(driver, kernel, [one, two], want, shift, bench.injected_fault))
