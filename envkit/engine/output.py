"""What a container writes while it runs: read as it comes, and never more of it held than its limits allow."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

from envkit.engine import Say

_STDOUT_LIMIT = 32 << 20  # bytes of one run, all kept; a probe's document is under one MiB, a large model's about ten
_STDERR_LIMIT = 64 << 20  # bytes of one run, passed on as they come; a suite says a few KiB, verbose libraries some MiB
_STDERR_KEPT = 64 << 10  # bytes of its end, for the message that says why a run died
_LINE = 16 << 10  # bytes after which a line is passed on though it has not ended


class Output:
    """Reads an attached container's two streams in a thread of its own, until they end.

    Of stdout all is kept up to its limit, of stderr its end; whatever a container writes, no more than that is held.
    """

    def __init__(self, frames: Iterable[tuple[int, bytes]], say: Say) -> None:
        self._frames = frames  # the number of a stream (1 or 2) and what came of it
        self._say = say
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._seen = {1: 0, 2: 0}
        self.overflow = ""  # what was too much
        self._partial = b""
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        # A connection cut short ends the streams; the container's own end tells the rest.
        with suppress(OSError, ValueError):
            for stream, chunk in self._frames:
                if self.overflow:
                    continue  # and read on: the engine cannot kill a container whose output is stuck
                self._seen[stream] += len(chunk)
                if stream == 1:
                    self._stdout += chunk
                    if self._seen[1] > _STDOUT_LIMIT:
                        self.overflow = f"{_STDOUT_LIMIT >> 20} MiB to stdout"
                else:
                    self._take(chunk)
                    if self._seen[2] > _STDERR_LIMIT:
                        self.overflow = f"{_STDERR_LIMIT >> 20} MiB to stderr"
        if self._partial:
            self._tell(self._partial)

    def _take(self, chunk: bytes) -> None:
        self._stderr += chunk
        if len(self._stderr) > 2 * _STDERR_KEPT:
            del self._stderr[:-_STDERR_KEPT]
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._tell(line)
        if len(self._partial) > _LINE:
            self._tell(self._partial)
            self._partial = b""

    def _tell(self, line: bytes) -> None:
        try:
            self._say(line.decode("utf-8", "replace"))
        except OSError:  # the listener has gone (a closed pipe); the run goes on
            self._say = lambda line: None

    def start(self) -> None:
        """Starts to read."""
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Waits for both streams to end, at most ``seconds``."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def stdout(self) -> str:
        """All of it, bad bytes replaced."""
        return self._stdout.decode("utf-8", "replace")

    def stderr(self) -> str:
        """Its end, bad bytes replaced."""
        return self._stderr[-_STDERR_KEPT:].decode("utf-8", "replace")
