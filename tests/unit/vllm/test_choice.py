"""Which providers may be used, by policy, payload, model and driver."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace

import pytest

from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.mapped_files import DigestCache
from coldsnap_runtime.model_files import model_fault, record_model
from coldsnap_runtime.providers import Choice, after, choose
from coldsnap_runtime.unit_requests import LaunchSpec, Mount

PACK = (("payload.pack", "x"),)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "m"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name in ("model.safetensors", "tokenizer/vocab.json", ".cache/lock"):
        (folder / name).write_text(name)
    return folder


def recorded(folder, **more):
    spec = LaunchSpec(argv=("x",), mounts=(Mount(str(folder), "/models/m"),))
    return record_model({"path": "/models/m", **more}, spec)


def context(tmp_path):
    told: list[str] = []
    return SimpleNamespace(log=told.append, told=told, path=lambda *p: str(tmp_path.joinpath(*p)))


def image(*, payload=True, fault=None, model_files=None, has_weights=False):
    return SimpleNamespace(
        payloads=PACK if payload and fault is None else (),
        payload_fault=fault,
        payload_sha256="sha256:" + "1" * 64,
        model_files=model_files,
        has_weights=has_weights,
    )


MISSING = ColdSnapError("store.blob-missing", "it is missing")


def test_what_is_recorded_of_a_model(model):
    found = recorded(model)
    assert set(found["files"]) == {"model.safetensors", "tokenizer/vocab.json"}, "hidden ones not"
    assert found["source"] == str(model)
    assert record_model({"id": "m"}, LaunchSpec(argv=("x",))) is None
    assert record_model({"path": "/nowhere/at/all"}, LaunchSpec(argv=("x",))) is None


def test_the_hubs_cache_is_links(model, tmp_path):
    linked = tmp_path / "snapshot"
    linked.mkdir()
    (linked / "model.safetensors").symlink_to(model / "model.safetensors")
    found = recorded(linked)
    assert model_fault(found, ()) is None
    (model / "model.safetensors").write_text("something longer than it was")
    assert "bytes, had" in model_fault(found, ()).message
    (model / "model.safetensors").unlink()
    assert model_fault(found, ()).code == "recovery.model-changed"


def test_pinned_digests_count_and_times_do_not(model, tmp_path):
    data = (model / "model.safetensors").read_bytes()
    digests = {"model.safetensors": "sha256:" + hashlib.sha256(data).hexdigest()}
    found = recorded(model, digests=digests)
    os.utime(model / "model.safetensors", ns=(1, 1))
    cache = DigestCache(tmp_path / "digests.json")
    assert model_fault(found, (), cache) is None, "a copy on another host has other times"
    (model / "model.safetensors").write_bytes(data[::-1])
    assert "is not sha256" in model_fault(found, (), cache).message, "same size, other bytes"
    os.utime(model / "tokenizer" / "vocab.json", ns=(1, 1))
    assert model_fault(found, (), cache).code == "recovery.model-changed"


def test_everything_in_order(model, tmp_path):
    found = choose("auto", image(model_files=recorded(model)), (), context(tmp_path))
    assert (found.allowed, found.faults) == ("auto", ())
    assert Choice.from_json(found.to_json()) == found


def test_a_driver_that_starts_vllm_anew_reads_the_model(model, tmp_path):
    """n580 without a payload: a changed model must not be served as the captured one."""
    files = recorded(model)
    os.utime(model / "model.safetensors", ns=(1, 1))
    with pytest.raises(ColdSnapError) as caught:
        choose("auto", image(payload=False, model_files=files), (), context(tmp_path))
    assert caught.value.code == "recovery.model-changed"
    kept = image(payload=False, model_files=files, has_weights=True)
    assert choose("auto", kept, (), context(tmp_path)).allowed == "auto", "they are in the image"


def test_reasons_are_told_as_events(model, tmp_path):
    ctx = context(tmp_path)
    found = choose("auto", image(fault=MISSING, model_files=recorded(model)), (), ctx)
    assert found.allowed == "recovery"
    assert ctx.told == ["provider native is out (store.blob-missing): it is missing"]


def test_an_engine_that_says_nothing(tmp_path):
    ctx = context(tmp_path)
    assert after(Choice("auto", "auto", payload="sha256:x"), [{}], ctx, "u").used == "native"
    assert after(Choice("auto", "recovery"), [{}], ctx, "u").used == "recovery"
    assert after(Choice("auto", "auto"), ["text", None], ctx, "u").used == "image"
