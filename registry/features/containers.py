"""The containers of features: FeaturesDict names features, Sequence repeats a feature, Dataset repeats an example.

They store nothing themselves: nested names are joined by ``/``, and a Sequence adds a level to every leaf below it.
They are plain data: ``codec`` encodes examples as records, and ``schema`` writes the JSON form.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from registry.errors import FeatureError, UsageError, suggest
from registry.features.dtypes import MAX_VALUES, is_sane_shape
from registry.features.feature import Feature, LabelNames, Leaf, Part, RawFeature, feature_fault, is_text
from registry.features.nested import Ragged
from registry.features.tensor import Tensor
from registry.lazy import np

_OUTERMOST: Final = re.compile(r"(?:[^\\/]|\\.)*", re.DOTALL)
_MOST_PATH_BYTES: Final = 1000


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of a schema.

    Attributes:
        path: ``names`` joined by ``/``.
        names: the names from the outermost dict to the leaf.
        leaf: the feature.
        lengths: the length of each Sequence around it, outermost first; None for any length.
        words: ``Sequence`` or ``Dataset`` for each of these.
    """

    path: str
    names: tuple[str, ...]
    leaf: Leaf
    lengths: tuple[int | None, ...]
    words: tuple[str, ...] = ()

    @property
    def may_be_absent(self) -> bool:
        """Whether a record may store nothing for it: it is optional and not in a Sequence."""
        return self.leaf.may_be_absent and not self.lengths

    @property
    def may_read_none(self) -> bool:
        """Whether a missing value is read as None."""
        return self.leaf.may_read_none and not self.lengths

    def keys(self, part: Part) -> list[str]:
        """The keys of ``part`` in a tf.train.Example: the values, then one for each level of row lengths."""
        key = self.path + part.suffix
        if len(self.lengths) < 2:
            return [key]
        levels = [f"{key}/ragged_row_lengths_{level}" for level in range(len(self.lengths) - 1)]
        return [f"{key}/ragged_flat_values", *levels]


@dataclass(frozen=True, repr=False)
class FeaturesDict(Feature, Mapping[str, Feature]):
    """The schema of an example: features by name. Follows ``tfds.features.FeaturesDict``.

    >>> features = FeaturesDict({"id": "int64", "box": {"height": "uint8"}})
    >>> features.shape, features["box"]["height"].dtype
    ({'id': (), 'box': {'height': ()}}, dtype('uint8'))

    Attributes:
        features: features by name. A nested dict becomes a FeaturesDict, and a dtype becomes a Tensor of shape ``()``.
        class_name: the class named in features.json, if it belongs to another package; otherwise empty.

    Raises:
        FeatureError: a name is invalid, or two features would be stored under the same key.
    """

    features: Mapping[str, Any]
    class_name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.features, Mapping):
            raise feature_fault(
                "", f"expected a dict of features, found {self.features!r:.80}", "For example: {'text': Text()}."
            )
        object.__setattr__(self, "features", {name: as_feature(feature) for name, feature in self.features.items()})
        for name in self.features:
            if not is_text(name) or "\0" in name:
                raise feature_fault("", f"invalid feature name {name!r}", "A name must be non-empty text without NUL.")
        keys = [key for column in columns_of(self) for part in column.leaf.parts for key in column.keys(part)]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise feature_fault(twice, "two features are stored under this key")

    def __str__(self) -> str:
        rows = (f"    {name!r}: {feature}".replace("\n", "\n    ") + ",\n" for name, feature in self.features.items())
        return f"{type(self).__name__}({{\n{''.join(rows)}}})" if type(self) is FeaturesDict else repr(self)

    @property
    def shape(self) -> dict[str, Any]:
        """Shape of each feature, by name."""
        return {name: feature.shape for name, feature in self.features.items()}

    @property
    def dtype(self) -> dict[str, Any]:
        """Dtype of each feature, by name."""
        return {name: feature.dtype for name, feature in self.features.items()}

    def labels(self) -> dict[str, list[str]]:
        """The label names of every ClassLabel and LabeledImage that has names, by the stem of ``<stem>.labels.txt``.

        As in TFDS, the stem is the nested names joined by ``-``, with ``.`` for a ``/`` in a name.
        """
        return {stem: list(label.names) for stem, label in self.class_labels().items() if label.names is not None}

    def class_labels(self) -> dict[str, LabelNames]:
        """Every ClassLabel by the stem of its label file, with or without names, including those of LabeledImages."""
        result: dict[str, LabelNames] = {}
        for column in columns_of(self):
            if (label := column.leaf.class_label) is not None:
                stem = _label_stem(column.names)
                if stem in result and result[stem].names != label.names:
                    raise feature_fault(column.path, f"another feature uses the same label file, {stem}.labels.txt")
                result[stem] = label
        return result

    def with_labels(self, labels: Mapping[str, AnySequence[str]]) -> FeaturesDict:
        """A copy of this schema with label names.

        Args:
            labels: label names by the stem of their file; stems that match no feature are ignored.

        Raises:
            FeatureError: the number of names is not the number of classes, or the schema already has different names.
        """
        return self._changed(lambda leaf, names: _name_labels(leaf, labels, names))

    def only(self, names: AnySequence[str]) -> FeaturesDict:
        """The features ``names``, in that order.

        Raises:
            UsageError: no name, or an unknown name.
        """
        if not names:
            raise UsageError("at least one feature is needed", hint=f"The features are: {', '.join(self)}.")
        for name in names:
            if name not in self:
                raise UsageError(f"no feature {name!r:.80}", hint=suggest(name, list(self)))
        return FeaturesDict({name: self[name] for name in names})

    def unknown_features(self) -> dict[str, str]:
        """The class name of each feature of an unknown class, by path. These features decode to their stored values."""
        return {
            column.path: column.leaf.class_name for column in columns_of(self) if isinstance(column.leaf, RawFeature)
        }

    def missing_as_none(self) -> FeaturesDict:
        """A copy of this schema that reads missing values of optional features as None. This is the default.

        Columns of these features are masked arrays (``numpy.ma``). features.json does not change.
        """
        return self._with_missing(lambda leaf, _: replace(leaf, missing=None))

    def missing_as_tfds(self) -> FeaturesDict:
        """A copy of this schema that reads missing values of optional features as TFDS does through TensorFlow.

        A missing value becomes the lowest number of the dtype, ``b""`` or False, and cannot be distinguished from a
        stored value that is equal. Columns are plain arrays. features.json does not change.

        >>> from registry.features import Scalar, codec_of
        >>> features = FeaturesDict({"age": Scalar("int8", optional=True)})
        >>> record = codec_of(features).encode({"age": None})
        >>> codec_of(features).decode(record)["age"], int(codec_of(features.missing_as_tfds()).decode(record)["age"])
        (None, -128)
        """
        return self._with_missing(lambda leaf, _: replace(leaf, missing=leaf.lowest_value))

    def fill_missing(self, values: Mapping[str, Any]) -> FeaturesDict:
        """A copy of this schema that replaces missing values of optional features. Columns are plain arrays.

        Args:
            values: by the path of a feature (``a/b``), one number, text or bytes; a tensor is filled with it.

        >>> from registry.features import Scalar, codec_of
        >>> features = FeaturesDict({"age": Scalar("int8", optional=True)})
        >>> record = codec_of(features).encode({"age": None})
        >>> int(codec_of(features.fill_missing({"age": 0})).decode(record)["age"])
        0

        Raises:
            FeatureError: no feature has that path, it is not optional, or the value does not fit it.
        """

        def fill(column: Column, value: Any) -> Leaf:
            if not column.may_be_absent or not isinstance(column.leaf, Tensor):
                raise feature_fault(column.path, "the feature is not optional, so its values cannot be missing")
            return column.leaf.with_missing(value, column.path)

        return self._with_each(values, fill)

    def decode_images(self, decodings: Mapping[str, Any]) -> FeaturesDict:
        """A copy of this schema that decodes images at a part of their size, or crops them. features.json stays.

        Args:
            decodings: an ``ImageDecoding`` by the path of an image (``a/b``), also in a Sequence or of a Video.

        >>> from registry.features import Image, ImageDecoding
        >>> features = FeaturesDict({"image": Image(shape=(200, 300, 3))})
        >>> features.decode_images({"image": ImageDecoding(ratio=8)}).shape
        {'image': (25, 38, 3)}

        Raises:
            FeatureError: no feature has that path, it is not an image, or it cannot be scaled or cropped in this way.
        """
        return self._with_each(decodings, lambda column, decoding: column.leaf.with_decoding(decoding, column.path))

    def optional_paths(self) -> list[str]:
        """The paths of the features whose values may be None, in schema order."""
        return [column.path for column in columns_of(self) if column.may_read_none]

    def _with_each(self, values: Mapping[str, Any], change: Callable[[Column, Any], Leaf]) -> FeaturesDict:
        """A copy of this schema with ``change`` applied to the leaves that ``values`` names by their paths."""
        columns = {column.path: column for column in columns_of(self)}
        changed: dict[tuple[str, ...], Leaf] = {}
        for path, value in values.items():
            if path not in columns:
                raise feature_fault(path, "unknown feature", suggest(path, columns))
            changed[columns[path].names] = change(columns[path], value)
        return self._changed(lambda leaf, names: changed.get(names, leaf))

    def _with_missing(self, change: Callable[[Tensor, tuple[str, ...]], Leaf]) -> FeaturesDict:
        return self._changed(
            lambda leaf, names: change(leaf, names) if isinstance(leaf, Tensor) and leaf.optional else leaf
        )

    def _changed(self, change: Callable[[Leaf, tuple[str, ...]], Leaf]) -> FeaturesDict:
        result = _change_leaves(self, change)
        if not isinstance(result, FeaturesDict):
            raise TypeError(result)
        return result

    def __getitem__(self, name: str) -> Feature:
        feature: Feature = self.features[name]
        return feature

    def __iter__(self) -> Iterator[str]:
        return iter(self.features)

    def __len__(self) -> int:
        return len(self.features)

    def __hash__(self) -> int:
        return hash(frozenset(self.features))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_codec"}  # see codec_of


@dataclass(frozen=True, repr=False)
class Sequence(Feature):
    """A variable or fixed number of values of one feature. Follows ``tfds.features.Sequence``.

    It accepts a list, a tuple or an array, and decodes to an array with one more dimension, or to a ``Ragged`` for a
    Sequence in a Sequence. A Sequence of a dict accepts a list of dicts or a dict of lists, and decodes to a dict of
    sequences.

    >>> Sequence("int32").shape, Sequence({"name": str}, length=3).shape
    ((None,), {'name': (3,)})

    Attributes:
        feature: the feature of each element; a dict or a dtype is converted to a feature.
        length: number of elements; None for any number.
        class_name: the class named in features.json, if it belongs to another package; otherwise empty.

    Raises:
        FeatureError: the length is invalid, or the number of elements could not be derived from the stored values.
    """

    word: ClassVar[str] = "Sequence"

    feature: Any
    length: int | None = None
    class_name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feature", as_feature(self.feature))
        if self.length is not None and (type(self.length) is not int or not 0 <= self.length < 2**31):
            raise feature_fault("", f"invalid Sequence length {self.length!r}: expected None or an int in 0..2**31-1")
        columns = columns_of(self)
        if not columns:
            raise feature_fault("", "a Sequence of an empty FeaturesDict stores nothing")
        for column in columns:
            # An unknown feature has no parts; its stored values are never split into elements.
            size = column.leaf.parts[0].size if column.leaf.parts else 1
            if not is_sane_shape((*column.lengths, *column.leaf.shape)):
                raise feature_fault(
                    column.path, f"a Sequence of length {self.length} has more than {MAX_VALUES} values"
                )
            if not size and (len(column.lengths) > 1 or self.length is None):
                raise feature_fault(
                    column.path,
                    f"a Sequence cannot hold tensors of shape {column.leaf.shape}: their number would be lost",
                    "Use encoding='bytes', a Sequence of a Sequence, or give the Sequence a length.",
                )

    @property
    def shape(self) -> Any:
        """The length, followed by the shape of the feature; a dict for a Sequence of a dict."""
        return _prefix(self.feature.shape, self.length)

    @property
    def dtype(self) -> Any:
        """The dtype of the feature; a dict for a Sequence of a dict."""
        return self.feature.dtype

    def elements_of(self, value: Any, path: str) -> Any:  # noqa: ARG002 - subclasses use it in errors
        """Convert ``value`` to a list, a tuple, an array, or a dict of them. Subclasses accept further types.

        Args:
            value: the sequence as a builder gives it.
            path: the feature's path, for errors.

        Raises:
            FeatureError: a subclass does not accept the value; the error names ``path``.
        """
        return value

    def with_feature(self, feature: Feature) -> Sequence:
        """A copy of this Sequence whose elements are decoded by ``feature``."""
        return replace(self, feature=feature)


@dataclass(frozen=True, repr=False)
class Dataset(Sequence):
    """A dataset inside an example, such as the steps of an episode. Follows ``tfds.features.Dataset``.

    It accepts any iterable of examples, or a dict of iterables, and is stored like a ``Sequence``. It decodes to
    ``NestedExamples``, which creates an example when it is indexed. Inside a Sequence, or with an unknown feature in
    it, it decodes like a Sequence. As in TFDS, ``shape`` is the shape of one example.

    >>> Dataset({"reward": "float32"}).shape
    {'reward': ()}

    Attributes:
        feature: the feature of each example, usually a dict.
        length: number of examples; None for any number.

    Raises:
        FeatureError: the length is invalid, or the number of examples could not be derived from the stored values.
    """

    word: ClassVar[str] = "Dataset"

    @property
    def shape(self) -> Any:
        """Shape of one example."""
        return self.feature.shape

    def elements_of(self, value: Any, path: str) -> Any:
        """A list of examples, or a dict of lists."""
        if isinstance(value, Mapping):
            return {name: self.elements_of(inner, f"{path}/{name}") for name, inner in value.items()}
        if isinstance(value, (list, tuple, np.ndarray, Ragged)):
            return value
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise feature_fault(path, f"expected an iterable of examples, found {type(value).__name__}")
        return list(value)


def as_feature(value: Any) -> Feature:
    """Convert ``value`` to a feature: a dict becomes a FeaturesDict, a dtype a Tensor of shape ``()``, as in TFDS.

    Raises:
        FeatureError: ``value`` is not a feature, a dict of features or a dtype.
    """
    if isinstance(value, Feature):
        return value
    if isinstance(value, Mapping):
        return FeaturesDict(value)
    try:
        return Tensor(shape=(), dtype=value)
    except FeatureError as error:
        raise feature_fault(
            "", f"expected a feature, found {value!r}", "Use a feature, a dict of features, or a dtype such as 'int64'."
        ) from error


def columns_of(
    feature: Feature, names: tuple[str, ...] = (), lengths: tuple[int | None, ...] = (), words: tuple[str, ...] = ()
) -> list[Column]:
    """Every leaf below ``feature``, in schema order."""
    if isinstance(feature, Leaf):
        return [Column("/".join(names), names, feature, lengths, words)]
    if isinstance(feature, Sequence):
        return columns_of(feature.feature, names, (*lengths, feature.length), (*words, feature.word))
    if isinstance(feature, FeaturesDict):
        return [column for name in feature for column in columns_of(feature[name], (*names, name), lengths, words)]
    raise feature_fault("/".join(names), f"{type(feature).__name__} is neither a leaf nor a container")


def content_path(names: AnySequence[str]) -> str:
    r"""The path that identifies a feature's content: its ``names`` from the outermost dict inwards, joined by ``/``.

    A ``/`` in a name is escaped as ``\/`` and a backslash as ``\\``, because the feature ``a/b`` differs from ``b`` in
    ``a``. A path of more than 1,000 bytes is cut and ends in its sha256, because a database index has a maximum length.
    """
    path = "/".join(name.replace("\\", r"\\").replace("/", r"\/") for name in names)
    data = path.encode()
    if len(data) <= _MOST_PATH_BYTES:
        return path
    return data[: _MOST_PATH_BYTES - 70].decode("utf-8", "ignore") + "…" + hashlib.sha256(data).hexdigest()


def sort_paths(paths: Iterable[str], names: AnySequence[str]) -> list[str]:
    r"""Sort the paths of ``content_path`` by the order of ``names``, the features of the outermost dict.

    >>> sort_paths(["a/b", "a/c", r"d\/e", "f"], ["f", "d/e", "a"])
    ['f', 'd\\/e', 'a/b', 'a/c']
    """
    place_of = {content_path([name]): place for place, name in enumerate(names)}
    return sorted(paths, key=lambda path: place_of.get(_OUTERMOST.match(path)[0], len(names)))  # type: ignore[index] # it matches every path


def _prefix(shape: Any, length: int | None) -> Any:
    if isinstance(shape, dict):
        return {name: _prefix(inner, length) for name, inner in shape.items()}
    return (length, *shape)


def _label_stem(names: tuple[str, ...]) -> str:
    return "-".join(name.replace("/", ".") for name in names)


def _change_leaves(
    feature: Feature, change: Callable[[Leaf, tuple[str, ...]], Leaf], names: tuple[str, ...] = ()
) -> Feature:
    """``feature`` with ``change`` applied to each leaf; the same object if no leaf changes."""
    if isinstance(feature, Leaf):
        return change(feature, names)
    if isinstance(feature, Sequence):
        inner = _change_leaves(feature.feature, change, names)
        return feature if inner is feature.feature else feature.with_feature(inner)
    if not isinstance(feature, FeaturesDict):
        return feature
    changed = {name: _change_leaves(inner, change, (*names, name)) for name, inner in feature.items()}
    if all(changed[name] is inner for name, inner in feature.items()):
        return feature
    return replace(feature, features=changed)


def _name_labels(leaf: Leaf, labels: Mapping[str, AnySequence[str]], names: tuple[str, ...]) -> Leaf:
    label, result = leaf.class_label, labels.get(_label_stem(names))
    if label is None or result is None:
        return leaf
    path = "/".join(names)
    if label.names is not None and label.names != tuple(result):
        raise feature_fault(path, "the feature already has different label names")
    if label.num_classes not in (0, len(result)):
        raise feature_fault(path, f"expected {label.num_classes} label names, found {len(result)}")
    return leaf.with_label_names(tuple(result))
