"""vLLM's launch under driver n580."""

from __future__ import annotations

import pytest

from coldsnap.sdk import ColdSnapError, Model, Unit
from coldsnap_vllm.engine import VllmEngine

COMMAND = ("/venv/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m")
MODEL = Model(id="tiny", path="/m")


def launch(*command: str, devices=(), host_vars=None, **env: str):
    unit = Unit(id="u", command=command or COMMAND, devices=devices, env=env)
    return VllmEngine().launch(unit, MODEL, {"snapshot_driver": "n580", **(host_vars or {})})


def test_the_command_parks_first():
    made = launch()
    end = made.argv.index("--")
    own, engine = made.argv[:end], made.argv[end + 1 :]
    assert own[:3] == ("/venv/bin/python", "-m", "coldsnap_inside_template")
    assert own[3:] == ("--import", "coldsnap_inside_vllm.preload")
    assert engine[: len(COMMAND) - 1] == COMMAND[1:]
    assert engine[-4:-2] == ("--load-format", "coldsnap")
    assert "--enable-sleep-mode" not in engine
    assert made.template
    assert set(made.inside) == {"coldsnap_inside_vllm", "coldsnap_inside_template"}
    assert made.env["COLDSNAP_MODEL"] == "/m"


def test_on_a_gpu_it_can_sleep():
    assert "--enable-sleep-mode" in launch(devices=(0,)).argv


def test_without_modules():
    made = launch(COLDSNAP_TEMPLATE="exec")
    assert "--import" not in made.argv


def test_other_drivers_do_not_park():
    unit = Unit(id="u", command=COMMAND)
    made = VllmEngine().launch(unit, MODEL, {"snapshot_driver": "criu"})
    assert made.argv[: len(COMMAND)] == COMMAND
    assert not made.template
    assert "COLDSNAP_SNAPSHOT" not in made.env


def test_a_console_script_needs_its_interpreter():
    script = ("/venv/bin/vllm", "serve", "/m")
    made = launch(*script, host_vars={"vllm_python": "/venv/bin/python"})
    assert made.argv[made.argv.index("--") + 1 :][:3] == script
    for command, host_vars in ((script, {}), (("vllm", "serve"), {"vllm_python": "/p/python"})):
        with pytest.raises(ColdSnapError) as caught:
            launch(*command, host_vars=host_vars)
        assert caught.value.code == "vllm.no-interpreter"


@pytest.mark.parametrize("option", ["--load-format", "--worker-cls=x.Y"])
def test_options_of_its_own(option):
    with pytest.raises(ColdSnapError) as caught:
        launch(*COMMAND, option)
    assert caught.value.code == "vllm.option-owned"


def test_a_mode_that_is_none():
    with pytest.raises(ColdSnapError) as caught:
        launch(COLDSNAP_TEMPLATE="later")
    assert caught.value.code == "vllm.template-unfit"
