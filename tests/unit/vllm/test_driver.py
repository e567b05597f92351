"""Which snapshot driver a unit gets, and why not another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from coldsnap.artifact.drivers import DRIVERS, PREFERENCE, QUALIFICATIONS
from coldsnap.sdk import ColdSnapError, Unit, drivers_of
from coldsnap_core import drivers
from coldsnap_core.drivers import admits, driver_feature, driver_of, select, told, warning
from coldsnap_reference.engine import ReferenceEngine
from coldsnap_vllm.engine import VllmEngine

OLD = {"status": "unsupported", "reason": "NVIDIA driver 570.1 is older than 580", "remedy": "r"}
TOO_OLD_FOR_610 = {"status": "unsupported", "reason": "NVIDIA driver 580.1 is older than 610"}
ABLE = {"status": "unqualified", "reason": "never seen", "able": True}
PASSED = {"status": "passed", "reason": ""}


class Host:
    """A host whose probe says so of each driver."""

    vars: dict = {}  # noqa: RUF012

    def __init__(self, **found) -> None:
        self.found = found
        self.asked = 0

    def ask(self, _request):
        self.asked += 1
        return {"features": [{"id": f"driver.{name}", **f} for name, f in self.found.items()]}


def context(driver: str, devices=(), engine=None, **found):
    unit = Unit(id="u", devices=devices)
    return SimpleNamespace(
        plan=SimpleNamespace(driver=driver, topology=SimpleNamespace(units=(unit,))),
        unit=unit,
        engine=engine,
        host=Host(**(found or {"n610": TOO_OLD_FOR_610, "c580": PASSED, "n580": PASSED})),
        runtime=SimpleNamespace(digest="sha256:00"),
        where="host",
    )


def test_every_driver_has_its_contract_its_qualification_and_its_rank():
    assert set(DRIVERS) == set(QUALIFICATIONS) == {"criu", *PREFERENCE}
    assert all(found.reason for found in QUALIFICATIONS.values())
    floors = [DRIVERS[driver].minimum_nvidia_driver_major for driver in PREFERENCE]
    assert floors == sorted(floors, reverse=True)


def test_auto_without_devices_asks_nobody():
    ctx = context("auto")
    assert driver_of(ctx) == "criu"
    assert ctx.host.asked == 0


def test_auto_takes_the_newest_that_the_host_can_do():
    ctx = context("auto", (0,))
    assert driver_of(ctx) == "c580"
    features = ctx.host.ask(None)["features"]
    said = told(ctx, features)
    assert said.startswith("driver c580 (n610: NVIDIA driver 580.1 is older than 610; n580: ")


def test_auto_never_takes_what_nobody_has_shown_to_work():
    able = {"driver.n610": ABLE, "driver.c580": PASSED, "driver.n580": PASSED}
    chosen = select(able)
    assert chosen.driver == "c580"
    assert dict(chosen.others)["n610"].startswith("unqualified: no NVIDIA driver >= 610")


def test_auto_goes_on_to_the_next(monkeypatch):
    """A host without the checkpoint API can still start a template."""
    shown = {**QUALIFICATIONS, "n580": QUALIFICATIONS["c580"]}
    monkeypatch.setattr(drivers, "QUALIFICATIONS", shown)
    no_api = {"status": "unsupported", "reason": "libcuda lacks cuCheckpointProcessLock"}
    found = {"driver.n610": no_api, "driver.c580": no_api, "driver.n580": PASSED}
    chosen = select(found)
    assert chosen.driver == "n580"
    assert dict(chosen.others)["c580"] == "libcuda lacks cuCheckpointProcessLock"


def test_auto_where_none_fits():
    with pytest.raises(ColdSnapError) as caught:
        driver_of(context("auto", (0,), n610=OLD, c580=OLD, n580=OLD))
    assert caught.value.code == "driver.none-fits"
    assert [line.partition(":")[0] for line in caught.value.details] == ["n610", "c580", "n580"]
    assert "570.1 is older than 580" in caught.value.details[1]


def test_auto_takes_only_what_the_engine_supports():
    assert driver_of(context("auto", (0,), VllmEngine())) == "c580"
    able = {"n610": PASSED, "c580": PASSED, "n580": PASSED}
    with pytest.raises(ColdSnapError) as caught:
        driver_of(context("auto", (0,), ReferenceEngine(), **able))
    assert caught.value.code == "driver.none-fits"
    assert set(caught.value.details) == {f"{d}: the engine does not support it" for d in able}
    assert caught.value.remedy.startswith("write driver: criu")
    assert driver_of(context("auto", (), ReferenceEngine())) == "criu"


def test_an_engine_that_says_nothing_supports_criu():
    assert drivers_of(SimpleNamespace(name="silent")) == ("criu",)
    assert drivers_of(VllmEngine()) == ("criu", "c580", "n580", "n610")


@pytest.mark.parametrize("name", ["criu", "c580", "n580", "n610"])
def test_named(name):
    assert driver_of(context(name, (0,))) == name


def test_what_a_named_driver_needs_of_its_host():
    assert driver_feature(context("n580", (0,))) == "driver.n580"
    assert driver_feature(context("n610", (0,))) == "driver.n610"
    assert driver_feature(context("auto", (0,))) == "driver.criu"
    # A template without GPUs has nothing of NVIDIA in it.
    assert driver_feature(context("n580")) == "criu-process-template"


def test_an_unqualified_driver_is_admitted_by_name_with_a_warning():
    assert admits(ABLE)
    assert not admits(TOO_OLD_FOR_610)
    assert not admits({"status": "unqualified", "reason": "there is no CRIU yet"})
    assert warning("n610").startswith("driver n610 is unqualified: ")
    assert warning("n580").startswith("driver n580 is unqualified: ")
    assert warning("c580") == warning("criu") == ""
    assert warning("n580", has_devices=False) == "", "shown with vLLM on CPU"
