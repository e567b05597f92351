"""Messages to and from CRIU, against the classes that CRIU's own authors generated."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from runtime_target import criu_command

from coldsnap.store.criu import find_criu
from coldsnap_runtime import criu_messages
from coldsnap_runtime.criu_messages import Answer, Options, leave, read_answer, request


@pytest.fixture(scope="module")
def rpc() -> Any:
    """pycriu's ``rpc_pb2``, loaded by its file."""
    criu_command()
    folder = find_criu().python
    if folder is None:
        pytest.skip("this CRIU came without pycriu")
    path = Path(folder, "pycriu", "rpc_pb2.py")
    spec = importlib.util.spec_from_file_location("generated_rpc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated_rpc"] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, TypeError) as error:
        pytest.skip(f"pycriu cannot be loaded here: {error}")
    return module


def options(**more: Any) -> Options:
    given = {"images_dir": "/proc/self/fd/7", "log_file": "restore.log", "log_level": 3}
    return Options(**{**given, "ghost_limit": 512 << 20, **more})


def test_a_dump_asks_what_it_means(rpc: Any) -> None:
    asked = rpc.criu_req.FromString(
        request(criu_messages.DUMP, options(pid=1000, leave_running=True))
    )
    assert asked.type == rpc.DUMP
    opts = asked.opts
    assert (opts.pid, opts.leave_running) == (1000, True)
    assert (opts.images_dir, opts.images_dir_fd) == ("/proc/self/fd/7", -1)
    assert (opts.log_file, opts.log_level, opts.ghost_limit) == ("restore.log", 3, 512 << 20)
    yes = (opts.notify_scripts, opts.tcp_established, opts.ext_unix_sk, opts.link_remap)
    assert all((*yes, opts.file_locks))
    assert (opts.manage_cgroups_mode, opts.network_lock) == (rpc.IGNORE, rpc.SKIP)
    # Every field that is set is one that is meant.
    assert len(opts.ListFields()) == 14


def test_a_restore_hands_over_files(rpc: Any) -> None:
    files = (("run/coldsnap/unit/engine.log", 9), ("tmp/ö", 300))
    asked = rpc.criu_req.FromString(request(criu_messages.RESTORE, options(inherit=files)))
    assert asked.type == rpc.RESTORE
    assert [(entry.key, entry.fd) for entry in asked.opts.inherit_fd] == list(files)
    assert not asked.opts.HasField("pid")


@pytest.mark.parametrize("is_granted", [True, False])
def test_leave_is_given_or_refused(rpc: Any, *, is_granted: bool) -> None:
    told = rpc.criu_req.FromString(leave(is_granted=is_granted))
    assert (told.type, told.notify_success) == (rpc.NOTIFY, is_granted)


def test_answers_are_understood(rpc: Any) -> None:
    notice = rpc.criu_resp(type=rpc.NOTIFY, success=True)
    notice.notify.script, notice.notify.pid = "post-dump", 4711
    found = read_answer(notice.SerializeToString())
    assert found == Answer(criu_messages.NOTIFY, success=True, script="post-dump")
    failed = rpc.criu_resp(type=rpc.RESTORE, success=False, cr_errno=17, cr_errmsg="no such pid")
    found = read_answer(failed.SerializeToString())
    assert found == Answer(criu_messages.RESTORE, success=False, message="no such pid")
    done = rpc.criu_resp(type=rpc.RESTORE, success=True)
    done.restore.pid = 1
    assert read_answer(done.SerializeToString()).success


def test_nonsense_is_refused_and_never_crashes() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        data = rng.randbytes(rng.randrange(40))
        try:
            read_answer(data)
        except ValueError:
            continue
    for data in (b"", b"\x08", b"\x2a\x7f", b"\x08" + b"\xff" * 12, b"\x0b\x00"):
        with pytest.raises(ValueError, match=r"ends early|does not end|without a type|wire type"):
            read_answer(data)
