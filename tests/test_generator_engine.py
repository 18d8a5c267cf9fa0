"""The generator's promises in a real engine: the same bytes twice, the same bytes with the network off, and which file
differs where two images do.  The reference image is built three times here, which takes some minutes."""

from __future__ import annotations

import shutil
import subprocess
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from buildcache import drop_cache

from envkit.engine import BaseRequest, BuildRequest
from envkit.engine.docker import DockerEngine
from tests.test_up_engine import ROOT, envkit

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("room")]


@pytest.fixture(autouse=True)
def no_cache_left() -> Iterator[None]:
    """Each build without a cache leaves 11 GB of it."""
    yield
    drop_cache()


def wheel(folder: Path) -> str:
    """The file name of a wheel that is written into ``folder``."""
    path = folder / "ours-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("ours.py", "x = 1\n")
        made.writestr("ours-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
        made.writestr("ours-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("ours-1.0.dist-info/RECORD", "")
    return path.name


@pytest.mark.nightly
def test_two_builds_are_the_same_and_so_is_one_with_the_network_off(engine: DockerEngine, tmp_path: Path) -> None:
    spec, saved = tmp_path / "torch-2.6-cu124", tmp_path / "saved"
    shutil.copytree(ROOT / "images" / spec.name, spec)
    # One package that the index has as source alone, and one that no index has.
    toml = (spec / "envkit.toml").read_text()
    wanted = toml.replace('packages = ["numpy"]', f'packages = ["numpy", "docopt==0.6.2", "./{wheel(spec)}"]')
    assert wanted != toml
    (spec / "envkit.toml").write_text(wanted)
    first, offline = (f"envkit-test/{word}:{uuid.uuid4().hex[:12]}" for word in ("twice", "offline"))
    try:
        twice = envkit("build", str(spec), "--refresh-os", "--verify", "--tag", first)
        assert twice.exit == 0, twice.err[-2000:] + twice.out
        assert twice.out.endswith("both builds are the same\n")
        layers = engine.layers(first)
        start = ["docker", "run", "--rm", "--network", "none", first, "python3", "-c", "import docopt, ours, torch"]
        assert subprocess.run(start, capture_output=True).returncode == 0
        engine.remove(first)  # beside it an overlay2 store would keep what is built next for good
        drop_cache()
        vendored = envkit("vendor", str(saved), str(spec))
        assert vendored.exit == 0, vendored.err[-2000:]
        built = envkit("build", str(spec), "--from", str(saved), "--no-cache", "--tag", offline)
        assert built.exit == 0, built.err[-2000:]
        assert "(vendored)" in built.err
        assert built.out.split()[1] == twice.out.split()[1]  # the image's id, which is a hash over all of it
        assert engine.layers(offline) == layers
    finally:
        engine.remove(first)
        engine.remove(offline)


def test_a_saved_folder_with_one_byte_changed_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    (saved / "wheels").mkdir(parents=True)
    shutil.copy(ROOT / "images" / "torch-2.6-cu124" / "envkit.lock", saved)
    (saved / "wheels" / "numpy.whl").write_bytes(b"another one")
    built = envkit("build", str(ROOT / "images" / "torch-2.6-cu124"), "--from", str(saved))
    assert built.exit == 2
    assert "does not contain what its lock says" in built.err


def test_diff_names_the_first_file_that_differs(engine: DockerEngine, tmp_path: Path) -> None:
    base = engine.resolve_base(BaseRequest(ref="", suite="bookworm"), lambda line: None)
    tags = [f"envkit-test/diff-{number}:{uuid.uuid4().hex[:12]}" for number in range(2)]
    try:
        for tag, text in zip(tags, ("one", "two"), strict=True):
            (tmp_path / "Dockerfile").write_text(
                f"FROM {base.ref}\nRUN echo same > /a && echo {text} > /b && touch -d @0 /a /b\n"
            )
            engine.build(BuildRequest(tmp_path, tag, 300, labels={"io.envkit.test": "1"}), lambda line: None)
        assert engine.layers(tags[0])[0] == engine.layers(tags[1])[0]
        from envkit.build import up

        (said,) = up.compare_images(engine, *tags)
        assert said.startswith("layer 2: b: content ")
    finally:
        for tag in tags:
            engine.remove(tag)
