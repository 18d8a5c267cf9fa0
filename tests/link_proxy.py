"""A proxy between the ranks of a trial, which plays a link: it corrupts, drops or delays what is behind the first
mebibyte, so that ranks still meet.  `link_proxy.c` sends their connections through it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

Play = Literal["clean", "corrupt", "drop", "delay"]
_BEHIND = 1 << 20
_SLEPT_S = 0.01  # for each piece


def compiler() -> str:
    """The C compiler of this machine, "" where it has none."""
    return shutil.which("cc") or ""


def library(folder: Path) -> Path:
    """The compiled `link_proxy.c`."""
    made = folder / "link_proxy.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler(), "-shared", "-fPIC", "-Wall", "-o", made, source, "-ldl"], check=True, timeout=60)
    return made


class Proxy:
    """Listens on ``port`` of the loopback; ``passed`` are the bytes that came, ``played`` the pieces touched."""

    def __init__(self, play: Play) -> None:
        self.play, self.passed, self.played = play, 0, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        line = b""
        while not line.endswith(b"\n"):
            line += near.recv(1)
        address, port = line.decode().split()
        far = socket.create_connection((address.replace("::ffff:", ""), int(port)))
        for one, two in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(one, two), daemon=True).start()

    def _pump(self, one: socket.socket, two: socket.socket) -> None:
        seen = 0
        with suppress(OSError):
            while piece := one.recv(1 << 16):
                seen += len(piece)
                self.passed += len(piece)
                if seen > _BEHIND and self.play != "clean":
                    self.played += 1
                    if self.play == "drop":
                        continue
                    if self.play == "delay":
                        time.sleep(_SLEPT_S)
                    elif self.played == 1:  # one byte, far from the head of a message
                        piece = piece[:-100] + bytes([piece[-100] ^ 1]) + piece[-99:]
                two.sendall(piece)
            two.shutdown(socket.SHUT_WR)
