"""The parser beside BuildKit's own, which the package ``dockerfile`` holds (of BuildKit v0.12.5)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

import dockerfile
import pytest
from fuzzed import examples
from gathered import gathered
from hypothesis import example, given
from hypothesis import strategies as st

from envkit.dockerfile.instructions import Instruction, Text
from envkit.dockerfile.parse import LONGEST_LINE, Parsed, parse
from envkit.dockerfile.words import name_values, split
from envkit.model import Span

Shape = tuple[object, ...]

KNOWN = frozenset(name.upper() for name in dockerfile.all_cmds())

# Name -> text and the instructions in it.  The oracle has a say in each of them as well.
CASES: dict[str, tuple[str, list[str]]] = {
    "heredoc of a RUN holds what looks like instructions": (
        "FROM a\nRUN <<EOF\nset -e\nFROM x\nEOF\nCMD x\n",
        ["FROM", "RUN", "CMD"],
    ),
    "two heredocs of a COPY, one of them quoted": (
        'FROM a\nCOPY <<A <<"B" /d/\nRUN no\nA\nENV no\nB\nCMD x\n',
        ["FROM", "COPY", "CMD"],
    ),
    "heredoc whose end is indented by tabs": ("FROM a\nRUN <<-EOF\n\techo\n\tEOF\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "heredoc for python": ("FROM a\nRUN python3 <<'EOF'\nimport torch\nEOF\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "here-string": ('FROM a\nRUN cat <<< "$X" \\\n  && echo b\nCMD x\n', ["FROM", "RUN", "CMD"]),
    "shift in arithmetic": ("FROM a\nRUN echo $((1 << 2))\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "comments in a continuation": ("FROM a\nRUN a && \\\n# c\n  # d\n    b\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "blank line in a continuation": ("FROM a\nRUN a && \\\n\n    b\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "blanks behind the backslash": ("FROM a\nRUN a && \\ \t\n    b\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "escape is the backtick": (
        "# escape=`\nFROM a\nRUN dir C:\\\nRUN a `\n b\nCMD x\n",
        ["FROM", "RUN", "RUN", "CMD"],
    ),
    "syntax, then escape": (
        "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nRUN a `\n b\nCMD x\n",
        ["FROM", "RUN", "CMD"],
    ),
    "lower case": ("from a as b\nrun x\ncopy --from=b / /\n", ["FROM", "RUN", "COPY"]),
    "CRLF": ("FROM a\r\nRUN a && \\\r\n  b\r\nCMD x\r\n", ["FROM", "RUN", "CMD"]),
    "byte order mark": ("\ufeffFROM a\nRUN x\n", ["FROM", "RUN"]),
    "quoted FROM": ('ARG B=x\nFROM "${B}"\nRUN x\n', ["ARG", "FROM", "RUN"]),
    "nested default": ('ARG A="${A:-1;2+PTX}"\nFROM b:${X:-${Y:-1}}\nRUN x\n', ["ARG", "FROM", "RUN"]),
    "alternative value": ("FROM s_${N:+no_}c as q\nRUN x\n", ["FROM", "RUN"]),
    "pattern at the begin": ("ARG T=v1.2\nFROM b:${T#v}\nRUN x\n", ["ARG", "FROM", "RUN"]),
    "patterns at the end and everywhere": (
        "ARG T=1.2-x\nFROM b:${T%-x}\nENV U=${T//./-}\nRUN x\n",
        ["ARG", "FROM", "ENV", "RUN"],
    ),
    "ENV over lines": (
        'FROM a\nENV A=1 \\\n    # c\n    B="x y" \\\n\n    C=3\nRUN x\n',
        ["FROM", "ENV", "RUN"],
    ),
    "ENV in its old form": ("FROM a\nENV A b c\nRUN x\n", ["FROM", "ENV", "RUN"]),
    "LABELs": ('FROM a\nLABEL a=b\nLABEL c="d e" f=g\nRUN x\n', ["FROM", "LABEL", "LABEL", "RUN"]),
    "flags of RUN": (
        "FROM a\nRUN --mount=type=cache,target=/c --mount=type=secret,id=t --network=none --security=insecure x\n"
        "CMD x\n",
        ["FROM", "RUN", "CMD"],
    ),
    "flags of COPY": (
        "FROM a\nCOPY --chmod=755 --link --parents --exclude=*.md . /x\nRUN x\n",
        ["FROM", "COPY", "RUN"],
    ),
    "ADD of a repository": (
        "FROM a\nADD --keep-git-dir=true --checksum=sha256:aa https://github.com/a/b.git#v1 /x\nRUN x\n",
        ["FROM", "ADD", "RUN"],
    ),
    "ONBUILD": ("FROM a\nONBUILD RUN x\nONBUILD COPY . /\nRUN x\n", ["FROM", "ONBUILD", "ONBUILD", "RUN"]),
    "HEALTHCHECK and others": (
        'FROM a\nHEALTHCHECK --interval=5s --start-interval=1s CMD x\nSTOPSIGNAL 9\nSHELL ["a","b"]\nRUN x\n',
        ["FROM", "HEALTHCHECK", "STOPSIGNAL", "SHELL", "RUN"],
    ),
    "several names in an ARG": ("ARG A=1 B=2\nFROM a\nARG A B=3\nRUN x\n", ["ARG", "FROM", "ARG", "RUN"]),
    "JSON that is none": ("FROM a\nCMD ['a','b']\nRUN x\n", ["FROM", "CMD", "RUN"]),
    "JSON over lines": ('FROM a\nRUN ["a", \\\n "b"]\nCMD x\n', ["FROM", "RUN", "CMD"]),
    "platform, digest and name": ("FROM --platform=linux/amd64 a:1@sha256:aa AS x\nRUN x\n", ["FROM", "RUN"]),
    "a hash that begins no comment": (
        'FROM a\nRUN pip install git+https://x/y.git#egg=z && echo "#no"\nCMD x\n',
        ["FROM", "RUN", "CMD"],
    ),
    "continuation at the end of the file": ("FROM a\nRUN x \\\n", ["FROM", "RUN"]),
    "indented instructions": ("FROM a\n\tRUN x\n  CMD y\n", ["FROM", "RUN", "CMD"]),
    "a comment of the shell": ("FROM a\nRUN a \\\n b # z \\\n && c\nCMD x\n", ["FROM", "RUN", "CMD"]),
    "EXPOSE, VOLUME, MAINTAINER, USER": (
        'FROM a\nEXPOSE ${P:-7860} 22/tcp\nVOLUME ["/x"]\nMAINTAINER me <a@b>\nUSER 1:1\nRUN x\n',
        ["FROM", "EXPOSE", "VOLUME", "MAINTAINER", "USER", "RUN"],
    ),
    # From here on cases of our own.
    "a lone carriage return ends no line": ("FROM a\nRUN x\ry\nCMD z\r\r\n", ["FROM", "RUN", "CMD"]),
    "form feeds and vertical tabs are blanks": ("FROM\fa\n\vRUN\v\fx\f\nENV A\fb\vc\n", ["FROM", "RUN", "ENV"]),
    "blanks of Unicode around": (
        "\u3000FROM a\u2003\nRUN\u00a0x\n RUN \u00a0x\u2003y\u00a0\n",
        ["FROM", "RUN\u00a0X", "RUN"],
    ),
    "information separators are no blanks": (
        "FROM a\nRUN x\x1c\n\x1cRUN y\nCMD \x1f\n",
        ["FROM", "RUN", "\x1cRUN", "CMD"],
    ),
    "blank behind the escape is not all": ("FROM a\nRUN x \\\f\nCMD y\n", ["FROM", "RUN", "CMD"]),
    "two escapes are no continuation": ("FROM a\nRUN x \\\\\nCMD y\n", ["FROM", "RUN", "CMD"]),
    "three are none either": ("FROM a\nRUN x \\\\\\\nCMD y\n", ["FROM", "RUN", "CMD"]),
    "lines of an escape alone": ("\\\nFROM a\nRUN \\\n\\\n  \\\nx \\\n\\\nCMD y\n", ["FROM", "RUN"]),
    "the name parts from nothing": ("FROM a\nRUN\\\nx\n", ["FROM", "RUNX"]),
    "continuation into comments to the end": ("FROM a\nRUN x \\\n# c\n\n  # d", ["FROM", "RUN"]),
    "directive after a comment": ("# no\n# escape=`\nFROM a\nRUN x \\\ny\n", ["FROM", "RUN"]),
    "directive after a blank line": ("\n# escape=`\nFROM a\nRUN x \\\ny\n", ["FROM", "RUN"]),
    "directive after an unknown one": ("# other=1\n# escape=`\nFROM a\nRUN x \\\ny\n", ["FROM", "RUN"]),
    "directive with blanks": ("  #   eScApE  =  `  \r\nFROM a\nRUN x `\ny\n", ["FROM", "RUN"]),
    "directive behind a byte order mark": ("\ufeff# escape=`\nFROM a\nRUN x `\ny\n", ["FROM", "RUN"]),
    "byte order mark in the middle": ("FROM a\n\ufeffRUN x\n", ["FROM", "\ufeffRUN"]),
    "heredoc without an end of line": ("FROM a\nRUN <<EOF\nx\nEOF", ["FROM", "RUN"]),
    "heredoc with CRLF": ("FROM a\r\nRUN <<EOF\r\nx\r\nEOF\r\nCMD y\r\n", ["FROM", "RUN", "CMD"]),
    "empty heredoc": ("FROM a\nRUN <<EOF\nEOF\nCMD y\n", ["FROM", "RUN", "CMD"]),
    "heredoc behind a continuation": (
        "FROM a\nRUN a \\\n # c\n <<EOF cat \\\n && b\nx \\\nEOF\nCMD y\n",
        ["FROM", "RUN", "CMD"],
    ),
    "heredoc with a number": ("FROM a\nRUN x 3<<EOF\ny\nEOF\nCMD z\n", ["FROM", "RUN", "CMD"]),
    "heredoc whose name has quotes within": ("FROM a\nRUN <<E'O'F\ny\nEOF\nRUN <<E\\'F\nE'F\n", ["FROM", "RUN", "RUN"]),
    "heredoc whose name is two words": ("FROM a\nRUN <<'E F'\ny\nE F\nCMD z\n", ["FROM", "RUN", "CMD"]),
    "heredoc whose name is a variable": (
        "FROM a\nRUN <<$EOF\ny\n$EOF\nRUN <<${E:-x}\n${E:-x}\n",
        ["FROM", "RUN", "RUN"],
    ),
    "heredoc mark within quotes": ("FROM a\nRUN \"<<EOF\"\nRUN '<<EOF'\nRUN \\<<EOF\n", ["FROM", "RUN", "RUN", "RUN"]),
    "heredoc mark next to a word": ("FROM a\nRUN cat<<EOF\nRUN x>y<<E\nCMD z\n", ["FROM", "RUN", "RUN", "CMD"]),
    "heredoc mark with an empty name": (
        "FROM a\nRUN <<''\nRUN <<\nRUN <<-\nCMD z\n",
        ["FROM", "RUN", "RUN", "RUN", "CMD"],
    ),
    "heredoc on a line with an open quote": ("FROM a\nRUN it's <<EOF\nCMD z\n", ["FROM", "RUN", "CMD"]),
    "heredoc on a line with a bad variable": ("FROM a\nRUN ${x@Q} <<EOF\nCMD z\n", ["FROM", "RUN", "CMD"]),
    "heredoc on a line with a good variable": ("FROM a\nRUN ${x:0:1} <<EOF\nCMD z\nEOF\n", ["FROM", "RUN"]),
    "heredoc in ONBUILD": ("FROM a\nONBUILD RUN <<EOF\nx\nEOF\nCMD y\n", ["FROM", "ONBUILD", "CMD"]),
    "no heredoc in JSON": ('FROM a\nRUN ["a", "<<EOF"]\nCMD y\n', ["FROM", "RUN", "CMD"]),
    "no heredoc in other instructions": (
        "FROM a\nUSER <<EOF\nENV A=<<EOF\nCMD <<EOF\n",
        ["FROM", "USER", "ENV", "CMD"],
    ),
    "the end of one heredoc within another": ("FROM a\nCOPY <<X <<Y /d\nY\nX\nX\nY\nCMD y\n", ["FROM", "COPY", "CMD"]),
    "flags with quotes": ("FROM a\nRUN --network='no ne' --a=\"b\\\"c\" --d=\\'e x\n", ["FROM", "RUN"]),
    "flags end at two dashes": ("FROM a\nRUN --a -- --b x\nRUN --\nRUN --a\n", ["FROM", "RUN", "RUN", "RUN"]),
    "a flag behind the value is none": ("FROM a\nCOPY a --chown=x b\n", ["FROM", "COPY"]),
    "flags over lines": ("FROM a\nRUN --mount=a \\\n  # c\n  --mount=b \\\n  x\n", ["FROM", "RUN"]),
    "ENV with escaped blanks": ('FROM a\nENV A=a\\ b B=\'c \\\' C="d \\" e" D=f\\\n', ["FROM", "ENV"]),
    "ENV with an open quote": ("FROM a\nENV A=1 B=\"x y\nENV C='x y\nENV D=1 \\\n", ["FROM", "ENV", "ENV", "ENV"]),
    "ENV old form with = and blanks": ("FROM a\nENV A  b=c  'd  e'\nLABEL a b=c\n", ["FROM", "ENV", "LABEL"]),
    "LABEL with quoted names": ('FROM a\nLABEL "a.b"="c d" \'e f\'=g\n', ["FROM", "LABEL"]),
    "ARG forms": ("ARG\nARG A B=\"c d\" 'E'=f G=\nFROM a\n", ["ARG", "ARG", "FROM"]),
    "instructions without arguments": (
        "FROM a\nRUN\nCMD\nENV\nCOPY\nONBUILD\nHEALTHCHECK\n",
        ["FROM", "RUN", "CMD", "ENV", "COPY", "ONBUILD", "HEALTHCHECK"],
    ),
    "HEALTHCHECK forms": (
        'FROM a\nHEALTHCHECK NONE\nHEALTHCHECK CMD ["a"]\nHEALTHCHECK --retries=1 CMD  a  b\n',
        ["FROM", "HEALTHCHECK", "HEALTHCHECK", "HEALTHCHECK"],
    ),
    "JSON forms": (
        'FROM a\nRUN []\nRUN [ "a\\u00e9\\n" , "\\ud83d\\ude00" ]\nRUN [ -f x ] && y\nRUN ["a",]\nRUN [NaN]\n'
        'RUN ["\t"]\nCOPY ["a b", "c"]\nVOLUME [ "a" ]\nADD [a, b]\n',
        ["FROM", *["RUN"] * 6, "COPY", "VOLUME", "ADD"],
    ),
    "ONBUILD of ONBUILD": ("FROM a\nONBUILD ONBUILD RUN <<EOF\n", ["FROM", "ONBUILD"]),
    "ONBUILD with JSON": (
        'FROM a\nONBUILD CMD ["a", "b"]\nONBUILD RUN --network=none x\n',
        ["FROM", "ONBUILD", "ONBUILD"],
    ),
    "unknown instructions": ("FROM a\nFOO bar\n[core]\n", ["FROM", "FOO", "[CORE]"]),
    "blank lines and comments around": ("\n \n#c\n\nFROM a\n\n # d\n\nRUN x\n\n", ["FROM", "RUN"]),
}

# What BuildKit reads otherwise since: the oracle of v0.12.5 is older.
NEWER: dict[str, tuple[str, list[str]]] = {
    # dockerfile 1.16 (moby/buildkit#5817) lets blanks stand after <<.
    "blank before the name of a heredoc": ("FROM a\nRUN cat << EOF > x\nFOO y\nEOF\nCMD z\n", ["FROM", "RUN", "CMD"]),
    # The directive check came with dockerfile 1.8; before, it ended the directives.
    "check, then escape": ("# check=skip=all\n# escape=`\nFROM a\nRUN x `\n y\n", ["FROM", "RUN"]),
    # ${x/a/b} came with dockerfile 1.7; before, a line with it had no heredoc.
    "replacement on the line of a heredoc": ("FROM a\nRUN ${x/a/b} <<EOF\nFOO y\nEOF\n", ["FROM", "RUN"]),
    # dockerfile 1.15 lets the directive escape hold for flags.
    "escape character in a flag": ("# escape=`\nFROM a\nRUN --a=b` c --d=\\e x\n", ["FROM", "RUN"]),
    # moby/buildkit#5107 (dockerfile 1.9) ended that anything may follow the list.
    "text behind JSON": ('FROM a\nRUN ["a"] b\n', ["FROM", "RUN"]),
    "pattern on the line of a heredoc": ("FROM a\nRUN ${x%%a*} <<EOF\nFOO y\nEOF\n", ["FROM", "RUN"]),
}

REFUSED: dict[str, tuple[str, str]] = {
    "nothing": ("", "there is no instruction in the file"),
    "comments alone": ("# a\n", "there is no instruction in the file"),
    "heredoc without an end": ("FROM a\nRUN <<EOF\nx y\n", "the here-document EOF has no end"),
    "name without a value": ("FROM a\nENV A\n", "ENV has a name and no value"),
    "word without =": ("FROM a\nLABEL a=b c\n", "LABEL has a word without ="),
    "JSON with a number": ('FROM a\nCMD ["a", 1]\n', 'the JSON list ["a", 1] holds more than strings'),
    "JSON with a list": ("FROM a\nRUN [[]]\n", "the JSON list [[]] holds more than strings"),
    "escape is a letter": ("# escape=x\nFROM a\n", "the escape character is 'x', neither \\ nor `"),
    "escape twice": ("# escape=`\n# escape=`\nFROM a\n", "the parser directive escape stands here for the second time"),
    "line too long": (
        "FROM a\nRUN " + "x" * (LONGEST_LINE - 3) + "\n",
        "the line is longer than 65,535 bytes, where BuildKit stops reading",
    ),
}


def value_of(instruction: Instruction) -> tuple[str, ...]:
    """What the oracle calls the value, made of our instruction."""
    text, name = instruction.text, instruction.name
    if instruction.trigger:
        return value_of(instruction.trigger)
    if name == "ONBUILD":
        return ("",) if text.value else ()
    if name not in KNOWN:
        return ("",)
    if name == "HEALTHCHECK":
        kind, *rest = re.split(r"[\t\v\f\r ]+", text.value, maxsplit=1)
        return (kind, *(rest if instruction.exec_form is None else instruction.exec_form)) if kind else ()
    if instruction.exec_form is not None:
        return instruction.exec_form
    if name in ("ENV", "LABEL", "ARG"):
        pairs, _ = name_values(text.value, instruction.escape, legacy=name != "ARG")
        both = [(text.value[a:b], text.value[c:d] if c >= 0 else None) for a, b, c, d in pairs]
        if name == "ARG":
            return tuple(key if value is None else f"{key}={value}" for key, value in both)
        return tuple(part for key, value in both for part in (key, value or ""))
    if name in ("ADD", "COPY", "VOLUME", "FROM", "EXPOSE"):
        return tuple(word.value for word in split(text))
    return (text.value,) if text.value else ()


def ours(parsed: Parsed) -> list[Shape]:
    return [
        (
            each.name,
            each.trigger.name if each.trigger else None,
            (each.trigger or each).exec_form is not None,
            each.span.end_line,
            tuple(flag.value for flag in each.flags),
            value_of(each),
            () if each.trigger else tuple((doc.name, int(doc.fd or 0), doc.content.value) for doc in each.heredocs),
        )
        for each in parsed.instructions
    ]


def theirs(text: str) -> list[Shape]:
    """Raises dockerfile.GoParseError where BuildKit refuses the file; it shows no heredocs of an ONBUILD."""
    found: list[Shape] = []
    for each in dockerfile.parse_string(text):
        trigger = each.sub_cmd.lower().upper() if each.sub_cmd else None
        docs = tuple((doc.name, doc.file_descriptor, doc.content) for doc in each.heredocs)
        value = each.value
        if trigger == "ONBUILD":  # one in another: we read no further
            trigger, value = None, ("",)
        found.append(((each.cmd or "").lower().upper(), trigger, each.json, each.end_line, each.flags, value, docs))
    return found


def same(text: str) -> None:
    assert ours(parse(text, "Dockerfile")) == theirs(text)


@gathered(CASES)
def test_instructions_are_buildkits(name: str) -> None:
    text, expected = CASES[name]
    parsed = parse(text, "Dockerfile")
    assert [each.name for each in parsed.instructions] == expected
    same(text)


@pytest.mark.parametrize("name", NEWER)
def test_instructions_are_todays_buildkits(name: str) -> None:
    text, expected = NEWER[name]
    parsed = parse(text, "Dockerfile")
    assert [each.name for each in parsed.instructions] == expected
    assert not parsed.problems
    assert ours(parsed) != theirs(text), "the oracle has learned this: the case belongs to the others"


@pytest.mark.parametrize("name", REFUSED)
def test_what_buildkit_refuses_is_a_problem(name: str) -> None:
    text, message = REFUSED[name]
    assert message in [problem.message for problem in parse(text, "Dockerfile").problems]
    with pytest.raises(dockerfile.GoParseError):
        theirs(text)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("FROM a\nRUN x\n", []),
        ("ARG A=1\nFROM a\nONBUILD RUN <<EOF\nEOF\n", []),
        ("FROM a\nFOO bar\n", ["there is no instruction FOO"]),
        ("FROM a \\\n  :1.2\n", ["FROM takes a name, or a name AS a stage, and here are 2 words"]),
        ("FROM a:1 # the newest\n", ["FROM takes a name, or a name AS a stage, and here are 4 words"]),
        ("FROM a:1 AS b\n", []),
        ("RUN x\nFROM a\n", ["RUN stands before the first FROM"]),
        ("ARG A=1\n", ["there is no FROM"]),
        ("FROM a\nONBUILD ONBUILD RUN x\n", ["ONBUILD holds another ONBUILD"]),
        ("FROM a\nONBUILD ENV A\n", ["ENV has a name and no value"]),
        # Only frontends since dockerfile 1.16 take this for a here-document, and nobody means one.
        ("FROM a\nRUN echo $((1 << 2))\n", []),
    ],
)
def test_problems(text: str, messages: list[str]) -> None:
    assert [problem.message for problem in parse(text, "Dockerfile").problems] == messages


def test_a_heredoc_without_an_end_takes_no_instructions() -> None:
    parsed = parse("FROM a\nRUN cat <<EOF > x\nCMD y\n", "Dockerfile")
    assert [each.name for each in parsed.instructions] == ["FROM", "RUN", "CMD"]
    assert [problem.span.line for problem in parsed.problems] == [2]


def test_directives_are_kept() -> None:
    parsed = parse("# syntax = docker/dockerfile:1  \n#check=skip=a;error=true\n# Escape=`\n# syntax=x\nFROM a\n", "D")
    assert parsed.directives == {"syntax": "docker/dockerfile:1", "check": "skip=a;error=true", "escape": "`"}
    assert parsed.escape == "`"
    assert [problem.span.line for problem in parsed.problems] == [4]


def test_heredocs_say_how_they_are_meant() -> None:
    parsed = parse("FROM a\nCOPY <<A <<'B' 3<<-C <<-\"D\" /d\nA\nB\n\tc\n\tC\n\t\tD\n", "Dockerfile")
    docs = parsed.instructions[1].heredocs
    assert [(doc.name, doc.expand, doc.chomp, doc.fd) for doc in docs] == [
        ("A", True, False, ""),
        ("B", False, False, ""),
        ("C", True, True, "3"),
        ("D", False, True, ""),
    ]
    assert docs[2].content.value == "\tc\n"
    assert docs[2].content.place(1) == (5, 2)


def test_a_heredoc_without_an_end_hides_no_other() -> None:
    parsed = parse("FROM a\nRUN cat <<A <<B\nx\nB\nCMD z\n", "Dockerfile")
    assert [problem.message for problem in parsed.problems] == ["the here-document A has no end"]
    assert [(doc.name, doc.content.value) for doc in parsed.instructions[1].heredocs] == [("B", "x\n")]
    assert [each.name for each in parsed.instructions] == ["FROM", "RUN", "CMD"]


def test_heredocs_of_a_trigger_are_both_its_own_and_onbuilds() -> None:
    onbuild = parse("FROM a\nONBUILD RUN <<EOF\nx\nEOF\n", "Dockerfile").instructions[1]
    assert onbuild.trigger is not None
    assert onbuild.heredocs == onbuild.trigger.heredocs
    assert [doc.content.value for doc in onbuild.heredocs] == ["x\n"]
    assert (onbuild.span, onbuild.trigger.span) == (Span("Dockerfile", 2, 1, 4, 4), Span("Dockerfile", 2, 9, 4, 4))


def stands_at(source: str, span: Span) -> str:
    """What the file says at a span, line breaks included."""
    lines = source.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def test_places_in_the_file() -> None:
    source = '\ufeffFROM  a\n  RUN --mount=x \\\r\n# c\r\n\r\n    pip install \\  \n\ttorch\n\nENV A="b c" \\\n D=e\n'
    instructions = parse(source, "Dockerfile").instructions
    assert [stands_at(source, each.span) for each in instructions] == [
        "FROM  a",
        "RUN --mount=x \\\r\n# c\r\n\r\n    pip install \\  \n\ttorch",
        'ENV A="b c" \\\n D=e',
    ]
    assert str(instructions[0].span) == "Dockerfile:1:2"
    run = instructions[1]
    assert run.text.value == "pip install \ttorch"
    torch = run.text.value.index("torch")
    assert run.text.span(torch, torch + 5) == Span("Dockerfile", 6, 2, 6, 7)
    assert run.text.span(4, 4) == Span("Dockerfile", 5, 9, 5, 9)
    assert stands_at(source, run.text.span(0, len(run.text))) == "pip install \\  \n\ttorch"
    assert [stands_at(source, flag.span(0, len(flag))) for flag in run.flags] == ["--mount=x"]


def test_a_flag_without_its_quotes_keeps_its_places() -> None:
    source = "FROM a\nRUN --a='b c'\\\nd x\n"
    (flag,) = parse(source, "Dockerfile").instructions[1].flags
    assert flag.value == "--a=b cd"
    assert [stands_at(source, flag.span(at, at + 1)) for at in range(len(flag))] == list("--a=b cd")


def test_text_of_a_plain_string() -> None:
    text = Text.of("ab\ncd\n", "f", 7, 3)
    assert [text.place(at) for at in range(7)] == [(7, 3), (7, 4), (7, 5), (8, 1), (8, 2), (8, 3), (9, 1)]
    assert text.slice(1, 5).span(0, 4) == Span("f", 7, 4, 8, 3)
    picked = text.pick([(0, 1), (1, 1), (2, 4)])
    assert (picked.value, [picked.place(at) for at in range(3)]) == ("a\nc", [(7, 3), (7, 5), (8, 1)])
    assert (len(text), str(text), len(text.pick([]))) == (6, "ab\ncd\n", 0)


PIECES = (
    *(
        "FROM a",
        "RUN ",
        "ENV ",
        "COPY ",
        "ONBUILD ",
        "LABEL ",
        "ARG ",
        "CMD ",
        "ADD ",
        "HEALTHCHECK ",
        "VOLUME ",
        "SHELL ",
        "add",
    ),
    *(
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
        " ",
        " ",
        "\t",
        "\f",
        "\v",
        "\\\n",
        "\\\n",
        "\\ \t\r\n",
        "\\",
        "`",
        "`\n",
        "\u00a0",
        "\u3000",
    ),
    *("#", "# c\n", " # c\n", "# escape=`\n", "# syntax=x\n", "#escape=\\\r\n", "\ufeff", "\x1c", "é"),
    *("<<EOF", "<<-EOF", "<<'EOF'", '3<<"E O"', "<<", "<", "EOF", "\nEOF\n", "\n\tEOF\r\n", "\nE O\n", "-"),
    *(
        "'",
        '"',
        "$",
        "${",
        "${a",
        ":-",
        ":+",
        "?",
        "}",
        "{",
        "=",
        "a=b",
        'A="b c"',
        "x",
        "y z",
        "--",
        "--f=g",
        "--f='g h'",
        "-- ",
    ),
    *('["a", "b"]', "[", "]", '"a"', ",", "[1]", "&&", "|", ";", "(", ")", "0"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def is_newer(text: str, parsed: Parsed) -> bool:
    """Whether the text has what the oracle is too old for, or takes byte by byte."""
    values = [part.text.value for each in parsed.instructions for part in (each, each.trigger) if part]
    return (
        "check" in parsed.directives
        or any(re.search(r"<<[\t\r ]|\$\{\w*[/#%]", value) or has_list_and_more(value) for value in values)
        or ("--" in text and not (text.isascii() and parsed.escape == "\\"))
        or ("HEALTHCHECK" in text and not text.isascii())
    )


def has_list_and_more(value: str) -> bool:
    value = re.sub(r"\A[^\[]\S*\s+(?=\[)", "", value)  # HEALTHCHECK's list follows a word
    try:
        return value.startswith("[") and json.JSONDecoder().raw_decode(value)[1] < len(value)
    except ValueError:
        return False


def check_both(text: str) -> None:
    """Equal to the oracle where it accepts the text, a problem where it refuses it."""
    parsed = parse(text, "Dockerfile")
    if is_newer(text, parsed):
        return
    try:
        expected = theirs(text)
    except dockerfile.GoParseError:
        assert parsed.problems
        return
    assert ours(parsed) == expected


@examples(250)
@given(TEXTS)
@example("FROM a\nRUN <<EOF <<EOF\nEOF\nEOF\n")
@example("RUN --f='g h")
def test_random_texts_are_read_as_by_buildkit(text: str) -> None:
    check_both("FROM a\n" + text)
    check_both(text)


@examples(100)
@given(st.lists(st.sampled_from([line for text, _ in CASES.values() for line in text.splitlines(True)]), max_size=12))
def test_spliced_cases_are_read_as_by_buildkit(lines: Sequence[str]) -> None:
    check_both("".join(lines))


@examples(100)
@given(st.text(max_size=200))
def test_any_text_gives_a_result_whose_places_lie_in_the_file(text: str) -> None:
    lines = text.split("\n")
    for each in parse(text, "Dockerfile").instructions:
        span = each.span
        assert 1 <= span.line <= span.end_line <= len(lines)
        assert span.column <= len(lines[span.line - 1]) + 1
        assert span.end_column <= len(lines[span.end_line - 1]) + 1
        for at, char in enumerate(each.text.value):
            line, column = each.text.place(at)
            assert lines[line - 1][column - 1] == char


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN " + "x" * 50_000_000,
        "FROM a\nRUN " + "[" * 30_000 + "]" * 30_000,
        "FROM a\nCMD [" + "1" * 60_000 + "]",
        "FROM a\n" + "ONBUILD " * 8_000 + "RUN x\n",
        "FROM a\nRUN <<EOF " + "${a:-" * 10_000 + "\nEOF\n",
        "FROM a\n" + "RUN <<EOF\n" * 20_000,
        "FROM a\n" + "RUN x <<'E' <<-E\n" * 20_000 + "E\n" * 10,
        "FROM a\nENV " + "a=b\\\n" * 100_000,
        "FROM a\nENV " + 'a="b\'\\"\\' * 7_000,
        "FROM a\nRUN " + "--f='" * 10_000,
        "FROM a\nRUN " + "\\\n" * 300_000,
        "FROM a\nCMD [" + '"a", ' * 10_000 + "]",
        "FROM a\nCMD [" + '"\\\\' * 15_000 + "]",
        "# escape=`\n" * 20_000,
        "\n" * 1_000_000,
    ],
    ids=lambda text: text[:30],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    start = time.process_time()
    parsed = parse(text, "Dockerfile")
    assert time.process_time() - start < 1.5
    assert parsed.instructions or parsed.problems
