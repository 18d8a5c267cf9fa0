"""Run by a Python with torch: tests of the suite that only a GPU runs, on this processor.

Nothing is late here and time goes by events, but what is computed, compared, timed and waited for is the same.  As in
``torch_parts.py`` each function without an argument is a check.
"""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch_parts import BRAIN, main, raises

from envkit.payload import isolate
from envkit.payload.smoke import clocks
from envkit.payload.smoke.bench import Bench
from envkit.payload.smoke.gemm import gemm_cublas, gemm_large, gemm_repeat, gemm_split_k
from envkit.payload.smoke.libraries import indexing_large
from envkit.payload.smoke.runtime import large_launch, oom_recovery, pinned_copies, streams_events
from envkit.payload.smoke.several_gpus import p2p_copies
from envkit.payload.smoke.speed import (
    product,
    speed_copy,
    speed_gemm,
    speed_host_copies,
    speed_sustained,
    speed_triad,
    timing,
)

# Tests of speed, on a clock that ticks once for each event


class Event:
    """An event of CUDA; a millisecond passes from each that is recorded to the next."""

    now = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing, self.at = enable_timing, math.nan

    def record(self, stream: Any = None) -> None:
        Event.now += 1.0
        self.at = Event.now

    def elapsed_time(self, other: Event) -> float:
        assert self.timing and other.timing
        return other.at - self.at

    def synchronize(self) -> None:
        assert not math.isnan(self.at)
        Stream.waits += 1


class Stream:
    """A stream, on which nothing runs late here; ``waits`` counts what was waited for."""

    waits = 0

    def wait_event(self, event: Event) -> None:
        event.synchronize()

    def wait_stream(self, other: Stream) -> None:
        Stream.waits += 1

    def synchronize(self) -> None:
        Stream.waits += 1


def as_gpu(memory: int = 16 << 20) -> list[int]:
    """Has this processor stand for GPUs with so much memory; the cycles that kernels spin are put into the list."""
    spun: list[int] = []
    gpu = SimpleNamespace(total_memory=memory)
    main = Stream()
    answers: dict[str, Any] = {
        "set_device": lambda device: None, "current_device": lambda: 0, "get_device_properties": lambda device: gpu,
        "get_device_capability": lambda device=None: (8, 0), "synchronize": lambda device=None: None,
        "empty_cache": lambda: None, "Event": Event, "Stream": Stream, "_sleep": spun.append,
        "stream": lambda one: contextlib.nullcontext(), "device": lambda one: contextlib.nullcontext(),
        "current_stream": lambda: main, "can_device_access_peer": lambda one, other: (one, other) != (2, 0),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    return spun


def timed(module: Any, bench: Bench, memory: int = 16 << 20) -> dict[str, float]:
    """The measures of a test of speed on this processor, where ``memory`` is all that the GPU would have."""
    spun = as_gpu(memory)
    watch = SimpleNamespace(missing="", read=lambda: {"sm.mhz": 1400.0, "temperature.c": 50.0})
    module.clocks = SimpleNamespace(
        of=lambda device: watch, record=clocks.record, address=lambda device: "", Clocks=lambda pci: watch
    )
    module.run(bench)
    assert spun and all(cycles > 1_000_000 for cycles in spun)  # launches wait until all of them are enqueued
    assert bench.measures["sm.mhz"] == 1400.0 and bench.detail.startswith("SM 1400 MHz, 50 C"), bench.detail
    return bench.measures


def bandwidths_are_bytes_by_seconds_and_every_word_is_looked_at() -> None:
    words = (4 << 20) // 4  # a quarter of the memory, or an eighth where four buffers share it
    for module, name, moved in (
        (speed_copy, "copy", 2 * 4 * words),
        (speed_triad, "triad", 3 * 4 * words // 2),
    ):
        for fault, wrong in (("", 0), ("one", 1), ("block", 4096)):
            seen = timed(module, Bench("cpu", fault))
            assert math.isclose(seen[f"{name}.gbs"], moved / 1e-3 / 1e9), (name, seen)
            assert seen[f"{name}.wrong"] == wrong, (name, fault, seen)


def copies_between_host_and_gpu_are_timed_one_by_one_and_together() -> None:
    pinned: list[bool] = []
    empty = torch.empty

    def without_pins(*size: int, pin_memory: bool = False, **more: Any) -> Any:
        pinned.append(pin_memory)
        return empty(*size, **more)

    torch.empty = without_pins
    speed_host_copies._near = lambda pci: frozenset()
    moved = 4 * ((2 << 20) // 4)
    for fault, wrong in (("", 0), ("one", 1)):
        seen = timed(speed_host_copies, Bench("cpu", fault))
        assert math.isclose(seen["h2d.gbs"], moved / 1e-3 / 1e9) and seen["h2d.gbs"] == seen["d2h.gbs"], seen
        assert math.isclose(seen["both.gbs"], 2 * 8 * moved / 2e-3 / 1e9), seen  # until the later one is done
        assert [seen[f"{name}.wrong"] for name in ("h2d", "d2h", "both")] == [wrong, wrong, 0], seen
    assert pinned == [True, True, False, False] * 2


def products_are_timed_of_the_types_that_a_level_asks_for() -> None:
    product._SMALLEST, product.LARGEST = 32, 64
    quick = timed(speed_gemm, Bench("cpu"))
    assert {name for name, value in quick.items() if name.endswith(".timed") and value} == {"bf16.timed", "types.timed"}
    assert (quick["bf16.size"], quick["bf16.wrong"], quick["types.timed"]) == (64, 0, 1), quick
    assert math.isclose(quick["bf16.tflops"], 2.0 * 64**3 / 1e-3 / 1e12)
    bench = Bench("cpu", level="full")
    full = timed(speed_gemm, bench)
    kinds = [kind.name for kind in product.KINDS]
    assert [name for name in kinds if full[f"{name}.timed"]] == ["bf16", "fp16", "tf32", "fp32", "fp64", "int8"], full
    assert full["types.timed"] == 6 and all(full[f"{name}.wrong"] == 0 for name in kinds if name != "fp8"), full
    assert bench.detail.endswith("; a GPU of compute capability 8.0 has no fp8"), bench.detail
    faulty = timed(speed_gemm, Bench("cpu", "one", level="full"))
    assert all(faulty[f"{name}.wrong"] > 0 for name in kinds if name != "fp8"), faulty


def a_size_is_found_of_which_one_product_takes_a_tenth_of_a_second() -> None:
    product._SMALLEST = 32
    for most, size in ((64, 64), (8192, 128)):  # 1, 8 and 64 ms; the next would take 512
        product.LARGEST = most
        bench = Bench("cpu")
        torch.cuda.Event, torch.cuda._sleep, torch.cuda.synchronize = Event, lambda cycles: None, lambda: None
        assert product.fit(product.KINDS[4], torch.mm, bench) == size
    left, right = product.randoms(product.KINDS[0], 16, Bench("cpu"))
    assert left.dtype == right.dtype == BRAIN and not torch.equal(left, right)
    left, right = product.randoms(product.KINDS[6], 64, Bench("cpu"))
    assert left.dtype == torch.int8 and right.stride() == (1, 64) and left.stride() == (64, 1)
    assert int(left.min()) < -120 and int(left.max()) > 120


def what_is_left_of_the_speed_after_a_while_is_told_of_every_step() -> None:
    product._SMALLEST, product.LARGEST, speed_sustained._SECONDS, speed_sustained._STEP_S = 32, 64, 0.05, 0.003
    seen = timed(speed_sustained, Bench("cpu"))
    step = 2.0 * 64**3 * 3 / 1e12 / 1e-3  # three products a step
    assert math.isclose(seen["mean.tflops"], step) and math.isclose(seen["least.tflops"], step), seen
    assert (seen["bits.wrong"], seen["bf16.wrong"], seen["sm-least.mhz"]) == (0, 0, 1400.0) and seen["readings"] >= 1
    faulty = timed(speed_sustained, Bench("cpu", "one"))
    assert faulty["bits.wrong"] == 1 and faulty["bf16.wrong"] > 0, faulty


def patterns_have_no_word_twice_and_a_wrong_one_is_counted() -> None:
    one, other = timing.words(0, 1 << 16, 1, "cpu"), timing.words(0, 1 << 16, 2, "cpu")
    assert one.unique().numel() == 1 << 16 and not bool((one == other).any()) and one.dtype == torch.int32
    timing._CHUNK = 100
    target = torch.zeros(250, dtype=torch.int32)
    timing.write(target, 1)
    assert torch.equal(target, timing.words(0, 250, 1, "cpu")) and timing.wrong(target, 1) == 0
    target[[5, 199, 249]] -= 5
    assert timing.wrong(target, 1) == 3 and timing.wrong(target, 2) == 250
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(total_memory=64 << 20)
    assert [timing.fitting(each, 4) for each in (4 << 20, 1 << 30, (5 << 20) - 1)] == [4 << 20, 8 << 20, 4 << 20]
    first = [SimpleNamespace(at=at, elapsed_time=lambda other, at=at: other.at - at) for at in (1.0, 3.0, 8.0)]
    assert timing.between(first) == [2e-3, 5e-3]


# Tests that only a GPU runs, on this processor: nothing is late here, but what they compare and wait for is the same


class OnHost(TorchFunctionMode):
    """Makes on this processor what is asked for on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def on_host(module: Any, fault: str = "", gpus: int = 1, **small: Any) -> tuple[Bench, int]:
    """The bench of a test after it ran, and how often it waited; ``small`` are sizes in the place of the module's."""
    as_gpu()
    for name, value in small.items():
        assert hasattr(module, name), name
        setattr(module, name, value)
    pinned: set[int] = set()

    def pin(tensor: Any) -> Any:
        made = tensor.clone()
        pinned.add(made.data_ptr())
        return made

    torch.Tensor.pin_memory = pin  # type: ignore[method-assign]
    torch.Tensor.is_pinned = lambda tensor: tensor.data_ptr() in pinned  # type: ignore[method-assign]
    bench, Stream.waits = Bench("cpu", fault, gpus=gpus), 0
    with OnHost():
        module.run(bench)
    return bench, Stream.waits


def wrong_of(bench: Bench) -> dict[str, float]:
    """The counts of what is wrong."""
    return {name: value for name, value in bench.measures.items() if name.endswith((".wrong", "differing"))}


def a_sound_gpu_passes_and_each_comparison_sees_one_wrong_element() -> None:
    for module, counts, small in (
        (streams_events, ("order", "copies"), {"_ROUNDS": 5, "_SIZE": 2048}),
        (pinned_copies, ("device", "host"), {"_SIZES": (1, 255, 4097)}),
        (large_launch, ("counters", "handed"), {"_LAUNCHES": 400, "_HANDOVER": 100}),
        (gemm_large, ("bf16", "fp16", "tf32"), {"_SIZE": 256}),
        (gemm_cublas, ("bf16", "fp16", "handed"), {"_WIDTH": 128, "_LINKS": 6}),
        (p2p_copies, ("bytes", "strided", "order"), {"_BYTES": 1 << 16, "_STRIDED": 1027}),
    ):
        sound, _ = on_host(module, gpus=3, **small)
        found = wrong_of(sound)
        assert set(found) >= {f"{name}.wrong" for name in counts} and not any(found.values()), (module, found)
        faulty = wrong_of(on_host(module, "one", gpus=3, **small)[0])
        assert all(faulty[f"{name}.wrong"] >= 1 for name in counts), (module, faulty)


def the_order_that_a_test_is_about_is_a_wait_that_its_fault_drops() -> None:
    for module, dropped, small in (
        (streams_events, 5, {"_ROUNDS": 5, "_SIZE": 2048}),
        (pinned_copies, 9, {"_SIZES": (1, 255, 4097)}),
        (large_launch, 4, {"_LAUNCHES": 400, "_HANDOVER": 100}),
        (gemm_cublas, 2, {"_WIDTH": 128, "_LINKS": 6}),
        (p2p_copies, 6, {"_BYTES": 1 << 16, "_STRIDED": 1027}),
    ):
        waits, fewer = (on_host(module, fault, gpus=3, **small)[1] for fault in ("", "order"))
        assert waits - fewer == dropped, (module, waits, fewer)


def pairs_of_gpus_are_told_with_the_slowest_and_those_without_peer_access() -> None:
    bench, _ = on_host(p2p_copies, gpus=3, _BYTES=1 << 16, _STRIDED=1027)
    assert (bench.measures["pairs"], bench.measures["peer.access"]) == (6, 5)
    assert math.isclose(bench.measures["slowest.gbs"], (1 << 16) / 1.0 / 1e6)
    assert bench.detail.endswith("; no peer access: cuda:2 to cuda:0") and "0.1 GB/s" in bench.detail, bench.detail
    with raises(isolate.NotApplicable, "fewer than two"):
        on_host(p2p_copies, gpus=1)
    assert torch.equal(p2p_copies.pattern(2, 3, "cpu") - p2p_copies.pattern(1, 3, "cpu"), torch.full((3,), 1_000_003))


def a_result_that_differs_once_in_many_is_counted() -> None:
    small = {"_SIZE": 96, "_TIMES": 10, "_ROWS": 8}
    sound, _ = on_host(gemm_repeat, **small)
    assert (sound.measures["differing"], sound.measures["nonfinite"]) == (0, 0)
    assert 0 < sound.measures["first.worst"] < 0.02, sound.measures
    assert on_host(gemm_repeat, "ulp", **small)[0].measures["differing"] == 1


def sums_that_cancel_are_exact_whatever_the_switch() -> None:
    sound, _ = on_host(gemm_split_k, _SIZE=16, _DEPTH=1 << 10)
    assert all(sound.measures[f"{name}.cancelling.wrong"] == 0 for name in ("fp16", "bf16")), sound.measures
    assert all(sound.measures[f"{name}.{how}.frobenius"] < 0.01 for name in ("fp16", "bf16")
               for how in ("plain", "reduced")), sound.measures  # fmt: skip
    assert torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction is False
    faulty, _ = on_host(gemm_split_k, "one", _SIZE=16, _DEPTH=1 << 10)
    assert all(faulty.measures[f"{name}.cancelling.wrong"] == 1 for name in ("fp16", "bf16")), faulty.measures


def large_tables_are_summed_read_copied_and_written() -> None:
    for fault in ("", "one"):
        bench = Bench("cpu", fault)
        as_gpu()
        indexing_large._EDGE = 1 << 10
        indexing_large.measure(bench, 131, 67)
        found = wrong_of(bench)
        assert set(found) == {f"{name}.wrong" for name in ("fill", "sum", "read", "copy", "write")}, found
        assert all(value >= 1 for value in found.values()) if fault else not any(found.values()), (fault, found)
    chosen = indexing_large.places(131 * 67, torch.Generator().manual_seed(1))
    assert {0, 1021, 1024, 1027, 131 * 67 - 4, 131 * 67 - 1} <= set(chosen.tolist()) and int(chosen.max()) < 131 * 67
    assert chosen.numel() == chosen.unique().numel()


class Allocator:
    """Memory of a GPU, of which a process may have a part."""

    def __init__(self, total: int) -> None:
        self.total = self.cap = total
        self.given: list[tuple[Any, int]] = []
        self.empty = torch.empty

    def used(self) -> int:
        self.given = [each for each in self.given if not each[0].expired()]
        return sum(size for _, size in self.given)

    def fraction(self, part: float, device: str) -> None:
        self.cap = int(part * self.total)

    def take(self, *size: Any, **more: Any) -> Any:
        if more.get("dtype") != torch.uint8:
            return self.empty(*size, **more)
        if self.used() + size[0] > self.cap:
            unit, name = (1 << 30, "GiB") if size[0] >= 1 << 30 else (1 << 20, "MiB")
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size[0] / unit:.2f} {name}. GPU 0")
        made = self.empty(*size, **more)
        self.given.append((StorageWeakRef(made.untyped_storage()), size[0]))
        return made


def memory_that_runs_out_is_refused_by_its_size_and_whole_again_afterwards() -> None:
    for fault, refused in (("", 0), ("fault", 2)):
        as_gpu(3 << 30)
        memory = Allocator(3 << 30)
        torch.empty = memory.take
        torch.cuda.memory_allocated = memory.used
        torch.cuda.set_per_process_memory_fraction = memory.fraction
        oom_recovery._CAP, oom_recovery._CHUNK = 8 << 20, 2 << 20
        bench = Bench("cpu", fault)
        oom_recovery.run(bench)
        torch.empty = memory.empty
        found = wrong_of(bench)
        assert found == {"refusal.wrong": refused, "kept.wrong": 0, "left.wrong": 0, "product.wrong": 0}, found
        assert bench.measures["held"] == (5 if fault else 4) and memory.cap == memory.total


if __name__ == "__main__":
    main(globals())
