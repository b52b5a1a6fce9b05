"""A recogniser created from the grammar in a docstring: it checks whether a text belongs to the language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from typing import TypeAlias

Node: TypeAlias = tuple[str, tuple["Node", ...] | str]

_LINE = re.compile(r"^ *(\w+) *:= *(.+?)(?: {3,}.*)?$", re.MULTILINE)
_TOKEN = re.compile(r'\s*("[^"]*"|\[0-9\]|\w+|[()|?*+])')
TERMINALS = {"letter": re.compile(r"[A-Za-z]"), "digit": re.compile(r"[0-9]"), "space": re.compile(r"[ \t\n\r\f\v]")}


def read_rules(text: str) -> dict[str, Node]:
    """The rules of a grammar: ``name := alternatives``; a comment follows three spaces."""
    return {name: _Rule(body).alternatives() for name, body in _LINE.findall(text)}


def recognises(rules: dict[str, Node], start: str, text: str) -> bool:
    """Whether all of ``text`` is a ``start``."""

    @cache
    def ends(node: Node, at: int) -> frozenset[int]:
        kind, body = node
        if kind == "text":
            return frozenset([at + len(body)]) if text.startswith(str(body), at) else frozenset()
        if kind == "name":
            terminal = TERMINALS.get(str(body))
            if terminal is None:
                return ends(rules[str(body)], at)
            return frozenset([at + 1]) if terminal.match(text, at) else frozenset()
        assert not isinstance(body, str)
        if kind == "either":
            return frozenset().union(*(ends(one, at) for one in body))
        if kind == "sequence":
            found = frozenset([at])
            for one in body:
                found = frozenset().union(*(ends(one, place) for place in found))
            return found
        (one,) = body
        found = frozenset() if kind == "+" else frozenset([at])
        new = frozenset([at])
        while new:
            new = frozenset().union(*(ends(one, place) for place in new)) - found
            found |= new
            if kind == "?":
                break
        return found

    return len(text) in ends(("name", start), 0)


class _Rule:
    """One right-hand side, read by recursive descent."""

    def __init__(self, body: str) -> None:
        self._tokens = list(self._split(body))

    @staticmethod
    def _split(body: str) -> Iterator[str]:
        at = 0
        while at < len(body.rstrip()):
            found = _TOKEN.match(body, at)
            assert found is not None, body[at:]
            yield found[1]
            at = found.end()

    def alternatives(self) -> Node:
        found = [self._sequence()]
        while self._tokens and self._tokens[0] == "|":
            self._tokens.pop(0)
            found.append(self._sequence())
        return "either", tuple(found)

    def _sequence(self) -> Node:
        found: list[Node] = []
        while self._tokens and self._tokens[0] not in ("|", ")"):
            word = self._tokens.pop(0)
            node: Node
            if word.startswith("("):
                node = self.alternatives()
                assert self._tokens.pop(0) == ")"
            elif word.startswith("["):
                node = ("name", "digit")
            else:
                node = ("text", word[1:-1]) if word.startswith('"') else ("name", word)
            if self._tokens and self._tokens[0] in ("?", "*", "+"):
                node = (self._tokens.pop(0), (node,))
            found.append(node)
        return "sequence", tuple(found)


def recogniser(text: str, start: str) -> partial[bool]:
    """``recognises`` for the grammar in ``text``."""
    return partial(recognises, read_rules(text), start)
