"""What a person writes: every key is read, every bad value is refused in one line with its fix."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest
from fuzzed import examples
from gathered import gathered
from hypothesis import given
from hypothesis import strategies as st

from envkit.errors import UsageError, nearest, one_line
from envkit.plan.spec import Base, Flavor, Platform, Spec, TorchWish, load, parse
from envkit.versions import Cuda, Driver, Python

WHERE = Path("/srv/jobs/trainer/envkit.toml")
LEAST = 'torch = "2.6.0"\npython = "3.11"\n'
TEXT_KEYS = ("name", "torch", "cuda", "python", "os", "base", "tag", "flavor", "platform", "driver")
LIST_KEYS = ("packages", "apt", "gpus")


def spec(text: str) -> Spec:
    return parse(text, WHERE)


def refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        spec(text)
    error = caught.value
    assert error.code == 2
    assert error.fix
    for said in (error.message, error.fix):
        assert said.isprintable()
        assert not said.endswith(".")
    return error


def parsed_or_refused(text: str) -> Spec | None:
    """The spec, or None if it was refused as ``refused`` wants it; anything else raised is a fault."""
    try:
        return spec(text)
    except UsageError:
        refused(text)
        return None


def with_value(key: str, value: object) -> str:
    """A spec that is good but for ``key``."""
    rest = "".join(line + "\n" for line in LEAST.splitlines() if not line.startswith(key))
    return rest + f"{key} = {json.dumps(value)}\n"


def test_the_least_spec_and_its_defaults() -> None:
    assert spec(LEAST) == Spec(
        path=WHERE,
        name="trainer",
        torch=TorchWish("2.6.0"),
        cuda=None,
        python=Python("3.11"),
        os="auto",
        base=Base.WHEELS,
        flavor=Flavor.RUNTIME,
        platform=Platform.AMD64,
        packages=(),
        apt=(),
        gpus=(),
        drivers=(),
        tag="",
    )


def test_every_key_is_read() -> None:
    whole = spec(
        """
        name = "big-run_2"
        torch = ">=2.5,<2.7"
        cuda = "12.4"
        python = "3.10"
        os = "ubuntu22.04"
        base = "nvidia"
        tag = "12.4.1-cudnn-devel-ubuntu22.04"
        flavor = "debug"
        platform = "linux/arm64"
        packages = ["numpy>=1.26", "einops[extra]==0.8.0 ; python_version > '3.8'"]
        apt = ["g++", "libnuma1=2.0.14-3+b1"]
        gpus = ["RTX 4090", "sm_90"]
        driver = "550.54.15"
        """
    )
    assert (whole.name, str(whole.torch), whole.tag) == ("big-run_2", ">=2.5,<2.7", "12.4.1-cudnn-devel-ubuntu22.04")
    assert (whole.cuda, whole.python, whole.driver) == (Cuda("12.4"), Python("3.10"), Driver("550.54.15"))
    assert (whole.os, whole.base, whole.flavor, whole.platform) == (
        "ubuntu22.04", Base.NVIDIA, Flavor.DEBUG, Platform.ARM64,
    )  # fmt: skip
    assert whole.packages == ("numpy>=1.26", 'einops[extra]==0.8.0; python_version > "3.8"')
    assert whole.apt == ("g++", "libnuma1=2.0.14-3+b1")
    assert whole.gpus == ("RTX 4090", "sm_90")


def test_blanks_around_a_value_do_not_matter() -> None:
    assert spec(LEAST + 'cuda = " auto "\ngpus = [" H100 "]') == spec(LEAST + 'gpus = ["H100"]')


def test_a_directory_means_its_envkit_toml(tmp_path: Path) -> None:
    (tmp_path / "envkit.toml").write_text(LEAST)
    assert load(tmp_path) == load(tmp_path / "envkit.toml")
    assert load(tmp_path).path == tmp_path / "envkit.toml"


def test_a_missing_file_names_itself_and_init(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no spec at .*/none\.toml") as caught:
        load(tmp_path / "none.toml")
    assert "envkit init" in caught.value.fix


@pytest.mark.parametrize("content", [b"\xff\xfe", b'torch = "\x00"'])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "envkit.toml").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "torch = ",
        "torch = 2.6.0\n",
        LEAST + LEAST,
        "x = " + "[" * 5000,
        "x = " + "9" * 5000,
        "[[[",
        'torch = "2.6.0\nname = "x"',
    ],
)
def test_broken_toml_is_refused_by_name(text: str) -> None:
    assert str(WHERE) in refused(text).message


@pytest.mark.parametrize(
    ("key", "meant"),
    [("tourch", "torch"), ("pyton", "python"), ("package", "packages"), ("gpu", "gpus"), ("drivers", "driver")],
)
def test_an_unknown_key_names_the_nearest_known_one(key: str, meant: str) -> None:
    error = refused(LEAST + f'{key} = "x"')
    assert f"unknown key `{key}`; did you mean `{meant}`?" in error.message
    for known in (*TEXT_KEYS, *LIST_KEYS):
        assert known in error.fix


def test_an_unknown_key_like_none_offers_none() -> None:
    assert "did you mean" not in refused(LEAST + 'zzzzzz = "x"').message


def test_a_hostile_key_stays_in_its_line() -> None:
    assert r"`a\n\x1b[31mb`" in refused(LEAST + '"a\\n\\u001b[31mb" = 1').message


@pytest.mark.parametrize("missing", ["torch", "python"])
def test_what_has_no_default_must_be_there(missing: str) -> None:
    text = "".join(line + "\n" for line in LEAST.splitlines() if not line.startswith(missing))
    assert f"no `{missing}`" in refused(text).message


@gathered(product(TEXT_KEYS, ["3.11", "3", "-1", "inf", "nan", "0x" + "f" * 5000]))
def test_a_number_in_place_of_text_is_told_how_to_write_it(key: str, number: str) -> None:
    rest = "".join(line + "\n" for line in LEAST.splitlines() if not line.startswith(key))
    error = refused(rest + f"{key} = {number}")
    assert f"`{key}` is the number" in error.message
    assert re.search(rf'write {key} = ".+"', error.fix)
    if number == "3.11":
        assert error.fix == f'write {key} = "3.11"'


@gathered(product(TEXT_KEYS, ["true", "[]", '["x"]', "{a = 1}", "2024-01-01", "12:00:00"]))
def test_other_kinds_in_place_of_text_are_refused(key: str, value: str) -> None:
    if key == "driver" and value.startswith("["):
        return  # a fleet's drivers are a list, see below
    rest = "".join(line + "\n" for line in LEAST.splitlines() if not line.startswith(key))
    assert f"`{key}` must be text" in refused(rest + f"{key} = {value}").message


def test_a_number_that_is_too_long_to_be_shown_is_named_by_its_kind() -> None:
    assert refused(LEAST + f"packages = {10**18}").message.endswith(
        "`packages` must be a list of texts, not a whole number"
    )


def test_the_drivers_of_a_fleet() -> None:
    fleet = spec(LEAST + 'driver = ["550.54.15", "535", "550.54.15"]')
    assert fleet.drivers == (Driver("550.54.15"), Driver("535"))
    assert fleet.driver == Driver("535")
    assert spec(LEAST + "driver = []").drivers == spec(LEAST + 'driver = ""').drivers == ()
    assert spec(LEAST + 'driver = "550"').drivers == (Driver("550"),)
    assert spec(LEAST).driver is None


@pytest.mark.parametrize(
    "value", ['["x"]', '["550", ""]', '["550\\nRUN x"]', "[550]", '["550", ["535"]]', '["' + "9" * 5000 + '"]']
)
def test_a_list_that_holds_no_drivers_is_refused(value: str) -> None:
    error = refused(LEAST + f"driver = {value}")
    assert "`driver`" in error.message
    assert error.message.isprintable()
    assert error.fix


@pytest.mark.parametrize("key", LIST_KEYS)
@pytest.mark.parametrize("value", ['"numpy"', "[1]", '["numpy", 2.0]', "true", "{a = 1}", '[["numpy"]]'])
def test_other_kinds_in_place_of_a_list_are_refused(key: str, value: str) -> None:
    assert f"`{key}` must be a list of texts" in refused(LEAST + f"{key} = {value}").message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("torch", ""),
        ("torch", "latest"),
        ("torch", "2.6.*"),
        ("torch", "2.6.0.1"),
        ("torch", "===2.6.0"),
        ("torch", ">=2.6 && <2.7"),
        ("torch", "9" * 5000),
        ("cuda", ""),
        ("cuda", "12"),
        ("cuda", "12.4.1.0"),
        ("cuda", "cu124"),
        ("cuda", "9" * 5000 + ".1"),
        ("python", "3"),
        ("python", "2.7"),
        ("python", "3.11.2"),
        ("python", "python3.11"),
        ("python", "9" * 5000),
        ("driver", "R550"),
        ("driver", "latest"),
        ("driver", "9" * 5000),
        ("base", "wheel"),
        ("flavor", "Runtime"),
        ("platform", "linux/riscv64"),
        ("os", ""),
        ("os", "debian:12"),
        ("os", "debian12/../x"),
    ],
)
def test_a_value_outside_its_grammar_is_refused(key: str, value: str) -> None:
    assert f"`{key}`" in refused(with_value(key, value)).message


def test_a_build_is_chosen_by_cuda_alone() -> None:
    error = refused(with_value("torch", "2.6.0+cu124"))
    assert "the build is chosen by `cuda`" in error.message
    assert "set `cuda`" in error.fix


def test_a_choice_names_the_nearest_and_all() -> None:
    error = refused(with_value("base", "wheel"))
    assert error.message.endswith("; did you mean `wheels`?")
    assert error.fix == "one of: wheels, nvidia, pytorch, ngc"


# What must never reach a Dockerfile, a requirements file or a command line.
INJECTIONS = (
    "x\nRUN touch /pwned",
    "x\r\nUSER root",
    "x\x0bRUN a",
    "x\u2028RUN a",
    "x\x85RUN a",
    "x\x1b[2J",
    "$(touch /pwned)",
    "`touch /pwned`",
    "${HOME}",
    "x'; touch /pwned; '",
    'x" && touch /pwned "',
    "x\\",
    "-rf",
    "--index-url=http://127.0.0.1/simple",
    "-oDPkg::Pre-Invoke::=id",
    "http://127.0.0.1/x.whl",
    "git+https://127.0.0.1/x",
    "file:///etc/passwd",
    "x @ file:///etc/passwd",
    "../../etc",
    "/etc/passwd",
    "x;y",
    "x|y",
    "x>y/z",
    "x #y",
    "{{ lock }}",
    "\u2179",
    "x\x00y",
)


@gathered(product(TEXT_KEYS, INJECTIONS))
def test_no_text_can_become_an_instruction(key: str, hostile: str) -> None:
    refused(with_value(key, hostile))


@gathered(product(["apt", "gpus", "build"], INJECTIONS))
def test_no_item_can_become_an_instruction(key: str, hostile: str) -> None:
    refused(with_value(key, ["numpy", hostile]))


def test_what_is_compiled_is_asked_for_as_a_package_too() -> None:
    found = spec(LEAST + 'packages = ["numpy"]\nbuild = ["Flash_Attn==2.8.3", "flash-attn==2.8.3"]\ngpus = ["A100"]\n')
    assert (found.build, found.packages) == (("flash-attn==2.8.3",), ("numpy", "flash-attn==2.8.3"))
    assert spec(LEAST + 'cuda = "12.4"\nbuild = []\n').build == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('build = ["a"]', "is not one release"),
        ('build = ["a>=1"]', "is not one release"),
        ('build = ["a==1.*"]', "is not one release"),
        ('build = ["a==1,>0"]', "is not one release"),
        ('build = ["a[x]==1"]', "is not one release"),
        ("build = [\"a==1; python_version > '3'\"]", "is not one release"),
        ('build = ["a @ https://127.0.0.1/a.tar.gz"]', "holds a URL"),
        ('build = ["torch==2.6.0"]', "holds torch"),
        ('build = ["a==1", "A==2"]', "two releases of a"),
        (
            'build = ["a==1"]\npackages = ["./a-1-py3-none-any.whl"]',
            "has a compiled, and `packages` names a wheel of it",
        ),
        ('base = "nvidia"\nbuild = ["a==1"]', "against a torch that the lock pins"),
    ],
)
def test_what_is_compiled_is_one_release_against_a_pinned_torch(text: str, said: str) -> None:
    error = refused(f'{LEAST}gpus = ["A100"]\n{text}\n')
    assert "`build`" in error.message and said in error.message


def test_who_compiles_says_for_which_gpus() -> None:
    error = refused(LEAST + 'build = ["a==1"]\n')
    assert error.message == "`build` compiles for the GPUs that the spec names, and `gpus` names none"


@pytest.mark.parametrize("hostile", INJECTIONS)
def test_no_package_can_become_a_line_or_a_flag(hostile: str) -> None:
    refused(with_value("packages", [hostile]))


@pytest.mark.parametrize(
    "hostile",
    [
        'numpy; os_name == "x\n--index-url http://127.0.0.1\n"',
        "numpy\n--index-url http://127.0.0.1",
        "numpy===${HOME}",
        "numpy @ https://127.0.0.1/numpy.whl",
        "./numpy.whl",
        "-e .",
        "numpy --hash=sha256:00",
    ],
)
def test_a_requirement_is_one_name_from_an_index(hostile: str) -> None:
    assert "`packages`" in refused(with_value("packages", [hostile])).message


@pytest.mark.parametrize("name", ["gcc-", "g", "-gcc", "gcc=", "gcc=1 2", "gcc/stable", "GCC", "lib*", "gcc=1-"])
def test_an_apt_name_cannot_remove_select_or_match(name: str) -> None:
    """ "gcc-" removes and "lib*" is a pattern to apt-get."""
    assert "not a Debian package name" in refused(with_value("apt", [name])).message


@pytest.mark.parametrize("name", ["a..b", "a._b", "a___b", "-a", "a-", "A", "a/b", "a:b", "", "a" * 65])
def test_a_name_is_one_that_an_engine_takes(name: str) -> None:
    assert "`name`" in refused(with_value("name", name)).message


@pytest.mark.parametrize("name", ["a", "torch-2.6-cu124", "a__b", "a--b", "a_b.c-d", "0"])
def test_good_names_are_taken(name: str) -> None:
    assert spec(with_value("name", name)).name == name


@examples(30)
@given(st.text(alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=80))
def test_any_directory_gives_a_good_name(directory: str) -> None:
    if directory in (".", ".."):
        return
    name = parse(LEAST, Path("/srv") / directory / "envkit.toml").name
    assert spec(with_value("name", name)).name == name


VALUES = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="0123456789.<>=!~,+*- abcu_\n$'\"", max_size=30),
    st.sampled_from(INJECTIONS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.text(max_size=30), max_size=3),
    st.lists(st.text(alphabet="abc[]=<>;@ '\"\n.-1", max_size=30), max_size=3),
)
SAFE = re.compile(r"[A-Za-z0-9 ._+/=~-]*")


@examples(30)
@given(st.dictionaries(st.sampled_from((*TEXT_KEYS, *LIST_KEYS)), VALUES, max_size=5))
def test_whatever_a_key_holds_it_is_parsed_or_refused(values: dict[str, object]) -> None:
    """json.dumps is TOML for all these but the lone surrogates and DEL that TOML refuses, which is fine as well."""
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    text += "".join(line + "\n" for line in LEAST.splitlines() if line.split()[0] not in values)
    made = parsed_or_refused(text)
    if made is None:
        return
    for word in (made.name, made.os, made.tag, *made.apt, *made.gpus):
        assert SAFE.fullmatch(word)
        assert not word.startswith("-")
    assert all(line.isprintable() and not line.startswith("-") for line in made.packages)
    assert made.torch.text.isprintable()


@examples(30)
@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    parsed_or_refused(text)


def test_one_line_shows_what_cannot_be_printed() -> None:
    assert one_line("a\tb\u2028") == r"a\tb\u2028"
    assert one_line("x" * 500) == "x" * 200 + "..."


def test_nearest_is_silent_without_a_likeness() -> None:
    assert nearest("debian", ["debian12"]) == "; did you mean `debian12`?"
    assert nearest("qqq", ["debian12"]) == ""


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ('python = "3.11"', "has no `torch`", "with a release, or with a range"),
        ('torch = "2.6.0"', "has no `python`", '`python = "auto"`'),
    ],
)
def test_a_key_that_every_spec_has_is_named_with_what_it_takes(text: str, said: str, fix: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse(text, Path("envkit.toml"))
    assert fix in caught.value.fix
