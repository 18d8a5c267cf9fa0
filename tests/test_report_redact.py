"""Credentials go, everything that only looks like one at first sight stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clocks import costs_less
from inline import Envkit

from envkit import cli
from envkit.credentials import _RULES, _hidden
from envkit.errors import Undecided, Unsatisfiable, UsageError
from envkit.model import Finding, Outcome, Report, Result, Subject
from envkit.report import redacted, redacted_text

HIDDEN = {
    'RUN useradd dev && echo "dev:pA55word" | chpasswd': 'RUN useradd dev && echo "dev:[hidden]" | chpasswd',
    "printf 'root:a b\\n' | sudo chpasswd": "printf 'root:[hidden]' | sudo chpasswd",
    "machine data.example.org login ann password s3cret!x": "machine data.example.org login ann password [hidden]",
    "RUN printf x 'login ann' 'password s3cret!x'": "RUN printf x 'login ann' 'password [hidden]'",
    "https://bob:s3cret@host/simple": "https://[hidden]@host/simple",
    "https://bob:s3c@ret@host/simple": "https://[hidden]@host/simple",
    "https://bob:s3/cret@host/simple": "https://[hidden]@host/simple",
    "http://s3cret@host:5000/simple": "http://[hidden]@host:5000/simple",
    "HF_TOKEN=s3cret python train.py": "HF_TOKEN=[hidden] python train.py",
    "export WANDB_API_KEY='s3 cret'": "export WANDB_API_KEY='[hidden]'",
    "db_password = s3cret": "db_password = [hidden]",
    "AWS_SECRET_ACCESS_KEY=s3cret": "AWS_SECRET_ACCESS_KEY=[hidden]",
    "`PGPASSWORD=s3cret`": "`PGPASSWORD=[hidden]`",
    '{"password": "s3cret", "user": "bob"}': '{"password": "[hidden]", "user": "bob"}',
    "GET /x?access_token=s3cret&page=2": "GET /x?access_token=[hidden]&page=2",
    "tool --api-key=s3cret --verbose": "tool --api-key=[hidden] --verbose",
    "docker login --password s3cret host": "docker login --password [hidden] host",
    "tool --hf-token s3cret x": "tool --hf-token [hidden] x",
    "Authorization: Bearer s3cret": "Authorization: Bearer [hidden]",
    "sshpass -p s3cret ssh host": "sshpass -p [hidden] ssh host",
    "sshpass -ps3cret ssh host": "sshpass -p[hidden] ssh host",
    "mysql -uroot -ps3cret -e x": "mysql -uroot -p[hidden] -e x",
    "mysqldump -p's3cret' runs": "mysqldump -p[hidden] runs",
    "useradd -m -p s3cret dev": "useradd -m -p [hidden] dev",
    "usermod --password=s3cret dev": "usermod --password=[hidden] dev",
    "redis-cli -a s3cret ping": "redis-cli -a [hidden] ping",
    "echo s3cret | sudo passwd --stdin root": "echo [hidden] | sudo passwd --stdin root",
    "chpasswd <<< 'root:s3cret'": "chpasswd <<< 'root:[hidden]'",
    "cloning with ghp_" + "a" * 36: "cloning with [hidden]",
    "-----BEGIN RSA PRIVATE KEY-----\ns3cret\n": "[hidden]",
}

KEPT = (
    'echo "$USER:$PW" | chpasswd',
    "echo ratio 3:4 | tee log",
    "TOKENIZERS_PARALLELISM=false",
    "max_tokens=2048",
    "TOKEN=$TOKEN",
    'HF_TOKEN="${HF_TOKEN}" python x.py',
    "HF_TOKEN_FILE=/run/secrets/hf",
    "--mount=type=secret,id=hf_token,target=/run/secrets/hf",
    "docker build --secret id=hf_token,env=HF_TOKEN .",
    "docker login --password-stdin",
    "https://host:5000/name@sha256:0123",
    "docker://host/name:tag@sha256:0123",
    "nvidia-cudnn-cu12==9.1.0 @ https://host/x.whl",
    "keep the secret: mount it",
    "LD_LIBRARY_PATH=/usr/local/cuda/lib64",
    "sshpass -f /run/secrets/pw ssh -p 22 host",
    "mysql -u root -p --port=3306",
    "mysql -p$PW runs",
    'useradd -p "$HASH" dev',
    "apt-get install -y mysql-client && mkdir -p /srv",
)

COLONS = (
    "api_key:PLANT10abcdefgh",
    "OPTS=api_key:PLANT10abcdefgh",
    "x=token: PLANT",
    "x=password : PLANT",
    "password :PLANT",
    '"api_key": "PLANT"',
    "{'api-key': 'PLANT'}",
    "{api_key: PLANT, user: bob}",
    "auth:\n  secret: PLANT\n",
    "- token: PLANT",
    "user:bob,access_key:PLANT",
    "user: bob password: PLANT host: x",
    "logged in with token: PLANT10 again",
    'with passphrase: "PLANT more"',
    "AWS_SECRET_ACCESS_KEY: PLANT/abc+d=",
    "db_password_1:PLANT",
    '{\\"api_key\\": \\"PLANT\\"}',
    "token: Bearer PLANT",
    "password: 1234PLANT",
)
COLONS_KEPT = (
    "max_split_size_mb:128,expandable_segments:True",
    "/opt/a:/opt/b:/usr/lib",
    "localhost:5000/name:tag",
    "key:value other:thing",
    "time per token: 3.1 ms",
    "the secret: mount it",
    "docker run -v secret:/run/secrets/x:ro image",
    "company/token-server:1.2",
    "token-server:1.2",
    "def login(token: str, password: Optional[str] = None)",
    "parser::Token::Kind",
    "token.py:12: error",
    "password: $PASSWORD",
    "token_file: /run/secrets/x",
    "max_tokens: 2048",
    "credentials:\n  user: bob",
    "tokenizer: fast",
)


@pytest.mark.parametrize("text", COLONS)
def test_credentials_behind_a_colon_are_hidden(text: str) -> None:
    assert "PLANT" not in redacted_text(text) and "[hidden]" in redacted_text(text)


@pytest.mark.parametrize("text", COLONS_KEPT)
def test_what_stands_behind_a_colon_and_is_no_credential_is_kept(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize("text", HIDDEN)
def test_credentials_are_hidden(text: str) -> None:
    assert redacted_text(text) == HIDDEN[text]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_credential_is_kept(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize("text", [*HIDDEN, *KEPT, *COLONS, *COLONS_KEPT])
def test_hiding_twice_changes_nothing(text: str) -> None:
    assert redacted_text(redacted_text(text)) == redacted_text(text)


def test_no_text_is_passed_over_that_a_rule_would_change() -> None:
    """Each rule has its mark in every text that it hides something of, whatever stands around it."""
    others = [
        "HTTPS_PROXY=bob:s3cret@proxy:3128",
        '{\\"token\\": \\"s3cret\\"}',
        "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "got bearer a1B2c3D4e5",
        "eyJhbGciOi.eyJzdWIi.c2ln",
    ]
    texts = [*HIDDEN, *COLONS, *SHAPELY, *others, *(text for text, _ in WITHOUT_EQUALS)]
    cut = {text[start : start + size] for text in texts for size in (12, 30, 60) for start in range(0, len(text), 5)}
    for text in (*texts, *map(str.upper, texts), *map(str.title, texts), *cut):
        assert redacted_text(text) == _hidden(text)
    assert "\u017fecret"[1:] not in redacted_text("PA\u017f\u017fWORD=ecret")  # re.IGNORECASE takes it for an s
    assert [form for form, _ in _RULES if not any(re.search(form, text) for text in texts)] == []


def test_values_that_read_the_same_once_hidden_keep_both_sources() -> None:
    finding = Finding("x is set twice", evidence={"TOKEN=one": "Config.Env", "TOKEN=two": "/proc/1/environ"})
    made = redacted(Report(Subject("image", "i"), (Result("x", Outcome.FAIL, (finding,)),)))
    assert made.results[0].findings[0].evidence == {"TOKEN=[hidden]": "Config.Env; /proc/1/environ"}


def test_observed_values_go_by_their_keys_and_numbers_stay() -> None:
    env = {"HF_TOKEN": "abc", "HF_TOKEN_FILE": "/x", "tokens": 3, "password": ""}
    made = redacted(Report(Subject("image", "i"), (), observed={"env": env}))
    hidden = {"HF_TOKEN": "[hidden]"}
    assert made.observed["env"] == env | hidden


@pytest.mark.parametrize(
    "word", ["a", "token", "-token", "token_", "://", "https://a:", "password = ", "token:", "token: ", "token: a:"]
)
def test_a_long_log_is_read_in_linear_time(word: str) -> None:
    with costs_less(1.0):  # 0.1 s when written; a rule that backtracks takes minutes
        redacted_text(word * 4000)


SHAPED = "sk-proj-" + "Ab3dEf6hIj9lMn2p" * 3  # put together here, so that no scanner takes this file for a leak


WITHOUT_EQUALS = [
    ("ENV DB_PASSWORD Zx81kfPq02", "ENV DB_PASSWORD [hidden]"),
    ("ONBUILD ENV HF_TOKEN Zx81 kfPq", "ONBUILD ENV HF_TOKEN [hidden]"),
    ("RUN wandb login " + "0a1b2c3d" * 5, "RUN wandb login [hidden]"),
    ("curl -sSL -u bob:Zx81kfPq https://x.example", "curl -sSL -u bob:[hidden] https://x.example"),
    (f"RUN login {SHAPED}", "RUN login [hidden]"),
]
# One of every maker's shape.
SHAPELY = [
    *(f"gh{letter}_" + "a1B2" * 9 for letter in "pousr"), "github_pat_" + "a1B2" * 9, "hf_" + "a1B2" * 9,
    "glpat-" + "a1B2" * 9, "nvapi-" + "a1B2" * 12, "AKIA" + "A1B2" * 4, "ASIA" + "A1B2" * 4,
    *(f"xox{letter}-" + "1a2b" * 4 for letter in "abprs"), SHAPED, "sk-ant-" + "a1B2" * 9, "pypi-" + "a1B2" * 14,
    "AIza" + "a1B2c" * 7, "npm_" + "a1B2" * 9,
]  # fmt: skip


@pytest.mark.parametrize(("text", "hidden"), WITHOUT_EQUALS)
def test_what_a_dockerfile_says_without_an_equals_sign_is_hidden_too(text: str, hidden: str) -> None:
    assert redacted_text(text) == hidden


@pytest.mark.parametrize("text", ["ENV HF_TOKEN $TOKEN", "ENV PATH /usr/bin", "curl -u $USER:$PASS https://x.example"])
def test_names_of_secrets_are_no_secrets(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.parametrize(
    "error",
    [
        UsageError("`http://u:0canary0@h/{nope}` is no address", "not http://u:0canary0@h"),
        Undecided("invalid bind address format: tcp://u:0canary0@127.0.0.1:9", "token=0canary0"),
        Unsatisfiable("no", ("https://0canary0@h/x",), ("https://u:0canary0@h/y",)),
        ValueError("http://u:0canary0@h"),
        OSError(5, "https://u:0canary0@h failed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_is_printed_with_a_credential(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def failing() -> None:
        raise error

    with Envkit(capsys):
        cli.run(failing)
    said = capsys.readouterr()
    assert ("canary" not in said.out + said.err and "[hidden]@h" in said.err) or "[hidden]@127" in said.err, said.err


def test_no_word_that_the_parser_quotes_and_no_progress_shows_a_credential(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "envkit.toml").write_text('torch = "2.6.0"\npython = "3.11"\n')
    secret = "http://u:0canary0@h/{nope}"
    with Envkit(capsys) as envkit:
        for words in (("build", tmp_path, "--apt-mirror", secret), ("doctor", "--budget", secret), (secret,)):
            done = envkit(*words)
            assert done.code == 2 and "canary" not in done.out + done.err and "[hidden]" in done.err, done.err
    cli.say(f"read {secret}")
    assert capsys.readouterr().err == "read http://[hidden]@h/{nope}\n"
