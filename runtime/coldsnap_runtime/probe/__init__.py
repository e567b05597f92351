"""The host feature profile: what this host can do, and why not, and what would help.

A package for Python >= 3.8 that imports nothing but itself and the standard library: a bare host
gets all of it as one text (coldsnap_core.bare_probe). Every probe that might hang runs in a forked
child with a deadline, so that a stuck driver or a crashing library is a feature that failed and
not a probe that hangs. Nothing on the host is changed. Reasons hold no numbers that change by
themselves; those are evidence.
"""
