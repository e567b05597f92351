"""``python -m coldsnap_runtime VERB``: for a source tree; a pack has pack_main.py instead."""

import sys

from coldsnap_runtime.main import main

sys.exit(main(sys.argv[1:]))
