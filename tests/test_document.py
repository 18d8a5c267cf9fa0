"""Finding the payload's answer in what an image printed: one document counts, and only in the payload's own form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.runner.document import find, parse

SEAL = {"nonce": "0123456789abcdef", "payload_sha256": "f" * 64}
OWN: dict[str, Any] = {"schema": "envkit.payload/1", "kind": "probe", "image": {"a": [1, 2.5, None, "x"]}, **SEAL}
BEGAN = json.dumps({"began": {"python": "3.11.2", "libc": "glibc 2.36"}, **SEAL})


@pytest.mark.parametrize(
    "stdout",
    [
        f"{json.dumps(OWN)}",
        f"noise\n{json.dumps(OWN)}\n\n",
        f"{BEGAN}\n{json.dumps(OWN)}\nnoise after it",
        f"['--nonce', '{SEAL['nonce']}']\n{{'nonce': '{SEAL['nonce']}'}}\n{json.dumps(OWN)}",
        json.dumps({"argv": ["--nonce", SEAL["nonce"]]}) + f"\n{json.dumps(OWN)}",
        json.dumps({"one": {"nonce": SEAL["nonce"]}}) + f"\n{json.dumps(OWN)}",
        f'{{"kind": "probe"}}\n{json.dumps(OWN)}\n{{"kind": "smoke", "nonce": "other"}}',
    ],
    ids=["alone", "behind-noise", "before-noise", "repr", "the-words-of-the-run", "within", "among-others"],
)
def test_the_one_document_with_the_seal_counts(stdout: str) -> None:
    answer = find(stdout, SEAL)
    assert (answer.document, answer.missing, answer.forged) == (OWN, "", False)
    assert answer.began == ({"python": "3.11.2", "libc": "glibc 2.36"} if BEGAN in stdout else None)


def changed(**values: Any) -> str:
    return json.dumps({**OWN, **values})


@pytest.mark.parametrize(
    ("stdout", "missing", "forged"),
    [
        ("", "printed no result", False),
        ("talk", "printed no result", False),
        (BEGAN, "printed no result", False),
        ("[1]", "printed no result", False),
        ('{"half', "printed no result", False),
        (changed(nonce="x"), "printed a result with the wrong nonce", True),
        (changed(payload_sha256="x"), "printed a result with the wrong payload_sha256", True),
        ('{"kind": "probe"}', "printed a result with the wrong nonce and payload_sha256", True),
        (f"{changed()}\n{changed()}", "printed 2 results for one run", True),
        (f"{changed()}\n{changed(payload_sha256='x')}", "printed 2 results for one run", True),
        (f"{changed()}\n{changed()[:-1]}", "printed two results, one of which cannot be read", True),
        (f"{changed()[:-1]}\n{changed()}", "printed two results, one of which cannot be read", True),
        (changed()[:-1], "printed a result that cannot be read: ", True),
        (changed()[:-1] + ', "a": NaN}', "printed a result that cannot be read: NaN, ", True),
        (changed()[:-1] + ', "kind": 1}', "printed a result that cannot be read: a duplicate key", True),
    ],
)
def test_anything_else_is_none_and_said_to_be_what_it_is(stdout: str, missing: str, forged: bool) -> None:
    answer = find(stdout, SEAL)
    assert answer.document is None and answer.forged is forged
    assert answer.missing.startswith(missing)


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 22, "-" + "1" * 22, '{"a": 1, "a": 1}',
        '[{"b": {"a": 1, "a": 2}}]', "[" * 100 + "]" * 100, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "", "{",
        "'a'", "[1,]",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_no_payload_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize("text", ["[" * 60 + "]" * 60, str(2**64), str(-(2**63)), "1e300", '"\\ud800"', "[{}, {}]"])
def test_what_a_payload_may_write_is_read(text: str) -> None:
    assert parse(text) == json.loads(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_every_value_comes_through_as_it_was(value: object) -> None:
    document = {**OWN, "value": value}
    assert find(f"{BEGAN}\n\n{json.dumps(document)}\n", SEAL).document == document


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")), st.integers(0, 100))
def test_no_output_breaks_the_reader_or_is_taken_for_a_document(noise: str, cut: int) -> None:
    for stdout in (noise, noise + changed()[:cut], changed(nonce="x") + noise):
        assert find(stdout, SEAL).document is None
