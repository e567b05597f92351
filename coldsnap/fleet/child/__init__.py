"""The fleet's child process: pyinfra, monkey-patched by gevent, behind JSON lines.

`python -m coldsnap.fleet.child` reads requests on standard input and answers on standard output.
Nothing in here is imported by the parent process.
"""
