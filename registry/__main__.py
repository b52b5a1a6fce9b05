"""``python -m registry``: the command line, where its script is not on PATH."""

from registry.cli.main import main

if __name__ == "__main__":
    main()
