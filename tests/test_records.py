"""Classes of envkit.records do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import msgspec
import pytest

from envkit import records


def _both(*, frozen: bool, kw_only: bool = False, eq: bool = True) -> list[type]:
    """The same class by the standard library's decorator and by that of envkit."""
    made = []
    for decorator in (dataclasses.dataclass, records.dataclass):

        @decorator(frozen=frozen, slots=True, kw_only=kw_only, eq=eq)
        class One:
            """A class with fields of every kind that envkit has."""

            name: str
            size: int = 3
            seen: list[int] = field(default_factory=list)
            quiet: str = field(default="q", repr=False)
            noted: str = field(default="n", compare=False)
            made: int = field(init=False, default=7)

        One.__qualname__ = "One"
        made.append(One)
    return made


Use = Callable[[Any], object]
USES: dict[str, Use] = {
    "positional": lambda one: repr(one("a", 1, [2])),
    "named": lambda one: repr(one(name="a", seen=[1])),
    "missing": lambda one: one(),
    "unknown": lambda one: one("a", none=1),
    "too many": lambda one: one("a", 1, [2], "b", "c", 5),
    "equal": lambda one: one("a") == one("a"),
    "not equal": lambda one: one("a") == one("b"),
    "not compared": lambda one: one("a", noted="x") == one("a", noted="y"),
    "of another class": lambda one: one("a") == "a",
    "no list in common": lambda one: one("a").seen is one("a").seen,
    "hash": lambda one: hash(one("a", seen=())) == hash(one("a", seen=())),
    "set": lambda one: setattr(one("a"), "size", 1),
    "delete": lambda one: delattr(one("a"), "size"),
    "replace": lambda one: repr(replace(one("a", 1), name="b")),
    "copy": lambda one: repr(copy.deepcopy(one("a", 1, [4]))),
    "as a dict": lambda one: dataclasses.asdict(one("a", 1, [4])),
    "its fields": lambda one: [each.name for each in dataclasses.fields(one)],
    "to match by": lambda one: one.__match_args__,
    "read from a document": lambda one: repr(msgspec.convert({"name": "a", "seen": [1]}, one)),
}


def _answer(use: Use, of: type) -> object:
    try:
        return use(of)
    except Exception as error:
        kind = AttributeError if isinstance(error, (AttributeError, FrozenInstanceError)) else type(error)
        return kind, str(error).rpartition("One")[2] if isinstance(error, TypeError) else ""


@pytest.mark.parametrize("kw_only", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("use", USES)
def test_a_record_does_what_a_dataclass_does(use: str, frozen: bool, kw_only: bool) -> None:
    usual, own = _both(frozen=frozen, kw_only=kw_only)
    assert _answer(USES[use], own) == _answer(USES[use], usual)


def test_without_eq_objects_are_compared_by_identity() -> None:
    for one in _both(frozen=False, eq=False):
        assert one("a") != one("a")
        assert len({one("a"), one("a")}) == 2


@records.dataclass(frozen=True, slots=True)
class Base:
    """A class that another extends."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("less than nothing")


@records.dataclass(frozen=True, slots=True)
class Extended(Base):
    """One that extends it, with a text of its own."""

    name: str = "x"

    def __repr__(self) -> str:
        return f"<{self.name}>"


def test_a_class_that_extends_another_has_its_fields_and_its_condition() -> None:
    assert (Extended(1, "a").size, repr(Extended(1, "a")), repr(Base(1))) == (1, "<a>", "Base(size=1)")
    assert Extended(1) != Base(1)
    for one in (Base, Extended):
        with pytest.raises(ValueError, match="less than nothing"):
            one(-1)


def test_a_frozen_record_travels_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Extended(4, "b"))) == Extended(4, "b")


def test_a_record_compiles_nothing_before_its_first_objects() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Late:
        size: int
        seen: tuple[int, ...] = ()

    stub = Late.__init__
    early = [Late(number, seen=(number,)) for number in range(3)]
    assert Late.__init__ is stub
    many = [Late(number, (number,)) for number in range(1000)]
    assert Late.__init__ is not stub
    assert many[:3] == early


def test_a_wrong_call_is_refused_before_and_after() -> None:
    @records.dataclass(frozen=True, slots=True)
    class One:
        size: int

    for _ in range(2):
        for given, named in (((), {}), ((1, 2), {}), ((1,), {"size": 2}), ((1,), {"other": 2})):
            with pytest.raises(TypeError, match="__init__"):
                One(*given, **named)
        assert One(1).size == 1


def test_a_changed_copy_is_that_of_the_standard_library() -> None:
    for frozen in (False, True):
        for cls in _both(frozen=frozen):
            one = cls("a", 4, seen=[1])
            changed = records.replace(one, size=5, quiet="r")
            assert changed == replace(one, size=5, quiet="r")
            assert (one.size, changed.seen is one.seen, type(changed)) == (4, True, cls)
            with pytest.raises(TypeError):
                records.replace(one, other=1)
    with pytest.raises(ValueError, match="less than nothing"):
        records.replace(Extended(1, "a"), size=-1)
