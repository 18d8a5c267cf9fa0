"""What the simple commands of a shell do: builtins, wrappers such as sudo and env, scripts handed to another shell."""

from __future__ import annotations

import posixpath
import re
from abc import abstractmethod
from collections.abc import Sequence

from envkit.dockerfile import options, shell_words
from envkit.dockerfile import shell_values as values
from envkit.dockerfile.shell_syntax import DEPTH, Parser
from envkit.dockerfile.shell_tree import Assign, Node, Piece, Redir, Simple, Source, Token
from envkit.dockerfile.shell_words import Field, State, Status
from envkit.patterns import pattern
from envkit.records import replace
from envkit.subjects.dockerfile import Command, Redirect, Word

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_TESTS = frozenset({"[", "test", "grep", "egrep", "fgrep", "which", "type", "hash", "diff", "cmp", "getent"})
_SURE = frozenset({"true", ":", "echo", "printf", "export", "set", "unset", "umask", "shopt", "readonly", "trap"})
_ASSIGNED = pattern(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
WRAPPERS = options.names(
    "sudo env time nice ionice nohup exec command builtin stdbuf timeout xargs gosu su-exec setsid xvfb-run tini "
    "dumb-init runuser taskset"
)
LEADING = {"timeout": 1, "gosu": 1, "su-exec": 1, "taskset": 1}  # operands before the command


class Commands(shell_words.Expansion):
    """The simple commands of a script: what they do to the shell, and what they start."""

    @abstractmethod
    def node(self, node: Node, source: Source, state: State, after: str, must: bool) -> Status:
        """One command of any kind."""

    def redirects(self, redirs: Sequence[Redir], source: Source, state: State) -> tuple[Redirect, ...]:
        """Redirections with their targets expanded."""
        made: list[Redirect] = []
        for redir in redirs:
            if redir.op not in ("<<", "<<-"):
                made.append(Redirect(redir.fd + redir.op, self.single(redir.target, source, state)))
                continue
            raw = source.value[redir.target.start : redir.target.end]
            span = source.span(redir.target.start, redir.target.end)
            if redir.body is None:
                made.append(Redirect(redir.fd + redir.op, Word(redir.name, raw, span, quoted=not redir.expands)))
                continue
            body = redir.body
            if body.value:
                span = body.span(0, len(body.value))
            text, sure = body.value, True
            if redir.expands:
                bits = self.bits(redir.parts, body, state)
                text, sure = "".join(bit.text for bit in bits), all(bit.sure for bit in bits)
                pieces = [shell_words.piece_of(bit, bit.text, body) for bit in bits]
                self.bodies[id(redir)] = Source(text, body.text, pieces)
            made.append(Redirect(redir.fd + redir.op, Word(text, body.value, span, sure, not redir.expands)))
        return tuple(made)

    def simple(self, node: Simple, source: Source, state: State, after: str) -> Status:
        """A simple command: its words, its effects on the shell, and what it starts."""
        before = len(self.found)
        fields: list[Field] = []
        if not self.spend(words=len(node.words)):
            return Status.OPEN
        for item in node.words:
            if isinstance(item, Token):
                fields.extend(self.fields(item, source, state))
            else:
                fields.append(self.declared(item, source, state))
        redirects = (*self.redirects(node.redirects, source, state), *self.outer)
        if not fields:
            for item in node.assigns:
                self.assigned.append((item.name, self.assign(item, source, state)))
            return Status.TRUE if len(self.found) == before else Status.LIKELY
        assigns: dict[str, Word] = {}
        env = state.env
        if node.assigns:
            own = state.fork()
            for item in node.assigns:
                assigns[item.name] = self.assign(item, source, own)
            env = own.env
        span = source.span(node.start, node.end)
        known = state.functions.get(fields[0].word.text)
        if known is not None and fields[0].word.sure:
            return self.call(fields, known, state, after)
        words = tuple(each.word for each in fields)
        here = "".join(each.target.text for each in redirects if _is_here(each) and "\n" in each.target.text)
        sure = state.level == shell_words.CERTAIN
        command = Command(words, span, words, assigns, env, redirects, after, sure, state.cwd, here)
        return self.start(command, fields, node, source, state)

    def declared(self, item: Assign, source: Source, state: State) -> Field:
        """``name=value`` behind export, declare and their like: one word, whatever is in it."""
        raw = source.value[item.start : item.end]
        word = self.assign(item, source, state)
        text = source.value[item.start : item.value.start] + word.text
        made = Word(text, raw, word.span, word.sure, word.quoted)
        low, high = source.origin(item.start, item.end)
        return Field(made, source, item.value, (Piece(len(text), low, high, high - low == len(text)),))

    def call(self, fields: list[Field], known: tuple[Node, Source], state: State, after: str) -> Status:
        """A function in place of its call; what calls go too deep into one another for is not read."""
        if self.depth >= DEPTH - 2:
            self.complete = False
            return Status.OPEN
        name = fields[0].word.text
        self.called.add(name)
        node, source = known
        args, doubt, level = state.args, state.doubt, state.level
        state.args = _texts([each.word for each in fields[1:]])
        self.depth += 1
        status = self.node(node, source, state, after, False)
        self.depth -= 1
        state.args = args
        if state.stop in ("return", "return false"):
            status = Status.FALSE if state.stop == "return false" else Status.TRUE
        elif "return" in state.doubt - doubt and status is not Status.OPEN:
            status = Status.LIKELY
        self.ended(state, level, doubt, ("return",))
        return status

    def start(self, command: Command, fields: list[Field], node: Simple, source: Source, state: State) -> Status:
        """What a command does to the shell, and what it starts when its wrappers are taken off."""
        command, fields = self.unwrapped(command, fields)
        nested = self.nested(command, fields, node, state)
        if nested is not None:
            return nested
        self.found.append(command)
        name = command.words[0].text
        args = command.words[1:]
        match name:
            case "[" | "test":
                words = args[:-1] if name == "[" and args and args[-1].text == "]" else args
                return shell_words.status_of(values.test(words))
            case "true" | ":":
                return Status.TRUE
            case "false":
                return Status.FALSE
            case "cd" | "chdir" | "pushd":
                self.moved(name, args, state)
            case "popd":
                state.cwd = state.folders[-1] if state.folders else ""
                state.folders = state.folders[:-1]
            case "export" | "declare" | "typeset" | "local" | "readonly" | "unset" | "read" | "mapfile" | "readarray":
                self.changed(name, args, state)
            case "set":
                self.options(args, state)
            case "shift" if state.args is not None:
                count = int(args[0].text) if args and re.fullmatch(r"\d{1,4}", args[0].text) else 1
                state.args = state.args[count:]
            case "getopts" if len(args) > 1:
                self.put(args[1].text, None, state)
            case "printf" if args and args[0].text == "-v" and len(args) > 1:
                self.put(args[1].text, None, state)
            case "exit" | "return" | "break" | "continue":
                return self.left(name, args, state)
            case "exec" if args:
                pass
            case _:
                if command.raw_words[0].text == "exec" and state.level == shell_words.CERTAIN:
                    state.stop = "exit"  # the shell is no more
                return Status.OPEN if _is_test(command) else Status.TRUE if name in _SURE else Status.LIKELY
        return Status.TRUE if name in _SURE else Status.LIKELY

    def moved(self, name: str, args: Sequence[Word], state: State) -> None:
        """``cd`` and ``pushd``."""
        words = [word for word in args if word.text not in ("-P", "-L", "--", "-e")]
        before = state.cwd
        if name == "pushd":
            state.folders = (*state.folders[-64:], before)
        if not words:
            state.cwd = self.get("HOME", state)[0] or ""
        elif words[0].text == "-":
            state.cwd = state.previous
        elif not words[0].sure or may_glob(words[0]):
            state.cwd = ""
        elif words[0].text.startswith("/"):
            state.cwd = _normal(words[0].text)
        else:
            state.cwd = _normal(posixpath.join(before, words[0].text)) if before else ""
        if len(state.cwd) > 4096:
            state.cwd = ""  # longer than a path may be
        state.previous = before

    def changed(self, name: str, args: Sequence[Word], state: State) -> None:
        """Builtins that change variables; assignments written as such were done before."""
        if name in ("unset", "read", "mapfile", "readarray"):
            for word in args:
                if shell_words.NAME.fullmatch(word.text):
                    self.put(word.text, None, state)
                    if name == "unset":
                        state.functions = {k: v for k, v in state.functions.items() if k != word.text}
            return
        for word in args:
            found = _ASSIGNED.fullmatch(word.text)
            if found and not re.match(r"[A-Za-z_]\w*\+?=", word.raw):  # a name that an expansion made
                self.put(found[1], found[2] if word.sure else None, state)

    def options(self, args: Sequence[Word], state: State) -> None:
        """``set``: the words behind its options are the positional parameters."""
        index = 0
        while index < len(args):
            text = args[index].text
            if text == "--":
                index += 1
                break
            if text[:1] not in ("-", "+") or len(text) < 2:
                break
            index += 2 if text[1:] and text[-1] == "o" else 1
        else:
            if not args or args[-1].text != "--":
                return
        state.args = _texts(args[index:])

    def left(self, name: str, args: Sequence[Word], state: State) -> Status:
        """``exit``, ``return``, ``break`` and ``continue``."""
        code = args[0].text if args else "0"
        failed = name in ("exit", "return") and code != "0"
        if state.level == shell_words.UNLIKELY:
            return Status.LIKELY  # the way of a build that fails
        if name == "exit":
            state.stop = "fail" if failed else "exit"
        elif name == "return":
            state.stop = "return false" if failed else "return"
        else:
            state.stop = name
        return Status.FALSE if failed else Status.TRUE

    def unwrapped(self, command: Command, fields: list[Field]) -> tuple[Command, list[Field]]:
        """Takes sudo, env, time and their like off."""
        at = 0
        assigns: dict[str, Word] = {}
        removed: set[str] = set()
        while at < len(fields):
            name = posixpath.basename(fields[at].word.text)
            if name not in WRAPPERS or not fields[at].word.sure:
                break
            step = self.wrapper(name, fields, at, assigns, removed)
            if step is None:
                break
            at = step
        if not at:
            return command, fields
        fields, env = fields[at:], command.env
        if assigns or removed:
            env = {key: value for key, value in env.items() if key not in removed}
            env.update({key: word.text for key, word in assigns.items() if word.sure})
        words = tuple(each.word for each in fields)
        return replace(command, words=words, assigns={**command.assigns, **assigns}, env=env), fields

    def wrapper(
        self, name: str, fields: list[Field], at: int, assigns: dict[str, Word], removed: set[str]
    ) -> int | None:
        """Where the command begins that the wrapper at ``at`` starts; None where it starts none."""
        valued = options.valued(name).values
        at += 1
        while at < len(fields):
            text = fields[at].word.text
            if text == "--":
                at += 1
                break
            if not text.startswith("-") or (text == "-" and name != "env"):
                break
            if name in ("command", "exec") and re.fullmatch(r"-[a-z]*[vV][a-z]*", text):
                return None  # a question
            if name == "sudo" and text in ("-l", "-v", "-V", "-e", "-k") and at == len(fields) - 1:
                return None
            at += 1
            takes = text in valued
            if not takes and text[:2] != "--" and len(text) > 2 and name in ("sudo", "xargs"):
                takes = f"-{text[-1]}" in valued and not any(f"-{char}" in valued for char in text[1:-1])
            if takes and at < len(fields):
                if name == "env" and text in ("-u", "--unset"):
                    removed.add(fields[at].word.text)
                at += 1
        if name in ("sudo", "env"):
            while at < len(fields):
                word = fields[at].word
                found = _ASSIGNED.fullmatch(word.text)
                if not found:
                    break
                assigns[found[1]] = replace(word, text=found[2])
                at += 1
        at += LEADING.get(name, 0)
        return at if at < len(fields) else None

    def nested(self, command: Command, fields: list[Field], node: Simple, state: State) -> Status | None:
        """A script that the command hands to a shell, walked; None where it hands none."""
        if command.program == "eval" and command.args[:2] == ("set", "--"):
            state.args = self.parsed_again(command.words[3:], state.args)
            return Status.TRUE
        at = _within_conda(command.words)  # conda runs a shell, and all that this starts
        sourced = self.sourced(command)
        found = sourced or self.handed(replace(command, words=command.words[at:]) if at else command, fields[at:], node)
        if found is None:
            return None
        script, args, same, bash = found
        if not self.spend(characters=len(script.value)) or self.depth >= DEPTH - 2:
            self.complete = False
            return None
        parser = Parser(script, self.depth + 1)
        body = parser.seq(frozenset())
        parser.close()
        inner = state if same else state.fork()
        if not same:
            inner.functions = {}
            inner.arrays = {}
            inner.args = args
            if command.assigns:
                inner.env = dict(command.env)
            inner.doubt = frozenset()
        own, file = state.args, state.file
        if sourced is not None:
            state.file = command.words[1].text
            state.args = args if len(command.words) > 2 else own
        before, outer, was = len(self.found), self.outer, self.bash
        self.bash = bash or (same and was)
        self.outer = tuple(each for each in command.redirects if not _is_here(each))
        level = inner.level
        if parser.broken:
            self.complete = False
        status = self.seq(body, script, inner, command.after, False)
        self.outer, self.bash = outer, was
        if sourced is not None:
            state.file, state.args = file, own if len(command.words) > 2 else state.args
            if state.stop in ("return", "return false"):
                state.stop = ""
        if same and not state.stop:
            state.level = level
        prefix = command.raw_words
        for index in range(before, len(self.found)):
            one = self.found[index]
            one = replace(one, assigns={**command.assigns, **one.assigns}) if command.assigns else one
            if at:
                one = replace(one, words=(*command.words[:at], *one.words))
            if one.raw_words == one.words:
                one = replace(one, raw_words=prefix)
            self.found[index] = one
        return status

    def parsed_again(self, words: Sequence[Word], args: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The parameters after ``eval set -- "$X"``: what getopt makes of them where they all are long options without
        a value, which it leaves as they are and ends with "--"; else nobody knows."""
        found = re.fullmatch(r"\"?\$\{?(\w+)\}?\"?", words[0].raw) if len(words) == 1 else None
        made = next((word.raw for name, word in reversed(self.assigned) if found and name == found[1]), "")
        plain = args is not None and all(re.fullmatch(r"--[\w-]+", each) for each in args)
        parsed = re.search(r"\bgetopt\b.*\$[@*]", made, re.DOTALL)
        return (*args, "--") if args is not None and plain and parsed else None

    def sourced(self, command: Command) -> tuple[Source, tuple[str, ...] | None, bool, bool] | None:
        """The file that ``.`` and ``source`` read into the shell itself, as ``handed`` says it."""
        words = command.words
        if words[0].text not in (".", "source") or len(words) < 2 or not words[1].sure or self.read is None:
            return None
        text = self.read(words[1].text, command.cwd)
        return None if text is None else (Source(text.value, text), _texts(words[2:]), True, self.bash)

    def handed(
        self, command: Command, fields: list[Field], node: Simple
    ) -> tuple[Source, tuple[str, ...] | None, bool, bool] | None:
        """The script, its arguments, whether the shell itself runs it, and whether bash does."""
        name = command.program
        words = command.words
        if name == "eval" and len(words) > 1:
            if len(words) > 2:
                self.complete = False  # words that are joined to a script are not read
            script = self.script_of(fields[1]) if len(words) == 2 else None
            return None if script is None else (script, None, True, False)
        if name in ("su", "runuser", "script", "sg"):
            at = next((i for i, word in enumerate(words) if word.text in ("-c", "--command", "-lc", "-qc")), 0)
            script = self.script_of(fields[at + 1]) if at and at + 1 < len(words) else None
            return None if script is None else (script, (), False, self.bash)
        if name == "busybox" and len(words) > 1 and words[1].text in SHELLS:
            fields, words = fields[1:], words[1:]
            name = words[0].text
        if name not in SHELLS or not words[0].sure:
            return None
        at, has, reads = shell_options(words)
        rest = words[at + 2 :] if has else words[at:]
        if has:
            script = self.script_of(fields[at]) if at < len(words) else None
        else:
            script = self.here_script(node) if reads or not rest else None
        args = _texts(rest)
        return None if script is None else (script, args, False, name != "sh" and name != "dash")

    def here_script(self, node: Simple) -> Source | None:
        """The here-document that a command reads as its standard input."""
        for redir in reversed(node.redirects):
            if redir.op in ("<<", "<<-") and redir.body is not None and not redir.fd:
                return self.bodies.get(id(redir), redir.body)
        return None

    def ended(self, state: State, level: int, doubt: frozenset[str], ends: tuple[str, ...]) -> None:
        """After a loop or function: what ends it (``break``, ``return``) ends here, and so does the doubt about it."""
        if state.stop.split()[:1] and state.stop.split()[0] in ends:
            state.stop = ""
        state.doubt = (state.doubt - set(ends)) | doubt
        if not state.stop:
            state.level = min(level, shell_words.MAYBE) if state.doubt else level


def _within_conda(words: Sequence[Word]) -> int:
    """Where the shell stands that ``conda run`` starts, 0 where it starts none."""
    if words[0].text not in ("conda", "mamba", "micromamba") or len(words) < 3 or words[1].text != "run":
        return 0
    return next((at for at, word in enumerate(words) if at > 1 and word.sure and word.text in SHELLS), 0)


def _texts(words: Sequence[Word]) -> tuple[str, ...] | None:
    """The words as parameters of a script, None where one of them is not known."""
    return tuple(word.text for word in words) if all(word.sure for word in words) else None


def shell_options(words: Sequence[Word]) -> tuple[int, bool, bool]:
    """The index of a shell's first operand, whether that is a script (``-c``), and whether it reads one (``-s``)."""
    at = 1
    has = reads = False
    while at < len(words):
        text = words[at].text
        if text == "--" or text == "-":
            return at + 1, has, reads
        if text[:1] not in ("-", "+") or not words[at].sure:
            break
        at += 1
        if text.startswith("--"):
            at += text in ("--rcfile", "--init-file")
            continue
        has = has or (text[0] == "-" and "c" in text)
        reads = reads or (text[0] == "-" and "s" in text)
        at += text.count("o") + text.count("O")
    return at, has, reads


def may_glob(word: Word) -> bool:
    """Whether file names may take a word's place."""
    return any(char in word.text for char in "*?[")


def _is_here(redirect: Redirect) -> bool:
    """Whether a redirection is a here-document for the standard input."""
    return redirect.op in ("<<", "<<-")


def _is_test(command: Command) -> bool:
    """Whether a command asks rather than does, so that either answer is expected."""
    name = command.program
    args = command.args
    if name in _TESTS:
        return True
    return (name == "command" and args[:1] in (("-v",), ("-V",))) or (
        name in ("dpkg", "rpm", "pip", "pip3", "conda") and args[:1] in (("-s",), ("-l",), ("-q",), ("show",))
    )


def _normal(path: str) -> str:
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path
