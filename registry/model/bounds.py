"""Between which two numbers do the versions of a request lie? What an index, or a sorted list, can be asked for.

Both ends are included and lie in the range of numbers that every database holds, so that nothing overflows: ``<=3.1``
ends at ``3.1.2147483647``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from registry.model.version import MAX_PART, VersionClause, VersionRequest

Number: TypeAlias = tuple[int, int, int]

LOWEST: Final[Number] = (0, 0, 0)
HIGHEST: Final[Number] = (MAX_PART, MAX_PART, MAX_PART)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBounds:
    """The lowest and the highest number that may meet a request; nothing does where ``low`` is above ``high``.

    ``rest`` are the clauses that say more than two bounds can: ``!=``, and a wildcard before a number (``3.*.1``).
    """

    low: Number
    high: Number
    rest: tuple[VersionClause, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no number at all lies between the bounds."""
        return self.low > self.high


def request_bounds(request: VersionRequest) -> VersionBounds:
    """The narrowest bounds of everything that ``request`` allows.

    >>> bounds = request_bounds(VersionRequest.parse(">=3.1,<4,!=3.2.0"))
    >>> bounds.low, bounds.high, str(bounds.rest[0])
    ((3, 1, 0), (3, 2147483647, 2147483647), '!=3.2.0')
    """
    bounds = [_clause_bounds(clause) for clause in request.clauses]
    return VersionBounds(
        low=max((low for low, _ in bounds), default=LOWEST),
        high=min((high for _, high in bounds), default=HIGHEST),
        rest=tuple(clause for clause in request.clauses if _says_more(clause)),
    )


def _clause_bounds(clause: VersionClause) -> tuple[Number, Number]:
    prefix = _prefix(clause)
    match clause.operator:
        case "":
            return _first(prefix), _last(prefix)
        case ">=":
            return _first(prefix), HIGHEST
        case ">":
            return _after(_last(prefix)), HIGHEST
        case "<=":
            return LOWEST, _last(prefix)
        case "<":
            return LOWEST, _before(_first(prefix))
        case "~":
            return _first(prefix), _last(prefix[:2])
        case "^":  # the parts up to the first that is not zero stay
            fixed = next((index for index, part in enumerate(prefix) if part), len(prefix) - 1) + 1
            return _first(prefix), _last(prefix[:fixed])
        case _:
            return LOWEST, HIGHEST


def _says_more(clause: VersionClause) -> bool:
    parts = [clause.major, clause.minor, clause.patch]
    return clause.operator == "!=" or len(_prefix(clause)) < sum(part is not None for part in parts)


def _prefix(clause: VersionClause) -> tuple[int, ...]:
    """The numbers before the first wildcard."""
    prefix: list[int] = []
    for part in (clause.major, clause.minor, clause.patch):
        if part is None:
            break
        prefix.append(part)
    return tuple(prefix)


def _first(prefix: tuple[int, ...]) -> Number:
    major, minor, patch = (*prefix, 0, 0, 0)[:3]
    return major, minor, patch


def _last(prefix: tuple[int, ...]) -> Number:
    major, minor, patch = (*prefix, *HIGHEST)[:3]
    return major, minor, patch


def _after(number: Number) -> Number:
    major, minor, patch = number
    if patch < MAX_PART:
        return major, minor, patch + 1
    if minor < MAX_PART:
        return major, minor + 1, 0
    return major + 1, 0, 0  # above the highest: more than any bound, so nothing lies between


def _before(number: Number) -> Number:
    major, minor, patch = number
    if patch > 0:
        return major, minor, patch - 1
    if minor > 0:
        return major, minor - 1, MAX_PART
    return major - 1, MAX_PART, MAX_PART  # below the lowest: nothing lies between
