"""Feeds made-up Dockerfiles to the parser and the evaluator, to find one that breaks them or takes them long.

    python scripts/fuzz_dockerfile.py --inputs 1000000 --seed 1 --jobs 4 [--parse-only]
    python scripts/fuzz_dockerfile.py --seed 1 --only 4711

Every input follows from the seed and its number alone, so that --only shows one again.  The exit code is 1 where an
input raised anything, or took more than a second of processor time.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from types import FrameType

from envkit import facts
from envkit.dockerfile import evaluate
from envkit.dockerfile.parse import parse
from envkit.dockerfile.words import assignments, expand, split

LIMIT = 1.0  # seconds of processor time for one input
HANGS = 30  # seconds after which an input is given up
MEMORY = 4 << 30  # bytes of address space for a worker: an input that wants more has found a fault
CHUNK = 2_000  # inputs that a worker takes at a time
SHOWN = 5  # crashes whose tracebacks are printed

SEEDS = (
    """# syntax=docker/dockerfile:1
ARG CUDA=12.4.1
ARG UBUNTU=22.04
FROM nvidia/cuda:${CUDA}-cudnn-devel-ubuntu${UBUNTU} AS build
ENV DEBIAN_FRONTEND=noninteractive PATH="/opt/venv/bin:$PATH" \\
    TORCH_CUDA_ARCH_LIST="8.0;9.0+PTX"
RUN apt-get update && apt-get install -y --no-install-recommends \\
        git python3-pip python3-venv \\
    # for the extension
    ninja-build && rm -rf /var/lib/apt/lists/*
RUN --mount=type=cache,target=/root/.cache/pip python3 -m venv /opt/venv && \\
    pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu${CUDA%%.*}4
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt 'numpy<2' "xformers>=0.0.29"
FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
COPY --from=build /opt/venv /opt/venv
ENTRYPOINT ["python3", "-m", "server"]
""",
    """FROM continuumio/miniconda3:24.1.2-0
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN conda create -y -n ml python=3.10 && echo "conda activate ml" >> ~/.bashrc
RUN conda install -n ml -c pytorch -c nvidia pytorch=2.1.* torchvision pytorch-cuda=12.1 && conda clean -afy
ENV CONDA_DEFAULT_ENV ml
RUN source activate ml; for p in einops timm; do pip install $p || exit 1; done
RUN if [ "$(uname -m)" = x86_64 ]; then export X=cu121; else X=cpu; fi && \\
    pip install "torch-scatter" -f https://wheels.example.org/whl/torch-2.1.0+${X}.html
CMD conda run -n ml python train.py
""",
    """FROM python:3.11-slim
COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /bin/
WORKDIR /app
RUN <<EOF
set -eux
uv venv /opt/v
uv pip install --python /opt/v torch torchvision --extra-index-url https://download.pytorch.org/whl/cu126
cat > /etc/x <<'IN'
FROM nothing
IN
EOF
COPY <<-A <<"B" /etc/
\tnumpy==1.26.4
\tA
scipy
B
RUN uv sync --frozen --no-dev; (cd /tmp && wget -q https://a/b.deb && dpkg -i b.deb) & wait
HEALTHCHECK --interval=5s CMD curl -f http://localhost/ || exit 1
""",
    """# escape=`
from pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel as a
label org.x="y z" maintainer='me'
run poetry config virtualenvs.create false `
 && poetry install --without dev
onbuild run pip uninstall -y torch
arg FLAGS=${FLAGS:-"--no-build-isolation"}
run MAX_JOBS=4 pip install $FLAGS flash-attn==2.7.4.post1 `

  && curl -sSL https://x/y.sh | bash -s -- --z
expose 80 443/tcp
""",
)
FRAGMENTS = (
    *("\n", "\r\n", "\r", "\\\n", "\\ \n", "`\n", " ", "\t", "\x00", "\x0c", "\ufeff", "\u3000", "\ud800", "é", "#"),
    *("# c\n", "\\", "FROM ", "RUN ", "ENV ", "ARG ", "COPY ", "ONBUILD ", "LABEL ", "SHELL ", "CMD ", "FROM a AS b\n"),
    *("COPY --from=b ", "ENV A B C\n", "<<EOF", "<<-'EOF'", "\nEOF\n", "<< X", "<<<", "<", ">", "2>&1", ">>", "&&"),
    *("||", ";", ";;", "|", "&", "(", ")", "{", "}", "[[", "]]", "$", "${", "${A", ":-", ":+", "#", "%%", "//", "$("),
    *(
        "$((",
        "))",
        "`",
        "'",
        '"',
        "$'",
        "$A",
        "${A:-${B}}",
        "${A//a/$B}",
        "*",
        "?",
        "~",
        "if ",
        "then ",
        "else ",
        "fi ",
    ),
    *("for x in ", "do ", "done ", "case ", "esac ", "while ", "function f() {", "eval ", "exit 1", "set -e", "sudo "),
    *("pip install ", "torch==2.6.0+cu124", "-r r.txt", "-c c.txt", "--index-url=", "uv pip install ", "poetry add "),
    *("conda install -y ", "apt-get install -y ", "pixi add ", "cuda-toolkit-12-4", "torch>=2,<3", "[a,b]", "source "),
    *("torch @ https://x/torch-2.6.0-cp311-cp311-linux_x86_64.whl", "; python_version<'3.12'", "export A=", "cd "),
    *("env ", "xargs ", "python -c ", "bash -c ", '["a", "b"]', "--mount=type=bind,"),
)
REPEATED = (
    *("${a:-", "$(", "(", "{ ", "[", "'", '"', "`", "\\", "$a", "${a", "if x; then ", "for i in a b; do ", "<<E "),
    *("\\\n", "a=b ", "--f=", "&& ", "case x in "),
)

Step = Callable[[random.Random, str], str]


def insert(chance: random.Random, text: str) -> str:
    """A fragment, or a few, somewhere."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 4))) + text[at:]


def remove(chance: random.Random, text: str) -> str:
    """A stretch of the text is gone."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + text[at + chance.randint(1, 40) :]


def splice(chance: random.Random, text: str) -> str:
    """The text goes on in the middle of another."""
    other = chance.choice(SEEDS)
    return text[: chance.randrange(len(text) + 1)] + other[chance.randrange(len(other)) :]


def shuffle(chance: random.Random, text: str) -> str:
    """Two lines change places."""
    lines = text.split("\n")
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return "\n".join(lines)


def spoil(chance: random.Random, text: str) -> str:
    """Random bytes in the middle, decoded as a file's bytes would be."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.randbytes(chance.randint(1, 30)).decode("utf-8", "replace") + text[at:]


def change(chance: random.Random, text: str) -> str:
    """One character becomes another."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + chr(chance.choice((chance.randrange(128), chance.randrange(0x3000)))) + text[at + 1 :]


def repeat(chance: random.Random, text: str) -> str:
    """Something that nests, or makes a long line, many times."""
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(REPEATED) * int(10 ** chance.uniform(1, 4.2)) + text[at:]


STEPS: tuple[Step, ...] = (insert, insert, insert, insert, remove, remove, splice, shuffle, spoil, change)


def made(seed: int, number: int) -> str:
    """The input of that number."""
    chance = random.Random(seed << 40 | number)
    kind = number % 100
    if kind == 0:
        return chance.randbytes(chance.randint(0, 2_000)).decode("utf-8", "replace")
    if kind < 5:
        return "FROM a\n" + "".join(chance.choices(FRAGMENTS, k=chance.randint(1, 80)))
    text = chance.choice(SEEDS)
    for _ in range(chance.randint(1, 6)):
        text = chance.choice(STEPS)(chance, text)
    return repeat(chance, text) if kind == 5 else text


def parse_only(text: str) -> None:
    """Parser, splitter and variables, as the evaluator uses them."""
    parsed = parse(text, "Dockerfile")
    env: dict[str, str | None] = {"A": "a", "CUDA": "1.2", "WHO": None}
    for instruction in parsed.instructions:
        if instruction.name in ("ENV", "ARG", "LABEL"):
            for name, value in assignments(instruction):
                env[name] = expand(value.value, env, parsed.escape).text if value else None
        elif instruction.name in ("FROM", "COPY", "ADD", "EXPOSE", "VOLUME"):
            for word in split(instruction.text):
                expand(word.value, env, parsed.escape)
                word.span(0, len(word))
    for problem in parsed.problems:
        str(problem.span)


@cache
def known() -> facts.Facts:
    """The facts, once a process."""
    return facts.load()


def all_of_it(text: str) -> None:
    """The subject, as the checks get it; to be refused in a clause is an answer too."""
    with suppress(evaluate.TooLarge):
        evaluate.read(text, "Dockerfile", known())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What some inputs did: ``slowest`` and ``slow`` are seconds and numbers, ``crashes`` numbers and tracebacks."""

    count: int
    seconds: float
    slowest: tuple[float, int]
    slow: tuple[tuple[float, int], ...]
    crashes: tuple[tuple[int, str], ...]


def give_up(_number: int, _frame: FrameType | None) -> None:
    """Raises TimeoutError in the input that is being read."""
    raise TimeoutError(f"not done after {HANGS} seconds")


def examine(seed: int, do: Callable[[str], None], numbers: range) -> Outcome:
    """Runs the inputs of these numbers in this process."""
    signal.signal(signal.SIGALRM, give_up)
    begin, slowest = time.process_time(), (0.0, numbers.start)
    slow: list[tuple[float, int]] = []
    crashes: list[tuple[int, str]] = []
    for number in numbers:
        text = made(seed, number)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, HANGS)
        try:
            do(text)
        except Exception:  # whatever it is, it is what this driver looks for
            crashes.append((number, traceback.format_exc(limit=-6)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        spent = time.process_time() - start
        slowest = max(slowest, (spent, number))
        if spent > LIMIT:
            slow.append((spent, number))
    return Outcome(len(numbers), time.process_time() - begin, slowest, tuple(slow), tuple(crashes))


def prepare(do: Callable[[str], None]) -> None:
    """For each worker: a bound on its memory, and what only the first input would need, done before any is timed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    do(SEEDS[0])


def chunks(inputs: int) -> Iterator[range]:
    """All numbers, in pieces."""
    for start in range(0, inputs, CHUNK):
        yield range(start, min(start + CHUNK, inputs))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parse-only", action="store_true", help="the parser and its words, without the evaluator")
    parser.add_argument("--only", type=int, help="print the input of this number, and run it")
    given = parser.parse_args()
    do = parse_only if given.parse_only else all_of_it
    if given.only is not None:
        print(ascii(made(given.seed, given.only)))
        do(made(given.seed, given.only))
        return 0
    begin = time.monotonic()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(given.jobs, initializer=prepare, initargs=(do,)) as pool:
        for outcome in pool.map(partial(examine, given.seed, do), chunks(given.inputs)):
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
