"""The host feature profile, as a verb and as one text on a bare host."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_target import criu_command

from coldsnap.artifact.drivers import DRIVERS, host_feature
from coldsnap_core.bare_probe import probe_text

STATUSES = {"passed", "failed", "unsupported", "unqualified"}


def alone(*argv, python=sys.executable, prefix=(), **environment):
    done = subprocess.run(
        [*prefix, python, "-", *argv],
        input=probe_text(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert not done.stderr
    return json.loads(done.stdout)["result"]


def features(profile):
    return {feature["id"]: feature for feature in profile["features"]}


def fake_criu(folder: Path, version: str, check: str) -> Path:
    path = folder / "criu"
    path.write_text(
        f"#!/bin/sh\nif [ $1 = --version ]; then echo 'Version: {version}'; exit; fi\n{check}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_form_of_a_profile(runtime):
    profile = runtime.call("probe").result
    assert (profile["format"], profile["kind"]) == (1, "coldsnap-host-feature-profile")
    for feature in profile["features"]:
        assert feature["status"] in STATUSES, feature
        assert feature["status"] == "passed" or feature["reason"], feature
        assert set(feature) == {"id", "status", "reason", "remedy", "evidence", "seconds"}
    identity = profile["identity"]
    assert identity["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert identity["cpu"]["flags"] == sorted(set(identity["cpu"]["flags"]))
    assert identity["architecture"] == os.uname().machine


def test_huge_pages_are_told_and_never_a_lack():
    """Restores do not profit from them (docs/benchmarks.md), whatever the mode."""
    found = features(alone())["huge-pages"]
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = modes.read_text().partition("[")[2].partition("]")[0] if modes.exists() else "unknown"
    assert (found["status"], found["reason"], found["remedy"]) == ("passed", "", "")
    assert found["evidence"] == {"mode": mode}


def test_reasons_do_not_change_between_two_looks(runtime):
    """A saved plan compares them: a number that moves by itself would make it stale."""
    keep = ("id", "status", "reason", "remedy")
    first, second = (runtime.call("probe").result["features"] for _ in range(2))
    assert [[f[k] for k in keep] for f in first] == [[f[k] for k in keep] for f in second]


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_it_runs_as_one_text_on_other_pythons(version, tmp_path):
    """Isolated (-I -S): nothing of ours or of a venv can be imported."""
    candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    python = str(candidates[0]) if candidates else shutil.which(f"python{version}")
    if not python:
        pytest.skip(f"there is no Python {version} here")
    done = subprocess.run(
        [python, "-I", "-S", "-", "--state-dir", str(tmp_path)],
        input=probe_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = features(json.loads(done.stdout)["result"])
    assert found["python"]["status"] == ("failed" if version in ("3.8", "3.9") else "passed")


def test_options_come_as_json_when_stdin_is_free(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", probe_text()],
        input=json.dumps({"state_dir": str(tmp_path / "a" / "b"), "criu": "/nowhere/criu"}),
        capture_output=True,
        text=True,
        check=True,
    )
    found = features(json.loads(done.stdout)["result"])
    assert found["state-dir"]["evidence"]["path"] == str(tmp_path / "a" / "b")
    assert found["state-dir"]["evidence"]["exists"] is False
    assert found["criu"]["status"] == "unqualified"
    assert "/nowhere/criu" in found["criu"]["reason"]
    assert found["criu"]["remedy"]
    assert not (tmp_path / "a").exists(), "a probe creates nothing"


def test_a_host_without_criu_is_unqualified_not_refused(tmp_path):
    found = features(alone("--criu", str(tmp_path / "criu")))
    if os.geteuid() != 0:
        pytest.skip("driver.criu needs root anyway")
    assert found["driver.criu"]["status"] == "unqualified"
    assert found["driver.criu"]["reason"].startswith("criu: ")


def test_an_old_criu_is_refused_with_its_version(tmp_path):
    found = features(alone("--criu", str(fake_criu(tmp_path, "3.17.1", "exit 0"))))
    assert found["criu"]["status"] == "failed"
    assert "3.17.1 is older than 4.1" in found["criu"]["reason"]
    assert found["driver.criu"]["status"] == "failed"


def test_the_first_error_of_criu_check_is_the_reason(tmp_path):
    check = (
        "echo 'Warn  (criu/kerndat.c:1): harmless' >&2\n"
        "echo 'Error (criu/vdso.c:600): vdso: Unexpected rt vDSO area bounds' >&2\n"
        "echo 'Error (criu/cr-check.c:2): later' >&2\nexit 1"
    )
    found = features(alone("--criu", str(fake_criu(tmp_path, "4.1.1", check))))
    assert "Unexpected rt vDSO area bounds" in found["criu"]["reason"]
    assert found["criu"]["remedy"]


@pytest.mark.criu
def test_a_state_dir_that_is_too_deep_for_criu_is_named(tmp_path):
    """CRIU reads the lines of its own /proc/self/maps into a buffer of fixed size."""
    bundle = criu_command().parent
    if os.geteuid() != 0 or not (bundle / "lib").is_dir():
        pytest.skip("needs root and a bundled CRIU")
    deep = tmp_path / ("d" * 120) / ("e" * 120) / "criu"
    shutil.copytree(bundle, deep, ignore=shutil.ignore_patterns("python"))
    found = features(alone("--criu", str(deep / "criu")))
    assert found["criu"]["status"] == "failed"
    assert f"too long a path ({len(str(deep))} characters)" in found["criu"]["reason"]
    assert "Bad maps format" not in found["driver.criu"]["reason"]
    assert "shorter state_dir" in found["driver.criu"]["remedy"]


def test_a_criu_that_passes_its_check_and_cannot_dump_is_refused(tmp_path):
    """Seen: CRIU 4.1.1 and TCP sockets on kernels since 6.16."""
    script = (
        "[ $1 = check ] && exit 0\n"
        "[ $1 = dump ] || exit 1\n"
        "echo '(00.1) Error (criu/util.c:1): rlimit: harmless' > $5/dump.log\n"
        "echo '(00.2) Error (criu/sockets.c:628): opt: Operation not supported' >> $5/dump.log\n"
        "exit 1"
    )
    found = features(alone("--criu", str(fake_criu(tmp_path, "4.1.1", script))))
    assert found["criu"]["status"] == "passed"
    assert "criu/sockets.c:628" in found["criu.dump"]["reason"]
    assert found["driver.criu"]["status"] == "failed"
    assert found["driver.criu"]["reason"].startswith("criu.dump: ")
    if b"unsupported" in passcred():
        assert "4.2 or newer" in found["criu.dump"]["remedy"]


def passcred() -> bytes:
    with socket.socket() as probe:
        try:
            probe.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED)
        except OSError:
            return b"unsupported"
    return b""


@pytest.mark.criu
def test_a_real_criu_really_dumps(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    criu = criu_command()
    profile = alone("--criu", str(criu), TMPDIR=str(tmp_path))
    found = features(profile)
    assert found["criu.dump"]["status"] == "passed", found["criu.dump"]
    assert found["driver.criu"]["status"] == "passed", found["driver.criu"]
    assert not list(tmp_path.iterdir()), "nothing is left"


def test_a_criu_that_hangs_is_given_up(tmp_path):
    source = probe_text().replace("30.0", "0.7")
    path = fake_criu(tmp_path, "4.1.1", "sleep 600")
    (tmp_path / "probe.py").write_text(source.replace("_DEADLINE = 10.0", "_DEADLINE = 1.0"))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "probe.py"), "--criu", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    found = features(json.loads(done.stdout)["result"])
    assert found["criu"]["status"] == "failed"
    assert "no answer within" in found["criu"]["reason"]
    assert not subprocess.run(["pgrep", "-f", str(path)], check=False, capture_output=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping root needs root")
def test_without_root_the_first_need_is_named_with_a_remedy():
    found = features(
        alone(prefix=("setpriv", "--reuid", "65534", "--clear-groups"), python="/usr/bin/python3")
    )
    assert found["root"]["status"] == "failed"
    assert "_sudo" in found["root"]["remedy"]
    assert found["cap.sys_admin"]["status"] == "failed"
    assert found["namespaces"]["status"] == "failed"
    assert found["driver.criu"]["status"] == "failed"
    assert found["driver.criu"]["reason"].startswith("root: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping a capability needs root")
def test_a_missing_capability_is_named():
    prefix = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    found = features(alone(prefix=prefix, python="/usr/bin/python3"))
    assert found["root"]["status"] == "passed"
    assert "CAP_SYS_ADMIN" in found["cap.sys_admin"]["reason"]
    assert "Operation not permitted" in found["namespaces"]["reason"]
    assert found["driver.criu"]["status"] == "failed"


def test_gpu_drivers_say_what_is_missing(runtime):
    found = features(runtime.call("probe").result)
    if found["nvidia"]["status"] == "passed":
        pytest.skip("this host has an NVIDIA driver")
    for name in ("c580", "n580", "n610"):
        assert found[f"driver.{name}"]["status"] == "unsupported"
        assert "no NVIDIA driver" in found[f"driver.{name}"]["reason"]


FAKE_NVML = """
#include <string.h>
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { strncpy(to, VERSION, n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) { *handle = (void *)8; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) {
  m->total = 99; m->free = 90; m->used = 9; return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
  *major = 9; *minor = 0; return 0;
}
int nvmlDeviceGetName(void *h, char *to, unsigned n) { strncpy(to, "Fake H200", n); return 0; }
int nvmlDeviceGetUUID(void *h, char *to, unsigned n) { strncpy(to, "GPU-1", n); return 0; }
"""


@pytest.mark.parametrize(
    ("version", "c580", "n610"),
    [
        ("570.1", "unsupported", "unsupported"),
        ("580.159", "passed", "unsupported"),
        ("610.43", "passed", "unqualified"),
    ],
)
def test_gpu_drivers_by_the_version_that_nvml_reports(tmp_path, version, c580, n610):
    """The library is a fake; the way to it (ctypes, symbols, structures) is the real one."""
    compiler = shutil.which("cc")
    if not compiler or os.geteuid() != 0:
        pytest.skip("needs a C compiler and root")
    api = "".join(
        f"int cuCheckpointProcess{name}(void) {{ return 0; }}\n"
        for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock")
    )
    for name, source in (("libnvidia-ml.so.1", FAKE_NVML), ("libcuda.so.1", api)):
        (tmp_path / "source.c").write_text(source)
        argv = [
            compiler,
            "-shared",
            "-fPIC",
            "-w",
            f'-DVERSION="{version}"',
            "-o",
            str(tmp_path / name),
        ]
        subprocess.run([*argv, str(tmp_path / "source.c")], check=True)
    criu = fake_criu(tmp_path, "4.1.1", "exit 0")
    profile = alone("--criu", str(criu), LD_LIBRARY_PATH=str(tmp_path))
    found = features(profile)
    assert found["nvidia"]["evidence"]["gpus"][0] == {
        "index": 0, "name": "Fake H200", "uuid": "GPU-1", "memory_total": 99,
        "memory_free": 90, "compute_capability": "9.0",
    }  # fmt: skip
    assert profile["identity"]["nvidia_driver"] == version
    assert found["driver.c580"]["status"] == c580, found["driver.c580"]
    assert found["driver.n580"]["status"] == c580, found["driver.n580"]
    assert found["cuda-fresh-state"]["status"] == c580
    assert found["driver.n610"]["status"] == n610, found["driver.n610"]
    is_able = version.startswith("610")
    assert bool(found["driver.n610"]["evidence"].get("able")) == is_able
    assert (found["cuda-classic-ipc"]["status"] == "passed") == is_able


def test_a_template_needs_no_gpu():
    found = features(alone())
    needed = {host_feature(name, has_devices=have) for name in DRIVERS for have in (False, True)}
    assert needed <= set(found), "artifact inspect tells what a host needs by these names"
    template, criu = found["criu-process-template"], found["driver.criu"]
    assert {**template, "id": ""} == {**criu, "id": ""}
    assert found["driver.n580"]["status"] == "unsupported"
