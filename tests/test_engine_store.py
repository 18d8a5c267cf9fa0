"""When the engine's own store may be read in place of an exported image: its folders as overlay2 keeps them, and each
reason not to."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from envkit.engine import store
from envkit.engine.docker_run import REMAPPED, ROOTLESS

CONFIG = json.dumps({"os": "linux"}).encode()
Change = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an engine says of itself and of an image of three layers, in a store like its own."""
    monkeypatch.setattr(store, "sees_trusted", lambda: True)
    digest = sha256(CONFIG).hexdigest()
    file = tmp_path / "image/overlay2/imagedb/content/sha256" / digest
    file.parent.mkdir(parents=True)
    file.write_bytes(CONFIG)
    folders = [tmp_path / "overlay2" / name / "diff" for name in ("top", "middle", "bottom")]
    for folder in folders:
        folder.mkdir(parents=True)
    info = {
        "DockerRootDir": str(tmp_path),
        "DriverStatus": [["Native Overlay Diff", "true"], ["Using metacopy", "false"], ["odd"]],
        "SecurityOptions": ["name=seccomp,profile=builtin"],
    }
    data = {"UpperDir": str(folders[0]), "LowerDir": f"{folders[1]}:{folders[2]}"}
    image = {
        "Id": f"sha256:{digest}",
        "GraphDriver": {"Name": "overlay2", "Data": data},
        "RootFS": {"Layers": ["sha256:1", "sha256:2", "sha256:3"]},
    }
    return info, image


def test_the_layers_are_read_from_the_lowest_up(kept: tuple[dict[str, Any], dict[str, Any]]) -> None:
    config, roots = store.unpacked(*kept)
    assert config == CONFIG and [root.parent.name for root in roots] == ["bottom", "middle", "top"]


@pytest.mark.parametrize(
    "change",
    [
        lambda info, image: image.update(GraphDriver={"Name": "btrfs"}),
        lambda info, image: image.pop("GraphDriver"),
        lambda info, image: info.update(SecurityOptions=[ROOTLESS]),
        lambda info, image: info.update(SecurityOptions=[REMAPPED]),
        lambda info, image: info["DriverStatus"].pop(0),
        lambda info, image: info.update(DriverStatus=[["Native Overlay Diff", "true"], ["Using metacopy", "true"]]),
        lambda info, image: info.update(DockerRootDir="/nowhere"),
        lambda info, image: image["RootFS"]["Layers"].pop(),
        lambda info, image: image["GraphDriver"]["Data"].update(UpperDir="/nowhere"),
        lambda info, image: image["GraphDriver"]["Data"].pop("LowerDir"),
        lambda info, image: next(Path(info["DockerRootDir"]).rglob("sha256/*")).write_bytes(b"{}"),
    ],
)
def test_what_is_not_surely_the_image_is_not_read(kept: tuple[dict[str, Any], dict[str, Any]], change: Change) -> None:
    change(*kept)
    assert store.unpacked(*kept) == (b"", ())


def test_a_process_without_the_power_to_see_marks_reads_nothing(
    kept: tuple[dict[str, Any], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "sees_trusted", lambda: False)
    assert store.unpacked(*kept) == (b"", ())
