"""How much a step has brought over the network, by what BuildKit, uv and pip print of it, and how fast."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

# BuildKit of a layer and of the context: "sha256:ab12 1.05MB / 29.12MB 0.2s", "transferring context: 2.10MB 0.1s".
_LAYER = re.compile(r"(sha256:[0-9a-f]+|transferring [\w-]+:) ([0-9.]+) ?([kMGT]?B)\b")
# uv without a terminal: "Downloading numpy (16.1MiB)", and when it has it " Downloaded numpy".
_BEGUN = re.compile(r"\s*Downloading (\S+) \(([0-9.]+) ?([kKMGT]?i?B)\)")
_DONE = re.compile(r"\s*Downloaded (\S+)$")
_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}  # fmt: skip


class Transfer:
    """The bytes that have come since it was made; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._came: dict[str, int] = {}
        self._coming: dict[str, int] = {}

    def line(self, text: str) -> bool:
        """Takes a line of the step's output; whether it told of bytes that have come."""
        if layer := _LAYER.match(text):
            self.reached(layer[1], _size(layer[2], layer[3]))
        elif begun := _BEGUN.match(text):
            self._coming[begun[1]] = _size(begun[2], begun[3])
            return False
        elif (done := _DONE.match(text)) and done[1] in self._coming:
            self.reached(done[1], self._coming.pop(done[1]))
        else:
            return False
        return True

    def reached(self, name: str, size: int) -> None:
        """Of the piece ``name`` as many bytes have come."""
        self._came[name] = max(size, self._came.get(name, 0))

    @property
    def size(self) -> int:
        """The bytes."""
        return sum(self._came.values())

    def __str__(self) -> str:
        """ "1,234 MB, 88.0 MB/s"; empty where less than a tenth of a MB came."""
        megabytes, seconds = self.size / 1e6, max(self._clock() - self._began, 0.001)
        return f"{megabytes:,.1f} MB, {megabytes / seconds:,.1f} MB/s" if megabytes >= 0.1 else ""


def _size(number: str, unit: str) -> int:
    try:
        return round(float(number) * _UNITS[unit])
    except (ValueError, KeyError):  # "1.2.3" is no number
        return 0
