"""CRIU inside a unit knows the kernel from an earlier look at it."""

from __future__ import annotations

import pytest
from unit_workplace import Workplace, counter

from coldsnap_runtime import criu_kernel
from coldsnap_runtime.criu_kernel import kernel_mounts

pytestmark = pytest.mark.criu


def test_the_kernel_is_asked_once(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    record = workplace.serve(workplace.script("counter.py", counter()))
    captured = workplace.checkpoint(record)
    workplace.stop(record)
    found = []
    for _ in range(3):  # another CRIU of this machine may remove the file in between
        restored = workplace.restore(captured["capture_dir"])
        log = workplace.store.paths("u0", restored.generation).work / "restore.log"
        found.append("Loaded kdat cache" in log.read_text(errors="replace"))
        assert workplace.ask(restored)["n"] > 0
        workplace.stop(restored)
    assert any(found)

    if criu_kernel._is_tmpfs("/run"):
        return  # CRIU keeps the file there by itself
    folder = workplace.state_dir / "criu-kernel"
    (kept,) = folder.iterdir()
    old = folder / f"{'0' * 16}-{'1' * 16}.kdat"
    old.write_bytes(b"of an earlier boot")
    monkeypatch.setattr(criu_kernel.subprocess, "run", None)  # must not be called
    criu = workplace.installation.criu
    (mount,) = kernel_mounts(workplace.state_dir, criu)
    assert (mount.source, mount.target) == (str(kept), "/run/criu.kdat")
    monkeypatch.undo()
    kept.unlink()
    (mount,) = kernel_mounts(workplace.state_dir, criu)
    assert list(folder.iterdir()) == [kept]


def test_without_it_a_unit_starts_all_the_same(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_named: object) -> None:
        raise OSError("no such program")

    monkeypatch.setattr(criu_kernel.subprocess, "run", broken)
    assert kernel_mounts(workplace.state_dir, workplace.installation.criu) == ()
