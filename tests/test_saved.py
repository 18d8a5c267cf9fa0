"""What --save writes: private from its first byte, without what looks like a credential, and judged as before."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import forked
import pytest

from envkit import facts
from envkit.credentials import HIDDEN, names_secret, redacted_plain, redacted_value
from envkit.errors import UsageError
from envkit.judging import judge, required
from envkit.model import Observed
from envkit.subjects import KINDS, Host, Image, codec, saved
from envkit.subjects.image import Variable
from envkit.system import files

DATA = Path(__file__).parent / "data"
RECORDED = [
    *sorted((DATA / "image").glob("*.json")),
    *sorted((DATA / "host").glob("*.json")),
    *[DATA / "gpu" / f"h100-torch-2.11-cu130-{what}.json" for what in ("probe", "placement", "smoke")],
]
SECRETS = {
    "HF_TOKEN": "0canary0",
    "WANDB_API_KEY": "0canary0",
    "MY_SIGNING_KEY": "0canary0",
    "REGISTRY_AUTH": "0canary0",
    "DB_PASS": "0canary0",
    "SESSION_COOKIE": "0canary0",
    "HTTPS_PROXY": "http://someone:0canary0@proxy.example:3128",
    "https_proxy": "someone:0canary0@proxy.example:3128",
    "NCCL_CONF_FILE": "https://0canary0@example.com/x",
    "TORCH_X": "Authorization: Bearer 0canary0/rest",
    "TORCH_Y": "bearer 0canary0",
    "XLA_FLAGS": "--a=b --password 0canary0 --c",
    "TORCH_COLON": "a:b,api_key:0canary0",
    "TORCH_YAML": "token: 0canary0",
    "TORCH_BLANK": "password : 0canary0",
    "TORCH_JSON": '{"api_key": "0canary0"}',
    "JAX_Z": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIwY2FuYXJ5MCJ9.0canary0",
    "LD_LIBRARY_PATH": "/opt/hf_0canary0" + "a" * 30 + "/lib",
}
KEPT = {
    "PWD": "/work",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_TOKEN_PATH": "/run/secrets/hf",
    "NCCL_SOCKET_IFNAME": "eth0",
    "TORCH_CUDA_ARCH_LIST": "9.0;10.0+PTX",
    "CUDA_VISIBLE_DEVICES": "GPU-5d1c3b0a-0000-0000-0000-000000000001",
    "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
    "MASTER": "host:29500",
    "MONKEY": "",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_a_variable_is_saved_in_no_shape(name: str) -> None:
    value = SECRETS[name]
    assert "canary" not in redacted_value(name, value)
    for plain in (
        {name: value},
        {"variables": [{"name": name, "value": value}]},
        {"environment": {"value": {name: value}, "via": "os.environ", "missing": ""}},
        {"settings": {name: {"value": value, "via": "x", "missing": ""}}},
    ):
        assert "canary" not in json.dumps(redacted_plain(plain)).replace("someone", ""), plain


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_secret_is_saved_as_it_is(name: str) -> None:
    plain = {"variables": [{"name": name, "value": KEPT[name]}], "environment": {name: KEPT[name]}}
    assert redacted_plain(plain) == plain


def test_names_that_say_where_a_secret_lies_are_none() -> None:
    assert [one for one in ("HF_TOKEN_PATH", "KEY_FILE", "OLDPWD", "max_tokens", "keyboard") if names_secret(one)] == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_was_recorded_is_saved_whole_and_judged_as_before(path: Path) -> None:
    """Hiding touches nothing that is judged: of no recorded subject is a letter lost."""
    plain = json.loads(path.read_text())
    assert redacted_plain(plain) == plain


def test_a_saved_probe_with_hidden_values_has_the_verdict_of_the_live_one(tmp_path: Path) -> None:
    live = codec.from_plain(Image, json.loads((DATA / "image" / "torch-2.6-cu124.json").read_text()))
    given = (*(live.variables.value or ()), *(Variable(name, value) for name, value in SECRETS.items()))
    live = replace(live, variables=Observed.of(given, "os.environ"))
    target = tmp_path / "saved.json"
    files.write(target, saved.text("image", codec.to_plain(live)), 0o600)
    assert "canary" not in target.read_text() and HIDDEN in target.read_text()
    judged = [judge.judge(one, facts.load()) for one in (live, saved.of_kind(target, KINDS["image"]))]
    outcomes = [[(result.check, result.outcome) for result in results] for results in judged]
    assert outcomes[0] == outcomes[1]


def test_a_saved_file_is_private_whatever_lay_there_and_whatever_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "saved.json"
    target.write_text("open to all")
    target.chmod(0o666)
    before = os.umask(0)
    try:
        files.write(target, "{}", 0o600)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("level", "nosuch", "there is no level `nosuch`"),
        ("level", "", "there is no level ``"),
        ("level", "QUICK", "there is no level `QUICK`"),
        ("sanitize", "nosuch", "there is no tool of compute-sanitizer `nosuch`"),
    ],
)
def test_a_name_outside_its_set_makes_a_document_wrong_input(tmp_path: Path, field: str, value: str, says: str) -> None:
    """With a level that does not exist judging ended in a traceback; with such a tool no test had been asked for."""
    document = json.loads((DATA / "gpu" / "h100-torch-2.11-cu130-smoke.json").read_text())
    document["subject"][field] = value
    path = tmp_path / "smoke.json"
    path.write_text(json.dumps(document))
    done = forked.envkit("judge", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"envkit: this is not a recorded smoke run: {says}")


def names(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a document holds text: of a list its first member alone, of measures none."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        for inner in value[:1]:
            yield from names(inner, (*path, 0))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "measures":
                yield from names(inner, (*path, key))


@pytest.mark.slow  # judges a document once for each text
@pytest.mark.parametrize("what", ["probe", "placement", "smoke-quick"])
def test_no_text_of_a_document_ends_judging_in_an_internal_fault(what: str) -> None:
    kind, plain = saved.document(DATA / "gpu" / f"h100-torch-2.11-cu130-{what}.json")
    for path in names(plain):
        changed = copy.deepcopy(plain)
        inner = changed
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = "nosuch"
        try:
            subject = codec.from_plain(KINDS[kind], changed)
        except UsageError:
            continue
        results = judge.judge(subject, facts.load())
        assert results and required.covered(subject), path


def test_a_field_of_a_newer_version_leaves_the_document_undecided_and_is_named(tmp_path: Path) -> None:
    document = json.loads((DATA / "gpu" / "h100-host.json").read_text())
    document["subject"]["nvml"]["value"]["gpus"][0]["tides"] = {"value": 3, "via": "nvml", "missing": ""}
    document["subject"]["weather"] = {"value": [], "via": "", "missing": ""}
    document["subject"]["clock"]["doubt"] = "some"
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(document))
    host = saved.of_kind(path, Host)
    assert set(host.newer_fields) == {"nvml.gpus[].tides", "weather", "clock.doubt"}
    (result,) = judge.unanswered(host)
    assert result.check == "required-known-fields"
    assert all(name in result.reason for name in host.newer_fields)
    # what was read is judged as without them, and so are they after the way through another file
    older = saved.of_kind(DATA / "gpu" / "h100-host.json", Host)
    assert replace(host, newer_fields=(), clock=older.clock) == older
    assert codec.recorded(Host, codec.to_plain(host)).newer_fields == host.newer_fields
    assert "newer_fields" not in codec.to_plain(older)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_tells_the_fields_of_a_newer_version(kind: str) -> None:
    required = {"name": "x", "level": "quick", "host": {"name": "y", "weather": 1}}
    subject = codec.recorded(KINDS[kind], required | {"tides": 1})
    assert "tides" in subject.newer_fields
    assert [one.reason for one in judge.unanswered(subject) if one.check == "required-known-fields"]
