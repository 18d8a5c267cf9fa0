"""What the rules on hygiene and secrets of Dockerfiles decide where a page cannot show it: edits, silence, speed."""

from __future__ import annotations

import time

import pytest
import written
from test_checks_dockerfile_pins import FACTS, fixed, judged, only

from envkit.model import Outcome, Severity

PY = "FROM python:3.12-slim\n"
TOKEN = "hf_aQ9zLm3TtRk7WvXyP2sNdGhJcBfEuKoIw8"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pip install flask", "pip install --no-cache-dir flask"),
        ("python -m pip install -U flask", "python -m pip install --no-cache-dir -U flask"),
        ("pip -q install flask", "pip -q install --no-cache-dir flask"),
        ("pip install \\\n    flask", "pip install --no-cache-dir \\\n    flask"),
        ("for one in a b; do pip install $one; done", "for one in a b; do pip install --no-cache-dir $one; done"),
    ],
)
def test_the_option_goes_behind_install_once(before: str, after: str) -> None:
    text = f"{PY}RUN {before}\n"
    fix = fixed(text, only("pip-cache-left", text))
    assert fix == f"{PY}RUN {after}\n"
    assert judged("pip-cache-left", fix).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("pip install --no-cache flask", False),  # pip takes the beginning of an option
        ("pip install --cache-dir /c flask && rm -rf /c", False),
        ("pip install --cache-dir /c flask && rm -rf /root/.cache", True),
        ("pip install --no-index --find-links /wheels flask", False),
        ("pip install --no-deps --no-build-isolation -e .", False),
        ("pip install --no-deps -e .", True),
        ("pip download flask", False),
        ("pip install flask && rm -rf $HOME/.cache/*", False),
        ("rm -rf /root/.cache && pip install flask", True),
        ("pip install flask; find /root/.cache -delete", False),
        ("pip install flask || true", True),
        ('[ -n "$LATER" ] || pip install flask', False),  # only under a condition that nobody knows
        ("uv pip install --system --no-cache flask", False),
        ("uv sync --frozen && rm -rf /root/.cache/uv", False),
        ("uv sync --frozen && uv cache prune", True),
        ("conda install -y flask && rm -rf /opt/conda/pkgs/*", False),
        ("conda install -y flask && conda clean --index-cache -y", True),
    ],
)
def test_what_empties_a_cache_is_known(command: str, left: bool) -> None:
    outcome = judged("pip-cache-left", f"{PY}RUN {command}\n").outcome
    assert (outcome is Outcome.FAIL) == left, outcome


def test_a_user_has_a_cache_of_his_own() -> None:
    text = PY + "USER app\nRUN --mount=type=cache,target={} pip install flask\n"
    assert judged("pip-cache-left", text.format("/root/.cache/pip")).outcome is Outcome.FAIL
    assert judged("pip-cache-left", text.format("/home/app/.cache")).outcome is Outcome.PASS
    assert (
        judged(
            "pip-cache-left", text.format("$HERE/pip").replace("USER", "ENV PIP_CACHE_DIR=/c/pip HERE=/c\nUSER")
        ).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pip install torch>=2.4", 'pip install "torch>=2.4"'),
        ("pip install a scipy<1.9,>=1.5 b", 'pip install a "scipy<1.9,>=1.5" b'),
        (
            "pip install \\\n  uvicorn[standard]>=0.30 \\\n  flask",
            'pip install \\\n  "uvicorn[standard]>=0.30" \\\n  flask',
        ),
    ],
)
def test_a_specifier_is_quoted_whole(before: str, after: str) -> None:
    text = f"{PY}RUN {before}\n"
    fix = fixed(text, only("unquoted-specifier", text))
    assert fix == f"{PY}RUN {after}\n"
    assert judged("unquoted-specifier", fix).outcome is Outcome.PASS


def test_a_specifier_with_a_variable_is_told_and_left_alone() -> None:
    finding = only("unquoted-specifier", f"{PY}ARG V=2.4\nRUN pip install torch>=$V\n")
    assert not finding.edits


@pytest.mark.parametrize(
    "line",
    [
        f"ENV HF_TOKEN={TOKEN}",
        f"ENV A=1 HF_TOKEN={TOKEN} B=2",
        f"ARG NOTHING={TOKEN}",
        f"RUN huggingface-cli login --token {TOKEN}",
        f'RUN curl -H "Authorization: Bearer {TOKEN}" https://example.com/x',
        f"RUN export HF_TOKEN={TOKEN} && python fetch.py",
        f"RUN git clone https://user:{TOKEN}@example.com/x.git",
        f'CMD ["serve", "--token={TOKEN}"]',
        "ENV DB_PASSWORD=s3cr3tPa55word99x",
        "RUN wandb login 0f3c9a7be1d24f6890ab12cd34ef56a7b8c9d0e1",
    ],
)
def test_a_secret_is_told_and_never_shown(line: str) -> None:
    text = f"{PY}{line}\n"
    results = written.file("dockerfile", text, FACTS).results
    (secret,) = [result for result in results if result.check == "secret-in-env"]
    assert [finding.severity for finding in secret.findings] == [Severity.ERROR]
    for result in results:
        said = repr((result.reason, [(f.message, f.fix, f.evidence, f.where) for f in result.findings]))
        assert TOKEN not in said and "s3cr3tPa55word99x" not in said and "0f3c9a7be1d24f68" not in said


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ARG HFTOKEN\nENV HF_TOKEN=$HFTOKEN", True),
        ('ARG KEY_OF_BUILD\nENV API_KEY="${KEY_OF_BUILD}"', True),
        ("ARG ROOT\nENV API_KEY_FILE=$ROOT", False),
        ("ARG ROOT\nENV API_TOKEN=$ROOT/token", False),
        ("ENV API_TOKEN=$ROOT", False),
    ],
)
def test_a_secret_variable_keeps_the_argument_that_it_is(line: str, told: bool) -> None:
    result = judged("secret-in-env", f"{PY}{line}\n")
    assert [finding.severity for finding in result.findings] == [Severity.WARNING] * told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("RUN # pip install flask", True),
        ("RUN #pip install flask && pip list", True),
        ("RUN echo '# pip install flask' > /note", False),
        ("RUN <<EOF\n# what follows is real\npip install flask\nEOF", False),
        ("# RUN pip install flask", False),
    ],
)
def test_a_run_of_a_comment_does_nothing(command: str, told: bool) -> None:
    assert (judged("run-has-no-effect", f"{PY}{command}\nRUN true\n").outcome is Outcome.FAIL) == told


@pytest.mark.parametrize(
    "line",
    [
        "ENV TOKENIZERS_PARALLELISM=true MAX_TOKENS=4096 TOKEN_LIMIT=100000 PWD=/srv/app2",
        "ENV SECRET_FILE=/run/secrets/db1 PASSWORD_PATH=/run/p123456 API_KEY_NAME=main-key-7",
        "ENV API_KEY=<your key 1> API_TOKEN=$TOKEN1 MY_SECRET=changeme SECRET_KEY=XXXXXXXXXXXX",
        "ARG API_KEY",
        "ARG API_KEY=\nENV OTHER=${API_KEY}",
        "ENV HF_TOKEN=hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "RUN useradd -m -p docker app",
        "RUN pip install git+https://${TOKEN}@github.com/org/repo.git",
        "RUN git clone https://user:password@example.com/x.git",
        "RUN vncserver --password $VNC",
        "LABEL maintainer=me@example.com",
    ],
)
def test_what_is_no_secret_is_left_alone(line: str) -> None:
    assert judged("secret-in-env", f"{PY}{line}\n").outcome in (Outcome.PASS, Outcome.SKIP)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("curl https://x.io/i | tee /tmp/i | sh", True),
        ("wget -O - https://x.io/i | bash", True),
        ("wget https://x.io/i | bash", False),  # wget writes a file, and the pipe is empty
        ("curl https://x.io/i -o i && sh i", False),
        ("curl https://x.io/i | python3 - --version 1.8", True),
        ("curl https://x.io/i | python3 -m json.tool", False),
        ('eval "$(curl https://x.io/i)"', True),
        ('echo "$(curl https://x.io/i)"', False),
        ("curl https://x.io/i | bash script.sh", False),
        ('if [ -n "$X" ]; then curl https://x.io/i | sh; fi', False),
    ],
)
def test_what_runs_a_download_is_known(command: str, told: bool) -> None:
    assert (judged("curl-pipe-sh", f"FROM ubuntu:24.04\nRUN {command}\n").outcome is Outcome.FAIL) == told


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("apt-get update && apt-get install -y git && rm -rf /var/lib/apt", False),
        ("apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists*", False),
        ("apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/partial", True),
        ("apt-get update && apt-get install -y git && rm -rf /var/cache/apt/*", True),
        ("apt-get -o Acquire::Retries=3 update && apt-get -y -t stable install git", True),
        ("apt-get update && apt-get install -y git && apt-get distclean", False),
        ("apt-get update && apt-get install -y git && find /var/lib/apt/lists -type f -delete", False),
        ("apt-get update", False),
        ("apt-get remove -y git", False),
        ("apt-get install -y git", True),
        ("echo 1\nRUN apt-get update && apt-get install -y git", True),
        ("apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/*\nRUN apt-get install -y curl", True),
    ],
)
def test_what_removes_the_lists_is_known(command: str, left: bool) -> None:
    assert (judged("apt-lists-left", f"FROM ubuntu:24.04\nRUN {command}\n").outcome is Outcome.FAIL) == left


@pytest.mark.parametrize(
    "text",
    [
        f"{PY}ENV {'A_' * 30000}=1\n",
        f"{PY}ENV API_KEY={'a1' * 30000}\n",
        f"{PY}RUN echo {'a:' * 10000} {'://' * 5000} {'%a' * 10000}\n",
        f"{PY}RUN pip install {'a>=1 ' * 300}\n",
        f"{PY}RUN {' && '.join(['pip install a'] * 400)}\n",
        f"FROM ubuntu\nRUN {' && '.join(['rm -rf ' + '*' * 200, 'apt-get install -y git'] * 100)}\n",
        f"{PY}RUN {'curl https://x.io | ' * 500} sh\n",
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    begin = time.process_time()
    for check in ("secret-in-env", "pip-cache-left", "unquoted-specifier", "apt-lists-left", "curl-pipe-sh"):
        assert judged(check, text).outcome is not Outcome.CRASHED
    assert time.process_time() - begin < 8
