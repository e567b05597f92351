"""The report page in a real browser: it draws, its button works, it asks the network nothing."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from coldsnap.render.report.html import report_html
from coldsnap.render.report.model import report_of

_spec = importlib.util.spec_from_file_location("histories", Path(__file__).parent / "histories.py")
histories = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(histories)

pytestmark = pytest.mark.browser

PROBE = """
<script>
addEventListener("load", () => {
  const lanes = [...document.querySelectorAll(".lane")];
  document.getElementById("toggle").click();
  const inside = lanes.every((lane) => {
    const bar = lane.firstElementChild.getBoundingClientRect(), rail = lane.getBoundingClientRect();
    return bar.width > 0 && bar.left >= rail.left - 1 && bar.right <= rail.right + 2;
  });
  const open = [...document.querySelectorAll("details")].every((item) => item.open);
  const fits = document.documentElement.scrollWidth <= innerWidth;
  const wholes = [...document.querySelectorAll("#races .whole")].map((row) => {
    const rail = row.querySelector(".lane").getBoundingClientRect();
    const bar = row.querySelector("i").getBoundingClientRect();
    const left = (bar.left - rail.left) / rail.width;
    return [row.querySelector(".name").textContent, left, bar.width / rail.width];
  });
  const asked = performance.getEntriesByType("resource").length;
  const page = getComputedStyle(document.body).backgroundColor;
  document.body.dataset.found = JSON.stringify({inside, open, fits, asked, page, wholes});
});
</script></body>
"""


def look(tmp_path: Path, *flags: str, width: int = 1200) -> dict:
    page = tmp_path / "report.html"
    text = report_html(report_of(histories.restored()))
    page.write_text(text.replace("</body>", PROBE))
    done = subprocess.run(
        [
            shutil.which("chromium"),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},1000",
            *flags,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stdout[-2000:]
    return json.loads(html.unescape(found[1]))


def test_page_draws_and_its_button_opens_the_spans(tmp_path) -> None:
    found = look(tmp_path)
    assert found["inside"]
    assert found["open"]
    assert found["fits"]
    assert found["asked"] == 0


def test_cold_start_and_restore_share_an_axis(tmp_path) -> None:
    """Drawn, not only told: each bar's part of its rail is its part of the longer time."""
    first, second, own, *_other_host = look(tmp_path)["wholes"]
    assert [name for name, _, _ in (first, second, own)] == ["cold start", "restore", "restore"]
    assert (first[1], first[2]) == pytest.approx((0, 1), abs=0.01)
    assert (second[1], second[2]) == pytest.approx((0, 2.7 / 49.8), abs=0.005)
    assert own[2] == pytest.approx(1, abs=0.01), "enlarged below"


def test_page_fits_a_narrow_window(tmp_path) -> None:
    assert look(tmp_path, width=520)["fits"]


def test_page_follows_the_dark_scheme(tmp_path) -> None:
    light = look(tmp_path)["page"]
    dark = look(tmp_path, "--blink-settings=preferredColorScheme=0")["page"]
    assert light == "rgb(246, 247, 249)"
    assert dark == "rgb(15, 20, 26)"
