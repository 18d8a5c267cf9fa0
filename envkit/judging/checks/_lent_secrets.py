"""Build secrets that a RUN is lent by a mount, and that it writes into its layer all the same."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatch
from pathlib import PurePosixPath

from envkit.dockerfile.files import absolute
from envkit.dockerfile.tree import cloned, mounts
from envkit.patterns import pattern
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command, Step, Word

_WHERE = (
    "/run/secrets"  # where a mount without a target puts it.  Source: Dockerfile reference, RUN --mount=type=secret
)
_NO_LAYER = pattern(r"/(?:dev|proc|sys|run/secrets)(?:/|$)")
# What is mounted so for convenience and is no secret: certificates of an authority, keys of hosts, public keys.
_PUBLIC = pattern(r"(?:^|[^a-z])(?:ca|cacert|certs?|crt|bundle|known_hosts)(?:[^a-z]|$)|\.pub$", re.IGNORECASE)
_COPIES = frozenset({"cp", "mv", "install", "rsync"})
_PRINTS = frozenset({"echo", "printf", "cat", "sed", "envsubst", "base64", "tr", "jq", "head"})
# What takes a secret as a word and keeps it: the beginning of the command, the file, and how it is taken back.
_KEEPERS = (
    (pattern(r"git config .*--global\b.*"), "~/.gitconfig", pattern(r"git config .*--(?:unset|remove-section)")),
    (pattern(r"git config .*--system\b.*"), "/etc/gitconfig", pattern(r"git config .*--(?:unset|remove-section)")),
    (
        pattern(r"(?:npm|pnpm) (?:config )?set .*"),
        "~/.npmrc",
        pattern(r"p?npm (?:config )?(?:delete|rm|logout)"),
    ),
    (pattern(r"yarn config set .*"), "~/.yarnrc", pattern(r"yarn config (?:delete|unset)")),
    (pattern(r"pip3? config .*set .*"), "~/.config/pip/pip.conf", pattern(r"pip3? config .*unset")),
    (pattern(r"poetry config .*"), "~/.config/pypoetry/auth.toml", pattern(r"poetry config .*--unset")),
    (pattern(r"huggingface-cli login .*"), "~/.cache/huggingface/token", pattern(r"huggingface-cli logout")),
    (pattern(r"hf auth login .*"), "~/.cache/huggingface/token", pattern(r"hf auth logout")),
    (pattern(r"wandb login .*"), "~/.netrc", pattern(r"^$")),
)


@dataclass(slots=True)
class _Lent:
    """The secrets of one RUN: by the pattern that finds a mention of it, its name."""

    mentions: list[tuple[re.Pattern[str], str]] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)  # folders of mounts, which are no part of the layer

    def named(self, text: str) -> str:
        """The secret that a text mentions, else ""."""
        return next((name for mention, name in self.mentions if mention.search(text)), "")


@dataclass(frozen=True, slots=True)
class Kept:
    """A secret that a layer keeps: its name, the file in the layer, and the word that shows it."""

    secret: str
    file: str
    word: Word


def kept(step: Step) -> Iterator[Kept]:
    """Each secret that a RUN leaves in its layer, once for each file."""
    lent = _lent(step)
    if not lent.mentions or re.search(r"\btrap\b", step.value):
        return
    told: set[str] = set()
    for at, command in enumerate(step.commands):
        for one in _written(command, step.commands[at - 1] if at else None, lent):
            file = _path(one.file, command)
            held = _NO_LAYER.match(file) or any(file == each or file.startswith(f"{each}/") for each in lent.elsewhere)
            if not held and file not in told and not _taken_back(file, one, step.commands[at + 1 :]):
                told.add(file)
                yield one


def _lent(step: Step) -> _Lent:
    lent = _Lent()
    for mount in mounts(step.flags):
        target = mount["target"]
        if mount.get("type", "bind") != "secret":
            lent.elsewhere.append(posixpath.normpath(target or "/dev/null"))
            continue
        name = mount.get("id") or posixpath.basename(target) or mount.get("env", "")
        if not name or _PUBLIC.search(name) or _PUBLIC.search(target):
            continue
        variable = mount.get("env", "")
        if target or not variable:
            path = target if target.startswith("/") else f"{_WHERE}/{target or name}"
            lent.elsewhere.append(path)
            lent.mentions.append((re.compile(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])"), name))
            taken = rf"\b(\w+)=[\"']?\$\(\s*(?:cat\s+|<\s*)[\"']?{re.escape(path)}[\"']?\s*\)"
            variables = re.findall(taken, step.value)
        else:
            variables = [variable]
        lent.mentions += [(re.compile(rf"\$\{{?{each}\b"), name) for each in variables]
    return lent


def _written(command: Command, before: Command | None, lent: _Lent) -> Iterator[Kept]:
    """Where one command writes a secret to, whatever becomes of it."""
    if not command.sure:
        return
    words = command.words[1:]
    line = " ".join(word.raw for word in command.words)
    secret = lent.named(line) or lent.named(command.heredoc)
    read = next((lent.named(each.target.text) for each in command.redirects if each.op == "<"), "")
    targets = [each.target for each in command.redirects if each.op in (">", ">>", "1>", "1>>", "&>", ">|")]
    plain = [word for word in words if not word.text.startswith("-")]
    if command.program in _COPIES and len(plain) > 1:
        copied = next((name for word in plain[:-1] if (name := lent.named(word.text))), "")
        if copied:
            target = plain[-1]
            yield Kept(copied, _into(target.text, plain[-2].text), target)
    elif command.program == "dd":
        given = {key: word for word in words for key, _, _ in [word.text.partition("=")]}
        copied = lent.named(given["if"].text[3:]) if "if" in given else ""
        if copied and "of" in given:
            yield Kept(copied, given["of"].text[3:], given["of"])
    elif command.program == "tee":
        piped = before is not None and command.after in ("|", "|&")
        given_to = read or (lent.named(" ".join(word.raw for word in before.words)) if before and piped else "")
        if given_to:
            yield from (Kept(given_to, word.text, word) for word in plain)
    elif command.program in _PRINTS and (secret or read):
        yield from (Kept(secret or read, target.text, target) for target in targets)
        if command.program == "sed" and any(re.match(r"-[a-zE]*i", word.text) for word in words) and plain:
            yield Kept(secret, plain[-1].text, plain[-1])
    elif secret:
        clone = cloned(command)
        if clone is not None and lent.named(clone.url):
            yield Kept(secret, f"{clone.folder}/.git/config", command.words[0])
        for begin, file, undo in _KEEPERS:
            if begin.match(line) and not undo.search(line):
                yield Kept(secret, file, command.words[0])
                return


def _into(target: str, source: str) -> str:
    """The file that a copy makes: of a target that surely is a folder one below it."""
    return f"{target.rstrip('/')}/{posixpath.basename(source)}" if target.endswith(("/", ".")) else target


def _taken_back(file: str, one: Kept, behind: Sequence[Command]) -> bool:
    """Whether a later command of the same RUN removes the file, a folder above it, or the entry."""
    undo = next((undo for begin, path, undo in _KEEPERS if path == one.file), None)
    above = list(map(str, PurePosixPath(file).parents))[:-1]
    for command in behind:
        line = " ".join(word.raw for word in command.words)
        if undo is not None and undo.search(line):
            return True
        if command.program == "git" and "set-url" in command.args and file.endswith("/.git/config"):
            return True
        if command.program in ("rm", "shred", "unlink", "truncate", "find"):
            for word in command.args:
                path = _path(word, command)
                if (
                    path == file
                    or file.startswith(f"{path.rstrip('/')}/")
                    or any(fnmatch(each, path) for each in (file, *above))
                ):
                    return True
        if any(r.op in (">", ">|") and absolute(r.target.text, command.cwd) == file for r in command.redirects):
            return True
    return False


def _path(word: str, command: Command) -> str:
    """The path of a file that a command names, with its user's home in place of the tilde."""
    return absolute(re.sub(r"^~(?=/|$)", command.env.get("HOME") or "/root", word), command.cwd)
