"""What a secret looks like in a file that people write, and what only looks like one."""

from __future__ import annotations

import re

from envkit.credentials import SHAPES
from envkit.dockerfile import options

_SHAPES = re.compile(rf"(?<![A-Za-z0-9_])(?:{SHAPES})|-----BEGIN [A-Z ]*PRIVATE KEY-----")
_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRET|SECRETS|CREDENTIALS?|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|SECRET_?KEY|AUTH_?KEY|LICENSE_?KEY|KEY_?SECRET)(?:$|_(?!FILE|PATH|DIR|NAME|ID|URL|TYPE|LENGTH|LEN|LIMIT|TTL|COUNT"
    r"|SIZE|TIMEOUT|EXPIR|HOST|PORT|PARALLEL|POLICY|MIN|MAX|METHOD|MODE))",
    re.IGNORECASE,
)
_GLUED = re.compile(r"(?:APIKEY|PASSWORD|PASSWD|SECRETKEY|ACCESSKEY|AUTHTOKEN)$", re.IGNORECASE)
_LONGEST = 200  # characters of a name or value that are looked at; no secret of a person is longer
_NOT_NAMES = re.compile(
    r"^(?:OLD)?PWD$|^MAX_|^NUM_|_(?:DIR|FILE|PATH|URL|ID)$|TOKENIZER|NO_?PASS|WITHOUT_PASSWORD", re.IGNORECASE
)
_STAND_INS = options.names(
    """your my the a an some insert enter put add change changeme replace fill set use example sample dummy fake test
    testing foo bar foobar todo placeholder redacted secret secrets password passwd pass pwd token tokens key keys none
    null nil false true yes no empty default undefined na here me it this api apikey access auth hf wandb huggingface
    github build time only not real value string user admin root postgres mysql redis docker jupyter notebook hidden
    sk pk id abc abcd abcdef qwerty letmein welcome local localhost dev demo"""
)
_COUNTED = re.compile(r"(?:0+|1?2?3?4?5?6?7?8?9?0?|(?:123)+|1+|9+)\Z")


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, and not where one lies or how long it is."""
    if len(name) > _LONGEST:
        return False
    return bool((_NAME.search(name) or _GLUED.search(name)) and not _NOT_NAMES.search(name))


def shape_in(text: str) -> re.Match[str] | None:
    """The first token in a text that is known by its shape and is no example of one."""
    for found in _SHAPES.finditer(text):
        body = found[0].rpartition("_")[2] or found[0]
        example = re.search(r"x{6}|X{6}|1234567|abcdef|EXAMPLE|your", body)
        if found[0].startswith("-") or (len(set(body)) > 5 and not example):
            return found
    return None


def placeholder(value: str) -> bool:
    """Whether a value stands for a secret that is to be put there, or is none that anybody could guard.

    Words without a digit are taken for stand-ins: secrets that programs make have digits.
    """
    text = value.strip()[:_LONGEST].strip("\"'")
    if len(text) < 6 or len(set(text)) < 4 or not re.search(r"[0-9]", text):
        return True
    if re.search(r"[<>{}\[\]$]|\.\.\.|%\w+%", text):
        return True
    words, numbers = re.findall(r"[A-Za-z]+", text), re.findall(r"[0-9]+", text)
    plain = all(word.lower() in _STAND_INS or len(set(word.lower())) == 1 for word in words)
    return plain and all(_COUNTED.match(number) for number in numbers)


def looks_real(value: str) -> bool:
    """Whether a value is long and mixed as only generated secrets are."""
    text = value.strip().strip("\"'")
    mixed = re.search(r"[0-9]", text) and re.search(r"[A-Za-z]", text) and " " not in text
    return len(text) >= 16 and bool(mixed)
