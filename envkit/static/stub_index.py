"""PyTorch's own indexes by the facts, for where they cannot be asked: pages of wheels that hold METADATA alone."""

from __future__ import annotations

import zipfile
from pathlib import Path

from envkit.facts import Facts
from envkit.subjects.resolved import Dist
from envkit.versions import Python


class StubIndexes:
    """Indexes in folders below ``folder``, made when they are asked for; ``unreached`` are the hosts that do not
    answer, and ``dists`` what the pages hold."""

    def __init__(self, facts: Facts, folder: Path) -> None:
        self.facts, self.folder = facts, folder
        self.unreached: set[str] = set()
        self.dists: list[Dist] = []

    def of(self, variant: str, python: Python, machine: str) -> str:
        """The address of the index of one variant ("cuXYZ", "cpu"), for one Python."""
        root = self.folder / f"{variant}-{python}-{machine}"
        if not root.exists():
            self._make(root, variant, f"cp{python.major}{python.minor}", machine)
        return root.as_uri()

    def newest(self, before: str) -> str:
        """The newest release of torch on a day, "" where the facts know none."""
        found = [row.torch for row in self.facts.torches_all if row.default and row.released and row.released <= before]
        return str(max(found)) if found else ""

    def _make(self, root: Path, variant: str, tag: str, machine: str) -> None:
        pages: dict[str, dict[str, str]] = {"torch": {}, "torchvision": {}, "torchaudio": {}}
        for row in self.facts.torches_all:
            held = row.default if variant == "cpu" else row.variant == variant and row.published is not False
            if not held or (row.pythons and tag not in row.pythons):
                continue
            release = f"{row.torch}+{variant}"
            pages["torch"][release] = ""
            for name, mates in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
                for mate in mates or ():
                    pages[name][f"{mate}+{variant}"] = f"torch=={row.torch}"
        for name, releases in pages.items():
            page = root / name
            page.mkdir(parents=True)
            links = []
            for version, requires in releases.items():
                file = f"{name}-{version}-{tag}-{tag}-linux_{machine}.whl"
                info = f"{name}-{version}.dist-info"
                with zipfile.ZipFile(page / file, "w") as wheel:
                    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
                    lines += [f"Requires-Dist: {requires}"] if requires else []
                    wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
                    wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: envkit\nTag: {tag}-{tag}-any\n")
                    wheel.writestr(f"{info}/RECORD", "")
                links.append(f'<a href="{file.replace("+", "%2B")}">{file}</a>')
                self.dists.append(Dist(name, version, (requires,) if requires else ()))
            (page / "index.html").write_text(
                f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>\n", encoding="utf-8"
            )
