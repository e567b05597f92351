from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.store import criu, criu_bundle
from coldsnap.store.criu import check_criu, find_criu
from coldsnap.store.criu_bundle import debian_mirror
from coldsnap.store.elf import interpreter, needed_libraries
from coldsnap.store.uris import open_uri, parse_store_uri

SCRIPT = """#!/bin/sh
case "$1" in
--version) {version} ;;
check) {check} ;;
esac
"""


def make(path: Path, version: str = "echo Version: 4.1.1", check: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT.format(version=version, check=check))
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_installed_criu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSNAP_CRIU", raising=False)
    monkeypatch.delenv("COLDSNAP_CRIU_SUITE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(criu.shutil, "which", lambda *_, **__: None)


def failure() -> ColdSnapError:
    with pytest.raises(ColdSnapError) as caught:
        find_criu()
    return caught.value


def test_the_one_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_CRIU", str(make(tmp_path / "criu")))
    found = find_criu()
    assert (found.version, found.source) == ("4.1.1", "COLDSNAP_CRIU")


@pytest.mark.parametrize(
    ("version", "check", "said"),
    [
        ("echo Version: 3.17.1", "exit 0", "is CRIU 3.17.1; 4.1 or newer is needed"),
        ("echo nonsense", "exit 0", "does not tell its version"),
        ("echo Version: 4.10", "echo 'Error (x): no luck' >&2; exit 1", "fails its own check"),
    ],
)
def test_a_named_one_that_is_no_good_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, check: str, said: str
) -> None:
    if "check" in said and os.geteuid() != 0:
        pytest.skip("only root can run criu check")
    monkeypatch.setenv("COLDSNAP_CRIU", str(make(tmp_path / "criu", version, check)))
    error = failure()
    assert error.code == "criu.unusable"
    assert said in error.message
    if "no luck" in check:
        assert error.details == ("Error (x): no luck",)


def test_a_named_one_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSNAP_CRIU", "/nowhere/criu")
    error = failure()
    assert "COLDSNAP_CRIU=/nowhere/criu is not there" in error.message
    assert "unset COLDSNAP_CRIU" in error.remedy


def test_a_relative_one_and_a_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path / "mine" / "criu")
    monkeypatch.chdir(tmp_path)
    for value in ("mine/criu", "mine", str(tmp_path / "mine")):
        monkeypatch.setenv("COLDSNAP_CRIU", value)
        assert find_criu().command == made


def test_output_that_is_no_text_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path / "criu", r"printf '\377\376'; exit 0")
    monkeypatch.setenv("COLDSNAP_CRIU", str(made))
    assert "does not tell its version" in failure().message


def test_a_good_system_criu_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = make(tmp_path / "sbin" / "criu")
    monkeypatch.setattr(criu.shutil, "which", lambda *_, **__: str(system))
    assert find_criu().source == "system"


def test_an_old_system_criu_gives_way_to_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make(tmp_path / "sbin" / "criu", "echo Version: 3.17.1")
    monkeypatch.setattr(criu.shutil, "which", lambda *_, **__: str(system))
    bundle = criu_bundle.cache_folder() / "trixie-4.1.1-1"
    make(bundle / "criu")
    found = find_criu()
    assert (found.command, found.source) == (bundle / "criu", "debian trixie")


def test_without_debian_it_says_what_to_do() -> None:
    error = failure()
    assert error.code == "criu.no-apt"
    assert "COLDSNAP_CRIU=" in error.remedy


def test_a_suite_is_a_name_and_nothing_else() -> None:
    with pytest.raises(ColdSnapError) as caught:
        criu_bundle.build_bundle('trixie"; rm')
    assert caught.value.code == "criu.suite-invalid"


SOURCES = """Types: deb
# URIs: http://old.example/debian
URIs: http://mirror.example/debian
Suites: bookworm
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("debian.sources", SOURCES, "http://mirror.example/debian"),
        ("a.list", "deb [signed-by=/k] https://m.example/debian bookworm main", "https://m.example/debian"),
        ("a.list", "deb https://m.example/debian/ bookworm main", "https://m.example/debian"),
        ("a.list", "deb file:/srv/debian bookworm main", "file:/srv/debian"),
    ],
)  # fmt: skip
def test_the_mirror_is_the_one_of_the_system(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / name).write_text(text)
    assert debian_mirror(tmp_path) == expected


def test_sources_of_others_are_no_debian_mirror(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "deb https://x.example/debian-security bookworm main\n# deb https://x.example/debian b m\n"
    )
    with pytest.raises(ColdSnapError) as caught:
        debian_mirror(tmp_path)
    assert caught.value.code == "criu.no-mirror"


def test_an_archive_that_cannot_be_reached_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/usr/bin/apt-get").exists():
        pytest.skip("apt-get is not installed: not Debian")
    monkeypatch.setattr(criu.shutil, "which", lambda *_, **__: "/usr/bin/apt-get")
    monkeypatch.setattr(criu_bundle, "debian_mirror", lambda: f"file:{tmp_path}/debian")
    with pytest.raises(ColdSnapError) as caught:
        criu_bundle.build_bundle("trixie")
    assert caught.value.code == "criu.download-failed"
    assert caught.value.details[0].startswith("E:")
    assert list(criu_bundle.cache_folder().iterdir()) == []


def test_what_a_program_needs_is_read_from_its_file() -> None:
    program = Path("/bin/sh").resolve()
    loader = interpreter(program)
    assert loader is not None
    assert Path(loader).name.startswith("ld-")
    folders = [Path(loader).resolve().parent, *Path("/usr/lib").glob("*-linux-gnu*")]
    needed = needed_libraries(program, folders)
    assert any(path.name.startswith("libc.so") for path in needed)
    with pytest.raises(ColdSnapError, match="not found"):
        needed_libraries(program, [])
    with pytest.raises(ColdSnapError, match="not a 64-bit"):
        interpreter(Path(__file__))


def test_a_check_tells_the_first_error_of_the_tool(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run criu check")
    bad = make(tmp_path / "criu", check="echo Warn; echo 'Error (k.c:1): no' >&2; exit 1")
    assert check_criu(bad) == "Error (k.c:1): no"
    assert check_criu(make(tmp_path / "good")) == ""


@pytest.mark.criu
def test_the_criu_of_this_machine_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = find_criu()
    assert check_criu(found.command) == ""
    done = subprocess.run([found.command, "--version"], capture_output=True, check=True)
    assert found.version.encode() in done.stdout
    assert shutil.which("sh")


def test_store_uris(tmp_path: Path) -> None:
    assert str(parse_store_uri("oci-layout:{state_dir}/store", state_dir="/v")) == (
        "oci-layout:/v/store"
    )
    assert parse_store_uri("/a/b").path == Path("/a/b")
    for text in ("oci-layout:relative", "oci-layout:/a/../b", "s3://x", "x", ""):
        with pytest.raises(ColdSnapError) as caught:
            parse_store_uri(text)
        assert caught.value.code == "store.uri-invalid"
    for text in ("oci://r.example/x", "hf://org/repo"):
        with pytest.raises(ColdSnapError) as caught:
            parse_store_uri(text)
        assert caught.value.code == "store.unsupported"
        assert "oci-layout:" in caught.value.remedy
    with pytest.raises(ColdSnapError) as caught:
        open_uri(f"oci-layout:{tmp_path}/s")
    assert caught.value.code == "store.missing"
    open_uri(f"oci-layout:{tmp_path}/s", create=True)
    opened = open_uri(f"oci-layout:{tmp_path}/s")
    assert stat.S_IMODE(opened.root.stat().st_mode) == 0o700


def test_what_was_found_is_remembered_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "starts"
    made = make(tmp_path / "criu")
    program = made if made.is_file() else made / "criu"
    text = program.read_text().replace("\n", f"\necho start >> {log}\n", 1)
    program.write_text(text)
    monkeypatch.setenv("COLDSNAP_CRIU", str(made))
    first = find_criu()
    starts = log.read_text().count("start")
    assert starts >= 1
    assert find_criu() == first
    assert log.read_text().count("start") == starts, "nothing was started again"
    program.write_text(text + "# another one\n")
    assert find_criu() == first
    assert log.read_text().count("start") > starts, "a program that changed is tried again"
    (tmp_path / "cache" / "coldsnap" / "criu" / "found.json").write_text("[]")
    assert find_criu() == first
