"""Logs of one shape each, of any size, that `envkit explain` has to get through: what changes in a line differs.

Each ends with the same error, which the answer must find.  Names and numbers follow from a seed.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path

from envkit.logs import knowledge

END = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
"""The last line of each."""

_XIDS = (31, 43, 45, 48, 63, 74, 79, 94, 119, 154)


def _vocabulary(chance: random.Random) -> list[str]:
    return ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 11))) for _ in range(20_000)]


def _hex(chance: random.Random, digits: int) -> str:
    return f"{chance.getrandbits(4 * digits):0{digits}x}"


def _uuid(chance: random.Random) -> str:
    return "-".join(_hex(chance, digits) for digits in (8, 4, 4, 4, 12))


def _words(chance: random.Random, form: str, count: int) -> Iterator[str]:
    known = _vocabulary(chance)
    while True:
        yield form.format(" ".join(chance.choices(known, k=count)))


def _lines(form: Callable[[random.Random, int], str]) -> Callable[[random.Random], Iterator[str]]:
    def lines(chance: random.Random) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield form(chance, number)

    return lines


def _xid(chance: random.Random, number: int) -> str:
    return (
        f"[{number / 7:12.6f}] NVRM: Xid (PCI:0000:{chance.randrange(256):02x}:00): {chance.choice(_XIDS)}, "
        f"pid={chance.randrange(99_999)}, name=python3, Ch {_hex(chance, 8)}, intr {_hex(chance, 8)}. MMU Fault: "
        f"ENGINE GRAPHICS GPCCLIENT_T1_{chance.randrange(9)} faulted @ 0x{_hex(chance, 4)}_{_hex(chance, 8)}. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"
    )


def _memory(chance: random.Random, number: int) -> str:
    tried, free, total = (chance.randrange(99_999) / 100 for _ in range(3))
    return (
        f"[rank{number % 8}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried:.2f} MiB. "
        f"GPU {number % 8} has a total capacity of {total:.2f} GiB of which {free:.2f} MiB is free.\n"
    )


def _traceback(chance: random.Random, number: int) -> str:
    name = _hex(chance, 6)
    return (
        "Traceback (most recent call last):\n"
        f'  File "/app/{name}/train.py", line {number % 999}, in step_{name}\n'
        f"    loss = model_{name}(batch)\n"
        f"ValueError: shape {name} of {_hex(chance, 8)} is not what was asked for\n"
    )


def _bar(chance: random.Random, number: int) -> str:
    share = number % 100
    tail = (
        f"{number % 5000}/5000 [00:{number % 60:02d}<00:10, {chance.random() * 9:.2f}it/s, loss={chance.random():.4f}]"
    )
    return f"\rEpoch {number // 5000}: {share:3d}%|{'█' * (share // 5):<20}| {tail}"


def _json(chance: random.Random, number: int) -> str:
    return (
        f'{{"ts": {1.7e9 + number / 10:.1f}, "level": "error", "msg": "request {_uuid(chance)} failed: '
        f'{_hex(chance, 12)}"}}\n'
    )


def _letters(chance: random.Random, number: int) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits + "+/", k=76)) + "\n"


def _bar_of_errors(chance: random.Random, number: int) -> str:
    return f"\rstep {number} failed: {_hex(chance, 8)} error {chance.random():.5f}"


def _traceback_of_words(chance: random.Random) -> Iterator[str]:
    known = _vocabulary(chance)
    while True:
        frames = "".join(
            f'  File "/app/{chance.choice(known)}.py", line {chance.randrange(999)}, in {chance.choice(known)}\n'
            f"    {chance.choice(known)}({chance.choice(known)})\n"
            for _ in range(5)
        )
        yield f"Traceback (most recent call last):\n{frames}ValueError: {' '.join(chance.choices(known, k=6))}\n"


def _blank(chance: random.Random, number: int) -> str:
    return "\n\n \n\t\n" if number % 50 else f"error {_hex(chance, 4)}\n"


def _same_traceback(chance: random.Random, number: int) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 212, in <module>\n'
        "    loss = step(batch)\n"
        '  File "/app/train.py", line 88, in step\n'
        "    return model(batch)\n"
        f"RuntimeError: batch {number} of {number * 7}: CUDA error: device-side assert triggered\n"
    )


def _ranks(chance: random.Random) -> Iterator[str]:
    known = _vocabulary(chance)
    number = 0
    while True:
        for rank in chance.sample(range(64), 64):
            number += 1
            text = " ".join(chance.choices(known, k=4))
            said = (
                f"[rank{rank}]: Traceback (most recent call last):",
                f'[rank{rank}]:   File "/app/{text[:6].strip()}.py", line {number % 999}, in step',
                f"[rank{rank}]: ValueError: {text}",
                f"node{rank // 8}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL WARN {text} failed",
            )[chance.randrange(4)]
            yield said + "\n"


def _bar_with_warnings(chance: random.Random, number: int) -> str:
    said = f"warning: loss {chance.random():.6f} is not finite, error in layer {_hex(chance, 6)}"
    return f"\rEpoch 3: {number % 100:3d}%|{'#' * (number % 40):<40}| {number}/? " + (said if number % 3 else "")


def _deep(chance: random.Random) -> Iterator[str]:
    known = _vocabulary(chance)
    while True:
        yield " " * chance.randrange(1, 600) + f"error: {' '.join(chance.choices(known, k=3))} failed\n"


def _of_a_cluster(chance: random.Random) -> Iterator[str]:
    known = _vocabulary(chance)
    number = 0
    while True:
        number += 1
        time_of = f"2026-03-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number % 997:06d}Z"
        yield f"{time_of} stderr F [{number % 16}]: E0301 {' '.join(chance.choices(known, k=5))} error\n"


def _of_many_errors(chance: random.Random) -> Iterator[str]:
    """Three lines in five hold two of the words that errors are known by, in ever new ways."""
    known, errors = _vocabulary(chance), sorted({signature.anchor for signature in knowledge.signatures()})
    while True:
        words = chance.choices(known, k=8)
        if chance.random() < 0.6:
            words[3], words[7] = chance.choices(errors, k=2)
        yield " ".join(words) + "\n"


def _names_and_numbers(chance: random.Random, number: int) -> str:
    """Errors named and numbered in fields, ever others: nearly none of the names is one that anybody defined."""
    name = "".join(chance.choices(string.ascii_uppercase, k=chance.randint(3, 12)))
    family = ("CUDA_ERROR", "cudaError", "ncclInternal", "CUDNN_STATUS", "hipError")[number % 5]
    return (
        f"job={_hex(chance, 6)} status={family}_{name} code={chance.randrange(1000)} cuda_status: "
        f"{chance.randrange(1000)} retry={number % 7} device={chance.randrange(8)} error=({chance.randrange(999)})\n"
    )


def _frames_of_ranks(chance: random.Random) -> Iterator[str]:
    """Tracebacks of 32 ranks, each of ever other frames, line by line between one another."""
    known, at, ends = _vocabulary(chance), [0] * 32, [0] * 32
    while True:
        rank = chance.randrange(32)
        at[rank] += 1
        if at[rank] > ends[rank]:
            at[rank], ends[rank] = 0, chance.randrange(3, 30)
            said = "Traceback (most recent call last):"
        elif at[rank] == ends[rank]:
            said = f"torch.{chance.choice(known).title()}Error: {' '.join(chance.choices(known, k=4))}"
        elif at[rank] % 2:
            said = f'  File "/app/{chance.choice(known)}.py", line {chance.randrange(9999)}, in {chance.choice(known)}'
        else:
            said = f"    return {chance.choice(known)}.{chance.choice(known)}({chance.choice(known)})"
        yield f"[rank{rank}]: {said}\n"


def _nested_json(chance: random.Random) -> Iterator[str]:
    """JSON in JSON in JSON, with a traceback in the innermost text."""
    known = _vocabulary(chance)
    number = 0
    while True:
        number += 1
        words = chance.choices(known, k=6)
        told = (
            f'Traceback (most recent call last):\n  File "/app/{words[0]}.py", line {chance.randrange(999)}, '
            f'in {words[1]}\n    {words[2]}({words[3]})\nValueError: {words[4]} "{words[5]}" failed\n'
        )
        inner = json.dumps({"level": "error", "exc_info": told, "request": _uuid(chance)})
        log = json.dumps({"log": inner + "\n", "stream": "stderr"})
        yield json.dumps({"time": number, "message": log, "kubernetes": {"pod_name": f"{words[0]}-{words[1]}"}}) + "\n"


def _long_lines(chance: random.Random) -> Iterator[str]:
    """Lines of 200 kB, errors in them here and there."""
    known = _vocabulary(chance)
    while True:
        for _ in range(400):
            words = " ".join(chance.choices(known, k=60))
            yield f"{words} error: {chance.choice(known)} not found {_hex(chance, 12)}; "
        yield "\n"


def _bars_between_errors(chance: random.Random, number: int) -> str:
    """A bar that is drawn again nine times, then an error, which ends the line every second time."""
    if number % 10:
        return _bar(chance, number)
    return f"\rERROR worker {_uuid(chance)}: cannot open /data/{_hex(chance, 10)}.tar" + ("\n" if number % 20 else "")


def _prefixed(chance: random.Random) -> Iterator[str]:
    """What Slurm, a container's runtime and the program each put before a line, and errors of ever other words."""
    known = _vocabulary(chance)
    number = 0
    while True:
        number += 1
        second = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        pod = f"{chance.choice(known)}-worker-{chance.randrange(64)}"
        level = ("INFO", "WARNING", "ERROR", "CRITICAL")[chance.randrange(4)]
        yield (
            f"{number % 512:>3}: [pod/{pod}/trainer] 2026-03-01T{second}.{number % 1000:03d}456789Z stderr F "
            f"(RayTrainWorker pid={chance.randrange(99_999)}, ip=10.0.{number % 256}.{chance.randrange(256)}) {level} "
            f"03-01 {second} [{chance.choice(known)}.py:{number % 999}] {' '.join(chance.choices(known, k=4))}: "
            f"{('ok', 'failed', 'connection refused', 'timed out')[chance.randrange(4)]}\n"
        )


def _assertions(chance: random.Random, number: int) -> str:
    kernel = f"{chance.choice(('index', 'gather', 'scatter', 'nll_loss'))}_{_hex(chance, 4)}"
    return (
        f"/pytorch/aten/src/ATen/native/cuda/Indexing_{_hex(chance, 3)}.cu:{chance.randrange(2000)}: {kernel}: block: "
        f"[{chance.randrange(9999)},{chance.randrange(64)},0], thread: [{number % 1024},{chance.randrange(8)},0] "
        f"Assertion `{_hex(chance, 6)} < size_{_hex(chance, 4)}` failed.\n"
    )


def _templates(chance: random.Random) -> Iterator[str]:
    """What a compiler says of templates that are given ever other arguments."""
    known = _vocabulary(chance)

    def type_of(depth: int) -> str:
        inner = ", ".join(type_of(depth - 1) for _ in range(chance.randrange(1, 3))) if depth else "float"
        return f"{chance.choice(known)}::{chance.choice(known).title()}<{inner}, {chance.randrange(256)}>"

    while True:
        file = f"/src/{chance.choice(known)}/{chance.choice(known)}.cuh"
        at = f"{chance.randrange(2000)}"
        yield f'{file}({at}): error: no instance of function template "{type_of(2)}" matches the argument list\n'
        yield f"            argument types are: ({type_of(1)}, {type_of(1)} *)\n"
        yield f'          detected during instantiation of "void {chance.choice(known)}<T>(T) [with T={type_of(2)}]" \n'
        yield f"{file}:{at}:{chance.randrange(99)}: note: candidate: template<class T> {type_of(1)}\n"
        yield f"make[2]: *** [{chance.choice(known)}.o] Error {chance.randrange(1, 3)}\n"


def _tables_of_the_driver(chance: random.Random) -> Iterator[str]:
    """``nvidia-smi -q`` of eight GPUs again and again, as a watching loop leaves it."""
    while True:
        for gpu in range(8):
            used = chance.randrange(80_000)
            rows = (
                "\n==============NVSMI LOG==============\n",
                f"Timestamp                                 : Sun Mar  1 12:{gpu:02d}:{chance.randrange(60):02d} 2026",
                "Driver Version                            : 550.54.15",
                "CUDA Version                              : 12.4\n",
                f"GPU 00000000:{gpu:02X}:00.0",
                "    Product Name                          : NVIDIA H100 80GB HBM3",
                f"    GPU UUID                              : GPU-{_uuid(chance)}",
                "    FB Memory Usage",
                "        Total                             : 81559 MiB",
                f"        Used                              : {used} MiB",
                f"        Free                              : {81_559 - used} MiB",
                "    ECC Errors",
                "        Volatile",
                f"            SRAM Correctable              : {chance.randrange(3)}",
                "            SRAM Uncorrectable            : 0",
                f"            DRAM Correctable              : {chance.randrange(9)}",
                "            DRAM Uncorrectable            : 0",
                "    Remapped Rows",
                f"        Correctable Error                 : {chance.randrange(5)}",
                "        Uncorrectable Error               : 0",
                "        Pending                           : No",
                "        Remapping Failure Occurred        : No",
                "    Temperature",
                f"        GPU Current Temp                  : {chance.randrange(30, 90)} C",
                "    Clocks Event Reasons",
                "        SW Power Cap                      : Not Active",
                "        HW Thermal Slowdown               : Not Active",
                "    Processes",
                f"        Process ID                        : {chance.randrange(99_999)}",
                f"            Used GPU Memory               : {used} MiB\n",
            )
            yield "\n".join(rows)


def _names_that_are_known(chance: random.Random) -> Iterator[str]:
    """Names that the libraries define, in lines of ever other words, of ever other processes: each can be a cause."""
    known = _vocabulary(chance)
    named = sorted({row.anchor for row in knowledge.signatures()})
    numbers = list(range(1000))
    while True:
        said = " ".join(chance.choices(known, k=3))
        yield (
            f"[rank{chance.randrange(4096)}]: {said}: {chance.choice(named)} {_hex(chance, 4)} "
            f"CUDA error {chance.choice(numbers)}: {chance.choice(known)}\n"
        )


SHAPES: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "words": lambda chance: _words(chance, "{}\n", 10),
    "words of an error": lambda chance: _words(chance, "error: {} failed\n", 10),
    "words of an error of CUDA": lambda chance: _words(chance, "RuntimeError: CUDA error: unknown error in {}\n", 8),
    "words without a line's end": lambda chance: _words(chance, "{} ", 10),
    "words of an error without a line's end": lambda chance: _words(chance, "{} failed with an error ", 6),
    "hexadecimal": _lines(lambda chance, number: f"request {_hex(chance, 16)} at 0x{_hex(chance, 12)} failed\n"),
    "hexadecimal of an error of CUDA": _lines(
        lambda chance, number: f"CUDA error: an illegal memory access was encountered at 0x{_hex(chance, 12)}\n"
    ),
    "UUIDs": _lines(lambda chance, number: f"ERROR request {_uuid(chance)}: CUDA error: out of memory\n"),
    "UUIDs of talk": _lines(
        lambda chance, number: f"INFO request {_uuid(chance)} is done in {chance.random():.3f} s\n"
    ),
    "decimals": _lines(_memory),
    "Xids": _lines(_xid),
    "tracebacks": _lines(_traceback),
    "short lines": _lines(lambda chance, number: f"{number % 977}\n"),
    "short words": lambda chance: _words(chance, "{}\n", 1),
    "progress bars": _lines(_bar),
    "NUL bytes": _lines(lambda chance, number: f"step {number}\0\0\0 loss {chance.random():.4f}\0 failed\n"),
    "JSON": _lines(_json),
    "colours": _lines(
        lambda chance, number: f"\x1b[31mERROR\x1b[0m \x1b[1m{_hex(chance, 8)}\x1b[0m: \x1b[33mcannot open it\x1b[0m\n"
    ),
    "base64": _lines(_letters),
    "bars of errors": _lines(_bar_of_errors),
    "tracebacks of words": _traceback_of_words,
    "short words of an error": lambda chance: _words(chance, "{} failed\n", 1),
    "words of an escaped error": lambda chance: _words(chance, "\x1b[2K\x1b[36m(worker)\x1b[0m ERROR {} failed\n", 3),
    "words of JSON": lambda chance: _words(chance, '{{"level": "error", "msg": "ValueError: {}\\n"}}\n', 8),
    "blank lines": _lines(_blank),
    "one traceback with a counter": _lines(_same_traceback),
    "64 ranks between one another": _ranks,
    "bars with warnings": _lines(_bar_with_warnings),
    "deep indentation": _deep,
    "words of a cluster": _of_a_cluster,
    "words of many errors": _of_many_errors,
    "names and numbers in fields": _lines(_names_and_numbers),
    "frames of ranks between one another": _frames_of_ranks,
    "JSON in JSON": _nested_json,
    "long lines with errors": _long_lines,
    "bars between errors": _lines(_bars_between_errors),
    "prefixes before prefixes": _prefixed,
    "assertions of a device": _lines(_assertions),
    "templates of a compiler": _templates,
    "tables of the driver": _tables_of_the_driver,
    "known names of many processes": _names_that_are_known,
}
"""By name, the endless stretches of each."""


def write(path: Path, shape: str, size: int) -> None:
    """Writes a log of ``size`` bytes, and a line; raises KeyError for a shape that is not there."""
    stretches = SHAPES[shape](random.Random(7))
    left = size
    with path.open("w", encoding="utf-8", newline="") as out:
        while left > 0:
            text = "".join(stretch for stretch, _ in zip(stretches, range(2000), strict=False))
            left -= out.write(text)
        out.write("\n" + END)


def write_ranks(folder: Path, count: int) -> None:
    """Writes the logs of so many ranks of one job: one of them fails by itself, the others time out waiting for it."""
    for rank in range(count):
        lines = [f"2026-03-01 12:{number % 60:02d}:00,1 - trainer - INFO - step {number}\n" for number in range(40)]
        if rank == count // 3:
            lines += [f"[rank{rank}]: Traceback (most recent call last):\n", f"[rank{rank}]: {END}"]
        else:
            lines.append(
                f"[rank{rank}]:[E301 12:50:51.713449198 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
                "collective operation timeout: WorkNCCL(SeqNum=610, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
                "Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
            )
        (folder / f"rank{rank}.log").write_text("".join(lines))
