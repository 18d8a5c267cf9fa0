"""What a static reader can compute of the shell: patterns, tests, sums, and the output of a few plain programs.

Each function answers None where it does not know.  Nothing here takes longer than its bound, whatever the text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from itertools import pairwise

from envkit.subjects.dockerfile import Command, Word

WORK = 2_000_000  # steps that one pattern may cost before it is left undecided
_SUM = re.compile(r"\s*(?:(\d+)|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!]))")
_RANK = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7}
_BINARY = frozenset({"=", "==", "!=", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "<", ">", "=~", "-nt", "-ot", "-ef"})
_SEQUENCE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?")
_LETTERS = re.compile(r"([a-zA-Z])\.\.([a-zA-Z])")


_RANGES = {"digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}


def escape(text: str) -> str:
    """``text`` as a pattern that means itself."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def _bracket(pattern: str, at: int) -> tuple[int, re.Pattern[str] | None]:
    """The end of the bracket expression at ``at`` and what it matches; the end is 0 where it is none."""
    begin = at + 1
    negated = pattern[begin : begin + 1] in ("!", "^")
    begin += negated
    position = begin
    while position < len(pattern) and (pattern[position] != "]" or position == begin):
        if pattern.startswith("[:", position):
            end = pattern.find(":]", position)
            position = end + 1 if end > 0 else position
        elif pattern[position] == "\\":
            position += 1
        position += 1
    if position >= len(pattern):
        return 0, None
    inside = re.sub(r"\\([^-\]\\^])", r"\1", pattern[begin:position]).replace("[", "\\[")
    for name, characters in _RANGES.items():
        inside = inside.replace(f"\\[:{name}:]", characters)
    if inside.startswith(("]", "^")):
        inside = "\\" + inside
    try:
        return position + 1, re.compile(f"[{'^' if negated else ''}{inside}]", re.DOTALL)
    except re.error:
        return 0, None


_Atom = str | re.Pattern[str] | None  # a character, one of several, or None for "*"; "" is "?"


def _atoms(pattern: str) -> list[_Atom]:
    atoms: list[_Atom] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            atoms.append(pattern[at + 1])
            at += 2
            continue
        if char == "*":
            if not atoms or atoms[-1] is not None:
                atoms.append(None)
        elif char == "?":
            atoms.append("")
        elif char == "[":
            end, found = _bracket(pattern, at)
            if end:
                atoms.append(found if found is not None else "[")
                at = end
                continue
            atoms.append("[")
        else:
            atoms.append(char)
        at += 1
    return atoms


def _one(atom: _Atom, char: str) -> bool:
    if isinstance(atom, str):
        return atom in ("", char)
    return atom is not None and atom.fullmatch(char) is not None


def _fits(text: str, atoms: Sequence[_Atom]) -> bool:
    """Greedy matching with one way back: at most len(text) * len(atoms) steps."""
    at = position = 0
    star = -1
    mark = 0
    while position < len(text):
        if at < len(atoms) and atoms[at] is None:
            star, mark = at, position
            at += 1
        elif at < len(atoms) and _one(atoms[at], text[position]):
            at += 1
            position += 1
        elif star >= 0:
            at = star + 1
            mark += 1
            position = mark
        else:
            return False
    return all(atom is None for atom in atoms[at:])


def matches(text: str, pattern: str) -> bool | None:
    """Whether the whole of ``text`` fits the shell's ``pattern``; None where that would cost too much."""
    if not re.search(r"[*?\[\\]", pattern):
        return text == pattern
    if len(text) * len(pattern) > WORK or re.search(r"[?*+@!]\(", pattern):
        return None
    return _fits(text, _atoms(pattern))


def trimmed(text: str, pattern: str, op: str) -> str | None:
    """``${text#pattern}`` and its kin (``##``, ``%``, ``%%``)."""
    if not re.search(r"[*?\[\\]", pattern):
        return text.removeprefix(pattern) if op[0] == "#" else text.removesuffix(pattern)
    if len(text) * len(text) * len(pattern) > WORK or re.search(r"[?*+@!]\(", pattern):
        return None
    atoms = _atoms(pattern)
    lengths = range(len(text) + 1)
    for length in lengths if len(op) == 1 else reversed(lengths):
        if op[0] == "#" and _fits(text[:length], atoms):
            return text[length:]
        if op[0] == "%" and _fits(text[len(text) - length :], atoms):
            return text[: len(text) - length]
    return text


def replaced(text: str, pattern: str, by: str, every: bool) -> str | None:
    """``${text/pattern/by}``, with ``every`` for ``//``; the longest match from the left, as bash does."""
    if not pattern:
        return text
    anchored = "" if every else pattern[0] if pattern[0] in "#%" else ""
    pattern = pattern[len(anchored) :]
    if not re.search(r"[*?\[\\]", pattern):
        if anchored == "#":
            return by + text[len(pattern) :] if text.startswith(pattern) else text
        if anchored == "%":
            return text[: len(text) - len(pattern)] + by if text.endswith(pattern) else text
        return text.replace(pattern, by, -1 if every else 1) if pattern else text
    if len(text) ** 3 * len(pattern) > WORK * 10 or re.search(r"[?*+@!]\(", pattern):
        return None
    atoms = _atoms(pattern)
    made: list[str] = []
    at = 0
    while at < len(text):
        start_here = anchored != "#" or at == 0
        ends = (len(text),) if anchored == "%" else range(len(text), at, -1)
        end = next((end for end in ends if start_here and _fits(text[at:end], atoms)), 0)
        if not end:
            made.append(text[at])
            at += 1
            continue
        made.append(by)
        at = end
        if not every:
            break
    return "".join(made) + text[at:]


def cased(text: str, op: str) -> str:
    """``${text^}``, ``^^``, ``,`` and ``,,``."""
    if op == "^^":
        return text.upper()
    if op == ",,":
        return text.lower()
    return (text[:1].upper() if op == "^" else text[:1].lower()) + text[1:]


def part(text: str, offset: int, length: int | None) -> str:
    """``${text:offset:length}``."""
    if offset < 0:
        offset += len(text)
        if offset < 0:
            return ""
    if length is None:
        return text[offset:]
    end = len(text) + length if length < 0 else offset + length
    return text[offset : max(end, offset)]


def number(text: str) -> int | None:
    """The value of an arithmetic expression of constants."""
    text = text.strip()
    if len(text) > 200:
        return None
    if not text:
        return 0
    values: list[int] = []
    ops: list[str] = []
    at = 0
    operand = True

    def apply() -> bool:
        """Takes the last operator; False where it cannot be done."""
        op = ops.pop()
        if op in ("neg", "not"):
            values.append(-values.pop() if op == "neg" else int(not values.pop()))
            return True
        right, left = values.pop(), values.pop()
        if op in ("/", "%"):
            if right == 0:
                return False
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            values.append(quotient if op == "/" else left - right * quotient)
        elif op in ("+", "-", "*"):
            values.append(left + right if op == "+" else left - right if op == "-" else left * right)
        else:
            values.append(
                int(
                    {
                        "==": left == right, "!=": left != right, "<": left < right, ">": left > right,
                        "<=": left <= right, ">=": left >= right,
                        "&&": bool(left and right), "||": bool(left or right),
                    }[op]
                )
            )  # fmt: skip
        return abs(values[-1]) < 1 << 63

    while at < len(text):
        found = _SUM.match(text, at)
        if not found:
            return None
        at = found.end()
        digits, op = found.groups()
        if digits is not None:
            if not operand or (len(digits) > 1 and digits[0] == "0") or len(digits) > 18:
                return None
            values.append(int(digits))
            operand = False
        elif operand:
            if op not in ("-", "+", "(", "!"):
                return None
            if op != "+":
                ops.append({"-": "neg", "!": "not"}.get(op, op))
        elif op == ")":
            while ops and ops[-1] != "(":
                if not apply():
                    return None
            if not ops:
                return None
            ops.pop()
        else:
            if op not in _RANK:
                return None
            while ops and ops[-1] != "(" and (ops[-1] in ("neg", "not") or _RANK[ops[-1]] >= _RANK[op]):
                if not apply():
                    return None
            ops.append(op)
            operand = True
    if operand:
        return None
    while ops:
        if ops[-1] == "(" or not apply():
            return None
    return values[0]


def _integer(word: Word) -> int | None:
    text = word.text.strip()
    return int(text) if word.sure and re.fullmatch(r"[-+]?\d{1,18}", text) else None


def unary(op: str, word: Word) -> bool | None:
    """``[ -n word ]`` and its kin; what is on a disk is not known."""
    if op in ("-n", "-z"):
        return (word.text == "") == (op == "-z") if word.sure else None
    return None


def compare(left: Word, op: str, right: Word, pattern: str | None = None) -> bool | None:
    """``[ left op right ]``; with ``pattern`` as ``[[ ]]`` compares with it."""
    if op in ("=", "==", "!="):
        if not (left.sure and right.sure):
            return None
        same = left.text == right.text if pattern is None else matches(left.text, pattern)
        return None if same is None else same == (op != "!=")
    if op in ("<", ">") and left.sure and right.sure:
        return left.text < right.text if op == "<" else left.text > right.text
    one, other = _integer(left), _integer(right)
    if one is None or other is None:
        return None
    return {
        "-eq": one == other, "-ne": one != other, "-gt": one > other, "-ge": one >= other,
        "-lt": one < other, "-le": one <= other,
    }.get(op)  # fmt: skip


def both(left: bool | None, right: bool | None) -> bool | None:
    """And, where one side may be unknown."""
    return False if left is False or right is False else None if left is None or right is None else True


def either(left: bool | None, right: bool | None) -> bool | None:
    """Or, where one side may be unknown."""
    return True if left is True or right is True else None if left is None or right is None else False


def test(words: Sequence[Word]) -> bool | None:
    """``test words``: POSIX's rule by the number of arguments, and ``-a`` and ``-o`` between them."""
    if len(words) > 64 or any(not word.sure and not word.quoted and word.text.startswith("$@") for word in words):
        return None
    if any(not word.sure and not word.quoted for word in words):
        # An unquoted unknown may be no word at all, or several: only -n and -z of it alone could be guessed.
        return None
    return _test(list(words), 0)


def _test(words: list[Word], depth: int) -> bool | None:
    texts = [word.text for word in words]
    count = len(words)
    if depth > 16:
        return None
    if count == 0:
        return False
    if count == 1:
        return texts[0] != "" if words[0].sure or texts[0] == "" else None
    if count == 3 and texts[1] in _BINARY:
        return compare(words[0], texts[1], words[2])
    for op, join in (("-o", either), ("-a", both)):
        for at in range(1, count - 1):
            if texts[at] == op and count > 3:
                return join(_test(words[:at], depth + 1), _test(words[at + 1 :], depth + 1))
    if texts[0] == "!":
        inner = _test(words[1:], depth + 1)
        return None if inner is None else not inner
    if texts[0] == "(" and texts[-1] == ")":
        return _test(words[1:-1], depth + 1)
    return unary(texts[0], words[1]) if count == 2 else None


def braces(raw: str) -> list[list[tuple[int, int, str]]]:
    """What bash makes of the first brace expression of ``raw``: for each word its stretches (start, end, text).

    A stretch with a text is made up (a number of ``{1..3}``), the others stand in ``raw``.  Empty where there is none.
    """
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"":
            end = raw.find(char, at + 1)
            at = len(raw) if end < 0 else end + 1
            continue
        if char == "$" and raw[at + 1 : at + 2] in ("{", "("):
            at = _closing(raw, at + 1)
            continue
        if char == "{":
            end, commas = _choices(raw, at)
            if end and commas:
                bounds = [at, *commas, end]
                return [[(0, at, ""), (low + 1, high, ""), (end + 1, len(raw), "")] for low, high in pairwise(bounds)]
            if end:
                made = _sequence(raw[at + 1 : end])
                if made:
                    return [[(0, at, ""), (at, end + 1, text), (end + 1, len(raw), "")] for text in made]
        at += 1
    return []


def _closing(raw: str, at: int) -> int:
    """The position after what closes the bracket at ``at``."""
    opening, closing = raw[at], {"{": "}", "(": ")"}[raw[at]]
    depth = 0
    while at < len(raw):
        if raw[at] == "\\":
            at += 1
        elif raw[at] == opening:
            depth += 1
        elif raw[at] == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(raw)


def _choices(raw: str, at: int) -> tuple[int, list[int]]:
    """The brace that closes the one at ``at`` (0 where none does) and the commas between them."""
    depth = 0
    commas: list[int] = []
    while at < len(raw):
        char = raw[at]
        if char == "\\":
            at += 1
        elif char in "'\"":
            end = raw.find(char, at + 1)
            if end < 0:
                return 0, []
            at = end
        elif char == "$" and raw[at + 1 : at + 2] in ("{", "("):
            at = _closing(raw, at + 1) - 1
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at, commas
        elif char == "," and depth == 1:
            commas.append(at)
        at += 1
    return 0, []


def _sequence(text: str) -> list[str]:
    letters = _LETTERS.fullmatch(text)
    if letters:
        low, high = ord(letters[1]), ord(letters[2])
        step = 1 if low <= high else -1
        return [chr(code) for code in range(low, high + step, step)]
    found = _SEQUENCE.fullmatch(text)
    if not found:
        return []
    first, last = int(found[1]), int(found[2])
    step = abs(int(found[3] or 1)) or 1
    if abs(last - first) // step > 255:
        return []
    width = max(len(found[1]), len(found[2])) if re.match(r"-?0\d", found[1]) or re.match(r"-?0\d", found[2]) else 0
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{value:0{width}d}" for value in values]


# What plain programs print


def output(commands: Sequence[Command], arch: str) -> str | None:
    """What a pipeline of a few well-known programs prints, None where that is not certain.

    ``arch`` is Debian's name of the machine ("amd64", "arm64").
    """
    text: str | None = None
    for index, command in enumerate(commands):
        if not all(word.sure for word in command.words) or (index and command.after != "|"):
            return None
        if any(each.op not in ("<<<",) and each.target.text != "/dev/null" for each in command.redirects):
            return None
        if any(each.op != "2>" and each.target.text == "/dev/null" for each in command.redirects):
            return None
        given = next((each.target for each in command.redirects if each.op == "<<<"), None)
        if given is not None:
            text = given.text + "\n" if given.sure else None
        text = _source(command, arch) if index == 0 and given is None else _filter(command, text)
        if text is None or len(text) > 65536:
            return None
    return text


def _source(command: Command, arch: str) -> str | None:
    """What a command that reads nothing prints."""
    args = command.args
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch)
    match command.program:
        case "echo":
            return _echo(args)
        case "printf":
            return _printf(args)
        case "dpkg" if args == ("--print-architecture",):
            return arch + "\n"
        case "uname" if args in (("-m",), ("--machine",)):
            return machine + "\n" if machine else None
        case "arch" if not args:
            return machine + "\n" if machine else None
        case "uname" if args in ((), ("-s",)):
            return "Linux\n"
        case "pwd" if not args and command.cwd:
            return command.cwd + "\n"
        case "dirname" if len(args) == 1:
            return (posixpath.dirname(args[0].rstrip("/")) or ("/" if args[0].startswith("/") else ".")) + "\n"
        case "basename" if len(args) in (1, 2) and not args[0].startswith("-"):
            name = posixpath.basename(args[0].rstrip("/"))
            return (name.removesuffix(args[1]) if len(args) == 2 and name != args[1] else name) + "\n"
        case "seq" if len(args) in (1, 2) and all(re.fullmatch(r"\d{1,4}", arg) for arg in args):
            first, last = (1, int(args[0])) if len(args) == 1 else (int(args[0]), int(args[1]))
            return "".join(f"{value}\n" for value in range(first, last + 1)) if last - first < 64 else None
    return None


def _echo(args: tuple[str, ...]) -> str | None:
    end = "\n"
    while args and re.fullmatch(r"-[neE]+", args[0]):
        if "n" in args[0]:
            end = ""
        args = args[1:]
    text = " ".join(args)
    return None if "\\" in text else text + end


def _printf(args: tuple[str, ...]) -> str | None:
    if not args or args[0].startswith("-"):
        return None
    template = args[0].replace("\\n", "\n").replace("\\t", "\t")
    if "\\" in template or template.count("%") != template.count("%s"):
        return None
    count = template.count("%s")
    rest = list(args[1:])
    if not count:
        return template if not rest else None
    made: list[str] = []
    while True:
        taken = rest[:count] + [""] * (count - len(rest[:count]))
        rest = rest[count:]
        pieces = template.split("%s")
        made.append("".join(one + other for one, other in zip(pieces, [*taken, ""], strict=True)))
        if not rest or len(made) > 64:
            return "".join(made)


def _filter(command: Command, text: str | None) -> str | None:
    """What a program that reads ``text`` prints."""
    if text is None:
        return None
    lines = text.removesuffix("\n").split("\n")
    match command.program:
        case "cut":
            made = [_cut(line, command.args) for line in lines]
        case "tr":
            return _tr(text, command.args)
        case "sed":
            made = [_sed(line, command.args) for line in lines]
        case "awk" | "gawk" | "mawk":
            made = [_awk(line, command.args) for line in lines]
        case "cat" if not command.args:
            return text
        case "head" if command.args in (("-1",), ("-n1",), ("-n", "1")):
            made = [lines[0]]
        case "tail" if command.args in (("-1",), ("-n1",), ("-n", "1")):
            made = [lines[-1]]
        case "xargs" if not command.args:
            made = [" ".join(text.split())] if not re.search(r"['\"\\]", text) else [None]
        case _:
            return None
    if any(line is None for line in made):
        return None
    return "".join(f"{line}\n" for line in made)


def _options(args: tuple[str, ...], letters: str) -> dict[str, str] | None:
    """Short options that take a value each; None where there is anything else."""
    found: dict[str, str] = {}
    rest = list(args)
    while rest:
        option = rest.pop(0)
        if len(option) < 2 or option[0] != "-" or option[1] not in letters:
            return None
        found[option[1]] = option[2:].removeprefix("=") if len(option) > 2 else rest.pop(0) if rest else ""
    return found


def _cut(line: str, args: tuple[str, ...]) -> str | None:
    options = _options(args, "dfc")
    if options is None or len(options.keys() & {"f", "c"}) != 1:
        return None
    by = options.get("d", "\t")
    wanted = options.get("f") or options.get("c") or ""
    if len(by) != 1 and "f" in options:
        return None
    fields = line.split(by) if "f" in options else list(line)
    if "f" in options and by not in line:
        return line
    picked: set[int] = set()
    for each in wanted.split(","):
        found = re.fullmatch(r"(\d{1,4})?(-)?(\d{1,4})?", each)
        if not found or not (found[1] or found[3]) or (found[3] and not found[2]):
            return None
        first = int(found[1] or 1)
        last = int(found[3]) if found[3] else len(fields) if found[2] else first
        picked.update(range(first, min(last, len(fields)) + 1))
    return (by if "f" in options else "").join(fields[at - 1] for at in sorted(picked) if 0 < at <= len(fields))


_CLASSES = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\f\v",
}


def _set(text: str) -> str | None:
    for name, characters in _CLASSES.items():
        text = text.replace(name, characters)
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    if "\\" in text or "[:" in text:
        return None

    def spread(found: re.Match[str]) -> str:
        """All characters of a range."""
        return "".join(chr(code) for code in range(ord(found[1]), ord(found[2]) + 1))

    return re.sub(r"([a-zA-Z0-9])-([a-zA-Z0-9])", spread, text)


def _tr(text: str, args: tuple[str, ...]) -> str | None:
    delete = args[:1] in (("-d",), ("--delete",))
    sets = [_set(arg) for arg in (args[1:] if delete else args)]
    if any(each is None for each in sets) or any(len(arg) > 1 and arg[0] == "-" for arg in args[delete:]):
        return None
    first = sets[0] if sets else None
    if delete and len(sets) == 1 and first is not None:
        return text.translate({ord(char): None for char in first})
    if not delete and len(sets) == 2 and first is not None and sets[1]:
        to = sets[1] + sets[1][-1] * max(len(first) - len(sets[1]), 0)
        return text.translate({ord(a): b for a, b in reversed(list(zip(first, to, strict=False)))})
    return None


def _regex(pattern: str, extended: bool) -> str | None:
    """A sed pattern in Python's words, None unless it is plain: no alternatives, no group repeated, few repetitions."""
    made: list[str] = []
    at = repeats = groups = 0
    atom = False
    while at < len(pattern):
        char = pattern[at]
        escaped = char == "\\" and at + 1 < len(pattern)
        meaning = pattern[at : at + 2] if escaped else char
        at += len(meaning)
        if meaning in (("(", ")") if extended else ("\\(", "\\)")):
            groups += meaning[-1] == "("
            made.append(meaning[-1])
            atom = False
        elif meaning in (("*", "+", "?") if extended else ("*", "\\+", "\\?")):
            if not atom:
                return None
            repeats += 1
            atom = False
            made.append(meaning[-1])
        elif char == "[":
            end = pattern.find("]", at + 2 if pattern.startswith("^", at) else at + 1)
            if end < 0:
                return None
            inside = pattern[at:end]
            if "[" in inside or "\\" in inside:
                return None
            made.append("[" + inside + "]")
            at = end + 1
            atom = True
        elif meaning in (".", "^", "$"):
            made.append(meaning)
            atom = meaning == "."
        elif escaped and char == "\\" and not meaning[1].isalnum():
            made.append(re.escape(meaning[1]))
            atom = True
        elif not escaped and (not extended or char not in "{}|()+?"):
            made.append(re.escape(char))
            atom = True
        else:
            return None
    return "".join(made) if repeats <= 4 and groups <= 9 else None


def _sed(line: str, args: tuple[str, ...]) -> str | None:
    extended = False
    scripts: list[str] = []
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg in ("-E", "-r", "--regexp-extended"):
            extended = True
        elif arg == "-e" and rest:
            scripts.append(rest.pop(0))
        elif arg.startswith("-") or scripts:
            return None
        else:
            scripts.append(arg)
    for script in scripts:
        for each in re.split(r"\s*;\s*(?=s[^\w\s])", script.strip().rstrip(";")):
            done = _substituted(line, each, extended)
            if done is None:
                return None
            line = done
    return line if scripts else None


def _substituted(line: str, script: str, extended: bool) -> str | None:
    """``s/pattern/by/g`` of one line."""
    if len(script) < 4 or script[0] != "s" or script[1].isalnum() or script[1] in "\\\n" or len(script) > 200:
        return None
    by = script[1]
    fields = re.split(r"(?<!\\)" + re.escape(by), script[2:])
    if len(fields) != 3 or fields[2] not in ("", "g", "1") or len(line) > 64:
        return None
    pattern = _regex(fields[0].replace("\\" + by, re.sub(r"[^\w/,:#@]", r"\\\g<0>", by)), extended)
    if not pattern:
        return None

    def value(found: re.Match[str]) -> str:
        """The replacement with its groups."""
        return re.sub(r"\\(\d)|\\(.)|(&)", lambda m: found[int(m[1])] if m[1] else m[2] or found[0], fields[1])

    try:
        return re.sub(pattern, value, line, count=0 if fields[2] == "g" else 1)
    except (re.error, IndexError):
        return None


def _awk(line: str, args: tuple[str, ...]) -> str | None:
    """``awk -F. '{print $1"."$2}'``."""
    by = ""
    rest = list(args)
    while len(rest) > 1 and rest[0].startswith("-F"):
        option = rest.pop(0)
        by = option[2:] or rest.pop(0)
    if len(rest) != 1 or len(by) > 1:
        return None
    found = re.fullmatch(r"\s*\{\s*print\s+((?:\$\d+|\"[^\"\\]*\"|\s+|,)+?)\s*;?\s*\}\s*", rest[0])
    if not found:
        return None
    fields = line.split(by) if by and by != " " else line.split()
    made: list[str] = []
    for item in re.finditer(r"\$(\d+)|\"([^\"]*)\"|(,)", found[1]):
        if item[1]:
            index = int(item[1])
            made.append(line if index == 0 else fields[index - 1] if index <= len(fields) else "")
        else:
            made.append(" " if item[3] else item[2])
    return "".join(made)
