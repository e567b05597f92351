"""What holds on every kind of host; test_fleet_*.py subclass it and give the fixture `target`."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from fleet_places import Target, fact, is_running, later, output, sha256, shell, wait_for

from coldsnap.artifact.errors import ColdSnapError
from coldsnap.sdk.host import FactRequest, OperationRequest


class FactContract:
    def test_pyinfras_own_facts(self, target: Target):
        found = target.host.ask_all(
            [
                FactRequest("pyinfra.facts.server:Os"),
                FactRequest("pyinfra.facts.server:Which", {"command": "sh"}),
            ]
        )
        assert found[0] == "Linux"
        assert found[1].endswith("/sh")

    def test_many_facts_in_one_round_trip_come_apart_again(self, target: Target):
        texts = ["", "a", "two\nlines", "ends\n", "'quotes\" $HOME `id`", "x" * 5000]
        texts += [f"n{n}" for n in range(20)]
        assert target.host.ask_all([fact("Echo", text=text) for text in texts]) == [
            text.removesuffix("\n") or None for text in texts
        ]

    def test_exit_statuses_and_words_of_failed_facts_stay_their_own(self, target: Target):
        good, bad = (
            fact("Output", command="echo fine"),
            fact("Output", command="echo no >&2; exit 7"),
        )
        syntax, missing = fact("Output", command="if then ("), fact("NoSuchFact")
        errors = target.fleet.prefetch({target.host.name: [bad, good, syntax, missing]})
        assert errors == {}
        assert target.host.ask(good) == ["fine"]
        with pytest.raises(ColdSnapError) as caught:
            target.host.ask(bad)
        assert caught.value.code == "host.fact-failed"
        assert "7" in caught.value.message
        assert caught.value.details == ("no",)
        for request, code in ((syntax, "host.fact-failed"), (missing, "host.unknown-name")):
            with pytest.raises(ColdSnapError) as caught:
                target.host.ask(request)
            assert (caught.value.code, caught.value.where) == (code, target.host.name)

    def test_the_kinds_of_facts_that_pyinfra_has(self, target: Target):
        asked = [fact("Upper", text="abc"), fact("Typed"), fact("NeedsProgram"), fact("Loud")]
        upper, typed, absent, loud = target.host.ask_all(asked)
        assert upper == "ABC"
        assert typed == {"1": ["a", "b"], "day": "2026-11-30", "pair": [1, 2], "raw": "/w=="}
        assert (absent, loud) == ("absent", "quiet")
        with pytest.raises(ColdSnapError, match="could not be understood"):
            target.host.ask(fact("Confused"))

    def test_a_fact_that_reads_its_standard_input_gets_none(self, target: Target):
        assert target.host.ask_all([fact("Output", command="cat"), fact("Echo", text="x")]) == [
            [],
            "x",
        ]

    def test_wrong_arguments_are_an_error_of_that_fact(self, target: Target):
        with pytest.raises(ColdSnapError, match="could not be asked"):
            target.host.ask(fact("Echo", wrong=1))

    def test_bytes_that_are_not_text(self, target: Target):
        (line,) = output(target.host, r"printf 'a\377b\n'")
        assert line == "a�b"

    def test_a_large_answer_comes_whole_and_a_huge_one_is_refused(self, target: Target):
        assert len(output(target.host, "seq 200000")) == 200000
        with pytest.raises(ColdSnapError, match="no answer"):
            output(target.host, "head -c 20000000 /dev/zero | tr '\\0' x")


class OperationContract:
    def test_an_idempotent_operation_changes_once(self, target: Target):
        request = OperationRequest("fleet_pack:present", {"path": str(target.folder / "file")})
        assert target.host.perform(request).changed is True
        assert target.host.perform(request).changed is False

    def test_pyinfras_own_operations_put_a_file(self, target: Target):
        source = target.folder / "source"
        source.write_bytes(b"x\xff" * 1000)
        request = OperationRequest(
            "pyinfra.operations.files:put", {"src": str(source), "dest": f"{target.folder}/dest"}
        )
        assert target.host.perform(request).changed is True
        assert target.host.perform(request).changed is False
        assert output(target.host, f"sha256sum <{target.folder}/dest")[0][:64] == sha256(source)

    def test_python_callbacks_with_facts_and_nested_operations(self, target: Target):
        path = str(target.folder / "nested")
        assert target.host.perform(
            OperationRequest("fleet_pack:calls_back", {"path": path})
        ).changed
        assert output(target.host, f"ls {path}") == [path]

    def test_output_and_standard_input(self, target: Target):
        request = OperationRequest(
            "fleet_pack:shell", {"command": "cat; echo err >&2", "stdin": "y" * 300_000 + "\nend"}
        )
        result = target.host.perform(request)
        assert result.stdout.endswith("y\nend\n")
        assert result.stderr == "err\n"

    def test_50_mb_of_output_cost_no_memory(self, target: Target):
        result = shell(target.host, "head -c 50000000 /dev/urandom; echo; echo END")
        assert result.stdout.endswith("\nEND\n")
        assert len(result.stdout.encode()) < 300_000

    def test_a_failure_tells_status_and_last_words(self, target: Target):
        with pytest.raises(ColdSnapError) as caught:
            shell(target.host, r"echo out; printf 'bad \377 news\n' >&2; exit 9")
        error = caught.value
        assert (error.code, error.where) == ("host.operation-failed", target.host.name)
        assert "9" in error.message
        assert error.details == ("bad � news",)

    @pytest.mark.parametrize("name", ["broken", "no_such", "Echo"])
    def test_operations_that_are_none_or_defective(self, target: Target, name: str):
        with pytest.raises(ColdSnapError) as caught:
            target.host.perform(OperationRequest(f"fleet_pack:{name}"))
        assert caught.value.code in {"host.operation-failed", "host.unknown-name"}

    def test_a_timeout_leaves_no_process(self, target: Target):
        began = time.monotonic()
        with pytest.raises(ColdSnapError) as caught:
            shell(target.host, "(sleep 4041 & sleep 4041); echo never", timeout=0.7)
        assert caught.value.code == "host.timeout"
        assert time.monotonic() - began < 60
        assert not is_running(target.host, "sleep 4041")

    def test_a_process_that_ignores_term_is_killed(self, target: Target):
        with pytest.raises(ColdSnapError):
            shell(target.host, "trap '' TERM; sleep 4042; sleep 4042", timeout=0.7)
        assert not is_running(target.host, "sleep 4042")

    def test_cancel_ends_what_runs_and_nothing_that_comes_later(self, target: Target):
        codes = []

        def work() -> None:
            try:
                shell(target.host, "sleep 4043")
            except ColdSnapError as error:
                codes.append(error.code)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: is_running(target.host, "sleep 4043"))
        target.fleet.cancel()
        assert shell(target.host, "echo later").stdout == "later\n"
        for thread in threads:
            thread.join(15)
        assert codes == ["run.cancelled"] * 3
        assert not is_running(target.host, "sleep 4043")

    def test_cancel_in_the_first_moment_leaves_no_process_either(self, target: Target):
        for delay in (0.0, 0.003, 0.01, 0.02):
            with later(delay, target.fleet.cancel):
                # Cancelled before it began, it runs into its time-out.
                with pytest.raises(ColdSnapError) as caught:
                    shell(target.host, "sleep 4044", timeout=2.0)
                assert caught.value.code in {"run.cancelled", "host.timeout"}
        assert not is_running(target.host, "sleep 4044")

    def test_operations_of_one_host_run_at_the_same_time(self, target: Target):
        shell(target.host, "true")
        began = time.monotonic()
        threads = [threading.Thread(target=shell, args=(target.host, "sleep 1")) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 11, "not one after the other"

    def test_a_daemon_that_keeps_the_output_open_holds_nobody(self, target: Target):
        began = time.monotonic()
        result = shell(target.host, "echo started; (sleep 4045 &) ; true")
        assert result.stdout == "started\n"
        assert time.monotonic() - began < 60
        output(target.host, "pkill -f '[s]leep 4045' || true")


class JobContract:
    def test_events_come_while_it_runs_and_then_the_result(self, target: Target):
        times: list[tuple[str, float]] = []
        began = time.monotonic()
        result = target.host.perform(
            target.job("j1", steps=4, sleep=0.4),
            on_event=lambda event: times.append((event.message, time.monotonic() - began)),
        )
        assert [message for message, _ in times] == [f"step {n}" for n in range(4)]
        assert times[-1][1] - times[0][1] > 1.0
        assert result.result["pid"] == result.result["session"]

    def test_a_large_result_comes_whole(self, target: Target):
        result = target.host.perform(target.job("big", steps=0, big=3_000_000))
        assert len(result.result["big"]) == 3_000_000

    def test_a_failed_verb_is_its_own_error(self, target: Target):
        with pytest.raises(ColdSnapError) as caught:
            target.host.perform(target.job("bad", steps=0, fail_times=1))
        assert caught.value.code == "runtime.internal"
        assert caught.value.where == target.host.name

    @pytest.mark.parametrize("number", ["KILL", "TERM"])
    def test_whoever_relays_the_job_may_be_killed(self, target: Target, number: str):
        request = target.job(f"relay-{number}", steps=30, sleep=0.2)
        kill = f"pkill -{number} -f '[-]-job relay-{number}' -o && echo struck || true"
        struck = []

        def strike(event) -> None:
            if event.message == "step 1" and not struck:
                struck.extend(output(target.host, kill))

        result = target.host.perform(request, on_event=strike)
        assert struck == ["struck"]
        assert result.result["session"]
        assert target.marks.read_text().count("begin") == 1

    def test_a_job_that_never_began_is_the_failure_that_it_is(self, target: Target):
        request = target.job("none")
        request.args["python"] = "/no/such/python"
        with pytest.raises(ColdSnapError) as caught:
            target.host.perform(request)
        assert caught.value.code == "host.operation-failed"
        assert "127" in caught.value.message

    @pytest.mark.parametrize("how", ["timeout", "cancel"])
    def test_a_job_is_ended_and_undoes(self, target: Target, how: str):
        request = target.job(f"long-{how}", steps=1000, sleep=0.1, child=True)
        codes, said = [], []

        def work() -> None:
            try:
                limit = 1.5 if how == "timeout" else 60
                target.host.perform(request, timeout=limit, on_event=said.append)
            except ColdSnapError as error:
                codes.append((error.code, error.message))

        thread = threading.Thread(target=work)
        thread.start()
        target.job_pid()
        if how == "cancel":
            time.sleep(0.3)
            target.fleet.cancel()
        thread.join(30)
        expected = "host.timeout" if how == "timeout" else "run.cancelled"
        assert codes
        assert codes[0][0] == expected
        assert "undone" in codes[0][1]
        assert target.marks.read_text().endswith("undone\n")
        (child,) = [event.message.split()[1] for event in said if event.kind == "log"]
        # Dead processes stay as zombies where nobody reaps, as in a container.
        look = f"sed 's/.*) //' /proc/{child}/stat 2>/dev/null | cut -c1"
        assert output(target.host, look) in ([], ["Z"], ["X"])


class UploadContract:
    @pytest.fixture
    def source(self, target: Target) -> Path:
        path = target.folder / "payload"
        path.write_bytes(os.urandom(7_000_000) + b"\xff\0")
        return path

    def test_a_file_arrives_once(self, target: Target, source: Path):
        remote = f"{target.folder}/in/some/folder/it's there"
        events = []
        for is_new in (True, False):
            found = target.host.upload(
                source,
                remote,
                sha256=f"sha256:{sha256(source)}",
                mode=0o640,
                on_event=events.append,
            )
            assert found is is_new
        quoted = "'" + remote.replace("'", "'\\''") + "'"
        digest, mode = output(target.host, f"sha256sum <{quoted}; stat -c %a {quoted}")
        assert digest[:64] == sha256(source)
        assert mode == "640"
        assert (events[-1].kind, events[-1].done, events[-1].total) == (
            "progress",
            7_000_002,
            7_000_002,
        )
        folder = f"{target.folder}/in/some/folder"
        assert output(target.host, f"ls -A {folder}") == ["it's there"]

    def test_another_content_of_the_same_size_is_replaced(self, target: Target, source: Path):
        remote = f"{target.folder}/there"
        shell(target.host, f"head -c 7000002 /dev/zero >{remote}")
        assert target.host.upload(source, remote, sha256=sha256(source)) is True
        assert output(target.host, f"sha256sum <{remote}")[0][:64] == sha256(source)

    def test_a_wrong_digest_leaves_the_old_file(self, target: Target, source: Path):
        remote = f"{target.folder}/old"
        shell(target.host, f"echo old >{remote}")
        with pytest.raises(ColdSnapError) as caught:
            target.host.upload(source, remote, sha256="0" * 64)
        assert caught.value.code == "upload.digest-mismatch"
        assert output(
            target.host, f"cat {remote}; ls -A {target.folder} | grep coldsnap; true"
        ) == ["old"]

    def test_a_place_where_it_cannot_be(self, target: Target, source: Path):
        shell(target.host, f"mkdir -p {target.folder}/taken; touch {target.folder}/file-there")
        for remote in (f"{target.folder}/taken", f"{target.folder}/file-there/x"):
            with pytest.raises(ColdSnapError) as caught:
                target.host.upload(source, remote, sha256=sha256(source))
            assert caught.value.code == "upload.failed"

    def test_an_upload_can_be_cancelled(self, target: Target):
        source = target.folder / "large"
        with source.open("wb") as file:
            file.truncate(6 << 30)  # sparse here, not on its way
        remote = f"{target.folder}/large-there"
        with later(0.4, target.fleet.cancel), pytest.raises(ColdSnapError) as caught:
            target.host.upload(source, remote, sha256="1" * 64)
        assert caught.value.code in {"run.cancelled", "upload.failed"}
        wait_for(
            lambda: not output(target.host, f"ls -A {target.folder} | grep -E 'large-' || true")
        )
