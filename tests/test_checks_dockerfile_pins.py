"""What the rules on pins, bases and Pythons of Dockerfiles decide where a page cannot show it: edits and evidence."""

from __future__ import annotations

import pytest
import written

from envkit import facts as tables
from envkit.model import Finding, Outcome, Result

FACTS = tables.load()
CU118 = "https://download.pytorch.org/whl/cu118"


def judged(check: str, text: str) -> Result:
    return written.judged(check, "dockerfile", text, FACTS)


def only(check: str, text: str) -> Finding:
    result = judged(check, text)
    assert result.outcome is Outcome.FAIL, (result.outcome, result.reason)
    (finding,) = result.findings
    return finding


def fixed(text: str, finding: Finding) -> str:
    """The text after the finding's edits."""
    lines = text.split("\n")
    for edit in sorted(finding.edits, key=lambda one: (one.span.line, one.span.column), reverse=True):
        line = lines[edit.span.line - 1]
        assert edit.span.end_line == edit.span.line
        lines[edit.span.line - 1] = line[: edit.span.column - 1] + edit.text + line[edit.span.end_column - 1 :]
    return "\n".join(lines)


def test_an_index_of_its_own_replaces_the_extra_one() -> None:
    text = f"FROM python:3.12-slim\nRUN pip install torch torchvision --extra-index-url {CU118}\n"
    after = fixed(text, only("extra-index-shadowed", text))
    assert after == text.replace("--extra-index-url", "--index-url")
    assert judged("extra-index-shadowed", after).outcome is Outcome.SKIP


@pytest.mark.parametrize(
    "command",
    [
        f"pip install torch numpy --extra-index-url {CU118}",  # numpy is not promised there
        f"pip install torch==2.7.1.post1 --extra-index-url {CU118}",
        f"pip install torch -r more.txt --extra-index-url {CU118}",
        f"pip install torch . --extra-index-url {CU118}",
        f"pip install torch --extra-index-url {CU118} --extra-index-url https://example.com/simple",
        f"pip install torch --index-url https://example.com/simple --extra-index-url {CU118}",
    ],
)
def test_an_index_is_left_alone_where_a_package_may_not_be_on_it(command: str) -> None:
    result = judged("extra-index-shadowed", f"FROM python:3.12-slim\nRUN {command}\n")
    assert all(not finding.edits for finding in result.findings)


def test_the_newest_of_an_index_is_the_newest_for_the_python() -> None:
    finding = only("extra-index-shadowed", f"FROM python:3.9-slim\nRUN pip install torch --extra-index-url {CU118}\n")
    assert "ends at torch 2.7.1 and the default index has 2.8.0" in finding.message
    fix = only("unpinned-torch", "FROM python:3.8-slim\nRUN pip install torch\n").fix
    assert "torch==2.4.1" in fix


def test_a_bound_counts_for_both_indexes() -> None:
    text = f'FROM python:3.11-slim\nRUN pip install "torch{{}}" --extra-index-url {CU118}\n'
    assert judged("extra-index-shadowed", text.format("<2.9")).outcome is Outcome.FAIL
    assert judged("extra-index-shadowed", text.format("<2.7")).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "first", ["conda install pytorch", "python -m venv /a && /a/bin/pip install https://a/torch-2.6.0-py3-none-any.whl"]
)
def test_a_torch_from_elsewhere_hides_no_other_behind_it(first: str) -> None:
    text = f"FROM python:3.12-slim\nRUN {first}\nRUN pip install torch --extra-index-url {CU118}\n"
    span = only("extra-index-shadowed", text).span
    assert span is not None and span.line == 3


def test_a_mate_that_brings_torch_is_as_open_as_torch() -> None:
    finding = only("unpinned-torch", "FROM python:3.12-slim\nRUN pip install torchvision\n")
    assert "torchvision brings torch along" in finding.message
    assert (
        judged("unpinned-torch", "FROM python:3.12-slim\nRUN pip install torchvision==0.21.0\n").outcome
        is not Outcome.FAIL
    )
    on_base = "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel\nRUN pip install torchaudio\n"
    assert judged("unpinned-torch", on_base).outcome is Outcome.SKIP


def test_only_the_torch_that_stays_must_be_pinned() -> None:
    text = "FROM python:3.12-slim\nRUN pip install torch\nRUN pip install torch==2.6.0\n"
    assert judged("unpinned-torch", text).outcome is Outcome.PASS


def test_a_base_with_an_end_names_its_living_twin() -> None:
    finding = only("eol-base", "FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu20.04\n")
    assert finding.fix == "take nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04"
    assert any("seen 20" in how for how in finding.evidence.values())


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("RUN apt-get update", "ERROR"),
        ("RUN true || apt-get update", "WARNING"),
        ("COPY sources.list /etc/apt/sources.list\nRUN apt-get update", "WARNING"),
        ("RUN sed -i s/old/mirror.example.com/ /etc/apt/sources.list && apt-get update", "WARNING"),
        ("RUN echo 'deb http://archive.debian.example/debian buster main' > /x && apt-get update", "WARNING"),
        ("RUN curl -O https://archive.example.org/dist/x.tgz && apt-get update", "ERROR"),
        ("RUN pip install --no-cache-dir flask", "WARNING"),
    ],
)
def test_a_moved_release_breaks_the_build_only_where_its_servers_are_asked(line: str, severity: str) -> None:
    assert only("eol-base", f"FROM debian:buster\n{line}\n").severity.name == severity


def test_a_tag_that_never_was_is_told_with_the_nearest() -> None:
    finding = only("base-tag-never-existed", "FROM nvidia/cuda:12.6.3-cudnn8-devel-ubuntu22.04\n")
    assert "nvidia/cuda:12.6.3-cudnn-devel-ubuntu22.04" in finding.fix


def test_a_builder_with_latest_is_told_once() -> None:
    text = "FROM node:latest AS a\nFROM node:latest AS b\nFROM python:3.12\nCOPY --from=a /x /x\nCOPY --from=b /y /y\n"
    assert only("unpinned-base", text).span is not None
    assert judged("unpinned-base", "FROM node AS unused\nFROM python:3.12\n").outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("tail", "outcome"),
    [
        ('CMD ["python3.11", "serve.py"]', Outcome.FAIL),
        ('ENV PYTHONPATH=/usr/local/lib/python3.10/dist-packages\nCMD ["python3.11", "serve.py"]', Outcome.PASS),
        ('CMD ["python3", "serve.py"]', Outcome.PASS),
        ('CMD ["nginx"]', Outcome.PASS),
        ('ENTRYPOINT ["/start.sh"]\nCMD ["python3.11", "serve.py"]', Outcome.PASS),
        ('ENTRYPOINT ["tini", "--"]\nCMD ["python3.11", "serve.py"]', Outcome.FAIL),
    ],
)
def test_a_started_python_without_packages_is_told(tail: str, outcome: Outcome) -> None:
    text = f"FROM ubuntu:22.04\nRUN apt-get install -y python3-pip python3.11\nRUN pip3 install flask==3.0.3\n{tail}\n"
    assert judged("pip-python-mismatch", text).outcome is outcome


@pytest.mark.parametrize(
    "between", ['SHELL ["conda", "run", "-n", "w", "/bin/bash", "-c"]', "ENV PATH=/opt/conda/envs/w/bin:$PATH"]
)
def test_an_activation_matters_not_where_the_environment_is_reached_otherwise(between: str) -> None:
    head = "FROM continuumio/miniconda3:24.9.2-0\nRUN conda create -y -n w python=3.11\nRUN conda activate w\n"
    assert judged("pip-python-mismatch", f"{head}RUN pip install flask==3.0.3\n").outcome is Outcome.FAIL
    assert judged("pip-python-mismatch", f"{head}{between}\nRUN pip install flask==3.0.3\n").outcome is not Outcome.FAIL


@pytest.mark.parametrize(("system", "ends"), [("18.04", ["ends here", "would end here too"]), ("22.04", ["ends here"])])
def test_terms_behind_a_miniconda_that_cannot_be_installed_end_nothing_yet(system: str, ends: list[str]) -> None:
    text = (
        f"FROM ubuntu:{system}\nRUN apt-get update && apt-get install -y wget\n"
        "RUN wget https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh -O /m.sh "
        "&& bash /m.sh -b -p /opt/conda\n"
        "ENV PATH=/opt/conda/bin:$PATH\nRUN conda create -y -n e python=3.10\n"
    )
    found = judged("miniconda-too-new", text).findings
    assert [each.message.rpartition("the build ")[2] for each in found] == ends


@pytest.mark.parametrize("base", ["continuumio/miniconda3", "continuumio/miniconda3:25.9.1-1", "anaconda/miniconda"])
def test_anaconda_s_own_images_ask_for_no_terms(base: str) -> None:
    """They accept the terms while they are built and take the plugin away that asks."""
    assert judged("miniconda-too-new", f"FROM {base}\nRUN conda install -y numpy=2.1\n").outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("base", "outcome"),
    [
        ("$REGISTRY/team/cuda:12.4.1", Outcome.PASS),
        ("$REGISTRY/team/cuda:stable", Outcome.FAIL),
        ("$REGISTRY/team/cuda", Outcome.FAIL),
        ("team/cuda:12.4.1-$REGISTRY", Outcome.FAIL),
    ],
)
def test_a_registry_that_is_given_to_the_build_moves_no_version(base: str, outcome: Outcome) -> None:
    assert judged("unpinned-base", f"ARG REGISTRY\nFROM {base}\n").outcome is outcome


@pytest.mark.parametrize(
    ("base", "installs", "outcome"),
    [
        ("python:3.11-slim", 'RUN pip install -U "huggingface_hub[cli]"', Outcome.FAIL),
        ("python:3.11-slim", "RUN pip install hf_transfer huggingface-hub", Outcome.FAIL),
        ("team/own:1", "RUN pip install requests", Outcome.SKIP),
        ("python:3.11-slim", 'RUN pip install "huggingface_hub<1"', Outcome.PASS),
        ("python:3.11-slim", "RUN pip install huggingface_hub==0.36.2", Outcome.PASS),
        ("python:3.11-slim", "RUN pip install transformers==4.46.3 huggingface_hub", Outcome.PASS),
        ("python:3.11-slim", "RUN pip install transformers==4.46.3\nRUN pip install huggingface_hub", Outcome.PASS),
        ("python:3.8-slim", "RUN pip install huggingface_hub", Outcome.PASS),
        ("python:3.11-slim", "RUN pip install huggingface_hub\nRUN pip install -r list.txt", Outcome.PASS),
    ],
)
def test_the_old_name_of_the_hub_s_program_is_gone(base: str, installs: str, outcome: Outcome) -> None:
    """huggingface-cli is not there where the newest huggingface-hub surely is; `hf` is."""
    text = f"FROM {base}\n{installs}\nRUN {{}} download team/model\n"
    assert judged("program-missing", text.format("huggingface-cli")).outcome is outcome
    assert judged("program-missing", text.format("hf")).outcome is not Outcome.FAIL


@pytest.mark.parametrize(
    ("copied", "told"),
    [
        ("credentials /root/.aws/credentials", True),
        ("id_rsa /root/.ssh/", True),
        ("home/.netrc /root/.netrc", True),
        ("kaggle.json /root/.kaggle/kaggle.json", True),
        ("id_rsa.pub /root/.ssh/", False),
        ("credentials /app/credentials", False),
        ("--from=team/own:1 /id_rsa /root/.ssh/id_rsa", False),  # which the other image has already
    ],
)
def test_a_file_of_credentials_is_a_secret_in_the_image(copied: str, told: bool) -> None:
    found = judged("secret-in-env", f"FROM ubuntu:22.04\nCOPY {copied}\n").findings
    assert any("holds credentials" in each.message for each in found) is told


@pytest.mark.parametrize(
    ("tag", "outcome"), [("debian12-slim", Outcome.FAIL), ("2.0.5", Outcome.SKIP), ("noble", Outcome.SKIP)]
)
def test_micromamba_s_slim_image_holds_no_wget(tag: str, outcome: Outcome) -> None:
    text = f"FROM mambaorg/micromamba:{tag}\nRUN wget -q https://example.org/model.zip\n"
    assert judged("program-missing", text).outcome is outcome
