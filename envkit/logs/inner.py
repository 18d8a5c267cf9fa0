"""One line that holds several: records of JSON, HTML, and tracebacks that were printed as string literals."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from envkit.logs.prefix import LogMessage, strip
from envkit.logs.scan import LONGEST

_MOST = 60  # lines that one line of JSON may hold
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_TAG = re.compile(r"</?(?:br|pre|code|span|p|div|td|tr|li|strong|em|summary|details)(?: [^<>\n]{0,200})?/?>")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)[\w.+-]{0,20}\s*$")
_ESCAPED = re.compile(r"\\n|\\r\\n")
_TEXT_KEYS = (
    "msg", "message", "log", "MESSAGE", "textPayload", "error", "err", "exception", "exc_info", "stack", "stack_trace",
    "traceback", "content", "event", "body", "module_stderr", "stderr", "module_stdout", "stdout",
    "trace", "detail", "reason", "error_message",
)  # fmt: skip
_TIME_KEYS = ("time", "ts", "timestamp", "@timestamp", "asctime", "t")
_LEVEL_KEYS = (
    "level",
    "log.level",
    "sev",
    "levelname",
    "severity",
    "lvl",
    "severityText",
    "severity_text",
    "log_level",
    "loglevel",
)
_OF_DOCKER = frozenset({"log", "stream", "time", "attrs"})  # its json-file driver: a frame, and no logger's record
_PLAIN = LogMessage("")
_DEEP = 3  # records within records
_FIELDS, _LONGEST_FIELD = 12, 40  # of a record, and characters of a word in one
_TELLING = re.compile(r"(?i)err|exc|fail|log|record|detail|cause|result")


def parts(raw: str) -> list[tuple[str, LogMessage]]:
    """What a line holds: itself, or the lines within its JSON; with what the JSON tells of time and level."""
    text = raw
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if "<" in text and _TAG.search(text):
        text = _TAG.sub("", text)
    if text.startswith(("`", " ", "~")) and _FENCE.match(text):
        text = ""
    start = text.find("{")
    if 0 <= start <= 200 and text.rstrip().endswith("}") and '"' in text[start : start + 3]:
        outer = _opened(text, start)
        if outer is not None:
            return outer
    if text.count("\\n") >= 2 and ("Traceback (most recent" in text or 'File \\"' in text or "File '" in text):
        # a traceback that was printed as a string literal
        parts = _ESCAPED.split(text)[:_MOST]
        return [(part.replace('\\"', '"').replace("\\'", "'"), _PLAIN) for part in parts]
    return [(text, _PLAIN)]


def _opened(text: str, start: int) -> list[tuple[str, LogMessage]] | None:
    """The messages of a line of JSON, None where it is something else."""
    try:
        held = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict):
        return None
    keys: tuple[str, ...] = _TEXT_KEYS
    if isinstance(record := held.get("record"), dict):  # of loguru
        keys = (*_TEXT_KEYS, "text")
        loud = record.get("level")
        held["level"] = loud.get("name") if isinstance(loud, dict) else ""
    if held.keys() <= _OF_DOCKER and isinstance(logged := held.get("log"), str):
        about = strip(f"{held.get('time', '')} .")
        about.collected = True
        return [(line.rstrip("\r"), about) for line in logged.rstrip("\n").split("\n")[:_MOST]]
    level = next((held[key] for key in _LEVEL_KEYS if isinstance(held.get(key), str)), "")
    texts = list(_texts(held, keys))
    if not texts and level and isinstance(held.get("text"), str):
        texts = [held["text"]]  # a record of a logger, and no other data
    if not texts:
        return None
    about = strip(text[:start])
    when = next((held[key] for key in _TIME_KEYS if key in held), None)
    if isinstance(when, str) and about.time_s is None:
        timed = strip(when + " .")
        about.time_s, about.clock = timed.time_s, timed.clock
    elif isinstance(when, int | float) and about.time_s is None and 1e9 < when < 4e9:
        about.time_s, about.clock = float(when), "wall"
    about.level = about.level or strip(f"{level.upper()}: .").level
    if (level or when is not None) and "\n" not in texts[0]:
        texts[0] += _fields(held, texts)
    lines = [line.rstrip("\r") for one in texts for line in one.rstrip("\n").split("\n")]
    return [(line, about) for line in lines[:_MOST]]


def _texts(held: Mapping[str, object], keys: Sequence[str], depth: int = 0) -> Iterator[str]:
    """The texts of a record, and of the records within it that tell of an error; what was asked for is none."""
    for key in keys:
        said = held.get(key)
        if isinstance(said, str) and said.strip():
            yield said
    for name, each in held.items():
        if isinstance(each, dict) and depth < _DEEP and _TELLING.search(name):
            yield from _texts(each, keys, depth + 1)


def _fields(held: Mapping[str, object], texts: Sequence[str]) -> str:
    """What a logger's record says beside its message, as key=value: by that the same message of other work differs."""
    found = []
    for name, said in held.items():
        if name in _LEVEL_KEYS or name in _TIME_KEYS or said in texts:
            continue
        if isinstance(said, str):
            of_error = name == "text" and len(said) < LONGEST
            short = len(said) <= _LONGEST_FIELD and " " not in said
            told = of_error or short
        else:
            told = isinstance(said, int | float)
        if told:
            found.append(f" {name}={said}")
    return "".join(found[:_FIELDS])
