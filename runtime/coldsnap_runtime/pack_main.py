"""Copied into a runtime pack as its ``__main__.py``: ``python3 PACKDIR VERB ...``.

Byte code is kept beside the state, never in the pack: a pack holds what its digest says.
"""

import os
import sys

PACK = os.path.dirname(os.path.abspath(__file__))


def prepare() -> None:
    """Import from the pack alone, and compile into ``{state_dir}/pycache``."""
    # PACK is {state_dir}/runtime/sha256/<hex> on a target.
    sys.pycache_prefix = os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(PACK))), "pycache"
    )
    vendor = os.path.join(PACK, "vendor")
    sys.path[:] = [PACK, vendor, *(path for path in sys.path if path not in (PACK, vendor, ""))]


if __name__ == "__main__":
    prepare()
    from coldsnap_runtime.main import main

    sys.exit(main(sys.argv[1:]))
