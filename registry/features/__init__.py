"""The typed schema of a dataset: what an example holds, how it becomes a record, and how the schema is written down.

    example -> FeaturesDict.encode_example -> record;  record -> FeaturesDict.decode_example -> dict of NumPy values
    FeaturesDict <-> features.json, the form that TFDS reads and writes

The features and their flat values follow TFDS 4.9, so that either side reads what the other wrote.
"""

from registry.features.audio import Audio
from registry.features.block import ExampleBlock
from registry.features.containers import Dataset, FeaturesDict, Sequence
from registry.features.feature import Feature, FlatValue, Leaf, Part, RawFeature, describe_unknown
from registry.features.image import BBox, Image, LabeledImage, Video
from registry.features.nested import NestedExamples, Ragged
from registry.features.schema import features_from_json
from registry.features.tensor import Scalar, Tensor
from registry.features.text import ClassLabel, Text, Translation, TranslationVariableLanguages

__all__ = [
    "Audio",
    "BBox",
    "ClassLabel",
    "Dataset",
    "ExampleBlock",
    "Feature",
    "FeaturesDict",
    "FlatValue",
    "Image",
    "LabeledImage",
    "Leaf",
    "NestedExamples",
    "Part",
    "Ragged",
    "RawFeature",
    "Scalar",
    "Sequence",
    "Tensor",
    "Text",
    "Translation",
    "TranslationVariableLanguages",
    "Video",
    "describe_unknown",
    "features_from_json",
]
