"""What is compiled at its first use behaves as what is compiled at once."""

from __future__ import annotations

import copy
import pickle
import re
from importlib import import_module
from pathlib import Path

import pytest

import envkit
from envkit.patterns import pattern

_ROOT = Path(envkit.__file__).parent


def test_it_finds_what_the_compiled_one_finds() -> None:
    late, compiled = (
        pattern(r"(?P<name>[a-z]+)-(\d+)", re.IGNORECASE),
        re.compile(r"(?P<name>[a-z]+)-(\d+)", re.IGNORECASE),
    )
    text = "Torch-26, cuda-124"

    assert late.findall(text) == compiled.findall(text) == [("Torch", "26"), ("cuda", "124")]
    assert [found["name"] for found in late.finditer(text)] == ["Torch", "cuda"]
    assert late.fullmatch("torch") is None
    assert late.sub("x", text, count=1) == compiled.sub("x", text, count=1) == "x, cuda-124"
    assert late.pattern == compiled.pattern


def test_a_wrong_expression_is_an_error_at_its_first_use() -> None:
    late = pattern("(")

    with pytest.raises(re.error, match="unterminated subpattern"):
        late.search("text")


def test_a_copy_is_as_good() -> None:
    late = pattern("a+")

    assert copy.copy(late).search("baa") is not None
    assert pickle.loads(pickle.dumps(late)).search("baa") is not None


def test_every_expression_of_envkit_compiles() -> None:
    asked = 0
    for path in _ROOT.rglob("*.py"):
        if "import pattern\n" in path.read_text("utf-8"):
            name = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
            for value in vars(import_module(name)).values():
                if type(value).__name__ == "pattern":
                    asked += isinstance(value.pattern, str)
    assert asked > 200
