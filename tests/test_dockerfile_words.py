"""Words beside what BuildKit's shell/lex.go and the Dockerfile reference say: a table, as there is no oracle."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from fuzzed import examples
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile.instructions import Instruction
from envkit.dockerfile.parse import parse
from envkit.dockerfile.words import DEEPEST, LONGEST, Expanded, assignments, expand, split

ENV: Mapping[str, str | None] = {
    "A": "abc",
    "V": "v1.2.3",
    "P": "/usr/local/bin:/usr/bin",
    "EMPTY": "",
    "SPACED": "a  b",
    "STARS": "a*b?c",
    "WHO": None,
    "ÄÖ": "umlauts",
}

# The word, what it gives with ENV.
SURE: dict[str, str] = {
    "": "",
    "plain": "plain",
    "$A": "abc",
    "${A}": "abc",
    "x$A-y": "xabc-y",
    "$A$V": "abcv1.2.3",
    "$A.b": "abc.b",
    "$ÄÖ": "umlauts",
    "$": "$",
    "a$": "a$",
    "$.": "$.",
    "$(date)": "$(date)",
    "a  b": "a  b",
    "<<EOF": "<<EOF",
    # quotes
    '"$A"': "abc",
    "'$A'": "$A",
    "\"'$A'\"": "'abc'",
    "'\"'": '"',
    "a'b'\"c\"d": "abcd",
    '""': "",
    '"$SPACED"': "a  b",
    "$SPACED": "a  b",
    # the escape character
    "\\$A": "$A",
    "\\\\$A": "\\abc",
    "a\\tb": "atb",
    '"a\\tb"': "a\\tb",
    '"a\\\\tb"': "a\\tb",
    '"\\$A \\" \\\\"': '$A " \\',
    "'a\\'": "a\\",
    "a\\": "a",
    "a\\\\": "a\\",
    "a\\ b": "a b",
    "\\'": "'",
    "\\${A}": "${A}",
    # defaults and alternatives
    "${A:-x}": "abc",
    "${A-x}": "abc",
    "${U:-x}": "x",
    "${U-x}": "x",
    "${EMPTY:-x}": "x",
    "${EMPTY-x}": "",
    "${U:-}": "",
    "${U:-$A}": "abc",
    "${U:-${Z:-${A}}}": "abc",
    "${U:-'a}b'}": "a}b",
    '${U:-"$A}"}': "abc}",
    "${U:-a b}": "a b",
    "${U:-a\\}b}": "a}b",
    "${U:-\\$A}": "$A",
    '"${U:-"a b"}"': "a b",
    "${U:-{x}}": "{x}",
    "${A:+x}": "x",
    "${A+x}": "x",
    "${U:+x}": "",
    "${U+x}": "",
    "${EMPTY:+x}": "",
    "${EMPTY+x}": "x",
    "a${A:+_$V}": "a_v1.2.3",
    "${A:?no}": "abc",
    "${A?no}": "abc",
    "${EMPTY?no}": "",
    "${1:-x}": "x",
    "${U:-x}}": "x}",
    # what the form does not use may be unset
    "${A:-$U}": "abc",
    "${U:+$U}": "",
    "${A:-$WHO}": "abc",
}

# The word, what stands there instead, which names are unset.
UNSURE: dict[str, tuple[str, tuple[str, ...]]] = {
    "$U": ("", ("U",)),
    "a${U}b$Z": ("ab", ("U", "Z")),
    "$U$U": ("", ("U",)),
    '"$U"': ("", ("U",)),
    "$1x": ("x", ("1",)),
    "$@": ("", ("@",)),
    "${U:-$Z}": ("", ("Z",)),
    "${A:+$Z}": ("", ("Z",)),
    "${U#x}": ("${U#x}", ("U",)),
    "${U/x/y}": ("${U/x/y}", ("U",)),
    # patterns are not computed
    "${V#v}": ("${V#v}", ()),
    "${V##*.}": ("${V##*.}", ()),
    "${V%.*}": ("${V%.*}", ()),
    "${V%%.*}": ("${V%%.*}", ()),
    "${V/./-}": ("${V/./-}", ()),
    "${V//./-}": ("${V//./-}", ()),
    "${P/\\/usr/$A}": ("${P/\\/usr/$A}", ()),
    "${EMPTY/a/b}": ("${EMPTY/a/b}", ()),
    "$WHO": ("$WHO", ()),
    "a-${WHO}-$A": ("a-${WHO}-abc", ()),
    "${WHO:-x}": ("${WHO:-x}", ()),
    "${WHO:+$Z}": ("${WHO:+$Z}", ()),
    "${WHO##*/}": ("${WHO##*/}", ()),
    "${WHO//a/b}": ("${WHO//a/b}", ()),
    "${U:-$WHO}": ("$WHO", ()),
    "'q'$WHO": ("q$WHO", ()),
}

REFUSED: dict[str, str] = {
    "'a": "a ' is missing",
    '"a': 'a " is missing',
    '"a\\"': 'a " is missing',
    "\\\\'a": "a ' is missing",
    "${}": "${} is no substitution",
    "${{A}": "${{ is no substitution",
    "${:-x}": "${: is no substitution",
    "${": "${ is no substitution",
    "${A": "nothing is no operator of Docker's",
    "${.}": ". is no operator of Docker's",
    "${A:=x}": ":= is no operator of Docker's",
    "${A:0:1}": ":0 is no operator of Docker's",
    "${A:#x}": ":# is no operator of Docker's",
    "${A@Q}": "@ is no operator of Docker's",
    "${A,,}": ", is no operator of Docker's",
    "${U:-${A}": "a } is missing",
    "${V/.}": "a / is missing",
    "${V/./x": "a } is missing",
    "${U?}": "U is not set",
    "${U:?set U}": "U is not set: set U",
    "${EMPTY:?}": "EMPTY is not set",
}


@gathered(SURE)
def test_known_values(word: str) -> None:
    expanded = expand(word, ENV)
    assert (expanded.text, expanded.sure, expanded.missing, expanded.error) == (SURE[word], True, (), "")


@pytest.mark.parametrize("word", UNSURE)
def test_unknown_values(word: str) -> None:
    expanded = expand(word, ENV)
    assert (expanded.text, expanded.missing) == UNSURE[word]
    assert not expanded.sure
    assert not expanded.error


@pytest.mark.parametrize("word", REFUSED)
def test_refused_words_stay_as_written(word: str) -> None:
    assert expand(word, ENV) == Expanded(word, False, (), REFUSED[word])


@pytest.mark.parametrize(("word", "text"), [("`$A", "$A"), ("\\$A", "\\abc"), ('"`"`$`x"', '"$`x'), ("c:\\a", "c:\\a")])
def test_the_escape_character_may_be_the_backtick(word: str, text: str) -> None:
    assert expand(word, ENV, "`").text == text


def test_quotes_are_noticed() -> None:
    assert [expand(word, ENV).quoted for word in ("a", "a'b'", '"$A"', "\\'", "${U:-'x'}")] == [
        False,
        True,
        True,
        False,
        True,
    ]


def only(text: str) -> Instruction:
    (_, instruction) = parse("FROM a\n" + text, "Dockerfile").instructions
    return instruction


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("COPY  --from=x a\tb \\\n  c", ["a", "b", "c"]),
        ('COPY "a b" c', ['"a', 'b"', "c"]),
        ("EXPOSE 80 ${P:-1  2}", ["80", "${P:-1", "2}"]),
        ("WORKDIR", []),
    ],
)
def test_split(text: str, words: list[str]) -> None:
    assert [word.value for word in split(only(text).text)] == words


def test_split_words_keep_their_places() -> None:
    assert [str(word.span(0, len(word))) for word in split(only("COPY a \\\n  b").text)] == [
        "Dockerfile:2:6",
        "Dockerfile:3:3",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ENV A b  c", [("A", "b  c")]),
        ("ENV A=1 B='c d' C=e\\ f", [("A", "1"), ("B", "'c d'"), ("C", "e\\ f")]),
        ("ENV A=b=c D=", [("A", "b=c"), ("D", "")]),
        ("ENV A", []),
        ("ENV A=1 B C=2", [("A", "1"), ("C", "2")]),
        ('ENV A=1 \\\n # c\n  B="2 \\\n 3"', [("A", "1"), ("B", '"2  3"')]),
        ("ENV P=/x:$P", [("P", "/x:$P")]),
        ("LABEL \"a.b c\"='d' e\\ f=g", [("a.b c", "'d'"), ("e f", "g")]),
        ("LABEL a b=c", [("a", "b=c")]),
        ("ENV $A=b", [("$A", "b")]),
        ("ARG A", [("A", None)]),
        ('ARG A B="c d" C=', [("A", None), ("B", '"c d"'), ("C", "")]),
        ("ARG", []),
    ],
)
def test_assignments(text: str, expected: list[tuple[str, str | None]]) -> None:
    found = assignments(only(text))
    assert [(name, value if value is None else value.value) for name, value in found] == expected


def test_assignments_use_the_files_escape_character() -> None:
    env = parse("# escape=`\nFROM a\nENV A=b` c D=e\\ F=g\n", "Dockerfile").instructions[1]
    assert [(name, str(value)) for name, value in assignments(env)] == [("A", "b` c"), ("D", "e\\"), ("F", "g")]


def test_assigned_values_keep_their_places() -> None:
    values = [value for _, value in assignments(only("ENV A=1 \\\n  B=2")) if value]
    assert [str(value.span(0, len(value))) for value in values] == ["Dockerfile:2:7", "Dockerfile:3:5"]


def nested(depth: int) -> str:
    return "${u:-" * depth + "x" + "}" * depth


def test_nesting_is_read_as_deep_as_people_write_it() -> None:
    assert expand(nested(DEEPEST), {}) == Expanded("x")
    deeper = nested(DEEPEST + 1)
    assert expand(deeper, {}) == Expanded(deeper, False, (), f"variables are nested more than {DEEPEST} deep")


def test_variables_of_variables_end_at_what_a_process_can_have() -> None:
    env: dict[str, str | None] = {"A0": "x" * 10}
    for level in range(1, 40):
        env[f"A{level}"] = expand(f"$A{level - 1}" * 10, env).text
    assert max(len(value or "") for value in env.values()) <= LONGEST
    assert not expand("$A4" * 10, env).sure


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (nested(10_000), ""),
        ("${a:-" * 1_000_000, ""),
        ("$a" * 1_000_000, "x" * LONGEST),
        ("${a" * 1_000_000, ""),
        ("'\"" * 1_000_000, ""),
        ("\\" * 1_000_001, ""),
        ('"' + "\\x" * 500_000 + '"', ""),
        ("${a//x/" + "y" * LONGEST + "}", "x" * LONGEST),
        ("${a//*x*x*x*x*z/y}", "x" * LONGEST),
        ("${a//*x*x*x*x*z/y}", "x" * 4_096),
        ("${a##" + "*x" * 200 + "z}", "x" * LONGEST),
        ("${a%%" + "z" + "x*" * 200 + "}", "x" * LONGEST),
        ("${a/" + "?" * 3_000 + "z/}", "x" * 100_000),
        ("${a##" + "*" * 10_000 + "z}", "x" * 10_000),
    ],
    ids=lambda value: value[:12],
)
def test_hostile_words_take_no_time(word: str, value: str) -> None:
    start = time.process_time()
    expanded = expand(word, {"a": value})
    assert time.process_time() - start < 1.5
    assert len(expanded.text) <= max(len(word), LONGEST)


FRAGMENTS = (
    "$",
    "{",
    "}",
    "${A",
    "${U",
    ":-",
    ":+",
    "?",
    "#",
    "%",
    "/",
    "*",
    "'",
    '"',
    "\\",
    "`",
    "$A",
    "$WHO",
    "x",
    " ",
    "=",
    "<<",
)


@examples(250)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), st.sampled_from("\\`"))
def test_any_word_gives_a_result(word: str, escape: str) -> None:
    expanded = expand(word, ENV, escape)
    if expanded.error:
        assert expanded.text == word
    if expanded.error or expanded.missing:
        assert not expanded.sure
