"""Copied into a runtime pack as its ``__main__.py``: ``python3 PACKDIR VERB ...``.

Nothing but the pack and the standard library is imported, whatever else this interpreter has.
Byte code is kept beside the state, never in the pack: a pack holds what its digest says.
"""

import contextlib
import os
import shutil
import sys

PACK = os.path.dirname(os.path.abspath(__file__))


def prepare() -> None:
    """Narrow the search for modules, and compile into ``{state_dir}/pycache``."""
    # PACK is {state_dir}/runtime/sha256/<hex> on a target; elsewhere it will not stay.
    stays = os.path.basename(os.path.dirname(PACK)) == "sha256"
    state_dir = os.path.dirname(os.path.dirname(os.path.dirname(PACK)))
    sys.pycache_prefix = os.path.join(state_dir, "pycache")
    # Into our own folder, whatever the caller's environment says.
    sys.dont_write_bytecode = not stays
    external = sys.modules.get("_frozen_importlib_external")
    if hasattr(external, "_write_atomic"):
        external._write_atomic = write_whole  # type: ignore[union-attr]  # noqa: SLF001
    # An editable install of coldsnap in this interpreter looks for modules before sys.path does.
    sys.meta_path[:] = [f for f in sys.meta_path if _module_of(f).startswith("_frozen_importlib")]
    sys.path[:] = [PACK, os.path.join(PACK, "vendor"), *filter(_is_standard, sys.path)]
    # The pack's protobuf is pure Python; another one's C part must not be mixed in.
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"


def write_whole(path: str, data: bytes, mode: int = 0o666) -> None:
    """For importlib, whose own takes what a full disk cut off for a whole file, once and for all.

    Raises OSError, which importlib passes over: the code is compiled again next time.
    """
    temporary = f"{path}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_EXCL | os.O_CREAT | os.O_WRONLY, mode & 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _module_of(finder: object) -> str:
    is_class = isinstance(finder, type)
    return finder.__module__ if is_class else type(finder).__module__


def _is_standard(path: str) -> bool:
    if "site-packages" in path or "dist-packages" in path:
        return False
    return path.startswith((sys.base_prefix + os.sep, sys.base_exec_prefix + os.sep))


if __name__ == "__main__":
    prepare()
    try:
        from coldsnap_runtime.main import main
    except (EOFError, ValueError):  # byte code that was damaged on the disk
        shutil.rmtree(sys.pycache_prefix or "", ignore_errors=True)
        from coldsnap_runtime.main import main

    sys.exit(main(sys.argv[1:]))
