"""A small real inference engine in NumPy: a decoder-only transformer behind an OpenAI API.

It exists so that capture and restore can be exercised anywhere. Read it in this order:
`config` and `checkpoint` (what a model folder holds), `regions` and `weights` (where its bytes
live), `kernels` and `autotune` (how a matrix product is run, and how the fastest way is found),
`transformer` (the mathematics), `scheduler` (who is served next), `api` and `server` (HTTP),
`lifecycle` (quiesce, resume, hydrate, sleep, wake).
"""

__version__ = "1"
