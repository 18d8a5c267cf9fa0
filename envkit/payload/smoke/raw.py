"""Bytes for tests without a framework: fresh ones, their injected faults, and how many differ."""

from __future__ import annotations

import array
import random

from envkit.payload.smoke.bench import SEED, Bench

POISON = 0xA5  # what lies in memory that a test has not written
WORD = 0xFFFFFFFF


def fresh(size: int, seed: int = 0) -> bytes:
    """Random bytes, the same in every run; ``seed`` tells apart what one test needs several of."""
    return random.Random(SEED + seed).getrandbits(8 * size).to_bytes(size, "little")


def words(data: bytes) -> array.array[int]:
    """The bytes as unsigned 32-bit numbers."""
    numbers = array.array("I")
    numbers.frombytes(data)
    return numbers


def framed(data: bytes, before: int, length: int, poison: int = POISON) -> bytes:
    """``length`` bytes of poison with the data in them, ``before`` bytes behind their start."""
    return bytes([poison]) * before + data + bytes([poison]) * (length - before - len(data))


def disturbed(data: bytes, injected_fault: str) -> bytes:
    """The bytes as they are, or as a injected fault leaves them: "ulp" flips the lowest bit of one byte, "one" adds
    1."""
    if injected_fault not in ("ulp", "one") or not data:
        return data
    place, changed = len(data) // 2, bytearray(data)
    changed[place] = changed[place] ^ 1 if injected_fault == "ulp" else (changed[place] + 1) & 0xFF
    return bytes(changed)


def differing(got: bytes, want: bytes) -> int:
    """How many bytes differ; bytes that only one side has differ as well."""
    if got == want:
        return 0
    size = min(len(got), len(want))
    bits = int.from_bytes(got[:size], "little") ^ int.from_bytes(want[:size], "little")
    return size - bits.to_bytes(size, "little").count(b"\0") + abs(len(got) - len(want))


def compare(bench: Bench, name: str, got: bytes, want: bytes) -> None:
    """Counts under ``name`` the bytes that differ, after the run's injected fault."""
    bench.count(name, differing(disturbed(got, bench.injected_fault), want))
