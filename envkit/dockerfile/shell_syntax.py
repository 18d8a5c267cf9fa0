"""The grammar of the shell: a script's text becomes a tree, and each piece of it knows where it stands in the file.

POSIX shell and the parts of bash that people write in Dockerfiles.  Nothing is run and nothing is looked up here;
``shell.py`` walks the tree.  The source of every rule is POSIX.1-2017, Shell & Utilities, chapter 2, and bash(1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from envkit.dockerfile import shell_tree as tree
from envkit.patterns import pattern

DEPTH = 50  # constructs inside one another; what is deeper is not read
COUNT = 50_000  # commands of one script; what follows is not read

_BLANK = pattern(r"(?:[ \t\r\f\v]|\\\r?\n)+")
_PLAIN = pattern(r"[A-Za-z0-9_./:=+,@%^*?\[\]!\-][A-Za-z0-9_./:=+,@%^*?\[\]#!\-]*(?=[\s;&|<>)]|\Z)")
_IN_WORD = pattern(r"[^\s;&|<>()\\'\"`$]+")
_IN_QUOTES = pattern(r"[^\"\\`$]+")
_IN_HERE = pattern(r"[^\\`$]+")
_IN_BRACE = pattern(r"[^}\\'\"`$]+")
_IN_QUOTED_BRACE = pattern(r"[^}\\\"`$]+")
_IN_PATTERN = pattern(r"[^}/\\'\"`$]+")
_ASSIGN = pattern(r"([A-Za-z_]\w*)(\[[^\]\s]*\])?(\+?)=", re.ASCII)
_REDIR = pattern(r"(\d*)(<<<|<<-|<<|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|(&>>|&>)")
_RESERVED = pattern(
    r"(if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|\[\[|!|\{|\})(?=[\s;&|<>()]|\Z)"
)
_STRAY = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_SIMPLE_VAR = pattern(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_BRACE_VAR = pattern(
    r"([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(\[[^\]]*\])?(:[-=+?]|[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@|(?=\}))", re.ASCII
)
_FUNCTION = pattern(r"[ \t]*\([ \t]*\)")
_FUNCTION_NAME = pattern(r"[^\s;&|<>()\\'\"`$=]+")
_ANSI = pattern(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_CONDITION_END = pattern(r"\s\]\]")
_DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})


class Parser:
    """Reads one Source; it never raises, and says in ``broken`` that a shell would have refused the text."""

    def __init__(self, source: tree.Source, depth: int = 0, here: Sequence[tree.HereText] = ()) -> None:
        self.source = source
        self.value = source.value
        self.size = len(source.value)
        self.pos = 0
        self.depth = depth
        self.broken = False
        self.pending: list[tree.Redir] = []
        self.here = list(here)
        self.count = 0

    # Blanks, newlines and comments

    def blanks(self) -> None:
        """Skips blanks and continued lines."""
        found = _BLANK.match(self.value, self.pos)
        if found:
            self.pos = found.end()

    def lines(self) -> None:
        """Skips blanks, newlines, comments and the here-documents that the newlines begin."""
        value = self.value
        while self.pos < self.size:
            self.blanks()
            char = value[self.pos : self.pos + 1]
            if char == "#":
                self._comment()
            elif char == "\n":
                self.pos += 1
                if self.pending:
                    self._bodies()
            else:
                return

    def _comment(self) -> None:
        end = self.value.find("\n", self.pos)
        self.pos = self.size if end < 0 else end

    def _bodies(self) -> None:
        """The here-documents whose operators stood on the line just read."""
        pending, self.pending = self.pending, []
        for redir in pending:
            pieces: list[tree.Piece] = []
            chunks: list[str] = []
            while self.pos < self.size:
                end = self.value.find("\n", self.pos)
                end = self.size if end < 0 else end
                start = self.pos
                if redir.op == "<<-":
                    while start < end and self.value[start] == "\t":
                        start += 1
                line = self.value[start:end]
                self.pos = min(end + 1, self.size)
                if line.rstrip("\r") == redir.name:
                    break
                chunks.append(self.value[start : self.pos])
                low, high = self.source.origin(start, self.pos)
                pieces.append(tree.Piece(self.pos - start, low, high, high - low == self.pos - start))
            self._body(redir, tree.Source("".join(chunks), self.source.text, pieces))

    def _body(self, redir: tree.Redir, body: tree.Source) -> None:
        redir.body = body
        if redir.expands and self.depth < DEPTH:
            inner = Parser(body, self.depth + 1)
            redir.parts = inner.parts("here", True)
            self.broken = self.broken or inner.broken

    def close(self) -> None:
        """To be called at the end: here-documents that the text does not hold stay without a body."""
        if self.pending and self.pos < self.size:
            self._bodies()

    # Words

    def word(self) -> tree.Token:
        """The word that begins here."""
        found = _PLAIN.match(self.value, self.pos)
        start = self.pos
        if found:
            self.pos = found.end()
            return tree.Token(start, self.pos, found.group())
        parts = self.parts("word", False)
        return tree.Token(start, self.pos, None, parts)

    def parts(self, until: str, quoted: bool) -> tuple[tree.Part, ...]:
        """Parts up to the end of a word, a quote, a brace, a slash or the text, whose closing character stays."""
        if self.depth >= DEPTH:
            self._give_up()
            return ()
        self.depth += 1
        found: list[tree.Part] = []
        inside = _CHUNKS[until, quoted]
        opaque = self.source.opaque
        while self.pos < self.size:
            if opaque and self.pos in opaque:
                found.append(tree.Part("opaque", self.pos, opaque[self.pos], quoted=quoted))
                self.pos = opaque[self.pos]
                continue
            chunk = inside.match(self.value, self.pos)
            if chunk:
                end = chunk.end()
                found.append(tree.Part("lit", self.pos, end, chunk.group(), quoted))
                self.pos = end
                continue
            char = self.value[self.pos]
            if char == "\\":
                self._escaped(found, until, quoted)
            elif char == "$":
                self._dollar(found, until, quoted)
            elif char == "`":
                self._backquotes(found, quoted)
            elif char == "'" and not (quoted and until != "word"):
                self._single(found)
            elif char == '"' and until not in ("quote", "here"):
                self.pos += 1
                start = self.pos
                inner = self.parts("quote", True)
                found.extend(inner or (tree.Part("lit", start, start, "", True),))
                self._skip('"')
            elif until == "word" and char in "<>" and self.value.startswith("(", self.pos + 1):
                self._process(found)
            elif until == "word" and char == "(" and self.value[self.pos - 1 : self.pos] in ("?", "*", "+", "@", "!"):
                end = self._balanced(self.pos + 1, 1)  # an extended glob
                end = self.size if end < 0 else end
                found.append(tree.Part("lit", self.pos, end, self.value[self.pos : end]))
                self.pos = end
            else:
                break
        self.depth -= 1
        return tuple(found)

    def _skip(self, char: str) -> None:
        if self.value.startswith(char, self.pos):
            self.pos += len(char)
        else:
            self.broken = True

    def _give_up(self) -> None:
        """Too deep: the rest is not read."""
        self.broken = True
        self.pos = self.size

    def _escaped(self, found: list[tree.Part], until: str, quoted: bool) -> None:
        start = self.pos
        after = self.value[start + 1 : start + 2]
        self.pos += 2 if after else 1
        if after == "\n":
            return
        if after == "\r" and self.value.startswith("\n", start + 2):
            self.pos += 1
            return
        special = '$`\\"}' if until == "brace" else '$`\\"' if until == "quote" else "$`\\"
        stays = not after or (quoted and after not in special)
        found.append(tree.Part("lit", start, self.pos, "\\" + after if stays else after, True))

    def _single(self, found: list[tree.Part]) -> None:
        start = self.pos + 1
        end = self.value.find("'", start)
        if end < 0:
            self.broken = True
            end = self.size
        found.append(tree.Part("lit", start, end, self.value[start:end], True))
        self.pos = min(end + 1, self.size)

    def _dollar(self, found: list[tree.Part], until: str, quoted: bool) -> None:
        start = self.pos
        value = self.value
        after = value[start + 1 : start + 2]
        if after == "(":
            if value.startswith("(", start + 2):
                end = self._balanced(start + 3, 2)
                if end > 0 and value[end - 2] == ")":
                    self.pos = end
                    found.append(tree.Part("arith", start, end, value[start + 3 : end - 2], quoted))
                    return
            self.pos = start + 2
            body = self.seq(frozenset({")"}))
            self._skip(")")
            found.append(tree.Part("cmd", start, self.pos, "", quoted, body=body))
        elif after == "{":
            self._braced(found, quoted)
        elif after == "[":
            end = value.find("]", start)
            end = self.size if end < 0 else end + 1
            found.append(tree.Part("arith", start, end, value[start + 2 : end - 1], quoted))
            self.pos = end
        elif after == "'" and not quoted:
            # The escapes of $'...' are not decoded: what it stands for is not known.
            quote = _ANSI.match(value, start)
            self.broken = self.broken or quote is None
            self.pos = quote.end() if quote else self.size
            found.append(tree.Part("opaque", start, self.pos, quoted=True))
        elif after == '"' and not quoted:
            self.pos += 1  # a translated string is a string
        else:
            name = _SIMPLE_VAR.match(value, start + 1)
            if name:
                self.pos = name.end()
                found.append(tree.Part("var", start, self.pos, name.group(), quoted))
            else:
                self.pos += 1
                found.append(tree.Part("lit", start, self.pos, "$", quoted))

    def _braced(self, found: list[tree.Part], quoted: bool) -> None:
        """``${...}``; a form that is not known keeps an operator that nothing decides."""
        start = self.pos
        name = _BRACE_VAR.match(self.value, start + 2)
        if name and name[1] == "#" and name[4]:
            name = None
        if name is None and self.value.startswith("${#}", start):
            self.pos = start + 4
            found.append(tree.Part("var", start, self.pos, "#", quoted))
            return
        if name is None:
            self.pos = start + 2
            self.parts("brace", quoted)
            self._skip("}")
            found.append(tree.Part("var", start, self.pos, "", quoted, "bad"))
            return
        op = {"#": "length", "!": "indirect"}.get(name[1]) or name[4]
        if name[1] and name[4]:
            op = "bad"
        self.pos = name.end()
        first: tuple[tree.Part, ...] = ()
        second: tuple[tree.Part, ...] | None = None
        if name[4] in ("/", "//"):
            first = self.parts("slash", False)
            if self.value.startswith("/", self.pos):
                self.pos += 1
                second = self.parts("brace", quoted)
        elif name[4] in ("#", "##", "%", "%%"):
            first = self.parts("brace", False)
        elif name[4]:
            first = self.parts("brace", quoted)
        self._skip("}")
        index = (name[3] or "")[1:-1]
        found.append(tree.Part("var", start, self.pos, name[2], quoted, op, first, second, index=index))

    def _backquotes(self, found: list[tree.Part], quoted: bool) -> None:
        start = self.pos
        self.pos += 1
        chunks: list[str] = []
        pieces: list[tree.Piece] = []
        begin = self.pos
        special = ("`", "\\", "$", '"') if quoted else ("`", "\\", "$")

        def add(text: str, low: int, high: int) -> None:
            """One stretch of the inner script."""
            if text:
                origin = self.source.origin(low, high)
                chunks.append(text)
                pieces.append(tree.Piece(len(text), *origin, exact=origin[1] - origin[0] == len(text)))

        while self.pos < self.size and self.value[self.pos] != "`":
            if self.value[self.pos] == "\\" and self.value[self.pos + 1 : self.pos + 2] in special:
                add(self.value[begin : self.pos], begin, self.pos)
                begin = self.pos + 1
                self.pos += 2
            else:
                self.pos += 1
        add(self.value[begin : self.pos], begin, self.pos)
        self._skip("`")
        inner = tree.Source("".join(chunks), self.source.text, pieces)
        body = None
        if self.depth < DEPTH:
            parser = Parser(inner, self.depth + 1)
            body = parser.seq(frozenset())
            self.broken = self.broken or parser.broken
        else:
            self._give_up()
        found.append(tree.Part("cmd", start, self.pos, "", quoted, body=body, source=inner))

    def _process(self, found: list[tree.Part]) -> None:
        """``<(command)`` and ``>(command)``."""
        start = self.pos
        self.pos += 2
        body = self.seq(frozenset({")"}))
        self._skip(")")
        found.append(tree.Part("proc", start, self.pos, body=body))

    def _balanced(self, start: int, depth: int) -> int:
        """The position after the parenthesis that closes ``depth`` open ones, -1 where none does."""
        for found in re.compile(r"[()]").finditer(self.value, start):
            depth += 1 if found.group() == "(" else -1
            if depth == 0:
                return found.end()
        return -1

    # Lists of commands

    def seq(self, closers: frozenset[str]) -> tree.Seq:
        """Commands up to one of ``closers``, which stays unread, or to the end of the text."""
        result = tree.Seq([], set())
        if self.depth >= DEPTH:
            self._give_up()
            return result
        self.depth += 1
        value = self.value
        while True:
            self.lines()
            if self.pos >= self.size:
                break
            char = value[self.pos]
            if char == ")":
                if ")" in closers:
                    break
                self.broken = True
                self.pos += 1
                continue
            if char == ";":
                if value.startswith(";;", self.pos) or value.startswith(";&", self.pos):
                    if ";;" in closers:
                        break
                    self.broken = True
                self.pos += 1
                continue
            reserved = self._closer()
            if reserved:
                if reserved in closers:
                    break
                self.broken = True
                self.pos += len(reserved)
                continue
            before = self.pos
            self.count += 1
            if self.count > COUNT:
                self._give_up()
                break
            result.items.append(self.and_or())
            self.blanks()
            char = value[self.pos : self.pos + 1]
            if char == "&":
                result.background.add(len(result.items) - 1)
                self.pos += 1
            elif char == ";" and value[self.pos + 1 : self.pos + 2] not in (";", "&"):
                self.pos += 1
            elif self.pos == before:
                self.broken = True
                self.pos += 1
        self.depth -= 1
        return result

    def _closer(self) -> str:
        """The reserved word here that ends a construct, "" where there is none."""
        if self.value[self.pos] not in "tefd}":
            return ""
        found = _RESERVED.match(self.value, self.pos)
        return found[1] if found and found[1] in _STRAY else ""

    def and_or(self) -> tree.Node:
        """Pipelines joined by ``&&`` and ``||``."""
        items = [self.pipeline()]
        ops: list[str] = []
        while True:
            self.blanks()
            op = self.value[self.pos : self.pos + 2]
            if op not in ("&&", "||"):
                break
            self.pos += 2
            self.lines()
            ops.append(op)
            items.append(self.pipeline())
        return items[0] if not ops else tree.AndOr(items, ops)

    def pipeline(self) -> tree.Node:
        """Commands joined by ``|`` and ``|&``."""
        negated = False
        while True:
            self.blanks()
            found = _RESERVED.match(self.value, self.pos)
            if found and found[1] == "!":
                negated = not negated
                self.pos = found.end()
            else:
                break
        items = [self.command()]
        ops: list[str] = []
        while True:
            self.blanks()
            if not self.value.startswith("|", self.pos) or self.value.startswith("||", self.pos):
                break
            op = "|&" if self.value.startswith("|&", self.pos) else "|"
            self.pos += len(op)
            self.lines()
            ops.append(op)
            items.append(self.command())
        return items[0] if not ops and not negated else tree.Pipeline(items, ops, negated)

    def command(self) -> tree.Node:
        """A simple or compound command, or a definition."""
        value = self.value
        self.blanks()
        char = value[self.pos : self.pos + 1]
        if char == "(":
            return self._parenthesis()
        if char and char in "ifwucs[{":
            found = _RESERVED.match(value, self.pos)
            reader = _COMPOUND.get(found[1]) if found else None
            if found and reader:
                if self.depth >= DEPTH:
                    self._give_up()
                    return tree.Simple(self.pos, self.pos, [], [], [])
                self.pos = found.end()
                self.depth += 1
                node = reader(self)
                self.depth -= 1
                return node
        return self._simple()

    def _parenthesis(self) -> tree.Node:
        if self.value.startswith("((", self.pos):
            end = self._balanced(self.pos + 2, 2)
            if end > 0 and self.value[end - 2] == ")":
                text = self.value[self.pos + 2 : end - 2]
                self.pos = end
                return tree.Arithmetic(text, self._redirects())
        self.pos += 1
        body = self.seq(frozenset({")"}))
        self._skip(")")
        return tree.Block(body, True, self._redirects())

    def _group(self) -> tree.Node:
        body = self.seq(frozenset({"}"}))
        self._skip("}")
        return tree.Block(body, False, self._redirects())

    def _if(self) -> tree.Node:
        clauses: list[tuple[tree.Seq, tree.Seq]] = []
        otherwise: tree.Seq | None = None
        while True:
            condition = self.seq(frozenset({"then"}))
            self._skip("then")
            clauses.append((condition, self.seq(frozenset({"elif", "else", "fi"}))))
            if self._take("elif"):
                continue
            if self._take("else"):
                otherwise = self.seq(frozenset({"fi"}))
            break
        self._skip("fi")
        return tree.If(clauses, otherwise, self._redirects())

    def _take(self, word: str) -> bool:
        if self.pos < self.size and self._closer() == word:
            self.pos += len(word)
            return True
        return False

    def _loop(self, until: bool) -> tree.Node:
        condition = self.seq(frozenset({"do"}))
        body = self._do()
        return tree.Loop(condition, body, until, self._redirects())

    def _do(self) -> tree.Seq:
        self._skip("do")
        body = self.seq(frozenset({"done"}))
        self._skip("done")
        return body

    def _for(self) -> tree.Node:
        self.blanks()
        name = ""
        words: list[tree.Token] | None = None
        if self.value.startswith("((", self.pos):
            end = self._balanced(self.pos + 2, 2)
            self.pos = self.size if end < 0 else end
        else:
            found = _SIMPLE_VAR.match(self.value, self.pos)
            if not found:
                self.broken = True
            else:
                name = found.group()
                self.pos = found.end()
            self.lines()
            if re.compile(r"in(?=[\s;]|\Z)").match(self.value, self.pos):
                self.pos += 2
                words = self._words()
        self.blanks()
        if self.value.startswith(";", self.pos):
            self.pos += 1
        self.lines()
        if self.value.startswith("{", self.pos):
            self.pos += 1
            body = self.seq(frozenset({"}"}))
            self._skip("}")
        else:
            body = self._do()
        return tree.For(name, words, body, self._redirects())

    def _words(self) -> list[tree.Token]:
        """Words up to the end of the line."""
        words: list[tree.Token] = []
        while True:
            self.blanks()
            if self.pos >= self.size or self.value[self.pos] in "\n;&|)":
                return words
            before = self.pos
            words.append(self.word())
            if self.pos == before:
                self.broken = True
                words.pop()
                return words

    def _case(self) -> tree.Node:
        self.blanks()
        word = self.word()
        self.lines()
        self._skip("in")
        branches: list[tuple[list[tree.Token], tree.Seq, str]] = []
        while True:
            self.lines()
            if self.pos >= self.size or self._take("esac"):
                if self.pos >= self.size and not self.value.endswith("esac"):
                    self.broken = True
                return tree.Case(word, branches, self._redirects())
            before = self.pos
            if self.value[self.pos] == "(":
                self.pos += 1
            patterns: list[tree.Token] = []
            while True:
                self.blanks()
                patterns.append(self.word())
                self.blanks()
                if not self.value.startswith("|", self.pos):
                    break
                self.pos += 1
            self._skip(")")
            body = self.seq(frozenset({";;", "esac"}))
            end = next((op for op in (";;&", ";;", ";&") if self.value.startswith(op, self.pos)), "")
            self.pos += len(end)
            branches.append((patterns, body, end))
            if self.pos == before:
                self._give_up()

    def _function(self) -> tree.Node:
        self.blanks()
        found = _FUNCTION_NAME.match(self.value, self.pos)
        name = found.group() if found else ""
        self.pos = found.end() if found else self.pos
        parentheses = _FUNCTION.match(self.value, self.pos)
        if parentheses:
            self.pos = parentheses.end()
        return self._defined(name)

    def _defined(self, name: str) -> tree.Node:
        self.lines()
        if self.depth >= DEPTH:
            self._give_up()
            return tree.Simple(self.pos, self.pos, [], [], [])
        self.depth += 1
        body = self.command()
        self.depth -= 1
        return tree.Function(name, body)

    def _condition(self) -> tree.Node:
        """``[[ ... ]]``, whose operators are not those of commands."""
        items: list[tree.Token | str] = []
        while True:
            self.lines()
            if self.pos >= self.size:
                self.broken = True
                break
            value = self.value
            if value.startswith("]]", self.pos):
                self.pos += 2
                break
            op = next((op for op in ("&&", "||", "(", ")", "<", ">") if value.startswith(op, self.pos)), "")
            if op:
                self.pos += len(op)
                items.append(op)
                continue
            before = self.pos
            if items and isinstance(items[-1], tree.Token) and items[-1].plain == "=~":
                items.append(self._expression())
            else:
                items.append(self.word())
            if self.pos == before:
                self.broken = True
                self.pos += 1
        return tree.Condition(items, self._redirects())

    def _expression(self) -> tree.Token:
        """The right side of ``=~`` and all that follows in the brackets: nothing evaluates it."""
        start = self.pos
        end = _CONDITION_END.search(self.value, start)
        self.pos = end.start() if end else self.size
        return tree.Token(start, self.pos, None, (tree.Part("opaque", start, self.pos),))

    # Simple commands and redirections

    def _redirects(self) -> list[tree.Redir]:
        found: list[tree.Redir] = []
        while True:
            self.blanks()
            redir = self._redirect()
            if redir is None:
                return found
            found.append(redir)

    def _redirect(self) -> tree.Redir | None:
        start = self.pos
        if start >= self.size or self.value[start] not in "<>&0123456789":
            return None
        found = _REDIR.match(self.value, start)
        if not found:
            return None
        self.pos = found.end()
        op = found[2] or found[3]
        self.blanks()
        before = self.pos
        target = self.word()
        if self.pos == before:
            self.broken = True
        redir = tree.Redir(op, target, start, self.pos, found[1] or "")
        if op in ("<<", "<<-"):
            raw = self.value[before : self.pos]
            redir.expands = not any(char in raw for char in "'\"\\")
            redir.name = re.sub(r"[\\'\"]", "", raw)
            given = next((each for each in self.here if each.name == redir.name), None)
            if given is None:
                self.pending.append(redir)
            else:
                self.here.remove(given)
                self._given(redir, given)
        return redir

    def _given(self, redir: tree.Redir, given: tree.HereText) -> None:
        """The body that the Dockerfile's grammar has cut off, its tabs taken off as ``<<-`` wants it."""
        value = given.content.value
        pieces: list[tree.Piece] = []
        chunks: list[str] = []
        position = 0
        for line in value.splitlines(keepends=True) if redir.op == "<<-" else ():
            kept = line.lstrip("\t")
            start = position + len(line) - len(kept)
            position += len(line)
            chunks.append(kept)
            pieces.append(tree.Piece(len(kept), start, position, True))
        self._body(redir, tree.Source("".join(chunks) if pieces else value, given.content, pieces))

    def _simple(self) -> tree.Node:
        value = self.value
        start = end = self.pos
        node = tree.Simple(start, start, [], [], [])
        words = node.words
        declares = False
        while True:
            self.blanks()
            if self.pos >= self.size:
                break
            char = value[self.pos]
            if char in "<>&0123456789":
                redir = self._redirect()
                if redir is not None:
                    node.redirects.append(redir)
                    end = self.pos
                    continue
            if char in "\n;&|)":
                break
            if char == "#":
                self._comment()
                break
            if char == "(":
                first = words[0] if len(words) == 1 and not node.assigns else None
                parentheses = _FUNCTION.match(value, self.pos)
                if isinstance(first, tree.Token) and parentheses:
                    self.pos = parentheses.end()
                    return self._defined(value[first.start : first.end])
                self.broken = True
                break
            assign = _ASSIGN.match(value, self.pos) if not words or declares else None
            if assign:
                item = self._assign(assign)
                if words:
                    words.append(item)
                else:
                    node.assigns.append(item)
            else:
                before = self.pos
                token = self.word()
                if self.pos == before:
                    self.broken = True
                    break
                if not words:
                    declares = token.plain in _DECLARES
                words.append(token)
            end = self.pos
        node.end = end
        return node

    def _assign(self, found: re.Match[str]) -> tree.Assign:
        start = self.pos
        self.pos = found.end()
        array: list[tree.Token] | None = None
        if self.value.startswith("(", self.pos):
            begin = self.pos
            self.pos += 1
            array = []
            while True:
                self.lines()
                before = self.pos
                if self.pos >= self.size or self.value[self.pos] in ")":
                    break
                array.append(self.word())
                if self.pos == before:
                    array.pop()
                    break
            self._skip(")")
            value = tree.Token(begin, self.pos)
        elif self.pos < self.size and self.value[self.pos] not in " \t\r\n;&|<>()":
            value = self.word()
        else:
            value = tree.Token(self.pos, self.pos, "")
        index, items = (found[2] or "")[1:-1], None if array is None else tuple(array)
        return tree.Assign(found[1], start, self.pos, value, bool(found[3]), index, items)


_CHUNKS = {
    ("word", False): _IN_WORD,
    ("quote", True): _IN_QUOTES,
    ("here", True): _IN_HERE,
    ("brace", False): _IN_BRACE,
    ("brace", True): _IN_QUOTED_BRACE,
    ("slash", False): _IN_PATTERN,
}

_COMPOUND: Mapping[str, Callable[[Parser], tree.Node]] = {
    "{": Parser._group,
    "if": Parser._if,
    "while": lambda parser: parser._loop(False),
    "until": lambda parser: parser._loop(True),
    "for": Parser._for,
    "select": Parser._for,
    "case": Parser._case,
    "function": Parser._function,
    "[[": Parser._condition,
}
