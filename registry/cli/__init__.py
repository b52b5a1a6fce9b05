"""The command line: parses arguments, calls the API and presents the result. It makes no decisions of its own.

A file has the verbs of one noun or of one subject. To add a verb, write a function with ``session_command`` and add a
line to the table in ``main``; a verb of a noun names its ``group`` instead. ``commands`` defines commands and their
common options, ``options`` the options that several commands share, and ``output`` prints results.
"""
