"""Dataclasses that are made late are what `dataclasses.dataclass` makes at once."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
import threading
from dataclasses import field
from typing import Any

import pytest

from coldsnap.artifact.decode import Record, decode
from coldsnap.artifact.errors import ColdSnapError
from coldsnap_runtime.late_records import late_dataclass


def _is_made(cls: type) -> bool:
    return "__init__" in cls.__dict__


def _classes() -> tuple[Any, Any]:
    @late_dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)

    @late_dataclass(frozen=True)
    class Named(Point):
        name: str = "n"

    return Point, Named


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of this module are some of ours."""
    monkeypatch.setattr("coldsnap_runtime.late_records._OURS", "")


@pytest.fixture
def classes(ours: None) -> tuple[Any, Any]:
    """A record and one that derives from it; neither was made yet."""
    del ours
    return _classes()


def test_made_by_the_first_instance(classes: tuple[Any, Any]) -> None:
    point, named = classes
    assert not _is_made(point)
    assert point.y == 2
    one = point(1)
    assert _is_made(point)
    assert not _is_made(named)
    assert (one.x, one.y, one.names) == (1, 2, [])
    assert one == point(x=1, y=2)
    assert one != point(3)
    assert repr(one).endswith("Point(x=1, y=2, names=[])")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 5
    with pytest.raises(TypeError):
        point()
    with pytest.raises(TypeError):
        point(1, z=3)


def test_made_by_who_asks_for_its_fields(classes: tuple[Any, Any]) -> None:
    point, named = classes
    assert [item.name for item in dataclasses.fields(named)] == ["x", "y", "names", "name"]
    assert _is_made(point)
    assert dataclasses.is_dataclass(point)


def test_one_that_derives_makes_its_base(classes: tuple[Any, Any]) -> None:
    point, named = classes
    made = named(1, name="m")
    assert dataclasses.asdict(made) == {"x": 1, "y": 2, "names": [], "name": "m"}
    assert dataclasses.replace(made, x=9) == named(9, name="m")
    assert copy.copy(made) == made
    assert hash(named(1, 2, ())) == hash(named(1, 2, ()))  # type: ignore[arg-type, unused-ignore]
    assert point(1) != made


def test_a_class_that_is_none_but_derives_from_one(classes: tuple[Any, Any]) -> None:
    point, _ = classes

    class Counted(point):
        def __init__(self, x: int) -> None:
            super().__init__(x, y=x + 1)

    assert Counted(4).y == 5
    assert [item.name for item in dataclasses.fields(Counted)] == ["x", "y", "names"]


@pytest.mark.usefixtures("ours")
def test_many_threads_make_one_at_once() -> None:
    errors: list[BaseException] = []
    for _ in range(30):

        @late_dataclass(frozen=True)
        class Wide:
            a: int
            b: int = 1
            c: int = 2
            d: int = 3

        assert not _is_made(Wide)
        start = threading.Barrier(6)

        def make(cls: Any = Wide, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                assert cls(7).a == 7
                assert len(dataclasses.fields(cls)) == 4
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=make) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


@pytest.mark.usefixtures("ours")
def test_records_are_decoded_and_refused_as_ever() -> None:
    record = late_dataclass(frozen=True)(
        type("Asked", (Record,), {"__annotations__": {"unit": str, "n": int}, "n": 1})
    )
    assert not _is_made(record)
    assert decode(record, {"unit": "u"}, what="it").n == 1
    with pytest.raises(ColdSnapError, match="unknown field 'units'"):
        decode(record, {"units": "u"}, what="it")


@pytest.mark.usefixtures("ours")
def test_errors_do_not_wait() -> None:
    @late_dataclass
    class Failure(Exception):  # noqa: N818
        text: str

    assert _is_made(Failure)
    assert Failure("so").text == "so"


def test_classes_of_others_do_not_wait() -> None:
    @late_dataclass
    class Foreign:
        text: str = ""

    assert _is_made(Foreign)


def test_a_verb_makes_few_of_those_that_it_imports() -> None:
    code = """
import sys
from coldsnap_runtime.late_records import install
install()
import dataclasses, gc
import coldsnap_runtime.restore_verb
ours = [c for c in gc.get_objects() if isinstance(c, type) and c.__module__.startswith('coldsnap')]
late = [c for c in ours if '__dataclass_fields__' in vars(c) and '__init__' not in vars(c)]
print(len(late))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) > 50
