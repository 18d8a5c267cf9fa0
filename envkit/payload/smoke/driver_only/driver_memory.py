"""Nine tenths of the free memory filled and read back: its own addresses, a walking bit, random numbers, complements.

Each pass fills all of it before it reads any, so that what is read comes from no cache.  The device compares.
"""

from __future__ import annotations

import ctypes
import string
import time

from envkit.payload.smoke import raw
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.driver import INTEGRATED, MULTIPROCESSORS, CudaFault, Driver, number_of
from envkit.payload.smoke.driver_only.ptx import HEAD
from envkit.payload.smoke.sources import text_of

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY, cuda.h
_SHARE, _SHARE_OF_HOST = 0.9, 0.25  # of the free bytes; less where they are the host's as well
_PIECE, _LEAST_PIECE = 4 << 30, 64 << 20  # bytes of one allocation
_FAR = 2654435761  # tells apart words whose addresses differ by a multiple of 16 GiB
_THREADS, _BLOCKS_EACH = 256, 16
_NOWHERE = (1 << 64) - 1
_KERNEL = string.Template(text_of("driver_only/memory.ptx"))

# The value of word %x, which is number %lo of its 16 GiB, with %s and %f as the pass says
_PATTERNS = {
    "address": ["mov.u32 %v, %x;"],
    "bit": ["add.u32 %v, %lo, %s;", "and.b32 %v, %v, 31;", "shl.b32 %v, 1, %v;"],
    "random": [
        "xor.b32 %v, %x, %s;", "shr.u32 %t, %v, 16;", "xor.b32 %v, %v, %t;", "mul.lo.u32 %v, %v, 2146121005;",
        "shr.u32 %t, %v, 15;", "xor.b32 %v, %v, %t;", "mul.lo.u32 %v, %v, 2221713035;",
        "shr.u32 %t, %v, 16;", "xor.b32 %v, %v, %t;",
    ],
}  # fmt: skip


def _words(kind: str, act: str) -> str:
    """The values of the four words of one thread's turn, and what is done with each (# its number, @@ its byte)."""
    lines = []
    for place in range(4):
        lines += [f"add.u32 %lo, %q, {place};", "xor.b32 %x, %lo, %h;", *_PATTERNS[kind]]
        lines += ["xor.b32 %v, %v, %f;", *act.replace("#", str(place)).replace("@@", str(4 * place)).split("\n")]
    return "\n    ".join(lines)


def _kernel(kind: str, reads: bool) -> str:
    if reads:
        turn = "ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%a];\n    " + _words(
            kind,
            "xor.b32 %w#, %w#, %v;\nsetp.ne.u32 %p, %w#, 0;\nadd.u64 %o, %a, @@;\n@%p red.global.add.u64 [%e], 1;\n"
            "@%p red.global.min.u64 [%e + 8], %o;\n@%p red.global.or.b32 [%e + 16], %w#;",
        )
    else:
        turn = _words(kind, "mov.u32 %w#, %v;") + "\n    st.global.v4.u32 [%a], {%w0, %w1, %w2, %w3};"
    entry = f"{'read' if reads else 'fill'}_{kind}"
    return "\n" + _KERNEL.substitute(entry=entry, far=_FAR, turn=turn)


def text() -> bytes:
    """The PTX text of all kernels: fill_KIND and read_KIND (address, quads of words, seed, flip, where faults go)."""
    return (HEAD + "".join(_kernel(kind, reads) for kind in _PATTERNS for reads in (False, True))).encode()


def passes() -> list[tuple[str, int, int]]:
    """The kind, the seed and the flip of every pass."""
    both = (0, raw.WORD)
    bits = [("bit", shift, 0) for shift in range(32)]
    return [*(("address", 0, flip) for flip in both), *bits, *(("random", 1618033, flip) for flip in both)]


def _take(driver: Driver, wanted: int) -> list[tuple[int, int]]:
    """Address and bytes of pieces that are ``wanted`` bytes together, or as near to it as the driver gives."""
    pieces: list[tuple[int, int]] = []
    size = _PIECE
    while wanted >= _LEAST_PIECE and size >= _LEAST_PIECE:
        try:
            pieces.append((driver.take(min(size, wanted)), min(size, wanted)))
            wanted -= pieces[-1][1]
        except CudaFault as fault:
            if fault.cuda_code != _OUT_OF_MEMORY:
                raise
            size //= 2
    return pieces


class _Sweep:
    """The kernels, the pieces of memory, and where the faults of one pass are told."""

    def __init__(self, driver: Driver, index: int, pieces: list[tuple[int, int]]) -> None:
        self.driver = driver
        self.module = driver.module(text(), "PTX text")
        self.pieces = pieces
        self.blocks = driver.attribute(index, MULTIPROCESSORS) * _BLOCKS_EACH
        self.told = driver.take(24)

    def go(self, name: str, seed: int, flip: int) -> None:
        """Launches one kernel over every piece."""
        kernel = self.driver.kernel(self.module, name)
        for address, size in self.pieces:
            words = [ctypes.c_uint64(address), ctypes.c_uint64(size // 16), ctypes.c_uint(seed), ctypes.c_uint(flip)]
            self.driver.launch(kernel, self.blocks, _THREADS, [*words, ctypes.c_uint64(self.told)])

    def change_one(self) -> None:
        """Changes the lowest bit of one word in the middle of the last piece, by the driver's own kernel."""
        address, size = self.pieces[-1]
        place = ctypes.c_uint64(address + size // 32 * 16)
        self.driver.synchronize()
        value = int.from_bytes(self.driver.read(place.value, 4), "little") ^ 1
        self.driver.call("cuMemsetD32_v2", place, ctypes.c_uint(value), ctypes.c_size_t(1))

    def forget(self) -> None:
        """Clears what the last pass told."""
        clean = bytes(8) + _NOWHERE.to_bytes(8, "little") + bytes(8)
        self.driver.write(self.told, clean)

    def found(self) -> tuple[int, int, int]:
        """Of the pass: how many words are wrong, the address of the first, the bits that differ in any."""
        said = self.driver.read(self.told, 24)
        count, first, bits = (int.from_bytes(said[place : place + 8], "little") for place in (0, 8, 16))
        return count, first, bits


def run(bench: Bench) -> None:
    """Measures ``address.wrong``, ``bit.wrong`` and ``random.wrong`` in words, ``covered.share`` (of the free bytes)
    and, as figures, ``tested.gb`` and ``sweep.gbs``, what was written and read a second.

    ``covered.offered`` is 0 where the memory is the host's as well, of which a quarter is taken.  Injected fault:
    "one".
    """
    driver, index = Driver(), number_of(bench.device)
    driver.context(index)
    shared = bool(driver.attribute(index, INTEGRATED))
    free, _ = driver.memory()
    pieces = _take(driver, int(free * (_SHARE_OF_HOST if shared else _SHARE)) >> 20 << 20)
    total = sum(size for _, size in pieces)
    bench.note("covered.offered", 0 if shared else 1)
    bench.note("covered.share", total / free)
    bench.note("tested.gb", total / 1e9)
    if not pieces:
        raise RuntimeError(f"of {free} free bytes the driver gave not {_LEAST_PIECE} to one allocation")
    sweep = _Sweep(driver, index, pieces)
    took = 0.0
    for kind, seed, flip in passes():
        sweep.forget()
        started = time.monotonic()
        sweep.go("fill_" + kind, seed, flip)
        if bench.injected_fault == "one" and kind == "random":
            sweep.change_one()
        sweep.go("read_" + kind, seed, flip)
        driver.synchronize()
        took += time.monotonic() - started
        count, first, bits = sweep.found()
        bench.count(kind + ".wrong", count)
        if count and not bench.detail:
            bench.detail = f"{count} words wrong in pattern {kind}, the first at {first:#x}, in the bits {bits:#010x}"
    bench.note("sweep.gbs", 2 * total * len(passes()) / took / 1e9)
    for address, _ in pieces:
        driver.release(address)
