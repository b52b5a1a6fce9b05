"""The typed schema of a dataset: what an example holds, how it becomes a record, and how the schema is written down.

    example -> FeaturesDict.encode_example -> record;  record -> FeaturesDict.decode_example -> dict of NumPy values
    FeaturesDict <-> features.json, the form that TFDS reads and writes

The features and their flat values follow TFDS 4.9, so that either side reads what the other wrote.
"""

from registry.features.bbox import BBox
from registry.features.block import ExampleBlock
from registry.features.class_label import ClassLabel
from registry.features.containers import FeaturesDict, Sequence
from registry.features.feature import Feature, FlatValue, Leaf, Part
from registry.features.image import Image
from registry.features.ragged import Ragged
from registry.features.schema import features_from_json
from registry.features.tensor import Scalar, Tensor
from registry.features.text import Text

__all__ = [
    "BBox",
    "ClassLabel",
    "ExampleBlock",
    "Feature",
    "FeaturesDict",
    "FlatValue",
    "Image",
    "Leaf",
    "Part",
    "Ragged",
    "Scalar",
    "Sequence",
    "Tensor",
    "Text",
    "features_from_json",
]
