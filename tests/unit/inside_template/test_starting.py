"""A template's command line, and an engine started in its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coldsnap_inside_template.command import Command, read_command

RUNTIME = Path(__file__).parents[3] / "runtime"
TELLS = """
import json, os, sys
print(json.dumps({"pid": os.getpid(), "argv": sys.argv, "name": __name__,
                  "loaded": "decimal" in sys.modules, "given": os.environ.get("GIVEN")}))
"""


def test_the_command_line():
    command = read_command(["--import", "a.b", "--import", "c", "--", "-m", "server", "--", "x"])
    assert command == Command(("a.b", "c"), ("-m", "server", "--", "x"))


@pytest.mark.parametrize("words", [[], ["--"], ["--import", "a"], ["--other", "a", "--", "x"]])
def test_what_is_no_command_line(words):
    with pytest.raises(SystemExit):
        read_command(words)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "tells.py"
    path.write_text(TELLS)
    return path


def started(tmp_path: Path, *words: str, release: str = "") -> tuple[int, subprocess.Popen[str]]:
    folder = tmp_path / "told"
    folder.mkdir()
    (folder / "release.json").write_text(release or json.dumps({"env": {"GIVEN": "this"}}))
    process = subprocess.Popen(
        [sys.executable, "-m", "coldsnap_inside_template", *words],
        env={
            **os.environ,
            "PYTHONPATH": f"{RUNTIME}:{tmp_path}",
            "COLDSNAP_TEMPLATE_FOLDER": str(folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process.pid, process


@pytest.mark.parametrize(("own", "loaded"), [(["--import", "decimal"], True), ([], False)])
@pytest.mark.parametrize("form", ["script", "module"])
def test_the_engine_is_the_same_process(tmp_path, engine, own, loaded, form):
    words = [str(engine), "x"] if form == "script" else ["-m", "tells", "x"]
    pid, process = started(tmp_path, *own, "--", *words)
    out, err = process.communicate(timeout=30)
    told = json.loads(out)
    assert told["pid"] == pid, err
    assert told["argv"] == [str(engine), "x"]
    assert told["name"] == "__main__"
    assert told["loaded"] is loaded
    assert told["given"] == "this"


def test_modules_that_are_missing_are_told(tmp_path, engine):
    _, process = started(tmp_path, "--import", "no_such_module", "--", str(engine))
    out, _ = process.communicate(timeout=30)
    assert json.loads(out)["name"] == "__main__"
    parked = json.loads((tmp_path / "told" / "parked.json").read_text())
    assert parked["failed"]["no_such_module"].startswith("ModuleNotFoundError")
    assert parked["devices"] == []


@pytest.mark.parametrize("release", ["{}", "[", '{"env": {"A": 1}}', '{"env": 3}'])
def test_what_is_no_release_starts_nothing(tmp_path, engine, release):
    _, process = started(tmp_path, "--", str(engine), release=release)
    out, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert out == ""
    assert "release.json is not a release" in err
    assert "Traceback" not in err
