"""Requirement lines, pins, markers, index addresses."""

from __future__ import annotations

import answers
import pytest
from clocks import costs_less
from dockerfile_commands import DEFAULT_INDEX, Folder
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Reference
from packaging.utils import canonicalize_name

from envkit.dockerfile import requirements
from envkit.dockerfile.requirements import (
    Option,
    RequestedPackages,
    Requirement,
    admits,
    allows,
    build_of,
    holds,
    parse,
    pin,
    requirement,
)
from envkit.model import Span
from envkit.subjects.dockerfile import Unread

HERE = Span("Dockerfile", 1)


def one(text: str) -> Requirement:
    found = requirement(text, HERE)
    assert found is not None
    return answers.same("requirements", text, found)


@pytest.mark.parametrize(
    ("text", "name", "specifier", "version", "local"),
    [
        ("torch", "torch", "", "", ""),
        ("torch==2.1.0", "torch", "==2.1.0", "2.1.0", ""),
        ("torch == 2.1.0", "torch", "== 2.1.0", "2.1.0", ""),
        ("torch===2.1", "torch", "===2.1", "2.1", ""),
        ("torch==2.1.0+cu118", "torch", "==2.1.0+cu118", "2.1.0", "cu118"),
        ("torch==1.10.1+cu111", "torch", "==1.10.1+cu111", "1.10.1", "cu111"),
        ("torch==2.1.*", "torch", "==2.1.*", "", ""),
        ("torch~=2.1.0", "torch", "~=2.1.0", "", ""),
        ("torch>=2.0,<3", "torch", ">=2.0,<3", "", ""),
        ("torch>=2.0,==2.1.2", "torch", ">=2.0,==2.1.2", "2.1.2", ""),
        ("torch!=2.0", "torch", "!=2.0", "", ""),
        ("torch (>=1.0)", "torch", ">=1.0", "", ""),
        ("'torch==2.1.0'", "torch", "==2.1.0", "2.1.0", ""),
        ("torch==2.6.0.dev20241112+cu124", "torch", "==2.6.0.dev20241112+cu124", "2.6.0.dev20241112", "cu124"),
        ("torch==2.6.0rc1", "torch", "==2.6.0rc1", "2.6.0rc1", ""),
        ("Flash_Attn==2.5.8", "flash-attn", "==2.5.8", "2.5.8", ""),
        ("pytorch", "pytorch", "", "", ""),
        ("torch=2.1.0", "torch", "=2.1.0", "", ""),
        ("torch==$TORCH", "torch", "==$TORCH", "", ""),
        ("torch==${TORCH}+${CU}", "torch", "==${TORCH}+${CU}", "", ""),
        ("torch==$(cat v)", "torch", "==$(cat v)", "", ""),
        ("torch${PIN}", "torch", "${PIN}", "", ""),
        ("torch,", "torch", "", "", ""),
    ],
)
def test_named(text: str, name: str, specifier: str, version: str, local: str) -> None:
    found = one(text)
    assert (found.name, found.specifier, found.version, found.local) == (name, specifier, version, local)


@pytest.mark.parametrize(
    "text", ["==", "2.1.0", "", "cupy-cuda${X}x", "nvidia-${X}", "<html>", "torch 2.1.0", "x" * 9000]
)
def test_what_is_no_requirement(text: str) -> None:
    assert requirement(text, HERE) is None


@pytest.mark.parametrize(
    ("text", "name", "version", "local", "extras"),
    [
        (
            "https://download.pytorch.org/whl/cu118/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl",
            "torch",
            "2.1.0",
            "cu118",
            (),
        ),
        ("./dist/torch-2.1.0+cu121-cp310-cp310-linux_x86_64.whl", "torch", "2.1.0", "cu121", ()),
        ("torch-1.0.0-1-cp36-cp36m-linux_x86_64.whl", "torch", "1.0.0", "", ()),
        (
            "flash_attn-2.5.8+cu122torch2.3cxx11abiFALSE-cp310-cp310-linux_x86_64.whl",
            "flash-attn",
            "2.5.8",
            "cu122torch2.3cxx11abifalse",
            (),
        ),
        ("https://host/x/mmcv-full-1.7.1.tar.gz", "mmcv-full", "1.7.1", "", ()),
        (
            "torch @ https://host/torch-2.3.0%2Bcu121-cp311-cp311-linux_x86_64.whl ; python_version > '3'",
            "torch",
            "2.3.0",
            "cu121",
            (),
        ),
        ("git+https://github.com/facebookresearch/detectron2.git", "detectron2", "", "", ()),
        ("git+https://github.com/pytorch/vision@v0.15.2", "torchvision", "0.15.2", "", ()),
        ("git+https://github.com/x/y.git@main#egg=Some_Name[gpu]&subdirectory=z", "some-name", "", "", ("gpu",)),
        ("git+https://github.com/facebookresearch/pytorch3d.git@stable", "pytorch3d", "", "", ()),
        ("git+https://github.com/a/b.git#subdirectory=packages/some_part", "some-part", "", "", ()),
        ("git+https://github.com/a/b.git@main#subdirectory=python", "b", "", "", ()),
        ("git+ssh://git@github.com/NVIDIA/apex.git@23.08", "apex", "", "", ()),
        ("https://github.com/pytorch/audio/archive/refs/tags/v2.0.2.zip", "torchaudio", "2.0.2", "", ()),
        ("flash-attn @ git+https://github.com/Dao-AILab/flash-attention@v2.5.8", "flash-attn", "2.5.8", "", ()),
        ("torch-*.whl", "torch", "", "", ()),
        (".", "", "", "", ()),
        (".[gpu,Dev_Tools]", "", "", "", ("gpu", "dev-tools")),
        ("./lib/pointnet2", "", "", "", ()),
        ("lib/pointnet2", "", "", "", ()),
        ("/opt/apex", "", "", "", ()),
    ],
)
def test_addresses(text: str, name: str, version: str, local: str, extras: tuple[str, ...]) -> None:
    found = one(text)
    assert (found.name, found.version, found.local, found.extras) == (name, version, local, extras)
    assert found.url


def test_what_is_editable_is_a_folder() -> None:
    found = requirement("detectron2_repo[all]", HERE, editable=True)
    assert found is not None and (found.name, found.url, found.extras) == ("", "detectron2_repo", ("all",))
    tied = requirement("demo @ git+https://github.com/a/b", HERE, editable=True)
    assert tied is not None and tied.name == "demo"


def test_a_name_may_have_a_hundred_hashes() -> None:
    """A release of cffi has 67 files, whose hashes are longer than any requirement."""
    hashes = " ".join(f"--hash=sha256:{number:064x}" for number in range(100))
    found = one(f"cffi==1.17.1 {hashes}")
    assert (found.name, found.version, found.hashed) == ("cffi", "1.17.1", True)
    assert requirement("x" * 5_000, HERE) is None


def test_marker_hash_and_extras_are_parts() -> None:
    found = one('Torch[opt] >= 2.0 ; sys_platform == "linux" --hash=sha256:abc')
    assert (found.name, found.extras, found.specifier) == ("torch", ("opt",), ">= 2.0")
    assert found.hashed and found.marker == 'sys_platform == "linux"'


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,8}[A-Za-z0-9]", fullmatch=True)
SPECIFIERS = st.sampled_from(
    ["", "==1.0", ">=1,<2", "~=1.4.2", "==2.*", "===1.0", "!=3", "==1.0+cu118", " == 1.0 , != 2"]
)
MARKERS = st.sampled_from(["", '; python_version < "3.9"', "; sys_platform == 'linux' and extra == 'x'"])


@given(NAMES, st.sampled_from(["", "[a]", "[a,b-c]"]), SPECIFIERS, MARKERS)
def test_agrees_with_packaging(name: str, extras: str, specifier: str, marker: str) -> None:
    text = f"{name}{extras}{specifier}{marker}"
    try:
        reference = Reference(text)
    except InvalidRequirement:
        return
    found = one(text)
    assert found.name == canonicalize_name(reference.name)
    assert set(found.extras) == {canonicalize_name(extra) for extra in reference.extras}
    pinned = [s.version for s in reference.specifier if s.operator in ("==", "===") and not s.version.endswith("*")]
    assert found.version + ("+" + found.local if found.local else "") == (pinned[0] if pinned else "")
    assert bool(found.marker) == (reference.marker is not None)


@given(st.text(max_size=80))
def test_any_text_is_read(text: str) -> None:
    requirement(text, HERE)
    pin(text)
    holds(text)
    admits(text, "3.11")
    parse(text, "r.txt")


ENVIRONMENT = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "python_version": "3.10",
    "python_full_version": "3.10.0",
    "extra": "",
}
ATOMS = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.sampled_from(["3.8", "3.9", "3.10", "3.12"])).map(
        lambda pair: f"python_version {pair[0]} '{pair[1]}'"
    ),
    st.tuples(
        st.sampled_from(["sys_platform", "platform_machine", "platform_system", "os_name"]),
        st.sampled_from(["==", "!=", "in", "not in"]),
        st.sampled_from(["linux", "Linux", "x86_64", "win32", "darwin linux", "aarch64", "posix"]),
    ).map(lambda triple: f"{triple[0]} {triple[1]} '{triple[2]}'"),
    st.sampled_from(
        ["python_version == '3.*'", "python_version ~= '3.9'", "'3.9' <= python_version", "'linux' in sys_platform"]
    ),
)
TREES = st.recursive(
    ATOMS,
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@examples(100)
@given(TREES)
def test_markers_agree_with_packaging(text: str) -> None:
    try:
        reference = Marker(text)
    except InvalidMarker:
        return
    assert holds(text, "3.10") == reference.evaluate(ENVIRONMENT)


@pytest.mark.parametrize(
    ("marker", "python", "answer"),
    [
        ("", "", True),
        ("sys_platform == 'darwin'", "", False),
        ("sys_platform != 'win32'", "", True),
        ("platform_machine == 'aarch64'", "", False),
        ("python_version >= '3.6'", "", True),  # every Python in use
        ("python_version >= '3.9'", "", None),
        ("python_version >= '3.9'", "3.8", False),
        ("python_version >= '3.9' and sys_platform == 'win32'", "", False),
        ("python_version >= '3.9' or sys_platform == 'linux'", "", True),
        ("python_full_version < '3.10.4'", "3.10", None),
        ("python_full_version < '3.11.4'", "3.10", True),
        ("python_full_version < '3.10.4'", "3.10.12", False),
        ("extra == 'gpu'", "", False),
        ("platform_release >= '6'", "", None),
        ("nonsense", "", None),
        ("(" * 10_000, "", None),
    ],
)
def test_markers_that_are_and_are_not_decided(marker: str, python: str, answer: bool | None) -> None:
    assert holds(marker, python) is answer


def test_extras_and_a_project_s_own_pythons_decide_markers() -> None:
    assert holds("extra == 'gpu'", extras=frozenset({"gpu"})) is True
    assert holds("python_version >= '3.9'", requires=">=3.10") is True
    assert holds("python_version < '3.9'", requires="^3.10") is False
    assert holds("platform_machine == 'aarch64'", machine="aarch64") is True


@pytest.mark.parametrize(
    ("specifier", "python", "answer"),
    [
        (">=3.9,<3.12", "3.11", True),
        (">=3.9,<3.12", "3.12", False),
        ("^3.10", "3.9", False),
        ("^3.10", "3.13", True),
        ("~3.10", "3.11", False),
        ("3.11.*", "3.11", True),
        ("==3.11.*", "3.10", False),
        ("~=3.10.4", "3.11", False),
        ("~=3.10", "3.11", True),
        (">=3.10.4", "3.10", None),
        ("==3.11.4", "3.10", False),
        ("==3.11.4", "3.11", None),
        ("*", "3.11", True),
        ("words", "3.11", None),
    ],
)
def test_pythons_that_a_specifier_lets_in(specifier: str, python: str, answer: bool | None) -> None:
    assert admits(specifier, python) is answer


@pytest.mark.parametrize(
    ("specifier", "version", "answer"),
    [
        ("^2.2.2", "2.14.1", True),
        ("^2.2.2", "3.0.0", False),
        ("^0.17.2", "0.18.0", False),
        ("^0.0.3", "0.0.4", False),
        ("^2,!=2.5.0", "2.5.0", False),
        ("~2.2.0", "2.3.0", False),
        ("~2", "2.9", True),
        ("~=2.2", "2.9", True),
        ("*", "2.9", True),
        ("^2.0 || ^3.0", "2.1", None),
    ],
)
def test_poetrys_own_clauses_let_in_what_poetry_does(specifier: str, version: str, answer: bool | None) -> None:
    assert allows(specifier, version) is answer


@pytest.mark.parametrize(
    ("address", "build"),
    [
        ("https://download.pytorch.org/whl/cu118", "cu118"),
        ("https://download.pytorch.org/whl/cu118/", "cu118"),
        ("https://download.pytorch.org/whl/nightly/cu121", "cu121"),
        ("https://download.pytorch.org/whl/test/cu128", "cu128"),
        ("https://download.pytorch.org/whl/cpu", "cpu"),
        ("https://download.pytorch.org/whl/rocm5.6", "rocm5.6"),
        ("https://download.pytorch.org/whl/cu113/torch_stable.html", "cu113"),
        ("https://mirror.example.org/pytorch-wheels/cu121", "cu121"),
        ("https://download.pytorch.org/whl/torch_stable.html", ""),
        (DEFAULT_INDEX, ""),
        ("https://wheels.example.org/whl/torch-2.1.0+cu118.html", ""),
        ("", ""),
    ],
)
def test_what_an_index_offers(address: str, build: str) -> None:
    assert build_of(address) == build


def test_a_file_of_requirements() -> None:
    text = (
        "\ufeff# comment\n"
        "--extra-index-url https://download.pytorch.org/whl/cu118  # torch\n"
        "--pre --no-index\n"
        "-ihttps://mirror/simple\n"
        "\n"
        "torch==2.1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "  numpy<2 # old\r\n"
        "-r more.txt\n-c pins.txt\n-e git+https://github.com/a/b#egg=b\n"
        "scipy==${SCIPY}\n"
        "what is this\n"
    )
    found = parse(text, "requirements.txt", {"SCIPY": "1.11.0"})
    options = [(line.name, line.value) for line in found if isinstance(line, Option)]
    assert options == [
        ("--extra-index-url", "https://download.pytorch.org/whl/cu118"),
        ("--pre", ""),
        ("--no-index", ""),
        ("--index-url", "https://mirror/simple"),
        ("--requirement", "more.txt"),
        ("--constraint", "pins.txt"),
    ]
    named = {line.name: line for line in found if isinstance(line, Requirement)}
    assert (named["torch"].version, named["torch"].hashed, named["torch"].span.line) == ("2.1.0", True, 6)
    assert named["numpy"].span == Span("requirements.txt", 9, 3, 9, 10)
    assert named["b"].editable and named["scipy"].version == "1.11.0"
    lost = [line for line in found if isinstance(line, Unread)]
    assert [(line.span.line, line.why) for line in lost] == [(14, "line 14 is no requirement (`what is this`)")]


def test_a_variable_that_is_not_known_stays_as_it_is_written() -> None:
    (line,) = parse("torch==${TORCH}+${CU}", "requirements.txt", {"CU": "cu118"})
    assert isinstance(line, Requirement) and line.specifier == "==${TORCH}+cu118"


def asked(texts: dict[str, str], path: str = "a.txt") -> RequestedPackages:
    found = RequestedPackages()
    requirements.follow(found, path, HERE, Folder(texts), "/app", {})
    return answers.same("requirements", (texts, path), found)


def test_files_name_files_beside_them() -> None:
    found = asked(
        {
            "/app/req/a.txt": "-r ../b.txt\n-c sub/c.txt\n",
            "/app/b.txt": "torch\n",
            "/app/req/sub/c.txt": "torch==2.1.0\n",
        },
        "req/a.txt",
    )
    assert [one.name for one in found.requirements] == ["torch"]
    assert [(one.version, one.span.path) for one in found.constraints] == [("2.1.0", "app/req/sub/c.txt")]


def test_a_file_that_includes_itself_is_said() -> None:
    found = asked({"/app/a.txt": "torch\n-r b.txt\n", "/app/b.txt": "-r a.txt\nnumpy\n"})
    assert [one.name for one in found.requirements] == ["torch", "numpy"]
    assert [(one.path, one.why) for one in found.unread] == [("a.txt", "it includes itself (a.txt -> b.txt -> a.txt)")]


def test_an_index_in_a_file_begins_the_list_anew() -> None:
    found = RequestedPackages(index="https://one", extra_indexes=["https://two"])
    requirements.add_text(found, "-i https://three\n--extra-index-url https://four\n", "r.txt", Folder({}), "/", {})
    assert (found.index, found.extra_indexes) == ("https://three", ["https://four"])


def test_what_cannot_be_read_is_said() -> None:
    found = asked({"/app/a.txt": "-r https://host/r.txt\n-r gone.txt\n"})
    assert [one.path for one in found.unread] == ["https://host/r.txt", "gone.txt"]
    assert asked({"/app/a.txt": "\x00\x01"}).unread[0].why == "it is no text"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "torch" + " " * 1_000_000 + "==1",
        "torch ;" * 150_000,
        "torch[" * 200_000,
        "\\\n" * 200_000,
        "-r\n" * 50_000,
        "--pre " * 100_000,
        "\n".join(f"p{n}==1.{n}" for n in range(30_000)),
        "git+" * 250_000,
        "a@" * 300_000,
        "#egg=" * 100_000 + "git+https://x",
        "https://" + "-1" * 300_000 + ".whl",
    ],
)
def test_hostile_texts_take_bounded_time(text: str) -> None:
    with costs_less(8):  # 1.8 s for the longest on a loaded machine; what is not linear takes minutes
        found = asked({"/app/a.txt": text})
    assert len(found.requirements) <= requirements.MOST


def test_a_chain_of_files_ends() -> None:
    found = asked({f"/app/{n}.txt": f"-r {n + 1}.txt\np{n}\n" for n in range(100)}, "0.txt")
    assert found.unread and "chain" in found.unread[0].why
