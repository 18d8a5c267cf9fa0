"""A folder with all inputs of a build: nothing in it is taken that is not what its lock says."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from test_prove import FakeEngine

from envkit.build import up, vendor
from envkit.errors import UsageError
from envkit.plan import apt
from envkit.plan import lockfile as locks
from envkit.plan.lockfile import Deb, Lock, Pin

IMAGES = Path(__file__).parent.parent / "images"


def content(name: str) -> bytes:
    return b"the bytes of " + name.encode()


def hashed(name: str) -> str:
    return sha256(content(name)).hexdigest()


def lock() -> Lock:
    """A small lock whose hashes are those of the files that ``filled`` writes."""
    wheels = ("numpy-2.2.0-cp311-cp311-manylinux_2_27_x86_64.whl", "torch-2.6.0-cp311-cp311-linux_x86_64.whl")
    installer = "uv-0.8.0-py3-none-manylinux_2_17_x86_64.whl"
    debs = (
        Deb("gcc", "4:12.2.0-3", "amd64", "", 1, "runtime"),
        Deb("libnuma1", "2.0.16-1", "amd64", "", 1, "runtime"),
        Deb("python3-venv", "3.11.2-1+b1", "all", "", 1, "tools"),
    )
    path = IMAGES / "torch-2.6-cu124" / "envkit.lock"
    return replace(
        locks.parse(path.read_text(encoding="utf-8"), str(path)),
        archive="2026-11-15T08:12:33Z",
        digest="sha256:" + "0" * 64,
        installer=Pin("uv", "0.8.0", installer, hashed(installer), 1, "tools"),
        wheels=tuple(Pin(file.split("-")[0], file.split("-")[1], file, hashed(file)) for file in wheels),
        debs=tuple(replace(deb, sha256=hashed(apt.file_of(deb))) for deb in debs),
        programs=(),
    )


LOCK = lock()
FILES = (
    *(f"wheels/{pin.file}" for pin in (*LOCK.wheels, LOCK.installer)),
    *(f"debs/{apt.file_of(deb)}" for deb in LOCK.debs),
)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "vendored"
    for file in FILES:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(path.name))
    (folder / up.VENDORED_BASE).write_bytes(b"an image")
    locks.save(LOCK, folder / "envkit.lock")
    return folder


def refused(folder: Path) -> str:
    said: list[str] = []
    with pytest.raises(UsageError) as caught:
        vendor.load(folder, said.append)
    assert str(folder) in caught.value.message and "envkit" in caught.value.fix
    return caught.value.message


def test_a_folder_that_holds_all_gives_its_lock(filled: Path) -> None:
    said: list[str] = []
    assert vendor.load(filled, said.append) == LOCK
    assert said and str(filled) in said[0]


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(filled: Path, file: str) -> None:
    (filled / file).unlink()
    assert file in refused(filled)


@pytest.mark.parametrize("file", FILES)
def test_one_changed_byte_is_seen(filled: Path, file: str) -> None:
    data = bytearray((filled / file).read_bytes())
    data[-1] ^= 1
    (filled / file).write_bytes(data)
    message = refused(filled)
    assert file in message
    assert not any(other in message for other in FILES if other != file)


def test_a_folder_in_the_place_of_a_file_is_no_file(filled: Path) -> None:
    (filled / FILES[0]).unlink()
    (filled / FILES[0]).mkdir()
    assert FILES[0] in refused(filled)


def test_a_missing_base_is_named(filled: Path) -> None:
    (filled / up.VENDORED_BASE).unlink()
    assert up.VENDORED_BASE in refused(filled)


def test_many_bad_files_make_one_short_sentence(filled: Path) -> None:
    for file in FILES:
        (filled / file).unlink()
    message = refused(filled)
    assert message.count("/wheels/") == 0 and sum(file in message for file in FILES) == 5


def test_the_lock_of_another_image_does_not_fit_these_files(filled: Path) -> None:
    path = IMAGES / "torch-2.6-cu124" / "envkit.lock"
    (filled / "envkit.lock").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    other = locks.parse(path.read_text(encoding="utf-8"), str(path))
    assert f"wheels/{other.wheels[0].file}" in refused(filled)


def test_a_lock_that_was_edited_is_refused_before_any_file_is_read(filled: Path) -> None:
    path = filled / "envkit.lock"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(LOCK.wheels[0].sha256, "0" * 64), encoding="utf-8")
    said: list[str] = []
    with pytest.raises(UsageError, match="edited by hand at line"):
        vendor.load(filled, said.append)
    assert not said


@pytest.mark.parametrize("there", ["nothing", "a folder", "a file"])
def test_what_is_no_vendored_folder_is_refused(tmp_path: Path, there: str) -> None:
    folder = tmp_path / "x"
    if there == "a folder":
        folder.mkdir()
    elif there == "a file":
        folder.write_text("")
    assert "contains no envkit.lock" in refused(folder)


def test_what_is_not_in_the_lock_is_no_matter(filled: Path) -> None:
    """A file more, such as the index of the Debian packages, is nothing that a build would install by its hash."""
    (filled / "debs" / "Packages").write_text("Package: x\n")
    vendor.check(LOCK, filled)


# Filling one: what is refused before anything is fetched.


def saved(lock: Lock, folder: Path) -> UsageError:
    engine = FakeEngine({})
    said: list[str] = []
    with pytest.raises(UsageError) as caught:
        vendor.save(lock, folder, engine, said.append)
    assert not said and engine == FakeEngine({})  # it was asked for nothing
    return caught.value


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    assert "not empty" in saved(LOCK, tmp_path).message
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_file_in_the_place_of_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("kept")
    saved(LOCK, path)
    assert path.read_text() == "kept"


@pytest.mark.parametrize("change", [{"archive": "", "debs": ()}, {"digest": ""}])
def test_a_lock_that_does_not_say_which_packages_cannot_be_saved(tmp_path: Path, change: dict[str, str]) -> None:
    error = saved(replace(LOCK, **change), tmp_path / "new")
    assert "only by name" in error.message and "envkit lock" in error.fix
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("deb", "name"),
    [
        (Deb("gcc", "4:12.2.0-3", "amd64", "", 0, "runtime"), "gcc_4%3a12.2.0-3_amd64.deb"),
        (Deb("libx1", "1.0+dfsg~b1-2", "all", "", 0, "devel"), "libx1_1.0+dfsg~b1-2_all.deb"),
        (Deb("libstdc++6", "12.2.0-14+deb12u1", "arm64", "", 0, "debug"), "libstdc++6_12.2.0-14+deb12u1_arm64.deb"),
    ],
)
def test_a_packages_file_is_called_as_apt_get_calls_it(deb: Deb, name: str) -> None:
    assert apt.file_of(deb) == name
    assert ":" not in name and "/" not in name
