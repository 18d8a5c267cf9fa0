"""The rules of a story (order and roles) and of a verdict (weighing), each on events and hypotheses made up here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from logs import reading, story, told

from envkit.logs.causes._tracebacks import telling
from envkit.logs.knowledge import failures
from envkit.logs.records import (
    Event,
    FileSeen,
    Frame,
    Hypothesis,
    Line,
    Mark,
    Reading,
    Role,
    Signature,
    Strength,
    Traceback,
)
from envkit.logs.story import Story, tell
from envkit.logs.verdict import answer, ordered

NOTHING = Story((), (), ())
A, B, C = "illegal-memory-access", "out-of-memory", "nccl-timeout-hang"


def at(number: int, *, file: str = "log", rank: int | None = None, time_s: float | None = None) -> Line:
    """A line, with the wall clock's time where one is given."""
    return Line(file, number, f"line {number}", rank=rank, time_s=time_s, clock="" if time_s is None else "wall")


def event(line: Line, *traits: str, role: Role = Role.ROOT, category: str = A) -> Event:
    """An event of a signature with these traits."""
    return Event(line, Signature("made-up", category, role, "x", "x", "here", "here", traits), role)


def of(*events: Event) -> Story:
    """The story of these events."""
    files = dict.fromkeys(each.line.file for each in events)
    return tell([Reading(tuple(FileSeen(name, 99, 99) for name in files), events, ())])


def roles(*events: Event) -> list[Role]:
    """Their roles once the story has settled them, in its order."""
    return [each.role for each in of(*events).events]


def guess(category: str, strength: Strength, *lines: Line, over: Sequence[str] = (), decide_by: str = "") -> Hypothesis:
    """A hypothesis of the cause "program-bug"."""
    return Hypothesis(category, "program-bug", strength, lines, "because", decide_by, over=tuple(over))


ROOT, CASCADE, DIAGNOSTIC = Role.ROOT, Role.CASCADE, Role.DIAGNOSTIC


# Roles.


def test_after_a_sticky_error_the_cuda_errors_of_its_process_follow_from_it() -> None:
    sticky = event(at(1), "sticky", "cuda")
    assert roles(sticky, event(at(2), "cuda")) == [ROOT, CASCADE]
    assert roles(event(at(1), "cuda"), event(at(2), "cuda")) == [ROOT, ROOT]
    assert roles(sticky, event(at(2))) == [ROOT, ROOT]
    assert roles(sticky, event(at(2), "cuda", "device")) == [ROOT, ROOT]
    assert roles(event(at(1), "cuda"), event(at(2), "sticky", "cuda")) == [ROOT, ROOT]


def test_a_sticky_error_is_of_its_process_alone() -> None:
    sticky = event(at(1, rank=0), "sticky", "cuda")
    assert roles(sticky, event(at(2, rank=1), "cuda")) == [ROOT, ROOT]
    assert roles(sticky, event(at(2, rank=0, file="other"), "cuda")) == [ROOT, ROOT]


def test_what_only_waits_for_others_follows_from_any_root_before_it() -> None:
    late = event(at(5), "late")
    assert roles(event(at(1)), late) == [ROOT, CASCADE]
    assert roles(late, event(at(9))) == [ROOT, ROOT]
    assert roles(late, event(at(9, file="other"))) == [CASCADE, ROOT]  # who knows which was first
    assert roles(event(at(9, rank=1)), event(at(5, rank=0), "late")) == [CASCADE, ROOT]
    assert roles(event(at(1), "warning"), late) == [ROOT, ROOT]
    assert roles(event(at(1), "late"), late) == [ROOT, ROOT]


def test_times_tell_which_was_first() -> None:
    late = event(at(5, time_s=100.0), "late")
    assert roles(event(at(1, file="b", time_s=101.0)), late) == [ROOT, ROOT]
    assert roles(event(at(1, file="b", time_s=99.0)), late) == [ROOT, CASCADE]
    assert roles(event(at(1, file="b", time_s=100.0)), late) == [ROOT, CASCADE]
    boot = replace(at(1, file="dmesg", time_s=7000.0), clock="boot")
    assert sorted(roles(event(boot), late)) == [CASCADE, ROOT]  # two clocks are not compared


def test_what_is_no_root_keeps_its_role() -> None:
    sticky = event(at(1), "sticky", "cuda")
    assert roles(sticky, event(at(2), "cuda", role=DIAGNOSTIC)) == [ROOT, DIAGNOSTIC]
    assert roles(event(at(1), "sticky", role=CASCADE), event(at(2), "cuda")) == [CASCADE, ROOT]


def test_talk_of_an_error_is_dropped_and_what_it_says_of_versions_is_not() -> None:
    def said(role: Role) -> Event:
        return replace(event(at(1), role=role), role=Role.ADVICE)

    assert of(said(ROOT), said(CASCADE)).events == ()
    assert len(of(said(DIAGNOSTIC), said(Role.ADVICE)).events) == 2


# Order.


def test_times_order_the_lines_of_several_files_where_all_bear_them() -> None:
    late, early = event(at(1, file="a", time_s=20.0)), event(at(1, file="b", time_s=10.0))
    assert [each.line.file for each in of(late, early).events] == ["b", "a"]
    timeless = event(at(2, file="b"))
    assert [each.line.file for each in of(late, early, timeless).events] == ["a", "b", "b"]
    boot = event(replace(at(1, file="c", time_s=1.0), clock="boot"))
    assert [each.line.file for each in of(late, boot).events] == ["a", "c"]


# Values and tracebacks.


def test_a_value_is_the_logs_before_it_is_the_reports() -> None:
    told_by = replace(event(at(1)), values={"torch": "1"})
    made = tell([Reading((FileSeen("log", 1, 1),), (told_by,), ())], {"torch": "2", "driver": "3"})
    assert (made.value("torch"), made.value("driver"), made.value("gpu")) == ("1", "3", None)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ((("KeyError", ""), ("RuntimeError", "during")), "RuntimeError"),
        ((("KeyError", ""), ("builtins.IndexError", "during"), ("OSError", "during")), "OSError"),
        ((("KeyError", ""), ("OSError", "during"), ("RuntimeError", "during")), "OSError"),
        ((("KeyError", ""), ("OSError", "from"), ("RuntimeError", "during")), "KeyError"),
        ((("RuntimeError", ""), ("OSError", "during")), "RuntimeError"),
        ((("KeyError", ""),), "KeyError"),
    ],
)
def test_what_was_raised_while_something_was_only_looked_up_names_the_failure(
    chain: tuple[tuple[str, str], ...], kind: str
) -> None:
    traces = tuple(Traceback(at(1), at(2), (), name, "", within) for name, within in chain)
    assert telling(traces).kind == kind


def test_a_line_is_of_the_traceback_around_it_or_of_its_message() -> None:
    trace = Traceback(at(10), at(20), (Frame("x.py", 1, "f"),), "RuntimeError", "it broke\nline 25")
    made = Story((), (trace,), ())
    assert made.traceback_of(at(15)) is trace and made.traceback_of(at(20)) is trace
    assert made.traceback_of(at(25)) is trace
    assert made.traceback_of(at(24)) is None  # not of the message
    assert made.traceback_of(at(9)) is None
    assert made.traceback_of(at(15, rank=3)) is None
    assert made.traceback_of(at(15, file="other")) is None


# Source code.

SOURCE = "import torch\nimport os\n\ndef step(x):\n    try:\n        return model(x)\n    except Exception:\n{}"
ERROR = "raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"


def test_source_code_is_no_log() -> None:
    assert story(SOURCE.format("        " + ERROR)).roots == ()
    log = SOURCE.format("        pass\n") + "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert len(story(log).roots) == 1  # a log that begins with the program
    stamped = "".join(f"2024-05-01 10:00:0{at % 10} INFO {line}\n" for at, line in enumerate(log.splitlines()))
    assert len(story(stamped).roots) == 1


@pytest.mark.parametrize(
    "line",
    [
        "src/ops/gather.py:1{}:CUDA error: an illegal memory access was encountered",
        "0f3c2a9{} Fix CUDA error: an illegal memory access was encountered",
    ],
    ids=["grep", "git"],
)
def test_what_a_search_or_a_history_lists_is_no_log(line: str) -> None:
    found = "".join(f"{line.format(at)}\n" for at in range(4))
    assert story(found).roots == ()
    among = found + "epoch 1 of 3 begins\n" * 9 + "CUDA error: misaligned address\n"
    assert len(story(among).roots) == 1  # a log with such a line in it is one


def test_an_error_among_what_looks_like_source_code_is_evidence() -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    frames = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n    step(x)\n'
    told = story(SOURCE.format("        pass\n") + frames + error + SOURCE.format("        pass\n"))
    assert len(told.roots) == 1 and len(told.tracebacks) == 1
    place = "/home/user/app.cu:12: CUDA error: an illegal memory access was encountered\n"
    assert story(place * 40).roots  # one place again and again is no search


@pytest.mark.parametrize("lines", [1, 32, 4096])
def test_the_assertions_of_a_kernel_are_evidence_however_many_there_are(lines: int) -> None:
    text = "".join(
        f"/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [{at // 32},0,0], "
        f"thread: [{at % 32},0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        for at in range(lines)
    )
    found = told(text)
    assert (found.category, found.cause) == ("device-side-assert", "bad-index-or-label")
    assert "srcSelectDimSize" in found.evidence[0].line.text


def test_the_full_history_of_a_repository_is_no_log() -> None:
    error = "CUDA error: an illegal memory access was encountered\n"
    assert story(f"commit {'0123456789' * 4}\nAuthor: Ada\n\n    fix it\n\n{error}").roots == ()
    assert len(story(f"fetching 0123\nAuthor: Ada\n\n    fix it\n\n{error}").roots) == 1


def test_nothing_of_source_code_is_quoted() -> None:
    text = SOURCE.format("        " + ERROR) + 'try:\n    pass\nfinally:\n    print("an error, it failed")\n'
    made = tell([reading(text)])
    assert reading(text).files[0].loud
    assert (made.files[0].loud, made.tracebacks) == ((), ())


# Weighing.


def categories(*found: Hypothesis, among: Story = NOTHING) -> list[str]:
    """Their categories, the best first."""
    return [each.category for each in ordered(found, among)]


def test_the_stronger_is_first_and_of_equals_the_earlier() -> None:
    assert categories(guess(A, Strength.POSSIBLE), guess(B, Strength.LIKELY)) == [B, A]
    lines = [at(1), at(2)]
    among = of(*(event(line) for line in lines))
    equal = [guess(A, Strength.LIKELY, lines[1]), guess(B, Strength.LIKELY, lines[0])]
    assert categories(*equal, among=among) == [B, A]
    assert categories(guess(A, Strength.LIKELY), equal[0], among=among) == [A, A]
    assert ordered((guess(A, Strength.LIKELY), guess(B, Strength.LIKELY, lines[1])), among)[0].category == B


def test_what_another_explains_goes_behind_if_that_one_is_likely() -> None:
    strong = guess(B, Strength.DECISIVE)
    assert categories(strong, guess(A, Strength.LIKELY, over=[B]), guess(C, Strength.FALLBACK)) == [A, C, B]
    assert categories(strong, guess(A, Strength.POSSIBLE, over=[B])) == [B, A]


@pytest.mark.parametrize(
    ("first", "second", "over", "sure"),
    [
        (Strength.DECISIVE, Strength.LIKELY, (), 0.95),
        (Strength.LIKELY, Strength.POSSIBLE, (), 0.8),
        (Strength.LIKELY, Strength.LIKELY, (), 0.65),
        (Strength.LIKELY, Strength.DECISIVE, (B,), 0.8),
        (Strength.POSSIBLE, Strength.FALLBACK, (), 0.55),
        (Strength.FALLBACK, Strength.FALLBACK, (), 0.2),
    ],
)
def test_only_a_rival_as_strong_that_is_not_explained_makes_it_less_sure(
    first: Strength, second: Strength, over: tuple[str, ...], sure: float
) -> None:
    found = ordered((guess(A, first, over=over), guess(B, second)), NOTHING)
    assert answer(found, NOTHING).confidence == sure


def test_the_same_said_twice_is_no_rival() -> None:
    same = guess(A, Strength.LIKELY)
    found = answer((same, same, guess(B, Strength.POSSIBLE)), NOTHING)
    assert found.runner_up is not None and found.runner_up.category == B
    assert (answer((same, same), NOTHING).runner_up, answer((same, same), NOTHING).confidence) == (None, 0.8)
    other = replace(same, cause="gpu-kernel-bug")
    assert answer((same, other), NOTHING).runner_up == other


def test_the_hypothesis_own_words_come_before_the_failures() -> None:
    known = failures()[A]
    plain = answer((guess(A, Strength.LIKELY),), NOTHING)
    assert (plain.decide_by, plain.next, plain.title) == (known.decide[0], known.next, known.title)
    rival = guess(B, Strength.POSSIBLE, decide_by="the rival's")
    assert answer((guess(A, Strength.LIKELY), rival), NOTHING).decide_by == "the rival's"
    own = replace(guess(A, Strength.LIKELY), decide_by="its own", next=("do",), fix="fix")
    found = answer((own, rival), NOTHING)
    assert (found.decide_by, found.next, found.fix) == ("its own", ("do",), "fix")


def test_the_fix_is_the_causes_else_the_failures() -> None:
    cause = next((known.id, each) for known in failures().values() for each in known.fix if each)
    of_cause = replace(guess(cause[0], Strength.LIKELY), cause=cause[1])
    assert answer((of_cause,), NOTHING).fix == failures()[cause[0]].fix[cause[1]]
    general = next(known for known in failures().values() if known.fix.get("") and "precision" not in known.fix)
    of_all = replace(guess(general.id, Strength.LIKELY), cause="precision")
    assert answer((of_all,), NOTHING).fix == general.fix[""]


# Evidence and the timeline.


def shown(marks: Sequence[Mark]) -> list[tuple[int, Role]]:
    """Numbers and roles."""
    return [(mark.line.number, mark.role) for mark in marks]


def test_evidence_is_the_hypothesis_lines_and_then_some_of_its_category() -> None:
    events = [event(at(number)) for number in range(1, 9)]
    events[1] = event(at(2), category=B)
    events[2] = event(at(3), role=DIAGNOSTIC)
    among = of(*events)
    found = answer((guess(A, Strength.LIKELY, at(5)),), among)
    assert shown(found.evidence) == [(5, ROOT), (1, ROOT), (4, ROOT), (6, ROOT)]
    long = answer((guess(A, Strength.LIKELY, *map(at, range(20, 40))),), among)
    assert shown(long.evidence) == [(20, ROOT), *((number, DIAGNOSTIC) for number in range(21, 28))]


def test_evidence_of_no_cause_is_what_followed_from_it() -> None:
    among = of(*(event(at(number), role=CASCADE, category=B) for number in (1, 2, 3)), event(at(4), role=DIAGNOSTIC))
    assert shown(answer((), among).evidence) == [(2, CASCADE), (3, CASCADE)]
    loud = Story((), (), (FileSeen("log", 9, 9, loud=(at(1), at(2), at(3))),))
    assert shown(answer((), loud).evidence) == [(2, CASCADE), (3, CASCADE)]
    assert answer((), loud).category == "insufficient-evidence"


def test_advice_is_never_evidence_and_on_no_timeline() -> None:
    among = of(event(at(1)), event(at(2), role=Role.ADVICE, category=""))
    found = answer((guess(A, Strength.LIKELY, at(1), at(2)),), among)
    assert shown(found.evidence) == [(1, ROOT), (2, DIAGNOSTIC)]
    assert shown(found.timeline) == [(1, ROOT)]
    later = of(event(at(1), role=Role.ADVICE, category=""), event(at(2)))
    assert shown(answer((guess(A, Strength.LIKELY, at(2)),), later).timeline) == [(2, ROOT)]


def test_the_timeline_has_one_root_where_one_was_chosen() -> None:
    among = of(event(at(1), category=B), event(at(2)), event(at(3), role=CASCADE), event(at(4), category=""))
    chosen = answer((guess(A, Strength.LIKELY, at(2)),), among).timeline
    assert shown(chosen) == [(1, DIAGNOSTIC), (2, ROOT), (3, CASCADE), (4, DIAGNOSTIC)]
    assert [mark.what for mark in chosen] == [B, A, A, "made-up"]
    open_ = answer((guess(A, Strength.LIKELY),), among).timeline
    assert shown(open_) == [(1, ROOT), (2, ROOT), (3, CASCADE), (4, ROOT)]


def test_the_whole_chain_answers_a_log_without_a_failure() -> None:
    found = told("epoch 1 took 3 s\n")
    assert (found.category, found.timeline) == ("insufficient-evidence", ())


def test_an_order_to_end_is_the_cause_only_of_what_came_after_it() -> None:
    waited, ended = event(at(3, rank=0), "late", category=C), event(at(9), "order", category="not-gpu-env")
    assert roles(waited, ended) == [ROOT, CASCADE]
    assert roles(event(at(3), "order", category="not-gpu-env"), event(at(9, rank=0), "late", category=C)) == [
        ROOT,
        CASCADE,
    ]
    assert roles(event(at(3, rank=0), "sticky", "cuda"), ended) == [ROOT, CASCADE]
    assert roles(event(at(3, rank=0), "warning", category=B), ended) == [ROOT, ROOT]


def test_what_a_log_that_ends_well_reported_was_survived() -> None:
    logged = "ERROR request 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\nINFO on\n"
    assert told(logged + "INFO all work finished without errors\n").category == "insufficient-evidence"
    assert told(logged + "INFO giving up\n").category == B


def test_the_line_of_a_message_that_says_what_is_wrong_is_quoted_too() -> None:
    raised = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in load\n    x()\n'
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: 10 is not 20.\n"
    )
    assert any("size mismatch" in mark.line.text for mark in told(raised).evidence)
