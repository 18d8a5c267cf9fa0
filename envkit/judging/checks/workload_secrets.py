"""Secrets that a compose file, a manifest or a devcontainer.json holds in clear text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.credentials import SECRET, looks_chosen, looks_real, placeholder, shape_in, surely_names_secret
from envkit.judging.checks._outcomes import found, skip_if
from envkit.judging.checks._workload import need_containers
from envkit.model import Finding, Severity
from envkit.subjects.workload import Container, FileValue, Workload

_OPTION = re.compile(r"--?(?:[\w-]*-)?(?:password|passwd|token|api-key|apikey|secret)\Z", re.IGNORECASE)
# Names of what a person may have chosen himself.
_CHOSEN = re.compile(r"passw(?:or)?d|passphrase|(?:^|_)(?:pass|pwd)(?:_|$)|(?:^|_)token$|pass$", re.IGNORECASE)
_FIXES = {
    "compose": "write `${NAME}` and keep the value in a file that git ignores, or use `secrets:`, and revoke this one",
    "kubernetes": "take it from a Secret by `valueFrom: {secretKeyRef: ...}`, and revoke this one",
    "devcontainer": 'write "${localEnv:NAME}", and revoke this one',
    "workflow": "write `${{ secrets.NAME }}` and keep the value among the repository's secrets, and revoke this one",
    **dict.fromkeys(
        ("slurm", "makefile"), "take it from a file that git ignores or from the environment, and revoke this one"
    ),
    "helm": "take it from a Secret that the chart names, and revoke this one",
}


def workload_secret_in_file(workload: Workload) -> Iterator[Finding]:
    """No token and no long password stands in the file, which everybody has who has the repository."""
    asked = 0
    for one in need_containers(workload):
        asked += len(one.env) + len(one.command) + len(one.build_args)
        for what, said in _values(one):
            severity = _secret(what, said.value) if said.sure else None
            if severity is not None:
                yield found(
                    f"`{one.name}` is given {what} in clear text",
                    said.span,
                    severity,
                    _FIXES[workload.kind],
                    {SECRET: said.span.place},
                )
    skip_if(not asked, "no container is given a variable or a command")


def _values(one: Container) -> Iterator[tuple[str, FileValue]]:
    """What a container is given, with its name: variables, arguments of its build, and the words of its command behind
    their options."""
    for name, said in (*one.env.items(), *one.build_args.items()):
        if said is not None:
            yield name, said
    before = ""
    for word in one.command:
        yield before if _OPTION.fullmatch(before) else "a word of its command", word
        before = word.value


def _secret(what: str, value: str) -> Severity | None:
    """What a token that is known by its shape is worth, or a long value or a password under a name that says so."""
    if shape_in(value) is not None:
        return Severity.ERROR
    named = surely_names_secret(what) or what.startswith("-")
    if not named or re.search(r"[$<{]", value) or placeholder(value):
        return None
    if looks_real(value):
        return Severity.ERROR
    return Severity.WARNING if _CHOSEN.search(what) and looks_chosen(value) else None
