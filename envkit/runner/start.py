"""How a container of an image starts its job, and how the payload starts in the place of the job's Python.

An image's ENTRYPOINT and CMD are one command line.  What stands before its Python (an init, an entry point's script,
a shell with what it runs first) stays as it is, and so do the Python's own options; its program and what follows give
way to the payload, which so meets the variables, preloads, working folder and Python that the job would meet.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envkit.dockerfile import shell
from envkit.dockerfile.instructions import Text
from envkit.dockerfile.shell_commands import SHELLS
from envkit.dockerfile.starting import PYTHON, RUNNERS, handed_on, is_job, unwrapped
from envkit.engine import DeclaredStart
from envkit.engine import Start as CommandLine
from envkit.records import dataclass
from envkit.subjects.dockerfile import Command

DEFAULT = "python3"  # what is taken for the job's Python where nothing names a job
GUARD = "/usr/share/envkit/guard.py"  # envkit's own entry point, which becomes the command behind it
SAYS = "envkit start: "  # how a line of _RESOLVE on stderr begins
NO_PYTHON = 126  # its exit code for a program that is not Python's
_CHANGING = ("env", "sudo", "gosu", "su-exec", "runuser")  # wrappers that change variables or the user
_DEEPEST = 4  # scripts and shells that start one another
_MOST_SCRIPT = 1 << 16  # bytes of a script; entry points have a few hundred lines
# Options of Python that ask a question or change who reads the program; -c and -m are its program.
_ASKING = re.compile(r"-[bBdEIOPqsSuvx]*[?hVi]|--(?:version|help.*)")
# Finds the Python of a program by the PATH that is in force when the entry point has done its part, and becomes it.
# pip writes the second form where a path is too long for the kernel.
_RESOLVE = r"""p=$(command -v -- "$1") || { echo "envkit start: there is no program $1 on PATH" >&2; exit 127; }
case $p in */*) ;; *) echo "envkit start: $p is a command of the shell" >&2; exit 126 ;; esac
{ IFS= read -r a; IFS= read -r b; } <"$p"
case $a in
"#!"*python*) set -f; l=${a#??} ;;
"#!/bin/sh"*) l=${b#"'''exec' "}; l=${l%' "$0" "$@"'}; l=${l#'"'}; l=${l%'"'}
  case $l in *python*) ;; *) echo "envkit start: $p is a script for a shell" >&2; exit 126 ;; esac ;;
*) echo "envkit start: $p is no Python program" >&2; exit 126 ;;
esac
shift
exec $l "$@"
"""


class Unclear(Exception):
    """Why it is not known how a job starts its Python; the text is the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """How the payload takes the place of a job's Python.

    ``words`` gives the container's whole command line for the payload's own words.  ``python`` is the word that names
    the Python, or the program whose Python it is.  ``folder`` is what Python puts first on its path, relative to the
    working folder that it is started in; None where that is nothing of the job's.  ``through`` is what runs before the
    Python and may change what it meets.
    """

    words: CommandLine
    python: str
    folder: str | None = None
    through: tuple[str, ...] = ()

    def behind(self, *through: str) -> Place:
        """The same behind what ``through`` names."""
        return replace(self, through=(*through, *self.through))


@dataclass(frozen=True, slots=True)
class Override:
    """What a file says of a start, to be laid over an image's own: ``declared`` gives what is then in force.

    ``name`` is what a person calls it.  ``mounts`` are files and folders of this machine by their place in the
    container.  ``unknown`` are variables whose values the file does not hold.
    """

    name: str
    declared: Callable[[DeclaredStart], DeclaredStart]
    mounts: Mapping[str, Path]
    unknown: tuple[str, ...] = ()


Read = Callable[[str], bytes | None]  # the content of a file of the image by its absolute path, None if there is none


def planned(declared: DeclaredStart, command: Sequence[str], read: Read) -> tuple[tuple[str, ...], Place]:
    """The command line of the job that ``declared`` starts, with ``command`` in the place of CMD if that is given; and
    how the payload takes its Python's place.

    Nothing, or a shell that waits for somebody to type, is taken for one that starts DEFAULT.  Raises Unclear.
    """
    behind = tuple(command) or declared.command
    job = (*declared.entrypoint, *behind)
    if not behind and not declared.entrypoint:
        return (DEFAULT,), Place(lambda own: [DEFAULT, *own], DEFAULT)
    return job, _Planner(declared, len(declared.entrypoint), read).start(job)


@dataclass(frozen=True, slots=True)
class _Planner:
    declared: DeclaredStart
    entry: int  # how many words are the entry point's
    read: Read

    def start(self, words: tuple[str, ...], depth: int = 0, before: int = 0) -> Place:
        """The start of the command line ``words``, of which ``before`` words are not in the image's own command."""
        if depth > _DEEPEST:
            raise Unclear("it starts scripts and shells in one another deeper than envkit follows")
        at = unwrapped(words)
        if at >= len(words):
            raise Unclear(f"`{shlex.join(words)}` starts no program")
        changing = [posixpath.basename(word) for word in words[:at] if posixpath.basename(word) in _CHANGING]
        return self._started(words, at, depth, before).behind(*changing)

    def _started(self, words: tuple[str, ...], at: int, depth: int, before: int) -> Place:
        """The start of ``words``, whose word ``at`` is the first that is no wrapper."""
        head = words[at]
        name = posixpath.basename(head)
        if PYTHON.fullmatch(name):
            if GUARD in words[at:]:
                return self.passed_on(words, words.index("--", at) + 1, depth).behind(GUARD)
            return _interpreter(words, at)
        if name in SHELLS:
            return self.shell(words, at, depth)
        if name in RUNNERS:
            return self.passed_on(words, _python_word(words, at, head), depth).behind(f"{name} run")
        script = self.content(head)
        if script is None and "/" not in head:
            return _resolved(words, at)
        if script is None:  # the engine says so when it is started
            entry = self.entry - before
            if at < entry < len(words):
                return self.passed_on(words, entry, depth).behind(head)
            return Place(lambda own: [*words], head)
        line = script.split(b"\n", 1)[0].decode("utf-8", "replace")
        interpreter = tuple(line[2:].split()) if line.startswith("#!") else ()
        if not interpreter:
            if at < self.entry - before < len(words):  # a program of the entry point: it should become the command
                return self.passed_on(words, self.entry - before, depth).behind(head)
            raise Unclear(f"{head} is a program in another language, which may or may not start a Python")
        last = posixpath.basename(interpreter[-1])
        if PYTHON.fullmatch(last):
            return Place(lambda own: [*words[:at], *interpreter, *own], head, posixpath.dirname(head))
        if last not in SHELLS:
            raise Unclear(f"{head} is a script for {last}")
        text = script.decode("utf-8", "replace")
        whole = (*words[:at], *interpreter, "-c", text, *words[at:])
        made = self.text(whole, at + len(interpreter) + 1, depth, (words, at + 1))
        return made.behind(*self.reads(last, " ".join(interpreter[1:])), head)

    def reads(self, shell: str, options: str) -> tuple[str, ...]:
        """What a shell with these options reads before its script: the files of a login, and BASH_ENV of a bash."""
        login = ("the login shell " + shell,) if re.search(r"(?:^|\s)-\w*l|--login", options) else ()
        file = self.declared.environment.get("BASH_ENV", "") if shell == "bash" else ""
        return (*login, *((f"BASH_ENV ({file})",) if file else ()))

    def content(self, program: str) -> bytes | None:
        """The file of a program, None if there is none or only the container's own PATH knows where it is."""
        if "/" in program:
            return self.read(posixpath.normpath(posixpath.join(self.declared.workdir or "/", program)))
        if not program.endswith(".sh"):
            return None
        path = self.declared.environment.get("PATH", "")
        folders = [folder for folder in path.split(":") if folder.startswith("/")]
        return next(filter(None, (self.read(posixpath.join(folder, program)) for folder in folders)), None)

    def passed_on(self, words: tuple[str, ...], at: int, depth: int) -> Place:
        """The start of ``words`` whose first ``at`` run those behind them."""
        if at >= len(words):
            return Place(lambda own: [*words, DEFAULT, *own], DEFAULT)
        inner = self.start(words[at:], depth + 1, at)
        return replace(inner, words=lambda own: [*words[:at], *inner.words(own)])

    def shell(self, words: tuple[str, ...], at: int, depth: int) -> Place:
        """The start of a shell: its text, its script, or what somebody would type."""
        made, options = self._of_shell(words, at, depth)
        return made.behind(*self.reads(posixpath.basename(words[at]), options))

    def _of_shell(self, words: tuple[str, ...], at: int, depth: int) -> tuple[Place, str]:
        """The start, and the shell's own options."""
        index = at + 1
        while index < len(words) and words[index][:1] in ("-", "+") and words[index] != "--":
            if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", words[index]):
                index += 1
                while index < len(words) and words[index][:1] in ("-", "+"):
                    index += 2 if words[index].endswith("o") else 1
                if index == len(words):
                    raise Unclear(f"{words[at]} is given no text to run")
                options = " ".join(words[at + 1 : index])
                return self.text(words, index, depth).behind(*_set_before(words[index])), options
            index += 2 if words[index].endswith(("o", "O", "--rcfile", "--init-file")) else 1
        options = " ".join(words[at + 1 : index])
        if index == len(words):
            return Place(lambda own: [*words, "-c", 'exec "$@"', words[at], DEFAULT, *own], DEFAULT), options
        script = self.content(words[index] if "/" in words[index] else f"./{words[index]}")
        if script is None:
            raise Unclear(f"the image has no {words[index]}, which {words[at]} is to run")
        whole = (*words[:index], "-c", script.decode("utf-8", "replace"), *words[index:])
        return self.text(whole, index + 1, depth, (words, index + 1)).behind(words[index]), options

    def text(
        self, words: tuple[str, ...], at: int, depth: int, file: tuple[tuple[str, ...], int] | None = None
    ) -> Place:
        """The start of a shell's text, which is the word ``at``: its last command, in whose place the payload runs.

        ``file`` is the command line where the text is that of a script, and which of its words the script is given.
        """
        text = words[at]
        if len(text) > _MOST_SCRIPT:
            raise Unclear(f"it runs a script of {len(text):,} characters")
        if handed_on(text):  # whatever else it starts where it is given nothing
            given = file or (words, at + 2)
            if given[1] > len(given[0]):
                raise Unclear("its script runs the words that it is given, and it is given none")
            return self.passed_on(*given, depth)
        script = shell.commands(Text.of(text, ""), {}, dialect="bash")
        if not script.complete or not script.commands:
            raise Unclear("it runs a script that envkit cannot read to its end")
        last = next((one for one in reversed(script.commands) if is_job(one)), None)
        given = file or (words, at + 1)
        if last is None and given[1] < len(given[0]):  # it is run, and shows what becomes of the words
            return self.passed_on(*given, depth)
        if last is None:
            raise Unclear("it runs a script, and which of its commands is the job is not known")
        begin, end = _offset(text, *_begin(last)), _offset(text, last.span.end_line, last.span.end_column)
        named = last.words[0]
        head = _offset(text, named.span.line, named.span.column)
        if not named.sure:
            raise Unclear(f"its script starts `{named.raw}`, whose value is not known before it runs")
        if posixpath.basename(text[begin:end].split()[0]) in SHELLS or begin > head:
            raise Unclear("its script starts another shell")
        inner = self.start(tuple(word.text for word in last.words), depth + 1, len(words))
        if inner.words(())[:1] == [named.text]:  # the Python itself: it stays as it is written
            kept = text[begin:head] + named.raw

            def piece(own: Sequence[str]) -> str:
                return " ".join(filter(None, (kept, shlex.join(inner.words(own)[1:]))))
        else:

            def piece(own: Sequence[str]) -> str:
                return text[begin:head] + shlex.join(inner.words(own))

        lead = "" if text[begin:head].startswith("exec ") else "exec "
        return Place(
            lambda own: [*words[:at], text[:begin] + lead + piece(own) + text[end:], *words[at + 1 :]],
            inner.python,
            inner.folder,
            inner.through,
        )


def _set_before(text: str) -> tuple[str, ...]:
    """Whether a shell's text does more than start one program."""
    return ("the shell's text",) if re.search(r"[;&|=\n]|\bsource\s", text) else ()


def _begin(command: Command) -> tuple[int, int]:
    """Line and column of a command's first word, behind the variables that are set for it alone."""
    return command.raw_words[0].span.line, command.raw_words[0].span.column


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + column - 1


def _python_word(words: tuple[str, ...], at: int, head: str) -> int:
    """Where the command of a program begins that runs another: at its first word that names a Python or a script."""
    for index in range(at + 1, len(words)):
        name = posixpath.basename(words[index])
        if PYTHON.fullmatch(name) or name in SHELLS or name == "torchrun":
            return index
        if words[index] == "--":
            return index + 1
    raise Unclear(f"which of the words behind {head} is the job's program is not known")


def _interpreter(words: tuple[str, ...], at: int) -> Place:
    """The start where the word ``at`` is a Python: its options stay, its program gives way."""
    index, folder = at + 1, ""
    while index < len(words):
        word = words[index]
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            index += 2
        elif word in ("-c", "-m", "-", "--") or word.startswith(("-c", "-m")):
            break
        elif _ASKING.fullmatch(word):
            raise Unclear(f"`{word}` is no option of a job's Python")
        elif word.startswith("-"):
            index += 1
        else:
            folder = posixpath.dirname(word)
            break
    kept = words[: min(index, len(words))]
    return Place(lambda own: [*kept, *own], words[at], folder)


def _resolved(words: tuple[str, ...], at: int) -> Place:
    """The start where the word ``at`` is a program on PATH, such as torchrun or vllm."""
    before = (*words[:at], "sh", "-c", _RESOLVE, "sh", words[at])
    return Place(lambda own: [*before, *own], words[at])
