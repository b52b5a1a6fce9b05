"""Consistent pin files without any file or catalog."""

from __future__ import annotations

import hashlib
from typing import Any

from registry.pins import PinFile
from registry.pins.consistency import features_digest
from registry.pins.measure import NO_RECORDS

FEATURES_JSON = (
    '{"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict", "featuresDict": '
    '{"features": {"x": {"pythonClassName": "tensorflow_datasets.core.features.scalar.Scalar", "tensor": '
    '{"shape": {}, "dtype": "int64", "encoding": "none"}}}}}'
)
BIBTEX = "@misc{kaynak1998digits,\n  author = {Kaynak, C.},\n  title = {100% of the Digits},\n}"


def digest_of(text: str) -> str:
    """Some digest, the same for the same text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def sample_entry(name: str = "train", **changes: Any) -> dict[str, Any]:
    """The plain values of a pin of ``digits`` 1.0.0, train[:80%] of 10 records in one file."""
    entry: dict[str, Any] = {
        "name": name,
        "request": "digits:1.0.0",
        "dataset": "digits",
        "config": None,
        "version": "1.0.0",
        "why": ["digits:1.0.0 names one version."],
        "status": "canonical",
        "status_message": "",
        "experiments": {},
        "alias": None,
        "version_digest": digest_of("version"),
        "version_slicing": "documented",
        "split": "train[:80%]",
        "slicing": "documented",
        "rounding": None,
        "num_examples": 8,
        "ranges": [{"split": "train", "start": 0, "stop": 8}],
        "records": {
            "ordered": digest_of("ordered"),
            "unordered": digest_of("unordered"),
            "finder": "-".join(["0" * 64] * 2),
            "features": {"x": digest_of("x")},
            "first": {"id": "digits-train.tfrecord-00000-of-00001__0", "sha256": digest_of("first")},
            "middle": {"id": "digits-train.tfrecord-00000-of-00001__4", "sha256": digest_of("middle")},
            "last": {"id": "digits-train.tfrecord-00000-of-00001__7", "sha256": digest_of("last")},
        },
        "order": {
            "shuffle": "none",
            "seed": None,
            "global_seed": None,
            "op_seed_index": 0,
            "reshuffle_each_iteration": None,
            "generator": None,
            "cycle_length": 16,
            "block_length": 16,
        },
        "file_format": "tfrecord",
        "disable_shuffling": False,
        "splits": [
            {
                "name": "train",
                "num_examples": 10,
                "num_bytes": 1000,
                "num_shards": 1,
                "template": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        ],
        "locations": [],
        "files": [
            {
                "name": "digits-train.tfrecord-00000-of-00001",
                "split": "train",
                "index": 0,
                "first_example": 0,
                "num_examples": 10,
                "num_bytes": 1000,
                "sha256": digest_of("file"),
                "locations": [],
            }
        ],
        "features": {"digest": features_digest(FEATURES_JSON, {}), "labels": {}, "json": FEATURES_JSON},
        "provenance": {
            "homepage": "https://example.org/digits",
            "sources": [],
            "builder": None,
            "version_to_prepare": None,
            "packages": {},
        },
        "license": "CC BY 4.0",
        "citation": BIBTEX,
    }
    return entry | changes


def empty_entry(name: str = "none") -> dict[str, Any]:
    """A pin without records."""
    records = sample_entry()["records"] | {"ordered": NO_RECORDS, "unordered": NO_RECORDS, "features": {}}
    return sample_entry(
        name,
        split="train[:0]",
        num_examples=0,
        ranges=[{"split": "train", "start": 0, "stop": 0}],
        files=[],
        records=records | {"first": None, "middle": None, "last": None},
    )


def sample_pins(*entries: dict[str, Any]) -> PinFile:
    """A sealed file of ``entries``, or of one pin."""
    return PinFile.of(entries or [sample_entry()], created_by="a test")
