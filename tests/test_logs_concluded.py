"""What closes a log decides: long work and its closing line behind an error, or the exception that stands last."""

from __future__ import annotations

import pytest
from logs import reading, told

OPEN, OTHER, BROKEN = "insufficient-evidence", "not-gpu-env", "gpu-hardware-unknown-error"
LAUNCH = "CUDA_ERROR_LAUNCH_FAILED"
LOADER = "libcudnn_ops.so.9: cannot open shared object file: No such file or directory"


def frames(first: int, count: int) -> str:
    """What a decoder prints of each frame."""
    return "".join(f"frame {n} decoded by port {n % 3} in {20 + n % 7} ms\n" for n in range(first, first + count))


def port(after: int, end: str) -> str:
    """A decoder one of whose ports dies of a fault that stays with its process."""
    return f"{frames(0, 20)}port 1 died: cuvidDecodePicture: {LAUNCH}\n{frames(20, after)}{end}\n"


def backend(after: int, end: str) -> str:
    """A program that says at its start that it can use no cuDNN."""
    return f"Could not load library libcudnn_ops.so.9. Error: {LOADER}\n{frames(0, after)}{end}"


def pool(again: str, count: int) -> str:
    """A worker in C++ that dies, and what the manager of its pool says."""
    died = "terminate called after throwing an instance of 'std::runtime_error'\n"
    died += "  what():  strain.cu:118: cudaErrorLaunchFailure: unspecified launch failure\n"
    return f"{died}{again}\n{frames(0, count)}plate.vtu: {count} load cases\n"


def panicked(value: str) -> str:
    """A thread of Rust that unwraps an error, and what is said behind it."""
    panic = "\nthread 'decoder-0' (2226) panicked at train.rs:25:36:\ncalled `Result::unwrap()` on an `Err` value: "
    return f"{frames(0, 30)}{panic}{value}\nnote: run with `RUST_BACKTRACE=1`\n ERROR http: channel closed, 4 cut\n"


def legs(second: int) -> str:
    """A job whose first leg its scheduler ended, and of the second so many lines."""
    ended = "slurmstepd-g1: error: *** STEP 1.1 ON g1 CANCELLED AT 2026-11-30T13:13:11 ***\nsrun: error: g1: Killed\n"
    return f"leg 1\n{frames(0, 20)}{ended}leg 1 was cut at 20\n{frames(20, second)}"


def checked(failed: int) -> str:
    """What a configure script says of a feature that is not there, and of the checks after it."""
    text = (
        "checking for cuda_runtime.h... no\n| conftest.c:1:10: fatal error: cuda_runtime.h: No such file or directory\n"
    )
    text += "".join(f"creating src/part_{n}/Makefile\n" for n in range(9))
    return f"{text}# TOTAL: 20\n# PASS:  {20 - failed}\n# FAIL:  {failed}\n# ERROR: 0\n"


def ledger(end: str) -> str:
    """Records of how jobs ended, and what stands behind them."""
    rows = (f"2026-11-30T05:00:{n:02d}.050Z  INFO 1 --- [main] o.p.Reader : job {n} previous exit " for n in range(40))
    return "".join(f"{row}{LAUNCH if n % 9 == 4 else 'ok'}\n" for n, row in enumerate(rows)) + end


def scenes(end: str) -> str:
    """A renderer that misses its plugin at each scene."""
    text = "  plugin splat: ./libsplat.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb\n"
    return "".join(f"scene {n} begin\n  octree level 0: {n} nodes\n{text}" for n in range(9)) + end


def service(level: str, end: str) -> str:
    """A worker service of .NET that tells an exception of ONNX Runtime at a level."""
    said = "Microsoft.ML.OnnxRuntime.OnnxRuntimeException: [ErrorCode:RuntimeException] Non-zero status code returned"
    said += " while running Conv node. Status Message: bfc_arena.cc:376 AllocateRawInternal Failed to allocate memory"
    start = "info: Microsoft.Hosting.Lifetime[0]\n      Application started.\n"
    return (
        f"{start}{frames(0, 20)}{level}: Upscaler.Worker[9]\n      {said} for requested buffer of size 268435456\n{end}"
    )


STOPS = """\
crit: Microsoft.Extensions.Hosting.Internal.Host[10]
      A BackgroundService has thrown an unhandled exception, and the IHost instance is stopping.
info: Microsoft.Hosting.Lifetime[0]
      Application is shutting down...
"""
THROWN = 'Exception in thread "main" java.lang.NullPointerException: Cannot invoke "String.trim()"\n\tat Main.main()\n'
NIL = "panic: assignment to entry in nil map\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:77 +0x3d2\n"
TESTS = f"""\
{frames(0, 20)}selftest: scan    FAILED: no kernel image is available for execution on the device
selftest: gather  FAILED: no kernel image is available for execution on the device
"""
JULIA = f"""\
{frames(0, 20)}ERROR: LoadError: Out of GPU memory trying to allocate 11.250 GiB
Effective GPU memory usage: 97.31% (43.174 GiB/44.368 GiB)
Memory pool usage: 38.902 GiB (41.500 GiB reserved)
Stacktrace:
  [1] main(args::Any)
    @ Flow ~/flow/src/adapt.jl:156
in expression starting at /srv/flow/run.jl:31
"""
MATLAB = "Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'.\n"
NO_NVML = "gpud: NVML unavailable (ERROR_LIBRARY_NOT_FOUND), gpu metrics are off\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (port(30, "stream written to film.mkv, 50 frames"), OPEN),
        (port(3, "port 1 is not there any more"), BROKEN),
        (backend(30, "film.srt: 30 cues\n"), OPEN),
        (backend(0, ""), "missing-shared-library"),
        (pool("nanny: Restarting worker 3", 30), OPEN),
        (pool("nanny: worker 3 is no more", 30), BROKEN),
        (panicked('Cuda(DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"))'), "out-of-memory"),
        (panicked('Parse(ParseError("a line without a colon"))'), OTHER),
        (legs(30) + "field.vtk: 50 steps\n", OPEN),
        (legs(2), OTHER),
        (checked(0), OPEN),
        (checked(1), "nvcc-torch-cuda-mismatch"),
        (ledger(THROWN), OTHER),
        (ledger("job 40 ends this program: " + LAUNCH + "\n"), BROKEN),
        (scenes("render: 9 of 9 scenes without picture\n"), "undefined-symbol-abi-mismatch"),
        (scenes("render: no plugin, points instead\nrender: 9 of 9 scenes drawn\n"), OPEN),
        (service("fail", STOPS), "out-of-memory"),
        (service("warn", frames(20, 30) + "film.mkv: 50 frames\n"), OPEN),
        (NO_NVML + frames(0, 30) + NIL, OTHER),
        (NO_NVML + NIL, "cuda-init-no-device"),
        (TESTS + "selftest: 0 of 2 passed\n", "no-kernel-image"),
        (TESTS + "selftest: once more, for this card\nselftest: 2 of 2 passed\n", OPEN),
        (JULIA, "out-of-memory"),
        (frames(0, 20) + MATLAB + "Error in recon (line 58)\n    k = fft2(stack);\n", "out-of-memory"),
    ],
)
def test_what_stands_behind_an_error_decides(text: str, kind: str) -> None:
    assert told(text).category == kind


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("/usr/lib/net/protocol.rb:603:in `open': Connection refused - connect(2) (Errno::ECONNREFUSED)", "infra"),
        ('Can\'t locate object method "close_all" via package "Sam::Writer" at /opt/map.pl line 412.', "program-bug"),
        ('Fatal error: exception Failure("int_of_string")\nCalled from Gen.save in file "gen.ml"', "program-bug"),
        ('time=2026-11-30T01:35:10Z level=fatal msg="routes.yaml: line 14: no key"', "launch-config"),
    ],
)  # fmt: skip
def test_other_languages_die_in_their_own_words(last: str, cause: str) -> None:
    answer = told(frames(0, 20) + last + "\n")
    assert (answer.category, answer.cause) == (OTHER, cause)
    assert told(frames(0, 20) + last + "\n" + frames(20, 30) + "film.mkv: 50 frames\n").category == OPEN


def test_seventy_two_pages_of_eight_volumes_are_no_part_of_them() -> None:
    assert told(backend(30, "pages.json: 72 pages of 8 volumes\n")).category == OPEN
    assert told(backend(30, "pages.json: 7 pages of 8 volumes\n")).category == "missing-shared-library"


def test_the_level_of_a_logger_that_is_not_initialized_is_read() -> None:
    text = "E0000 00:00:1764471019.771204   81290 cuda_dnn.cc:522] Loaded runtime\n"
    (line,) = reading(text).files[0].head
    assert (line.level, line.pid, line.text) == ("error", 81290, "Loaded runtime")


def test_the_version_that_a_program_says_of_its_driver_tells_too_old_from_none() -> None:
    words = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version\n"
    assert told("tiles: driver API 11.4, wheel cupy-cuda12x\n" + words).category == "driver-too-old"
    assert told("tiles: wheel cupy-cuda12x\n" + words).category != "driver-too-old"
