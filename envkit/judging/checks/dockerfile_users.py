"""Whether the users that a Dockerfile names are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envkit.dockerfile import options
from envkit.judging.checks import _cuda_stack as stack
from envkit.judging.checks._dockerfile import forgiven, need_stages
from envkit.judging.checks._outcomes import error, skip_if
from envkit.model import Finding, Span
from envkit.patterns import pattern
from envkit.subjects.dockerfile import Base, Dockerfile, Step

# Of /etc/passwd and /etc/group of Debian's base-passwd, and what packages that many images hold add to them.
_DEBIANS = options.names(
    "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody _apt nogroup adm "
    "tty disk dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff "
    "users kmem input sgx kvm render crontab netdev systemd-network systemd-journal systemd-timesync systemd-resolve "
    "messagebus sshd ssl-cert ssh docker syslog uuidd tss"
)
_MAKES = pattern(
    r"useradd|adduser|usermod|groupadd|addgroup|groupmod|newusers|vipw|/etc/(?:passwd|group)\b|passwd:|fixuid|homed"
)
_NAME = pattern(r"[a-z_][a-z0-9_-]*")
_CHOWN = pattern(r"--chown=(\S+)")


def user_missing(dockerfile: Dockerfile) -> Iterator[Finding]:
    """A user whom USER, COPY --chown or chown names exists in the image by then.  Source: Docker, "USER"; moby, "unable
    to find user NAME: no matching entries in passwd file"; Debian, base-passwd."""
    need_stages(dockerfile)
    asked = 0
    told: set[Span] = set()
    for index in dockerfile.reachable:
        base = dockerfile.stages[index].base
        steps = dockerfile.steps_of(index)
        for number, step in enumerate(steps):
            for name, span, so in _named(step):
                asked += 1
                if span in told or _of_system(name, base) or not _plain(base) or _may_bring(steps[: number + 1], name):
                    continue
                told.add(span)
                yield error(
                    f"{base.reference} has no user {name}, and no step before makes one, so that {so}",
                    span,
                    {f"no {name} among the users of {stack.said(base.os)}": base.span.place},
                    f"make it before: `RUN useradd --create-home {name}`",
                )
                break
    skip_if(not asked, "no user is named")


def _named(step: Step) -> Iterator[tuple[str, Span, str]]:
    """The names of users and groups that a step needs, each with its place and what comes of one that is missing."""
    if step.name == "USER":
        for name in _names(step.value.strip()):
            yield name, step.span, "the next RUN, and each start of the image, ends with `unable to find user`"
    elif step.name in ("COPY", "ADD"):
        for flag in step.flags:
            match = _CHOWN.fullmatch(flag)
            for name in _names(match[1]) if match else ():
                yield name, step.span, "the build ends here"
    elif step.name == "RUN":
        for at, command in enumerate(step.commands):
            if command.program == "chown" and command.sure and not forgiven(step, at):
                word = next((word for word in command.words[1:] if not word.text.startswith("-")), None)
                for name in _names(word.text) if word is not None and word.sure else ():
                    yield name, word.span if word is not None else step.span, "the build ends here"


def _names(owner: str) -> Iterator[str]:
    """The user and the group of "user:group" that are names, with nothing left open in them."""
    if "$" in owner:
        return
    for name in owner.strip("\"'").split(":")[:1]:
        if _NAME.fullmatch(name):
            yield name


def _of_system(name: str, base: Base) -> bool:
    """Whether a user may be one of the distribution's own; Ubuntu's images have the user ubuntu since 23.04."""
    release = re.match(r"ubuntu(\d+)", stack.said(base.os))
    return name in _DEBIANS or (name == "ubuntu" and release is not None and int(release[1]) > _LAST_WITHOUT_UBUNTU)


_LAST_WITHOUT_UBUNTU = 22  # of Ubuntu's years


def _plain(base: Base) -> bool:
    """Whether an image has the users of Debian or Ubuntu, and no other."""
    known = base.family in ("os", "nvidia", "python", "pytorch") and base.sure and not base.digest
    return known and bool(re.match(r"(?:debian|ubuntu)\d", stack.said(base.os)))


def _may_bring(steps: Sequence[Step], name: str) -> bool:
    """Whether a step may make the user: by its words, by a package of that name, or in a way that is not seen."""
    for step in steps:
        if step.copy is not None:
            foreign = step.copy.foreign
            if re.match(r"/(?:etc(?:/.*)?)?$", step.copy.target) and (foreign or step.copy.target != "/"):
                return True
        if step.name != "RUN":
            continue
        if _MAKES.search(step.value) or any(each.system for each in step.unread):
            return True
        if any(
            one.manager in ("apt", "dnf", "apk") and (not one.sure or _akin(one.name, name)) for one in step.installs
        ):
            return True
        for command in step.commands:
            script = command.program in ("sh", "bash", "dash", "zsh", ".", "source", "eval", "ansible-playbook", "dpkg")
            path = "/" in command.words[0].text and not re.match(r"/(?:usr/(?:local/)?)?s?bin/", command.words[0].text)
            made = any(_MAKES.search(word.text) for word in command.words)
            if made or (script and command.args) or path or not command.words[0].sure:
                return True
    return False


def _akin(package: str, user: str) -> bool:
    """Whether a package of the distribution may make a user of that name ("postgresql-14" makes postgres)."""
    stem = user.lstrip("_").removeprefix("debian-")[:4]
    return stem in package
