"""Writes docs/terminal.svg, the picture in README.md: what envkit prints in a terminal, drawn by rich.

    python scripts/terminal_svg.py [--check]

The commands below are run, each with a terminal as its output.  The picture loads nothing: rich's own form of it would
fetch a font from another host.  With --check nothing is written, and the exit code is 1 where the picture is not what
it would be.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from envkit.system import files

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "terminal.svg"
COLUMNS = 100

FILES = {
    "Dockerfile": "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n"
    "RUN apt-get update && apt-get install -y --no-install-recommends python3-pip && rm -rf /var/lib/apt/lists/*\n"
    "RUN pip3 install --no-cache-dir torch==2.6.0\n",
    "job.log": "Traceback (most recent call last):\n"
    '  File "/workspace/train.py", line 12, in <module>\n'
    "    loss = model(batch.cuda()).sum()\n"
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
}
COMMANDS = (("check", "Dockerfile"), ("explain", "job.log"))


def printed(words: tuple[str, ...], folder: Path) -> str:
    """What ``envkit`` prints in a terminal of ``COLUMNS``, with its colours."""
    mine, its = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS), "LINES": "50",
    }  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "envkit", *words], cwd=folder, env=environment, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    said = bytearray()
    while True:
        try:
            part = os.read(mine, 65536)
        except OSError:  # Linux says EIO where the other end was closed
            break
        said += part
    child.wait()
    os.close(mine)
    return said.decode().replace("\r\n", "\n")


def picture() -> str:
    """The picture of all commands, one below the other."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in FILES.items():
            folder.joinpath(file).write_text(text, encoding="utf-8")
        for words in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), ("envkit " + " ".join(words), "bold")))
            console.print(Text.from_ansi(printed(words, folder).rstrip("\n")))
            console.print()
    svg = console.export_svg(title="envkit", unique_id="envkit")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def main() -> int:
    """Writes the picture, or says whether it is current."""
    svg = picture()
    if re.search(r"url\(\W*https?:|(?:href|src)\s*=|@import|@font-face", svg):
        print("the picture would load something from another host", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        return int(not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != svg)
    files.write(PICTURE, svg)
    print(f"{PICTURE.relative_to(ROOT)}: {len(svg.encode())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
