"""What a Dockerfile's default build would hold: fields, stages, places, environments."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from types import FrameType

import answers
import pytest
from gathered import gathered
from written import Beside

from envkit import facts as tables
from envkit.dockerfile.evaluate import TooLarge, read
from envkit.dockerfile.files import toml
from envkit.model import Outcome
from envkit.static import READ, CheckOptions
from envkit.static.judged import of_text
from envkit.subjects.dockerfile import Dockerfile

FACTS = tables.load()
DEVEL = "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n"
TABLE = (Path(__file__).parent / "data" / "dockerfile_fields.txt").read_text("utf-8")
_FILE = re.compile(r"^--- (\S+) ---\n", re.MULTILINE)


WHL = "https://download.pytorch.org/whl"


def evaluated(text: str) -> Dockerfile:
    """A Dockerfile, with what follows it after lines of dashes as its build context."""
    main, *others = _FILE.split(text)
    found = read(main, "Dockerfile", FACTS, Beside(dict(zip(others[::2], others[1::2], strict=True))))
    # Of a long one the tests ask how long it takes, and to compare all its steps takes longer.
    return found if len(text) > 2000 else answers.same("dockerfiles", text, found)


def cases() -> list[tuple[str, str, str]]:
    found = []
    for part in re.split(r"^=== ", TABLE, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        title, _, wanted = head.partition(" | ")
        found.append((title, wanted, text))
    return found


@gathered([pytest.param(w, t, id=title) for title, w, t in cases()])
def test_the_fields_are_those_of_the_default_build(wanted: str, text: str) -> None:
    assert wanted.split()
    dockerfile = evaluated(text)
    for field, _, value in (pair.partition("=") for pair in wanted.split()):
        seen = getattr(dockerfile, field)
        assert ("-" if seen.missing else seen.value) == value, (field, seen)
        assert seen.via or seen.missing, f"{field} does not say where it is from"


def test_the_table_of_fields_was_read() -> None:
    assert len(cases()) > 80
    assert len({title for title, _, _ in cases()}) == len(cases())


def test_nothing_but_comments_has_no_stage() -> None:
    assert evaluated("# nothing\n").stages == ()


def test_stages_that_nothing_needs_are_not_reached() -> None:
    dockerfile = evaluated(
        "FROM python:3.11 AS a\nRUN pip install torch==2.1.0\n"
        "FROM python:3.11 AS b\nCOPY --from=a /x /x\n"
        "FROM python:3.11 AS c\nRUN true\n"
        "FROM python:3.11 AS d\nRUN --mount=type=bind,from=b,source=/x,target=/y cat /y\n"
    )
    assert dockerfile.reachable == (0, 1, 3)
    assert dockerfile.lineage == (3,)


def test_a_stage_from_a_stage_has_its_steps_arguments_and_environment() -> None:
    dockerfile = evaluated(
        "FROM python:3.11 AS a\nARG V=2.1.0\nENV K=v\nWORKDIR /app\nFROM a\nRUN pip install torch==$V --target ./deps\n"
    )
    assert dockerfile.lineage == (0, 1)
    assert dockerfile.target.env["K"] == "v"
    assert [(i.version, i.prefix) for i in dockerfile.installs] == [("2.1.0", "/app/deps")]


def test_what_a_copied_environment_holds_comes_along_and_nothing_else() -> None:
    dockerfile = evaluated(
        "FROM python:3.11 AS b\nRUN pip install scipy==1.11.0\n"
        "RUN python -m venv /venv && /venv/bin/pip install numpy==1.26.0\n"
        "FROM python:3.11-slim\nCOPY --from=b /venv /srv/env\n"
    )
    assert [(i.name, i.prefix) for i in dockerfile.installs] == [("numpy", "/srv/env")]
    assert dockerfile.brought == (0,)


def test_started_is_the_python_that_the_image_starts() -> None:
    dockerfile = evaluated(
        'FROM python:3.11\nRUN python -m venv /venv\nENTRYPOINT ["/venv/bin/python"]\nCMD ["-m", "server"]\n'
    )
    assert dockerfile.started is not None
    assert (dockerfile.started.version, dockerfile.started.prefix) == ("3.11", "/venv")


def test_an_entrypoint_forgets_the_command_of_the_stage_before() -> None:
    dockerfile = evaluated('FROM python:3.11 AS a\nCMD ["python"]\nFROM a\nENTRYPOINT ["/bin/app"]\n')
    assert dockerfile.started is None


def test_torches_are_all_that_get_installed_and_the_last_one_stays() -> None:
    dockerfile = evaluated(
        "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\n"
        "RUN pip install torch==2.2.0\nRUN pip install 'torch>=2.0'\nRUN pip install torch==2.3.0+cu118 -f https://x/whl/cu118\n"
    )
    assert [(t.method, t.version.value, t.cuda.value) for t in dockerfile.torches] == [
        ("base", "2.1.0", "12.1"),
        ("pip", "2.2.0", "12.1"),
        ("pip", "2.3.0", "11.8"),
    ]


@pytest.mark.parametrize(
    ("lines", "version", "cuda"),
    [
        ("RUN pip install torch\nRUN pip install torchtext==0.15.2", "2.0.1", "11.7"),
        ("RUN pip install torch torchvision==0.16.0", "2.1.0", "12.1"),
        ("RUN pip install torchvision==0.16.0\nRUN pip install torch", "2.1.0", "12.1"),
        ("RUN pip install torch==2.1.0\nRUN pip install --no-deps torchtext==0.15.2", "2.1.0", "12.1"),
        ("RUN pip install torch==2.1.0\nRUN pip install vllm", None, None),  # which vllm asks for which is not said
        ("RUN pip install torch==2.1.0\nRUN pip install 'vllm>=0.5'", None, None),  # the newest too
        ("RUN pip install vllm==0.6.3\nRUN pip install vllm", "2.4.0", "12.1"),  # the release that is there is kept
        ("RUN pip install torch==2.4.0 'vllm>=0.5'\nRUN pip install vllm", "2.4.0", "12.1"),
        ("RUN pip install torch==2.4.0\nRUN pip install 'vllm<0.6.4'\nRUN pip install vllm", "2.4.0", "12.1"),
        ("RUN pip install torch==2.4.0 'vllm>=0.5'\nRUN pip install -U vllm", None, None),
        (f"RUN pip install torch==2.1.0 --index-url {WHL}/cu118\nRUN pip install -U torch==2.1.0", "2.1.0", "11.8"),
        (f"RUN pip install torch==2.1.0\nRUN pip install -U torch==2.1.0 --index-url {WHL}/cu118", "2.1.0", "11.8"),
    ],
)
def test_a_package_that_asks_for_one_torch_exactly_decides_which_one_stays(
    lines: str, version: str | None, cuda: str | None
) -> None:
    dockerfile = evaluated(f"FROM python:3.10-slim\n{lines}\n")
    assert (dockerfile.torch_version.value, dockerfile.torch_cuda.value) == (version, cuda)


@pytest.mark.parametrize(("vision", "version"), [("torchvision==0.15.2", "2.0.1"), ("torchvision", "2.1.0")])
def test_a_pinned_torchvision_replaces_a_bases_torch_and_a_name_alone_keeps_it(vision: str, version: str) -> None:
    base = "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime"
    assert evaluated(f"{base}\nRUN pip install {vision}\n").torch_version.value == version


@pytest.mark.parametrize("line", ["-c 'pip install torch'", "--", "- x"])
def test_a_command_that_is_an_option_installs_nothing(line: str) -> None:
    assert evaluated(f"FROM python:3.11\nRUN {line}\n").torch is None


def test_an_uninstalled_torch_is_gone() -> None:
    dockerfile = evaluated("FROM python:3.11\nRUN pip install torch==2.1.0\nRUN pip uninstall -y torch\n")
    assert dockerfile.torch is None
    assert dockerfile.torch_version.missing


def test_a_torch_that_only_may_be_installed_is_not_the_torch_of_the_image() -> None:
    dockerfile = evaluated("FROM python:3.11\nRUN if [ -f /x ]; then pip install torch==2.1.0; fi\n")
    assert dockerfile.torch is None
    assert [i.sure for i in dockerfile.installs] == [False]


def test_a_requirements_file_that_is_not_there_is_unread_with_the_reason() -> None:
    dockerfile = evaluated("FROM python:3.11\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\n")
    assert [(u.path, u.span.line) for u in dockerfile.unread] == [("requirements.txt", 3)]
    assert "not in the build context" in dockerfile.unread[0].why


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("FROM python:3.11\nCOPY <<EOF /r.txt\nnumpy\ntorch==2.1.0\nEOF\nRUN pip install -r /r.txt\n", 4),
        ("FROM python:3.11\nCOPY <<EOF /r.txt\n\ntorch==2.1.0\nEOF\nRUN pip install -r /r.txt\n", 4),
        ("FROM python:3.11\nRUN cat > /r.txt <<EOF && pip install -r /r.txt\nnumpy\ntorch==2.1.0\nEOF\n", 4),
        ("FROM python:3.11\nRUN echo torch==2.1.0 > /r.txt\nRUN pip install -r /r.txt\n", 2),
        ("FROM python:3.11\nRUN echo numpy > /r.txt\nRUN echo torch==2.1.0 >> /r.txt\nRUN pip install -r /r.txt\n", 3),
    ],
    ids=["COPY", "COPY of an empty line", "cat", "echo", "appended"],
)
def test_what_the_dockerfile_writes_is_read_where_it_stands(text: str, line: int) -> None:
    torch = next(install for install in evaluated(text).installs if install.name == "torch")
    assert (torch.span.path, torch.span.line) == ("Dockerfile", line)


def test_a_script_of_the_context_is_followed_and_a_loop_of_scripts_ends() -> None:
    dockerfile = evaluated(
        "FROM python:3.11\nCOPY . /s\nRUN bash /s/a.sh\n"
        "--- a.sh ---\npip install torch==2.1.0\nbash /s/b.sh\n--- b.sh ---\nbash /s/a.sh\n"
    )
    assert {(i.name, i.span.path, i.span.line) for i in dockerfile.installs} == {("torch", "a.sh", 1)}


def test_a_pip_of_another_user_installs_for_that_user() -> None:
    dockerfile = evaluated("FROM python:3.11\nUSER app\nRUN pip install torch==2.1.0\n")
    assert dockerfile.installs[0].prefix == "/home/app/.local"


def test_an_argument_before_from_needs_its_declaration_in_the_stage() -> None:
    dockerfile = evaluated("ARG V=2.1.0\nFROM python:3.11\nRUN pip install torch==$V\n")
    assert dockerfile.torch_version.missing
    assert evaluated("ARG V=2.1.0\nFROM python:3.11\nARG V\nRUN pip install torch==$V\n").torch_version.value == "2.1.0"


def test_env_outranks_arg() -> None:
    text = "FROM python:3.11\nARG V=2.1.0\nENV V=2.2.0\nARG V=2.3.0\nRUN pip install torch==$V\n"
    assert evaluated(text).torch_version.value == "2.2.0"


def test_what_is_copied_twice_is_there_once_however_long_the_chain() -> None:
    text = "FROM python:3.11 AS s0\nRUN pip install torch==2.1.0\n" + "".join(
        f"FROM python:3.11 AS s{i}\nCOPY --from=s{i - 1} / /\nCOPY --from=s{i - 1} /usr /usr\n" for i in range(1, 60)
    )
    dockerfile = evaluated(text)
    assert [install.name for install in dockerfile.installs] == ["torch"]
    assert len(dockerfile.torches) == 1


# ---------------------------------------------------------------- what is beyond any Dockerfile


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "FROM a\n" + ("RUN true " + "x" * 60_000 + "\n") * 18,
            "its instructions are larger than 1024 KiB, which those of no Dockerfile are",
        ),
        ("FROM a\n" * 5_001, "it has more than 5000 instructions, which no Dockerfile has"),
        (
            "FROM a\n" + "".join(f"ENV A{n}=1\n" for n in range(1_001)),
            "it sets more than 1000 variables, which no Dockerfile does",
        ),
        (
            "FROM a\nENV A=0123456789\n" + "ENV A=$A$A\n" * 40 + "ENV B=" + "x" * 60_000 + "\n" + "ENV C=$B\n" * 100,
            "its variables hold more than 4 million characters",
        ),
        ("FROM a\nRUN true " + "x" * 65_536 + "\n", "line 2 is longer than 65,535 bytes, where BuildKit stops reading"),
    ],
)
def test_what_nobody_builds_is_refused_in_a_clause(text: str, why: str) -> None:
    with pytest.raises(TooLarge, match=f"^{re.escape(why)}$"):
        evaluated(text)
    judged = of_text("dockerfile", text, "Dockerfile", None, CheckOptions(), FACTS)
    assert (judged.unreadable, judged.results) == (why, ())


def test_a_run_that_is_not_followed_to_its_end_is_unread() -> None:
    script = "RUN true" + "".join(f" && \\\n  echo {n}" for n in range(2_500)) + " && pip install torch\n"
    (unread,) = evaluated("FROM python:3.11\n" + script).unread
    assert unread.path == "the whole RUN at Dockerfile:2"
    assert not evaluated("FROM python:3.11\nRUN true && pip install torch\n").unread


def test_what_buildkit_refuses_leaves_the_verdict_open() -> None:
    judged = of_text("dockerfile", "FROM python:3.11\nFOO bar\n", "Dockerfile", None, CheckOptions(), FACTS)
    assert judged.results[0].outcome is Outcome.UNKNOWN
    assert judged.results[0].reason.startswith("BuildKit refuses it: Dockerfile:2: ")
    clean = of_text("dockerfile", "FROM python:3.11\n", "Dockerfile", None, CheckOptions(), FACTS)
    assert READ not in {result.check for result in clean.results}


def test_steps_see_the_variables_of_their_moment() -> None:
    steps = evaluated("FROM a\nRUN true\nENV HOME=/root\nRUN true\nENV X=1\nRUN true\nRUN true\n").target.steps
    seen = [(step.env.get("HOME"), step.env.get("X")) for step in steps if step.name == "RUN"]
    assert seen == [(None, None), ("/root", None), ("/root", "1"), ("/root", "1")]


def calls(text: str) -> int:
    """How many functions judging calls, which no load of the machine changes."""
    count = 0

    def called(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        of_text("dockerfile", text, "Dockerfile", None, CheckOptions(), FACTS)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.slow  # long files, each read at two lengths
@pytest.mark.parametrize(
    ("head", "line", "tail"),
    [
        (DEVEL, "RUN pip install p{n}\n", ""),
        (DEVEL, "RUN conda install pytorch cudatoolkit=1{n}\n", ""),
        (DEVEL, "ENV LD_LIBRARY_PATH=/usr/local/cuda-{n}/lib64:$LD_LIBRARY_PATH\n", ""),
        (DEVEL, "RUN git clone https://x.example/b{n} && cd b{n} && pip install .\n", ""),
        (DEVEL + "RUN <<E\n", "pip install p{n}\n", "E\n"),
        (DEVEL, "RUN pip install torch==2.{n}.0 vllm==0.6.1 xformers==0.0.28\n", ""),
    ],
)
def test_many_lines_take_work_in_proportion(head: str, line: str, tail: str) -> None:
    nothing, few, many = (
        calls(head + "".join(line.format(n=n) for n in range(count)) + tail) for count in (60, 60, 480)
    )
    # The first reads rules and facts.  Eight times the lines: what is quadratic calls up to 64 times as often.
    assert few <= nothing and 4 * few < many < 18 * few, (few, many)


@pytest.mark.slow  # it works up to its bound
def test_more_packages_than_anybody_installs_are_refused() -> None:
    listed = "--- r.txt ---\n" + "".join(f"p{n}==1\n" for n in range(4_100))
    with pytest.raises(TooLarge, match="more than 40,000 packages"):
        evaluated("FROM python:3.11\nCOPY r.txt /\n" + "RUN pip install -r /r.txt\n" * 10 + listed)


@pytest.mark.parametrize("key", [".".join("a" * 20_000), ".".join(['"a b"'] * 20_000), " . ".join("a" * 20_000)])
def test_a_key_of_thousands_of_parts_is_refused_at_once(key: str) -> None:
    before = time.process_time()
    with pytest.raises(ValueError, match="more than 100 parts"):
        toml(f"[x]\n{key} = 1\n")
    assert time.process_time() - before < 2  # tomllib takes ten seconds
    assert toml("a.b.'c d' = '1.2.3'\n") == {"a": {"b": {"c d": "1.2.3"}}}


@pytest.mark.parametrize(
    ("name", "short", "origin"),
    [
        ("base_cudnn", "9", "9.1.0.70, "),
        ("torch_version", "2.6.0", "Dockerfile:3"),
        ("torch_cuda", "12.4", ""),
        ("base_cuda", "12.4.1", ""),
    ],
)
def test_a_field_is_the_public_value_and_its_origin_has_all_that_is_known(name: str, short: str, origin: str) -> None:
    text = (
        "FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04\n"
        "RUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip install torch==2.6.0+cu124 --index-url https://download.pytorch.org/whl/cu124\n"
    )
    found = of_text("dockerfile", text, "Dockerfile", None, CheckOptions(), FACTS).observed
    assert found[name] == short
    assert found["origins"][name].startswith(origin)
