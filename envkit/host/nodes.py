"""Opens the driver's device files, one after the other; runs as a child, for an open can hang in the driver.

Prints the list of paths first and then how each open went, so that a hang names its file.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

# /dev/nvidia0 ...; nvidiactl and nvidia-uvm are what CUDA opens besides; /dev/dxg is the GPU of WSL
_NODE = re.compile(r"nvidia[0-9]+|nvidiactl|nvidia-uvm|nvidia-modeset|dxg")


def paths(root: Path) -> list[Path]:
    """The driver's device files under ``root``, as in the listing of /dev."""
    return sorted(path for path in (root / "dev").iterdir() if _NODE.fullmatch(path.name))


def try_open(path: Path) -> str:
    """Why the file cannot be opened as a device for reading and writing; empty if it can."""
    try:
        if not stat.S_ISCHR(path.stat().st_mode):
            return "it is not a character device"
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


if __name__ == "__main__":
    base = Path(sys.argv[1])
    nodes = paths(base)
    print(json.dumps({"nodes": ["/" + str(node.relative_to(base)) for node in nodes]}), flush=True)
    for node in nodes:
        print(json.dumps({"/" + str(node.relative_to(base)): try_open(node)}), flush=True)
