"""How are translations stored? With fixed languages as a dict of texts, else as a sequence of language and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.features.casts import to_bytes
from registry.features.containers import FeaturesDict, Sequence
from registry.features.feature import feature_fault, is_text
from registry.features.text import Text


@dataclass(frozen=True, repr=False)
class Translation(FeaturesDict):
    """A text in each of ``languages``: a dict of ``Text`` by language.

    >>> Translation(languages=["en", "de"]).flatten_example({"de": "Katze", "en": "cat"})
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
    >>> FeaturesDict({"x": feature}).flatten_example({"x": {"fr": ["chat", "chatte"], "en": "cat"}})
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
