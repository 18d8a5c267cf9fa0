"""The lock file: the same text for the same lock, nothing hostile gets through it, a changed spec is noticed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from fuzzed import examples
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from envkit.errors import UsageError
from envkit.facts import load as load_facts
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import (
    FLAVORS,
    LAYERS,
    Deb,
    Lock,
    Pin,
    Source,
    dump,
    parse,
    problems,
    requirements,
    seal,
    spec_items,
    upto,
)
from envkit.plan.resolve import resolve
from envkit.plan.spec import Spec
from envkit.plan.spec import parse as parse_spec
from envkit.versions import Cuda, Driver, Python

SHA = "0123456789abcdef" * 4
GOOD = Lock(
    name="trainer",
    wish={
        "torch": "2.6.0",
        "cuda": "auto",
        "python": "3.11",
        "os": "auto",
        "base": "wheels",
        "tag": "",
        "platform": "linux/amd64",
        "packages": ("numpy>=2; python_version > '3.8'",),
        "apt": ("libnuma1=2.0.14-3+b1",),
        "gpus": ("RTX 4090",),
        "drivers": ("550", "580.65.06"),
    },
    torch=Version("2.6.0"),
    variant="cu124",
    cuda=Cuda("12.4"),
    cudnn="9.1.0.70",
    nccl="2.21.5",
    triton="==3.2.0",
    python=Python("3.11"),
    os="debian12",
    platform="linux/amd64",
    base="wheels",
    flavor="debug",
    image="debian:12",
    suite="bookworm",
    digest="sha256:" + SHA,
    origin="packages",
    backend="cu126",
    preinstalled=False,
    driver=Driver("525.60.13"),
    epoch=1700000000,
    archive="2026-11-15T08:12:33Z",
    components=("main", "non-free-firmware"),
    gpus=(("RTX 4090", "sm_89", "machine code of sm_86"),),
    apt={"runtime": ("gcc", "libnuma1=2.0.14-3+b1"), "devel": ("g++",), "tools": ("python3-venv",)},
    debs=(
        Deb("gcc", "4:12.2.0-3", "amd64", SHA, 5216, "runtime"),
        Deb("libpython3.11", "3.11.2-6+deb12u9~x", "amd64", SHA, 1988800, "runtime"),
        Deb("g++", "4:12.2.0-3", "amd64", SHA, 1356, "devel"),
        Deb("python3-pip-whl", "23.0.1+dfsg-1", "all", SHA, 1717296, "tools"),
    ),
    programs=(("debug", "compute-sanitizer", "nvidia/cu13/bin/compute-sanitizer"), ("debug", "py-spy", "")),
    missing=(("cuda-gdb", "no source holds it for CUDA 12.4; base `nvidia` has NVIDIA's own (here)"),),
    given=("nvidia-cuda-dev (= 12.4.127~12.4.1-2)", "opencl-dev"),
    installer=Pin("uv", "0.8.0", "uv-0.8.0-py3-none-manylinux_2_17_x86_64.whl", SHA, 17, "tools"),
    wheels=(
        Pin(
            "numpy", "2.2.0", "numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl", SHA, 16000000, "runtime",
            (("numpy-2.2.0-cp311-cp311-manylinux_2_27_aarch64.whl", SHA[::-1]),),
        ),
        Pin("torch", "2.6.0+cu126", "torch-2.6.0+cu126-cp311-cp311-linux_x86_64.whl", SHA),
        Pin("ninja", "1.13.2", "ninja-1.13.2-py3-none-manylinux2014_x86_64.whl", SHA, 0, "devel"),
    ),
)  # fmt: skip


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
SHAS = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
FILES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,20}\.whl", fullmatch=True)
NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
SIZES = st.integers(0, (1 << 40) - 1)


def pins(*layers: str) -> st.SearchStrategy[Pin]:
    return st.builds(
        Pin,
        name=NAMES,
        version=st.from_regex(r"[0-9][A-Za-z0-9.!+_-]{0,10}", fullmatch=True),
        file=FILES,
        sha256=SHAS,
        size=SIZES,
        layer=st.sampled_from(layers),
        others=st.lists(st.tuples(FILES, SHAS), max_size=2).map(tuple) if layers != ("tools",) else st.just(()),
    )


DEBS = st.builds(
    Deb,
    name=st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,12}", fullmatch=True),
    version=st.from_regex(r"([0-9]{1,3}:)?[A-Za-z0-9]([A-Za-z0-9.+~-]{0,8}[A-Za-z0-9.+~])?", fullmatch=True),
    arch=st.sampled_from(["amd64", "arm64", "all"]),
    sha256=SHAS,
    size=SIZES,
    layer=st.sampled_from(LAYERS),
)
ASKED = st.from_regex(r"[a-z0-9][a-z0-9+.-]{0,8}[a-z0-9+.](=[0-9.:~+-]{0,5}[0-9])?", fullmatch=True)
PROGRAMS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=12)
LOCKS = st.builds(
    Lock,
    name=NAMES,
    **dict.fromkeys(("variant", "cudnn", "nccl", "triton", "os"), WORDS),
    torch=NUMBERS.map(Version),
    cuda=NUMBERS.map(Cuda),
    driver=st.none() | NUMBERS.map(Driver),
    wish=st.fixed_dictionaries(
        {
            **dict.fromkeys(("torch", "cuda", "python", "os", "base", "tag", "platform"), PRINTABLE),
            **dict.fromkeys(("packages", "apt", "gpus", "drivers"), st.lists(PRINTABLE, max_size=2).map(tuple)),
        }
    ),
    python=st.from_regex(r"3\.[0-9]{1,2}", fullmatch=True).map(Python),
    platform=st.sampled_from(["linux/amd64", "linux/arm64"]),
    base=st.sampled_from(["wheels", "nvidia", "pytorch", "ngc"]),
    flavor=st.sampled_from(FLAVORS),
    image=st.sampled_from(["debian:12", "nvcr.io/nvidia/pytorch:26.07-py3", "a/b:c@sha256:" + SHA]),
    suite=st.sampled_from(["", "trixie"]),
    digest=st.sampled_from(["", "sha256:" + SHA]),
    origin=st.sampled_from(["", "registry", "packages"]),
    backend=st.sampled_from(["", "cu118", "cu130"]),
    preinstalled=st.booleans(),
    epoch=st.integers(0, (1 << 32) - 1),
    archive=st.sampled_from(["", "2024-02-29T23:59:59Z"]),
    components=st.lists(st.sampled_from(["main", "contrib", "non-free-firmware"])).map(tuple),
    gpus=st.lists(st.tuples(WORDS, st.sampled_from(["sm_70", "sm_90a", "sm_120f"]), WORDS), max_size=3).map(tuple),
    apt=st.dictionaries(st.sampled_from(LAYERS), st.lists(ASKED, max_size=3).map(tuple)),
    debs=st.lists(DEBS, max_size=4, unique_by=lambda deb: deb.name).map(locks.debs_in_order),
    programs=st.lists(
        st.tuples(st.sampled_from(LAYERS), PROGRAMS, st.sampled_from(["", "a/b", "a.b/c-d_e"])), max_size=2
    ).map(tuple),
    missing=st.lists(st.tuples(PROGRAMS, WORDS), max_size=2).map(tuple),
    given=st.lists(st.sampled_from(["opencl-dev", "a-b (= 1:2~x+1)"]), max_size=2).map(tuple),
    installer=pins("tools"),
    wheels=st.lists(pins(*FLAVORS), max_size=4, unique_by=lambda pin: pin.name).map(locks.in_order),
)


@examples(30)
@given(LOCKS)
def test_any_lock_comes_back_as_it_was(lock: Lock) -> None:
    text = dump(lock)
    assert parse(text, "x") == lock
    assert tomllib.loads(text)["format"] == 2
    assert parse(text.replace("\n", "\r\n"), "x") == lock


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
                apt=choice.extras.apt, programs=choice.extras.programs, missing=choice.extras.missing,
                components=choice.extras.components, variant=row.variant,
            )  # fmt: skip
            assert parse(dump(lock), "x") == lock
            seen += 1
            break
    assert seen > 50


# Hostile text, under a seal that fits it.


def body() -> str:
    return dump(GOOD).split("# The text above as it was written")[0]


def changed(old: str, new: str) -> str:
    text = body()
    assert text.count(old) == 1, old
    return seal(text.replace(old, new))


TEXT_KEYS = (
    "name", "torch", "variant", "cuda", "cudnn", "nccl", "triton", "python", "os", "platform", "base", "flavor",
    "image", "suite", "digest", "origin", "backend", "driver", "archive",
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


@gathered(product(TEXT_KEYS, HOSTILE))
def test_no_text_of_a_lock_can_become_an_instruction(key: str, value: str) -> None:
    text = re.sub(rf'(?m)^{key} = ".*"$', lambda _: f"{key} = {json.dumps(value)}", body(), count=1)
    assert text != body()
    assert "by hand" not in refused(seal(text)).message


@gathered(
    [
        ('["g++"]', '["-oDPkg::Pre-Invoke::=id"]'),
        ('["g++"]', '["gcc-"]'),
        ('["g++"]', '["g++ -y"]'),
        ('["g++"]', '["./x.deb"]'),
        ('["g++"]', "[1]"),
        ('["g++"]', '"g++"'),
        ('devel = ["g++"]', 'devil = ["g++"]'),
        ('"nvidia/cu13/bin/compute-sanitizer"', '"nvidia/../../../../../etc/passwd"'),
        ('"nvidia/cu13/bin/compute-sanitizer"', '"/etc/passwd"'),
        ('"nvidia/cu13/bin/compute-sanitizer"', '"nvidia/a b"'),
        ('"compute-sanitizer"', '"../../../etc/profile.d/x"'),
        ('"compute-sanitizer"', '"a b"'),
        ('"compute-sanitizer"', '""'),
        ('layer = "debug", name = "py-spy"', 'layer = "evil", name = "py-spy"'),
        ("holds it for", "holds it $(id) for"),
        ("holds it for", "holds it \\nRUN id for"),
        ('"sm_89"', '"89"'),
        ('"sm_89"', '"sm_89 x"'),
        ("\nnumpy = { version", '\n"numpy --index-url=x" = { version'),
        ("\nnumpy = { version", "\n-r = { version"),
        ('version = "2.2.0"', 'version = "2.2.0 --hash=sha256:00"'),
        ('version = "2.2.0"', 'version = "*"'),
        ('"numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl"', '"../numpy.whl"'),
        ('"numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl"', '"numpy-2.2.0.tar.gz"'),
        ('"numpy-2.2.0-cp311-cp311-manylinux_2_27_aarch64.whl"', '"numpy-2.2.0.tar.gz"'),
        (SHA[::-1], "00"),
        ("\nnumpy = [", "\nother = ["),
        ("\nnumpy = [", "\nnumpy = 1\nx = ["),
        ("size = 16000000", "size = -1"),
        ("size = 16000000", 'size = "1"'),
        ("[wheels.devel]", "[wheels.evil]"),
        ("[wheels.devel]\nninja", "[wheels.devel]\ntorch"),
        ("[debs.devel]", "[debs.evil]"),
        ("\ngcc = {", '\n"gcc -y" = {'),
        ("\ngcc = {", '\n"-y" = {'),
        ("\ngcc = {", '\n"" = {'),
        ('"3.11.2-6+deb12u9~x"', '"3.11 -y"'),
        ('"3.11.2-6+deb12u9~x"', '"1:2:3"'),
        ('"3.11.2-6+deb12u9~x"', '"-1"'),
        ('"3.11.2-6+deb12u9~x"', '""'),
        ('arch = "all"', 'arch = "all; id"'),
        ('arch = "all"', 'arch = "../x"'),
        ("size = 1717296", "size = 1.5"),
        ('"opencl-dev"', '"opencl-dev\\nDepends: x"'),
        ('"opencl-dev"', '"opencl-dev (>= 1), x"'),
        ('archive = "2026-11-15T08:12:33Z"', 'archive = "2026-13-15T08:12:33Z"'),
        ('archive = "2026-11-15T08:12:33Z"', 'archive = "2026-11-15"'),
        ('archive = "2026-11-15T08:12:33Z"', "archive = 2026-11-15T08:12:33Z"),
        ('"non-free-firmware"', '"main] x"'),
        ('drivers = ["550", "580.65.06"]', 'drivers = "550"'),
        ('drivers = ["550", "580.65.06"]', 'drivers = ["5\\n50"]'),
        ('backend = "cu126"', 'backend = "cu126 --index-url x"'),
        ('backend = "cu126"', 'backend = "--no-verify-hashes"'),
        ('python = "3.11"\nos = "debian12"', 'python = "2.7"\nos = "debian12"'),
        ('platform = "linux/amd64"\nbase', 'platform = "windows/amd64"\nbase'),
        ('base = "wheels"\nflavor', 'base = "scratch"\nflavor'),
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
        ("format = 2\n", "format = 3\n"),
        ("format = 2\n", 'format = "2"\n'),
        ("format = 2\n", ""),
        ("[installer]", "[instaler]"),
    ]
)
def test_a_hostile_or_broken_value_is_refused(old: str, new: str) -> None:
    assert "by hand" not in refused(changed(old, new)).message


@pytest.mark.parametrize("digest", ["", "sha256:", SHA.upper(), SHA[:-1], SHA + "0"])
def test_a_hash_is_sixty_four_hex_digits(digest: str) -> None:
    for place in ("[installer]", "[wheels.devel]", "[debs.devel]"):
        before, after = body().split(place)
        after = after.replace(f'sha256 = "{SHA}"', f'sha256 = "{digest}"', 1)
        assert "by hand" not in refused(seal(before + place + after)).message


@pytest.mark.parametrize("text", ["", "x", "format = 2", "[" * 5000, "x = " + "[" * 5000, "gpus = 5\nformat = 2"])
@pytest.mark.parametrize("finish", [str, seal])
def test_what_is_no_lock_is_refused(text: str, finish: Callable[[str], str]) -> None:
    refused(finish(text))


@pytest.mark.parametrize("found", ["1", "3", '"2"', "[]"])
def test_a_lock_of_another_format_says_so(found: str) -> None:
    assert "has format" in refused(f"format = {found}\nname = 'x'\n").message


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_every_text_must_be_there_and_text(key: str) -> None:
    for new in ("", f"{key} = 7\n"):
        text = re.sub(rf'(?m)^{key} = ".*"\n', new, body(), count=1)
        assert "by hand" not in refused(seal(text)).message


@examples(30)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UsageError):
        assert parse(dump(parse(seal(text), "x")), "x")


@examples(30)
@given(st.data())
def test_a_lock_with_a_character_changed_is_read_or_refused(data: st.DataObject) -> None:
    text = body()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_categories=["Cs"]))
    try:
        made = parse(seal(text[:place] + other + text[place + 1 :]), "x")
    except UsageError:
        return
    assert dump(replace(made, wish=GOOD.wish)).isascii()  # nothing that a grammar forbids was let through
    assert parse(dump(made), "x") == made


# The seal.


def edited_at(lines: list[str], ending: str = "\n") -> int:
    found = re.search(r"edited by hand at line (\d+)$", refused(ending.join(lines) + ending).message)
    assert found, lines
    return int(found[1])


LINES = dump(GOOD).splitlines()


@gathered(range(1, len(LINES) + 1))
def test_an_edit_by_hand_is_refused_with_its_line(number: int) -> None:
    """Each line in turn, those of the seal too: changed, blanked, taken away, doubled, another put before it."""
    at, line = number - 1, LINES[number - 1]
    bare = [*LINES[:at], *LINES[number:]]
    assert edited_at([*LINES[:at], line + " ", *LINES[number:]]) == number
    assert edited_at([*LINES[:at], line + " ", *LINES[number:]], "\r\n") == number
    assert edited_at([*LINES[:at], "# by hand", *LINES[number:]]) == number
    assert edited_at([*LINES[:at], "# by hand", *LINES[at:]]) == number
    differs = (n for n, (one, other) in enumerate(zip(bare, LINES, strict=False), 1) if one != other)
    assert edited_at(bare) == next(differs, number)
    if number < len(LINES):
        assert edited_at([*LINES[:at], LINES[number], line, *LINES[number + 1 :]]) == number


def test_a_line_at_the_end_is_an_edit() -> None:
    assert edited_at([*LINES, "# more"]) == len(LINES) + 1


def test_a_value_that_is_as_good_as_the_old_one_is_an_edit_all_the_same() -> None:
    number = next(n for n, line in enumerate(LINES, 1) if line.startswith("numpy = {"))
    assert edited_at([line.replace('"2.2.0"', '"2.2.1"') for line in LINES]) == number


def test_line_ends_of_another_system_are_no_edit() -> None:
    assert parse("\r\n".join(LINES) + "\r\n", "x") == GOOD


def test_a_lock_without_its_seal_is_refused() -> None:
    assert "no checksum" in refused(body()).message


# Flavors.


def test_a_flavor_holds_what_is_below_it_and_no_build_stage() -> None:
    names = {flavor: [[one.name for one in kind] for kind in upto(GOOD, flavor)] for flavor in FLAVORS}
    assert names["runtime"] == [["numpy", "torch"], ["gcc", "libpython3.11"]]
    assert names["devel"] == [["numpy", "torch", "ninja"], ["gcc", "libpython3.11", "g++"]]
    assert names["debug"] == names["devel"]


def test_a_row_is_a_line() -> None:
    """What a person reviews is a line a wheel and a line a package."""
    rows = [(pin.name, pin.version, pin.sha256) for pin in GOOD.wheels]
    for name, version, digest in [*rows, *((deb.name, deb.version, deb.sha256) for deb in GOOD.debs)]:
        found = [line for line in LINES if line.strip('"').startswith(name) and f'version = "{version}"' in line]
        assert len(found) == 1
        assert digest in found[0]


# Requirements.


def compiled(to: str = "8.0;9.0+PTX", *needs: str) -> Lock:
    name = GOOD.wheels[0].name
    row = Source(name, f"{name}-1.tar.gz", SHA, 1, "3.11", (f"ninja==1.13 --hash=sha256:{SHA}",), to, needs)
    return replace(GOOD, sources=(row,))


@pytest.mark.parametrize("to", ["cpu", "9.0", "12.0;10.3a;9.0+PTX"])
def test_what_was_compiled_comes_back_as_it_was(to: str) -> None:
    made = compiled(to, "einops>=0.8; python_version > '3'", "numpy")
    assert parse(dump(made), "x") == made
    assert "compiled = " not in dump(replace(made, sources=(replace(made.sources[0], compiled="", needs=()),)))


@pytest.mark.parametrize("to", ["sm_90", "9.0;", "9", "all", "9.0\nRUN id", "$(id)"])
def test_for_which_gpus_is_said_in_the_words_of_torch(to: str) -> None:
    with pytest.raises(UsageError, match="is not an envkit lock: `sources"):
        parse(dump(compiled(to)), "x")


@pytest.mark.parametrize("need", ["a b", "-r x", "--index-url=http://127.0.0.1", "a\nRUN id", "a\u2028b"])
def test_what_a_compiled_wheel_requires_is_a_requirement(need: str) -> None:
    with pytest.raises(UsageError, match="is not an envkit lock"):
        parse(dump(compiled("9.0", need)), "x")


def test_requirements_carry_a_hash_each() -> None:
    assert requirements(GOOD.wheels) == GOOD.requirements
    assert GOOD.requirements.splitlines() == [
        f"numpy==2.2.0 --hash=sha256:{SHA}",
        f"torch==2.6.0+cu126 --hash=sha256:{SHA}",
        f"ninja==1.13.2 --hash=sha256:{SHA}",
    ]


# Staleness.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('cuda = "12.4"', "the spec asks for cuda 12.4, the lock was made for auto"),
        ('os = "debian12"', "the spec asks for os debian12, the lock was made for auto"),
        ('base = "pytorch"', "the spec asks for base pytorch, the lock was made for wheels"),
        ('tag = "x"', "the spec asks for tag x, the lock was made for none"),
        ('platform = "linux/arm64"', "the spec asks for platform linux/arm64, the lock was made for linux/amd64"),
        ('packages = ["numpy", "einops"]', "the spec asks for packages einops, numpy, the lock was made for none"),
        ('apt = ["git"]', "the spec asks for apt git, the lock was made for none"),
        ('gpus = ["H100"]', "the spec asks for gpus H100, the lock was made for none"),
        ('driver = "550"', "the spec asks for drivers 550, the lock was made for none"),
    ],
)
def test_any_change_of_the_wish_is_told(text: str, said: str) -> None:
    made = replace(GOOD, wish=spec_items(spec()))
    assert problems(spec(), made) == []
    assert problems(spec(text), made) == [said]


def test_the_flavor_is_no_part_of_the_wish() -> None:
    assert problems(spec('flavor = "devel"'), replace(GOOD, wish=spec_items(spec()))) == []


def test_torch_and_python_are_part_of_the_wish() -> None:
    wishes = [
        spec_items(parse_spec(f'torch = "{torch}"\npython = "{python}"', Path("/srv/a/envkit.toml")))
        for torch in ("2.6.0", "2.6", ">=2.6")
        for python in ("3.11", "3.12")
    ]
    assert all(one != other for at, one in enumerate(wishes) for other in wishes[at + 1 :])


def test_comments_order_name_and_place_do_not_matter() -> None:
    one = spec('packages = ["numpy", "einops"]\ngpus = ["H100", "A100"]\napt = ["git", "make"]\n')
    other = parse_spec(
        '# a comment\nname = "n"\napt = ["make", "git"]\ngpus = ["A100", "H100"]\npython = "3.11"\n'
        'packages = ["einops", "numpy"]\ntorch = "2.6.0"  # the reference\n',
        Path("/elsewhere/b/envkit.toml"),
    )
    assert spec_items(one) == spec_items(other)


def test_load_finds_the_lock_of_this_very_wish(tmp_path: Path) -> None:
    wish = parse_spec('torch = "2.6.0"\npython = "3.11"\n', tmp_path / "envkit.toml")
    assert locks.load(wish) is None
    answer = replace(GOOD, wish=spec_items(wish))
    locks.save(answer, locks.path_of(wish))
    assert locks.path_of(wish) == tmp_path / "envkit.lock"
    assert locks.load(wish) == replace(answer, name=wish.name, flavor="runtime")
    debug = parse_spec('torch = "2.6.0"\npython = "3.11"\nflavor = "debug"\n', tmp_path / "envkit.toml")
    assert locks.load(debug) == replace(answer, name=wish.name, flavor="debug")
    other = parse_spec('torch = "2.6.0"\npython = "3.12"\n', tmp_path / "envkit.toml")
    assert locks.load(other) is None
    assert locks.read(other) == replace(answer, name=wish.name, flavor="runtime")


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
