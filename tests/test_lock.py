"""The lock file: the same text for the same lock, nothing hostile gets through it, a changed wish is noticed."""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import lock as locks
from envkit.errors import UsageError
from envkit.facts import load as load_facts
from envkit.lock import Lock, Pin, digest_of, dump, parse, requirements
from envkit.resolve import resolve
from envkit.spec import Spec
from envkit.spec import parse as parse_spec

SHA = "0123456789abcdef" * 4
GOOD = Lock(
    name="trainer",
    spec=SHA,
    torch="2.6.0",
    variant="cu124",
    cuda="12.4",
    cudnn="9.1.0.70",
    nccl="2.21.5",
    triton="==3.2.0",
    python="3.11",
    os="debian12",
    platform="linux/amd64",
    base="wheels",
    flavor="debug",
    image="debian:12",
    suite="bookworm",
    digest="sha256:" + SHA,
    backend="cu126",
    preinstalled=False,
    driver="525.60.13",
    epoch=1700000000,
    gpus=(("RTX 4090", "sm_89", "machine code of sm_86"),),
    apt=("g++", "libnuma1=2.0.14-3+b1"),
    tools=(("compute-sanitizer", "nvidia/cu13/bin/compute-sanitizer"), ("py-spy", "")),
    installer=Pin("uv", "0.8.0", "uv-0.8.0-py3-none-manylinux_2_17_x86_64.whl", SHA),
    wheels=(
        Pin("numpy", "2.2.0", "numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl", SHA),
        Pin("torch", "2.6.0+cu126", "torch-2.6.0+cu126-cp311-cp311-linux_x86_64.whl", SHA),
    ),
)


def spec(text: str = "", path: str = "/srv/trainer/envkit.toml") -> Spec:
    return parse_spec('torch = "2.6.0"\npython = "3.11"\n' + text, Path(path))


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(text, "x/envkit.lock")
    error = caught.value
    assert "x/envkit.lock" in error.message
    assert error.message.isprintable()
    assert "envkit lock" in error.fix
    return error


def test_a_lock_comes_back_as_it_was() -> None:
    assert parse(dump(GOOD), "x") == GOOD


def test_the_same_lock_gives_the_same_text() -> None:
    assert dump(GOOD) == dump(parse(dump(GOOD), "x"))


def test_the_text_holds_no_host() -> None:
    assert "://" not in dump(GOOD)


WORDS = st.text(alphabet="abcXYZ0189 ._+:/~=-", max_size=20)
NAMES = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
PINS = st.builds(
    Pin,
    name=NAMES,
    version=st.from_regex(r"[0-9][A-Za-z0-9.!+_-]{0,10}", fullmatch=True),
    file=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,20}\.whl", fullmatch=True),
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
)
LOCKS = st.builds(
    Lock,
    **dict.fromkeys(("name", "spec", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "os", "driver"), WORDS),
    python=st.from_regex(r"3\.[0-9]{1,2}", fullmatch=True),
    platform=st.sampled_from(["linux/amd64", "linux/arm64"]),
    base=st.sampled_from(["wheels", "nvidia", "pytorch", "ngc"]),
    flavor=st.sampled_from(["runtime", "devel", "debug"]),
    image=st.sampled_from(["debian:12", "nvcr.io/nvidia/pytorch:26.07-py3", "a/b:c@sha256:" + SHA]),
    suite=st.sampled_from(["", "trixie"]),
    digest=st.sampled_from(["", "sha256:" + SHA]),
    backend=st.sampled_from(["", "cu118", "cu130"]),
    preinstalled=st.booleans(),
    epoch=st.integers(0, (1 << 32) - 1),
    gpus=st.lists(st.tuples(WORDS, st.sampled_from(["sm_70", "sm_90a", "sm_120f"]), WORDS), max_size=3).map(tuple),
    apt=st.lists(st.from_regex(r"[a-z0-9][a-z0-9+.-]{0,8}[a-z0-9+.](=[0-9.:~+-]{0,5}[0-9])?", fullmatch=True)).map(
        tuple
    ),
    tools=st.lists(
        st.tuples(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.sampled_from(["", "a/b", "a.b/c-d_e"]))
    ).map(tuple),
    installer=PINS,
    wheels=st.lists(PINS, max_size=4).map(tuple),
)


@settings(deadline=None, max_examples=60)
@given(LOCKS)
def test_any_lock_comes_back_as_it_was(lock: Lock) -> None:
    text = dump(lock)
    assert parse(text, "x") == lock
    assert tomllib.loads(text)["format"] == 1


def test_everything_the_facts_can_choose_fits_into_a_lock() -> None:
    facts = load_facts()
    seen = 0
    for row in facts.torches:
        if row.published is not True:
            continue
        for python in ("3.10", "3.11", "3.12"):
            if not any(
                twin.runs_on_python(parse_spec(f'torch="2"\npython="{python}"', Path("/x/y")).python)
                for twin in facts.torch(str(row.torch))
            ):
                continue
            wish = f'torch = "{row.torch}"\ncuda = "{row.cuda}"\npython = "{python}"\nflavor = "debug"\n'
            choice = resolve(parse_spec(wish, Path("/srv/a/envkit.toml")), facts)
            lock = replace(
                GOOD,
                torch=choice.torch, cuda=choice.cuda, cudnn=choice.cudnn, nccl=choice.nccl, triton=choice.triton,
                os=choice.os, image=choice.image, suite=choice.suite, backend=choice.backend, driver=choice.driver,
                apt=choice.apt, tools=tuple((tool.tool, tool.path or "") for tool in choice.tools),
                variant=row.variant,
            )  # fmt: skip
            assert parse(dump(lock), "x") == lock
            seen += 1
            break
    assert seen > 50


# Hostile text.


def changed(old: str, new: str) -> str:
    text = dump(GOOD)
    assert text.count(old) == 1, old
    return text.replace(old, new)


TEXT_KEYS = (
    "name", "spec", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "python", "os", "platform", "base", "flavor",
    "image", "suite", "digest", "backend", "driver",
)  # fmt: skip
HOSTILE = (
    "x\nRUN id",
    "x\rUSER root",
    'x"; id; "',
    "x'; id; '",
    "$(id)",
    "${HOME}",
    "`id`",
    "x\\",
    "x\u2028y",
    "x\x00",
    "x\x7f",
    "{{ lock }}",
    "a#b",
    "x;y",
    "x|y",
    "x>y",
    "\u2179",
)


@pytest.mark.parametrize("key", TEXT_KEYS)
@pytest.mark.parametrize("value", HOSTILE)
def test_no_text_of_a_lock_can_become_an_instruction(key: str, value: str) -> None:
    text = re.sub(rf'(?m)^{key} = ".*"$', lambda _: f"{key} = {json.dumps(value)}", dump(GOOD), count=1)
    assert text != dump(GOOD)
    refused(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"g++"', '"-oDPkg::Pre-Invoke::=id"'),
        ('"g++"', '"gcc-"'),
        ('"g++"', '"g++ -y"'),
        ('"g++"', '"./x.deb"'),
        ('"g++"', "1"),
        ('apt = ["g++", "libnuma1=2.0.14-3+b1"]', 'apt = "gcc"'),
        ('path = "nvidia/cu13/bin/compute-sanitizer"', 'path = "nvidia/../../../../../etc/passwd"'),
        ('path = "nvidia/cu13/bin/compute-sanitizer"', 'path = "/etc/passwd"'),
        ('path = "nvidia/cu13/bin/compute-sanitizer"', 'path = "nvidia/a b"'),
        ('name = "compute-sanitizer"', 'name = "../../../etc/profile.d/x"'),
        ('name = "compute-sanitizer"', 'name = "a b"'),
        ('name = "compute-sanitizer"', 'name = ""'),
        ('sm = "sm_89"', 'sm = "89"'),
        ('sm = "sm_89"', 'sm = "sm_89 x"'),
        ('name = "numpy"', 'name = "numpy --index-url=x"'),
        ('name = "numpy"', 'name = "-r"'),
        ('version = "2.2.0"', 'version = "2.2.0 --hash=sha256:00"'),
        ('version = "2.2.0"', 'version = "*"'),
        ("numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl", "../numpy.whl"),
        ("numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl", "numpy-2.2.0.tar.gz"),
        ('backend = "cu126"', 'backend = "cu126 --index-url x"'),
        ('backend = "cu126"', 'backend = "--no-verify-hashes"'),
        ('python = "3.11"', 'python = "2.7"'),
        ('platform = "linux/amd64"', 'platform = "windows/amd64"'),
        ('base = "wheels"', 'base = "scratch"'),
        ('flavor = "debug"', 'flavor = "evil"'),
        ('image = "debian:12"', 'image = "debian:12 AS os"'),
        ('image = "debian:12"', 'image = ""'),
        ('image = "debian:12"', 'image = "-x"'),
        (f'digest = "sha256:{SHA}"', 'digest = "sha256:00"'),
        ("preinstalled = false", 'preinstalled = "false"'),
        ("preinstalled = false", "preinstalled = 0"),
        ("epoch = 1700000000", "epoch = -1"),
        ("epoch = 1700000000", "epoch = inf"),
        ("epoch = 1700000000", "epoch = nan"),
        ("epoch = 1700000000", "epoch = 1.5"),
        ("epoch = 1700000000", "epoch = true"),
        ("epoch = 1700000000", 'epoch = "1700000000"'),
        ("epoch = 1700000000", "epoch = 99999999999999"),
        ("epoch = 1700000000", "epoch = " + "9" * 5000),
        ("format = 1\n", "format = 2\n"),
        ("format = 1\n", 'format = "1"\n'),
        ("format = 1\n", ""),
        ("[installer]", "[instaler]"),
    ],
)
def test_a_hostile_or_broken_value_is_refused(old: str, new: str) -> None:
    refused(changed(old, new))


@pytest.mark.parametrize("digest", ["", "sha256:", SHA.upper(), SHA[:-1], SHA + "0"])
def test_a_hash_is_sixty_four_hex_digits(digest: str) -> None:
    refused(dump(GOOD).replace(f'sha256 = "{SHA}"', f'sha256 = "{digest}"', 1))


@pytest.mark.parametrize("text", ["", "x", "format = 1", "[" * 5000, "x = " + "[" * 5000, "gpu = 5\n" + "format = 1"])
def test_what_is_no_lock_is_refused(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_every_text_must_be_there_and_text(key: str) -> None:
    refused(re.sub(rf'(?m)^{key} = ".*"\n', "", dump(GOOD), count=1))
    refused(re.sub(rf'(?m)^{key} = ".*"$', f"{key} = 7", dump(GOOD), count=1))


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UsageError):
        assert parse(dump(parse(text, "x")), "x")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_lock_with_a_character_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = dump(GOOD)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_categories=["Cs"]))
    try:
        made = parse(text[:place] + other + text[place + 1 :], "x")
    except UsageError:
        return
    assert dump(made).isascii()  # whatever was let through holds nothing that a grammar forbids
    assert parse(dump(made), "x") == made


# Requirements.


def test_requirements_carry_a_hash_each() -> None:
    assert requirements(GOOD.wheels) == GOOD.requirements
    assert GOOD.requirements.splitlines() == [
        f"numpy==2.2.0 --hash=sha256:{SHA}",
        f"torch==2.6.0+cu126 --hash=sha256:{SHA}",
    ]


# Staleness.


@pytest.mark.parametrize(
    "text",
    [
        'cuda = "12.4"',
        'os = "debian12"',
        'base = "pytorch"',
        'tag = "x"',
        'flavor = "devel"',
        'platform = "linux/arm64"',
        'packages = ["numpy"]',
        'apt = ["git"]',
        'gpus = ["H100"]',
        'driver = "550"',
    ],
)
def test_any_change_of_the_wish_changes_its_digest(text: str) -> None:
    assert digest_of(spec(text)) != digest_of(spec())


def test_torch_and_python_are_part_of_the_wish() -> None:
    digests = {
        digest_of(parse_spec(f'torch = "{torch}"\npython = "{python}"', Path("/srv/a/envkit.toml")))
        for torch in ("2.6.0", "2.6", ">=2.6")
        for python in ("3.11", "3.12")
    }
    assert len(digests) == 6


def test_comments_order_name_and_place_do_not_matter() -> None:
    one = spec('packages = ["numpy", "einops"]\ngpus = ["H100", "A100"]\napt = ["git", "make"]\n')
    other = parse_spec(
        '# a comment\nname = "n"\napt = ["make", "git"]\ngpus = ["A100", "H100"]\npython = "3.11"\n'
        'packages = ["einops", "numpy"]\ntorch = "2.6.0"  # the reference\n',
        Path("/elsewhere/b/envkit.toml"),
    )
    assert digest_of(one) == digest_of(other)


def test_load_finds_the_lock_of_this_very_wish(tmp_path: Path) -> None:
    wish = parse_spec('torch = "2.6.0"\npython = "3.11"\n', tmp_path / "envkit.toml")
    assert locks.load(wish) is None
    answer = replace(GOOD, spec=digest_of(wish))
    locks.save(answer, locks.path_of(wish))
    assert locks.path_of(wish) == tmp_path / "envkit.lock"
    assert locks.load(wish) == replace(answer, name=wish.name)
    other = parse_spec('torch = "2.6.0"\npython = "3.12"\n', tmp_path / "envkit.toml")
    assert locks.load(other) is None


def test_load_refuses_a_lock_that_cannot_be_read(tmp_path: Path) -> None:
    wish = parse_spec('torch = "2.6.0"\npython = "3.11"\n', tmp_path / "envkit.toml")
    place = locks.path_of(wish)
    place.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        locks.load(wish)
    place.unlink()
    place.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        locks.load(wish)
