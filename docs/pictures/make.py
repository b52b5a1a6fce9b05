"""Makes the pictures of docs/looking.md: ``.venv/bin/python docs/pictures/make.py``. It needs Chromium.

head.svg      what ``registry head`` prints on a terminal
notebook.png  what a notebook shows of a dataset
"""

from __future__ import annotations

import html
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

import registry

HERE = Path(__file__).parent
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


def on_terminal(*command: str) -> str:
    """What a command prints on a terminal of 100 columns."""
    main, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    for name in ("COLORTERM", "TERM_PROGRAM", "KITTY_WINDOW_ID"):
        environment.pop(name, None)
    process = subprocess.Popen(command, stdout=terminal, env=environment)  # noqa: S603 - our own command
    os.close(terminal)
    printed = b""
    while True:
        try:
            printed += os.read(main, 4096)
        except OSError:  # the other end is closed
            break
    process.wait()
    return printed.decode().replace("\r", "")


def as_svg(text: str) -> str:
    """Text as a picture of a terminal."""
    lines = text.rstrip("\n").split("\n")
    width, height = 9 * max(map(len, lines)) + 32, 18 * len(lines) + 28
    spans = "".join(
        f'<text x="16" y="{30 + 18 * at}">{html.escape(line)}</text>' for at, line in enumerate(lines) if line
    )
    style = "text{font:15px monospace;white-space:pre;fill:#ddd}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"><style>{style}</style>'
        f'<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>{spans}</svg>\n'
    )


def main() -> None:
    """Make the pictures of the digits."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REGISTRY_CATALOG"] = f"{folder}/catalog.db"
        with registry.connect() as catalog:
            catalog.build("digits")
            digits = catalog.dataset("digits")
            digits.compute_statistics()
            shown = digits._repr_html_()
        printed = on_terminal(str(Path(sys.executable).with_name("registry")), "head", "digits", "-n", "4")
        (HERE / "head.svg").write_text(as_svg(f"$ registry head digits -n 4\n{printed}"), encoding="utf-8")
        page = Path(folder, "page.html")
        page.write_text(f"<!doctype html><meta charset=utf-8><body style='font-family:sans-serif'>{shown}")
        place = (f"--user-data-dir={folder}/profile", f"--screenshot={HERE}/notebook.png", "--window-size=900,560")
        subprocess.run(["chromium", *OPTIONS, *QUIET, *place, page.as_uri()], check=True, capture_output=True)  # noqa: S603, S607 - a browser


if __name__ == "__main__":
    main()
