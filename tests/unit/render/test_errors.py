"""Errors in the form the user reads, and as JSON that reads back."""

from __future__ import annotations

from coldsnap.artifact.errors import ColdSnapError, Source
from coldsnap.render.errors import error_json, error_text
from coldsnap.render.palette import Palette

UNKNOWN_FIELD = ColdSnapError(
    code="plan.unknown-field",
    message='unknown field "timout" in step "probe"',
    remedy='did you mean "timeout"?  See: coldsnap step show core.probe',
    source=Source("plans/x.yaml", 9, 5, "    timout: 30s", "    type: core.probe", width=6),
)
CHANGED_LIBRARY = ColdSnapError(
    code="restore.library-changed",
    message="/opt/venv/libtorch_cuda.so is not the file that was captured",
    where="gpu-2",
    details=(
        "captured sha256:ab12.. (1,204,117,888 bytes), found sha256:99f0.. (same size)",
        "nothing was evicted; generation 11 still serves",
    ),
    cause="the image was rebuilt",
    remedy="restore the captured image digest",
)


def test_shows_the_guilty_line_and_underlines_it() -> None:
    assert error_text(UNKNOWN_FIELD).splitlines() == [
        'error[plan.unknown-field]: unknown field "timout" in step "probe"',
        "  plans/x.yaml:9:5",
        "    8 |     type: core.probe",
        "  > 9 |     timout: 30s",
        "      |     ^^^^^^",
        '  hint: did you mean "timeout"?  See: coldsnap step show core.probe',
    ]


def test_says_where_what_why_and_what_to_do() -> None:
    assert error_text(CHANGED_LIBRARY).splitlines() == [
        (
            "error[restore.library-changed]: gpu-2: /opt/venv/libtorch_cuda.so is not the file"
            " that was captured"
        ),
        "  captured sha256:ab12.. (1,204,117,888 bytes), found sha256:99f0.. (same size)",
        "  nothing was evicted; generation 11 still serves",
        "  cause: the image was rebuilt",
        "  remedy: restore the captured image digest",
    ]


def test_more_errors_of_the_same_pass_follow() -> None:
    both = ColdSnapError("a.b", "first", more=(UNKNOWN_FIELD,))
    assert error_text(both).split("\n\n")[0] == "error[a.b]: first"
    assert "timout: 30s" in error_text(both).split("\n\n")[1]


def test_json_reads_back() -> None:
    both = ColdSnapError("a.b", "first", more=(UNKNOWN_FIELD, CHANGED_LIBRARY))
    read = ColdSnapError.from_json(error_json(both)["error"])
    assert error_text(read) == error_text(both)


def test_hostile_details_are_one_printable_line() -> None:
    shown = error_text(ColdSnapError("a.b", "x\x1b]0;owned\x07", details=("a\nb\x9b2J",)))
    assert shown.splitlines() == ["error[a.b]: x?]0;owned?", "  a b?2J"]


def test_a_flood_of_details_is_cut() -> None:
    shown = error_text(ColdSnapError("a.b", "x", details=tuple(map(str, range(100)))))
    assert shown.splitlines()[-1] == "  ... and 80 more lines"


def test_line_numbers_of_two_widths_stay_aligned() -> None:
    error = ColdSnapError("a.b", "x", source=Source("f", 10, 1, "ten", "nine"))
    assert error_text(error).splitlines()[2:] == ["     9 | nine", "  > 10 | ten", "       | ^"]


def test_colour_only_when_asked() -> None:
    assert "\x1b[" not in error_text(UNKNOWN_FIELD)
    assert "\x1b[1;31m" in error_text(UNKNOWN_FIELD, Palette(True))


def test_what_is_wrong_in_a_long_line_is_in_sight() -> None:
    text = "a" * 300 + "WRONG" + "b" * 300
    shown = error_text(ColdSnapError("x.y", "m", source=Source("f", 1, 301, text, width=5)))
    guilty, marks = shown.splitlines()[2:4]
    assert len(guilty) < 180
    assert guilty[marks.index("^") : marks.rindex("^") + 1] == "WRONG"
