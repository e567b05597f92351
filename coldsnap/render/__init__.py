"""The only formatter: previews, events, errors, tables, reports -> text, JSON, HTML.

Nothing here decides or acts, and nothing else in ColdSnap builds output for people. Modules are
imported one by one by those who need them, so that a short command stays quick to start.
"""
