"""Which snapshot driver a unit gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from coldsnap.sdk import ColdSnapError, Unit
from coldsnap_core.drivers import driver_of


class Host:
    """A host whose probe says so of c580."""

    vars: dict = {}  # noqa: RUF012

    def __init__(self, status: str) -> None:
        self.status = status
        self.asked = 0

    def ask(self, _request):
        self.asked += 1
        feature = {"id": "driver.c580", "status": self.status, "reason": "too old", "remedy": "r"}
        return {"features": [feature]}


def context(driver: str, devices=(), status: str = "passed"):
    return SimpleNamespace(
        plan=SimpleNamespace(driver=driver),
        unit=Unit(id="u", devices=devices),
        host=Host(status),
        runtime=SimpleNamespace(digest="sha256:00"),
        where="host",
    )


def test_auto_without_devices_asks_nobody():
    ctx = context("auto")
    assert driver_of(ctx) == "criu"
    assert ctx.host.asked == 0


def test_auto_with_devices():
    assert driver_of(context("auto", (0,))) == "c580"


def test_auto_where_none_fits():
    with pytest.raises(ColdSnapError) as caught:
        driver_of(context("auto", (0,), "unsupported"))
    assert caught.value.code == "driver.none-fits"
    assert "too old" in caught.value.details[0]


@pytest.mark.parametrize("name", ["n580", "n610"])
def test_not_built(name):
    with pytest.raises(ColdSnapError) as caught:
        driver_of(context(name))
    assert caught.value.code == "driver.not-built"


def test_named():
    assert driver_of(context("c580")) == "c580"
