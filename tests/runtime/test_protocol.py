"""Whatever comes on stdin or argv, one result line goes out and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe garbage", "not strict JSON"),
        (b"{", "not strict JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"unit":"a","unit":"b"}', "'unit' is given twice"),
        (b'{"ttl":NaN}', "NaN is not JSON"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"unit":"u0"} {}', "not strict JSON"),
    ],
)
def test_a_request_that_is_not_strict_json_is_refused(runtime, data, reason):
    error = runtime.call("lease", "acquire", request=data).error
    assert error["code"] == "request.invalid"
    assert reason in error["message"]


def test_a_request_beyond_16_mib_is_refused(runtime):
    process = runtime.start("lease", "acquire", request=b"")
    runtime.finish(process)
    data = b'{"unit":"' + b"a" * (17 << 20) + b'"}'
    done = subprocess.run(
        runtime.argv("lease", "acquire"),
        input=data,
        capture_output=True,
        env=runtime._env(),
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "request.too-large"


def test_unknown_fields_name_the_near_one(runtime):
    error = runtime.call("lease", "acquire", request={"unit": "u0", "run": "r", "tll": 3}).error
    assert error["code"] == "request.invalid"
    assert "did you mean 'ttl'" in error["message"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "a verb is missing"),
        (("lease.aquire",), "did you mean 'lease.acquire'"),
        (("lease", "acquire", "--wibble", "1"), "unknown option --wibble"),
        (("lease", "acquire", "surplus"), "unexpected argument"),
        (("job", "follow"), "needs exactly one job id"),
        (("job", "follow", "../etc"), "not of the form"),
        (("job", "follow", "x", "--wait", "long"), "needs a number"),
        (("lease", "show", "--job", "x"), "is no job"),
    ],
)
def test_a_wrong_command_line_is_one_clear_error(runtime, words, part):
    error = runtime.call(*words).error
    assert error["code"] == "runtime.usage"
    assert part in error["message"]


def test_verbs_lists_all_with_what_mutates(runtime):
    verbs = {row["verb"]: row for row in runtime.call("verbs").result["verbs"]}
    assert verbs["lease.acquire"]["mutating"]
    assert not verbs["job.follow"]["mutating"]


def test_a_defect_is_a_result_with_its_traceback_in_the_log(runtime, tmp_path):
    request = {"marks": str(tmp_path / "marks"), "steps": 0, "fail_times": 9}
    error = runtime.call("test.work", request=request).error
    assert error["code"] == "runtime.internal"
    assert "ValueError: a defect" in error["message"]
    assert "raise ValueError" in (runtime.state / "log" / "runtime.log").read_text()


def test_polling_imports_little(runtime):
    """`job follow` is asked many times a second, each time by a new interpreter."""
    code = "import sys; from coldsnap_runtime.main import main; main(sys.argv[1:])"
    code += "; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, "job", "follow", "x", "--state-dir", runtime.state],
        check=True,
        capture_output=True,
        text=True,
        env=runtime._env(),
    )
    imported = done.stderr.split()
    assert "coldsnap_runtime.job_follow" in imported
    slow = ("asyncio", "coldsnap.artifact", "ctypes", "dataclasses", "http", "inspect", "logging")
    slow += ("pathlib", "socket", "ssl", "subprocess", "tempfile", "urllib")
    assert not {name for name in imported if name.startswith(slow)}
