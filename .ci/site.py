"""A hook of MkDocs: adds pages from outside docs/ and rewrites links, so that one link works on GitHub and on the site.

Sources link to files by their place in the repository. On the site, README.md is the index, and the other files of
``OUTSIDE`` are pages of their own; ``decisions/index.md`` is a list of the decisions.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "builders/digits/ATTRIBUTION.md": "digits-attribution.md",
    "builders/earth_patches/ATTRIBUTION.md": "earth-patches-attribution.md",
}
"""Page of the site by path in the repository."""

DECISIONS = "decisions/index.md"
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == "LICENSE":
            text = f"# License\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    lines = ["# Decisions\n\nChoices that others may question: the situation, the choice and its cost.\n"]
    for path in sorted((ROOT / "docs/decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        number, _, words = title.partition(". ")
        lines.append(f"- {number}: [{words}]({path.name})")
    files.append(File.generated(config, DECISIONS, content="\n".join(lines)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 (MkDocs passes it by name)
    """Make links to files of the repository links to pages of the site."""
    here = page.file.src_uri
    source = next((path for path, target in OUTSIDE.items() if target == here), f"docs/{here}")

    def replace(found: re.Match[str]) -> str:
        label, link, anchor = found[1], found[2], found[3] or ""
        if "://" in link or link.startswith("mailto:"):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        uri = OUTSIDE.get(target) or (DECISIONS if target == "docs/decisions" else target.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None and (ROOT / target).exists():
            return label  # a file of the repository that is not on the site
        return f"[{label}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    parts = _CODE.split(markdown)  # odd parts are blocks of code
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)
