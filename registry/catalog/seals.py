"""What else was published, beside records and schema? Digests that go into events, so that no row changes unnoticed.

The content digest of a version covers what decides which records a reader gets. Its other rows tell where the files
are and what they are called, what people are told, which experiments it overrides, and what later numbers are proved
by. The event of a publication holds a digest of these as well, which ``log_tables.py`` computes anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any, Final

from registry.catalog.rows import canonical_json
from registry.model import SplitFingerprint

_OF_VERSION: Final = ("location", "metadata_json", "release_notes_json", "version_to_prepare")
_OF_SPLIT: Final = ("num_bytes", "filename_template", "filename_dataset", "filename_format")


def version_seal(version: Mapping[str, Any], splits: Iterable[Mapping[str, Any]], overrides: Mapping[str, bool]) -> str:
    """sha256, 64 hex digits, over columns of a version, of its splits in order, and the experiments it overrides."""
    return _digest(
        {
            **{name: version[name] for name in _OF_VERSION},
            "published_at": version["published_at"].astimezone(UTC).isoformat(timespec="microseconds"),
            "splits": [[split[name] for name in _OF_SPLIT] for split in splits],
            "overrides": dict(overrides),
        }
    )


def fingerprint_seals(found: Mapping[str, SplitFingerprint]) -> dict[str, str]:
    """sha256, 64 hex digits, over the fingerprint of each split, blocks and all, by the split's name."""
    return {
        name: _digest({path: [feature.digest, *feature.blocks] for path, feature in one.features.items()})
        for name, one in found.items()
    }


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(value)).encode("ascii")).hexdigest()
