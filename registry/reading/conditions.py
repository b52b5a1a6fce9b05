r"""``Condition``: which examples a filter selects: ``price > 10 and label in ('cat', 'dog')``.

    text, features --parse_condition--> Condition --matches(arrays of a block)--> a bool for each example
                                                  --may_match(bounds of a block)--> whether one of them may match

Nothing is evaluated as Python: the parser knows the names of features, literals and a few words. It checks types, so
that a mistake is an error with a caret before any record is read.

A condition is true, false or unknown, as in SQL: a comparison with a missing value is unknown, and so is its negation.
Every node therefore gives two answers: where it is true, and where it is false. ``matches`` answers for each example.
``may_match`` answers for all examples of a block at once: whether the node may be true, and may be false, in any of
them. The same tree combines both kinds of answers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from registry.argument_types import require_type
from registry.display import Times, TimeType, parse_moment_text
from registry.errors import UsageError, suggest
from registry.escaping import point_at
from registry.features import Audio, ClassLabel, Feature, FeaturesDict, Tensor
from registry.features.containers import Column, columns_of
from registry.features.feature import TEXT

MAX_LENGTH: Final = 2**16
MAX_DEPTH: Final = 50
"""The maximum depth of nested parentheses and ``not``."""
MAX_ITEMS: Final = 10_000
_MAX_DIGITS: Final = 300

_HINT: Final = (
    "Write e.g. price > 10 and not label in ('cat', 'dog'), or age is None. == compares, text is in quotes, and a name "
    "that is not a word is in backquotes: `unit price`."
)
_OTHER_LANGUAGES: Final = {
    "=": "==", "=>": ">=", "&": "and", "&&": "and", "AND": "and", "|": "or", "||": "or", "OR": "or", "!": "not",
    "NOT": "not", "true": "True", "false": "False", "null": "None", "NULL": "None",
}  # fmt: skip
"""Operators of SQL, C and pandas, and their equivalents in a condition."""
_LITERALS: Final = {
    "class": "the name or the number of a class", "text": "a text in quotes", "bool": "True or False",
    "date": "'2024-01-31'", "time": "'12:00:00'", "timestamp": "'2024-01-31 12:00:00'",
}  # fmt: skip
_WORDS: Final = ("and", "or", "not", "in", "is")
_NAME: Final = re.compile(r"[^\W\d]\w*(?:/[^\W\d]\w*)*")
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number> -?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]) )
    | (?P<text>   '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<name>   `[^`]+` | [^\W\d]\w*(?:/[^\W\d]\w*)* )
    | (?P<mark>   ==|!=|<=|>=|[<>()\[\],] )
    | (?P<end>    \Z )
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Answers: TypeAlias = tuple[Any, Any]
"""Where a node is true and where it is false: two bool arrays; or whether it may be true, and may be false."""


Bounds: TypeAlias = Sequence[Any]
"""The least and the greatest value of a column in a block, as the column stores them: text as ``bytes``, a class or a
date as a number. NaN is left out, no value is missing, and the bounds may be wider than the values."""


class Condition:
    """A parsed condition.

    Attributes:
        text: the condition as it was written.
        features: the schema of the columns that it names.
    """

    def __init__(self, text: str, node: _Node, features: FeaturesDict) -> None:
        self.text = text
        self.features = features
        self._node = node

    def matches(self, block: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Which examples of a block match.

        Args:
            block: a dict of arrays, as ``Reader.blocks`` yields it, with at least ``features``.

        Returns:
            An array of shape (number of examples,).
        """
        result: npt.NDArray[np.bool_] = self._node(_Rows(block))[0]
        return result

    def may_match(self, bounds: Mapping[str, Bounds]) -> bool:
        """Whether an example of a block may match: False only if none does, so that the block need not be read.

        Args:
            bounds: the bounds of the columns, by path. A missing column may have any values.
        """
        return bool(self._node(_Ranges(bounds))[0])


def parse_condition(text: str, features: FeaturesDict, times: Times) -> Condition:
    """Parse a condition on the columns of ``features``.

    Grammar::

        condition  := all ( "or" all )*
        all        := negation ( "and" negation )*
        negation   := "not" negation | "(" condition ")" | comparison
        comparison := operand ( operator operand )+             a chain: 0 < price <= 10
                    | column "not"? "in" list
                    | column "is" "not"? "None"
                    | column                                    of bools
        operator   := "==" | "!=" | "<" | "<=" | ">" | ">="
        operand    := column | literal
        list       := "(" ( literal ( "," literal )* ","? )? ")"     or in brackets
        literal    := number | text | "True" | "False"
        column     := word ( "/" word )* | "`" any path "`"

    Args:
        text: the condition.
        features: the schema. A feature in a dict is named by its path: ``place/name``.
        times: the columns that are dates, times and durations.

    Raises:
        UsageError: the text is malformed, names an unknown feature, or compares values of different types. The message
            has a caret under the place.
        WrongTypeError: ``text`` is not a str.
    """
    require_type("condition", text, str)
    if len(text) > MAX_LENGTH:
        raise UsageError(
            f"a condition has at most {MAX_LENGTH:,} characters, not {len(text):,}",
            hint="Filter by a range, or apply several conditions one after the other.",
        )
    return _Parser(text, features, times).whole()


def is_comparable(column: Column) -> bool:
    """Whether a condition can compare a feature: it has one number, text, bool, class or time in each example."""
    leaf = column.leaf
    return isinstance(leaf, Tensor) and not (column.lengths or isinstance(leaf, Audio) or leaf.shape)


def column_text(path: str) -> str | None:
    """The name of a column as a condition writes it; None if it has a backquote, which a condition cannot write.

    >>> column_text("place/name"), column_text("unit price"), column_text("not")
    ('place/name', '`unit price`', '`not`')
    """
    words = {*_WORDS, "True", "False", "None"}
    if _NAME.fullmatch(path) and path not in words:
        return path
    return f"`{path}`" if path and "`" not in path else None


def text_literal(text: str) -> str:
    r"""A text as a condition writes it.

    >>> text_literal("Ann's")
    "'Ann\\'s'"
    """
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"


class _Column(NamedTuple):
    """A column that a condition names: one number, text, bool, class or time in each example."""

    path: str
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    kind: str
    meaning: Any
    """The names of its classes, or the unit of its times."""

    @property
    def is_float(self) -> bool:
        """Whether a value may be NaN."""
        return self.kind == "number" and self.dtype.kind not in "iu"


_Node: TypeAlias = "Callable[[_Rows | _Ranges], Answers]"


def _not(node: _Node, source: _Rows | _Ranges) -> Answers:
    return node(source)[::-1]


def _all(nodes: Iterable[_Node], source: _Rows | _Ranges) -> Answers:
    return reduce(lambda left, right: (left[0] & right[0], left[1] | right[1]), (node(source) for node in nodes))


def _any(nodes: Iterable[_Node], source: _Rows | _Ranges) -> Answers:
    return reduce(lambda left, right: (left[0] | right[0], left[1] & right[1]), (node(source) for node in nodes))


class _Rows:
    """Answers for each example of a block of arrays."""

    def __init__(self, block: Mapping[str, Any]) -> None:
        self._block = block

    def compare(self, column: _Column, sign: str, other: Any) -> Answers:
        left, present = self._values(column)
        if not isinstance(other, _Column):
            other = scalar(column.dtype, other) if column.kind == "text" else other
            return _where(present, lambda rows: _COMPARE[sign](left[rows], other))
        right, also = self._values(other)
        return _where(present & also, lambda rows: _COMPARE[sign](left[rows], right[rows]))

    def contain(self, column: _Column, items: tuple[Any, ...]) -> Answers:
        values, present = self._values(column)
        if column.kind == "text":
            texts = frozenset(items)
            return _where(present, lambda rows: [value in texts for value in values[rows].tolist()])
        wide = np.dtype(np.float64) if column.is_float else column.dtype
        return _where(present, lambda rows: np.isin(values[rows].astype(wide), np.array(items, wide)))

    def lack(self, column: _Column) -> Answers:
        _, present = self._values(column)
        return ~present, present

    def _values(self, column: _Column) -> tuple[Any, npt.NDArray[np.bool_]]:
        """The values, and which of them are not missing."""
        array: Any = reduce(operator.getitem, column.names, self._block)
        return np.ma.getdata(array), ~np.ma.getmaskarray(array)


def _where(present: npt.NDArray[np.bool_], test: Callable[[Any], Any]) -> Answers:
    """``test`` of the rows whose values are ``present``: the data of other rows may be None."""
    result = np.zeros(present.size, np.bool_)
    rows = slice(None) if present.all() else present
    with np.errstate(invalid="ignore"):  # comparing NaN in bfloat16 sets the flag, unlike in NumPy's own dtypes
        result[rows] = test(rows)
    return result, present & ~result


class _Ranges:
    """Answers for a block from its bounds."""

    def __init__(self, bounds: Mapping[str, Bounds]) -> None:
        self._bounds = bounds

    def compare(self, column: _Column, sign: str, other: Any) -> Answers:
        columns = [column, other] if isinstance(other, _Column) else [column]
        (low, high), *more = map(self._range, columns)
        (least, greatest) = more[0] if more else (other, other)
        if low is None or least is None:
            return True, True
        if sign in (">", ">="):
            sign, low, high, least, greatest = _MIRRORED[sign], least, greatest, low, high
        if sign in ("<", "<="):
            is_true, is_false = _COMPARE[sign](low, greatest), not _COMPARE[sign](high, least)
        else:
            is_true, is_false = low <= greatest and least <= high, low != greatest or high != least
            if sign == "!=":
                is_true, is_false = is_false, is_true
        if any(each.is_float for each in columns):  # NaN differs from everything, and no other comparison is true
            return is_true or sign == "!=", is_false or sign != "!="
        return is_true, is_false

    def contain(self, column: _Column, items: tuple[Any, ...]) -> Answers:
        low, high = self._range(column)
        if low is None:
            return True, True
        return any(low <= item <= high for item in items), low != high or low not in items or column.is_float

    def lack(self, column: _Column) -> Answers:
        return column.path not in self._bounds, True

    def _range(self, column: _Column) -> tuple[Any, Any]:
        """The bounds as values of the dtype, which NumPy compares as it compares the values; (None, None): unknown."""
        if column.path not in self._bounds:
            return None, None
        least, greatest = self._bounds[column.path]
        return scalar(column.dtype, least)[()], scalar(column.dtype, greatest)[()]


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    stop: int


class _Parser:
    """One pass over one text; ``_next`` is the next token."""

    def __init__(self, text: str, features: FeaturesDict, times: Times) -> None:
        self._text = text
        self._features = features
        self._columns = {column.path: column for column in columns_of(features)}
        self._times = times
        self._used: dict[tuple[str, ...], _Column] = {}
        self._depth = 0
        self._tokens = self._split()
        self._next = next(self._tokens)

    def whole(self) -> Condition:
        node = self._condition()
        if self._next.kind != "end":
            self._refuse("expected 'and', 'or' or the end of the condition here")
        return Condition(self._text.strip(), node, narrow(self._features, self._used))

    def _split(self) -> Iterator[_Token]:
        at = 0
        while match := _TOKEN.match(self._text, at):
            kind, at = str(match.lastgroup), match.end()
            yield _Token(kind, match[kind], match.start(kind), max(at, match.start(kind) + 1))
        at += len(self._text[at:]) - len(self._text[at:].lstrip())
        sign = re.match(r"&+|\|+|=>|.", self._text[at:], re.DOTALL)
        token = _Token("", sign[0] if sign else "", at, at + 1)
        if token.text in "'\"":
            self._refuse("the text that starts here has no closing quote", token)
        self._refuse("expected a name, a number, a text or an operator here", token)

    def _advance(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _take(self, *texts: str) -> str:
        """The text of the next token, which is consumed, if it is one of ``texts``; otherwise an empty text."""
        return self._advance().text if self._next.text in texts and self._next.kind in ("mark", "name") else ""

    def _expect(self, *texts: str) -> str:
        return self._take(*texts) or self._refuse(f"expected {' or '.join(map(repr, texts))} here")

    def _condition(self) -> _Node:
        return self._joined("or", self._conjunction, _any)

    def _conjunction(self) -> _Node:
        return self._joined("and", self._negation, _all)

    def _joined(self, word: str, part: Callable[[], _Node], join: Callable[..., Answers]) -> _Node:
        nodes = [part()]
        while self._take(word):
            nodes.append(part())
        return nodes[0] if len(nodes) == 1 else partial(join, nodes)

    def _negation(self) -> _Node:
        opening = self._take("not", "(")
        if not opening:
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"conditions can be nested at most {MAX_DEPTH} deep")
        node: _Node = partial(_not, self._negation()) if opening == "not" else self._condition()
        if opening == "(":
            self._expect(")")
        self._depth -= 1
        return node

    def _comparison(self) -> _Node:
        token = self._next
        left = self._operand()
        nodes: list[_Node] = []
        while sign := self._take(*_COMPARE):
            following = self._next
            right = self._operand()
            nodes.append(self._compare(left, sign, right, (token, following)))
            token, left = following, right
        if nodes:
            return nodes[0] if len(nodes) == 1 else partial(_all, nodes)
        if not isinstance(left, _Column):
            self._refuse("expected the name of a feature before this, or a comparison after it", token)
        if self._take("is"):
            is_not = self._take("not")
            self._expect("None")
            node: _Node = lambda source: source.lack(left)  # noqa: E731
            return partial(_not, node) if is_not else node
        is_not = self._take("not")
        if is_not or self._next.text == "in":
            self._expect("in")
            items = self._items(left)
            node = lambda source: source.contain(left, items)  # noqa: E731
            return partial(_not, node) if is_not else node
        if left.kind != "bool":
            # Without quotes, a shell passes only the first word of a condition, and reads > 3 as a redirection to a
            # file.
            is_whole = token.start == 0 and self._next.kind == "end"
            hint = "Write e.g. price > 10. In a shell, put quotes around the whole condition." if is_whole else None
            self._refuse(f"expected a comparison: {left.path!r} is {_named(left)}, not True or False", token, hint)
        return lambda source: source.compare(left, "==", np.True_)

    def _compare(self, left: Any, sign: str, right: Any, tokens: tuple[_Token, _Token]) -> _Node:
        place = tokens[1]
        if not isinstance(left, _Column):
            left, sign, right, place = right, _MIRRORED[sign], left, tokens[0]
        if not isinstance(left, _Column):
            self._refuse("expected the name of a feature on one side of a comparison", place)
        value = right if isinstance(right, _Column) else self._value(left, right, place)
        if isinstance(right, _Column) and (left.kind, left.meaning) != (right.kind, right.meaning):
            others = " with other names" if left.kind == "class" else " in another unit or time zone"
            other = f"{_named(right)}{others if left.kind == right.kind else ''}"
            hint = "Compare each with a value, or ask in SQL: dataset.sql(...), registry sql."
            self._refuse(f"{left.path!r} is {_named(left)}, but {right.path!r} is {other}", place, hint)
        return lambda source: source.compare(left, sign, value)

    def _items(self, column: _Column) -> tuple[Any, ...]:
        closing = ")" if self._expect("(", "[") == "(" else "]"
        items: list[Any] = []
        while not self._take(closing):
            token = self._next
            if len(items) == MAX_ITEMS:
                self._refuse(f"a list has at most {MAX_ITEMS:,} items", token)
            items.append(self._value(column, self._operand(), token))
            if self._next.text != closing:
                self._expect(",", closing)
        if column.is_float:  # a number that the dtype cannot represent equals no value
            return tuple(item for item in items if item.dtype == column.dtype)
        if column.dtype.kind in "iu":
            limits = np.iinfo(column.dtype)
            return tuple(item for item in items if isinstance(item, int) and limits.min <= item <= limits.max)
        return tuple(items)

    def _operand(self) -> Any:
        """A column, or the number, text or bool of a literal."""
        token = self._next
        if token.kind not in ("number", "text", "name") or token.text in _WORDS:
            self._refuse("expected the name of a feature, a number or a text here")
        if token.text == "None":
            self._refuse("nothing equals None", hint="Write NAME is None, or NAME is not None.")
        self._advance()
        if token.kind == "number":
            is_whole = len(token.text) <= _MAX_DIGITS and token.text.lstrip("-").replace("_", "").isdigit()
            return int(token.text) if is_whole else float(token.text)
        if token.kind == "text":
            return re.sub(r"(?s)\\(.)", lambda match: self._unescape(token, match), token.text[1:-1])
        return token.text == "True" if token.text in ("True", "False") else self._column(token)

    def _unescape(self, token: _Token, match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            start = token.start + 1 + match.start()
            place = _Token("", match[0], start, start + 2)
            self._refuse("unknown escape", place, "Write two backslashes for a backslash: 'C:\\\\data'.")
        return _ESCAPES[match[1]]

    def _column(self, token: _Token) -> _Column:
        path = token.text.strip("`")
        column = self._columns.get(path)
        if column is None:
            inner = [each for each in self._columns if each.startswith(f"{path}/")]
            reason = f"{path!r:.80} has several features" if inner else f"no feature {path!r:.80}"
            have = "Its features are:" if inner else "The features are:"
            hint = suggest(path, inner or self._columns, have=have)
            if re.search(r"([=<>,]|\bin\s*[(\[])\s*\Z", self._text[: token.start]):  # item == lamp
                hint = f"{hint} A text is in quotes: {path!r:.80}."
            self._refuse(reason, token, hint)
        leaf, time = column.leaf, self._times.get(path)
        if not is_comparable(column):
            self._refuse(
                f"{path!r:.80} has the type {column.words[0] if column.lengths else type(leaf).__name__}, "
                "but a condition compares single values",
                token,
                "Test such values in a loop, or query them with SQL: dataset.sql(...), registry sql.",
            )
        is_class = isinstance(leaf, ClassLabel)
        plain = "text" if leaf.dtype == TEXT else "bool" if leaf.dtype == np.bool_ else "number"
        kind = time.kind if time else "class" if is_class else plain
        meaning = time or (tuple(getattr(leaf, "names", None) or ()) if is_class else None)
        return self._used.setdefault(column.names, _Column(path, column.names, leaf.dtype, kind, meaning))

    def _value(self, column: _Column, value: Any, token: _Token) -> Any:
        """``value`` as the column stores it."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        stored: Any = None
        if column.kind == "text" and isinstance(value, str):
            stored = value.encode("utf-8", "surrogatepass")
        elif column.kind == "bool" and isinstance(value, bool):
            stored = np.bool_(value)
        elif column.kind not in ("text", "bool") and is_number:
            stored = _rounded(column, value)
        elif isinstance(column.meaning, TimeType) and isinstance(value, str):
            stored = parse_moment_text(value, column.meaning)
        elif column.kind == "class" and value in (column.meaning or ()):
            stored = column.meaning.index(value)
        if stored is None:
            hint = f"Write {_LITERALS.get(column.kind, 'a number')}."
            if column.kind == "class" and isinstance(value, str) and column.meaning:
                hint = str(suggest(value, column.meaning, have="The classes are:"))
            reason = f"{column.path!r} is {_named(column)}, which cannot be compared with {token.text:.40}"
            self._refuse(reason, token, hint)
        return stored

    def _refuse(self, reason: str, token: _Token | None = None, hint: str | None = None) -> NoReturn:
        token = token or self._next
        ours = _OTHER_LANGUAGES.get(token.text)
        raise UsageError(
            f"{reason}\n{point_at(self._text, token.start, token.stop)}",
            hint=f"Write {ours} instead of {token.text}." if ours else hint or _HINT,
            details={"condition": self._text, "start": token.start, "stop": token.stop, "reason": reason},
        )


def _named(column: _Column) -> str:
    return f"{column.dtype}" if column.kind == "number" else f"a {column.kind}"


def _rounded(column: _Column, value: float) -> Any:
    """A number rounded to a dtype of floats, as NumPy does it, if that is finite; a whole one as an exact int."""
    if not column.is_float:
        return int(value) if isinstance(value, int) or value.is_integer() else value
    with np.errstate(over="ignore"):
        rounded = column.dtype.type(value)
    return rounded if np.isfinite(rounded) else np.float64(value)


def scalar(dtype: np.dtype[Any], value: Any) -> Any:
    """``value`` as an array without dimensions: NumPy would cut the zeros at the end of bytes."""
    result = np.empty((), dtype)
    result[()] = value
    return result


def narrow(features: FeaturesDict, used: Iterable[tuple[str, ...]]) -> FeaturesDict:
    """The features of these paths, with the dicts around them."""
    inner: dict[str, Feature] = {}
    for name, feature in features.items():
        below = [path[1:] for path in used if path[0] == name]
        if below:
            inner[name] = narrow(feature, below) if isinstance(feature, FeaturesDict) else feature
    return FeaturesDict(inner)
