"""Thrift's compact protocol as trees that a test can falsify and write again.

A node is a list whose first item is its kind: struct, list, integer, byte, boolean, double or text.
"""

from __future__ import annotations

import copy
import random
from typing import Any, Final

Node = list[Any]

_BITS: Final = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 40, 62, 63)
_INTEGERS: Final = sorted({number for bits in _BITS for number in (2**bits - 1, 2**bits, -(2**bits))})


def read_struct(data: bytes, place: int) -> tuple[Node, int]:
    """The struct at ``place`` of valid ``data``, and the offset of its end."""
    fields: list[list[Any]] = []
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            raw, place = _read_varint(data, place)
            number = _unfold(raw)
        node, place = _read(data, place, head & 15, in_list=False)
        fields.append([number, node])
    return ["struct", fields], place + 1


def write_struct(node: Node) -> bytes:
    """The bytes of a struct; a list may claim another length than it has."""
    made = bytearray()
    last = 0
    for number, value in node[1]:
        kind = _type(value)
        if 0 < number - last < 16:
            made.append((number - last) << 4 | kind)
        else:
            made.append(kind)
            made += _write_varint(_fold(number))
        last = number
        made += _write(value)
    made.append(0)
    return bytes(made)


def field(node: Node, number: int) -> Node | None:
    """The field ``number`` of a struct."""
    return next((value for found, value in node[1] if found == number), None)


def change(rng: random.Random, tree: Node) -> None:
    """Change one to four nodes of ``tree``: numbers, texts, lengths, types, fields that go, come twice, or move."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        found = list(_nodes(tree))
        _change_one(rng, rng.choice(found), found)


def _change_one(rng: random.Random, node: Node, others: list[Node]) -> None:
    kind = node[0]
    if kind == "integer":
        node[1] = rng.choice(_INTEGERS) if rng.random() < 0.7 else node[1] + rng.choice([-2, -1, 1, 2])
    elif kind == "byte":
        node[1] = rng.randrange(256)
    elif kind == "boolean":
        node[1] = not node[1]
    elif kind == "text":
        node[1] = _change_text(rng, node[1])
    elif kind == "list":
        _change_list(rng, node)
    elif kind == "struct" and node[1]:
        place = rng.randrange(len(node[1]))
        chance = rng.random()
        if chance < 0.4:
            del node[1][place]
        elif chance < 0.6:
            node[1][place][0] += rng.choice([-1, 1, 2])
        elif chance < 0.8:
            node[1].insert(place, copy.deepcopy(rng.choice(node[1])))
        else:
            node[1][place][1] = copy.deepcopy(rng.choice(others))


def _change_text(rng: random.Random, text: bytes) -> bytes:
    chance = rng.random()
    if chance < 0.3:
        return text[: rng.randrange(len(text) + 1)]
    if chance < 0.5:
        return text + bytes([rng.randrange(256)]) * rng.randrange(1, 30)
    changed = bytearray(text)
    if changed:
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _change_list(rng: random.Random, node: Node) -> None:
    items = node[1]
    chance = rng.random()
    if chance < 0.3 and items:
        del items[rng.randrange(len(items))]
    elif chance < 0.6 and items:
        items.insert(rng.randrange(len(items) + 1), copy.deepcopy(rng.choice(items)))
    elif chance < 0.7:
        items.clear()
    elif chance < 0.8:
        rng.shuffle(items)
    elif chance < 0.9:
        node[3] = rng.choice([0, 1, 14, 15, 2**16, 2**31 - 1, 2**32 - 1])
    else:
        node[2] = rng.choice([1, 5, 6, 8, 12])


def _nodes(node: Node) -> Any:
    yield node
    if node[0] == "struct":
        for _, value in node[1]:
            yield from _nodes(value)
    elif node[0] == "list":
        for value in node[1]:
            yield from _nodes(value)


def _read(data: bytes, place: int, kind: int, *, in_list: bool) -> tuple[Node, int]:
    match kind:
        case 1 | 2:
            return (["byte", data[place]], place + 1) if in_list else (["boolean", kind == 1], place)
        case 3:
            return ["byte", data[place]], place + 1
        case 4 | 5 | 6:
            raw, place = _read_varint(data, place)
            return ["integer", _unfold(raw), kind], place
        case 7:
            return ["double", data[place : place + 8]], place + 8
        case 8:
            size, place = _read_varint(data, place)
            return ["text", data[place : place + size]], place + size
        case 9:
            head, place = data[place], place + 1
            count = head >> 4
            if count == 15:
                count, place = _read_varint(data, place)
            items = []
            for _ in range(count):
                item, place = _read(data, place, head & 15, in_list=True)
                items.append(item)
            return ["list", items, head & 15, None], place
        case 12:
            return read_struct(data, place)
    raise ValueError(kind)


def _write(node: Node) -> bytes:
    match node[0]:
        case "boolean":
            return b""
        case "byte":
            return bytes([node[1] & 255])
        case "integer":
            return _write_varint(_fold(node[1]))
        case "double":
            return bytes(node[1])
        case "text":
            return _write_varint(len(node[1])) + bytes(node[1])
        case "list":
            count = len(node[1]) if node[3] is None else node[3]
            head = bytes([count << 4 | node[2]]) if count < 15 else bytes([0xF0 | node[2]]) + _write_varint(count)
            return head + b"".join(map(_write, node[1]))
    return write_struct(node)


def _type(node: Node) -> int:
    if node[0] == "boolean":
        return 1 if node[1] else 2
    if node[0] == "integer":
        return int(node[2])
    return {"byte": 3, "double": 7, "text": 8, "list": 9, "struct": 12}[node[0]]


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place


def _write_varint(value: int) -> bytes:
    value &= 2**64 - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _fold(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def _unfold(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
