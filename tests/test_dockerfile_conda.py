"""conda's commands and files: what they install, where to, and which environment gets activated."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

import answers
import pytest
from clocks import costs_less
from hypothesis import given
from hypothesis import strategies as st

from envkit.dockerfile import conda
from envkit.dockerfile.files import FileText
from envkit.model import Span
from envkit.subjects.dockerfile import Command, Install, Removal, Unread, Word


@dataclass(frozen=True)
class Tree:
    """Files of a container, given by their absolute paths."""

    texts: Mapping[str, str] = field(default_factory=dict)

    def read(self, path: str, cwd: str) -> FileText | str:
        full = path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
        return FileText(full.lstrip("/"), self.texts[full]) if full in self.texts else "no build context was given"


def command(text: str, *, sure: bool = True, cwd: str = "/app", env: Mapping[str, str] | None = None) -> Command:
    """A command as the shell reader gives it; a word with a "$" is one that nobody knows."""
    words, at = [], 0
    for raw in shlex.split(text, posix=False):
        at = text.index(raw, at)
        plain = "".join(shlex.split(raw)) if "$(" not in raw else raw
        words.append(Word(plain, raw, Span("Dockerfile", 1, at + 1, 1, at + 1 + len(raw)), "$" not in plain))
        at += len(raw)
    span = Span("Dockerfile", 1, 1, 1, len(text) + 1)
    return Command(tuple(words), span, sure=sure, cwd=cwd, env=env or {})


def found(text: str, files: Mapping[str, str] | None = None, **rest: str) -> list[Install | Removal | Unread]:
    read = list(conda.read(command(text, env=rest), Tree(files or {})))
    return answers.same("installs", ("conda", text, files, rest), read)


def installs(text: str, files: Mapping[str, str] | None = None, **rest: str) -> list[Install]:
    records = found(text, files, **rest)
    assert all(isinstance(record, Install) for record in records), records
    return [record for record in records if isinstance(record, Install)]


def pins(text: str) -> dict[str, str]:
    return {one.name: one.version for one in installs(text)}


@pytest.mark.parametrize(
    ("text", "name", "specifier", "version", "local", "channel"),
    [
        ("pytorch", "pytorch", "", "", "", ""),
        ("pytorch=2.1.0", "pytorch", "=2.1.0", "2.1.0", "", ""),
        ("pytorch=2.1", "pytorch", "=2.1", "", "", ""),
        ("pytorch==2.1", "pytorch", "==2.1", "2.1", "", ""),
        ("pytorch==2.1.*", "pytorch", "==2.1.*", "", "", ""),
        ("pytorch=2.1.0.*", "pytorch", "=2.1.0.*", "2.1.0", "", ""),
        ("pytorch=2.1.*=*cuda11.8*", "pytorch", "=2.1.*", "", "cu118", ""),
        ("pytorch=2.1.0=py3.10_cuda11.8_cudnn8.7.0_0", "pytorch", "=2.1.0", "2.1.0", "cu118", ""),
        ("pytorch=1.4.0=py3.7_cuda10.0.130_cudnn7.6.3_0", "pytorch", "=1.4.0", "1.4.0", "cu100", ""),
        ("pytorch=2.3.1=cuda120_py310h2c91c31_300", "pytorch", "=2.3.1", "2.3.1", "cu120", ""),
        ("pytorch=2.6.0=cuda126_mkl_py312_h0850830_300", "pytorch", "=2.6.0", "2.6.0", "cu126", ""),
        ("pytorch=2.1.0=cpu_py310h", "pytorch", "=2.1.0", "2.1.0", "cpu", ""),
        ("pytorch=2=*cuda*", "pytorch", "=2", "", "cuda", ""),
        ("pytorch >=2.0=*cuda*", "pytorch", ">=2.0", "", "cuda", ""),
        ("pytorch-cpu=1.1.0", "pytorch-cpu", "=1.1.0", "1.1.0", "cpu", ""),
        ("pytorch-gpu", "pytorch-gpu", "", "", "cuda", ""),
        ("pytorch::pytorch=2.1.0", "pytorch", "=2.1.0", "2.1.0", "", "pytorch"),
        ("conda-forge/linux-64::pytorch", "pytorch", "", "", "", "conda-forge/linux-64"),
        ("nvidia/label/cuda-11.8.0::cuda-toolkit", "cuda-toolkit", "", "", "", "nvidia/label/cuda-11.8.0"),
        ("pytorch >= 1.10, < 2", "pytorch", ">=1.10,<2", "", "", ""),
        ("pytorch 2.1.0 py3.10_cuda11.8_0", "pytorch", "==2.1.0", "2.1.0", "cu118", ""),
        ("python = 3.10", "python", "=3.10", "3.10", "", ""),
        ("python=3", "python", "=3", "", "", ""),
        ("python>=3.8", "python", ">=3.8", "", "", ""),
        ("python=3.10.*", "python", "=3.10.*", "3.10", "", ""),
        ("python~=3.10", "python", "~=3.10", "", "", ""),
        ("pytorch-cuda=11.8", "pytorch-cuda", "=11.8", "11.8", "", ""),
        ("Cython!=3", "cython", "!=3", "", "", ""),
    ],
)
def test_spec(text: str, name: str, specifier: str, version: str, local: str, channel: str) -> None:
    got = conda.spec(text)
    assert got is not None
    assert (got.name, got.specifier, got.version, got.local, got.channel) == (name, specifier, version, local, channel)


@pytest.mark.parametrize(
    "text", ["", "=2", "pytorch[version=2.1.0]", "@EXPLICIT", "https://example.com/x", "a" * 5000, "--name"]
)
def test_no_spec(text: str) -> None:
    assert conda.spec(text) is None


def test_install_says_channels_target_and_span() -> None:
    text = "conda install -qy -n train pytorch==2.1.0 torchvision pytorch-cuda=11.8 -c pytorch -c nvidia"
    torch, vision, cuda = installs(text)
    assert (torch.manager, torch.name, torch.version, torch.target) == ("conda", "torch", "2.1.0", "conda:train")
    assert torch.channels == ("pytorch", "nvidia")
    assert text[torch.span.column - 1 : torch.span.end_column - 1] == "pytorch==2.1.0"
    assert (vision.name, vision.version, cuda.name, cuda.version) == ("torchvision", "", "pytorch-cuda", "11.8")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/opt/conda/bin/conda install -y python=3.10", "conda:"),
        ("mamba create -yn gpu python=3.10", "conda:gpu"),
        ("mamba create --name=gpu python=3.10", "conda:gpu"),
        ("conda create -p ./envs/x python=3.10", "conda:/app/envs/x"),
        ("conda create --prefix /opt/env python=3.10", "conda:/opt/env"),
        ("conda create -p ~/env python=3.10", "conda:/root/env"),
        ("micromamba -r /opt/mm create -n gpu python=3.10", "conda:gpu"),
        ("conda create -n gpu 'python 3.10'", "conda:gpu"),
    ],
)
def test_target(text: str, target: str) -> None:
    (python,) = installs(text)
    assert (python.name, python.version, python.target) == ("python", "3.10", target)


def test_cuda_of_several_kinds() -> None:
    assert pins("conda install cudatoolkit=11.3 cuda-version=12.4 cpuonly cudnn=8.9.2.26") == {
        "cudatoolkit": "11.3",
        "cuda-version": "12.4",
        "cpuonly": "",
        "cudnn": "8.9.2.26",
    }
    (toolkit,) = installs("conda install -c nvidia/label/cuda-11.8.0 cuda-toolkit")
    assert toolkit.channels == ("nvidia/label/cuda-11.8.0",)


def test_channels() -> None:
    env = {"CONDA_CHANNELS": "nvidia"}
    plain = command("conda install -c pytorch torchvision", env=env)
    override = command("conda install --override-channels -c x a", env=env)
    assert [one.channels for one in conda.read(plain, Tree()) if isinstance(one, Install)] == [("pytorch", "nvidia")]
    assert [one.channels for one in conda.read(override, Tree()) if isinstance(one, Install)] == [("x",)]
    (own,) = installs("conda install -c defaults pytorch::pytorch")
    assert own.channels == ("pytorch", "defaults")


def test_a_cuda_that_conda_is_told_of() -> None:
    (torch,) = installs("conda install -y pytorch", CONDA_OVERRIDE_CUDA="12.4")
    assert "CONDA_OVERRIDE_CUDA=12.4" in torch.options


@pytest.mark.parametrize(
    "text",
    [
        "conda clean -afy",
        "conda init bash",
        "conda list pytorch",
        "conda install --dry-run pytorch",
        "conda update --all -y",
        "conda install --only-deps pytorch",
        "conda config --add channels pytorch",
        "pip install pytorch",
        "conda",
        "micromamba shell init",
    ],
)
def test_nothing_gets_installed(text: str) -> None:
    assert found(text) == []


def test_removal_and_update() -> None:
    (gone,) = found("conda remove -y --force pytorch")
    assert isinstance(gone, Removal) and (gone.manager, gone.name) == ("conda", "torch")
    (newer,) = installs("conda update -n base conda")
    assert newer.name == "conda" and "--upgrade" in newer.options


def test_what_nobody_knows_is_said() -> None:
    (torch,) = installs("conda install pytorch=$VERSION")
    assert (torch.name, torch.version, torch.specifier) == ("torch", "", "=$VERSION")
    (unread,) = found("conda install $PACKAGES")
    assert isinstance(unread, Unread) and unread.path == "$PACKAGES"
    (unread,) = found("conda env create -f $FILE.yml")
    assert isinstance(unread, Unread) and "not known" in unread.why


def test_an_undecided_command_is_unsure() -> None:
    records = list(conda.read(command("conda install pytorch", sure=False), Tree()))
    assert [record.sure for record in records if isinstance(record, Install)] == [False]


ENVIRONMENT = """\
name: gpu
channels:
  - pytorch
  - nvidia
  - conda-forge
dependencies:
  - python=3.10
  - pytorch=2.1.0=py3.10_cuda11.8*
  - nvidia::cuda-nvcc =11.8
  - pip
  - pip:
      - --extra-index-url https://download.pytorch.org/whl/cu118
      - torchvision==0.16.0+cu118
      - -r more.txt
      - pywin32; sys_platform == "win32"
"""


def test_environment_file() -> None:
    files = {"/app/conf/env.yml": ENVIRONMENT, "/app/conf/more.txt": "einops==0.7.0\n"}
    records = installs("conda env create -f conf/env.yml", files)
    by_name = {record.name: record for record in records}
    assert list(by_name) == ["python", "torch", "cuda-nvcc", "pip", "torchvision", "einops"]
    torch, vision = by_name["torch"], by_name["torchvision"]
    assert (torch.version, torch.local, torch.target) == ("2.1.0", "cu118", "conda:gpu")
    assert torch.channels == ("pytorch", "nvidia", "conda-forge")
    assert by_name["cuda-nvcc"].channels[0] == "nvidia" and by_name["cuda-nvcc"].version == "11.8"
    assert str(torch.span) == "app/conf/env.yml:8:5"
    assert (vision.manager, vision.version, vision.local, vision.target) == ("pip", "0.16.0", "cu118", "conda:gpu")
    assert vision.extra_indexes == ("https://download.pytorch.org/whl/cu118",)
    assert vision.span.line == 13 and vision.span.column == 9
    assert by_name["einops"].version == "0.7.0"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("conda env update -n base -f e.yml", "conda:base"),
        ("conda env update --file e.yml --prune", "conda:gpu"),
        ("mamba env create --file=e.yml -p /opt/x", "conda:/opt/x"),
        ("micromamba install -y -n base -f e.yml", "conda:base"),
        ("micromamba install --yes --file e.yml", "conda:"),
        ("micromamba create -f e.yml", "conda:gpu"),
        ("conda env create e.yml", "conda:gpu"),
    ],
)
def test_which_environment_a_file_fills(text: str, target: str) -> None:
    assert {one.target for one in installs(text, {"/app/e.yml": "name: gpu\ndependencies: [python=3.11]\n"})} == {
        target
    }


def test_default_file_and_missing_file() -> None:
    assert installs("conda env create", {"/app/environment.yml": "dependencies: [numpy]"})[0].name == "numpy"
    (unread,) = found("conda env create")
    assert isinstance(unread, Unread) and (unread.path, unread.why) == ("environment.yml", "no build context was given")


def test_a_line_that_is_no_specification_is_unread_where_it_stands() -> None:
    text = "dependencies:\n  - numpy=1.26\n  - '=1.2'\n  - scipy\n"
    one, unread, other = found("conda env create -f e.yml", {"/app/e.yml": text})
    assert isinstance(one, Install) and isinstance(other, Install) and (one.name, other.name) == ("numpy", "scipy")
    assert isinstance(unread, Unread) and (unread.path, unread.span.line) == ("app/e.yml", 3)
    assert unread.why == "line 3 is no package specification of conda's"


def test_nodefaults_is_no_channel() -> None:
    text = "channels: [nodefaults, conda-forge]\ndependencies: [scipy]\n"
    (one,) = installs("conda env create -f e.yml -c nvidia", {"/app/e.yml": text})
    assert one.channels == ("conda-forge", "nvidia")


def test_anchors_and_selectors() -> None:
    text = "name: a\ndependencies:\n  - sel(linux): scipy\n  - sel(win): pywin32\n  - &p python=3.11\n"
    assert [one.name for one in installs("conda env create -f e.yml", {"/app/e.yml": text})] == ["scipy", "python"]
    alias = "x: &more\n  - numpy=1.26.4\ndependencies: *more\n"
    assert [one.version for one in installs("conda env create -f e.yml", {"/app/e.yml": alias})] == ["1.26.4"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "just words",
        "dependencies: 3",
        "name: x",
        "[" * 100_000,
        "dependencies:\n" + "  - [" * 50_000,
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ndependencies: {a: *c}",
        "\x00",
        "dependencies:\n" + "  - a\n" * 50_000,
        "&a [*a]",
        "? [a, b]\n: c\n",
    ],
)
def test_a_broken_file_is_said_and_bounded(text: str) -> None:
    with costs_less(1):
        records = found("conda env create -f e.yml", {"/app/e.yml": text})
    assert records and all(isinstance(record, Unread) for record in records)


def test_requirements_and_explicit_files() -> None:
    files = {
        "/app/specs.txt": "# made by hand\npytorch=1.13.1\n\ncudatoolkit=11.6\n",
        "/app/explicit.txt": "@EXPLICIT\nhttps://conda.anaconda.org/pytorch/linux-64/"
        "pytorch-2.1.0-py3.10_cuda11.8_cudnn8.7.0_0.tar.bz2#0123456789abcdef\n",
    }
    torch, cuda = installs("conda install --file specs.txt", files)
    assert (torch.version, cuda.version, cuda.span.line) == ("1.13.1", "11.6", 4)
    (torch,) = installs("micromamba create -n x -f explicit.txt", files)
    assert (torch.name, torch.version, torch.local, torch.span.line) == ("torch", "2.1.0", "cu118", 2)
    files["/app/explicit.txt"] = "@EXPLICIT\nhttps://conda.anaconda.org/pytorch/linux-64/\n"
    (unread,) = found("micromamba create -n x -f explicit.txt", files)
    assert isinstance(unread, Unread) and (unread.path, unread.span.line) == ("app/explicit.txt", 2)


LOCK = """version: 1
metadata: {channels: []}
package:
- {name: pytorch, version: 2.1.0, manager: conda, platform: linux-64,
   url: https://conda.anaconda.org/conda-forge/linux-64/pytorch-2.1.0-cuda118_py310h1_300.conda, category: main}
- {name: pytorch, version: 2.1.0, manager: conda, platform: osx-64, url: https://x/osx-64/pytorch-2.1.0-cpu_1.conda}
- {name: black, version: 23.1.0, manager: conda, platform: linux-64, category: dev}
- {name: einops, version: 0.7.0, manager: pip, platform: linux-64, category: main}
"""


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("conda-lock install -n gpu conda-lock.yml", "conda:gpu"),
        ("conda-lock install -p /opt/env", "conda:/opt/env"),
        ("micromamba create -n gpu -f conda-lock.yml", "conda:gpu"),
    ],
)
def test_a_lock_of_conda_lock_says_what_linux_gets(text: str, target: str) -> None:
    torch, einops = installs(text, {"/app/conda-lock.yml": LOCK})
    assert (torch.name, torch.version, torch.local, torch.locked, torch.target) == (
        "torch",
        "2.1.0",
        "cu118",
        True,
        target,
    )
    assert (einops.manager, einops.version, einops.locked, einops.target) == ("pip", "0.7.0", True, target)


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("conda run -n gpu pip install torch==2.1.0", "gpu", "pip install torch==2.1.0"),
        (
            "conda run --no-capture-output -n gpu python -m pip install -r r.txt",
            "gpu",
            "python -m pip install -r r.txt",
        ),
        ("micromamba run -p /opt/x pip install x", "/opt/x", "pip install x"),
        ("micromamba -n gpu run pip install x", "gpu", "pip install x"),
        ("mamba run --live-stream --name gpu python -c 'run'", "gpu", "python -c run"),
        ("conda run pip list", "", "pip list"),
    ],
)
def test_conda_run(text: str, name: str, rest: str) -> None:
    got = conda.inner(command(text))
    assert got is not None
    assert (got[0], " ".join(word.text for word in got[1].words)) == (name, rest)


@pytest.mark.parametrize("text", ["conda install run", "conda run", "docker run -n x y", "conda run -n gpu"])
def test_no_conda_run(text: str) -> None:
    assert conda.inner(command(text)) is None


def test_pip_in_conda_run_goes_into_that_environment() -> None:
    (torch,) = installs("conda run -n gpu pip install torch==2.1.0")
    assert (torch.manager, torch.name, torch.version, torch.target) == ("pip", "torch", "2.1.0", "conda:gpu")
    (other,) = installs("conda run -n gpu /opt/venv/bin/pip install torch==2.1.0")
    assert other.target == "/opt/venv/bin/pip"
    (inner,) = installs("conda run -n gpu conda install -y pytorch=2.1.0")
    assert (inner.name, inner.target) == ("torch", "conda:gpu")


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("conda activate gpu", "gpu"),
        ("conda activate", "base"),
        ("conda activate /opt/envs/x", "/opt/envs/x"),
        ("conda activate ./envs", "/app/envs"),
        ("source activate gpu", "gpu"),
        ("source activate", "base"),
        (". /opt/conda/bin/activate gpu", "gpu"),
        (". /opt/conda/bin/activate", "/opt/conda"),
        ("source /opt/venv/bin/activate", "/opt/venv"),
        (". .venv/bin/activate", "/app/.venv"),
        ("source ~/venv/bin/activate", "/root/venv"),
        ("source bin/activate", "/app"),
        (". /activate", "base"),
        ("micromamba activate", "base"),
        ("mamba activate gpu", "gpu"),
        ("conda deactivate", ""),
        ("deactivate", ""),
        ("source /opt/conda/etc/profile.d/conda.sh", None),
        (". ./scripts/activate_it", None),
        ("conda install activate", None),
        ("echo activate", None),
        ("source activate $(head -1 environment.yml)", "$(head"),
    ],
)
def test_activated(text: str, environment: str | None) -> None:
    assert conda.activated(command(text)) == environment


WORDS = st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=20)


@given(
    st.lists(WORDS | st.sampled_from(["-n", "-c", "-f", "--", "-p", "install", "=", "x=1=y", "[", "::"]), max_size=8)
)
def test_any_words_are_read(words: list[str]) -> None:
    at = Span("Dockerfile", 1)
    for verb in ("install", "env", "create", "run", "config"):
        texts = ("conda", verb, *words)
        one = Command(tuple(Word(text, text, at) for text in texts), at, cwd="/")
        assert all(isinstance(record, Install | Removal | Unread) for record in conda.read(one, Tree()))
        conda.activated(one)


@given(st.text(max_size=200))
def test_any_environment_file_is_read(text: str) -> None:
    for record in conda.environment(FileText("e.yml", text), Tree()):
        assert isinstance(record, Install | Unread)
