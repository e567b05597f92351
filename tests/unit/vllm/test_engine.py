"""vLLM as the core steps see it: how it is started on which driver, and what is refused."""

from __future__ import annotations

import pytest

from coldsnap.sdk import ColdSnapError, Model, Unit
from coldsnap_vllm.engine import VllmEngine

MODEL = Model(id="m", path="/models/m")


def launch(driver: str = "c580", **unit):
    host = {"vllm_python": "/opt/python3", "snapshot_driver": driver}
    return VllmEngine().launch(Unit(id="u", **unit), MODEL, host)


def test_on_a_gpu_it_can_sleep():
    assert "--enable-sleep-mode" in launch().argv
    assert launch(command=("vllm", "--enable-sleep-mode")).argv.count("--enable-sleep-mode") == 1


def test_on_cpu_it_is_not_asked_to():
    assert "--enable-sleep-mode" not in launch("criu").argv


def test_gate_and_worker_are_ours():
    argv = launch().argv
    assert argv[argv.index("--middleware") + 1] == "coldsnap_inside_vllm.middleware.ColdSnapGate"
    for option in ("--middleware", "--worker-extension-cls", "--port=1"):
        with pytest.raises(ColdSnapError) as caught:
            launch(command=("vllm", option, "x"))
        assert caught.value.code == "vllm.option-owned"


@pytest.mark.parametrize(
    "env",
    [
        {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64, expandable_segments:True"},
        {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        {"NCCL_NVLS_ENABLE": "1"},
        {"NCCL_CUMEM_HOST_ENABLE": "1"},
        {"NCCL_GRAPH_REGISTER": "1"},
        {"TORCH_NCCL_ENABLE_MONITORING": "1"},
        {"HF_HUB_DISABLE_XET": "0"},
    ],
)
def test_environment_that_breaks_a_restore(env):
    for driver in ("c580", "n580", "n610"):
        with pytest.raises(ColdSnapError) as caught:
            launch(driver, env=env, devices=(0,))
        assert caught.value.code == "vllm.environment-unfit"
    assert launch("criu", env=env).argv, "on CPU it does no harm"


def test_environment_that_does_not():
    assert launch(env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}).argv


def test_quiesce_exports_into_the_controllers_folder():
    (call,) = VllmEngine().quiesce()
    assert call.body["export"] == "{dir}"
    assert call.port.isdigit(), "the control port is never published"


def test_graphs_are_kept_unless_the_plan_says_otherwise():
    assert launch().graphs == "preserve-exec"
    assert "--enforce-eager" not in launch().argv
    assert launch(env={"COLDSNAP_GRAPHS": "recreate-from-plan"}).graphs == "recreate-from-plan"
    disabled = launch(env={"COLDSNAP_GRAPHS": "disabled"})
    assert disabled.graphs == "disabled"
    assert "--enforce-eager" in disabled.argv
    eager = launch(command=("vllm", "--enforce-eager"))
    assert (eager.graphs, eager.argv.count("--enforce-eager")) == ("disabled", 1)
    assert not launch("criu").graphs, "there are none on CPU"


@pytest.mark.parametrize(
    ("policy", "command"),
    [("kept", ()), ("preserve-exec", ("vllm", "--enforce-eager"))],
)
def test_graph_policies_that_cannot_be(policy, command):
    with pytest.raises(ColdSnapError) as caught:
        launch(env={"COLDSNAP_GRAPHS": policy}, command=command)
    assert caught.value.code == "vllm.graph-policy"


def test_a_restored_engine_is_told_its_provider():
    (call,) = VllmEngine().hydrate()
    assert call.body["provider"] == "{provider}"


@pytest.mark.parametrize(
    ("words", "share"),
    [
        (("--gpu-memory-utilization", "0.6"), 0.6),
        (("--gpu-memory-utilization=0.85",), 0.85),
        (("--gpu-memory-utilization", "all"), 0.0),
        ((), 0.0),
    ],
)
def test_what_it_demands_of_a_device_is_told(words, share):
    command = ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", *words)
    for driver in ("c580", "n580"):
        assert launch(driver, devices=(0,), command=command).device_share == share
    assert launch("criu", command=command).device_share == 0.0
