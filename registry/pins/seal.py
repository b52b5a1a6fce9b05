"""Is a pin file as it was written? One digest over all of it, and where it was changed.

The digest is the sha256 of the file's values as JSON: keys sorted, no spaces, ASCII; without the keys ``digest`` and
``finder`` themselves. Comments, the order of keys and the way YAML spells a text do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from registry.pins.finder import PRIME, Finder
from registry.pins.yaml_text import iter_leaves

OWN_KEYS: Final = ("digest", "finder")


def canonical_json(value: Any) -> str:
    """``value`` as the one JSON text that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def seal(content: Mapping[str, Any]) -> tuple[str, str]:
    """``digest`` and ``finder`` of the values of a pin file, which may hold these keys already."""
    told = {key: value for key, value in content.items() if key not in OWN_KEYS}
    return digest_text(canonical_json(told)), str(_finder(told))


def digest_text(text: str | bytes) -> str:
    """``sha256:`` and 64 hex digits over a text, in UTF-8, or over bytes."""
    return "sha256:" + hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def find_changed(content: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    """The key path of what was changed since ``content`` was sealed; None for no change, or more than one.

    ``digest`` and ``finder`` themselves are found as well. The content holds both, as texts of their form. ``known``
    holds the same values and the defaults of those that are missing: so a field that was removed is found.
    """
    told = {key: value for key, value in content.items() if key not in OWN_KEYS}
    digest, kept, found = seal(content)[0], Finder.parse(content["finder"]), _finder(told)
    if found == kept:
        return None if digest == content["digest"] else "digest"
    if digest == content["digest"]:
        return "finder"
    weight = kept.find_weight(found)
    return next((path for path, _ in chain(iter_leaves(told), iter_leaves(known)) if _weight(path) == weight), None)


def _finder(told: Mapping[str, Any]) -> Finder:
    total = weighted = 0
    sha256 = hashlib.sha256
    for path, value in iter_leaves(told):
        text = json.dumps(value) if isinstance(value, str) else canonical_json(value)
        digest = int.from_bytes(sha256(f"{path}\0{text}".encode("utf-8", "surrogatepass")).digest(), "big")
        total += digest
        weighted += _weight(path) * digest
    return Finder(total % PRIME, weighted % PRIME)


def _weight(path: str) -> int:
    return int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()[:16], "big")
