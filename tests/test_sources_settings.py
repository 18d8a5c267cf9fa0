"""[check] of an envkit.toml: what it may say, and one sentence for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from envkit.errors import UsageError
from envkit.model import Severity
from envkit.plan.spec import parse as parse_spec
from envkit.static.settings import Settings, is_there, load

KNOWN = frozenset({"unpinned-base", "curl-pipe-sh"})
WHOLE = """
[check]
fail-on = "warning"
gpus = ["H100", "RTX 4090"]
driver = "550"
exclude = ["vendor", "third_party/*/docker/"]
severity = { unpinned-base = "error", curl-pipe-sh = "off" }

[check.base."registry.example/team/base:7"]
cuda = "12.4"
cudnn = "9"
flavor = "devel"
os = "ubuntu22.04"
python = "3.11"
torch = "2.6.0"
torch-cuda = "12.4"

[check.base."registry.example:5000/plain"]
cuda = "11.8"
"""


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "envkit.toml"
    path.write_text(text)
    return load(path, lambda: KNOWN)


def test_all_that_it_may_say(tmp_path: Path) -> None:
    found = settings(tmp_path, WHOLE)
    assert (found.fail_on, found.gpus, found.driver) == ("warning", ("H100", "RTX 4090"), "550")
    assert found.severity == {"unpinned-base": Severity.ERROR, "curl-pipe-sh": None}
    assert found.path == str(tmp_path / "envkit.toml")


def test_a_base_that_nobody_else_knows(tmp_path: Path) -> None:
    bases = settings(tmp_path, WHOLE).bases
    base = bases["registry.example/team/base:7"]
    assert (base.repository, base.tag, base.digest) == ("registry.example/team/base", "7", "")
    said = (base.cuda, base.cudnn, base.flavor, base.os, base.python, base.torch, base.torch_cuda)
    assert [each.value for each in said] == ["12.4", "9", "devel", "ubuntu22.04", "3.11", "2.6.0", "12.4"]
    assert base.nvcc.value is True
    assert base.cuda.via.endswith("envkit.toml")
    plain = bases["registry.example:5000/plain"]
    assert (plain.repository, plain.tag) == ("registry.example:5000/plain", "")
    assert plain.torch.missing
    assert plain.nvcc.missing


def test_excludes_are_seen_from_the_settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(tmp_path, WHOLE)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for path in ("../vendor/Dockerfile", "../vendor/a/b/Dockerfile", "../third_party/x/docker/Dockerfile"):
        assert found.excludes(Path(path)), path
    for path in ("vendor/Dockerfile", "../Dockerfile", "../third_party/x/Dockerfile", "../vendored/Dockerfile"):
        assert not found.excludes(Path(path)), path
    assert not Settings().excludes(Path("vendor/Dockerfile"))


def test_an_empty_table_and_none_are_the_defaults(tmp_path: Path) -> None:
    assert settings(tmp_path, "[check]\n") == Settings(str(tmp_path / "envkit.toml"))
    assert settings(tmp_path, 'torch = "2.6.0"\n').severity == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[check", "cannot be read"),
        ("x = " + "[" * 5000, "cannot be read"),
        ("check = 1", "[check] must be a table, not 1"),
        ("[check]\nfail_on = 'error'", "unknown key `fail_on`; did you mean `fail-on`?"),
        ("[check]\nfail-on = 1", "`fail-on` is the number 1; it must be text"),
        ("[check]\nfail-on = 'fatal'", "fail-on = 'fatal' is no severity"),
        ("[check]\ngpus = 'H100'", "`gpus` must be a list of texts, not text"),
        ("[check]\nexclude = [1]", "`exclude` must be a list of texts, and holds 1"),
        ("[check]\nseverity = 'off'", "`severity` must be a table, not text"),
        ("[check.severity]\nunpinned-bas = 'off'", "there is no check `unpinned-bas`"),
        ("[check.severity]\nunpinned-base = 'fatal'", "unpinned-base = 'fatal' is no severity"),
        ("[check.severity]\nunpinned-base = true", "unpinned-base = True is no severity"),
        ("[check]\nbase = 'x'", "`base` must be a table, not text"),
        ("[check.base]\nx = 'y'", "base 'x' must be a table, not text"),
        ("[check.base.x]\ncuda = 12.4", "base 'x': `cuda` is the number 12.4; it must be text"),
        ("[check.base.x]\ncudda = '12.4'", "base 'x': unknown key `cudda`; did you mean `cuda`?"),
        ("[check.base.x]\nflavor = 'full'", "base 'x': flavor 'full' is none"),
    ],
)
def test_everything_else_is_refused_with_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.fix
    assert not caught.value.message.endswith(".")


def test_the_nearest_check_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, "[check.severity]\nunpinned-bas = 'off'")
    assert caught.value.message.endswith("there is no check `unpinned-bas`; did you mean `unpinned-base`?")
    assert caught.value.fix == "see `envkit check --list`"


def test_a_spec_may_hold_the_table_too(tmp_path: Path) -> None:
    spec = parse_spec('torch = "2.6.0"\npython = "3.11"\n' + WHOLE, tmp_path / "envkit.toml")
    assert str(spec.torch) == "2.6.0"


def test_a_file_that_cannot_be_read_holds_no_table(tmp_path: Path) -> None:
    assert not is_there(tmp_path / "none.toml")
    (tmp_path / "spec.toml").write_text('torch = "2.6.0"\n')
    assert not is_there(tmp_path / "spec.toml")
