"""Jobs outlive their callers, are found again, and never run twice for one answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from waiting import wait_for


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def record(runtime, job):
    path = runtime.state / "jobs" / job / "job.json"
    wait_for(path.exists)
    return json.loads(path.read_text())


def follow(runtime, job, offset=0, wait=0.0):
    return runtime.call("job", "follow", job, "--offset", str(offset), "--wait", str(wait))


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_job_relays_events_and_result_and_has_its_own_session(runtime, marks):
    answer = runtime.call("test.work", "--job", "j1", request={"marks": str(marks)})
    assert answer.messages("phase") == ["step 0", "step 1", "step 2"]
    assert answer.result["session"] == answer.result["pid"]
    assert record(runtime, "j1")["verb"] == "test.work"


def test_the_same_question_again_gets_the_stored_answer(runtime, marks):
    request = {"marks": str(marks)}
    first = runtime.call("test.work", "--job", "j1", request=request)
    second = runtime.call("test.work", "--job", "j1", request=request)
    assert second.lines == first.lines
    assert marks.read_text().count("begin") == 1


def test_another_question_under_the_same_id_is_refused(runtime, marks):
    runtime.call("test.work", "--job", "j1", request={"marks": str(marks)})
    error = runtime.call(
        "test.work", "--job", "j1", request={"marks": str(marks), "steps": 1}
    ).error
    assert error["code"] == "job.conflict"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_death_of_the_caller_does_not_reach_the_job(runtime, marks, number):
    request = {"marks": str(marks), "steps": 10}
    caller = runtime.start("test.work", "--job", "j1", request=request)
    job = record(runtime, "j1")
    caller.send_signal(number)
    caller.communicate(timeout=10)
    assert not is_gone(job["pid"])
    again = runtime.call("test.work", "--job", "j1", request=request)
    assert again.result["pid"] == job["pid"]
    assert len(again.messages("phase")) == 10
    assert marks.read_text().count("begin") == 1


def test_a_caller_that_is_ended_says_that_the_job_goes_on(runtime, marks):
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "steps": 20})
    record(runtime, "j1")
    caller.terminate()
    assert runtime.finish(caller).error["code"] == "job.detached"


def test_the_callers_pipe_is_not_held_by_the_job(runtime, marks):
    """An ssh session ends when its pipes close; a job must not keep them."""
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "steps": 9999})
    record(runtime, "j1")
    caller.kill()
    caller.communicate(timeout=60)  # the job would take eight minutes
    runtime.call("job", "cancel", "j1")


def test_a_killed_job_is_dead_and_runs_again_under_its_id(runtime, marks):
    request = {"marks": str(marks), "steps": 200, "child": True}
    caller = runtime.start("test.work", "--job", "j1", request=request)
    job = record(runtime, "j1")
    wait_for(lambda: len(follow(runtime, "j1").lines) > 3)
    child = int(follow(runtime, "j1").lines[0]["message"].split()[1])
    os.kill(job["pid"], signal.SIGKILL)
    answer = runtime.finish(caller)
    assert answer.error["code"] == "job.dead"
    assert follow(runtime, "j1").last["state"] == "dead"
    offset = follow(runtime, "j1").last["offset"]
    again = runtime.start("test.work", "--job", "j1", request=request)
    wait_for(lambda: follow(runtime, "j1").last["state"] == "running")
    assert is_gone(child), "what the dead attempt left in its session is ended"
    second = record(runtime, "j1")
    assert second["attempt"] == 2
    assert second["events_start"] == offset
    runtime.call("job", "cancel", "j1")
    runtime.finish(again)


def test_a_failed_job_runs_again(runtime, marks):
    request = {"marks": str(marks), "steps": 1, "fail_times": 1}
    assert runtime.call("test.work", "--job", "j1", request=request).error
    assert follow(runtime, "j1").last["state"] == "failed"
    again = runtime.call("test.work", "--job", "j1", request=request)
    assert again.result
    assert again.messages("phase") == ["step 0"], "only the present attempt is relayed"


def test_a_reused_pid_is_not_taken_for_the_job(runtime, marks):
    request = {"marks": str(marks), "steps": 1}
    runtime.call("test.work", "--job", "j1", request=request)
    folder = runtime.state / "jobs" / "j1"
    (folder / "result.json").unlink()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        changed = record(runtime, "j1") | {"pid": stranger.pid}
        (folder / "job.json").write_text(json.dumps(changed))
        assert follow(runtime, "j1").last["state"] == "dead"
        assert runtime.call("job", "cancel", "j1").result["cancelled"] is False
        assert runtime.call("test.work", "--job", "j1", request=request).result
        assert stranger.poll() is None
    finally:
        stranger.kill()


def test_a_job_of_another_boot_is_dead(runtime, marks):
    request = {"marks": str(marks), "steps": 400}
    caller = runtime.start("test.work", "--job", "j1", request=request)
    job = record(runtime, "j1")
    path = runtime.state / "jobs" / "j1" / "job.json"
    path.write_text(json.dumps(job | {"boot_id": "0" * 8}))
    assert follow(runtime, "j1").last["state"] == "dead"
    path.write_text(json.dumps(job))
    assert follow(runtime, "j1").last["state"] == "running"
    runtime.call("job", "cancel", "j1")
    runtime.finish(caller)


def test_concurrent_callers_start_one_job_and_all_get_its_answer(runtime, marks):
    request = {"marks": str(marks), "steps": 10}
    callers = [runtime.start("test.work", "--job", "j1", request=request) for _ in range(6)]
    answers = [runtime.finish(caller) for caller in callers]
    assert {answer.result["pid"] for answer in answers} == {answers[0].result["pid"]}
    assert all(len(answer.messages("phase")) == 10 for answer in answers)
    assert marks.read_text().count("begin") == 1


def test_cancel_lets_the_job_undo(runtime, marks):
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "steps": 900})
    job = record(runtime, "j1")
    wait_for(lambda: follow(runtime, "j1").lines[:-1])
    cancelled = runtime.call("job", "cancel", "j1").result
    assert cancelled == {"state": "failed", "cancelled": True, "killed": []}
    assert runtime.finish(caller).error["code"] == "run.cancelled"
    assert marks.read_text().endswith("undone\n")
    assert is_gone(job["pid"])


def test_cancel_kills_the_whole_session_after_the_grace(runtime, marks):
    request = {"marks": str(marks), "steps": 900, "undo": 600, "child": True}
    caller = runtime.start("test.work", "--job", "j1", request=request)
    job = record(runtime, "j1")
    wait_for(lambda: len(follow(runtime, "j1").lines) > 2)
    cancelled = runtime.call("job", "cancel", "j1", "--grace", "0.3").result
    assert cancelled["state"] == "dead"
    assert job["pid"] in cancelled["killed"]
    assert len(cancelled["killed"]) == 2, "the job and its child"
    assert all(is_gone(pid) for pid in cancelled["killed"])
    assert runtime.finish(caller).error["code"] == "job.dead"


def test_a_cancel_that_overtakes_the_start_is_not_lost(runtime, marks):
    cancel = runtime.start("job", "cancel", "j1")
    time.sleep(0.3)
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "steps": 900})
    assert runtime.finish(cancel).result["cancelled"] is True
    assert runtime.finish(caller).error["code"] == "run.cancelled"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files back needs root")
def test_what_root_wrote_below_a_users_folder_is_given_back(runtime, marks):
    runtime.state.mkdir()
    os.chown(runtime.state, 65534, 65534)
    runtime.call("test.work", "--job", "j1", request={"marks": str(marks), "steps": 0}).ok()
    runtime.call("lease", "acquire", request={"unit": "u0", "run": "r"}).ok()
    assert runtime.call("test.work", request={"marks": str(marks), "fail_times": 99}).error
    strays = [path for path in runtime.state.rglob("*") if path.stat().st_uid != 65534]
    assert not strays


def test_a_second_cancel_does_not_interrupt_the_undoing(runtime, marks):
    request = {"marks": str(marks), "steps": 900, "undo": 0.5}
    caller = runtime.start("test.work", "--job", "j1", request=request)
    wait_for(lambda: record(runtime, "j1") and follow(runtime, "j1").lines[:-1])
    both = [runtime.start("job", "cancel", "j1") for _ in range(2)]
    assert all(runtime.finish(process).result["killed"] == [] for process in both)
    assert marks.read_text().endswith("undone\n")
    runtime.finish(caller)


def test_follow_polls_long_and_gives_whole_lines(runtime, marks):
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "sleep": 0.4})
    wait_for(lambda: follow(runtime, "j1").last["state"] == "running")
    offset, phases, states, polls = 0, [], [], 0
    while not states or states[-1] == "running":
        answer = follow(runtime, "j1", offset, wait=5.0)
        polls += 1
        assert answer.last["offset"] >= offset
        offset = answer.last["offset"]
        phases += answer.messages("phase")
        states.append(answer.last["state"])
    assert phases == ["step 0", "step 1", "step 2"]
    assert states[-1] == "done"
    assert polls <= 5, "it waits for news instead of returning at once"
    runtime.finish(caller)


def test_follow_of_a_job_that_is_not_there_waits_for_it(runtime, marks):
    begin = time.monotonic()
    assert follow(runtime, "nope", wait=0.3).last == {"offset": 0, "state": "absent"}
    assert time.monotonic() - begin >= 0.3
    assert runtime.call("job", "wait", "nope").error["code"] == "job.unknown"


def test_wait_joins_a_running_job(runtime, marks):
    caller = runtime.start("test.work", "--job", "j1", request={"marks": str(marks), "steps": 8})
    record(runtime, "j1")
    waited = runtime.call("job", "wait", "j1")
    assert waited.result == runtime.finish(caller).result


def test_gc_removes_what_ended_and_leaves_what_runs(runtime, marks):
    runtime.call("test.work", "--job", "old", request={"marks": str(marks), "steps": 0})
    caller = runtime.start("test.work", "--job", "new", request={"marks": str(marks), "steps": 600})
    record(runtime, "new")
    assert runtime.call("job", "gc", "--older", "3600").result == {"removed": []}
    assert runtime.call("job", "gc", "--older", "0").result == {"removed": ["old"]}
    assert [row["job"] for row in runtime.call("job", "list").result["jobs"]] == ["new"]
    runtime.call("job", "cancel", "new")
    runtime.finish(caller)


def test_a_line_that_a_crash_cut_is_not_relayed(runtime, marks):
    request = {"marks": str(marks), "steps": 1, "fail_times": 1}
    runtime.call("test.work", "--job", "j1", request=request)
    with (runtime.state / "jobs" / "j1" / "events.jsonl").open("ab") as file:
        file.write(b'{"event":"phase","mess')
    answer = runtime.call("test.work", "--job", "j1", request=request)
    assert answer.messages("phase") == ["step 0"]


@pytest.fixture
def small(runtime):
    """A state folder of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    runtime.state.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(runtime.state)], check=True
    )
    yield runtime
    subprocess.run(["umount", "-l", str(runtime.state)], check=True)


def fill(folder: Path) -> None:
    descriptor = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except OSError:
        os.close(descriptor)


def test_a_full_state_folder_is_one_clear_error(small, marks):
    fill(small.state)
    error = small.call("test.work", "--job", "j1", request={"marks": str(marks)}).error
    assert error["code"] == "file.disk-full"
    assert "no space left" in error["message"]
    assert not marks.exists(), "nothing was begun"
    (small.state / "ballast").unlink()
    assert small.call("test.work", "--job", "j1", request={"marks": str(marks)}).result


def test_a_disk_that_fills_during_the_job_does_not_lose_its_result(small, marks):
    caller = small.start(
        "test.work", "--job", "j1", request={"marks": str(marks), "steps": 8, "sleep": 0.2}
    )
    record(small, "j1")
    fill(small.state)
    assert small.finish(caller).result["pid"]


def test_events_beyond_the_room_are_dropped_not_fatal(small):
    answer = small.call("test.flood", "--job", "j1", request={"events": 2000})
    assert answer.result == {"done": True}
    assert 100 < len(answer.messages("log")) < 2000


def test_a_read_only_state_folder_is_one_clear_error(small, marks):
    subprocess.run(["mount", "-o", "remount,ro", str(small.state)], check=True)
    error = small.call("test.work", "--job", "j1", request={"marks": str(marks)}).error
    assert error["code"] == "file.read-only"
