"""NVIDIA_REQUIRE_*, each case worked out by hand from what nvidia-container-cli does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit import facts
from envkit.judging.nvidia_require import (
    InvalidExpression,
    Properties,
    Requirement,
    asks,
    compare,
    disabled,
    met,
    requirements,
    same_brand,
)

H100 = Properties("13.0", "580.159.04", "9.0", "NVIDIA")
A100 = Properties("12.4", "550.54.15", "8.0", "NVIDIA")
T4 = Properties("12.2", "535.183.01", "7.5", "Tesla")
OLD_T4 = Properties("11.4", "470.57.02", "7.5", "Tesla")
RTX = Properties("12.2", "535.183.01", "8.9", "GeForce")
PRO = Properties("12.2", "535.183.01", "8.9", "NVIDIA RTX")
NONE = Properties("12.4", "550.54.15", None, None)

# the requirements of real images: 11.0, 11.4.3, 12.2 and 13.2, the last two shortened to some brands and branches
IMAGE_11 = "cuda>=11.0 brand=tesla,driver>=418,driver<419 brand=tesla,driver>=440,driver<441"
IMAGE_11_4 = "cuda>=11.4"
IMAGE_12_2 = (
    "cuda>=12.2 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 "
    "brand=nvidia,driver>=470,driver<471 brand=nvidiartx,driver>=470,driver<471 "
    "brand=geforce,driver>=470,driver<471 brand=tesla,driver>=525,driver<526 brand=geforcertx,driver>=525,driver<526"
)
IMAGE_13_2 = (
    "cuda>=13.2 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536 "
    "brand=nvidia,driver>=535,driver<536 brand=nvidiartx,driver>=535,driver<536 brand=vws,driver>=535,driver<536 "
    "brand=nvidia,driver>=580,driver<581"
)


@gathered(
    [
        # one condition, each operator at its edge
        ("cuda>=13.0", H100, True),
        ("cuda>=13.1", H100, False),
        ("cuda>13.0", H100, False),
        ("cuda>12.9", H100, True),
        ("cuda<=13.0", H100, True),
        ("cuda<13.0", H100, False),
        ("cuda<13.1", H100, True),
        ("cuda=13.0", H100, True),
        ("cuda=13", H100, True),
        ("cuda=13.0.0.0", H100, True),
        ("cuda!=13.0", H100, False),
        ("cuda!=13.0.1", H100, True),
        ("cuda!13.0", H100, False),  # a lone exclamation mark is taken for !=
        ("cuda!12.0", H100, True),
        # versions are numbers, not texts
        ("cuda>=9.2", H100, True),
        ("cuda>=13.00", H100, True),
        ("cuda>=13.0.1", H100, False),
        ("driver>=580.159.4", H100, True),
        ("driver>=580.159.04", H100, True),
        ("driver>=580.1590", H100, False),
        ("driver<581", H100, True),
        ("driver>=580", H100, True),
        ("driver>580", H100, True),
        ("driver=580", H100, False),
        ("driver<580", H100, False),
        ("arch>=9.0", H100, True),
        ("arch>=9", H100, True),
        ("arch>=10.0", H100, False),
        ("arch>8.9", H100, True),
        ("arch<9.0", A100, True),
        # brands, in any case and spelling, by = and != alone
        ("brand=nvidia", H100, True),
        ("brand=NVIDIA", H100, True),
        ("brand=tesla", H100, False),
        ("brand!=tesla", H100, True),
        ("brand=Tesla", T4, True),
        ("brand=nvidiartx", PRO, True),
        ("brand=nvidia", PRO, False),
        ("brand=geforce", RTX, True),
        ("brand=geforcertx", RTX, False),
        # a comma is and, a space is or, and or is looser
        ("cuda>=12.0,driver>=535", T4, True),
        ("cuda>=12.0,driver>=550", T4, False),
        ("cuda>=12.4 driver>=535", T4, True),
        ("cuda>=12.4 driver>=550", T4, False),
        ("cuda>=12.4,brand=tesla driver>=535,brand=tesla", T4, True),
        ("cuda>=12.4,brand=tesla driver>=535,brand=geforce", T4, False),
        ("brand=geforce brand=tesla,cuda>=12.3 arch>=7.5", T4, True),
        # properties go by any case
        ("CUDA>=12.2,Driver>=535,ARCH=7.5,Brand=tesla", T4, True),
        # emptiness
        ("", H100, True),
        ("   ", H100, True),
        (",", H100, True),
        ("cuda>=99 ", H100, False),
        ("cuda>=99  cuda>=12", H100, True),
        ("cuda>=12,", H100, True),
        (",cuda>=99", H100, False),
        ("cuda>=99 , cuda>=12", H100, False),  # a term of nothing ends the search with what was said before
        # no GPU is visible: what is asked of one holds
        ("arch>=9.9", NONE, True),
        ("brand=geforce", NONE, True),
        ("brand!=geforce,cuda>=12.4", NONE, True),
        ("brand=geforce,cuda>=12.5", NONE, False),
        # real images
        (IMAGE_11, OLD_T4, True),
        (IMAGE_11, Properties("10.1", "418.67", "7.5", "Tesla"), True),
        (IMAGE_11, Properties("10.1", "418.67", "7.5", "GeForce"), False),
        (IMAGE_11, Properties("10.2", "440.33", "7.5", "Tesla"), True),
        (IMAGE_11, Properties("10.2", "430.50", "7.5", "Tesla"), False),
        (IMAGE_11_4, OLD_T4, True),
        (IMAGE_11_4, Properties("11.2", "460.32", "7.5", "Tesla"), False),
        (IMAGE_12_2, T4, True),
        (IMAGE_12_2, OLD_T4, True),
        (IMAGE_12_2, Properties("11.6", "510.47", "7.5", "Tesla"), False),
        (IMAGE_12_2, Properties("12.0", "525.60", "7.5", "Tesla"), True),
        (IMAGE_12_2, Properties("12.0", "525.60", "8.6", "GeForce"), False),
        (IMAGE_12_2, Properties("12.0", "525.60", "8.6", "GeForce RTX"), True),
        (IMAGE_13_2, H100, True),
        (IMAGE_13_2, A100, False),
        (IMAGE_13_2, T4, True),
        (IMAGE_13_2, RTX, False),
        (IMAGE_13_2, PRO, True),
        (IMAGE_13_2, Properties("12.2", "535.183.01", "8.9", "NVIDIA vWS"), True),
        # what comes behind a term that holds is never read
        ("cuda>=12.0 colour=red", T4, True),
        ("cuda>=12.0 cuda==13", T4, True),
    ]
)
def test_a_requirement_holds_or_not(text: str, about: Properties, holds: bool) -> None:
    assert met(text, about) is holds


@pytest.mark.parametrize(
    "text",
    [
        "colour=red",
        "cuda",
        "cuda>=",
        ">=12.0",
        "cuda==12.0",
        "cuda=>12.0",
        "cuda<>12.0",
        "cuda>=12.x",
        "cuda>=.5",
        "cuda>=v12",
        "arch>=sm_80",
        "brand>=tesla",
        "brand<tesla",
        "cuda>=99 colour=red",
        "cuda>=12.0,colour=red",
        "cuda >=12.0",
        "\tcuda>=12.0",
    ],
)
def test_what_the_toolkit_calls_an_invalid_expression_is_nonsense(text: str) -> None:
    with pytest.raises(InvalidExpression, match=r"no (version|condition|operator|property)|orders brands"):
        met(text, T4)


def test_an_error_behind_a_false_condition_of_one_term_is_never_read() -> None:
    assert not met("cuda>=99,colour=red", T4)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, [Requirement("NVIDIA_REQUIRE_CUDA", "cuda>=12.4")]),
        (
            {"NVIDIA_REQUIRE_DRIVER": "driver>=550", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "CUDA_VERSION": "12.6.1"},
            [Requirement("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"), Requirement("NVIDIA_REQUIRE_DRIVER", "driver>=550")],
        ),
        ({"CUDA_VERSION": "8.0.61"}, [Requirement("CUDA_VERSION", "cuda>=8.0")]),
        ({"CUDA_VERSION": "9"}, [Requirement("CUDA_VERSION", "cuda>=9.0")]),
        ({"CUDA_VERSION": "v10.2"}, [Requirement("CUDA_VERSION", "cuda>=10.2")]),
        (
            {"CUDA_VERSION": "12.1.1", "NVIDIA_REQUIRE_CUDA": ""},
            [Requirement("NVIDIA_REQUIRE_CUDA", ""), Requirement("CUDA_VERSION", "cuda>=12.1")],
        ),
        ({"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all", "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "x"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "REQUIRE_CUDA": "cuda>=99"}, []),
    ],
)
def test_the_environment_holds_the_requirements(environment: dict[str, str], expected: list[Requirement]) -> None:
    assert list(requirements(environment)) == expected


def test_a_version_of_an_old_image_must_be_one() -> None:
    with pytest.raises(InvalidExpression, match="CUDA_VERSION is `latest`"):
        list(requirements({"CUDA_VERSION": "latest"}))


@pytest.mark.parametrize("word", ["1", "t", "T", "true", "TRUE", "True"])
def test_these_words_turn_the_requirements_off(word: str) -> None:
    assert disabled({"NVIDIA_DISABLE_REQUIRE": word})


@pytest.mark.parametrize("word", ["0", "false", "", "yes", "on", "tRUE", " 1"])
def test_these_words_do_not(word: str) -> None:
    assert not disabled({"NVIDIA_DISABLE_REQUIRE": word})
    assert not disabled({})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Quadro RTX", "quadrortx", True),
        ("NVIDIA RTX", "nvidiartx", True),
        ("NVIDIA_VAPPS", "vapps", True),
        ("NVIDIA Cloud Gaming", "cloudgaming", True),
        ("NVIDIA", "nvidia", True),
        ("NVIDIA", "nvidiartx", False),
        ("RTX", "NVIDIA RTX", False),
        ("Titan", "titanrtx", False),
        ("Unknown", "unknown", True),
    ],
)
def test_brands_are_compared_without_their_spelling(one: str, other: str, same: bool) -> None:
    assert same_brand(one, other) is same


def test_what_is_asked_is_known_without_answering_it() -> None:
    assert asks(IMAGE_12_2) == {"cuda", "brand", "driver"}
    assert asks("ARCH>=8 nonsense") == {"arch"}


def test_every_requirement_that_the_facts_know_holds_for_its_own_cuda_and_branches() -> None:
    rows = [row for row in facts.load().images if row.require_cuda is not None and row.branches and row.brands]
    assert len(rows) > 100
    for row in rows:
        branches, brands = row.branches or (), row.brands or ()
        text = f"cuda>={row.require_cuda} " + " ".join(
            f"brand={brand},driver>={number},driver<{number + 1}" for number in branches for brand in brands
        )
        new = Properties(str(row.require_cuda), "999.1", "9.0", "GeForce")
        assert met(text, new), row
        for number in branches:
            assert met(text, Properties("1.0", f"{number}.99.01", "9.0", brands[0])), row
            assert not met(text, Properties("1.0", f"{number}.99.01", "9.0", "NVS")), row
        beside = max(branches) + 1
        assert not met(text, Properties("1.0", f"{beside}.10", "9.0", brands[0])), row


numbers = st.lists(st.integers(0, 30), min_size=1, max_size=4)


@given(numbers, numbers)
def test_versions_are_ordered_like_lists_of_numbers_with_zeros_behind(one: list[int], other: list[int]) -> None:
    length = max(len(one), len(other))
    left, right = ([*each, *[0] * (length - len(each))] for each in (one, other))
    texts = [".".join(map(str, each)) for each in (one, other)]
    assert compare(texts[0], "<", texts[1]) is (left < right)
    assert compare(texts[0], ">=", texts[1]) is (left >= right)
    assert compare(texts[0], "=", texts[1]) is (left == right)
    assert compare(texts[0], "!=", texts[1]) is not compare(texts[0], "=", texts[1])


@given(st.text(alphabet="cudarive nbx=<>!,.019", max_size=40))
def test_any_text_holds_fails_or_is_nonsense(text: str) -> None:
    with suppress(InvalidExpression):
        assert met(text, T4) in (True, False)
