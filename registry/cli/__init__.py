"""The command line: parse, call the API, present the result. Nothing is decided here.

A file is a noun with its verbs, or verbs of one subject. ``main`` has the table of commands: a new verb is a function
with ``session_command``, in a file of its own or of its subject, and one line there. A verb of a noun names its
``group`` instead. ``commands`` has what every command is made of, ``options`` what several take, ``output`` presents.
"""
