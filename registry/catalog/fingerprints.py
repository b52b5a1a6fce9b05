"""Where are the fingerprints of a version kept? A row for each block and feature of a split, and rows for the whole.

Rows of the whole split have the algorithm ``registry.split/1``: one for each feature, and one with the feature ``''``
for whole records. Rows of blocks have ``registry.block/1`` (``registry.model.fingerprint`` says what they are over).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from registry.catalog.rows import check_digest, check_text, damaged, stored_values
from registry.catalog.tables import fingerprint, split
from registry.model import FeatureFingerprint, SplitFingerprint

WHOLE: Final = "registry.split/1"
BLOCK: Final = "registry.block/1"

_BATCH: Final = 10_000


def insert_fingerprint(connection: sa.Connection, split_id: int, found: SplitFingerprint) -> None:
    """Store the fingerprint of one split, in batches: hundreds of features have hundreds of thousands of blocks."""
    rows = _rows(split_id, found)
    while batch := list(islice(rows, _BATCH)):
        connection.execute(sa.insert(fingerprint), batch)


def load_fingerprints(connection: sa.Connection, version_id: int) -> dict[str, SplitFingerprint]:
    """The fingerprint of each split of a version, by name; empty where none were stored.

    Raises:
        CatalogError: the rows are not those of a fingerprint.
    """
    query = (
        sa.select(
            split.c.name,
            split.c.num_examples.label("split_examples"),
            fingerprint.c.feature,
            fingerprint.c.algorithm,
            fingerprint.c.digest,
        )
        .join_from(split, fingerprint, fingerprint.c.split_id == split.c.id)
        .where(split.c.version_id == version_id, fingerprint.c.algorithm.in_((WHOLE, BLOCK)))
        .order_by(split.c.position, fingerprint.c.feature, fingerprint.c.algorithm, fingerprint.c.first_example)
    )
    wholes: dict[str, dict[str, str]] = {}
    blocks: dict[str, dict[str, list[str]]] = {}
    lengths: dict[str, int] = {}
    with stored_values():
        for row in connection.execute(query):
            lengths[row.name] = row.split_examples
            check_digest(row.digest, "fingerprint")
            if row.algorithm == WHOLE:
                wholes.setdefault(row.name, {})[row.feature] = row.digest
            else:
                blocks.setdefault(row.name, {}).setdefault(row.feature, []).append(row.digest)
        found = {
            name: SplitFingerprint(
                num_examples=lengths[name],
                features={
                    path: FeatureFingerprint(digest=digest, blocks=tuple(blocks.get(name, {}).get(path, ())))
                    for path, digest in digests.items()
                    if path
                },
            )
            for name, digests in wholes.items()
        }
    for name, one in found.items():
        if wholes[name].get("") != one.digest:
            raise damaged(f"the fingerprints of split {name!r} do not add up")
    return found


def _rows(split_id: int, found: SplitFingerprint) -> Iterator[dict[str, Any]]:
    digests: Mapping[str, str] = {"": found.digest, **{path: one.digest for path, one in found.features.items()}}
    for path, digest in digests.items():
        yield _row(split_id, path, WHOLE, range(found.num_examples), digest)
    for path, feature in found.features.items():
        for index, digest in enumerate(feature.blocks):
            yield _row(split_id, path, BLOCK, found.block(index), digest)


def _row(split_id: int, path: str, algorithm: str, records: range, digest: str) -> dict[str, Any]:
    return {
        "split_id": split_id,
        "feature": check_text(path, "feature's path"),
        "algorithm": algorithm,
        "first_example": records.start,
        "num_examples": len(records),
        "digest": check_digest(digest, "fingerprint"),
    }
