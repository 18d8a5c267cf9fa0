"""``python3 envkit.pyz probe|smoke|placement|precision|aoti [OPTIONS] [ARGS]``.

The last line of stdout is one JSON document; all talk goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

SCHEMA = "envkit.payload/1"
# the module of each kind, imported when it is asked for: the processes that are observed have no use for the others
_KINDS = {"probe": "probe.outer", "smoke": "smoke", "placement": "placement", "precision": "precision", "aoti": "aoti"}
USAGE = """usage: python3 envkit.pyz probe|smoke|placement|precision|aoti [OPTIONS] [ARGS]

probe            what this Python's torch maps and binds; with --static only what needs no import of torch,
                 with --abilities none|quick|full also what it can do, for the GPUs of --sm 80,90
smoke            whether its kernels compute right
placement        where a model's tensors live, and where two devices or dtypes meet
precision        what a narrow dtype does to one step of a model
aoti             what an AOTInductor package was made for, and how it loads and runs
--watch-stdin    kill everything when stdin ends
--budget S       kill everything after S seconds
--scratch DIR    put temporary files into DIR, and remove it at the end, however that comes
--announce       say on stderr that the payload began
--nonce WORD     repeat WORD in the document, so that it is known to answer this run
"""


def own_sha256() -> str:
    """The sha256 of the zip this runs from, empty when it runs from a source tree."""
    if not os.path.isfile(sys.argv[0]) or not sys.argv[0].endswith(".pyz"):
        return ""
    import hashlib  # the processes that are observed have no use for it

    with open(sys.argv[0], "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _split(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """The values of this module's own options, and all other words."""
    values: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word in ("--budget", "--nonce", "--scratch") and words:
            values[word] = words.pop(0)
        elif word in ("--watch-stdin", "--announce") or word.startswith("--budget="):
            values[word.partition("=")[0]] = word.partition("=")[2]
        else:
            rest.append(word)
    return values, rest


def _unknown(words: list[str]) -> bool:
    """Whether ``words`` are not those of a probe: "--static", and options with a value."""
    rest = [word for word in words if word != "--static"]
    return len(rest) % 2 == 1 or not {*rest[::2]} <= {"--folder", "--abilities", "--sm"}


def _document(kind: str, argv: list[str]) -> dict[str, Any]:
    return dict(importlib.import_module("envkit.payload." + _KINDS[kind]).main(argv))


def _print_document(kind: str, argv: list[str], nonce: str) -> int:
    document = _document(kind, argv)
    document.update(schema=SCHEMA, kind=kind, payload_sha256=own_sha256(), nonce=nonce)
    data = ("\n" + json.dumps(document, sort_keys=True) + "\n").encode("ascii")
    sys.stdout.flush()
    while data:  # past sys.stdout, which the image may have replaced or given another encoding
        data = data[os.write(1, data) :]
    return 0


def main(argv: list[str]) -> int:
    """Runs one kind of observation; returns 0 when a document was printed, 2 on wrong usage."""
    kind, words = (argv[0], argv[1:]) if argv else ("", [])
    if kind in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    try:
        values, rest = _split(words)
        budget = float(values["--budget"]) if "--budget" in values else None
    except ValueError as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    if kind not in _KINDS:
        sys.stderr.write(USAGE)
        return 2
    if kind == "probe" and rest and rest[0] == "--inner":
        from envkit.payload.probe import inner

        inner.main(rest[1:])
    if kind == "probe" and _unknown(rest):
        sys.stderr.write(f"unknown words: {' '.join(rest)}\n{USAGE}")
        return 2
    nonce, watch = values.get("--nonce", ""), "--watch-stdin" in values
    if watch or budget is not None:
        from envkit.payload import watchdog

        scratch = values.get("--scratch", "")
        return watchdog.guard(lambda: _print_document(kind, rest, nonce), watch, budget, scratch)
    return _print_document(kind, rest, nonce)
