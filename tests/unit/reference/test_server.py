"""The engine from outside: a real process, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reference_server import Served, start
from waiting import wait_for

PROMPTS = ["The capital of France is", "Once upon a time", "x", "Two and two are"]


def events(served: Served, **body: Any) -> list[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({"stream": True, **body}))
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    lines = [line for line in answer.read().decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_models(served: Served) -> None:
    status, value = served.ask("/v1/models")
    assert status == 200
    assert [model["id"] for model in value["data"]] == ["small"]


def test_greedy_answer_is_repeatable_and_varied(served: Served) -> None:
    answer = served.complete(max_tokens=64, ignore_eos=True)
    assert served.complete(max_tokens=64, ignore_eos=True) == answer
    tokens = answer["logprobs"]["tokens"]
    assert len(tokens) == 64
    assert len(set(tokens)) > 24, "a model that repeats itself shows no fault of its memory"
    assert all(value < 0 for value in answer["logprobs"]["token_logprobs"])
    assert answer["finish_reason"] == "length"


def test_logprobs_and_offsets_belong_to_the_text(served: Served) -> None:
    answer = served.complete(logprobs=3)
    marks = answer["logprobs"]
    for token, logprob, top in zip(
        marks["tokens"], marks["token_logprobs"], marks["top_logprobs"], strict=True
    ):
        assert max(top.values()) == logprob == top[token]
    assert marks["text_offset"] == sorted(marks["text_offset"])
    assert marks["text_offset"][0] == 0
    assert served.complete(logprobs=None)["logprobs"] is None


def test_stream_carries_the_same_answer(served: Served) -> None:
    whole = served.complete(max_tokens=20)
    body = {"prompt": PROMPTS[0], "max_tokens": 20, "temperature": 0, "logprobs": 1}
    parts = events(served, **body, stream_options={"include_usage": True})
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"]["completion_tokens"] == 20
    choices = [part["choices"][0] for part in parts[:-1]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    for name in ("tokens", "token_logprobs", "text_offset"):
        joined = [item for choice in choices for item in choice["logprobs"][name]]
        assert joined == whole["logprobs"][name]
    assert [choice["finish_reason"] for choice in choices][-1] == "length"


def test_stop_ends_the_text_before_it(served: Served) -> None:
    text = served.complete(max_tokens=20)["text"]
    stop = text[10:14]
    answer = served.complete(max_tokens=20, stop=[stop])
    assert answer["text"] == text.split(stop, 1)[0]
    assert answer["finish_reason"] == "stop"
    parts = events(served, prompt=PROMPTS[0], max_tokens=20, temperature=0, stop=stop)
    assert "".join(part["choices"][0]["text"] for part in parts) == answer["text"]


def test_sampling_follows_the_seed(served: Served) -> None:
    first = served.complete(temperature=1, seed=3)
    assert served.complete(temperature=1, seed=3) == first
    assert served.complete(temperature=1, seed=4)["text"] != first["text"]


def test_several_prompts_and_token_prompts(served: Served) -> None:
    status, value = served.ask(
        "/v1/completions", {"prompt": PROMPTS, "max_tokens": 8, "temperature": 0}
    )
    assert status == 200
    alone = [served.complete(prompt, max_tokens=8)["text"] for prompt in PROMPTS]
    assert [choice["text"] for choice in value["choices"]] == alone


def test_answers_do_not_depend_on_the_load(served: Served) -> None:
    """Bit for bit: log-probabilities are compared as they are printed."""
    prompts = [*PROMPTS, "A long prompt that takes more than one piece. " * 6] * 2
    alone = {prompt: served.complete(prompt, max_tokens=24) for prompt in prompts}
    with ThreadPoolExecutor(len(prompts)) as pool:
        found = list(pool.map(lambda prompt: served.complete(prompt, max_tokens=24), prompts))
    assert found == [alone[prompt] for prompt in prompts]


def test_bad_requests_are_told_so(served: Served) -> None:
    for body, status in (({"prompt": ""}, 400), ({"prompt": "a", "model": "b"}, 404)):
        code, value = served.ask("/v1/completions", body)
        assert code == status
        assert value["error"]["message"]
    assert served.ask("/nothing")[0] == 404
    assert served.ask("/v1/completions")[0] == 405
    assert served.ask("/health", {})[0] == 405


def test_malformed_http_does_not_hurt(served: Served) -> None:
    for data in (
        b"\x00\xff garbage\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 3\r\n\r\n{[}",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
    ):
        with socket.create_connection(("127.0.0.1", served.port), 10) as client:
            client.sendall(data)
            assert b" 4" in client.recv(100), data[:60]
    assert served.ask("/health")[0] == 200


def test_one_connection_carries_several_requests(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    for path, status in (("/health", 200), ("/nothing", 404), ("/v1/models", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    local = connection.sock.getsockname()
    connection.request("POST", "/v1/completions", '{"prompt": ""}')
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 400
    assert connection.sock.getsockname() == local


def test_a_client_that_leaves_frees_its_slot(served: Served) -> None:
    body = {"prompt": "a", "max_tokens": 2000, "temperature": 0, "ignore_eos": True}
    for stream in (True, False):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": stream}))
        time.sleep(0.1)
        connection.close()
    wait_for(lambda: "requests_running 0\n" in served.ask("/metrics")[1])


def test_metrics_count(served: Served) -> None:
    def generated() -> int:
        lines = served.ask("/metrics")[1].splitlines()
        name = "coldsnap_reference_generated_tokens_total "
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

    before = generated()
    served.complete(max_tokens=5, ignore_eos=True)
    assert generated() == before + 5
    text = served.ask("/metrics")[1]
    assert 'coldsnap_reference_phase{phase="serving"} 1.0' in text
    assert "coldsnap_reference_first_token_seconds_count" in text


def test_control_routes_are_not_on_the_serving_port(served: Served) -> None:
    for path in ("/coldsnap/quiesce", "/coldsnap/hydrate", "/sleep"):
        assert served.ask(path, {})[0] == 404
    assert served.ask("/health")[0] == 200


def test_loading_engine_says_so(fresh: Callable[..., Served]) -> None:
    served = fresh("--tune-seconds", "5", wait=False)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            status, value = served.ask("/v1/completions", {"prompt": "a"})
            break
        except OSError:
            time.sleep(0.02)
    assert status == 503
    assert value["error"]["code"] == "loading"


def test_termination_finishes_what_runs(fresh: Callable[..., Served]) -> None:
    served = fresh()
    answers: list[Any] = []
    body = {"max_tokens": 200, "ignore_eos": True}
    client = threading.Thread(target=lambda: answers.append(served.complete("a", **body)))
    client.start()
    wait_for(lambda: "requests_running 1\n" in served.ask("/metrics")[1])
    assert served.stop() == 0
    client.join()
    assert len(answers[0]["logprobs"]["tokens"]) == 200


def test_missing_model_is_one_clear_line(tmp_path: Path) -> None:
    served = start(tmp_path / "nothing", tmp_path, wait=False)
    assert served.process.wait(20) == 1
    lines = served.log.read_text().splitlines()
    assert any("error[model.missing]" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


def test_taken_port_is_one_clear_line(model: Path, served: Served, tmp_path: Path) -> None:
    other = start(model, tmp_path, "--port", str(served.port), wait=False)
    assert other.process.wait(20) == 1
    assert "Address already in use" in other.log.read_text()
    assert "Traceback" not in other.log.read_text()
