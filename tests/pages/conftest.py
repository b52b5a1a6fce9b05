"""A catalog with records of every kind, for tests of pages."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import registry
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    FeaturesDict,
    Image,
    LabeledImage,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Video,
)

NUM_EXAMPLES = 120


def sound(rate: int = 8000) -> bytes:
    """A WAV file of a tenth of a second."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.sin(np.arange(rate // 10) / 5) * 9000).astype("<i2").tobytes())
    return buffer.getvalue()


class Gallery(registry.DatasetBuilder):
    """Records of every kind."""

    VERSION = "1.0.0"
    RELEASE_NOTES = {"1.0.0": "First"}

    def features(self) -> FeaturesDict:
        return FeaturesDict(
            {
                "image": Image(shape=(None, None, 3)),
                "mask": LabeledImage(names=["none", "cat", "dog"]),
                "objects": Sequence({"box": BBox(), "label": ClassLabel(names=["cat", "dog"])}),
                "sound": Audio(lazy_decode=True, sample_rate=8000),
                "samples": Audio(dtype="int16", sample_rate=8000),
                "clip": Video(shape=(None, 6, 8, 3)),
                "heat": Tensor(shape=(5, 7), dtype="float32"),
                "series": Sequence("float64"),
                "label": ClassLabel(names=["cat", "dog", "Straße"]),
                "price": Scalar("float64"),
                "age": Scalar("int32", optional=True),
                "text": Text(),
            }
        )

    def splits(self) -> Any:
        def examples(first: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
            for i in range(first, stop):
                rows = np.random.default_rng(i)
                mask = np.zeros((24, 32, 1), np.uint8)
                mask[4:12, 5:20] = 1 + i % 2
                yield (
                    i,
                    {
                        "image": rows.integers(0, 256, (24, 32, 3)).astype(np.uint8),
                        "mask": mask,
                        "objects": [{"box": (0.25, 0.1, 0.5, 0.6), "label": i % 2}],
                        "sound": sound(),
                        "samples": (np.sin(np.arange(400) / 9) * 1000).astype(np.int16),
                        "clip": rows.integers(0, 256, (3, 6, 8, 3)).astype(np.uint8),
                        "heat": rows.normal(size=(5, 7)).astype(np.float32),
                        "series": rows.normal(size=i % 5),
                        "label": i % 3,
                        "price": float("nan") if i % 10 == 9 else float(i % 7) - 2.5,
                        "age": None if i % 4 == 0 else i % 11,
                        "text": f"Record {i} of the Gallery, Straße {i % 13}",
                    },
                )

        return {"train": examples(0, NUM_EXAMPLES), "test": examples(NUM_EXAMPLES, NUM_EXAMPLES + 10)}


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    """A catalog with ``gallery:1.0.0``."""
    with registry.connect(tmp_path_factory.mktemp("gallery") / "catalog.db", create=True) as catalog:
        catalog.build(Gallery)
        yield catalog
