"""The typed schema of a dataset, the codec of its examples, and the JSON form of the schema.

    FeaturesDict -> codec_of -> Codec: example -> encode -> record;  record -> decode -> dict of NumPy values
    FeaturesDict -> features_to_json -> features.json, the form that TFDS reads and writes -> features_from_json

The features and their flat values follow TFDS 4.9, so that TFDS and this package read each other's records. Schemas are
plain data and do not depend on their codec or their JSON form.

    feature  dtypes  tensor  text  image  audio  containers     the features: one class for each type
    flatten  stacking  block_flattener    examples to flat values, one at a time or in blocks
    block_columns  column_reader  codec   examples to records and back, one at a time or in blocks
    limits                                stored values that a feature does not allow
    schema_old  schema                    features.json
    content  fold                         canonical bytes of decoded records, to compare them; folds over all records

To add a feature type, write its class next to similar ones (a ``Leaf``, or a subclass of ``Tensor`` or ``Sequence``),
add a row to ``KINDS`` in ``schema``, and export the class here.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.features.audio import Audio
    from registry.features.codec import Codec, ExampleBlock, codec_of
    from registry.features.containers import Dataset, FeaturesDict, Sequence
    from registry.features.dtypes import as_dtype
    from registry.features.feature import Feature, Leaf, Part, RawFeature, describe_unknown
    from registry.features.image import BBox, Image, ImageDecoding, LabeledImage, Video
    from registry.features.limits import LimitReader, Outside, merge_outside
    from registry.features.nested import NestedExamples, Ragged
    from registry.features.schema import features_from_json, features_to_json
    from registry.features.tensor import Scalar, Tensor
    from registry.features.text import ClassLabel, Text, Translation, TranslationVariableLanguages
    from registry.wire import FlatValue

__all__ = [
    "Audio", "BBox", "ClassLabel", "Codec", "Dataset", "ExampleBlock", "Feature", "FeaturesDict", "FlatValue",
    "Image", "ImageDecoding", "LabeledImage", "Leaf", "LimitReader", "NestedExamples", "Outside", "Part", "Ragged",
    "RawFeature", "Scalar", "Sequence", "Tensor", "Text", "Translation", "TranslationVariableLanguages", "Video",
    "as_dtype", "codec_of", "describe_unknown", "features_from_json", "features_to_json", "merge_outside",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "audio": "Audio",
        "codec": "Codec ExampleBlock codec_of",
        "containers": "Dataset FeaturesDict Sequence",
        "dtypes": "as_dtype",
        "feature": "Feature Leaf Part RawFeature describe_unknown",
        "image": "BBox Image ImageDecoding LabeledImage Video",
        "limits": "LimitReader Outside merge_outside",
        "nested": "NestedExamples Ragged",
        "schema": "features_from_json features_to_json",
        "tensor": "Scalar Tensor",
        "text": "ClassLabel Text Translation TranslationVariableLanguages",
        ".wire": "FlatValue",
    },
)
