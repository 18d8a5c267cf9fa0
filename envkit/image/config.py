"""What an image's configuration says of its processes, without a look at its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What Docker gives to a container whose image names no PATH (oci/caps of moby, DefaultPathEnv).
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def variables(config: Mapping[str, Any]) -> dict[str, str]:
    """The environment that an image's configuration sets."""
    pairs = (str(line).partition("=") for line in config.get("Env") or ())
    return {name: value for name, _, value in pairs}
