"""Secrets that a Dockerfile puts into the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envkit.credentials import (
    SECRET,
    looks_chosen,
    looks_real,
    placeholder,
    plain_password,
    shape_in,
    surely_names_secret,
)
from envkit.judging.checks._dockerfile import reached
from envkit.judging.checks._lent_secrets import kept
from envkit.judging.checks._login_secrets import clear, logins
from envkit.judging.checks._outcomes import found, skip_if
from envkit.model import Finding, Severity, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Command, Dockerfile, Setting, Step, Word

_REFERENCE = pattern(r"\$\{?(\w+)")
_WHOLE = pattern(r"[\"]?\$\{?(\w+)\}?[\"]?")  # a variable and nothing else
_USERINFO = pattern(r"://([^\s/:@\"']{0,200}):?([^\s/@\"']{0,200})@")
_OPTION = pattern(r"--?(?:[\w-]*-)?(?:password|passwd|token|api-key|apikey|secret)\Z", re.IGNORECASE)
_SHORTEST = 15  # characters of a token that is known by its shape
_TESTS = frozenset({"test", "[", "[[", "unset"})
_SET_PASSWORDS = frozenset({"chpasswd", "openssl", "passwd"})
_WRITES = frozenset({"echo", "printf", "cat", "tee"})
# Files from which git, curl, pip, npm, AWS, Kaggle and Docker read what they prove themselves with.
_STORES = pattern(
    r"(?:^|[/~])[._](?:netrc|pypirc|npmrc|git-credentials|pgpass)\Z|\.aws/credentials\Z|kaggle\.json\Z|\.docker/config\.json\Z"
)
_STORED = pattern(
    r"(password|_authToken|aws_secret_access_key|key|auth)[\"']?(?:\s*[:=]\s*|\s+)[\"']?([^\s\"',]{6,200})",
    re.IGNORECASE,
)
# Of these the ones that hold nothing but that, and the private keys of ssh.
_HELD = pattern(
    r"(?:^|/)(?:\.netrc|\.pypirc|\.git-credentials|\.pgpass|\.aws/credentials|kaggle\.json|id_(?:rsa|dsa|ecdsa|ed25519))\Z"
)
# A name of a variable that holds the password itself, which may be a word that a person chose.
_PASSWORD = pattern(r"(?:^|_)PASSW(?:OR)?D\Z", re.IGNORECASE)
# Jupyter's own functions, which take the password that its server asks for.
_JUPYTER = pattern(r"\b(?:set_password|passwd)\(\s*(?:password\s*=\s*|passphrase\s*=\s*)?([\"'])([^\"'$]{1,200})\1")


def secret_in_env(dockerfile: Dockerfile) -> Iterator[Finding]:
    """No secret is written into ENV, ARG or a command, where the image or its history keeps it."""
    asked = 0
    told: set[Span] = set()
    args_of = {
        index: {s.name for step in dockerfile.stages[index].steps for s in step.settings if s.kind == "ARG"}
        for index in dockerfile.reachable
    }
    for index, step in reached(dockerfile):
        args = args_of[index]
        for setting in step.settings:
            asked += 1
            yield from _setting(setting, args)
        # The history of an image has the RUNs of its own stages, with the values of the arguments that they were given.
        kept = args if step.name == "RUN" and index in dockerfile.lineage else set[str]()
        before: Command | None = None
        for command in step.commands:
            asked += 1
            for finding in (
                *_command(command),
                *(_password(before, command, kept) if command.program in _SET_PASSWORDS else ()),
                *logins(command),
                *(_given(command, kept) if kept else ()),
                *(_stored(command) if command.program in _WRITES else ()),
            ):
                if finding.span is not None and finding.span not in told:
                    told.add(finding.span)
                    yield finding
            before = command
    yield from _passed(dockerfile, told)
    yield from _lent(dockerfile)
    copied = list(_copied(dockerfile))
    yield from copied
    asked += len(copied)
    skip_if(not asked, "the file sets no variable and runs nothing")


def _lent(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A build secret that the RUN which is lent it leaves in a layer of the image."""
    for index in dockerfile.lineage:
        for step in dockerfile.stages[index].steps if index in dockerfile.reachable else ():
            for one in kept(step) if step.name == "RUN" else ():
                yield found(
                    f"the layer of this RUN keeps the build secret {one.secret} in {one.file}",
                    one.word.span,
                    Severity.WARNING,
                    "read it where it is mounted, or remove the file in the same RUN",
                    {SECRET: step.span.place},
                )


def _copied(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A file of credentials that COPY or ADD puts into a layer of the image."""
    for index in dockerfile.lineage:
        for step in dockerfile.stages[index].steps:
            copy = step.copy
            if copy is None or copy.foreign:
                continue
            for source in copy.sources:
                name = source.rpartition("/")[2]
                into = copy.target.rstrip("/")
                places = (source, into, f"{into}/{name}")
                held = next((place for place in places if _HELD.search(place)), "")
                if held and "://" not in source:
                    yield found(
                        f"{held.rpartition('/')[2]} holds credentials, and a layer of the image keeps it",
                        copy.span,
                        Severity.WARNING,
                        "mount it where it is needed, `RUN --mount=type=secret,id=NAME,target=PATH`, or at run time",
                    )
                    break


def _passed(dockerfile: Dockerfile, told: set[Span]) -> Iterator[Finding]:
    """A build argument under a secret's name that no command names: a program may read it as a variable, and the
    history keeps the arguments of each RUN behind it with their values, those that it does not use among them."""
    lines = {span.line for span in told}
    for index in dockerfile.lineage:
        steps = dockerfile.stages[index].steps
        for at, step in enumerate(steps):
            behind = [each for each in steps[at + 1 :] if each.name == "RUN"]
            for setting in step.settings if behind else ():
                if setting.kind != "ARG" or setting.value or not surely_names_secret(setting.name):
                    continue
                if any(_names(each, setting.name) for each in steps[at + 1 :]) or setting.span.line in lines:
                    continue
                yield clear(
                    setting.span,
                    f"the history of the image keeps the value of the build argument {setting.name} with each RUN",
                    Severity.WARNING,
                )


def _names(step: Step, name: str) -> bool:
    """Whether an instruction names a variable."""
    return bool(re.search(rf"\$\{{?{name}\b", step.value)) or any(each.name == name for each in step.settings)


def _setting(setting: Setting, args: set[str]) -> Iterator[Finding]:
    raw = setting.raw.strip().strip("\"'")
    references = _REFERENCE.findall(setting.raw)
    known = shape_in(raw)
    if known is not None:
        yield clear(setting.span, f"{setting.kind} {setting.name} holds a token in clear text", Severity.ERROR)
        return
    if not surely_names_secret(setting.name) or setting.kind == "LABEL":
        return
    if references:
        whole = _WHOLE.fullmatch(setting.raw.strip())  # then the argument is the secret, whatever its own name says
        passed = next((name for name in references if name in args and (whole or surely_names_secret(name))), "")
        if setting.kind == "ENV" and passed and not re.search(r"\$\{\w+:?\+", setting.raw):
            yield clear(
                setting.span,
                f"ENV {setting.name} keeps the build argument {passed} in the image, readable by everybody who has it",
                Severity.WARNING,
            )
        return
    if not placeholder(raw):
        severity = Severity.ERROR if looks_real(raw) else Severity.WARNING
        yield clear(setting.span, f"{setting.kind} {setting.name} holds a secret in clear text", severity)
    elif setting.kind == "ENV" and _PASSWORD.search(setting.name) and plain_password(raw):
        yield clear(setting.span, f"ENV {setting.name} holds a password in clear text", Severity.WARNING)


def _command(command: Command) -> Iterator[Finding]:
    for name, word in command.assigns.items():
        if surely_names_secret(name) and not _REFERENCE.search(word.raw) and not placeholder(word.text) and word.sure:
            severity = Severity.ERROR if looks_real(word.text) else Severity.WARNING
            yield clear(word.span, f"the assignment of {name} holds a secret in clear text", severity)
    program, before = command.program, ""
    for word in command.words:
        raw = word.raw
        named, (name, equals, value) = _is_option(before), raw.partition("=")
        userinfo = _USERINFO.search(raw) if "@" in raw else None
        if len(raw) >= _SHORTEST and shape_in(raw) is not None:
            yield clear(word.span, f"the command {program} is given a token in clear text", Severity.ERROR)
        elif userinfo and not _REFERENCE.search(userinfo[0]) and _real_userinfo(userinfo[1], userinfo[2]):
            yield clear(word.span, f"the address given to {program} holds a password", Severity.ERROR)
        elif program in ("export", "declare") and equals and surely_names_secret(name):
            if not _REFERENCE.search(value) and not placeholder(value):
                severity = Severity.ERROR if looks_real(value) else Severity.WARNING
                yield clear(word.span, f"the assignment of {name} holds a secret in clear text", severity)
        elif equals and _is_option(name) and not _REFERENCE.search(value) and (_real(value) or _chosen(value)):
            severity = Severity.ERROR if _real(value) else Severity.WARNING
            yield clear(word.span, f"{program} is given a secret in clear text by {name}", severity)
        elif named and not _REFERENCE.search(raw) and not raw.startswith("-") and _real(raw):
            yield clear(word.span, f"{program} is given a secret in clear text by {before}", Severity.ERROR)
        elif (named or (before == "-p" and _logs_in(command))) and _chosen(raw):
            yield clear(word.span, f"{program} is given a secret in clear text by {before}", Severity.WARNING)
        elif before == "-c" and re.search(r"\b(?:notebook|jupyter_server)\.auth\b", raw) and _JUPYTER.search(raw):
            yield clear(word.span, "Jupyter is given its password in clear text", Severity.WARNING)
        elif program == "wandb" and before == "login" and re.fullmatch(r"[0-9a-f]{40}", raw):
            yield clear(word.span, "wandb is given its key in clear text", Severity.ERROR)
        before = raw


def _logs_in(command: Command) -> bool:
    """Whether a command logs in at a registry, where -p is --password (docker, podman, buildah, skopeo, helm)."""
    return "login" in command.args and command.program in ("docker", "podman", "buildah", "skopeo", "helm", "oras")


def _is_option(word: str) -> bool:
    """Whether a word is the name of an option that takes a secret."""
    return word[:1] == "-" and bool(_OPTION.fullmatch(word))


def _password(before: Command | None, command: Command, args: set[str]) -> Iterator[Finding]:
    """A password in clear text, or a build argument, whatever its name is, that an echo before it gives to chpasswd,
    which takes lines of name:password, or that openssl is to hash."""
    hashed = _hashed(command)
    if hashed is not None:
        passed = _WHOLE.fullmatch(hashed.raw)
        if not re.search(r"[$<%`]", hashed.raw):
            yield clear(hashed.span, "openssl is given a password in clear text to hash", Severity.WARNING)
        elif passed and passed[1] in args and not surely_names_secret(passed[1]):
            yield _kept(hashed.span, "openssl", passed[1])
    if before is not None and command.program == "passwd" and "--stdin" in command.args and command.after == "|":
        chosen = before.words[-1] if before.program in ("echo", "printf") and len(before.words) > 1 else None
        if chosen is not None and chosen.sure and not re.search(r"[$%<`]", chosen.text):
            yield clear(chosen.span, "passwd is given a password in clear text", Severity.WARNING)
    encrypted = any(word in ("-e", "--encrypted") for word in command.args)
    if command.program != "chpasswd" or encrypted:
        return
    piped = before is not None and command.after in ("|", "|&") and before.program in ("echo", "printf")
    lines = [redirect.target for redirect in command.redirects if redirect.op == "<<<"]
    for word in (*(before.words[1:] if before is not None and piped else ()), *lines):
        user, colon, password = word.text.partition(":")
        if colon and word.sure and password and not re.search(r"[$%<]", word.text) and re.fullmatch(r"[\w.-]+", user):
            yield clear(command.span, f"chpasswd is given the password of {user} in clear text", Severity.WARNING)
        passed = _WHOLE.fullmatch(word.raw.strip('"').rpartition(":")[2])
        if colon and passed and "'" not in word.raw and passed[1] in args and not surely_names_secret(passed[1]):
            yield _kept(command.span, "chpasswd", passed[1])


def _hashed(command: Command) -> Word | None:
    """The word that `openssl passwd` hashes, None where it reads its input or a file."""
    if command.program != "openssl" or command.args[:1] != ("passwd",) or {"-stdin", "-in"} & set(command.args):
        return None
    rest = command.words[2:]
    plain = [word for at, word in enumerate(rest) if word.text[:1] != "-" and (not at or rest[at - 1].text != "-salt")]
    return plain[0] if len(plain) == 1 and command.sure else None


def _kept(span: Span, program: str, name: str) -> Finding:
    message = f"{program} is given the build argument {name}, whose value the history of the image keeps"
    return clear(span, message, Severity.WARNING)


def _given(command: Command, args: set[str]) -> Iterator[Finding]:
    """A build argument under a secret's name that a command gets in a word or as a variable; a test of it is none."""
    if command.program in _TESTS:
        return
    told: set[str] = set()
    files = [redirect.target for redirect in command.redirects if redirect.op == "<<<"]
    for word in (*command.assigns.values(), *command.words[1:], *files):
        passed = next((each for each in _REFERENCE.findall(word.raw) if each in args and surely_names_secret(each)), "")
        if passed and passed not in told and not re.search(r"\$\{\w+:?[+?]|'[^']*\$[^']*'", word.raw):
            told.add(passed)
            yield _kept(word.span, command.program, passed)


def _stored(command: Command) -> Iterator[Finding]:
    """A password or token in clear text that is written into a file which tools read their credentials from."""
    targets = [redirect.target.text for redirect in command.redirects if redirect.op.startswith((">", "1>", "&>"))]
    targets += list(command.args) if command.program == "tee" else []
    file = next((target for target in targets if _STORES.search(target)), "")
    if not file:
        return
    for text in (" ".join(command.args), command.heredoc):
        for key, value in _STORED.findall(text):
            if not re.search(r"[$<{%]", value) and not placeholder(value) and command.sure:
                severity = Severity.ERROR if looks_real(value) else Severity.WARNING
                yield clear(command.span, f"{file} is written with a {key.lower()} in clear text", severity)
                return


def _real(value: str) -> bool:
    return not placeholder(value) and looks_real(value)


def _chosen(value: str) -> bool:
    """Whether a value is a password in clear text, long or not."""
    if value.startswith("-"):  # another option
        return False
    return not re.search(r"[$<{]", value) and not placeholder(value) and (looks_real(value) or looks_chosen(value))


def _real_userinfo(user: str, password: str) -> bool:
    """A password that is none of the usual stand-ins; a user alone is one where it looks like a token."""
    if not password:
        return _real(user)
    return not placeholder(password) and password not in ("x-oauth-basic", "oauth2") and len(password) >= 6
