"""Archives are unpacked alike by every Python, with extraction filters and without."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from coldsnap.store.archive import unpack


@pytest.fixture(params=["filters", "no filters"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12's Python 3.11.2 has none."""
    if request.param == "no filters":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


def made(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for member in members:
            data = b"x" * member.size
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname = kind, mode, "/etc/passwd"
    member.size = 3 if kind == tarfile.REGTYPE else 0
    return member


def test_files_come_with_their_rights(tmp_path: Path) -> None:
    archive = made(tmp_path / "a.tar", entry("bin/run", mode=0o755), entry("criu/criu"))
    unpack(archive, tmp_path / "all")
    assert (tmp_path / "all/bin/run").read_bytes() == b"xxx"
    assert (tmp_path / "all/bin/run").stat().st_mode & 0o777 == 0o755
    unpack(archive, tmp_path / "part", under="criu/")
    assert [p.name for p in (tmp_path / "part").iterdir()] == ["criu"]


@pytest.mark.parametrize(
    "member",
    [
        entry("/absolute"),
        entry("in/../../out"),
        entry("link", tarfile.SYMTYPE),
        entry("hard", tarfile.LNKTYPE),
        entry("fifo", tarfile.FIFOTYPE),
        entry("device", tarfile.CHRTYPE),
    ],
    ids=lambda member: member.name,
)
def test_what_no_archive_of_ours_holds_is_refused_whole(
    tmp_path: Path, member: tarfile.TarInfo
) -> None:
    archive = made(tmp_path / "a.tar", entry("good"), member)
    with pytest.raises(tarfile.TarError, match="is not a file inside"):
        unpack(archive, tmp_path / "place")
    assert not (tmp_path / "place").exists()
