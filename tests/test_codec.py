"""Every subject survives the way to JSON and back; the strategies follow its types, new fields included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from fuzzed import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta

from envkit.errors import UsageError
from envkit.model import Observed, Reason, Unknown, ValueState
from envkit.payload.smoke.case import LEVELS
from envkit.payload.smoke.sanitize import TOOLS
from envkit.subjects import Host, Image, Placement, SmokeRun
from envkit.subjects.codec import converted, from_plain, to_plain
from envkit.subjects.imported import ImportEnd, ImportState
from envkit.versions import Cuda, Cudnn, Driver, Glibc, Nccl, Python, Sm, Torch

SUBJECTS: tuple[type[Any], ...] = (Host, Image, SmokeRun)
DOTTED: tuple[type[Any], ...] = (Cuda, Cudnn, Driver, Glibc, Nccl, Python, Torch)
PLAIN = st.characters(max_codepoint=126, exclude_characters="\n")
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    NoneType: st.none(),
    Sm: st.builds(Sm, st.integers(1, 13), st.integers(0, 9), st.sampled_from(["", "a", "f"])),
    ImportEnd: st.sampled_from(["done", "absent", "raised ImportError: x", "was killed by SIGSEGV"]).map(ImportEnd),
    **{kind: st.sampled_from(["1", "12.4", "550.54.15"]).map(kind) for kind in DOTTED},
}
# Fields of text that hold one of a few names.
NAMES: dict[tuple[type[Any], str], st.SearchStrategy[Any]] = {
    (SmokeRun, "level"): st.sampled_from(LEVELS),
    (SmokeRun, "sanitize"): st.sampled_from(("", *TOOLS)),
}


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that a subject may hold."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin is Observed:
        reasons = st.sampled_from([None, *Reason])
        lost: st.SearchStrategy[Any] = st.builds(Observed.lost, st.just("lost"), SIMPLE[str], reasons)
        return st.one_of(st.builds(Observed.of, of(parts[0]), SIMPLE[str]), lost)
    if origin is Annotated:
        return _limited(parts[0], parts[1])
    if origin is Literal:
        return st.sampled_from(parts)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if origin is tuple:
        assert parts[1:] == (...,), kind
        return st.lists(of(parts[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(of(parts[0]), of(parts[1]), max_size=2)
    if origin in (Union, UnionType):
        return st.one_of(*map(of, parts))
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{one.name: NAMES.get((kind, one.name)) or of(hints[one.name]) for one in fields(kind)})
    raise TypeError(f"no strategy for {kind}")


def _limited(kind: Any, meta: Meta) -> st.SearchStrategy[Any]:
    """Values within the limits of a type that has some."""
    if kind is int:
        return st.integers(-(2**53) if meta.ge is None else int(meta.ge), 2**53 if meta.le is None else int(meta.le))
    if kind is float:
        return st.floats(meta.ge, meta.le, allow_nan=False, allow_infinity=False)
    return st.from_regex(meta.pattern, alphabet=PLAIN) if meta.pattern else st.text(PLAIN, min_size=1, max_size=5)


@pytest.mark.slow  # hypothesis over every field of every subject
@pytest.mark.parametrize("kind", SUBJECTS)
@settings(examples(8), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_subject_reads_back(kind: type[Any], data: st.DataObject) -> None:
    strategy: st.SearchStrategy[Any] = of(kind)
    subject = data.draw(strategy)
    assert from_plain(kind, json.loads(json.dumps(to_plain(subject)))) == subject


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("plain", [None, [], "x", {}, {"name": 1}, {"name": None}])
def test_what_is_no_subject_is_the_users_mistake(kind: type[Any], plain: object) -> None:
    with pytest.raises(UsageError, match="this is not a recorded"):
        from_plain(kind, plain)


def test_the_place_of_a_wrong_field_is_named() -> None:
    with pytest.raises(UsageError, match=r"\$\.devices\.value\[0\]"):
        from_plain(Image, {"name": "i", "devices": {"value": ["sm_x"], "via": "", "missing": ""}})


@pytest.mark.parametrize("kind", DOTTED)
def test_a_version_travels_as_text(kind: type[Any]) -> None:
    assert to_plain(Observed.of(kind("12.4"), "x"))["value"] == "12.4"
    assert from_plain(kind, "12.4") == kind("12.4")
    with pytest.raises(UsageError):
        from_plain(kind, 12.4)


def test_a_capability_travels_as_text() -> None:
    plain = to_plain(Image("i", devices=Observed.of((Sm(9, 0, "a"),), "x")))
    assert list(plain["devices"]["value"]) == ["sm_90a"]


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="holds a complex"):
        to_plain(Observed.of(1j, "x"))


@pytest.mark.parametrize(
    ("plain", "state", "reason"),
    [
        ({"value": 3, "via": "x", "missing": ""}, ValueState.VALUE, None),
        ({"value": None, "via": "x", "missing": "permission denied"}, ValueState.MISSING, None),
        # as the documents of before there were reasons say it
        ({"value": None, "via": "x", "missing": "not supported"}, ValueState.UNSUPPORTED, Reason.UNSUPPORTED),
        ({"missing": "there is no torch here"}, ValueState.MISSING, None),  # no observation that was ever written
        ({"value": None, "via": "", "missing": "there is no torch here"}, ValueState.MISSING, Reason.NO_TORCH),
        ({"value": None, "via": "", "missing": "unfit there is no torch in"}, ValueState.MISSING, Reason.NO_TORCH),
        ({"value": None, "via": "", "missing": "torch was not imported"}, ValueState.MISSING, Reason.NOT_IMPORTED),
        (
            {"value": None, "via": "", "missing": "the image carries no promise of what it holds"},
            ValueState.MISSING,
            Reason.NO_PROMISE,
        ),
        (
            {"value": None, "via": "", "missing": "the reader of the disks hung: no answer within 2 s"},
            ValueState.MISSING,
            Reason.READER_DIED,
        ),
        # as they say it now
        (
            {"value": None, "via": "x", "missing": "in other words", "reason": "unsupported"},
            ValueState.UNSUPPORTED,
            Reason.UNSUPPORTED,
        ),
        # as a version to come may say it: missing, and no more, even where an old sentence stands beside it
        ({"value": None, "via": "", "missing": "no such thing", "reason": "n/a"}, ValueState.MISSING, None),
        ({"value": None, "via": "", "missing": "not supported", "reason": "n/a"}, ValueState.MISSING, None),
        ({"value": None, "via": "", "missing": "not supported", "reason": ["n/a"]}, ValueState.MISSING, None),
        ({"value": 3, "via": "x", "missing": "", "reason": "unsupported"}, ValueState.VALUE, None),
        ({"value": None, "via": "", "missing": "", "reason": "unsupported"}, ValueState.MISSING, None),
    ],
)
def test_an_observation_of_any_version_is_read(plain: object, state: ValueState, reason: Reason | None) -> None:
    seen = from_plain(Observed[int], plain)
    assert (seen.state, seen.reason) == (state, reason)


def test_a_reason_is_written_only_where_there_is_one() -> None:
    assert to_plain(Observed.of(3, "x")) == {"value": 3, "via": "x", "missing": ""}
    assert to_plain(Observed.lost("gone")) == {"value": None, "via": "", "missing": "gone"}
    assert to_plain(Observed.unsupported("x")) == {
        "value": None,
        "via": "x",
        "missing": "not supported",
        "reason": "unsupported",
    }


def test_what_a_caller_gave_is_left_as_it_was() -> None:
    plain = {"value": None, "via": "", "missing": "not supported"}
    from_plain(Observed[int], plain)
    assert "reason" not in plain


def test_a_word_of_a_newer_version_is_not_observed() -> None:
    """It ends where the innermost observation is that holds it, and everything beside that is read."""
    gpu = {
        "index": 0,
        "persistence": {"value": "eco", "via": "nvmlDeviceGetPersistenceMode", "missing": ""},
        "ecc": {"value": "on", "via": "nvmlDeviceGetEccMode", "missing": ""},
    }
    nvml = {"ended": "answered", "gpus": [gpu]}
    host = from_plain(Host, {"name": "h", "nvml": {"value": nvml, "via": "NVML", "missing": ""}})
    (seen,) = host.nvml.need("NVML").gpus
    assert (seen.ecc.value, seen.persistence.state) == ("on", ValueState.MISSING)
    assert seen.persistence.missing == "it says 'eco', which this version does not know"
    with pytest.raises(Unknown):
        seen.persistence.need("the persistence mode")
    nvml["ended"] = "asleep"
    host = from_plain(Host, {"name": "h", "nvml": {"value": nvml, "via": "NVML", "missing": ""}})
    assert host.nvml.state is ValueState.MISSING


@dataclass(frozen=True)
class _Mode:
    word: Literal["on", "off"]


@dataclass(frozen=True)
class _Device:
    mode: _Mode | None = None


@dataclass(frozen=True)
class _Machine:
    device: Observed[_Device]


def test_a_newer_word_within_what_may_be_absent_is_not_observed_either() -> None:
    def read(mode: object) -> Observed[_Device]:
        return converted(_Machine, {"device": {"value": {"mode": mode}, "via": "NVML", "missing": ""}}).device

    assert read(None).value == _Device() and read({"word": "off"}).value == _Device(_Mode("off"))
    assert read({"word": "eco"}).missing == "it says 'eco', which this version does not know"


def test_an_unknown_word_that_no_observation_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\$\.how"):
        from_plain(Placement, {"name": "m", "target": "m:f", "how": "dreamt"})


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("done", ImportState.DONE),
        ("absent", ImportState.ABSENT),
        ("raised", ImportState.RAISED),
        ("raised ImportError: libcudnn.so.9: cannot open shared object file", ImportState.RAISED),
        ("was killed by SIGSEGV", ImportState.KILLED),
        ("was killed by signal 64", ImportState.KILLED),
        ("donee", None),
        ("was bored", None),
        ("", None),
    ],
)
def test_the_end_of_an_import_has_a_state(text: str, state: ImportState | None) -> None:
    image = from_plain(Image, {"name": "i", "torch_import": {"value": text, "via": "wait status", "missing": ""}})
    assert image.import_state is state
    seen = image.torch_import
    assert (seen.value, seen.state) == ((text, ValueState.VALUE) if state else (None, ValueState.MISSING))
    assert to_plain(image)["torch_import"]["value"] == (text if state else None)
