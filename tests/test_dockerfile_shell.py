"""What a shell would start, read without starting it; bash and dash themselves are the judges where they are there."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import answers
import pytest
from clocks import costs_less
from fuzzed import examples
from gathered import gathered
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envkit.dockerfile.instructions import Text
from envkit.dockerfile.parse import parse
from envkit.dockerfile.shell import LONGEST, Script, commands
from envkit.dockerfile.shell_syntax import DEPTH
from envkit.dockerfile.shell_words import MOST
from envkit.subjects.dockerfile import Command

KNOWN = {"V": "v w", "E": "", "N": "12.4.1", "HOME": "/root", "A": "arm64"}


def read(script: str, env: dict[str, str | None] | None = None, cwd: str = "", shell: str = "sh") -> Script:
    """The script as it would stand in a file from its first line on."""
    found = commands(Text.of(script, "Dockerfile"), env or {}, cwd, dialect=shell)
    # What a script comes to that is made to reach a bound takes seconds to digest.
    ordinary = len(script) < 10_000 and sum(len(each.words) for each in found.commands) < 10_000
    return answers.same("scripts", (script, env, cwd, shell), found) if ordinary else found


def said(found: Sequence[Command]) -> list[str]:
    """Each command in one line: "?" before what is not sure, "<>" around a word that is not."""
    return [
        ("" if each.sure else "? ") + " ".join(word.text if word.sure else f"<{word.text}>" for word in each.words)
        for each in found
    ]


WORDS = [
    ("splits at operators", "a && b || true; c & d | e |& f\ng", ["a", "b", "? true", "c", "d", "e", "f", "g"]),
    ("quotes", "a 'b c' \"d e\" f\\ g \"\" j'k'\"l\"", ["a b c d e f g  jkl"]),
    ("escapes in quotes", "a $'h\\ti' b", ["a <$'h\\ti'> b"]),
    ("comment", "a b#c # d\n# e\nf", ["a b#c", "f"]),
    ("continued line", "a \\\n  b\\\nc", ["a bc"]),
    ("variables of the same script", "V=1.2; a $V ${V} ${V%.*} ${V#*.} ${V/./-} u${V//./}", ["a 1.2 1.2 1 2 1-2 u12"]),
    ("unknown variable", 'a $X "b$X" ${X%.*}', ["a <$X> <b$X> <${X%.*}>"]),
    ("default of a variable that nobody set", "a ${X:-b} ${X-c} ${X:-${Y:-d}}", ["a b c d"]),
    ("default of a variable that the base sets", "a ${LD_LIBRARY_PATH:-b}", ["a <${LD_LIBRARY_PATH:-b}>"]),
    ("a form that is not known ends behind what is quoted in it", 'a ${?"}"}x b', ['a <${?"}"}x> b']),
    ("an unset variable", "X=1; unset X; a ${X}b", ["unset X", "a <${X}b>"]),
    ("splitting", 'V="b c"; a $V "$V" x$V', ["a b c b c xb c"]),
    ("a requirement that redirects", "pip install torch>=2.0 x", ["pip install torch x"]),
    ("assignment before a command", "A=1 B=$A c", ["c"]),
    ("arithmetic", "i=3; a $((i*2 + 1)) $(( (1+2)%2 )) $((x+1))", ["a <$((i*2 + 1))> <$(( (1+2)%2 ))> <$((x+1))>"]),
    ("what plain programs print", "a $(echo b c) $(dpkg --print-architecture)", [
        "echo b c", "dpkg --print-architecture", "a b c amd64",
    ]),
    ("a machine's name", "a `uname -m`", ["uname -m", "a x86_64"]),
    ("a cut version", "V=11.8.0; a cu$(echo $V | cut -d. -f1,2 | tr -d .)", [
        "echo 11.8.0", "cut -d. -f1,2", "tr -d .", "a cu118",
    ]),
    ("sed and awk", "a $(echo 1.2 | sed 's/1/2/') $(echo 1.2 | awk '{print $1}')", [
        "echo 1.2", "sed s/1/2/", "echo 1.2", "awk {print $1}",
        "a <$(echo 1.2 | sed 's/1/2/')> <$(echo 1.2 | awk '{print $1}')>",
    ]),
    ("unknown output", "a $(nproc) \"-j$(nproc)\"", ["nproc", "nproc", "a <$(nproc)> <-j$(nproc)>"]),
    ("if undecided", "if [ \"$X\" = 1 ]; then a; else b; fi; c", ["[ <$X> = 1 ]", "? a", "? b", "c"]),
    ("if decided", "X=1; if [ \"$X\" = 1 ]; then a; else b; fi; c", ["[ 1 = 1 ]", "a", "c"]),
    ("elif decided", "if false; then a; elif true; then b; else c; fi", ["false", "true", "b"]),
    ("a file's test", "[ -f x ] && a; b", ["[ -f x ]", "? a", "b"]),
    ("a test that the build needs", "[ -f x ] && a", ["[ -f x ]", "a"]),
    ("numbers", "N=5; [ $N -ge 3 ] && a; [ $N -lt 3 ] && b; c", ["[ 5 -ge 3 ]", "a", "[ 5 -lt 3 ]", "c"]),
    ("double brackets", "X=12.4; [[ $X == 12* && ! -z $X ]] && a || b", ["a", "? b"]),
    ("double brackets with a quoted pattern", "X=12; [[ $X == '1*' ]] || a", ["a"]),
    ("branches that disagree", "if [ -f x ]; then V=1; else V=2; fi; a $V", ["[ -f x ]", "a <$V>"]),
    ("branches that agree", "if [ -f x ]; then V=1; else V=1; fi; a $V", ["[ -f x ]", "a 1"]),
    ("a branch that fails the build", "V=1; if [ -f x ]; then V=2; exit 1; fi; a $V", ["[ -f x ]", "? exit 1", "a 1"]),
    ("a branch that ends well", "if [ -f x ]; then exit 0; fi; a", ["[ -f x ]", "? exit 0", "? a"]),
    ("what a branch that ends well has set", "V=1; if [ -f x ]; then V=2; exit 0; fi; a $V", [
        "[ -f x ]", "? exit 0", "? a 1",
    ]),
    ("nothing follows exit", "a; exit 0; b", ["a", "exit 0"]),
    ("case decided", "case $(uname -m) in x86_64|amd64) a;; *) b;; esac", ["uname -m", "a"]),
    ("case patterns in parentheses", "case x in (x|y) a;; (z) b;; esac; case x in (z) b;; (x) c;; esac", ["a", "c"]),
    ("case undecided", "case $X in x*) V=1;; y) V=1;; *) exit 1;; esac; a $V", ["? exit 1", "a 1"]),
    ("case falls through", "case a in a) b;& c) d;; e) f;; esac", ["? b", "? d", "? f"]),
    ("for", "for x in a 'b c'; do p $x; done", ["p a", "p b c"]),
    ("for over an unknown", "for x in $(cat f); do p $x; done; q", ["cat f", "? p <$x>", "q"]),
    ("a loop that tries again", "for i in 1 2 3; do p && break || sleep 5; done; q", ["p", "break", "q"]),
    ("while", "while ! p; do sleep 1; done; q", ["p", "? sleep 1", "q"]),
    ("until a count", "n=0; until [ $n -ge 5 ]; do p && break; n=$((n+1)); done; q", [
        "[ 0 -ge 5 ]", "p", "break", "q",
    ]),
    ("function", "f() { p $1; }; f a; f b", ["p a", "p b"]),
    ("a function that nobody calls", "f() { p $1; }", ["? p <$1>"]),
    ("a function that returns", "function f { p; return 0; q; }; f && r", ["p", "return 0", "r"]),
    ("sudo and env", "sudo -u bob -H env A=1 nice -n 5 pip install x", ["pip install x"]),
    ("timeout and time", "time timeout -k 5 300 make", ["make"]),
    ("xargs", "xargs -n 1 -P4 pip install < f", ["pip install"]),
    ("a question is no wrapper", "command -v nvcc && a; b", ["command -v nvcc", "? a", "b"]),
    ("a shell in the shell", "bash -lc \"a $X && b 'c d'\"", ["a <$X>", "b c d"]),
    ("its arguments", "bash -o pipefail -ec 'a \"$1\"' name b", ["a b"]),
    ("eval", "eval \"a b\"", ["a b"]),
    ("eval of an output", "eval \"$(conda shell.bash hook)\"; a", [
        "conda shell.bash hook", "eval <$(conda shell.bash hook)>", "a",
    ]),
    ("a downloaded script", "sh -c \"$(curl x)\"; curl y | bash -s -- -z; bash <(curl z)", [
        "curl x", "sh -c <$(curl x)>", "curl y", "bash -s -- -z", "curl z", "bash <<(curl z)>",
    ]),
    ("su", "su - bob -c 'pip install x'", ["pip install x"]),
    ("a script from a here-document", "bash -e <<EOF\na \\\n b\nc\nEOF\nd", ["a b", "c", "d"]),
    ("subshell", "(V=1; a $V); V=2; b $V", ["a 1", "b 2"]),
    ("an array", "x=(a 'b c'); p \"${x[@]}\" ${#x[@]} ${x[1]}", ["p a b c 2 b c"]),
    ("set --", "set -eux -- a b; p \"$@\" $#", ["set -eux -- a b", "p a b 2"]),
    ("fallback", "pip install a || pip install b; c", ["pip install a", "? pip install b", "c"]),
    ("never the right side", "true || a; false && b; c", ["true", "false", "c"]),
    ("not", "! false && a", ["false", "a"]),
    ("only the end of a pipeline has to succeed", "{ [ -f /x ] && a; } | b; c | { [ -f /x ] && d; }", [
        "[ -f /x ]", "? a", "b", "c", "[ -f /x ]", "d",
    ]),
    ("a pipeline that has to fail", "! a | { [ -f /x ] && b; }", ["a", "[ -f /x ]", "? b"]),
    ("export keeps a value together", "V='a b'; export W=$V; p \"$W\"", ["export W=a b", "p a b"]),
    ("two parentheses are arithmetic only where two end it", "((a); b); ((1 + 2)) && c", ["a", "b", "c"]),
    ("a tilde", "HOME=/root; ~/bin/pip install ~", ["/root/bin/pip install /root"]),
]  # fmt: skip


@gathered([case[1:] for case in WORDS])
def test_commands_and_their_words(script: str, wanted: list[str]) -> None:
    """Splitting, expansion, what is decided and what is not."""
    found = read(script)
    assert said(found.commands) == wanted
    assert found.complete


def test_braces_are_bash_s_alone() -> None:
    """``/bin/sh`` of Debian leaves them; which words bash makes of them is not computed."""
    assert said(read("a {b,c}{1..2} {d} x'{e,f}'", shell="bash").commands) == ["a <{b,c}{1..2}> {d} x{e,f}"]
    assert said(read("a {b,c}").commands) == ["a {b,c}"]
    assert said(read("bash -c 'a {b,c}'").commands) == ["a <{b,c}>"]
    assert said(read('V=1; a {b,c}$(echo "$V")', shell="bash").commands) == ["echo 1", "a <{b,c}1>"]


def test_a_pattern_of_file_names_stands_for_nobody_knows_what() -> None:
    """As a loop's word and as a folder; between quotes it is a name like any other."""
    assert said(read("for f in a *.whl; do b $f; done").commands) == ["? b <$f>"]
    assert said(read('for f in a "*.whl"; do b "$f"; done').commands) == ["b a", "b *.whl"]
    assert [each.cwd for each in read("cd cuda-1?; a; cd /b; c", cwd="/").commands] == ["/", "", "", "/b"]


def test_operators_assignments_redirections_and_folders() -> None:
    """What a command has beside its words."""
    found = read("cd /a && A=1 sudo B=2 make >x 2>&1; (cd b; c | d); e; cd $X; f", cwd="/").commands
    cd, make, _, c, d, e, _, f = found
    assert (cd.after, make.after, c.after, d.after, e.after) == ("", "&&", ";", "|", ";")
    assert {name: word.text for name, word in make.assigns.items()} == {"A": "1", "B": "2"}
    assert make.env["A"] == "1" and make.env["B"] == "2" and "A" not in e.env
    assert [(each.op, each.target.text) for each in make.redirects] == [(">", "x"), ("2>&", "1")]
    assert [word.text for word in make.raw_words] == ["sudo", "B=2", "make"]
    assert (cd.cwd, make.cwd, c.cwd, e.cwd, f.cwd) == ("/", "/a", "/a/b", "/a", "")


def test_a_written_file_is_recognisable() -> None:
    """``cat > file <<EOF``: target, text, and what is expanded in it."""
    (cat,) = read("V=1\ncat > /etc/x <<EOF\na $V\n\\$b\nEOF").commands
    assert [(each.op, each.target.text) for each in cat.redirects] == [(">", "/etc/x"), ("<<", "a 1\n$b\n")]
    assert cat.heredoc == "a 1\n$b\n"
    (quoted,) = read("cat <<-'EOF' > x\n\ta $V\n\tEOF").commands
    assert quoted.heredoc == "a $V\n"
    one, two = read("{ echo a; echo b; } > /etc/x").commands
    assert one.redirects[0].target.text == two.redirects[0].target.text == "/etc/x"


def test_here_documents_of_the_dockerfile() -> None:
    """Their bodies come from the instruction, with their places."""
    parsed = parse("FROM x\nRUN cat <<EOF > /a && bash <<-E\nhello\nEOF\n\tpip install y\nE\n", "Dockerfile")
    run = parsed.instructions[1]
    cat, pip = commands(run.text, {}, heredocs=run.heredocs).commands
    assert cat.heredoc == "hello\n"
    assert said([pip]) == ["pip install y"]
    assert (pip.span.line, pip.span.column) == (5, 2)


def test_positions() -> None:
    """A word's place in the file, in scripts within scripts too."""
    text = "FROM x\nRUN apt-get update \\\n # why\n && bash -c 'cd /a; pip install \"torch==2.6.0\"' \\\n && V=1 make\n"
    run = parse(text, "Dockerfile").instructions[1]
    lines = text.split("\n")
    found = commands(run.text, {}).commands
    for command in found:
        for word in command.words:
            span = word.span
            assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == word.raw
    assert [(each.span.line, each.program) for each in found] == [
        (2, "apt-get"), (4, "cd"), (4, "pip"), (5, "make"),
    ]  # fmt: skip
    assert lines[4][found[3].span.column - 1 :].startswith("V=1 make")


def test_what_is_known_at_the_end() -> None:
    """Variables that nobody knows are named, those that stand alone are listed."""
    found = read("A=1; B=$(date); export C=3; D=4 x; unset E; F+=6", {"E": "5", "G": "7", "F": "5"})
    assert found.env == {"A": "1", "B": None, "C": "3", "E": None, "F": "56", "G": "7"}
    assert [(name, word.text) for name, word in found.assigned] == [("A", "1"), ("B", "$(date)"), ("F", "6")]
    assert read("p ${X:-a} $X", {"X": None}).commands[0].words[1].sure is False


def test_another_machine() -> None:
    """What ``uname`` and ``dpkg`` say follows the platform."""
    script = Text.of("p $(uname -m) $(dpkg --print-architecture)", "Dockerfile")
    assert said(commands(script, {}, arch="arm64").commands)[-1] == "p aarch64 arm64"


# The oracle: the shells themselves

HARNESS = """exec 3>&1 >/dev/null 2>&1
p() { for _p in "$@"; do printf '%s\\0' "$_p" >&3; done; printf '\\1\\0' >&3; }
"""


def ran(script: str, shell: str, folder: Path) -> tuple[list[list[str]], int]:
    """The words of each ``p`` that the shell itself ran, and how it ended."""
    env = {**KNOWN, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([shell, "-c", HARNESS + script], capture_output=True, env=env, cwd=folder, timeout=120)
    calls = done.stdout.decode().split("\1\0")[:-1]
    return [call.split("\0")[:-1] for call in calls], done.returncode


def fits(call: list[str], command: Command) -> bool:
    """Whether a command may be what was run; a word that is not sure may be any."""
    return any(not word.sure for word in command.words) or list(command.args) == call


def within(few: Sequence[object], many: Sequence[object], same: object) -> bool:
    """Whether ``few`` stand in ``many`` in their order."""
    rest = iter(many)
    assert callable(same)
    return all(any(same(one, other) for other in rest) for one in few)


def judged(script: str, shell: str, folder: Path) -> None:
    """What is sure was run, and what was run is there."""
    calls, status = ran(script, shell, folder)
    found = commands(Text.of(script, "Dockerfile"), dict(KNOWN), dialect=shell)
    mine = [command for command in found.commands if command.program == "p"]
    if "for" in script:  # a round of which nothing is known stands for all of them
        assert all(any(fits(call, command) for command in mine) for call in calls), (script, calls)
    else:
        assert within(calls, mine, fits), (script, calls, said(found.commands))
    if status == 0:
        sure = [command for command in mine if command.sure]
        assert within(sure, calls, lambda one, call: fits(call, one)), (script, calls, said(found.commands))


LITERAL = [
    "p a 'b  c' \"d $V e\" $V \"$V\" f\\ g h\\\\i 'j\\k' \"l\\m\\$n\\\"\" \"\" '' $E \"$E\" x$E",
    "p ${N%.*} ${N%%.*} ${N#*.} ${N##*.} ${#N} ${N%.1} ${N#12} ${N#?} ${N%\"*\"}",
    "p ${U:-a b} \"${U:-a b}\" ${U-c} ${E:-d} ${E-e} ${V:+f} ${E:+g} ${E+h} \"${U:-'q'}\" ${U:-'q r'} ${U:-\"$V\"}",
    "p $(echo a b) \"$(echo a  b)\" `echo c` \"`echo \\\"d e\\\"`\" $(echo \"$(echo f)\")",
    "p a#b #c\np d\\\ne 'f\\\ng'",
    "p $(echo $N | cut -d. -f1,2) $(echo $N | cut -d . -f 2-) $(echo $N | tr . -) $(echo $N | tr -d .)",
    "p $(echo $N | sed 's/\\./-/g') $(echo $N | sed 's/\\.[0-9]*$//') $(echo aXb | tr A-Z a-z)",
    "p $(echo $N | sed 's/\\([0-9]*\\)\\.\\([0-9]*\\).*/\\1\\2/')",
    "p $(printf '%s-' a b) $(basename /x/y.z .z) $(dirname /x/y)",
    "p $(echo $N | awk -F. '{print $1\"-\"$2, $3}') $(seq 3) $(echo a b c | awk '{print $2}')",
    "case $N in 11.*) p a;; 12.*|13.*) p b;; *) p c;; esac;",
    "case $V in 'v w') p d;; esac; case x in [a-w]) p e;; [!a-w]) p f;; esac",
    "if [ $N = 12.4.1 ] && [ -n \"$V\" ]; then p a; fi; if [ -z $E ]; then p b; fi",
    "[ 2 -gt 10 ] || p c; [ ! 1 = 2 ] && p d",
    "test a = a -a b = c || p a; [ a = a -o b = c ] && p b; [ \"$U\" ] || p c; [ \\( a = a \\) ] && p d; [ ! ] && p e",
    "for i in 1 2 3; do for j in a b; do [ $i = 2 ] && continue; p $i$j; done; done; p $i",
    "for i in a b c; do p $i; if [ $i = b ]; then break; fi; done",
    "f() { p \"$@\" $#; shift; p $1; return 0; p no; }; f a 'b c'; g() ( V=inner; p $V ); g; p $V",
    "set -- x 'y z'; p \"$@\" $*; p \"$*\" $2; shift; p $#",
    "X=1; { X=2; }; ( X=3 ); p $X; X=4 true; p $X; X=a; X=$X$X; p $X; Y=~/b; p $Y ~ ~/c \"~\"",
    "cd /; p $(pwd); V=$(echo new); p $V; unset V; p a${V}b",
    "IFS=.; p $N; p \"$N\"", "a=1 b=$V; p $a $b", "! false && p a; ! true || p b", "p a; exit 0; p b",
    "while false; do p a; done; until true; do p b; done; while true; do p c; break; done",
    "cat <<EOF\n$V $(p inner)\nEOF\np after", "true | p b; p c & wait; p d",
    "{ p a; p b; } >/dev/null; ( p c ) 2>&1",
    "eval \"p '$V' \\$N\"", "true && p a || p b; false || p c && p d; true || p e && p f",
    "p a>/dev/null b 2>&1 c; p 2>/dev/null; >/dev/null p d", "if ! p a; then p b; else p c; fi; p d",
]  # fmt: skip

DECIDED = LITERAL[:6]  # nothing in them is open

# Forms that are not computed are among them: their words are not sure, and what runs after them is.
LITERAL += [
    'p $((1 + 2 * 3)) $(( (4 - 1) / 2 )) $((-7 % 3)) $((2 > 1 && 0 < 1)) "a$((10/3))b"',
    "p ${N%[0-9]} ${N#[!0-9]}; V=1; : $((V = 2)) $((V += 3)); p $V; [ $((V)) -eq 5 ] && p a || p b",
]

BASH = [
    "p {a,b}{1..3} {c} {d,} x{e,{f,g}}y \"{h,i}\" {j,'k l'} {3..1} {01..03} {a..c} ${N}{1,2}",
    "p ${N/./-} ${N//./} ${N/#12/x} ${N/%1/y} ${N//[0-9]/d} ${N/4*/z}",
    "p ${N:1} ${N:1:3} ${N: -2} ${N:0:-2} ${V^} ${V^^} ${N,,}",
    "p $'a\\tb\\x41\\'c' $\"d\"; x=(a 'b c' d); p \"${x[@]}\" ${#x[@]} ${x[1]} \"${x[*]}\"; x+=(e); p ${#x[@]}; p $x",
    "[[ $N == 12.* ]] && p a; [[ $N != 12.* ]] || p b; [[ $N == \"12.*\" ]] || p c",
    "[[ -n $V && ( $E == '' || x == y ) ]] && p d",
    "[[ 2 -lt 10 ]] && p a; [[ b > a ]] && p b; [[ ! $V ]] || p c; if [[ $V == 'v w' ]]; then p d; fi",
    "case x in x) p a;& y) p b;; z) p c;; esac; function f { p $1; }; f q",
    "declare X=1 Y='a b'; p $X \"$Y\"; Z+=a; Z+=b; p $Z",
    "n=V; p \"${!n}\"; (( 1 + 1 == 2 )) && p a; (( 0 )) || p b",
    "export X=$V; p \"$X\"; local_=1; p <<< $V; p &>/dev/null",
]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_the_shells_agree_on_written_scripts(shell: str, tmp_path: Path) -> None:
    """Every form that the tables above name, run by the shell itself."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    for script in LITERAL + (BASH if shell == "bash" else []):
        judged(script, shell, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_written_scripts_are_decided(shell: str, tmp_path: Path) -> None:
    """Word for word, where nothing in a script is open."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    for script in DECIDED:
        calls, _ = ran(script, shell, tmp_path)
        found = commands(Text.of(script, "Dockerfile"), dict(KNOWN), dialect=shell)
        assert [list(each.args) for each in found.commands if each.program == "p" and each.sure] == calls, script


PIECES = st.sampled_from([
    "a", "b1", "'c d'", '"e f"', "$V", '"$V"', "$N", "${N%.*}", "${N##*.}", "${U:-d e}", '"${U:-d  e}"', "$E", '"$E"',
    "$((1+2))", "$(echo x y)", '"$(echo x  y)"', "`echo q`", "\\ ", "\\$",
    "*", "~", "$X", '"$X"', "${X:-n}", "'\"'", "=", "-",
])  # fmt: skip
WORD = st.lists(PIECES, min_size=1, max_size=3).map("".join)
CALL = st.lists(WORD, max_size=3).map(lambda words: " ".join(["p", *words]))
SIMPLE = st.one_of(
    CALL, CALL, CALL,
    WORD.map(lambda word: f"X={word}" if not word.startswith("=") else "X=1"),
    st.sampled_from(["true", "false", ":", "unset X", "X=1 p $X", "exit 0"]),
    st.tuples(WORD, st.sampled_from(["=", "!="]), WORD).map(lambda t: f'[ "{t[0].replace(chr(34), "")}" {t[1]} v ]'),
    st.sampled_from(["[ -n \"$X\" ]", "[ -z \"$E\" ]", "[ 3 -gt 2 ]", "[ -e /nowhere ]",
                     "test -d /", "grep -q x /dev/null"]),
)  # fmt: skip


@st.composite
def scripts(draw: st.DrawFn, depth: int = 3) -> str:
    """Every way to put commands together."""
    form = draw(st.integers(0, 12)) if depth else 0
    if form < 3:
        return draw(SIMPLE)
    one, two = draw(scripts(depth - 1)), draw(scripts(depth - 1))
    match form:
        case 3 | 4 | 5:
            return one + draw(st.sampled_from(["; ", "\n", " && ", " || "])) + two
        case 6:
            return draw(st.sampled_from(["{ %s; }", "( %s )", "true | { %s; }", "! { %s; }"])).replace("%s", one)
        case 7:
            return f"if {one}; then {two}; else {draw(scripts(depth - 1))}; fi"
        case 8:
            return f"if {one}; then {two}; fi"
        case 9 | 10:
            return f"for X in {draw(WORD)} {draw(WORD)}; do {one}; done; {two}"
        case 11:
            return f"case {draw(WORD)} in a*) {one};; *) {two};; esac"
    return f"{{ f() {{ {one}; }}; f; }}; {two}"


@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(script='[ -n "$X" ] || false && p; p', shell="dash")
@example(script="if p; then for X in a a; do exit 0; done; p; fi && p", shell="dash")
@example(script="for X in a a; do { f() { true; }; f; }; [ -e /nowhere ] && exit 0; done; p", shell="dash")
@example(script="if X=a; then if p; then false; fi && p; p; fi", shell="dash")
@example(script='case "$X" in a) false;; esac; p a && case "$X" in "") false;; esac && p', shell="dash")
@example(script="for X in a b; do false; done && p; while p; do false; break; done || p b; p", shell="dash")
@given(script=scripts(), shell=st.sampled_from(["bash", "dash"]))
def test_the_shells_agree_on_any_script(script: str, shell: str, tmp_path: Path) -> None:
    """No command is sure that the shell did not run, none was run that is not there."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    judged(script, shell, tmp_path)


ALPHABET = [*"ab1=$(){}[]'\"`\\;&|<>!#*~- \n\t/:%+,.@", "EOF", "<<", "if ", "then ", "fi", "do ", "done", "for x in "]
ALPHABET += ["case ", "esac", ";;", "bash -c ", "eval ", "f()"]


@examples(120)
@given(st.lists(st.sampled_from(ALPHABET), max_size=120).map("".join))
def test_any_text_is_read(script: str) -> None:
    """No exception, and every command stands within the text."""
    for shell in ("sh", "bash"):
        with costs_less(1):
            found = read(script, {"a": "1 2", "b": None}, "/x", shell)
        lines = script.count("\n") + 1
        for command in found.commands:
            assert command.words
            for word in command.words:
                assert 1 <= word.span.line <= word.span.end_line <= lines


@examples(60)
@given(st.text(max_size=200))
def test_any_character_is_read(script: str) -> None:
    """Characters beyond ASCII, controls and lone surrogates."""
    with costs_less(1):
        read(script, {}, shell="bash")


N = 10_000
BOMBS = {
    "words": "x " + "word " * 40_000,
    "quoted words": "x " + "'a'\"b\" " * 15_000,
    "substitutions": "$(" * N + "x" + ")" * N,
    "subshells": "( " * N + "x" + " )" * N,
    "parentheses": "((" * N,
    "groups": "{ " * N + "x" + "; }" * N,
    "defaults": "echo " + "${a:-" * N + "x" + "}" * N,
    "quoted defaults": "echo " + '"${a:-' * N + "x" + '}"' * N,
    "ifs": "if x; then " * N,
    "cases": "case x in x) " * N,
    "backquotes": "`" * N + "\\`" * N,
    "function definitions": "f() " * N,
    "braces": "x " + "{" * N + " " + "{a," * N,
    "many braces": "x " + "{a,b}" * 30,
    "recursion": "f() { f; f; }; f",
    "doubling functions": "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}; " for i in range(60)) + "f60() { x; }; f0",
    "doubling variable": "a=xxxxxxxxxx;" + "a=$a$a;" * 100 + "echo $a",
    "large variable": "a=" + "x" * 60_000 + ";" + "echo $a;" * 5_000,
    "many variables": "".join(f"a{i}=1; x;" for i in range(5_000)),
    "many undecided": "".join(f"if [ -f x ]; then a{i}=1; fi;" for i in range(3_000)),
    "nested loops": "".join(f"for a{i} in 1 2 3 4 5 6 7 8; do " for i in range(12)) + "x; " + "done; " * 12,
    "long loops": "for i in " + "1 " * 64 + "; do x " + "w " * 4_000 + "; done",
    "parameters": "set -- " + "a " * 20_000 + "; " + 'x "$@"; ' * 400,
    "array": "a+=(x);" * 5_000,
    "evals": "eval " * 8_000,
    "wrappers": "sudo " * 20_000 + "x",
    "sums": "x " + "$((1+" * N + "))" * N,
    "tests": "[[" + " (" * N,
    "patterns": "a=" + "a" * 1_000 + "; b=${a%%" + "*a" * 1_000 + "}; c=${a//" + "*a" * 10 + "/}; x $b",
    "sed": "x=$(echo " + "a" * 60 + " | sed -E 's/a*a*a*a*b/x/')",
    "here-documents": "".join(f"cat <<E{i}\n" for i in range(N)),
    "separators": ";" * 100_000,
    "one character": "x" * (LONGEST + 1),
}


@pytest.mark.slow  # nearly all of what this file takes: each comes as near to its bound as a script can
@pytest.mark.parametrize("name", BOMBS)
def test_time_is_bounded(name: str) -> None:
    """Nothing is quadratic, nothing recurses without a bound (seconds are those of a slow machine)."""
    begin = time.process_time()
    found = read(BOMBS[name], shell="bash")
    # Most take 0.1 s and the longest less than one; a machine that is shared has been seen to take three times as long.
    assert time.process_time() - begin < 6.0
    assert len(found.commands) <= MOST


def chain_of_functions(length: int) -> str:
    """A script whose functions call one another in a row, each in a list of its own."""
    return "f0() { a; }\n" + "".join(f"f{n}() {{ f{n - 1}; }}\n" for n in range(1, length)) + f"f{length - 1}"


def test_a_bound_is_said() -> None:
    """Where commands may be missing, the script says so."""
    assert len(read(BOMBS["words"]).commands[0].words) == 40_001
    for name in ("substitutions", "ifs", "recursion", "one character", "nested loops"):
        assert not read(BOMBS[name]).complete, name
    deep = DEPTH // 2 - 2
    assert said(read("( " * deep + "x" + " )" * deep).commands) == ["x"]
    assert not read("if true; then a").complete
    assert read("a; b").complete
    assert read(chain_of_functions(10)).complete
    assert not read(chain_of_functions(200)).complete
    many: dict[str, str | None] = {f"v{number}": "1" for number in range(3_000)}  # compared wherever branches meet
    assert read("if x; then y; fi;" * 200, many).complete
    assert not read("if x; then a=1; fi;" * 200, many).complete


def test_a_script_of_two_files_has_the_places_of_each() -> None:
    script = "for x in a b; do echo $x; done\nrun `plain word`\n"
    places = [
        {(word.span.path, word.span.line) for each in found.commands for word in each.words}
        for text in (Text.of(script, "a", 3), Text.of(script, "b"), Text.of(script, "a", 3))
        for found in [commands(text, {})]
    ]
    assert places == [{("a", 3), ("a", 4)}, {("b", 1), ("b", 2)}, {("a", 3), ("a", 4)}]
