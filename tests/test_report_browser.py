"""The pages of HTML in a real Chromium: at the widths of a desk and of a phone, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import machines
import pytest
from clocks import PATIENCE_S

from envkit.cli.verdict import judged_report
from envkit.facts import load
from envkit.model import Report, Subject
from envkit.report import Table, render, summary
from envkit.subjects import Image, SmokeRun
from envkit.subjects.codec import from_plain

DATA = Path(__file__).parent / "data"
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,  # a browser takes seconds to start
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
WIDTHS = (1200, 390)
SCHEMES = ("light", "dark")
# In each frame: how wide the page is, whether any text stands on a color like its own, and what is shown.
LOOK = """
const light = (color) => {
  const part = color.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
};
const look = (frame) => {
  const page = frame.contentDocument, root = page.documentElement;
  const back = light(frame.contentWindow.getComputedStyle(page.body).backgroundColor);
  let least = 99;
  for (const one of page.querySelectorAll("h1, h2, p, td, th, dd, dt, summary, label, b")) {
    if (!one.textContent.trim() || !one.getClientRects().length) continue;
    const front = light(frame.contentWindow.getComputedStyle(one).color);
    least = Math.min(least, (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
  }
  const shown = (words) => [...page.querySelectorAll(words)].filter((one) => one.checkVisibility()).length;
  const seen = {wide: root.scrollWidth, room: root.clientWidth, back, least,
    all: shown("tr.line"), folds: shown("details"), names: shown("details p")};
  const found = page.getElementById("show-found");
  if (found) { found.click(); seen.found = shown("tr.line"); seen.foldsThen = shown("details"); }
  return seen;
};
onload = () => {
  document.getElementById("out").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
};
"""


def _document(kind: str, name: str) -> Any:
    return json.loads((DATA / kind / f"{name}.json").read_text())


def _pages(folder: Path) -> dict[str, str]:
    """A page of each verb, of recorded subjects and of a Dockerfile."""
    (folder / "Dockerfile").write_text("FROM pytorch/pytorch\nRUN pip install torch==2.6.0\n")
    words = [sys.executable, "-m", "envkit", "check", str(folder), "--format", "html"]
    checked = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    seen = from_plain(Image, _document("image", "torch-2.6-cu124"))
    run = from_plain(SmokeRun, _document("smoke", "torch-2.6-cu124-cpu"))
    probe, tables = judged_report("image", seen, 0.0, summary.image(seen))
    smoke, tests = judged_report("smoke", run, 0.0, (*summary.smoke(run), *summary.speeds(run, load())))
    doctor, _ = judged_report("host", machines.host("bare"), 0.0)
    up = Report(Subject("up", "train"), probe.results + smoke.results, 1.0)

    def page(report: Report, tables: tuple[Table, ...]) -> str:
        return render(report, "html", tables=tables, bars=summary.bars(run, load()))

    return {
        "probe": page(probe, tables), "smoke": page(smoke, tests), "up": page(up, (*tables, *tests)),
        "doctor": page(doctor, summary.host(doctor.results)), "check": checked,
    }  # fmt: skip


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int, str], dict[str, Any]]:
    """What a browser shows of each page at each width in each color scheme."""
    folder = tmp_path_factory.mktemp("browser")
    pages = _pages(folder)
    places = [(name, width, scheme) for name in pages for width in WIDTHS for scheme in SCHEMES]
    frames = "".join(
        f'<iframe style="color-scheme: {scheme}; width: {width}px; height: 900px; border: 0" '
        f'srcdoc="{html.escape(pages[name])}"></iframe>'
        for name, width, scheme in places
    )
    file = folder / "frames.html"
    file.write_text(f'<!DOCTYPE html><meta charset="utf-8"><pre id="out"></pre>{frames}<script>{LOOK}</script>')
    assert CHROMIUM is not None
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    done = subprocess.run(
        [*words, "--virtual-time-budget=60000", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="out">(.+?)</pre>', done.stdout)
    assert found, (done.returncode, done.stderr[-2000:])
    return dict(zip(places, json.loads(html.unescape(found[1])), strict=True))


def test_no_page_is_wider_than_its_window(looked: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    assert {place: seen for place, seen in looked.items() if seen["wide"] > seen["room"]} == {}
    assert {seen["room"] for (_, width, _), seen in looked.items() if width == 390} <= set(range(370, 391))


def test_each_scheme_has_its_colors_and_all_text_is_read(
    looked: dict[tuple[str, int, str], dict[str, Any]],
) -> None:
    for (name, _, scheme), seen in looked.items():
        assert (seen["back"] > 0.8) == (scheme == "light") and (seen["back"] < 0.1) == (scheme == "dark"), name
    # 4.5 to 1 is what WCAG 2.1 asks of text (criterion 1.4.3)
    assert {place: seen["least"] for place, seen in looked.items() if seen["least"] < 4.5} == {}


def test_what_was_skipped_is_folded_and_a_filter_leaves_what_was_found(
    looked: dict[tuple[str, int, str], dict[str, Any]],
) -> None:
    for place, seen in looked.items():
        assert seen["all"] > seen["found"] and seen["folds"] > 0, place
        assert seen["names"] == seen["foldsThen"] == 0, place
