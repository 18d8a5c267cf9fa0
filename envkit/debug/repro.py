"""Writes the reproducer: a shell script with the command, the environment that bears on it, and the versions seen."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from envkit.credentials import HIDDEN, redacted_text, redacted_value

# What decides which libraries are loaded and how CUDA, its libraries and the frameworks behave.
_BEARS = re.compile(
    r"^(?:CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NVTE|TORCH|PYTORCH|TRITON|AOT|XLA|JAX|TF|OMP|MKL|KMP|GLOO|UCX|FI|OMPI|PMI|SLURM"
    r"|HF|VLLM|PYTHON|LD|MASTER|RANK|LOCAL|WORLD|GROUP|ROLE|CONDA|VIRTUAL|DEEPSPEED|ACCELERATE|NUMBA|CUPY)(?:_|$)"
    r"|^(?:PATH|PYTHONPATH|PYTHONHOME|LIBRARY_PATH|TMPDIR|LANG|LC_ALL|VIRTUAL_ENV|RANK|WORLD_SIZE)$"
)
_OPTION = re.compile(r"^--?[\w-]+$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def script(
    argv: Sequence[str],
    environ: Mapping[str, str],
    added: Mapping[str, str | None],
    *,
    cwd: str,
    image: str,
    versions: Mapping[str, str],
    why: str,
) -> str:
    """A POSIX script that runs ``argv`` again as the stage that found the cause ran it.

    ``environ`` is what envkit was started with, ``added`` what the stage put over it.  Values whose names or shapes are
    those of secrets are left out, by name; such words of the command are hidden, and said to be.
    """
    lines = ["#!/bin/sh", f"# {_comment(why)}"]
    lines += [f"# {_comment(name)} {_comment(version)}" for name, version in sorted(versions.items())]
    if image:
        lines.append(f"# in the image {_comment(image)}")
    lines += ["set -eu", f"cd {_quoted(cwd)}"]
    for name, value in sorted(environ.items()):
        if not _BEARS.search(name) or not _NAME.match(name) or name.startswith("ENVKIT_"):
            continue
        if redacted_value(name, value) != value:
            lines.append(f"# {name} is set and is left out: it looks like a secret")
        else:
            lines.append(f"export {name}={_quoted(value)}")
    given = {name: value for name, value in added.items() if value is not None and _NAME.match(name)}
    lines += [f"export {name}={_quoted(value)}" for name, value in sorted(given.items())]
    words = redacted_words(argv)
    if words != list(argv):
        lines.append(f"# {HIDDEN} stands for what looks like a secret: put it there before this is run")
    lines.append("exec " + " ".join(map(_quoted, words)))
    return "\n".join(lines) + "\n"


def redacted_words(argv: Sequence[str]) -> list[str]:
    """A command's words without what looks like a secret, by its shape, its name, or the option before it."""
    words = [redacted_text(word) for word in argv]
    for at in range(1, len(words)):
        option = argv[at - 1] if _OPTION.match(argv[at - 1]) else ""
        # Judged as a variable of that name would be; a value that is an option is none.
        if HIDDEN in redacted_text(f"{option.lstrip('-').replace('-', '_')}=x") and not argv[at].startswith("-"):
            words[at] = HIDDEN
    return words


def _quoted(word: str) -> str:
    """A word for a shell, in UTF-8 whatever its bytes are."""
    raw = os.fsencode(word)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "\"$(printf '" + "".join(f"\\{byte:03o}" for byte in raw) + "')\""
    return shlex.quote(word)


def _comment(text: str) -> str:
    return " ".join(redacted_text(text).encode("utf-8", "backslashreplace").decode("utf-8").split())
