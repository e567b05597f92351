"""What the core pack's facts ask of a target: several verbs in one start, a pack by its stat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runtime_target import Host

from coldsnap_core.facts import HostProfile, PackStaged, RuntimeVerb


def place(host: Host, **more: Any) -> dict[str, Any]:
    return {
        "pack": str(host.pack),
        "python": sys.executable,
        "state_dir": str(host.state),
        **more,
    }


def run(command: str) -> list[str]:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.splitlines()


def status(host: Host) -> tuple[Any, dict[str, Any]]:
    return RuntimeVerb, place(host, verb="unit.status", request={"unit": None})


def resolve(host: Host) -> tuple[Any, dict[str, Any]]:
    request = {"store": str(host.state / "store"), "ref": "x"}
    return RuntimeVerb, place(host, verb="store.resolve", request=request)


def ask(*asked: tuple[Any, dict[str, Any]]) -> list[Any]:
    keys = {kind.together_key(**args) for kind, args in asked}
    assert len(keys) == 1
    parts = RuntimeVerb.apart(run(RuntimeVerb.together(asked)), len(asked))
    return [kind().process(part) for (kind, _args), part in zip(asked, parts, strict=True)]


def test_three_questions_are_answered_by_one_start(host: Host) -> None:
    asked = (status(host), resolve(host), (HostProfile, place(host)))
    with_pack = RuntimeVerb.together(asked).partition("; else ")[0]
    assert with_pack.count(sys.executable) == 1, "one start where the pack is staged"
    units, found, profile = ask(*asked)
    assert units == {"units": []}
    assert found["manifest"] is None
    assert profile["identity"]["kernel"]
    alone = [kind().process(run(kind().command(**args))) for kind, args in asked]
    assert alone[:2] == [units, found]
    assert alone[2]["identity"] == profile["identity"]


def test_one_that_fails_does_not_spoil_the_others(host: Host) -> None:
    wrong = (RuntimeVerb, place(host, verb="unit.status", request={"nonsense": 1}))
    changing = (RuntimeVerb, place(host, verb="unit.stop", request={}))
    nested = (RuntimeVerb, place(host, verb="batch", request={"requests": []}))
    request = {"store": str(host.state / "store"), "keep": 1, "dry_run": True}
    dry = (RuntimeVerb, place(host, verb="store.collect", request=request))
    wet = (RuntimeVerb, place(host, verb="store.collect", request={**request, "dry_run": False}))
    units, planned, *failed = ask(status(host), dry, wrong, changing, nested, wet)
    assert units == {"units": []}
    assert planned["removed"] == []
    assert [answer["error"]["code"] for answer in failed] == ["request.invalid"] * 4


def test_a_bare_host_answers_each_in_its_own_way(tmp_path: Path) -> None:
    bare = Host(tmp_path, pack=tmp_path / "runtime" / "sha256" / ("0" * 64))
    units, profile, found = ask(status(bare), (HostProfile, place(bare)), resolve(bare))
    assert units == {"staged": False}
    assert found == {"staged": False}
    assert profile["kind"] == "coldsnap-host-feature-profile"
    assert not list(tmp_path.iterdir()), "asking leaves nothing behind"


def test_an_older_pack_answers_until_this_one_is_staged(host: Host) -> None:
    newer = place(host, verb="unit.status", request={"unit": None})
    newer["pack"] = str(host.pack.with_name("f" * 64))
    assert ask((RuntimeVerb, newer), (RuntimeVerb, newer)) == [{"units": []}] * 2


def test_questions_to_different_places_stay_apart(host: Host) -> None:
    other = place(host, verb="unit.status", request={"unit": None})
    other["state_dir"] = "/elsewhere"
    key = RuntimeVerb.together_key(**other)
    assert key != RuntimeVerb.together_key(**status(host)[1])


def staged(host: Host) -> dict[str, Any]:
    return PackStaged().process(run(PackStaged().command(**place(host))))


def test_a_pack_is_hashed_once_and_then_known_by_its_stat(host: Host) -> None:
    seen = staged(host)
    assert (seen["staged"], seen["valid"]) == (True, True)
    assert seen["python"] == ".".join(map(str, sys.version_info[:2]))
    assert seen["uid"] == 0
    record = host.state / "runtime" / "verified" / f"{host.pack.name}.json"
    before = record.stat().st_mtime_ns
    assert staged(host) == seen
    assert record.stat().st_mtime_ns == before, "nothing was hashed again"


@pytest.mark.parametrize("damage", ["flip", "add", "remove", "touch"])
def test_a_change_after_the_record_is_seen(host: Host, damage: str) -> None:
    assert staged(host)["valid"]
    victim = host.pack / "inside" / "coldsnap_reference_engine" / "api.py"
    if damage == "flip":
        status = victim.stat()
        data = bytearray(victim.read_bytes())
        data[10] ^= 1
        victim.write_bytes(data)
        os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif damage == "add":
        (victim.parent / "more.py").write_text("")
    elif damage == "remove":
        victim.unlink()
    else:
        victim.touch()
    seen = staged(host)
    assert seen["staged"]
    assert seen["valid"] == (damage == "touch"), "a touched file is hashed, and is the same"
    assert seen["python"] != "none"


def test_a_host_without_python_says_so(host: Host) -> None:
    command = PackStaged().command(**{**place(host), "python": "/no/python"})
    seen = PackStaged().process(run(command))
    assert seen["python"] == "none"
    assert not seen["staged"]


def probe(host: Host, max_age: float) -> dict[str, Any]:
    request = {"criu": str(host.pack / "criu" / "criu"), "max_age": max_age}
    found = host.call("probe", request=request, timeout=90).result
    return {feature["id"]: feature for feature in found["features"]}


def test_what_passed_is_not_tried_again_for_a_while(host: Host) -> None:
    first = probe(host, 600.0)
    if first["criu.dump"]["status"] != "passed":
        pytest.skip(f"criu cannot dump here: {first['criu.dump']['reason']}")
    kept = json.loads((host.state / "cache" / "probe.json").read_text())
    assert "criu.dump" in kept["kept"]
    assert "memory" not in kept["kept"], "what changes by the second is read anew"
    begin = time.monotonic()
    second = probe(host, 600.0)
    assert second["criu.dump"] == first["criu.dump"]
    assert time.monotonic() - begin < 10
    anew = probe(host, 0.0)
    assert anew["criu.dump"]["seconds"] != first["criu.dump"]["seconds"], "tried again"


def test_what_failed_is_tried_again_and_another_criu_too(host: Host, tmp_path: Path) -> None:
    fake = tmp_path / "criu"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)

    def ask_fake() -> str:
        request = {"criu": str(fake), "max_age": 600.0}
        found = host.call("probe", request=request, timeout=90).result
        return next(f["status"] for f in found["features"] if f["id"] == "criu")

    assert ask_fake() == "failed"
    kept = json.loads((host.state / "cache" / "probe.json").read_text())
    assert "criu" not in kept["kept"]
    good = probe(host, 600.0)["criu"]["status"]
    assert ask_fake() == "failed"
    assert good in {"passed", "failed"}


def test_a_damaged_record_only_costs_time(host: Host) -> None:
    folder = host.state / "cache"
    folder.mkdir(parents=True)
    for text in ("", "[]", '{"key": 1}', '{"key": [], "kept": {"criu": 3}}'):
        (folder / "probe.json").write_text(text)
        assert probe(host, 600.0)["kernel"]["status"] == "passed"
