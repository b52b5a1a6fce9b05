"""The words of the code, its messages and its docs: phrases that readers have to decode do not come back."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for folder in ("registry", "builders", "docs", "benchmarks", ".ci")  # a migration is never edited
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".txt") and not path.stem.endswith("_pb2") and ".venv" not in path.parts
) + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]

RIDDLES = {
    r"\b[Ss]tands?\b(?! alone)": "say what it is, or where: 'points to', 'is next to', 'is in'",
    r"(?<!\bthere )(?<!\bThere )\b(?:is|are) no\b(?! longer| more| larger| smaller|t\b)": "negate the verb",
    r"(?<!\b[Tt]here )\b(?:is|are) none\b": "say what is missing: 'invalid', 'does not exist'",
    r"\b[Ss]o many(?:th)?\b": "name the number: 'N records', 'every n-th'",
    r"\b[Ww]ho(?:ever)? (?:must|wants|needs|asks)\b": "address the reader: 'to do X, do Y'",
    r"\bheed(?:s|ed)\b": "'is honoured'",
    r"\bfloors\b|own floor": "'layer'",
}


def test_the_texts_are_found() -> None:
    assert len(TEXTS) > 300


def test_a_phrase_that_readers_have_to_decode_is_not_used() -> None:
    any_riddle = re.compile("|".join(RIDDLES))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}: {mend}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any_riddle.search(line)
        for riddle, mend in RIDDLES.items()
        if re.search(riddle, line)
    ]
    assert found == []


def test_no_module_opens_with_a_question() -> None:
    found = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" and "?" in text[:2000]:  # parsing all files takes a second
            first = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
            if "?" in first:
                found.append(f"{path.relative_to(ROOT)}: {first}")
    assert found == []
