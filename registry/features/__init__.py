"""The typed schema of a dataset, the codec of its examples, and the JSON form of the schema.

    FeaturesDict -> codec_of -> Codec: example -> encode -> record;  record -> decode -> dict of NumPy values
    FeaturesDict -> features_to_json -> features.json, the form that TFDS reads and writes -> features_from_json

The features and their flat values follow TFDS 4.9, so that either side reads what the other wrote. Schemas are data:
they know neither their codec nor their JSON form.

    deflate  png  pictures                how arrays and images become bytes
    feature  dtypes  tensor  text  image  audio  containers     the features: one class for each type
    block_columns  column_reader  codec   examples to records and back, one at a time or a block at once
    json_node  schema_old  schema         features.json
    content                               what two records are compared by

To add a type of feature, write its class beside its kin (a ``Leaf``, or a ``Tensor`` or ``Sequence`` that takes other
values) and its row in ``KINDS`` of ``schema``, and export it here.
"""

from registry.features.audio import Audio
from registry.features.codec import Codec, ExampleBlock, codec_of
from registry.features.containers import Dataset, FeaturesDict, Sequence
from registry.features.feature import Feature, Leaf, Part, RawFeature, describe_unknown
from registry.features.image import BBox, Image, LabeledImage, Video
from registry.features.nested import NestedExamples, Ragged
from registry.features.schema import features_from_json, features_to_json
from registry.features.tensor import Scalar, Tensor
from registry.features.text import ClassLabel, Text, Translation, TranslationVariableLanguages
from registry.wire import FlatValue

__all__ = [
    "Audio",
    "BBox",
    "ClassLabel",
    "Codec",
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
    "codec_of",
    "describe_unknown",
    "features_from_json",
    "features_to_json",
]
