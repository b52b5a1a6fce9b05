"""Pages of long lists: the calls of the protocol whose results may have tens of thousands of items.

    @in_pages("after", attrgetter("reference"))          in the protocol
    def sizes(self, *, after=None, limit=None): ...

A service answers such a call in pages, and a client asks for one after the other. An implementation returns the first
``limit`` items that follow the one that ``after`` names, in an order that changes do not disturb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast

from registry.model import whole_number

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MOST_LIMIT: Final = 2**31 - 1
_READ_AT_ONCE: Final = 500
"""The number of items that are read together if the caller may see only some of them."""


@dataclass(frozen=True, slots=True)
class Pages:
    """How a list is continued.

    Attributes:
        argument: the argument of the call that names the last item of the page before.
        name: the value of that argument for an item.
    """

    argument: str
    name: Callable[[Any], Any]


def in_pages(argument: str, name: Callable[[Any], Any]) -> Callable[[F], F]:
    """Declare that the result of a call may be long, and that it also takes ``limit``. See ``Pages``."""

    def declare(call: F) -> F:
        call.pages = Pages(argument, name)  # type: ignore[attr-defined]  # functions have attributes
        return call

    return declare


def page_limit(limit: int | None) -> int | None:
    """How many items a page may have at most, as a number that every database takes; None for all.

    Raises:
        UsageError: it is negative, or not a whole number.
    """
    return None if limit is None else min(whole_number(limit, "limit", least=0), _MOST_LIMIT)


def checks_limit(call: F) -> F:
    """Let an implementation of a call that is ``in_pages`` get only a ``page_limit``."""

    @wraps(call)
    def checked(*args: Any, limit: int | None = None, **kwargs: Any) -> Any:
        return call(*args, limit=page_limit(limit), **kwargs)

    return cast("F", checked)


def pages_of(call: Any) -> Pages | None:
    """How the list that a call of the protocol returns is continued; None if it comes whole."""
    result: Pages | None = getattr(call, "pages", None)
    return result


def fill_page(
    read: Callable[[Any, int | None], Sequence[T]],
    choose: Callable[[Sequence[T]], Iterable[T]],
    name: Callable[[T], Any],
    *,
    after: Any,
    limit: int | None,
) -> tuple[T, ...]:
    """Return a page of a list from which some items are left out. The page is full unless the list ends.

    Args:
        read: returns the items that follow an item, at most a number of them; None for all.
        choose: returns the items to keep.
        name: returns the name of an item, for ``read``.
        after: the name of the last item of the previous page.
        limit: the most items of the page; None for the whole list.
    """
    result: list[T] = []
    size = None if limit is None else max(limit, _READ_AT_ONCE)
    while True:
        items = read(after, size)
        result += choose(items)
        if limit is None or size is None or len(result) >= limit or len(items) < size:
            return tuple(result[:limit])
        after = name(items[-1])
