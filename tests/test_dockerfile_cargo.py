"""Which crates cargo's features turn on, by manifests that people write and by ones that nobody would."""

from __future__ import annotations

import pytest
from written import Beside

from envkit import facts as tables
from envkit.dockerfile.evaluate import read

FACTS = tables.load()
BUILD = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nCOPY . .\nRUN cargo build --features cuda\n"
OWN = '[package]\nname = "a"\n'


def crates(**manifests: str) -> dict[str, bool]:
    """The crates that are turned on, each with whether that is sure; the manifests by their folder, the first is
    ``top``."""
    files = {f"{'' if name == 'top' else name + '/'}Cargo.toml": text for name, text in manifests.items()}
    found = read(BUILD, "Dockerfile", FACTS, Beside(files)).installs
    return {one.name: one.sure for one in found if one.manager == "cargo"}


DEPENDS = '[dependencies]\nb = "1"\n'


@pytest.mark.parametrize(
    ("manifests", "found"),
    [
        ({"top": OWN + '[features]\ncuda = ["dep:b"]\n' + DEPENDS + 'c = "1"'}, {"b": True}),
        ({"top": OWN + '[features]\ncuda = ["b/cuda"]\n' + DEPENDS}, {"b": True}),
        ({"top": OWN + "[features]\ncuda = []\n" + DEPENDS}, {"b": False}),  # its own sources read it
        (
            {
                "top": OWN + '[features]\ncuda = ["d/cuda"]\n[dependencies]\nd = {path = "d"}',
                "d": '[features]\ncuda = ["dep:b"]\n' + DEPENDS,
            },
            {"b": True},
        ),
        ({"top": "[features]\nother = []"}, {}),
    ],
)
def test_the_crates_that_a_feature_turns_on(manifests: dict[str, str], found: dict[str, bool]) -> None:
    assert crates(**manifests) == found


@pytest.mark.parametrize(
    "manifest",
    [
        "[",
        "workspace = 3",
        "[workspace]\nmembers = [3]",
        "package = 3",
        "features = 3",
        'features = "x"',
        "[features]\ncuda = 3",
        "[features]\ncuda = [3]",
        '[features]\ncuda = ["b/cuda"]\n[dependencies]\nb = {path = 3, features = 4}',
    ],
)
def test_a_manifest_that_cargo_would_refuse_turns_nothing_on(manifest: str) -> None:
    assert crates(top=manifest) == {}


def test_manifests_that_lead_back_to_themselves_end() -> None:
    turned = ", ".join(f'"x{n}/cuda"' for n in range(30))
    own = "".join(f'x{n} = {{path = ".", features = ["f{n}"]}}\n' for n in range(30))
    assert crates(top=f"[features]\ncuda = [{turned}]\n[dependencies]\n{own}") == {}
