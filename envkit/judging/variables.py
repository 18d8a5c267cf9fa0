"""What is wrong with the variables of a job, by the table of facts: one judgement for every kind of subject.

Each function is pure: it takes the variables and what is known around them.  A program reads its variables in its own
way, so a type of the table is a function here, and a flag the words that its program takes for yes and for no.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from envkit.facts import Facts, VariablePairRow, VariableRow
from envkit.model import Finding, Severity, Unknown
from envkit.records import dataclass
from envkit.versions import Sm

VISIBLE, GIVEN = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_SETTING = f"{ALLOCATOR[0]}:"


def _nowhere(name: str, path: str) -> str | None:
    return None


def _unknown_release(program: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known around the variables.

    ``via`` is where they come from.  ``release`` gives that of a program ("torch"), empty where nobody can say; it may
    raise Unknown.
    ``lies`` says what lies at a path that a variable names: "file", "program" (a file that may be run), "directory",
    "absent", empty where that was not seen, None where nobody looked.  ``elsewhere`` are variables that another check
    of the same subject judges.
    """

    via: str
    release: Callable[[str], str] = _unknown_release
    lies: Callable[[str, str], str | None] = _nowhere
    elsewhere: frozenset[str] = frozenset()


# ---------------------------------------------------------------- how programs read yes and no

_YES, _NO = ("1", "true", "yes", "on", "t", "y"), ("0", "false", "no", "off", "f", "n")
# By the type's name: the words for yes and those for no, in small letters; another value is neither.  Sources stand in
# the rows of each type.
FLAGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "zero-one flag": (("1",), ("0",)),
    "one flag": (("1",), _NO),
    "word flag": (("1", "y", "yes", "t", "true"), ("0", "n", "no", "f", "false")),
    "truth flag": (_YES, _NO),
    "openmp flag": (("true",), ("false",)),
    "openmp-like flag": ((*_YES, "enabled", ".true."), (*_NO, "disabled", ".false.")),
    "hf flag": (("1", "true", "yes", "on"), _NO),
    "jax flag": (_YES, _NO),
    "ucx flag": (("1", "y", "yes", "on", "try", "auto"), ("0", "n", "no", "off")),
}
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)\Z")


def is_on(row: VariableRow, value: str) -> bool | None:
    """Whether a program reads the flag as yes; None where ``value`` is neither yes nor no to it."""
    text = value.strip().lower()
    if row.type == "set flag":  # anything but nothing, even 0
        return bool(value)
    if not text:
        return False
    if row.type == "number flag":
        return int(text, 0 if "x" in text else 10) != 0 if _INTEGER.match(text) else None
    yes, no = FLAGS[row.type]
    return True if text in yes else False if text in no else None


def left_on(row: VariableRow, value: str) -> bool:
    """Whether the variable costs a job something at this value."""
    if row.costs is None or not value.strip():
        return False
    if not row.on:
        return bool(is_on(row, value))
    words = {word.strip().lower() for word in value.split(",")}
    return "*" in row.on or bool(words & {word.lower() for word in row.on})


def debugging(variables: Mapping[str, str], facts: Facts) -> Iterator[VariableRow]:
    """The rows of the variables that help to find a fault, or bend the precision, and are on."""
    for name, value in sorted(variables.items()):
        row = rows(facts).get(name)
        if row is not None and left_on(row, value):
            yield row


# ---------------------------------------------------------------- the types: what is wrong with a value, or nothing


def _number(row: VariableRow, number: float) -> str:
    if row.least is not None and number < row.least:
        return f"which is below {row.least}"
    if row.most is not None and number > row.most:
        return f"which is above {row.most}"
    return ""


def _integer(row: VariableRow, value: str) -> str:
    text = value.strip()
    return _number(row, int(text, 0 if "x" in text.lower() else 10)) if _INTEGER.match(text) else "which is no number"


def _real(row: VariableRow, value: str) -> str:
    if not re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", value.strip()):
        return "which is no number"
    return _number(row, float(value))


def _between(row: VariableRow, value: str) -> str:
    found = re.match(r"[0-9]+\.?[0-9]*|\.[0-9]+", value)
    low, high = row.least or 0, row.most or 0
    return "" if found and low < float(found[0]) < high else f"which is not {row.form}"


def _digits(row: VariableRow, value: str) -> str:
    """torch reads a number's digits and does not look at what follows them ("512MB")."""
    found = re.match(r"[0-9]+", value)
    return _number(row, int(found[0])) if found else "which is no number"


def _counts(row: VariableRow, value: str) -> str:
    return next((wrong for one in value.split(",") if (wrong := _integer(row, one))), "")


def _word(row: VariableRow, value: str) -> str:
    return _among(row, [value.strip()], lambda word: word)


def _any_case_word(row: VariableRow, value: str) -> str:
    return _among(row, [value.strip()], str.lower)


def _words(row: VariableRow, value: str) -> str:
    return _among(row, _split(value), lambda word: word)


def _any_case_words(row: VariableRow, value: str) -> str:
    return _among(row, _split(value.removeprefix("^")), str.lower)


def _split(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def _nccl_list(row: VariableRow, value: str) -> str:
    """Words, or by collective: "allreduce:tree,ring;broadcast:ring"."""
    parts = [part.rpartition(":")[2].strip().removeprefix("^") for part in value.split(";")]
    return _among(row, [word for part in parts for word in _split(part)], str.lower)


def _ucx_list(row: VariableRow, value: str) -> str:
    """Names of transports, each with what follows a colon for auxiliary ones; a backslash asks for the exact name."""
    names = [word.removeprefix("\\").partition(":")[0] for word in _split(value.strip().removeprefix("^"))]
    return _among(row, names, lambda word: word)


def _among(row: VariableRow, words: list[str], key: Callable[[str], str]) -> str:
    """What is wrong with words of a list; raises Unknown for one that a release not known here may have."""
    known = {key(value) for value in row.values}
    for word in words:
        if key(word) in known:
            continue
        near = difflib.get_close_matches(word.lower(), [value.lower() for value in row.values], 1, 0.75)
        if row.open and not near:
            raise Unknown(f"whether {row.of} knows the `{word}` of {row.name} depends on its release")
        listed = ", ".join(row.values[:8]) + (" and others" if len(row.values) > 8 else "")
        return f"which is none of {listed}" if words == [word] else f"whose `{word}` is none of {listed}"
    return ""


def _pattern(row: VariableRow, value: str) -> str:
    return "" if _compiled(row.values[0]).fullmatch(value) else f"which is not of the form: {row.form}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _address(row: VariableRow, value: str) -> str:
    text = value.strip()
    if "://" in text or re.search(r"[\s,/]", text):
        return f"which is not {row.form}"
    return f"which names a port: it is not {row.form}" if text.count(":") == 1 else ""


def _names(row: VariableRow, value: str) -> str:
    return f"which is not of the form: {row.form}" if re.search(r"[\s;]", value.strip()) else ""


def _divisions(row: VariableRow, value: str) -> str:
    """A power of two, or "[256:1,512:2,>:4]" with powers of two or 0 behind the colons."""

    def power(word: str, least: int = 1) -> bool:
        return word.isdecimal() and int(word) >= least and int(word) & (int(word) - 1) == 0

    if not value.startswith("["):
        return "" if power(value) else f"which is not {row.form}"
    pairs = [part.partition(":") for part in value.removeprefix("[").removesuffix("]").split(",")]
    well = value.endswith("]") and all(power(count, 0) and (size == ">" or power(size)) for size, _, count in pairs)
    return "" if well else f"which is not {row.form}"


def _arch_list(row: VariableRow, value: str) -> str:
    """Numbers and torch's names of architectures, between blanks or semicolons; commas are not read."""
    known = {(sm.major, sm.minor) for sm in map(Sm.parse, row.values)}
    for word in re.split(r"[ ;]+", value.strip()):
        plain = word.removesuffix("+PTX")
        number = re.fullmatch(r"[0-9]{1,2}\.[0-9][af]?", plain)
        if not number and not re.fullmatch(r"All|Common|[A-Z][a-z]+(\+Tegra)?", plain):
            return f"whose `{word}` is not of the form: {row.form}"
        if not number:
            continue
        sm = Sm.parse(plain)
        if (sm.major, sm.minor) in known:
            continue
        if (sm.major, sm.minor) > max(known):
            raise Unknown(f"whether {row.of} knows the `{word}` of {row.name} depends on its release")
        return f"whose `{word}` is none of {', '.join(row.values)}"
    return ""


def _xla_flags(row: VariableRow, value: str) -> str:
    if value.lstrip().startswith("/"):
        return ""
    bare = next((word for word in value.split() if not word.startswith("-")), "")
    quoted = '"' in value or "'" in value  # what stands between quotes may hold blanks
    return f"whose `{bare}` does not begin with --" if bare and not quoted else ""


def _fine(row: VariableRow, value: str) -> str:
    return ""


TYPES: dict[str, Callable[[VariableRow, str], str]] = {
    "integer": _integer,
    "loose integer": _integer,
    "strict integer": _integer,
    "number": _real,
    "between": _between,
    "digits": _digits,
    "counts": _counts,
    "word": _word,
    "any-case word": _any_case_word,
    "words": _words,
    "any-case words": _any_case_words,
    "nccl list": _nccl_list,
    "ucx list": _ucx_list,
    "pattern": _pattern,
    "address": _address,
    "names": _names,
    "divisions": _divisions,
    "arch list": _arch_list,
    "xla flags": _xla_flags,
    "gpus": lambda row, value: cuda_devices(value),
    "container gpus": lambda row, value: _container_gpus(row, value),
    "text": _fine,
    "search path": _fine,
}
_EMPTY_COUNTS = ("strict integer", "word flag", "gpus")  # of these the empty value is a value, not the lack of one
# By type, what must lie at the path, and in words
_PLACES: dict[str, tuple[tuple[str, ...], str]] = {
    "file": (("file", "program"), "where there is no file"),
    "program": (("program",), "where there is no program"),
    "directory": (("directory",), "where there is no directory"),
    "toolkit": (("directory",), "where there is no directory"),
    "python home": (("directory",), "where there is no directory"),
    "temporary folder": (("directory",), "where there is no directory"),
    "folder": (("directory", "absent"), "where there is no directory"),  # programs make it
    "new file": (("file", "program", "other", "absent"), "where there is a directory"),
}


def _lies(row: VariableRow, value: str, known: Known) -> str:
    path = value.partition(":")[0] if row.type == "python home" else value
    if not path.startswith("/"):  # it counts from a folder that nobody knows, or PATH is searched
        return ""
    kind = known.lies(row.name, path)
    if kind == "":
        raise Unknown(f"what lies at {path}, which {row.name} names, was not observed")
    fitting, words = _PLACES[row.type]
    return "" if kind is None or kind in fitting else words


# ---------------------------------------------------------------- GPUs


def hides_all(value: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU, whichever there are: its first entry can be none."""
    first = value.split(",")[0].strip()
    return not re.match(r"\+?[0-9]|(GPU|MIG)-", first)


def cuda_devices(value: str, count: int | None = None, uuids: Callable[[int], str] = str) -> str:
    """What is wrong with CUDA_VISIBLE_DEVICES, empty if nothing is, as far as ``count`` GPUs are known.

    ``uuids`` gives the UUID of one by its number and may raise Unknown, as this does for MIG instances where GPUs are
    known, for those were not listed.
    """
    names = [token.strip() for token in value.split(",")]
    if hides_all(value):
        return "is empty and hides every GPU" if not value.strip() else f"is `{value}` and hides every GPU"
    kinds = {"MIG" if one.startswith("MIG-") else "UUID" if one.startswith("GPU-") else "index" for one in names}
    if len(kinds) > 1:
        return f"mixes {' and '.join(sorted(kinds))} in `{value}`"
    if kinds == {"MIG"}:
        if len(names) > 1:
            return f"names {len(names)} MIG instances, and CUDA uses only the first"
        if count is not None:
            raise Unknown(f"{VISIBLE} names a MIG instance, and those were not listed")
        return ""
    met: list[object] = []
    for place, name in enumerate(names):
        at = _device(name, count, uuids)
        if at is None:
            here = "which can be none" if count is None else f"and there are {count} GPUs, counted from 0"
            return f"names `{name}`, {here}: CUDA hides it and all that follow, so that {place} of {len(names)} stay"
        if at in met:
            # measured on an H100: cuInit returns CUDA_ERROR_INVALID_DEVICE and no GPU is visible
            return f"names GPU {at} twice in `{value}`, and CUDA then refuses to start"
        met.append(at)
    return ""


def _device(name: str, count: int | None, uuids: Callable[[int], str]) -> object:
    """The GPU that CUDA takes the word for: an index, or a UUID cut at any unambiguous place; None for none."""
    if name.isdecimal():
        return int(name) if count is None or int(name) < count else None
    if not name.startswith("GPU-"):
        return None
    if count is None:
        return name
    fitting = [number for number in range(count) if uuids(number).startswith(name)]
    return fitting[0] if len(fitting) == 1 else None


def withholds_gpus(value: str) -> bool:
    """Whether the container toolkit gives no GPU for this NVIDIA_VISIBLE_DEVICES (its image/devices.go)."""
    words = _split(value)
    return not words or "void" in words or words == ["none"]


def _container_gpus(row: VariableRow, value: str) -> str:
    words = _split(value)
    fits = re.compile(r"all|none|void|[0-9]+(:[0-9]+)?|(GPU|MIG|IGPU)-\S+|\S+/\S+(=\S+)?")
    strange = next((word for word in words if not fits.fullmatch(word)), "")
    return f"whose `{strange}` is not of the form: {row.form}" if strange else ""


# ---------------------------------------------------------------- one variable


@cache
def rows(facts: Facts) -> Mapping[str, VariableRow]:
    """The rows by their names."""
    return {row.name: row for row in facts.variables}


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", text.partition("+")[0])[:3])


def _not_yet(row: VariableRow, known: Known) -> bool | None:
    """Whether the installed release is one that does not know it; None where that is open."""
    installed = "" if row.without is None else known.release(row.of)
    if row.without is None or not installed:
        return False
    last = _release(row.without)
    if _release(installed)[: len(last)] <= last:
        return True
    return None if row.since is None or _release(installed) < _release(row.since) else False


def problem(row: VariableRow, value: str, known: Known) -> str:
    """What is wrong with the value of one variable, empty if nothing is; raises Unknown where that is open."""
    if not value.strip() and row.type not in _EMPTY_COUNTS:
        return ""
    if row.type == "set flag":
        return ""
    if row.type == "number flag" or row.type in FLAGS:
        wrong = is_on(row, value) is None or (not value.strip() and row.type in _EMPTY_COUNTS)
        return "which is neither its yes nor its no" if wrong else ""
    if row.type in _PLACES:
        return _lies(row, value, known)
    return TYPES[row.type](row, value)


def invalid(variables: Mapping[str, str], known: Known, facts: Facts) -> tuple[list[Finding], list[str]]:
    """What the programs that read them make of these variables: findings, and what stayed open."""
    findings: list[Finding] = []
    doubts: list[str] = []
    table = rows(facts)
    for name, value in sorted(variables.items()):
        row = table.get(name)
        if row is None or name in known.elsewhere:
            continue
        try:
            if row.type == "allocator":
                findings += _allocator(row, value, known, table, doubts)
            elif wrong := problem(row, value, known):
                said = f"{name} {wrong}" if row.type == "gpus" else f"{name} is `{value}`, {wrong}"
                findings.append(_finding(row, name, value, f"{said}: {row.otherwise}", known))
        except Unknown as doubt:
            doubts.append(str(doubt))
    return findings, doubts


def _finding(row: VariableRow, name: str, value: str, message: str, known: Known) -> Finding:
    takes = row.form or ", ".join(row.values)
    fix = f"correct {name}, or unset it" + (f"; it takes: {takes}" if takes and row.type != "pattern" else "")
    return Finding(message, Severity[row.severity.upper()], name, {f"{name}={value}": known.via}, fix)


def _allocator(
    row: VariableRow, value: str, known: Known, table: Mapping[str, VariableRow], doubts: list[str]
) -> Iterator[Finding]:
    """What torch would refuse in its allocator's settings: "key:value,key:[a:1,b:2]"; a comma may end them."""
    if not value.strip():
        return
    if _not_yet(row, known):
        yield Finding(
            f"{row.name} is `{value}`, and torch {known.release(row.of)} does not read it",
            Severity.WARNING,
            row.name,
            {f"{row.name}={value}": known.via},
            f"set {row.instead}, which this torch reads" if row.instead else f"unset {row.name}",
        )
        return
    for part in re.split(r",(?![^\[]*\])", value.replace(" ", "").removesuffix(",")):
        key, _, setting = part.partition(":")
        one = table.get(_SETTING + key)
        wrong = ""
        if not key or not setting:
            wrong = "which is not of the form `key:value`"
        elif one is None:
            near = difflib.get_close_matches(key, [name.removeprefix(_SETTING) for name in table], 1, 0.8)
            if not near and not known.release(row.of):
                doubts.append(f"whether torch knows the setting `{key}` of {row.name} depends on its release")
                continue
            wrong = f"and torch knows no such setting{f', but {near[0]}' if near else ''}"
        elif (early := _not_yet(one, known)) is not False:
            if early is None:
                continue  # a release between the last known without it and the first known with it
            wrong = f"which torch {known.release(row.of)} does not know"
        else:
            wrong = problem(one, setting, known)
        if wrong:
            yield _finding(one or row, row.name, value, f"{row.name} holds `{part}`, {wrong}: {row.otherwise}", known)


# ---------------------------------------------------------------- several together


def _int(text: str | None) -> int | None:
    return int(text.strip(), 10) if text is not None and re.fullmatch(r"\s*[0-9]+\s*", text) else None


def _both(one: int | None, other: int | None, holds: Callable[[int, int], bool]) -> bool:
    return one is not None and other is not None and holds(one, other)


def _count(text: str | None) -> int | None:
    """How many a list names, or the number that a variable is; None where nobody counted ("all")."""
    if text is None or "all" in _split(text):
        return None
    return len(_split(text))


def _flag(name: str, value: str | None, facts: Facts) -> bool | None:
    row = rows(facts).get(name)
    return None if row is None or value is None or not value.strip() else is_on(row, value)


def _beyond(indices: str | None, given: str | None) -> bool:
    count = None if given is None or withholds_gpus(given) else _count(given)
    return count is not None and any(_both(_int(one), count, int.__ge__) for one in _split(indices or ""))


def _same(text: str) -> str:
    return "".join(text.split())


_Values = Mapping[str, str]
# each asks of the variables, the first name, the other side and the facts whether the relation holds
RELATIONS: dict[str, Callable[[_Values, str, str, Facts], bool]] = {
    "on": lambda of, a, b, facts: _flag(a, of.get(a), facts) is True,
    "off": lambda of, a, b, facts: _flag(a, of.get(a), facts) is False,
    "unset": lambda of, a, b, facts: not of.get(a, "").strip(),
    "set": lambda of, a, b, facts: bool(of.get(a, "").strip()),
    "is": lambda of, a, b, facts: of.get(a, "").strip().lower() == b.lower(),
    "not among": lambda of, a, b, facts: bool(of.get(a, "").strip()) and of[a].strip() not in b.split(),
    "lacks": lambda of, a, b, facts: bool(of.get(a, "").strip()) and not set(_split(of[a])) & set(b.split()),
    "at least": lambda of, a, b, facts: _both(_int(of.get(a)), _int(of.get(b)), int.__ge__),
    "above": lambda of, a, b, facts: _both(_int(of.get(a)), _int(of.get(b)), int.__gt__),
    "counts above": lambda of, a, b, facts: _both(
        _count(of.get(a)) if a == VISIBLE else _int(of.get(a)), int(b), int.__gt__
    ),
    "at least count of": lambda of, a, b, facts: _both(_int(of.get(a)), _count(of.get(b)), int.__ge__),
    "names beyond": lambda of, a, b, facts: _beyond(of.get(a), of.get(b)),
    "differs from": lambda of, a, b, facts: bool(of.get(a) and of.get(b)) and _same(of[a]) != _same(of[b]),
}


def contradictions(variables: Mapping[str, str], via: str, facts: Facts) -> Iterator[Finding]:
    """The variables that contradict one another; ``via`` is where they come from."""
    for row in facts.variable_pairs:
        if all(RELATIONS[relation](variables, name, other, facts) for name, relation, other in row.when):
            yield _contradiction(row, variables, via)


def _contradiction(row: VariablePairRow, variables: Mapping[str, str], via: str) -> Finding:
    names = dict.fromkeys(side for name, _, other in row.when for side in (name, other) if side in variables)
    values = " and ".join(f"{name}=`{variables[name]}`" for name in names)
    lacking = " and ".join(name for name, relation, _ in row.when if relation == "unset")
    wrong = f"without {lacking}" if lacking else "contradict each other"
    return Finding(
        f"{values} {wrong}: {row.says}",
        Severity[row.severity.upper()],
        next(iter(names)),
        {f"{name}={variables[name]}": via for name in names},
        row.fix,
    )


def release_of(program: str, wheels: Iterable[tuple[str, str]]) -> str:
    """The release of a program among installed distributions, each a name and a version; empty where it is none."""
    wanted = re.compile("nvidia-nccl-cu[0-9]+" if program == "nccl" else re.escape(program))
    return next((version for name, version in wheels if wanted.fullmatch(name.lower().replace("_", "-"))), "")
