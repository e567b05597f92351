"""YAML plans -> typed, expanded, checked plans.

`loading.load_plan` reads one, `registry.Registry` knows the installed packs, `model` is what comes
out, `rendering.Renderer` fills in expressions per host, `schemas.schemas` composes JSON Schemas.
"""
