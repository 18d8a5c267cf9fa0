"""What no public Dockerfile needs is not interpreted: the torch that it names is not known, and no rule guesses."""

from __future__ import annotations

import pytest
from gathered import gathered
from written import Beside

from envkit import facts as tables
from envkit.dockerfile.evaluate import read
from envkit.model import Outcome
from envkit.static import CheckOptions
from envkit.static.judged import of_dockerfile

FACTS = tables.load()
BASH = 'FROM python:3.11\nSHELL ["/bin/bash", "-c"]\nRUN '
SH = "FROM python:3.11\nRUN "
PROJECT = "[project]\nname = 'demo'\ndependencies = ['numpy']\n[dependency-groups]\ngpu = ['torch==2.6.0']\n"

# What is not read, the Dockerfile, the files of its context.
CUT: list[tuple[str, str, dict[str, str]]] = [
    ("a sum", SH + "V=$((5 + 1)); pip install torch==2.$V.0", {}),
    ("a variable that a sum changes", SH + "V=5; : $((V = 6)); pip install torch==2.$V.0", {}),
    ("a sum that counts", BASH + "V=5; (( V++ )); pip install torch==2.$V.0", {}),
    ("a part by position", BASH + "V=2.6.0-x; pip install torch==${V:0:5}", {}),
    ("another case", BASH + "V=TORCH; pip install ${V,,}==2.6.0", {}),
    ("a variable's variable", BASH + "V=2.6.0; N=V; pip install torch==${!N}", {}),
    ("braces", BASH + "pip install torch=={2.6.0,2.5.0}", {}),
    ("a sequence", BASH + "for v in {5..6}; do pip install torch==2.$v.0; done", {}),
    ("escapes in quotes", BASH + "pip install $'torch==2\\x2e6.0'", {}),
    ("a bracket expression", SH + "V=2.6.0x; pip install torch==${V%[a-z]}", {}),
    ("a pattern that is replaced", BASH + "V=2.6.0-x; pip install torch==${V/-*/}", {}),
    ("printf", SH + "pip install torch==$(printf %s 2.6.0)", {}),
    ("head", SH + "pip install torch==$(echo 2.6.0 | head -1)", {}),
    ("a range of tr's", SH + "pip install $(echo TORCH | tr A-Z a-z)==2.6.0", {}),
    ("eval of several words", SH + "eval pip install torch==2.6.0", {}),
    ("a pattern of Docker's", "FROM python:3.11\nARG V=2.6.0-x\nENV W=${V%-x}\nRUN pip install torch==$W", {}),
    ("a replacement of Docker's", "FROM python:3.11\nARG V=2-6-0\nENV W=${V//-/.}\nRUN pip install torch==$W", {}),
    ("pdm", SH + "pdm install", {"pyproject.toml": PROJECT.replace("numpy", "torch==2.6.0")}),
    ("pdm by python -m", SH + "python -m pdm add torch==2.6.0", {}),
    ("pipenv", SH + "pipenv install --system", {"Pipfile": "[packages]\ntorch = '==2.6.0'\n"}),
    ("pip in pipenv", SH + "pipenv run pip install torch==2.6.0", {}),
    ("pixi", SH + "pixi install", {"pixi.toml": "[dependencies]\npytorch = '2.6.0'\n"}),
    ("pixi add", SH + "pixi add pytorch=2.6.0", {}),
    ("pip-sync", SH + "pip-sync", {"requirements.txt": "torch==2.6.0\n"}),
    ("wheels", SH + "pip wheel -w /w torch==2.6.0 && pip install /w/*", {}),
    ("easy_install", SH + "easy_install torch==2.6.0", {}),
    ("uv add", SH + "uv add torch==2.6.0", {"pyproject.toml": PROJECT}),
    ("poetry add", SH + "poetry add torch==2.6.0", {"pyproject.toml": PROJECT}),
    ("a group of pip's", SH + "pip install --group gpu", {"pyproject.toml": PROJECT}),
    ("a group of uv pip's", SH + "uv pip install --system --group gpu", {"pyproject.toml": PROJECT}),
    ("a version beside conda's package", SH + "conda install -y pytorch 2.6.0", {}),
    ("a file of conda's", SH + "conda install -y ./pytorch-2.6.0-cuda12_0.conda", {}),
    ("conda's brackets", SH + "conda install -y 'pytorch[version=2.6.0]'", {}),
    ("flit", SH + "pip install .", {
        "pyproject.toml": "[build-system]\nbuild-backend = 'flit_core.buildapi'\n"
        "[tool.flit.metadata]\nmodule = 'demo'\nrequires = ['torch==2.6.0']\n",
    }),
]  # fmt: skip


# Rules that would say something of the torch, were its version a guess.
RULES = {
    "cpu-torch-in-cuda-image", "extra-index-shadowed", "torch-cuda-vs-base-mismatch-major",
    "torch-cuda-vs-base-mismatch-minor", "torch-python-unsupported", "torchvision-mismatch",
}  # fmt: skip


def written(text: str) -> str:
    """The Dockerfile with its context copied in front of the last RUN."""
    head, _, run = text.rpartition("\nRUN ")
    return f"{head}\nWORKDIR /app\nCOPY . .\nRUN {run}\n"


@gathered([pytest.param(text, files, id=title) for title, text, files in CUT])
def test_the_torch_is_not_known(text: str, files: dict[str, str]) -> None:
    dockerfile = read(written(text), "Dockerfile", FACTS, Beside(files))
    assert dockerfile.torch_version.missing
    torch = [one for one in dockerfile.installs if one.name == "torch"]
    assert not any(one.sure and one.version for one in torch)
    assert torch or dockerfile.unread
    judged = of_dockerfile(written(text), "Dockerfile", Beside(files), CheckOptions(), FACTS)
    said = {one.check for one in judged.results if one.outcome in (Outcome.PASS, Outcome.FAIL)}
    assert not said & RULES
    assert torch or "torch-installed-twice" not in said  # one torch is one, whichever it is


@gathered([(form,) for form in ("$(printf %s 2.6.0)", "${V:0:5}", "${V%-x}", "${V/-*/}")])
def test_a_version_that_is_not_computed_is_not_called_open(form: str) -> None:
    text = f'FROM python:3.11\nSHELL ["/bin/bash", "-c"]\nARG V\nRUN pip install torch=={form}\n'
    judged = of_dockerfile(text, "Dockerfile", Beside({}), CheckOptions(), FACTS)
    assert [one.outcome for one in judged.results if one.check == "unpinned-torch"] == [Outcome.UNKNOWN]


@pytest.mark.parametrize(
    "text",
    [
        "pipx install torch==2.5.0",
        "uv tool install vllm==0.6.0",
        "uvx --from vllm vllm serve",
        "uv tool run ruff check",
    ],
)
def test_a_tool_in_an_environment_of_its_own_says_nothing_of_the_others(text: str) -> None:
    run = f"FROM python:3.11\nRUN {text} && pip install torch==2.6.0\n"
    dockerfile = read(run, "Dockerfile", FACTS, Beside({}))
    assert [one.name for one in dockerfile.installs] == ["torch"]
    assert [one.system for step in dockerfile.stages[0].steps for one in step.unread] == [True]
    assert dockerfile.torch_version.value == "2.6.0"


@pytest.mark.parametrize(
    "text", ["pdm run python train.py", "pipenv run python x.py", "pixi --help", "pdm lock", "uv tool list"]
)
def test_what_installs_nothing_is_not_named(text: str) -> None:
    assert not any(step.unread for step in read(f"FROM python:3.11\nRUN {text}\n", "Dockerfile", FACTS).stages[0].steps)


def test_a_script_of_the_context_that_is_not_followed_is_named() -> None:
    files = {"install.sh": "eval pip install torch==2.6.0\n"}
    dockerfile = read("FROM python:3.11\nCOPY install.sh .\nRUN bash install.sh\n", "Dockerfile", FACTS, Beside(files))
    assert [one.path for one in dockerfile.unread] == ["install.sh"]
