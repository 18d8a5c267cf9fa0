"""Indexes that a spec names: where their credentials come from, and that they are in nothing that envkit leaves."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from index import Index, pip_wheel, publish
from inline import Envkit
from test_prove import FakeEngine
from test_steps import assemble

from envkit.build import up, vendor
from envkit.engine import BuildRequest, BuiltImage
from envkit.engine.local import LocalEngine
from envkit.errors import UsageError
from envkit.plan import indexes
from envkit.plan import lockfile as locks
from envkit.plan.spec import load, parse
from envkit.system import proc

# Planted: neither may be in anything that is left or said.  The second is of the form of no known token.
USER, PASSWORD = "qzuser7", "qz%Planted/Word 9"
WEAK = ("--engine", "none", "--allow-unpinned", "os", "--allow-unpinned", "base")
TWO = 'torch = "2.6.0"\npython = "3.11"\n'


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize(
    "text",
    [
        "https://packages.invalid/simple",
        "corp=https://packages.invalid:8443/simple/",
        "https://${TOKEN}@packages.invalid/simple",
        "https://__token__:${TOKEN}@packages.invalid/simple",
        "https://${WHO}:${TOKEN}@packages.invalid",
        "https://oauth2accesstoken@packages.invalid/feed@Local/pypi/simple/",
    ],
)
def test_an_address_without_a_credential_is_taken(text: str) -> None:
    assert parse(f'{TWO}index = "{text}"\nextra-index = ["{text}"]', Path("envkit.toml")).extra_index == (text,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://qzuser7:qzPlanted@packages.invalid/simple", "a credential in the address of packages.invalid"),
        ("https://qzPlanted@packages.invalid/simple", "a credential in the address of packages.invalid"),
        ("https://qzuser7:qz/Planted@packages.invalid/simple", "a credential in the address of packages.invalid"),
        ("https://$qzPlanted@packages.invalid/simple", "a credential in the address of packages.invalid"),
        ("corp=https://qzuser7:qzPlanted@packages.invalid/", "a credential in the address of packages.invalid"),
        ("https://packages.invalid/simple?token=qzPlanted", "a credential in the address of packages.invalid"),
        ("https://packages.invalid/glpat-qzPlanted0123456789abcd/simple", "a credential in the address"),
        ("file:///srv/wheels", "is no address of a package index"),
        ("packages.invalid/simple", "is no address of a package index"),
        ("https://packages.invalid/a b", "is no address of a package index"),
        ("https://packages.invalid/" + "a" * 600, "is no address of a package index"),
    ],
)
def test_an_address_with_a_credential_is_refused_without_it(text: str, said: str) -> None:
    for line in (f'index = "{text}"', f'extra-index = ["{text}"]'):
        with pytest.raises(UsageError, match=said) as caught:
            parse(TWO + line, Path("envkit.toml"))
        assert "qz" not in f"{caught.value.message} {caught.value.fix}"


def in_netrc(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    (folder / "netrc").write_text(f'machine 127.0.0.1 login {USER} password "{PASSWORD}"\n')
    patch.setenv("NETRC", str(folder / "netrc"))
    return url


def in_named(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("QZ_WHO", USER)
    patch.setenv("QZ_TOKEN", PASSWORD)
    return url.replace("//", "//${QZ_WHO}:${QZ_TOKEN}@")


def in_uv(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("UV_INDEX_OUR_CORP_USERNAME", USER)
    patch.setenv("UV_INDEX_OUR_CORP_PASSWORD", PASSWORD)
    return f"our-corp={url}"


def in_pip(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("PIP_EXTRA_INDEX_URL", url.replace("//", f"//{USER}:qz%25Planted%2FWord%209@"))
    return url


def in_keyring(url: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """The program as its documentation has it: `keyring --mode creds get SERVICE` prints user and password."""
    (folder / "bin").mkdir()
    tool = folder / "bin" / "keyring"
    tool.write_text(f'#!/bin/sh\n[ "$*" = "--mode creds get {url}" ] || exit 1\nprintf "%s\\n" {USER} "{PASSWORD}"\n')
    tool.chmod(0o755)
    patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return url


Hold = Callable[[str, Path, pytest.MonkeyPatch], str]
PLACES = {
    "netrc": in_netrc,
    "the variable QZ_TOKEN": in_named,
    "the variables UV_INDEX_OUR_CORP_USERNAME and _PASSWORD": in_uv,
    "the variable PIP_EXTRA_INDEX_URL": in_pip,
    "keyring": in_keyring,
}


@pytest.fixture
def closed(index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    """An index that wants a credential, which is the configured one no more."""
    publish(index, "2.6.0", "3.11", "nvidia-cudnn-cu12", "einops")
    index.add("einops", "0.8.1")
    index.wants = f"{USER}:{PASSWORD}"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    return index


@pytest.mark.parametrize("where", PLACES)
def test_a_credential_is_found(where: str, closed: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLACES[where](closed.url, tmp_path, monkeypatch)
    found = indexes.of(indexes.address("index", text), ()).own
    assert found == indexes.Access(closed.url, USER, PASSWORD, where)
    assert "qz" not in repr(found)


def test_a_variable_that_nobody_set_is_named() -> None:
    with pytest.raises(UsageError, match="`extra-index` takes a credential from the variable QZ_NONE, which is not"):
        indexes.of("", ("https://${QZ_NONE}@packages.invalid/simple",))


HIDDEN = (USER.encode(), b"Planted", b64encode(f"{USER}:{PASSWORD}".encode()))


def planted(folder: Path) -> list[str]:
    """The files below a folder that hold the planted user or a part of the password, also encoded for a header."""
    held = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in held if any(word in path.read_bytes() for word in HIDDEN)]


@dataclass
class Reading(FakeEngine):
    """An engine that reads the secret of its build, as a step would."""

    secret: str = ""
    mode: int = 0
    in_context: bool = True

    def build(self, wish: BuildRequest, say: Callable[[str], None]) -> BuiltImage:
        path = wish.secrets["index"]
        self.secret, self.mode = path.read_text(), path.stat().st_mode & 0o777
        self.in_context = wish.context in path.parents
        return super().build(wish, say)


@pytest.mark.slow  # makes whole locks
@pytest.mark.parametrize("where", PLACES)
def test_a_lock_by_a_closed_index_holds_no_credential(
    where: str,
    closed: Index,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither does the Dockerfile, what a build is given but for its secret, a label, a message or uv's cache."""
    text = PLACES[where](closed.url, tmp_path_factory.mktemp("home"), monkeypatch)
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "envkit.toml").write_text(f'{TWO}packages = ["einops"]\nindex = "{text}"\n')
    envkit = Envkit(capsys)
    with envkit:
        made = envkit("lock", folder, *WEAK)
        again = envkit("lock", folder, *WEAK)
        rendered = envkit("render", folder)
    assert (made.code, again.code, rendered.code) == (0, 0, 0), made.err
    assert "up to date" in again.err
    spec = load(folder)
    lock = locks.load(spec)
    assert lock is not None
    assert "einops" in {pin.name for pin in lock.wheels}
    assert closed.url not in (folder / "envkit.lock").read_text() + (folder / "Dockerfile").read_text()
    said = [made.err, again.err, rendered.err, made.out, rendered.out]
    engine = Reading({})
    up.build(lock, engine, said.append, indexes=indexes.of(spec.index, spec.extra_index))
    (request,) = engine.builds
    told = [*said, repr(request), *engine.contexts[0].values()]
    assert not any(word.decode() in text for word in HIDDEN for text in told)
    assert planted(tmp_path) == []
    assert (engine.mode, engine.in_context) == (0o600, False)
    (tmp_path / "secret").write_text(engine.secret)
    script = f'. {tmp_path / "secret"}; printf "%s\\n" "$UV_INDEX_ENVKIT_0_PASSWORD"'
    shown = proc.run(["sh", "-c", script], timeout_s=9)
    assert shown.stdout == f"{PASSWORD}\n"


def test_an_environment_is_installed_from_a_closed_index(
    closed: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = indexes.of(in_netrc(closed.url, tmp_path, monkeypatch), ())
    monkeypatch.delenv("NETRC")  # uv is to have it from the secret alone
    pin = closed.add("einops", "0.8.1")
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "requirements.txt").write_text(locks.requirements([pin]))
    (tmp_path / "secret").write_text(named.secret())
    engine, said = LocalEngine(tmp_path / "root"), list[str]()
    request = BuildRequest(tmp_path / "context", "one:1", 120, args={"PYTHON": sys.executable})
    engine.build(replace(request, secrets={"index": tmp_path / "secret"}), said.append)
    assert [path.name for path in (tmp_path / "root").rglob("einops-*")] == ["einops-0.8.1.dist-info"]
    (tmp_path / "secret").unlink()
    (tmp_path / "netrc").unlink()
    assert planted(tmp_path) == [] and not any("Planted" in line for line in said)


def test_a_step_of_a_build_installs_from_a_closed_index_and_from_what_no_index_has(
    closed: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The very file that runs inside a build, with the real uv, its secret and its folder of wheels."""
    named = indexes.of(in_netrc(closed.url, tmp_path, monkeypatch), ())
    monkeypatch.delenv("NETRC")
    pins = [closed.add("einops", "0.8.1"), closed.add("ours", "1.0", "einops")]
    for part in ("unindexed", "secrets", "out"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "unindexed" / pins[1].file).write_bytes(closed.wheels.pop(pins[1].file))
    (tmp_path / "secrets" / "index").write_text(named.secret())
    (tmp_path / "wheels.txt").write_text(locks.requirements(pins))
    monkeypatch.setattr(assemble, "UV", proc.uv_path())
    monkeypatch.setattr(assemble, "VENDOR", tmp_path / "vendor")
    monkeypatch.setattr(assemble, "SECRETS", tmp_path / "secrets")
    monkeypatch.setattr(assemble, "CACHE", tmp_path / "cache")
    options = [f"--find-links={tmp_path / 'unindexed'}", "--target", str(tmp_path / "out")]
    assemble.install(tmp_path / "wheels.txt", sys.executable, options)
    assert {"einops-0.8.1.dist-info", "ours-1.0.dist-info"} <= {path.name for path in (tmp_path / "out").iterdir()}
    (tmp_path / "secrets" / "index").unlink()
    (tmp_path / "netrc").unlink()
    shown = capfd.readouterr()
    assert planted(tmp_path) == [] and "Planted" not in shown.out + shown.err


@pytest.mark.slow  # makes whole locks
def test_vendored_wheels_come_from_a_closed_index(
    closed: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = pip_wheel()
    closed.wheels[pip.name] = pip.read_bytes()
    text = in_named(closed.url, tmp_path, monkeypatch)
    pin = closed.add("einops", "0.8.1")
    uv = closed.add("uv", "0.8.0", tag="py3-none-manylinux_2_17_x86_64")
    path = Path(__file__).parent.parent / "images" / "torch-2.6-cu124" / "envkit.lock"
    lock = replace(locks.parse(path.read_text(), "x"), wheels=(pin,), installer=uv, backend="")
    target = tmp_path / "wheels-here"
    vendor.fetch_wheels(lock, indexes.of(text, ()), (), target)
    assert sorted(each.name for each in target.iterdir()) == [pin.file, uv.file]
    assert planted(tmp_path) == []
    monkeypatch.setenv("QZ_TOKEN", "another")
    with pytest.raises(UsageError, match="does not accept the credential of the variable QZ_TOKEN"):
        vendor.fetch_wheels(lock, indexes.of(text, ()), (), target)


@pytest.mark.parametrize(
    ("user", "said", "fix"),
    [
        ("machine 127.0.0.1 login qzuser7 password qzPlantedWrong", "does not accept the credential of netrc", "netrc"),
        ("", "wants a credential, and none was found", "keep it in netrc or keyring, or write a variable"),
    ],
)
@pytest.mark.parametrize("key", ["index", "extra-index"])
def test_a_wrong_credential_is_one_sentence(
    user: str,
    said: str,
    fix: str,
    key: str,
    closed: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "netrc").write_text(user)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    value = f'"{closed.url}"' if key == "index" else f'["{closed.url}"]'
    (tmp_path / "envkit.toml").write_text(f'{TWO}packages = ["einops"]\n{key} = {value}\n')
    with Envkit(capsys) as envkit:
        ended = envkit("lock", tmp_path, *WEAK)
    assert ended.code == 2
    assert ended.err.count(f"the package index at 127.0.0.1:{closed.server.server_port} {said}") == 1
    assert fix in ended.err and "qz" not in ended.err
    assert not (tmp_path / "envkit.lock").exists()


@pytest.mark.slow  # makes whole locks
def test_an_extra_index_is_asked_first_and_the_configured_one_holds_the_rest(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token as user without a password, as some servers want it."""
    publish(index, "2.6.0", "3.11", "nvidia-cudnn-cu12")
    index.add("ours", "9.0")
    extra = Index()
    extra.folder = tmp_path / "extra"
    extra.folder.mkdir()
    extra.add("ours", "1.0")
    extra.wants = "qzPlantedToken:"
    monkeypatch.setenv("QZ_TOKEN", "qzPlantedToken")
    where = tmp_path / "job"
    where.mkdir()
    named = extra.url.replace("//", "//${QZ_TOKEN}@")
    (where / "envkit.toml").write_text(f'{TWO}packages = ["ours"]\nextra-index = ["{named}"]\n')
    with Envkit(capsys) as envkit:
        ended = envkit("lock", where, *WEAK)
        assert ended.code == 0, ended.err
        assert 'ours = { version = "1.0"' in (where / "envkit.lock").read_text()
        assert planted(tmp_path) == [] and "Planted" not in ended.err + ended.out
        text = (where / "envkit.toml").read_text()
        (where / "envkit.toml").write_text(text.replace(f'extra-index = ["{named}"]', ""))
        changed = envkit("lock", where, "--check")
    assert (changed.code, changed.out) == (1, "the spec names other indexes than the lock was made with\n")
    extra.server.shutdown()
    extra.server.server_close()


def test_a_credential_in_another_form_is_the_same_wish() -> None:
    """Who locks by netrc and who locks by a variable share a lock."""
    bare, named = "https://packages.invalid/simple", "corp=https://${TOKEN}@packages.invalid/simple"
    assert indexes.digest(bare, ()) == indexes.digest(named, ()) != indexes.digest("", (bare,))
    assert indexes.digest("", ()) == ""


def test_a_lost_answer_of_the_name_service_costs_a_second_unless_the_caller_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RES_OPTIONS", raising=False)
    assert indexes.Indexes().environment()["RES_OPTIONS"] == "timeout:1 attempts:5"
    monkeypatch.setenv("RES_OPTIONS", "timeout:30")
    assert indexes.Indexes().environment()["RES_OPTIONS"] == "timeout:30"
