from __future__ import annotations

from coldsnap.render.artifact_rungs import rungs_text

NOTE = {
    "rungs": {
        "ext": {
            "proven": True,
            "level": "pages",
            "pages": 160857,
            "bytes": 658870272,
            "reason": "the device has no room for a second engine",
        },
        "mmap": {"proven": False, "reason": "the unit was launched without memory_guard"},
    }
}


def test_each_rung_says_what_proved_it_or_why_not() -> None:
    lines = rungs_text({"process-image": NOTE}).splitlines()
    assert len(lines) == 3
    assert "628 MiB of pages" in lines[1]
    assert "proven" in lines[1]
    assert "every page, 160,857 equal; not asked: the device" in lines[1]
    assert "not proven" in lines[2]
    assert "without memory_guard" in lines[2]


def test_artifacts_without_one_and_damaged_notes() -> None:
    assert rungs_text({}) == ""
    assert rungs_text({"process-image": "x"}) == ""
    assert rungs_text({"process-image": {"rungs": [1]}}) == ""
    assert rungs_text({"process-image": {"rungs": {"ext": {"proven": 1, "pages": "x"}}}})
