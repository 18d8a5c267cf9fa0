"""The engine's own store, where this process can read it: no image has to be saved to be examined."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from envkit.engine.docker_run import REMAPPED, ROOTLESS


def unpacked(info: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[bytes, tuple[Path, ...]]:
    """The configuration and the layers' folders in the store of the driver overlay2, or nothing.

    The store is this engine's only if a configuration in it has the image's id for its hash: the engine may run on
    another machine that has the same paths.
    """
    driver = facts.get("GraphDriver") or {}
    places = driver.get("Data") or {}
    status = {pair[0]: pair[1] for pair in info.get("DriverStatus") or () if len(pair) == 2}
    # Owners are shifted by the first two, and redirected directories or files without content by the others.
    options = " ".join(map(str, info.get("SecurityOptions") or ()))
    shifted = ROOTLESS in options or REMAPPED in options
    plain = status.get("Native Overlay Diff") == "true" and status.get("Using metacopy") == "false"
    if driver.get("Name") != "overlay2" or shifted or not plain or not sees_trusted():
        return b"", ()
    stack = [places.get("UpperDir") or "", *(places.get("LowerDir") or "").split(":")]
    roots = tuple(Path(path) for path in reversed(stack) if path)
    digest = str(facts["Id"]).removeprefix("sha256:")
    kept = Path(str(info.get("DockerRootDir", "")), "image/overlay2/imagedb/content/sha256", digest)
    try:
        config = kept.read_bytes()
    except OSError:
        return b"", ()
    layers = facts["RootFS"].get("Layers") or ()
    readable = all(os.access(root, os.R_OK | os.X_OK) for root in roots)
    if sha256(config).hexdigest() != digest or len(roots) != len(layers) or not readable:
        return b"", ()
    return config, roots


def sees_trusted() -> bool:
    """Whether the kernel shows this process the attributes named trusted.*, by which overlay marks directories: that
    takes CAP_SYS_ADMIN (bit 21 of linux/capability.h) in the first user namespace, xattr(7)."""
    try:
        status, mapped = Path("/proc/self/status").read_text(), Path("/proc/self/uid_map").read_text()
    except OSError:
        return False
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.M)
    return held is not None and bool(int(held[1], 16) >> 21 & 1) and mapped.split() == ["0", "0", str(2**32 - 1)]
