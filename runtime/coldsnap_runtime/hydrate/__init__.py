"""Model bytes between packs and memory, by the native library (docs/hydration.md).

::

    library = load_library()                       # None where it is not built
    with Session(library) as session:              # threads and ring, for many calls
        hydrate_pack(session, pack, addresses)     # every chunk checked
        verify_pack(session, pack)
"""

from coldsnap_runtime.hydrate.drafts import draft_io, finish_draft, is_draft, write_draft
from coldsnap_runtime.hydrate.library import Library, load_library
from coldsnap_runtime.hydrate.packs import hydrate_pack, verify_pack
from coldsnap_runtime.hydrate.region import Region, graph_memory
from coldsnap_runtime.hydrate.report import Report
from coldsnap_runtime.hydrate.session import Session
from coldsnap_runtime.hydrate.writing import Options, Source, write_pack, write_pack_as

__all__ = [
    "Library",
    "Options",
    "Region",
    "Report",
    "Session",
    "Source",
    "draft_io",
    "finish_draft",
    "graph_memory",
    "hydrate_pack",
    "is_draft",
    "load_library",
    "verify_pack",
    "write_draft",
    "write_pack",
    "write_pack_as",
]
