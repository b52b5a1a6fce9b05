"""Text, class labels and translations. Text is stored as UTF-8 and decodes to the stored bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from registry.errors import suggest
from registry.features.containers import FeaturesDict, Sequence
from registry.features.dtypes import to_bytes
from registry.features.feature import TEXT, Shape, feature_fault, is_text
from registry.features.tensor import PlainTensor
from registry.wire import FlatValue


@dataclass(frozen=True, kw_only=True, repr=False)
class Text(PlainTensor):
    r"""A text. Takes ``str``, or ``bytes`` as they are; decodes to ``bytes``, UTF-8 where it was written as ``str``.

    Decoding gives bytes as TFDS's NumPy path does: records hold bytes, nothing promises that they are UTF-8, and who
    reads them often wants them as they are. Write ``example["text"].decode()`` for a ``str``.

    >>> Text().flatten("grün", "colour")
    ([b'gr\xc3\xbcn'],)
    """

    shape: Shape = field(default=(), init=False)
    dtype: Any = field(default=TEXT, init=False)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One entry: the text's bytes."""
        return ([to_bytes(value, path)],)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One entry for each text."""
        return ([to_bytes(value, path) for value in (values.tolist() if isinstance(values, np.ndarray) else values)],)


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassLabel(PlainTensor):
    """One of ``num_classes`` classes. Takes the number or the name; -1 is "no label". Decodes to an int64 scalar.

    Give ``names`` (any iterable of text; kept as a tuple) or ``num_classes`` (0 where it is not known yet). Names are
    written one a line, so they are not blank, hold no line break and no space around them.

    >>> label = ClassLabel(names=["cat", "dog"])
    >>> label.str2int("dog"), label.int2str(0), label.num_classes
    (1, 'cat', 2)

    Raises:
        FeatureError: both or neither given, a name twice, a label that there is not.
    """

    num_classes: int | None = None
    names: Any = None
    shape: Shape = field(default=(), init=False)
    dtype: Any = field(default=np.int64, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = None if self.names is None else tuple(self.names)
        number = self.num_classes if names is None else len(names)
        if number is None or type(number) is not int or number < 0 or self.num_classes not in (None, number):
            raise feature_fault(
                "", "a ClassLabel takes names=, or num_classes= (0 or more)", "e.g. ClassLabel(names=['cat', 'dog'])."
            )
        if names is not None:
            for name in names:
                if not is_text(name) or name != name.strip() or "\n" in name or "\r" in name:
                    raise feature_fault("", f"{name!r} is no label name: labels are written one a line")
            if len(set(names)) != len(names):
                raise feature_fault(
                    "", f"a label name is used twice: {sorted(n for n in names if names.count(n) > 1)[0]!r}"
                )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "num_classes", number)
        object.__setattr__(self, "_numbers", {name: place for place, name in enumerate(names or ())})

    @property
    def class_label(self) -> ClassLabel:
        """Itself."""
        return self

    def with_label_names(self, names: tuple[str, ...]) -> Self:
        """This label with ``names``."""
        return replace(self, num_classes=None, names=names)

    def str2int(self, name: str) -> int:
        """The number of the class ``name``; FeatureError offers the nearest. Without names, the number it spells."""
        return self._number(name, "")

    def int2str(self, number: int) -> str:
        """The name of class ``number`` (0 or more); without names, the number as text."""
        if not 0 <= number < (self.num_classes or 0):
            raise feature_fault("", f"there is no class {number}: there are {self.num_classes}")
        return str(number) if self.names is None else str(self.names[number])

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One int64."""
        if not isinstance(value, (str, bytes, int, np.integer)) and np.ndim(value):
            raise feature_fault(path, f"shape {np.shape(value)} does not fit the declared shape ()")
        return self.flatten_many([value], path)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One int64 for each label."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            values = [self._number(value, path) if isinstance(value, (str, bytes)) else value for value in values]
        flat = super().flatten_many(values, path)
        numbers = np.asarray(flat[0])
        outside = (numbers < -1) | (numbers >= (self.num_classes or 0))
        if outside.any():
            raise feature_fault(
                path,
                f"there is no class {numbers[outside][0]}: there are {self.num_classes}",
                "Classes are numbered from 0; -1 means no label.",
            )
        return flat

    def _number(self, name: str | bytes, path: str) -> int:
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        numbers: dict[str, int] = self.__dict__["_numbers"]
        if text in numbers:
            return numbers[text]
        spelled = self.names is None and text.isascii() and text.isdigit() and len(text) <= 18
        if spelled and int(text) < (self.num_classes or 0):
            return int(text)
        known = self.names or [str(number) for number in range(min(self.num_classes or 0, 1000))]
        raise feature_fault(path, f"there is no label {text[:80]!r}", suggest(text[:80], known))


@dataclass(frozen=True, repr=False)
class Translation(FeaturesDict):
    """A text in each of ``languages``: a dict of ``Text`` by language.

    >>> from registry.features import codec_of
    >>> codec_of(Translation(languages=["en", "de"])).flatten({"de": "Katze", "en": "cat"})
    {'de': [b'Katze'], 'en': [b'cat']}

    Raises:
        FeatureError: a language twice, or none that is text.
    """

    features: Mapping[str, Any] = field(init=False)
    languages: tuple[str, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        languages = check_languages(self.languages)
        object.__setattr__(self, "languages", languages)
        object.__setattr__(self, "features", {language: Text() for language in languages})
        super().__post_init__()

    __hash__ = FeaturesDict.__hash__


@dataclass(frozen=True, repr=False)
class TranslationVariableLanguages(Sequence):
    """Texts in languages that differ from example to example.

    Takes a dict with a text, or several, for each language. Stored as a Sequence of ``language`` and ``translation``,
    sorted, and decodes to the dict of these two arrays, which is taken as well.

    Attributes:
        languages: those that there may be; None for any.

    >>> feature = TranslationVariableLanguages(languages=["de", "en", "fr"])
    >>> from registry.features import codec_of
    >>> codec_of(FeaturesDict({"x": feature})).flatten({"x": {"fr": ["chat", "chatte"], "en": "cat"}})
    {'x/language': [b'en', b'fr', b'fr'], 'x/translation': [b'cat', b'chat', b'chatte']}
    """

    feature: Any = field(init=False)
    length: int | None = field(default=None, init=False)
    languages: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.languages is not None:
            object.__setattr__(self, "languages", check_languages(self.languages))
        object.__setattr__(self, "feature", FeaturesDict({"language": Text(), "translation": Text()}))
        super().__post_init__()

    def elements_of(self, value: Any, path: str) -> Any:
        """A list of dicts of a language and a translation, sorted."""
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {"language", "translation"} and not any(isinstance(v, (str, bytes)) for v in value.values()):
            return value
        pairs = []
        for language, texts in value.items():
            if self.languages is not None and language not in self.languages:
                raise feature_fault(
                    path, f"there is no language {language!r:.80}", f"There are: {', '.join(self.languages)}."
                )
            if isinstance(texts, Mapping) or not isinstance(texts, (str, bytes, Iterable)):
                raise feature_fault(path, f"{type(texts).__name__} is neither a text nor texts")
            several = [texts] if isinstance(texts, (str, bytes)) else texts
            pairs += [(to_bytes(language, path), to_bytes(text, path)) for text in several]
        return [{"language": language, "translation": text} for language, text in sorted(pairs)]


def check_languages(languages: Any) -> tuple[str, ...]:
    """``languages`` sorted, as TFDS writes them."""
    found = () if isinstance(languages, str) else tuple(languages)
    if not all(map(is_text, found)) or len(set(found)) != len(found) or isinstance(languages, str):
        raise feature_fault("", f"{languages!r:.80} are no languages", "Give each once, e.g. languages=['de', 'en'].")
    return tuple(sorted(found))
