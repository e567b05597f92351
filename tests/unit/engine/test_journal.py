from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.engine.journal import GENESIS, Journal, sealed, verify


def write(path: Path, *, seal: bool = False, records: int = 6) -> bytes:
    journal = Journal.create(path)
    journal.append("run.header", {"run": "R", "format": 1})
    for number in range(records):
        journal.append("step.observed", {"n": number, "seen": {"text": "ä\n", "none": None}})
    if seal:
        journal.append("run.closed", {"state": "succeeded", "exit_code": 0})
    journal.close()
    return path.read_bytes()


def test_chain_links_every_record_to_the_one_before(tmp_path: Path) -> None:
    write(tmp_path / "j")
    found = verify(tmp_path / "j")
    assert found.intact
    assert [record.seq for record in found.records] == [1, 2, 3, 4, 5, 6, 7]
    assert found.records[0].prev == GENESIS
    assert [r.prev for r in found.records[1:]] == [r.sha256 for r in found.records[:-1]]
    assert found.records[3].body == {"n": 2, "seen": {"text": "ä\n", "none": None}}


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_single_byte_edit_is_detected(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "j"
    if not path.exists():
        write(path, seal=True)
        (tmp_path / "original").write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "original").read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
    content[place] = byte
    path.write_bytes(content)
    found = verify(path)
    assert not found.intact
    # Only the end of the last line can be mistaken for a torn write; the seal is lost then.
    if found.fault is None:
        assert place == len(content) - 1
        assert sealed(found.records) is None


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_reordering_deleting_and_doubling_lines_is_detected(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "j"
    if not (tmp_path / "original").exists():
        (tmp_path / "original").write_bytes(write(path))
    lines = (tmp_path / "original").read_bytes().splitlines(keepends=True)
    first = data.draw(st.integers(0, len(lines) - 2))
    second = data.draw(st.integers(first + 1, len(lines) - 1))
    kind = data.draw(st.sampled_from(["swap", "delete", "double"]))
    if kind == "swap":
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == "delete":
        del lines[first]
    else:
        lines.insert(second, lines[first])
    path.write_bytes(b"".join(lines))
    fault = verify(path).fault
    assert fault is not None
    assert fault.code == "journal.tampered"
    assert "line" in fault.message


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(1, 200))
def test_torn_last_line_is_cut_off_and_reported(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    path.unlink(missing_ok=True)
    content = write(path)
    last = len(content.splitlines(keepends=True)[-1])
    cut = min(cut, last - 1)
    os.truncate(path, len(content) - cut)
    found = verify(path)
    assert found.fault is None
    assert found.torn_bytes == last - cut
    assert len(found.records) == 6
    journal, _ = Journal.reopen(path)
    journal.append("step.observed", {"after": "repair"})
    journal.close()
    again = verify(path)
    assert again.intact
    assert [r.kind for r in again.records[-2:]] == ["journal.repaired", "step.observed"]
    assert again.records[-2].body == {"dropped_bytes": last - cut}


def test_zeros_after_a_power_cut_are_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    content = write(path)
    path.write_bytes(content + b"\0" * 4096)
    found = verify(path)
    assert found.fault is None
    assert found.torn_bytes == 4096


def test_nothing_may_follow_the_seal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    content = write(path, seal=True)
    path.write_bytes(content + b'{"kind":')
    fault = verify(path).fault
    assert fault is not None
    assert "seal" in fault.message
    path.write_bytes(content)
    journal, _ = Journal.reopen(path)
    journal.append("step.observed", {})
    journal.close()
    fault = verify(path).fault
    assert fault is not None
    assert "seal" in fault.message


def test_tampered_journal_is_not_reopened(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(write(path).replace(b'"n":3', b'"n":4'))
    with pytest.raises(ColdSnapError) as caught:
        Journal.reopen(path)
    assert caught.value.code == "journal.tampered"
    assert "line 5" in caught.value.message


def test_what_is_not_json_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j")
    journal.append("run.header", {})
    size = (tmp_path / "j").stat().st_size
    with pytest.raises(ColdSnapError):
        journal.append("step.done", {"outputs": {"bad": float("nan")}})
    assert (tmp_path / "j").stat().st_size == size
    journal.append("step.done", {"outputs": {}})
    assert verify(tmp_path / "j").intact


def test_threads_share_the_chain(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j")

    def work(name: int) -> None:
        for number in range(20):
            journal.append("step.observed", {"thread": name, "n": number})

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify(tmp_path / "j")
    assert found.intact
    assert len(found.records) == 160
    for name in range(8):
        own = [r.body["n"] for r in found.records if r.body["thread"] == name]
        assert own == list(range(20))


def test_disk_full_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    write(path)
    journal, found = Journal.reopen(path)
    size = path.stat().st_size
    real = os.write
    calls = []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return real(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ColdSnapError) as caught:
        journal.append("step.observed", {"n": 99})
    monkeypatch.undo()
    assert caught.value.code == "file.disk-full"
    assert path.stat().st_size == size
    journal.append("step.observed", {"n": 100})
    assert verify(path).intact
    assert len(verify(path).records) == len(found.records) + 1


def test_records_are_readable_by_any_json_reader(tmp_path: Path) -> None:
    write(tmp_path / "j")
    for line in (tmp_path / "j").read_text("ascii").splitlines():
        assert {"kind", "seq", "time", "prev", "sha256"} <= set(json.loads(line))
