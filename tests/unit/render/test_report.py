"""Run reports: figures, text against golden files, the HTML page."""

from __future__ import annotations

import importlib.util
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coldsnap.render.report.html import report_html
from coldsnap.render.report.model import report_of
from coldsnap.render.report.text import closing_text, report_text
from coldsnap.render.report.waterfall import lanes_of, waterfall_text

GOLDEN = Path(__file__).parent / "golden"

_spec = importlib.util.spec_from_file_location("histories", Path(__file__).parent / "histories.py")
histories = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(histories)


@pytest.fixture(autouse=True)
def _utc(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "UTC")

    time.tzset()


@pytest.mark.parametrize("name", ["restored", "captured", "failed"])
def test_text_is_golden(name: str, golden) -> None:
    report = report_of(getattr(histories, name)())
    golden(GOLDEN / f"run-{name}.txt", report_text(report) + "\n")


def test_a_restore_ends_in_the_figures_that_matter() -> None:
    said = closing_text(report_of(histories.restored(("gpu-1",))), ".coldsnap/runs/01R")
    assert said.splitlines() == [
        (
            " restored  qwen3-8b-restore   u0 on gpu-1   2.7 s to first token"
            "   cold start 50 s   18x   same answer: yes"
        ),
        "   process 0.9 s   hydrate 0.4 s (16 GiB, 43 GB/s)   first token 0.1 s",
        "   weights by recovery (given up: native: pack.damaged)",
        (
            f" run {histories.RUN}; receipt .coldsnap/runs/01R/receipt.json;"
            f" coldsnap runs report {histories.RUN} --html report.html"
        ),
    ]


def test_a_cold_start_is_not_called_a_restore() -> None:
    found = histories.restored(("gpu-1",))
    fault = {"provider": "restore", "code": "provider.none-works", "reason": "x"}
    for instance in found.instances.values():
        if "provider" in instance.outputs:
            cold = {"policy": "auto", "used": "cold", "faults": [fault]}
            instance.outputs = {**instance.outputs, "provider": cold}
    report = report_of(found)
    said = closing_text(report).splitlines()
    assert said[0] == (
        " started cold  qwen3-8b-restore   u0 on gpu-1   2.7 s to first token"
        "   cold start at the capture 50 s   same answer: yes"
    )
    assert "   started cold (given up: restore: provider.none-works)" in said
    (race,) = report.races
    assert race.ratio is None
    assert "restore" not in {lane.label for lane in lanes_of(race)}


def test_what_a_native_restore_could_not_have_fallen_back_to_is_a_note() -> None:
    found = histories.restored(("gpu-1",))
    fault = {"provider": "recovery", "code": "recovery.model-changed", "reason": "x"}
    for instance in found.instances.values():
        if "provider" in instance.outputs:
            native = {"policy": "auto", "used": "native", "faults": [fault]}
            instance.outputs = {**instance.outputs, "provider": native}
    said = closing_text(report_of(found))
    assert "given up" not in said
    note = "   weights by native; recovery would not be possible: recovery.model-changed"
    assert note in said.splitlines()


def test_spans_stand_where_their_host_says() -> None:
    report = report_of(histories.restored(("gpu-1",)))
    bars = {bar.step: bar for _, bars in report.hosts for bar in bars}
    process, inner = bars["demo.restore"].spans
    assert (process.name, process.depth) == ("process", 0)
    assert process.start == pytest.approx(2.15)
    assert (inner.name, inner.depth) == ("read image", 1)


def test_both_waterfalls_lie_on_one_axis() -> None:
    (race,) = report_of(histories.restored(("gpu-1",))).races
    assert race.span == pytest.approx(49.8)
    lanes = {(lane.kind, lane.label): lane for lane in lanes_of(race)}
    assert lanes["cold", "weights"].depth == 2
    assert lanes["cold", "weights"].start == 20.0
    assert lanes["restore", "hydrate"].start == pytest.approx(3.3 - 2.15), "from its own start"
    assert lanes["restore", "hydrate"].note == "16 GiB, 43 GB/s"
    rows = waterfall_text(race).splitlines()
    assert "weights by recovery (given up: native: pack.damaged)" in rows[1]
    bars = {row.split()[0]: row.count("█") for row in rows if "█" in row}
    assert bars["cold"] == 40
    assert bars["ready"] == 39
    assert bars["restore"] == 2, "2.7 of 49.8 s"
    assert bars["hydrate"] == 1, "what is too short to see is seen all the same"


def test_a_capture_that_knows_no_phases_has_one_bar() -> None:
    found = histories.restored(("gpu-1",))
    for instance in found.instances.values():
        outputs = {k: v for k, v in instance.outputs.items() if k != "cold_start"}
        instance.outputs = outputs
    (race,) = report_of(found).races
    assert [lane.label for lane in lanes_of(race) if lane.kind == "cold"] == ["cold start"]


def test_a_host_whose_clock_is_off_is_moved_to_its_step() -> None:
    wrong = histories.restored(("gpu-1",))
    for instance in wrong.instances.values():
        timing = instance.outputs.get("timing")
        if timing:
            timing["clocks"][0]["origin_unix_ns"] += 3600 * 10**9
    bars = {bar.step: bar for _, bars in report_of(wrong).hosts for bar in bars}
    assert bars["demo.restore"].spans[0].start == pytest.approx(2.1)


@pytest.mark.parametrize(
    "timing",
    [
        None,
        "x",
        {"clocks": "x", "spans": 3},
        {"clocks": [{}], "spans": [{"id": "a", "parent": "a"}, {"start_offset_seconds": "x"}]},
        {
            "spans": [
                {"id": "a", "parent": "a", "start_offset_seconds": 1, "duration_seconds": True}
            ]
        },
    ],
)
def test_nonsense_from_a_host_is_left_out(timing) -> None:
    found = histories.restored(("gpu-1",))
    for instance in found.instances.values():
        instance.outputs = {**instance.outputs, "timing": timing}
    report = report_of(found)
    assert all(not bar.spans for _, bars in report.hosts for bar in bars)
    assert report_html(report)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href") and v is not None]


@pytest.mark.parametrize("name", ["restored", "captured", "failed"])
def test_the_page_asks_nothing_of_the_network(name: str) -> None:
    text = report_html(report_of(getattr(histories, name)()))
    page = Page()
    page.feed(text)
    assert page.links == ["data:,"]
    assert not re.search(r"https?://|url\(|@import", text)


def test_text_of_hosts_is_escaped() -> None:
    text = report_html(report_of(histories.failed()))
    assert "&lt;b&gt;could&lt;/b&gt;" in text
    assert "<b>could" not in text


def test_residual_bytes_are_not_counted_twice() -> None:
    found = histories.captured()
    for instance in found.instances.values():
        if "capture" in instance.outputs:
            instance.outputs["capture"]["sizes"]["residual"] = 100 << 20
    text = report_html(report_of(found))
    assert "<b>420 MiB</b>" in text
    assert "residual" in text


def test_bars_stay_inside_the_page() -> None:
    text = report_html(report_of(histories.restored()))
    for left, width in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", text):
        assert 0 <= float(left) <= 100
        assert float(left) + float(width) <= 100.3
