"""A process that stops before its engine starts: what the snapshot driver `n580` captures.

Engine-neutral and standard library only. It is the command of a unit whose launch says
``template``; `coldsnap_runtime.unit_template` is its counterpart outside.
"""
