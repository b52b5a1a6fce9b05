"""``python -m registry``: the command line, for when the ``registry`` script is not on PATH."""

from registry.cli.main import main

if __name__ == "__main__":
    main()
