"""Checks the types of the arguments of public calls against their annotations, before a call does anything.

Public classes are decorated with ``typed_methods``, and public functions with ``typed_arguments``. Without them, a
wrong type would cause an AttributeError deep inside, or would go unnoticed: ``promote="no"`` is a true value.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from registry.errors import UsageError, WrongTypeError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type[Any])
F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[object], bool]


def _is_flag(value: object) -> bool:
    return isinstance(value, bool) or any(base.__name__ in ("bool_", "bool") for base in type(value).__mro__)  # NumPy's


def _is_collection_of(kind: type) -> Test:
    # A str is a collection of letters, but a caller who passes one never means several names.
    return lambda value: isinstance(value, kind) and not isinstance(value, str | bytes)


_TESTS: Final[dict[str, tuple[str, Test]]] = {
    "None": ("None", lambda value: value is None),
    "bool": ("True or False", _is_flag),
    "os.PathLike": ("path", lambda value: isinstance(value, os.PathLike)),
    "BinaryIO": ("a binary file", lambda value: hasattr(value, "write")),
    "Callable": ("a callable", callable),
    "ProgressCallback": ("a callable", callable),
    "Collection": ("a collection", _is_collection_of(Collection)),
    "Sequence": ("a sequence", _is_collection_of(Sequence)),
    "Iterable": ("an iterable", _is_collection_of(Iterable)),
    "Mapping": ("a mapping", _is_collection_of(Mapping)),
    "Uses": ("a sequence of references", _is_collection_of(Sequence)),
}

# The functions check arguments of these types themselves, with more specific messages.
_CHECKED_INSIDE: Final = frozenset(
    {"Any", "DatasetLike", "ExportKind", "Keep", "Labels", "Literal", "Moment", "ReadConfig", "ReadInstruction"}
) | {*("SlicingRule", "SplitArgument", "State", "Verify", "Version", "float", "int", "tuple", "type")}


def typed_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public call: an argument whose type its annotation does not allow raises a ``WrongTypeError``.

    Whole numbers, datasets and moments are left to the call, which also checks their values.

    >>> @typed_arguments
    ... def publish(folder: "str | os.PathLike[str]", promote: "bool | None" = None) -> None: ...
    >>> publish("data", promote="no")
    Traceback (most recent call last):
    registry.errors.WrongTypeError: promote must be True or False or None, not str

    Raises:
        WrongTypeError: an argument has a type that is not allowed. Raised by the decorated call.
        UsageError: a path contains NUL, or cannot be encoded for the file system. Raised by the decorated call.
    """

    @cache  # the signature is read at the first call, not at import
    def checked() -> tuple[inspect.Signature, dict[str, tuple[tuple[str, Test], ...]]]:
        signature = inspect.signature(function)
        return signature, {name: _read_annotation(str(each.annotation)) for name, each in signature.parameters.items()}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        signature, annotations = checked()
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:  # otherwise an inner function, unknown to the caller, would raise it
            raise TypeError(f"{function.__qualname__}() {error}") from None
        for name, tests in annotations.items():
            if tests and name in given:
                is_variadic = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
                for value in given[name] if is_variadic else (given[name],):
                    _check(name, value, tests)
        return function(*args, **kwargs)

    return call


def typed_methods(owner: C) -> C:
    """Decorate a class: all its public methods, including class methods, get ``typed_arguments``."""
    for name, member in list(vars(owner).items()):
        function = getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and not name.startswith("_"):
            checked = typed_arguments(function)
            setattr(owner, name, checked if function is member else type(member)(checked))
    return owner


def takes_fields(owner: type, arguments: type) -> Callable[[F], F]:
    """Decorate a function with ``**options``: the signature that ``help`` shows names the fields of a dataclass.

    Args:
        owner: the dataclass.
        arguments: the TypedDict of the fields that the function takes.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        options = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(owner)
            if each.name in arguments.__annotations__
        ]
        variadic = inspect.Parameter.VAR_KEYWORD
        named = [parameter for parameter in signature.parameters.values() if parameter.kind is not variadic]
        first = [parameter for parameter in named if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
        parameters = [*first, *options, *named[len(first) :]]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def require_type(name: str, value: object, kind: type) -> None:
    """Raise a WrongTypeError unless ``value``, the argument ``name``, has the expected type.

    Raises:
        WrongTypeError: the value has another type.
    """
    if not isinstance(value, kind):
        _refuse(name, value, kind.__name__)


def require_path(name: str, value: str | os.PathLike[str]) -> str:
    """Return ``value``, the argument ``name``, as text, after a check that it is a valid path on this system.

    Raises:
        WrongTypeError: the path is made of bytes.
        UsageError: the path contains NUL, or cannot be encoded for the file system.
    """
    text = os.fspath(value)
    if not isinstance(text, str):
        _refuse(name, text, "a path of str")
    try:
        is_path = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise UsageError(f"{name} is not a valid path: {text!r:.100}", details={"argument": name})
    return text


def _refuse(name: str, value: object, accepted: str) -> NoReturn:
    kind, words, hint = type(value).__name__, set(accepted.split()), None
    if isinstance(value, str) and {"sequence", "collection", "iterable"} & words:
        hint = f"Put it in brackets: {name}=[...]"
    elif isinstance(value, str | os.PathLike) and "Catalog" in words:
        hint = f"Open the catalog: {name}=registry.connect(...)"
    raise WrongTypeError(
        f"{name} must be {accepted}, not {kind}",
        hint=hint,
        details={"argument": name, "accepted": accepted, "type": kind},
    )


def _check(name: str, value: object, tests: Sequence[tuple[str, Test]]) -> None:
    if not any(test(value) for _, test in tests):
        _refuse(name, value, " or ".join(dict.fromkeys(label for label, _ in tests)))
    if isinstance(value, str | os.PathLike) and any(label == "path" for label, _ in tests):
        require_path(name, value)


def _read_annotation(annotation: str) -> tuple[tuple[str, Test], ...]:
    """The types that an annotation accepts, each with its description; empty if the call checks the argument itself.

    >>> [words for words, _ in _read_annotation("PinFile | Mapping[str, tuple[int, int] | None] | None")]
    ['PinFile', 'a mapping', 'None']
    """
    brackets = 1
    while brackets:
        annotation, brackets = re.subn(r"\[[^\[\]]*\]", "", annotation)
    names = [name.strip(" '\"") for name in annotation.split("|")]
    if any(name in _CHECKED_INSIDE or not name.replace(".", "").isidentifier() for name in names):
        return ()
    return tuple(_TESTS.get(name) or (name, partial(_has_class_named, name)) for name in names)


def _has_class_named(name: str, value: object) -> bool:
    # Compared by name, so that the class need not be imported: its module may need NumPy or pydantic.
    return any(base.__name__ == name for base in type(value).__mro__)
