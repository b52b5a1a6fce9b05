"""Shared by the tests beside TFDS: datasets for either side, and values of either side in one form.

TensorFlow is imported when a test uses it, not when its file is collected.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np

from registry import BuilderConfig, DatasetBuilder
from registry.features import (
    Audio,
    BBox,
    ClassLabel,
    Dataset,
    FeaturesDict,
    Image,
    LabeledImage,
    Ragged,
    Scalar,
    Sequence,
    Tensor,
    Text,
    Translation,
    TranslationVariableLanguages,
    Video,
)
from registry.features.nested import NestedExamples

LAB_FEATURES = Path(__file__).parent.parent / "conformance" / "prepared" / "lab_features" / "builder.py.txt"


def import_tfds() -> Any:
    """The package, quietly."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets

        tensorflow_datasets.core.utils.lazy_imports_utils.tensorflow.__name__  # noqa: B018 (loads it)
    return tensorflow_datasets


def import_lab_features() -> Any:
    """The builder of ``lab_features``, written with TFDS, as a module."""
    import_tfds()
    loader = SourceFileLoader("lab_features", str(LAB_FEATURES))
    spec = spec_from_loader("lab_features", loader)
    assert spec is not None
    module = module_from_spec(spec)
    import sys

    sys.modules["lab_features"] = module  # TFDS looks the module of a builder up
    loader.exec_module(module)
    return module


@cache
def make_plain(tfds: Any) -> Any:
    """A builder, written with TFDS, of features that its NumPy path reads, and of 101 records."""

    class LabPlain(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # nobody knows its types
        """Plain features."""

        VERSION = tfds.core.Version("1.2.0")

        def _info(self) -> Any:
            features = {
                "id": np.int64,
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                "image": tfds.features.Image(shape=(None, 2, 3), encoding_format="png"),
                "words": tfds.features.Sequence(tfds.features.Text()),
                "vector": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                "place": {"x": np.float32, "y": {"z": np.uint8}},
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(101)}

        def _generate_examples(self, number: int) -> Any:
            for n in range(number):
                yield (
                    n,
                    {
                        "id": n,
                        "text": f"grün {n}",
                        "label": n % 2,
                        "image": np.full((1 + n % 3, 2, 3), n, np.uint8),
                        "words": [f"w{i}" for i in range(n % 4)],
                        "vector": [n, 0.1, -1],
                        "place": {"x": n / 3, "y": {"z": n}},
                    },
                )

    return LabPlain


def exact(value: Any) -> Any:
    """A key of a decoded value of either side that is equal if two values are equal in every bit."""
    if isinstance(value, Mapping):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, Ragged):
        return "ragged", exact(value.flat_values), [level.tolist() for level in value.row_lengths]
    if hasattr(value, "nested_row_lengths"):  # of TensorFlow
        lengths = value.nested_row_lengths
        levels = lengths() if callable(lengths) else lengths
        return "ragged", exact(np.asarray(value.flat_values)), [np.asarray(level).tolist() for level in levels]
    if isinstance(value, bytes):
        return "bytes", value
    if isinstance(value, NestedExamples) or not isinstance(value, np.ndarray | np.generic):
        assert isinstance(value, Iterable), type(value)
        return [exact(one) for one in value]
    if value.dtype == object:
        return "bytes", value.shape, list(value.flat)
    return value.dtype.name, value.shape, value.tobytes()


def without_dtypes(value: Any) -> Any:
    """``exact``, but of numbers and texts their values: TFDS's data sources give Python's own, and lists of texts."""
    if isinstance(value, Mapping):
        return {name: without_dtypes(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return list(map(exact, value))
    return value.item() if isinstance(value, np.generic) else value if isinstance(value, int | float) else exact(value)


def theirs(tfds: Any, builder: Any, split: str | None, **options: Any) -> list[Any]:
    """The examples that TFDS reads, with the ids of the records."""
    seed, config = options.pop("shuffle_seed", None), tfds.ReadConfig(add_tfds_id=True, **options)
    config.shuffle_seed = seed
    read = builder.as_dataset(split=split, read_config=config, shuffle_files=seed is not None)
    return [exact(example) for example in tfds.as_numpy(read)]


EVERY_FEATURE = FeaturesDict(
    {
        "id": "int64",
        "label": ClassLabel(names=["cat", "dog"]),
        "text": Text(),
        "flag": "bool",
        **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
        **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
        "exact": Tensor(shape=(2,), dtype="float64", encoding="bytes"),
        "packed": Tensor(shape=(3, None), dtype="int16", encoding="zlib"),
        "dynamic": Tensor(shape=(None, 2, None), dtype="float32", encoding="zlib"),
        "brain": Tensor(shape=(3,), dtype="bfloat16", encoding="bytes"),
        "maybe": Scalar("int32", optional=True),
        "maybe_text": Scalar("string", optional=True),
        "maybe_pair": Tensor(shape=(2,), dtype="float64", optional=True),
        "image": Image(shape=(None, 3, 1)),
        "wide": Image(shape=(2, 2, 3), dtype="uint16", encoding_format="png"),
        "depth": Image(shape=(2, 3, 1), dtype="float32"),
        "mask": LabeledImage(names=["sky", "road"], shape=(None, None, 1)),
        "film": Video(shape=(None, 2, 3, 3)),
        "sound": Audio(sample_rate=8000),
        "stereo": Audio(shape=(None, 2), dtype="int16", encoding="zlib"),
        "boxes": Sequence({"box": BBox(), "name": ClassLabel(names=["a", "b", "c"]), "area": "float32"}),
        "other_box": BBox(bbox_format="XYWH"),
        "pair": Translation(languages=["de", "en"]),
        "tongues": TranslationVariableLanguages(),
        "steps": Dataset({"reward": "float32", "picture": Image(shape=(2, 2, 1)), "note": Text()}),
        "counts": Dataset("int64"),
        "words": Sequence(Text()),
        "three": Sequence("int32", length=3),
        "lines": Sequence(Sequence(Text())),
        "deep": Sequence(Sequence(Sequence("int64"))),
        "place": {"x": "float64", "far": {"y": Tensor(shape=(2,), dtype="uint16")}},
    }
)


def every_example(n: int) -> dict[str, Any]:
    """Example ``n`` of ``EVERY_FEATURE``."""
    chance = np.random.default_rng(n)
    return {
        "id": n,
        "label": n % 2,
        "text": f"grün {n}",
        "flag": n % 3 == 0,
        **{f"u{bits}": 2**bits - 1 - n for bits in (8, 16, 32, 64)},
        **{f"f{bits}": n / 7 for bits in (16, 32, 64)},
        "exact": [n / 7, -1e300],
        "packed": np.full((3, n % 4), n, np.int16),
        "dynamic": chance.random((n % 3, 2, 1 + n % 2), np.float32),
        "brain": [n, 0.5, -2],
        "maybe": None if n % 2 else n,
        "maybe_text": None if n % 3 else "da",
        "maybe_pair": None if n % 2 else [n, 0.5],
        "image": chance.integers(0, 256, (1 + n % 3, 3, 1)).astype(np.uint8),
        "wide": chance.integers(0, 2**16, (2, 2, 3)).astype(np.uint16),
        "depth": chance.random((2, 3, 1), np.float32),
        "mask": chance.integers(0, 2, (2, 1 + n % 2, 1)).astype(np.uint8),
        "film": chance.integers(0, 256, (n % 3, 2, 3, 3)).astype(np.uint8),
        "sound": chance.integers(-(2**15), 2**15, n % 5),
        "stereo": chance.integers(-(2**15), 2**15, (n % 5, 2)).astype(np.int16),
        "boxes": [{"box": (0.0, 0.25, 0.5, 1.0), "name": i, "area": i / 3} for i in range(n % 4)],
        "other_box": (1.0, 2.0, 30.0, 40.0),
        "pair": {"de": f"Katze {n}", "en": f"cat {n}"},
        "tongues": {"fr": ["le chat", "la chatte"], "en": "cat"} if n % 2 else {"en": f"{n}"},
        "steps": [
            {"reward": i / 3, "picture": np.full((2, 2, 1), i, np.uint8), "note": f"step {i}"} for i in range(n % 3)
        ],
        "counts": list(range(n % 4)),
        "words": [f"w{i}" for i in range(n % 3)],
        "three": [n, -n, 0],
        "lines": [["a"] * (n % 3), [], ["b"]],
        "deep": [[[n], []], [[1, 2, 3]] * (n % 2)],
        "place": {"x": n / 2, "far": {"y": [n, 9]}},
    }


class EveryFeature(DatasetBuilder):
    """A dataset with every feature."""

    VERSION = "1.0.0"
    CITATION = "@misc{every}"
    SUPERVISED_KEYS = ("text", "label")

    def features(self) -> FeaturesDict:
        return EVERY_FEATURE

    def splits(self) -> dict[str, Any]:
        return {"train": ((n, every_example(n)) for n in range(61)), "test": ((n, every_example(n)) for n in range(7))}


class Ordered(DatasetBuilder):
    """A dataset that keeps its records in the order in which they are generated."""

    VERSION = "2.1.0"
    DISABLE_SHUFFLING = True

    def features(self) -> FeaturesDict:
        return FeaturesDict({"n": "int64"})

    def splits(self) -> dict[str, Any]:
        return {"train": ((n, {"n": n}) for n in range(100))}


class Tongues(DatasetBuilder):
    """A dataset with configs; the second one is the default."""

    VERSION = "1.0.0"
    BUILDER_CONFIGS = [BuilderConfig(name="de"), BuilderConfig(name="en")]
    DEFAULT_CONFIG = "en"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"text": Text()})

    def splits(self) -> dict[str, Any]:
        return {"train": ((n, {"text": f"{self.config_name} {n}"}) for n in range(10))}
