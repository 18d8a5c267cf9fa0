"""What a project's own scripts install when a RUN starts them: as much as the text determines, and nothing beyond."""

from __future__ import annotations

import pytest
from written import Beside

from envkit.dockerfile import evaluate
from envkit.facts import load

FACTS = load()
HEAD = (
    "FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip\n"
    "COPY . /app\nWORKDIR /app\n"
)
OPTIONS = (
    "while [[ $# -gt 0 ]]; do\n  case $1 in\n    --gpu) GPU=1; shift ;;\n    -v) V=$2; shift 2 ;;\n"
    "    *) exit 1 ;;\n  esac\ndone\n"
    'if [ "$GPU" = 1 ]; then\n  pip3 install torch==$V\nfi\n'
)
GETOPT = (
    'T=$(getopt -o h --long gpu,cpu -- "$@")\neval set -- "$T"\nwhile true; do\n  case "$1" in\n'
    "    --gpu) GPU=1; shift ;;\n    --) shift; break ;;\n    *) BAD=1; break ;;\n  esac\ndone\n"
    'if [ "$BAD" = 1 ]; then exit 1; fi\nif [ "$GPU" = 1 ]; then pip3 install torch==2.1.0; fi\n'
)
HERE = 'cd "$(dirname "$0")/.."\npip3 install -r requirements.txt\n'
ROOT = 'DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\n. "$DIR/parts.sh"\nsetup 2.1.0\n'
PARTS = "setup() {\n  pip3 install torch==$1\n}\n"


def torches(run: str, files: dict[str, str]) -> list[str]:
    """The releases of torch that a RUN surely installs."""
    read = evaluate.read(HEAD + run, "Dockerfile", FACTS, Beside(files))
    return [one.version for one in read.installs if one.name == "torch" and one.sure]


@pytest.mark.parametrize(
    ("run", "clean", "files"),
    [
        (  # arguments in a loop
            "RUN bash setup.sh --gpu -v 2.1.0",
            "RUN bash setup.sh -v 2.1.0",
            {"setup.sh": OPTIONS},
        ),
        (  # arguments that getopt puts in order
            "RUN bash get.sh --gpu",
            "RUN bash get.sh --gpu=no",
            {"get.sh": GETOPT},
        ),
        (  # the script's own folder
            "RUN ./tools/install.sh",
            "RUN cd tools && ./check.sh",
            {"tools/install.sh": HERE, "tools/check.sh": "echo ok\n", "requirements.txt": "torch==2.1.0\n"},
        ),
        (  # its own folder, a file that it sources, and a function of that
            "RUN bash tools/all.sh",
            "RUN bash tools/other.sh",
            {"tools/all.sh": ROOT, "tools/parts.sh": PARTS, "tools/other.sh": ROOT.replace("setup 2.1.0", "true")},
        ),
        (  # a file that the RUN itself sources
            "RUN . ./env.sh && pip3 install torch==$TORCH",
            "RUN . ./other.sh && pip3 install numpy==$TORCH",
            {"env.sh": "export TORCH=2.1.0\n", "other.sh": "TORCH=1\n"},
        ),
        (  # a script without an ending, in the folder that it is called from by its name
            "RUN install-deps || exit 1",
            "RUN install-other",
            {},
        ),
        (  # realpath
            "RUN bash tools/real.sh",
            "RUN bash tools/none.sh",
            {
                "tools/real.sh": "ROOT=$(dirname $(realpath $(dirname $0)))\npip3 install -r $ROOT/requirements.txt\n",
                "tools/none.sh": "ROOT=$(dirname $(realpath $(dirname $0)))\nls $ROOT\n",
                "requirements.txt": "torch==2.1.0\n",
            },
        ),
    ],
)
def test_a_script_installs_what_its_text_determines(run: str, clean: str, files: dict[str, str]) -> None:
    """Its commands are the RUN's own, and another call of it installs none."""
    named = {**files, "bin/install-deps": "#!/usr/bin/env bash\npip3 install torch==2.1.0\n"}
    before = "COPY bin/install-deps /usr/local/bin/\n"
    assert torches(before + run, named) == ["2.1.0"]
    assert torches(before + clean, named) == []


def test_what_only_the_build_knows_is_not_sure() -> None:
    """A loop over parameters that nobody knows, and a condition on a file, decide nothing."""
    files = {"setup.sh": OPTIONS}
    assert torches('RUN bash setup.sh "$(cat flags)"', files) == []
    assert torches("RUN bash -c 'if [ -f gpu ]; then bash setup.sh --gpu -v 2.1.0; fi'", files) == []


def test_a_script_that_sources_itself_ends() -> None:
    """Depth is bounded."""
    assert set(torches("RUN bash a.sh", {"a.sh": ". ./a.sh\npip3 install torch==2.1.0\n"})) == {"2.1.0"}


def test_a_script_in_conda_run_installs_into_that_environment() -> None:
    """Each command that the shell starts is one of ``conda run``; outside of it the environment is another."""
    text = (
        "RUN conda create -y -n gpu python=3.11\nRUN conda run -n gpu bash -c 'cd /tmp && pip install torch==2.1.0'\n"
    )
    read = evaluate.read(
        "FROM continuumio/miniconda3:23.5.2-0\n" + text + "RUN pip install numpy\n", "Dockerfile", FACTS
    )
    places = {one.name: one.prefix for one in read.installs if one.manager == "pip"}
    assert places == {"torch": "/opt/conda/envs/gpu", "numpy": "/opt/conda"}
