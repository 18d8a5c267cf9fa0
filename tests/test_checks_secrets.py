"""Names, shapes and values of secrets, near those that only look like one."""

from __future__ import annotations

import pytest

from envkit.credentials import looks_real, placeholder, shape_in, surely_names_secret

BODY = "aQ9zLm3TtRk7WvXyP2sNdGhJcBfEuKoIw8Zr5"


@pytest.mark.parametrize(
    "token",
    [
        *(f"gh{kind}_{BODY}" for kind in "pousr"),
        f"github_pat_{BODY}",
        f"hf_{BODY}",
        f"glpat-{BODY[:20]}",
        f"nvapi-{BODY}{BODY}",
        "AKIA7Q3ZLM9TRK2WVXY5",
        "ASIA7Q3ZLM9TRK2WVXY5",
        *(f"xox{kind}-{BODY[:12]}" for kind in "abprs"),
        f"sk-{BODY}",
        f"sk-proj-{BODY[:32]}",
        f"sk-ant-{BODY[:32]}",
        f"pypi-{BODY}{BODY}",
        f"AIza{BODY[:35]}",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_token_is_known_by_its_shape(token: str) -> None:
    found = shape_in(f"a '{token}' b")
    assert found is not None and found[0] == token
    assert shape_in(f"word{token}") is None or token.startswith("-")


@pytest.mark.parametrize(
    "text",
    [
        "hf_" + "x" * 34,
        "hf_" + "X" * 34,
        "hf_" + "ab" * 17,
        f"hf_1234567{BODY}",
        f"hf_abcdef{BODY}",
        f"hf_your{BODY}",
        "AKIAIOSFODNN7EXAMPLE",
        f"hf_{BODY[:29]}",
        "-----BEGIN PUBLIC KEY-----",
    ],
)
def test_an_example_of_a_token_is_none(text: str) -> None:
    assert shape_in(text) is None


def test_a_token_behind_an_example_is_found() -> None:
    found = shape_in(f"hf_{'x' * 34} hf_{BODY}")
    assert found is not None and found[0] == f"hf_{BODY}"


KINDS = ("TOKEN PASSWORD PASSWD PASSPHRASE PASS PWD SECRET SECRETS CREDENTIAL CREDENTIALS API_KEY APIKEY ACCESS_KEY "
         "PRIVATE_KEY SECRET_KEY AUTH_KEY LICENSE_KEY KEY_SECRET")  # fmt: skip
ABOUT = ("FILE PATH DIR NAME ID URL TYPE LENGTH LEN LIMIT TTL COUNT SIZE TIMEOUT EXPIRY HOST PORT PARALLEL POLICY MIN "
         "MAX METHOD MODE")  # fmt: skip


LIKE = (
    "PWD OLDPWD MAX_TOKEN NUM_TOKEN TOKEN_1_DIR TOKEN_1_FILE TOKEN_1_PATH TOKEN_1_URL TOKEN_1_ID "
    "TOKENIZER_SECRET NOPASS_TOKEN NO_PASS_SECRET WITHOUT_PASSWORD tokenizer_token"
)


@pytest.mark.parametrize("kind", KINDS.split())
def test_a_name_says_what_it_holds(kind: str) -> None:
    assert (
        surely_names_secret(f"MY_{kind}")
        and surely_names_secret(f"my_{kind.lower()}")
        and surely_names_secret(f"{kind}_1")
    )
    assert not surely_names_secret(f"X{kind}1")
    assert kind == "PWD" or surely_names_secret(kind)


@pytest.mark.parametrize("about", ABOUT.split())
def test_a_name_of_what_is_known_about_a_secret_is_none(about: str) -> None:
    assert not surely_names_secret(f"DB_PASSWORD_{about}")


@pytest.mark.parametrize("name", ["MYAPIKEY", "DBPASSWORD", "dbpasswd", "MYSECRETKEY", "MYACCESSKEY", "MYAUTHTOKEN"])
def test_a_glued_name_is_one_at_its_end(name: str) -> None:
    assert surely_names_secret(name)
    assert not surely_names_secret(f"{name}S2")


@pytest.mark.parametrize(
    "name",
    [
        *LIKE.split(),
        "A" * 195 + "_TOKEN",
    ],
)
def test_a_name_that_only_sounds_so_is_none(name: str) -> None:
    assert not surely_names_secret(name)


def test_a_name_of_the_longest_length_is_still_read() -> None:
    assert surely_names_secret("A" * 194 + "_TOKEN")


@pytest.mark.parametrize(
    "value",
    [
        "", "a1b2c", "aa11aa11", "correct horse", "<key-1b7>", "{key-1b7}", "[key-1b7]", "$key1b7", "key1b7...",
        "%key1b7%", "<zebra-8412>", "{zebra-8412}", "[zebra-8412]", "$zebra8412", "zebra8412...", "%zebra8412%",
        "your-token-1234", "'change-me-123'", "xxxx-1234", "password123", "admin00000", "test-111111",
    ],
)  # fmt: skip
def test_a_stand_in_is_no_secret(value: str) -> None:
    assert placeholder(value)


@pytest.mark.parametrize("value", ["a1b2cd", "hunter2x9", "tiger8412", "test-8412", "your-zebra-1"])
def test_a_value_that_somebody_chose_is_one(value: str) -> None:
    assert not placeholder(value)


@pytest.mark.parametrize(
    ("value", "real"),
    [
        ("s3cr3tPa55word99", True),
        ("s3cr3tPa55word9", False),
        ("'s3cr3tPa55word9'", False),
        ("1234567890123456", False),
        ("abcdefghijklmnop", False),
        ("two words of 16 or more", False),
    ],
)
def test_only_generated_values_look_real(value: str, real: bool) -> None:
    assert looks_real(value) is real
