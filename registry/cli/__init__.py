"""The command line: parse, call the API, print. One file a command; nothing is decided here."""
