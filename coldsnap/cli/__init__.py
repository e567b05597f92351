"""The command line: arguments, wiring, exit codes. What is shown is made by coldsnap.render.

`main.run` is the console script. A command is one function of `commands/`; it parses nothing
and prints nothing itself: it asks the layers below and gives the answer to its `Session`.
"""
