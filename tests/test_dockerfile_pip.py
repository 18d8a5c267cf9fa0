"""What pip's commands install."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import answers
import pytest
from dockerfile_commands import DEFAULT_INDEX, NOTHING, Folder, command, installs, unread
from fuzzed import examples
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile import pip, poetry, uv
from envkit.subjects.dockerfile import Install, Removal, Unread, Word

CU118 = "https://download.pytorch.org/whl/cu118"


def read(
    text: str, files: Folder = NOTHING, env: Mapping[str, str] | None = None, cwd: str = "/app"
) -> list[Install | Removal | Unread]:
    read = list(pip.read(command(text, env, cwd), files))
    return answers.same("installs", ("pip", text, files, env, cwd), read)


def torch(text: str, files: Folder = NOTHING, env: Mapping[str, str] | None = None) -> Install:
    return installs(read(text, files, env))["torch"]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("pip install torch", "pip"),
        ("pip3 install torch", "pip3"),
        ("pip3.10 install torch", "pip3.10"),
        ("/opt/venv/bin/pip install torch", "/opt/venv/bin/pip"),
        (".venv/bin/pip install torch", "/app/.venv/bin/pip"),
        ("python -m pip install torch", "python -m pip"),
        ("python3.11 -u -m pip install torch", "python3.11 -m pip"),
        ("python3 -Im pip install torch", "python3 -m pip"),
        ("python3 -W ignore -mpip install torch", "python3 -m pip"),
        ("/usr/bin/python3.9 -m pip install torch", "/usr/bin/python3.9 -m pip"),
        ("$PIP install torch", "$PIP"),
        ("${PYTHON} -m pip install torch", "${PYTHON} -m pip"),
        ("pip --no-cache-dir --default-timeout 100 install torch", "pip"),
        ("pip --python /venv/bin/python install torch", "/venv/bin/python -m pip"),
        ("pip -q --proxy http://p install torch", "pip"),
    ],
)
def test_who_installs(text: str, target: str) -> None:
    assert torch(text).target == target


@pytest.mark.parametrize(
    "text",
    [
        "pip download torch",
        "pip wheel torch",
        "pip install --dry-run torch",
        "pip list torch",
        "pip",
        "pip --version",
        "pip install",
        "pip config set global.index-url https://x",
        "python train.py -m pip install torch",
        "python -c 'import torch'",
        "python -m torch.utils.collect_env",
        "echo pip install torch",
        "pipdeptree torch",
        "python setup.py bdist_wheel",
    ],
)
def test_what_installs_nothing(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("text", "index", "extra", "links"),
    [
        (f"pip install torch --index-url {CU118}", CU118, (), ()),
        (f"pip install torch -i {CU118}", CU118, (), ()),
        (f"pip install torch -i{CU118}", CU118, (), ()),
        (f"pip install --index-url={CU118} torch", CU118, (), ()),
        (f"pip install torch --index {CU118}", CU118, (), ()),  # an abbreviation, as optparse takes it
        (f"pip install torch --extra-index-url {CU118} --extra-index-url https://b", "", (CU118, "https://b"), ()),
        ("pip install torch -f https://x/torch_stable.html", "", (), ("https://x/torch_stable.html",)),
        (f"pip install torch -i {DEFAULT_INDEX}/", "", (), ()),
        (f"pip install -i https://mirror/simple -i {CU118} torch", CU118, (), ()),
        ("pip install torch", "", (), ()),
    ],
)
def test_indexes(text: str, index: str, extra: tuple[str, ...], links: tuple[str, ...]) -> None:
    found = torch(text)
    assert (found.index, found.extra_indexes, found.find_links) == (index, extra, links)


def test_variables_configure_pip() -> None:
    env = {
        "PIP_INDEX_URL": "https://mirror/simple",
        "PIP_EXTRA_INDEX_URL": "https://one https://two",
        "PIP_FIND_LINKS": "https://links",
        "PIP_NO_CACHE_DIR": "off",
        "PIP_PRE": "1",
        "PIP_UPGRADE": "0",
        "PIP_NO_DEPS": "",
        "PIP_CONSTRAINT": "/etc/pins.txt",
    }
    files = Folder({"/etc/pins.txt": "torch==2.2.0\n"})
    found = read("pip install torch --extra-index-url https://three", files, env)
    asked, pinned = (one for one in found if isinstance(one, Install))
    assert asked.index == "https://mirror/simple"
    assert asked.extra_indexes == ("https://one", "https://two", "https://three")
    assert asked.find_links == ("https://links",)
    assert asked.options == {"--no-cache-dir", "--pre", "--extra-index-url"}
    assert pinned.constraint and pinned.version == "2.2.0" and not asked.constraint
    assert (
        torch("pip install torch -i https://mine", NOTHING, {"PIP_INDEX_URL": "https://mirror"}).index == "https://mine"
    )


def test_options_are_named_by_their_long_names() -> None:
    found = torch(
        "pip install -qU --no-dep --no-cache torch -t /opt/lib --no-build-isolation --user --only-binary=:all:"
    )
    assert found.options >= {
        "--quiet", "--upgrade", "--no-deps", "--no-cache-dir", "--target", "--target=/opt/lib", "--no-build-isolation",
        "--user", "--only-binary=:all:",
    }  # fmt: skip
    assert found.specifier == ""


def test_values_of_options_are_no_packages() -> None:
    text = (
        "pip install --timeout 60 --retries 5 --trusted-host host --cache-dir /c --global-option=--cpp_ext -C a=b"
        " --config-settings --build-option=--x --progress-bar off --root-user-action ignore --src /s torch numpy"
    )
    assert set(installs(read(text))) == {"torch", "numpy"}


def test_pins_and_spans() -> None:
    text = "pip install torch==2.1.0+cu118 'torchvision>=0.16,<0.17'"
    found = installs(read(text))
    assert (found["torch"].version, found["torch"].local) == ("2.1.0", "cu118")
    assert (found["torchvision"].version, found["torchvision"].specifier) == ("", ">=0.16,<0.17")
    assert (found["torch"].span.column, found["torch"].span.end_column) == (13, 31)


def test_unknown_words_are_said() -> None:
    found = read("pip install $PACKAGES torch==$VERSION ./dist/*.whl wheels/torch-*.whl -r $LIST")
    named = installs(found)
    assert (named["torch"].specifier, named["torch"].url) == ("", "/app/wheels/torch-*.whl")
    assert [one.specifier for one in found if isinstance(one, Install)] == ["==$VERSION", ""]
    assert unread(found) == [
        ("$PACKAGES", "its value is not known before the build"),
        ("./dist/*.whl", "which files it names is not known before the build"),
        ("$LIST", "its name is not known before the build"),
    ]


def test_a_command_that_may_not_run_installs_unsurely() -> None:
    found = list(pip.read(replace(command("pip install torch"), sure=False), NOTHING))
    assert [one.sure for one in found if isinstance(one, Install)] == [False]


def test_requirements_files() -> None:
    files = Folder(
        {
            "/app/requirements/gpu.txt": f"-r base.txt\n--extra-index-url {CU118}\ntorch==2.1.0\n",
            "/app/requirements/base.txt": "numpy\npywin32; sys_platform == 'win32'\ntomli; python_version < '3.11'\n",
            "/app/c.txt": "numpy==1.26.4\n",
        }
    )
    found = read("pip3 install --no-cache-dir -rrequirements/gpu.txt -c c.txt", files)
    named = installs(found)
    assert set(named) == {"torch", "numpy", "tomli"}
    assert named["torch"].extra_indexes == (CU118,) == named["numpy"].extra_indexes
    assert named["torch"].span.path == "app/requirements/gpu.txt" and named["torch"].span.line == 3
    assert named["tomli"].marker == "python_version < '3.11'"
    pinned = [one for one in found if isinstance(one, Install) and one.constraint]
    assert [(one.name, one.version) for one in pinned] == [("numpy", "1.26.4")]
    assert "tomli" not in installs(read("python3.11 -m pip install -r requirements/base.txt", files))
    assert installs(read("python3.10 -m pip install -r requirements/base.txt", files))["tomli"].marker == ""


def test_a_requirements_file_that_is_not_there() -> None:
    assert unread(read("pip install -r requirements.txt")) == [("requirements.txt", "no build context was given")]
    assert unread(read("pip install -r https://host/r.txt")) == [("https://host/r.txt", "the build downloads it")]
    assert unread(read("pip install -r /dev/stdin")) == [
        ("/dev/stdin", "what is piped into it is not known before the build")
    ]


def test_requirements_from_a_here_document() -> None:
    found = list(pip.read(command("pip install -r /dev/stdin", heredoc="torch==2.3.0\nnumpy\n"), NOTHING))
    assert installs(found)["torch"].version == "2.3.0"


def test_a_project_of_the_context() -> None:
    text = """
[build-system]
requires = ["setuptools", "torch==9.9"]
[project]
name = "My_Demo"
dependencies = ["torch==2.4.0", "numpy; python_version >= '3.8'", "winonly; sys_platform == 'win32'"]
[project.optional-dependencies]
gpu = ["flash-attn==2.5.8", "my-demo[more]"]
more = ["xformers"]
[tool.uv.sources]
torch = { index = "cu118" }
[[tool.uv.index]]
name = "cu118"
url = "https://download.pytorch.org/whl/cu118"
"""
    files = Folder({"/app/pyproject.toml": text})
    found = installs(read("pip install -e .[gpu]", files))
    assert set(found) == {"my-demo", "torch", "numpy", "flash-attn", "xformers"}
    assert found["my-demo"].editable and found["my-demo"].url == "/app"
    assert (found["torch"].version, found["torch"].span.line, found["torch"].index) == ("2.4.0", 6, "")
    assert "flash-attn" not in installs(read("pip install .", files))
    assert set(installs(read("pip install --no-deps .", files))) == {"my-demo"}


def test_a_project_that_is_not_there_is_said() -> None:
    found = read("pip install .")
    assert installs(found)["."].url == "/app"
    assert unread(found) == [("pyproject.toml", "no build context was given")]
    assert installs(read("pip install -v ./third_party/apex/", cwd="/src"))["."].url == "/src/third_party/apex"


@pytest.mark.parametrize(
    ("texts", "names", "why"),
    [
        (
            {"setup.py": "from setuptools import setup\nsetup(name='d', install_requires=['torch==1.8.0', 'numpy'])"},
            {"d", "torch", "numpy"},
            [],
        ),
        (
            {
                "setup.py": "import setuptools\nREQ = ['torch']\nMORE = ('numpy',)\n"
                "setuptools.setup(install_requires=REQ + ['x'])"
            },
            {".", "torch", "x"},
            [],
        ),
        (
            {
                "setup.py": "r = open('requirements.txt').read().splitlines()\nsetup(install_requires=r)",
                "requirements.txt": "torch==1.8.0\n",
            },
            {".", "torch"},
            [],
        ),
        ({"setup.py": "setup(install_requires=load())"}, {"."}, ["it computes install_requires"]),
        ({"setup.py": "setup("}, {"."}, ["it is no Python that can be parsed"]),
        ({"setup.py": "print('hello')"}, {"."}, ["it does not call setup()"]),
        (
            {
                "setup.cfg": "[metadata]\nname = d\n[options]\ninstall_requires =\n"
                "    torch==1.9.0\n    # no\n    numpy\n[x]\ny = 1\n"
            },
            {"d", "torch", "numpy"},
            [],
        ),
        ({"setup.cfg": "[flake8]\nmax-line-length = 100\n"}, {"."}, ["there is no such file in the build context"]),
        ({"setup.cfg": "name = d\n"}, {"."}, ["it cannot be parsed"]),
        (
            {"setup.cfg": "[options]\ninstall_requires = file: r.txt\n", "r.txt": "torch\n"},
            {".", "torch"},
            [],
        ),
        (
            {"setup.py": "setup(name='d')", "setup.cfg": "[options]\ninstall_requires =\n    torch\n"},
            {"d", "torch"},
            [],
        ),
        (
            {
                "pyproject.toml": "[build-system]\nrequires=['setuptools']",
                "setup.py": "setup(install_requires=['torch'])",
            },
            {".", "torch"},
            [],
        ),
        (
            {
                "pyproject.toml": "[project]\nname='d'\ndynamic=['dependencies']\n"
                "[tool.setuptools.dynamic]\ndependencies={file=['r.txt']}",
                "r.txt": "torch\n",
            },
            {"d", "torch"},
            [],
        ),
        (
            {"pyproject.toml": "[project]\nname='d'\ndynamic=['dependencies']"},
            {"d"},
            ["its dependencies are dynamic, and setup.py and setup.cfg do not tell them"],
        ),
        (
            {"pyproject.toml": "[tool.poetry]\nname='d'\n[tool.poetry.dependencies]\npython='^3.9'\ntorch='2.1.0'"},
            {"d", "torch"},
            [],
        ),
        ({"pyproject.toml": "= broken"}, {"."}, ["it is no TOML (Invalid statement (at line 1, column 1))"]),
    ],
)
def test_projects_of_all_kinds(texts: dict[str, str], names: set[str], why: list[str]) -> None:
    found = read("pip install .", Folder({f"/app/{name}": text for name, text in texts.items()}))
    assert set(installs(found)) == names
    assert [reason for _, reason in unread(found)] == why


def test_an_extra_of_a_setup_is_installed_where_it_is_asked_for() -> None:
    text = "setup(install_requires=['numpy'], extras_require={'gpu': ['torch==1.8.0'], name(): ['x'], 'dev': ['y']})"
    files = Folder({"/app/setup.py": text})
    assert set(installs(read("pip install .[gpu]", files))) == {".", "numpy", "torch"}
    assert set(installs(read("pip install .", files))) == {".", "numpy"}


def test_uninstall_removes() -> None:
    found = read("pip uninstall -y torch torchvision==0.1")
    assert [(one.name, one.target) for one in found if isinstance(one, Removal)] == [
        ("torch", "pip"),
        ("torchvision", "pip"),
    ]
    files = Folder({"/app/r.txt": "torch\n"})
    assert [one.name for one in read("pip uninstall -r r.txt -y", files) if isinstance(one, Removal)] == ["torch"]


@pytest.mark.parametrize(
    ("text", "url", "editable"),
    [
        ("python setup.py install", "/app", False),
        ("python3 setup.py build develop", "/app", True),
        ("python3 setup.py build_ext --inplace", "/app", True),
        ("python3.8 ops/setup.py install --user", "/app/ops", False),
    ],
)
def test_setup_py(text: str, url: str, editable: bool) -> None:
    found = read(text)[0]
    assert isinstance(found, Install)
    assert (found.manager, found.name, found.url, found.editable) == ("source", ".", url, editable)


def test_setup_py_brings_what_it_needs() -> None:
    files = Folder({"/app/setup.py": "setup(install_requires=['torch==1.4.0'])"})
    assert installs(read("python setup.py install", files))["torch"].version == "1.4.0"
    assert "torch" not in installs(read("python setup.py build_ext", files))


def test_the_programs_beside_pip() -> None:
    assert installs(read("python3.9 get-pip.py 'pip==23.0'"))["pip"].target == "python3.9 -m pip"
    assert installs(read("python3.9 -m ensurepip --upgrade"))["pip"].target == "python3.9 -m pip"


def test_environments_and_configuration() -> None:
    assert pip.environment(command("python3.10 -m venv --copies /opt/venv")) == pip.Environment(
        "/opt/venv", "python3.10"
    )
    assert pip.environment(command("virtualenv -p python3.9 env --system-site-packages")) == pip.Environment(
        "/app/env", "python3.9", True
    )
    assert pip.environment(command("pip install venv")) is None
    assert pip.configured(command("pip config set global.index-url https://mirror/simple")) == {
        "PIP_INDEX_URL": "https://mirror/simple"
    }
    assert pip.configured(command("pip3 config --user set global.extra-index-url https://x")) == {
        "PIP_EXTRA_INDEX_URL": "https://x"
    }
    assert pip.configured(command("pip install torch")) == {}


def test_a_build_for_arm_decides_machines() -> None:
    files = Folder({"/app/r.txt": "torch==2.1.0; platform_machine == 'aarch64'\n"})
    assert installs(read("pip install -r r.txt", files)) == {}
    assert torch("pip install -r r.txt", files, {"TARGETARCH": "arm64"}).version == "2.1.0"


def test_files_that_are_hostile_take_bounded_time() -> None:
    setup = "setup(install_requires=" + "[" * 50_000 + "]" * 50_000 + ")"
    sums = "setup(install_requires=" + "+".join(["['a']"] * 5_000) + ")"
    names = "".join(f"a{n} = a{n + 1} + a{n + 1}\n" for n in range(60)) + "setup(install_requires=a0)"
    toml = "[project]\nname='d'\ndependencies=[" + ",".join(f"'p{n}'" for n in range(20_000)) + "]"
    nested = "[project]\nname='d'\na=" + "[" * 50_000
    groups = "[project]\nname='d'\n[dependency-groups]\n" + "".join(
        f"g{n}=[" + ",".join(f"{{include-group='g{other}'}}" for other in range(60)) + "]\n" for n in range(60)
    )
    itself = {"pyproject.toml": "[project]\nname='d'\ndependencies=['e @ file:.', 'f @ file:./.']"}
    cases = [{"setup.py": text} for text in (setup, sums, names)]
    cases += [{"pyproject.toml": text} for text in (toml, nested, groups)]
    begin = time.process_time()
    for texts in [*cases, itself]:
        assert read("pip install .", Folder({f"/app/{name}": text for name, text in texts.items()}))
    assert time.process_time() - begin < 5


def test_a_command_of_ten_thousand_words() -> None:
    words = command("pip install torch").words
    many = (*words, *(Word(f"p{n}==1.0", f"p{n}==1.0", words[0].span) for n in range(10_000)))
    begin = time.process_time()
    assert len(list(pip.read(replace(command("pip install torch"), words=many), NOTHING))) == 10_001
    assert time.process_time() - begin < 2


PIECES = """
pip python -m uv poetry pdm pipenv install sync run add venv tool uvx uninstall - -- -r -c -e -rr.txt -i --index-url=
--index --extra-index-url -f --python -p -U -qr . .[x] .[ torch torch== torch@ torch@@ git+ git+https:// https:// @ ; ;;
$X ${ * [ ] a.whl -.whl r.txt setup.py get-pip.py config set a.b --group --with --only x:y , = == --= -t -C
"""
WORDS = st.sampled_from(PIECES.split())
PLACES = {
    name: st.text(alphabet="[]{}=\"'\n.,-torch#@;:1 \\", max_size=60)
    for name in ("r.txt", "pyproject.toml", "setup.py")
}


@examples(100)
@given(st.lists(WORDS, min_size=1, max_size=8), st.fixed_dictionaries(PLACES))
def test_no_command_and_no_file_breaks_a_reader(words: list[str], texts: dict[str, str]) -> None:
    place = command("x").span
    whole = replace(command("x"), words=tuple(Word(word, word, place, "$" not in word) for word in words))
    files = Folder(
        {f"/app/{name}": text for name, text in {**texts, "uv.lock": "[[package]]\n" + texts["r.txt"]}.items()}
    )
    for reader in (pip.read, uv.read, poetry.read):
        for found in reader(whole, files):
            assert found.span.line >= 1 and not (isinstance(found, Install) and not found.name)
