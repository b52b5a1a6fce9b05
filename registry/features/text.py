"""Text, class labels and translations: leaves that store text as UTF-8, and decode it to the stored bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Self

from registry.errors import FeatureError, suggest
from registry.features.containers import FeaturesDict, Sequence
from registry.features.dtypes import STRING, DtypeField, to_bytes
from registry.features.feature import Counts, Shape, feature_fault, is_text
from registry.features.stacking import type_of_all
from registry.features.tensor import PlainTensor
from registry.lazy import np, npt

if TYPE_CHECKING:
    from registry.wire import FlatValue


@dataclass(frozen=True, kw_only=True, repr=False)
class Text(PlainTensor):
    r"""A text of shape ``()``. Accepts ``str``, stored as UTF-8, or ``bytes``, stored unchanged; decodes to ``bytes``.

    Follows ``tfds.features.Text`` and its NumPy output. Decoding returns bytes because a record may hold bytes that are
    not UTF-8. For a ``str``, write ``example["text"].decode()``.

    >>> Text().flatten("grün", "colour")
    ([b'gr\xc3\xbcn'],)

    Raises:
        FeatureError: a value is not text or bytes, or is a ``str`` with half a surrogate pair.
    """

    shape: Shape = field(default=(), init=False)
    dtype: Any = field(default=DtypeField(STRING), init=False)

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One entry: the text's bytes."""
        return ([to_bytes(value, path)],)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One entry for each text."""
        return ([to_bytes(value, path) for value in (values.tolist() if isinstance(values, np.ndarray) else values)],)

    flatten_block = PlainTensor.flatten_block  # it gives the same texts


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassLabel(PlainTensor):
    """One of ``num_classes`` classes. Accepts a class number or name; decodes to an int64 scalar.

    Follows ``tfds.features.ClassLabel``. Classes are numbered from 0; -1 means no label.

    Attributes:
        num_classes: the number of classes; 0 if it is not known yet.
        names: the class names, any iterable of text (kept as a tuple); None if the classes have no names. The label
            file has one name per line, so a name must not be blank or contain line breaks or surrounding spaces.

    >>> label = ClassLabel(names=["cat", "dog"])
    >>> label.str2int("dog"), label.int2str(0), label.num_classes
    (1, 'cat', 2)

    Raises:
        FeatureError: both or neither of ``names`` and ``num_classes`` are given, a name is invalid or occurs twice, or
            a value is not one of the classes.
    """

    num_classes: int | None = None
    names: Any = None
    shape: Shape = field(default=(), init=False)
    dtype: Any = field(default=DtypeField("int64"), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.names is not None and (isinstance(self.names, str | bytes) or not isinstance(self.names, Iterable)):
            raise feature_fault("", f"invalid names {self.names!r:.80}", "Pass a list, e.g. names=['cat', 'dog'].")
        names = None if self.names is None else tuple(self.names)
        number = self.num_classes if names is None else len(names)
        if number is None or type(number) is not int or number < 0 or self.num_classes not in (None, number):
            raise feature_fault(
                "",
                "a ClassLabel requires names= or num_classes= (0 or more)",
                "For example: ClassLabel(names=['cat', 'dog']).",
            )
        strange = next((name for name in names or () if not isinstance(name, str)), "")
        if strange != "":
            raise _label_fault(strange)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "num_classes", number)
        object.__setattr__(self, "_numbers", _number_labels(names or ()))

    @property
    def class_label(self) -> ClassLabel:
        """The label itself."""
        return self

    def with_label_names(self, names: tuple[str, ...]) -> Self:
        """A copy of this label with ``names``."""
        return replace(self, num_classes=None, names=names)

    def str2int(self, name: str) -> int:
        """The number of the class ``name``. Without class names, ``name`` is a number as text.

        Raises:
            FeatureError: ``name`` is not the name of a class; the hint suggests the nearest one.
        """
        if not isinstance(name, str | bytes):
            raise feature_fault("", f"expected the name of a class, found {name!r:.80}")
        return self._number(name, "")

    def int2str(self, number: int) -> str:
        """The name of class ``number``; without class names, the number as text.

        Raises:
            FeatureError: ``number`` is not a whole number in 0..num_classes-1.
        """
        try:
            number = index(number)
        except TypeError:
            raise feature_fault("", f"expected a class number, found {number!r:.80}") from None
        if not 0 <= number < (self.num_classes or 0):
            raise feature_fault("", f"class number {number} is out of range for {self.num_classes} classes")
        return str(number) if self.names is None else str(self.names[number])

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One int64."""
        if not isinstance(value, (str, bytes, int, np.integer)) and np.ndim(value):
            raise feature_fault(path, f"expected shape (), found {np.shape(value)}")
        return self.flatten_many([value], path)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One int64 for each label."""
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            values = [self._number(value, path) if isinstance(value, (str, bytes)) else value for value in values]
        return super().flatten_many(values, path)

    def flatten_block(
        self, values: AnySequence[Any] | npt.NDArray[Any], path: str
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """One int64 for each label; None if a label may be unknown."""
        if type_of_all(values) is str:
            numbers: dict[str, int] = self.__dict__["_numbers"]
            if not numbers.keys() >= set(values):
                return None
            values = [numbers[name] for name in values]
        elif isinstance(values, np.ndarray) and values.dtype.kind not in "iu":
            return None
        return super().flatten_block(values, path)

    @property
    def limits(self) -> str:
        """The numbers of the classes; empty if their number is not known yet."""
        return f"in 0..{self.num_classes - 1}, or -1 for no label" if self.num_classes else ""

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which numbers are neither that of a class nor -1. Without classes, only -1 is allowed."""
        return np.asarray((values < -1) | (values >= (self.num_classes or 0)))

    def _check_limits(self, array: npt.NDArray[Any], path: str) -> None:
        outside = self.outside(array)
        if outside.any():
            raise feature_fault(
                path,
                f"class number {array[outside][0]} is out of range for {self.num_classes} classes",
                "Classes are numbered from 0; -1 means no label.",
            )

    def _number(self, name: str | bytes, path: str) -> int:
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        numbers: dict[str, int] = self.__dict__["_numbers"]
        if text in numbers:
            return numbers[text]
        spelled = self.names is None and text.isascii() and text.isdigit() and len(text) <= 18
        if spelled and int(text) < (self.num_classes or 0):
            return int(text)
        known = self.names or [str(number) for number in range(min(self.num_classes or 0, 1000))]
        raise feature_fault(path, f"unknown label {text[:80]!r}", suggest(text[:80], known))


@lru_cache(2)  # to check a million names takes a second
def _number_labels(names: tuple[str, ...]) -> dict[str, int]:
    """The number of each class by its name. Raises FeatureError if a name is invalid or occurs twice."""
    for name in names:
        if not is_text(name) or name != name.strip() or "\n" in name or "\r" in name:
            raise _label_fault(name)
    numbers = {name: place for place, name in enumerate(names)}
    if len(numbers) != len(names):
        raise feature_fault("", f"duplicate label name {sorted(n for n in names if names.count(n) > 1)[0]!r}")
    return numbers


def _label_fault(name: Any) -> FeatureError:
    return feature_fault("", f"invalid label name {name!r}: expected one line of text without surrounding spaces")


@dataclass(frozen=True, repr=False)
class Translation(FeaturesDict):
    """A text in each of ``languages``: a dict of ``Text`` by language. Follows ``tfds.features.Translation``.

    Attributes:
        languages: the language codes, sorted, as TFDS sorts them.

    >>> from registry.features import codec_of
    >>> codec_of(Translation(languages=["en", "de"])).flatten({"de": "Katze", "en": "cat"})
    {'de': [b'Katze'], 'en': [b'cat']}

    Raises:
        FeatureError: a language occurs twice or is not text, or a value does not have exactly these languages.
    """

    features: Mapping[str, Any] = field(init=False)
    languages: tuple[str, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        languages = check_languages(self.languages)
        object.__setattr__(self, "languages", languages)
        object.__setattr__(self, "features", {language: Text() for language in languages})
        super().__post_init__()

    __hash__ = FeaturesDict.__hash__


@dataclass(frozen=True, kw_only=True, repr=False)
class Language(Text):
    """The language of a text in ``TranslationVariableLanguages``: one of ``languages``, or any if they are None."""

    languages: tuple[str, ...] | None = None

    def flatten(self, value: Any, path: str) -> tuple[FlatValue, ...]:
        """One entry: the language's bytes."""
        return self.flatten_many([value], path)

    def flatten_many(self, values: AnySequence[Any] | npt.NDArray[Any], path: str) -> tuple[FlatValue, ...]:
        """One entry for each language."""
        flat = super().flatten_many(values, path)
        unknown = next((language for language in flat[0] if not self._allows(language)), None)
        if unknown is not None:
            raise _unknown_language(path, unknown.decode("utf-8", "replace"), self.languages)
        return flat

    def flatten_block(
        self, values: AnySequence[Any] | npt.NDArray[Any], path: str
    ) -> tuple[tuple[FlatValue, Counts], ...] | None:
        """One entry for each language; None if one may be unknown."""
        flat = super().flatten_block(values, path)
        return flat if flat is not None and all(map(self._allows, flat[0][0])) else None

    @property
    def limits(self) -> str:
        """The languages."""
        return "" if self.languages is None else f"one of {', '.join(self.languages)}"

    def outside(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which texts, as bytes or memoryviews, are not one of the languages."""
        return np.array([not self._allows(bytes(value)) for value in values], np.bool_)

    def _allows(self, language: bytes) -> bool:
        return self._known is None or language in self._known

    @cached_property
    def _known(self) -> frozenset[bytes] | None:
        return None if self.languages is None else frozenset(language.encode() for language in self.languages)


@dataclass(frozen=True, repr=False)
class TranslationVariableLanguages(Sequence):
    """Texts in languages that differ from example to example.

    Follows ``tfds.features.TranslationVariableLanguages``. It accepts a dict with one or several texts for each
    language. It is stored as a sorted Sequence of ``language`` and ``translation``, and decodes to a dict of these two
    arrays, which it also accepts.

    Attributes:
        languages: the allowed languages; None allows any.

    >>> feature = TranslationVariableLanguages(languages=["de", "en", "fr"])
    >>> from registry.features import codec_of
    >>> codec_of(FeaturesDict({"x": feature})).flatten({"x": {"fr": ["chat", "chatte"], "en": "cat"}})
    {'x/language': [b'en', b'fr', b'fr'], 'x/translation': [b'cat', b'chat', b'chatte']}

    Raises:
        FeatureError: a value has a language that is not allowed, or something other than text.
    """

    feature: Any = field(init=False)
    length: int | None = field(default=None, init=False)
    languages: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.languages is not None:
            object.__setattr__(self, "languages", check_languages(self.languages))
        fields = {"language": Language(languages=self.languages), "translation": Text()}
        object.__setattr__(self, "feature", FeaturesDict(fields))
        super().__post_init__()

    def elements_of(self, value: Any, path: str) -> Any:
        """``value`` as a sorted list of dicts, each with a language and a translation."""
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {"language", "translation"} and not any(isinstance(v, (str, bytes)) for v in value.values()):
            return value
        pairs = []
        for language, texts in value.items():
            if self.languages is not None and language not in self.languages:
                raise _unknown_language(path, language, self.languages)
            if isinstance(texts, Mapping) or not isinstance(texts, (str, bytes, Iterable)):
                raise feature_fault(path, f"expected a text or a list of texts, found {type(texts).__name__}")
            several = [texts] if isinstance(texts, (str, bytes)) else texts
            pairs += [(to_bytes(language, path), to_bytes(text, path)) for text in several]
        return [{"language": language, "translation": text} for language, text in sorted(pairs)]


def _unknown_language(path: str, language: Any, known: tuple[str, ...] | None) -> FeatureError:
    return feature_fault(path, f"unknown language {language!r:.80}", f"Declared languages: {', '.join(known or ())}.")


def check_languages(languages: Any) -> tuple[str, ...]:
    """``languages`` as a sorted tuple, the order in which TFDS writes them. Raises FeatureError if one is invalid."""
    is_list = isinstance(languages, Iterable) and not isinstance(languages, str)
    result = tuple(languages) if is_list else ()
    if not is_list or not all(map(is_text, result)) or len(set(result)) != len(result):
        raise feature_fault(
            "", f"invalid languages {languages!r:.80}", "Pass each language once, e.g. languages=['de', 'en']."
        )
    return tuple(sorted(result))
