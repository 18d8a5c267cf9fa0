"""CDI specifications as nvidia-ctk, people and other vendors write them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.host import cdi
from envkit.host.root import HostRoot
from envkit.subjects.host import CdiSpec

GENERATED = """\
---
cdiVersion: 0.5.0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - ../card1::/dev/dri/by-path/pci-0000:65:00.0-card
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15
    options:
    - ro
    - nosuid
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.1
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.1
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: all
kind: nvidia.com/gpu
"""

BY_HAND = """\
cdiVersion: "0.5.0"
kind: nvidia.com/gpu   # ours
containerEdits:
  deviceNodes:
    - path: /dev/nvidiactl
  mounts:
    - {hostPath: /usr/local/nvidia, containerPath: /usr/local/nvidia, options: [ro, nosuid, nodev, rbind]}
devices:
  - {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
  - name: all
    containerEdits:
      deviceNodes:
        - path: /dev/nvidia0
"""


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_generated_specification(tmp_path: Path) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"
    touch(tmp_path, "/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia0", "/usr/bin/nvidia-cdi-hook", library)
    spec = cdi.parse_spec(GENERATED, "/etc/cdi/nvidia.yaml", HostRoot(tmp_path, {}))
    assert spec == CdiSpec(
        "/etc/cdi/nvidia.yaml",
        "",
        ("nvidia.com/gpu=0", "nvidia.com/gpu=all"),
        6,
        ("/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.1",),
        ("550.54.15",),
    )


def test_generated_specification_keeps_its_hook_arguments() -> None:
    tree = cdi.parse_yaml(GENERATED)
    assert tree["containerEdits"]["hooks"][0]["args"][3] == "../card1::/dev/dri/by-path/pci-0000:65:00.0-card"
    assert tree["cdiVersion"] == "0.5.0"


def test_specification_by_hand_with_flow_collections(tmp_path: Path) -> None:
    touch(tmp_path, "/dev/nvidiactl", "/dev/nvidia0", "/usr/local/nvidia/lib64/x")
    spec = cdi.parse_spec(BY_HAND, "/etc/cdi/nvidia.yaml", HostRoot(tmp_path, {}))
    assert spec is not None
    assert (spec.error, spec.devices, spec.files, spec.missing) == (
        "",
        ("nvidia.com/gpu=0", "nvidia.com/gpu=all"),
        3,
        (),
    )


def test_specification_in_json(tmp_path: Path) -> None:
    text = json.dumps(cdi.parse_yaml(GENERATED))
    read = cdi.parse_spec(text, "/etc/cdi/nvidia.json", HostRoot(tmp_path, {}))
    assert read is not None
    assert read.error == ""
    assert read.versions == ("550.54.15",)
    assert len(read.missing) == read.files == 6


def test_other_vendor_is_left_alone(tmp_path: Path) -> None:
    assert cdi.parse_spec("kind: vendor.com/net\ndevices: []\n", "/etc/cdi/net.yaml", HostRoot(tmp_path, {})) is None
    assert cdi.parse_spec("kind: [unclosed", "/etc/cdi/net.yaml", HostRoot(tmp_path, {})) is None


@pytest.mark.parametrize(
    "text",
    [
        "kind: nvidia.com/gpu\ndevices: &anchor\n- name: a\n",
        "kind: &name nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: *name}]}\n",
        "kind: nvidia.com/gpu\ndevices: !!set {}\n",
        "kind: nvidia.com/gpu\ndevices: |\n  text\n",
        "kind: nvidia.com/gpu\ndevices: [{name: a, name: b}]\n",
        "kind: nvidia.com/gpu\ndevices: " + "[" * 9_999 + "]" * 9_999,
        "kind: nvidia.com/gpu\n\tdevices: []\n",
        "kind: nvidia.com/gpu\nkind: nvidia.com/gpu\n",
        "kind: nvidia.com/gpu\ndevices:\n- just text\n",
        "kind: nvidia.com/gpu\ndevices: [{name: a}\n",
        "kind: nvidia.com/gpu\ncontainerEdits: text\n",
        "# nvidia.com\ndevices: []\n",
        "- nvidia.com/gpu\n",
        '{"kind": "nvidia.com/gpu", ',
    ],
)
def test_text_that_is_not_understood_is_an_error_and_not_an_empty_specification(text: str, tmp_path: Path) -> None:
    spec = cdi.parse_spec(text, "/etc/cdi/nvidia.yaml", HostRoot(tmp_path, {}))
    assert spec is not None
    assert spec.error


def test_specs_of_both_directories_each_file_once(tmp_path: Path) -> None:
    for directory in ("etc/cdi", "run/cdi"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "nvidia.yaml").write_text(BY_HAND)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    (tmp_path / "etc/cdi/notes.txt").write_text("nvidia.com")
    assert [spec.path for spec in cdi.specs(HostRoot(tmp_path, {})).need("specifications")] == [
        "/etc/cdi/nvidia.yaml",
        "/var/run/cdi/nvidia.yaml",
    ]


def test_a_specification_of_this_boot_alone_is_found(tmp_path: Path) -> None:
    (tmp_path / "var/run/cdi").mkdir(parents=True)
    (tmp_path / "var/run/cdi/nvidia.yaml").write_text(BY_HAND)
    (spec,) = cdi.specs(HostRoot(tmp_path, {})).need("specifications")
    assert spec.path == "/var/run/cdi/nvidia.yaml"


WORDS = st.text("abcdefghijklmnop/.-_0123456789", min_size=1, max_size=12).filter(
    lambda word: word[0] not in "-." and word not in ("null", "~")
)
TREES = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(WORDS, inner, min_size=1, max_size=3),
    max_leaves=12,
)


def block_style(tree: object, indent: int = 0) -> str:
    """The tree as the block YAML that Go's encoder writes."""
    pad = " " * indent
    if isinstance(tree, dict):
        return "".join(
            f"{pad}{key}: {value}\n" if isinstance(value, str) else f"{pad}{key}:\n{block_style(value, indent + 2)}"
            for key, value in tree.items()
        )
    if isinstance(tree, list):
        return "".join(f"{pad}- {block_style(item, indent + 2).lstrip(' ')}" for item in tree)
    return f"{pad}{tree}\n"


@given(TREES)
def test_block_yaml_gives_back_what_was_written(tree: object) -> None:
    assert cdi.parse_yaml(block_style(tree)) == tree


@given(st.lists(TREES, min_size=1, max_size=3))
def test_flow_yaml_gives_back_what_was_written(tree: object) -> None:
    assert cdi.parse_yaml(f"key: {json.dumps(tree)}\n") == {"key": tree}


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cdi.parse_yaml(text)
    except ValueError:
        return


def test_directory_that_is_none_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/cdi").write_text("no directory")
    with pytest.raises(NotADirectoryError):
        cdi.specs(HostRoot(tmp_path, {})).need("specifications")
    assert cdi.specs(HostRoot(tmp_path / "nothing", {})).value == ()


def test_hostile_files_are_named_or_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "etc/cdi"
    (folder / "folder-nvidia.yaml").mkdir(parents=True)
    os.mkfifo(folder / "pipe-nvidia.yaml")  # opening it would wait for ever
    (folder / "big-nvidia.yaml").write_bytes(b"kind: nvidia.com/gpu\n" + b"#" * (2 << 20))
    (folder / "deep.json").write_text('{"kind": "nvidia.com/gpu", "devices": ' + "[" * 100_000)
    (folder / "garbage-nvidia.yaml").write_bytes(bytes(range(256)))
    (folder / "link.yaml").symlink_to("link.yaml")
    found = {spec.path: spec.error for spec in cdi.specs(HostRoot(tmp_path, {})).need("specifications")}
    assert set(found) == {"/etc/cdi/big-nvidia.yaml", "/etc/cdi/deep.json"}
    assert found["/etc/cdi/big-nvidia.yaml"] == "/etc/cdi/big-nvidia.yaml has more than 1 MiB"
    assert found["/etc/cdi/deep.json"]


def test_links_are_followed_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "srv").mkdir()
    (tmp_path / "srv/spec.yaml").write_text(BY_HAND)
    (tmp_path / "etc/cdi/nvidia.yaml").symlink_to("/srv/spec.yaml")
    (spec,) = cdi.specs(HostRoot(tmp_path, {})).need("specifications")
    assert spec.path == "/etc/cdi/nvidia.yaml"
    assert spec.devices


def test_file_that_may_not_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    touch(tmp_path, "/dev/nvidiactl", "/usr/local/nvidia/x")
    (tmp_path / "dev/nvidia0").symlink_to("nvidia0")  # a circle cannot be looked at, whoever asks
    spec = cdi.parse_spec(BY_HAND, "/etc/cdi/nvidia.yaml", HostRoot(tmp_path, {}))
    assert spec is not None
    assert (spec.missing, spec.unseen) == ((), ("/dev/nvidia0",))
