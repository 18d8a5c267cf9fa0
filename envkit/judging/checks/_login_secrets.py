"""Passwords among the words of programs that log in somewhere or that set a user's password."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envkit.credentials import SECRET, looks_real, plain_password
from envkit.judging.checks._outcomes import found
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Word

_FIX = "pass it as a build secret, `RUN --mount=type=secret,id=NAME,env=NAME`, or at run time, and revoke this one"
_MYSQL = pattern(r"(?:mysql|mariadb)(?:-?(?:dump|admin|import|check))?\Z")
# By program, the options whose next word, or whose own end, is the password.  Source: their manual pages.
_OPTIONS = {
    "useradd": ("-p", "--password"),
    "usermod": ("-p", "--password"),
    "redis-cli": ("-a", "--pass"),
}
_CURL = ("-u", "--user", "-U", "--proxy-user")
_NOBODY = frozenset({"anonymous", "ftp", "guest", "oauth2", "x-oauth-basic", "x-access-token"})


def clear(span: Span, message: str, severity: Severity) -> Finding:
    """What is told of a secret in clear text; ``span`` is the secret, or the instruction that has it."""
    return found(message, span, severity, _FIX, {SECRET: span.place})


def logins(command: Command) -> Iterator[Finding]:
    """The passwords that a command is given as such, whatever the words around them are."""
    for word, option, password in _given(command):
        if _told(password):
            severity = Severity.ERROR if looks_real(password) else Severity.WARNING
            yield clear(word.span, f"{option} of {command.program} is given a password in clear text", severity)


def _given(command: Command) -> Iterator[tuple[Word, str, str]]:
    """Each word that holds a password by its place, with its option and the password itself."""
    program, before = command.program, ""
    mysql = _MYSQL.match(program) is not None
    if program == "sshpass":
        yield from _of_sshpass(command.words[1:])
        return
    for word in command.words[1:]:
        raw = word.raw
        bare = raw.strip("\"'")
        if mysql and raw.startswith("-p"):
            yield word, "-p", raw[2:].strip("\"'")
        elif program == "curl":
            pair = bare if before in _CURL else raw[2:] if raw[:2] in ("-u", "-U") else ""
            option = before if before in _CURL else raw[:2]
            if raw.startswith(("--user=", "--proxy-user=")):
                option, _, pair = raw.partition("=")
            user, _, password = pair.strip("\"'").partition(":")
            if user.lower() not in _NOBODY:
                yield word, option, password
        elif before in _OPTIONS.get(program, ()):
            yield word, before, bare
        before = raw


def _of_sshpass(words: Sequence[Word]) -> Iterator[tuple[Word, str, str]]:
    """Its own -p: behind its options stands the command that it starts, with options of that."""
    own = words[1:] if words and words[0].raw == "-v" else words
    if len(own) > 1 and own[0].raw == "-p":
        yield own[1], "-p", own[1].raw.strip("\"'")
    elif own and own[0].raw.startswith("-p"):
        yield own[0], "-p", own[0].raw[2:].strip("\"'")


def _told(password: str) -> bool:
    """Whether a password is one that a person chose, and neither a stand-in nor a variable."""
    return plain_password(password) and re.search(r"[$<{%`]", password) is None
