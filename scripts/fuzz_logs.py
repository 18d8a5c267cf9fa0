"""Feeds made-up logs to the reader, the story and the verdict, to find one that breaks them or takes them long.

    python scripts/fuzz_logs.py --inputs 1000000 --seed 1 --jobs 4
    python scripts/fuzz_logs.py --seed 1 --only 4711

Every input follows from the seed and its number alone, so that --only shows one again.  The exit code is 1 where an
input raised anything, or took more than a second of processor time.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

from fuzz_dockerfile import HANGS, LIMIT, MEMORY, SHOWN, Outcome, chunks, give_up

from envkit import facts
from envkit.logs.knowledge import signatures
from envkit.logs.reader import Input, read
from envkit.logs.story import tell
from envkit.logs.verdict import explain

SEEDS = (
    """2026-03-01 12:00:00,123 - trainer - INFO - step 17 loss 2.5
[rank3]: Traceback (most recent call last):
[rank3]:   File "/app/train.py", line 10, in <module>
[rank3]:     main()
[rank3]:     ^^^^^^
[rank3]:   File "/opt/lib/torch/nn/modules/module.py", line 20, in forward
[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered
[rank3]: CUDA kernel errors might be asynchronously reported at some other API call
[rank1]:[E318 06:30:51.713449198 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=610, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before \
timing out.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [Rank 1] NCCL watchdog thread terminated with exception
W0301 12:00:05.000000 4711 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4712 closing signal
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
""",
    """[123456.123456] NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000010, intr 00000000. MMU Fault:
ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34567000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ
Mar  1 12:00:05 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off
kern  :warn  : 2026-03-01T12:00:06,000000+00:00 nvidia-nvswitch2: SXid (PCI:0000:0b:00.0): 12028, Fatal, Link 28
[Sun Mar  1 12:00:07 2026] Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:1kB
""",
    """node1:4711:4712 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB
node1:4711:4712 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<51159>
[1,3]<stderr>:node1:4711:4712 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'
slurmstepd-node1: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed
srun: error: node1: task 3: Out Of Memory
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB of \
which 1.00 MiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch
""",
    '{"level": "error", "ts": 1772366400.5, "msg": "Traceback (most recent call last):\\n  File \\"x.py\\", line 1\\n'
    'E: x"}\n'
    '{"log": "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\\n", "time": "2026-03-01T12:00:00.1Z"}\n',
    """#12 31.5 /usr/include/crt/host_config.h:139:2: error: #error -- unsupported GNU version! gcc later than 12
31.55 nvcc fatal   : Unsupported gpu architecture 'compute_120'
ERROR: Could not find a version that satisfies the requirement torch==2.9.9 (from versions: none)
docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
ImportError: libcudart.so.12: cannot open shared object file: No such file or directory
The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver
Failed to initialize NVML: Driver/library version mismatch
""",
    """ValueError                                Traceback (most recent call last)
File ~/env/x.py:592, in Retry.increment(self)
--> 592     raise ValueError(b)
ValueError: bad thing

During handling of the above exception, another exception occurred:

  + Exception Group Traceback (most recent call last):
  |   File "/x.py", line 1, in f
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
tests/test_x.py:16: in <module>
E   ImportError: no y
(EngineCore_0 pid=7) ERROR 03-01 12:00:00 [core.py:1] Engine core died
AssertionError: Torch not compiled with CUDA enabled
""",
)
FRAGMENTS = (
    "\n", "\r", "\r\n", "\0", "\x1b[31m", "\x1b[", "\x1b]0;", "\x1b[A", "\x08", "\x08" * 20, "> ", "```\n",
    "$ ", ">>> ",
    "# ", "&lt;", "&#39;", "<br>", "{", "}", '{"msg": "', '"}', "\\n", '\\"', "[rank", "[rank7]: ", "]: ", "[",
    "[[[[", "(",
    "(a pid=", "(x pid=3) ", "99999999999: ", "[ 12.345678] ", "4,1,2,-;", "<4>", "2026-13-41 25:61:61 ",
    "0000-00-00 00:00:00 ", "Feb 30 00:00:00 h kernel: ", "ERROR: ", "ERROR:a.b:",
    "E9999 99:99:99.9 1 a.cc:1] ", "E   ",
    " | ", "NVRM: Xid (PCI:", "): 79, ", "NCCL WARN ", "CUDA error: ", "out of memory", "Tried to allocate ", "9" * 400,
    "0x", "Traceback (most recent call last):", '  File "x.py", line 1, in f\n', "    raise X(",
    "During handling of the above exception, another exception occurred:\n", "undefined symbol: ",
    "libcuda.so.1: cannot open shared object file", "version `GLIBC_2.99' not found", "Killed", "é", "\u2028", "\ufeff",
    "\ud7ff", "I think ", "?", ": ", "  ", "\t", "'", '"', "`", "==", "||", "|" * 50, "...", "%", "it/s]",
    "| 1/2 [00:00<00:00, 1it/s]",
)  # fmt: skip
REPEATED = (
    "[", "(", "a ", "a", " ", ".", ":", "1", "1:", "[rank1]: ", "\x1b[31m", "\x08", "\r", "{", '{"log":', "a.", "a:a:",
    "> ", "|", "'", "0 ", "ab", "aB ", "Error: ", "CUDA error: ", "NVRM: Xid (PCI:0000:3b:00): 31, ", 'File "',
    "\n", "\nx",
    "a-", "/a", "_", "[0] NCCL WARN ", "rank 1 ", "\\n", "&lt;", "libcudart.so.", "1, ", "[1,", "2026-01-01 00:00:00 ",
    "WorkNCCL(", "=", "sm_90 ",
)  # fmt: skip
Step = Callable[[random.Random, str], str]


@cache
def anchors() -> tuple[str, ...]:
    """What every signature needs: the words that lead to its expression."""
    return tuple(row.anchor for row in signatures())


def insert(chance: random.Random, text: str) -> str:
    """A fragment, or a few, somewhere."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 4))) + text[at:]


def lead(chance: random.Random, text: str) -> str:
    """The words of a signature, with things around them."""
    at = chance.randrange(len(text) + 1)
    words = [*chance.choices(anchors(), k=chance.randint(1, 3)), *chance.choices(FRAGMENTS, k=3)]
    chance.shuffle(words)
    return text[:at] + "".join(words) + text[at:]


def remove(chance: random.Random, text: str) -> str:
    """A stretch of the text is gone."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + text[at + chance.randint(1, 60) :]


def splice(chance: random.Random, text: str) -> str:
    """The text goes on in the middle of another."""
    other = chance.choice(SEEDS)
    return text[: chance.randrange(len(text) + 1)] + other[chance.randrange(len(other)) :]


def shuffle(chance: random.Random, text: str) -> str:
    """Lines change places."""
    lines = text.split("\n")
    chance.shuffle(lines)
    return "\n".join(lines)


def prefix(chance: random.Random, text: str) -> str:
    """Something stands before each line."""
    before = "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 3)))
    return "\n".join(before + line for line in text.split("\n"))


def repeat(chance: random.Random, text: str) -> str:
    """Something that makes a long line, or many lines."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(REPEATED) * int(10 ** chance.uniform(1, 4.5)) + text[at:]


STEPS: tuple[Step, ...] = (insert, insert, insert, lead, lead, remove, remove, splice, shuffle, prefix)


def made(seed: int, number: int) -> bytes:
    """The input of that number."""
    chance = random.Random(seed << 40 | number)
    kind = number % 100
    if kind == 0:
        return chance.randbytes(chance.randint(0, 4_000))
    if kind < 5:
        return "".join(chance.choices(FRAGMENTS + anchors(), k=chance.randint(1, 80))).encode("utf-8", "replace")
    text = chance.choice(SEEDS)
    for _ in range(chance.randint(1, 6)):
        text = chance.choice(STEPS)(chance, text)
    if 5 <= kind < 10:
        text = repeat(chance, text)
    raw = text.encode("utf-8", "replace")
    if kind == 10:
        return json.dumps({"level": "error", "message": text}).encode()
    if kind == 11:
        packed = bytearray(gzip.compress(raw, 1))
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        return bytes(packed)
    if kind == 12:
        return b"\xff\xfe" + text.encode("utf-16-le", "replace")
    if kind < 20:
        at = chance.randrange(len(raw) + 1)
        return raw[:at] + chance.randbytes(chance.randint(1, 30)) + raw[at:]
    return raw


@cache
def known() -> facts.Facts:
    """The facts, once a process."""
    return facts.load()


def do(raw: bytes) -> None:
    """The whole chain; an answer without evidence or a place that is not in the log is a fault."""
    reading = read([Input("rank1.log", io.BytesIO(raw))])
    seen = reading.files[0]
    for event in reading.events:
        if not 1 <= event.line.number <= max(1, seen.lines):
            raise AssertionError(f"line {event.line.number} of {seen.lines}")
    told = explain(tell([reading]), known())
    if not told.category or not told.cause:
        raise AssertionError("no answer")


def examine(seed: int, numbers: range) -> Outcome:
    """Runs the inputs of these numbers in this process."""
    signal.signal(signal.SIGALRM, give_up)
    begin, slowest = time.process_time(), (0.0, numbers.start)
    slow: list[tuple[float, int]] = []
    crashes: list[tuple[int, str]] = []
    for number in numbers:
        raw = made(seed, number)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, HANGS)
        try:
            do(raw)
        except Exception:  # whatever it is, it is what this driver looks for
            crashes.append((number, traceback.format_exc(limit=-6)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        spent = time.process_time() - start
        slowest = max(slowest, (spent, number))
        if spent > LIMIT:
            slow.append((spent, number))
    return Outcome(len(numbers), time.process_time() - begin, slowest, tuple(slow), tuple(crashes))


def prepare() -> None:
    """For each worker: a bound on its memory, and what only the first input would need, done before any is timed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for seed in SEEDS:
        do(seed.encode())


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="print the input of this number, and run it")
    given = parser.parse_args()
    if given.only is not None:
        print(ascii(made(given.seed, given.only)))
        do(made(given.seed, given.only))
        return 0
    begin = time.monotonic()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(given.jobs, initializer=prepare) as pool:
        for outcome in pool.map(partial(examine, given.seed), chunks(given.inputs)):
            outcomes.append(outcome)
            if len(outcomes) % 50 == 0:
                print(f"{sum(each.count for each in outcomes)} inputs", file=sys.stderr)
    crashes = [crash for each in outcomes for crash in each.crashes]
    slow = [one for each in outcomes for one in each.slow]
    for number, trace in crashes[:SHOWN]:
        print(f"input {number} of seed {given.seed}:\n{trace}")
    for seconds, number in slow[:SHOWN]:
        print(f"input {number} of seed {given.seed} took {seconds:.2f} s")
    count, work = sum(each.count for each in outcomes), sum(each.seconds for each in outcomes)
    seconds, number = max((each.slowest for each in outcomes), default=(0.0, 0))
    print(
        f"{count} inputs of seed {given.seed} in {time.monotonic() - begin:.0f} s on {given.jobs} processes "
        f"({count / max(work, 1e-9):.0f} a second of processor time, making them included): {len(crashes)} crashes, "
        f"{len(slow)} over {LIMIT:g} s, the slowest {seconds:.3f} s (input {number})"
    )
    return 1 if crashes or slow or not count else 0


if __name__ == "__main__":
    sys.exit(main())
