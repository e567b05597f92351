"""Start of the child: patch first, then import anything else.

Without the patch ssh hosts go in lockstep and time-outs are late and wrong; with it, threads
of the patched process are greenlets, which is why the engine lives in another process.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

from coldsnap.fleet.child.server import main  # noqa: E402

if __name__ == "__main__":
    main()
