"""Checks that the records in a bundle are the ones that a paper pinned. It needs only Python 3.9 or later.

    python -I -S verify.py [DIR] [--ids] [--pin NAME] [--crc always|never]

It reads dataset.lock.json and dataset.lock.yaml in its own folder, and the data in DIR/data or DIR. README.txt defines
the digests. Of files in other formats than TFRecord, it checks only the sha256 of each file. With --crc never, the
checksums stored with each record are only checked in files that differ from the pinned ones: for the others, sha256
proves more. Exit code: 0 the records are as pinned, 5 they are not, 2 wrong usage, 1 stopped before the end.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LOCK, YAML = "dataset.lock.json", "dataset.lock.yaml"
TEXT, SHA256, SUMS = r"[^\x00-\x1f\x7f\ud800-\udfff]+", "sha256:[0-9a-f]{64}", "[0-9a-f]{64}-[0-9a-f]{64}"
FORMAT = "tfrecord|array_record|parquet|parquet_columns"
PIECE = 2**18  # bytes that are read at once
PRIME = 2**256 - 189


class File(NamedTuple):
    """A pinned file, and which records of its split it holds."""

    path: str  # below the data folder
    num_bytes: int
    sha256: str
    split: str
    start: int
    stop: int
    file_format: str


class Pin(NamedTuple):
    """A pinned list of records."""

    name: str
    title: str
    files: list[File]
    pieces: list[tuple[File, int, int]]  # in order: a file, its first record, the end (excluded)
    digests: Any

    def locate(self, place: int) -> tuple[File, int]:
        """The file of the pin's record number ``place``, and the record's index in it."""
        return [(file, at) for file, start, stop in self.pieces for at in range(start, stop)][place]


Faults = list[tuple[int, str]]  # of one file: the index of a record, or -1, and the problem


def main() -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Check that records are the ones that a paper pinned.")
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="an unpacked bundle, or its data folder")
    parser.add_argument("--ids", action="store_true", help="list the TFDS ids of the records, and check nothing")
    parser.add_argument("--pin", metavar="NAME", help="check only this pin")
    parser.add_argument(
        "--crc", choices=("always", "never"), default="always", help="whether to check the checksum of each record"
    )
    asked = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # stdout is a file here
    here = Path(__file__).resolve().parent
    roots = [folder for folder in ((asked.folder or here) / "data", asked.folder or here) if folder.is_dir()]
    if not roots:
        parser.error(f"there is no folder {asked.folder}")
    try:
        digest, all_pins = read_lock(here)
        pins = [pin for pin in all_pins if asked.pin in (None, pin.name)]
        if not pins:
            parser.error(f"no pin {asked.pin!r}; the pins are: {printable(', '.join(pin.name for pin in all_pins))}")
        if asked.ids:
            list_ids(pins)
            return 0
        print(f"{LOCK}: {digest}")
        return check(roots[0], pins, crcs=asked.crc == "always")
    except ValueError as error:
        print(printable(str(error)))
        return 5


def list_ids(pins: list[Pin]) -> None:
    """Print the TFDS id of each record, in order."""
    for pin in pins:
        for file, start, stop in pin.pieces:
            name = printable(Path(file.path).name)
            sys.stdout.writelines(f"{name}__{index}\n" for index in range(start, stop))


def check(root: Path, pins: list[Pin], *, crcs: bool) -> int:
    """Check each file of the pins once, and print a verdict for each pin. Returns the exit code."""
    code = 0
    found: dict[File, Faults] = {file: [] for pin in pins for file in pin.files}
    hashes = {file: check_file(root, file, crcs, faults) for file, faults in found.items()}
    for pin in pins:
        formats = sorted({file.file_format for file in pin.files} - {"tfrecord"})
        is_whole = all(len(hashes[file]) == 32 * (file.stop - file.start) for file in pin.files)
        differing = list(check_pin(root, pin, hashes)) if is_whole else []
        is_damaged = any(start <= at < stop for file, start, stop in pin.pieces for at, _ in found[file])
        faults = [text for file in pin.files for _, text in found[file]] + differing
        verdict = "as pinned"
        if faults if formats else is_damaged or differing or not is_whole:
            code, verdict = 5, f"NOT as pinned, faults: {len(faults)}"
        elif faults:
            verdict = f"as pinned; faults outside of the pinned records: {len(faults)}"
        if formats:
            extra = "array-record" if formats == ["array_record"] else "arrow"
            verdict += f", by the sha256 of each file; its records in {formats[0]} files can be checked with: "
            verdict += f"pip install 'shardbook[{extra}]' && registry pin verify {YAML}"
        print(printable("\n  ".join([f"{pin.name}: {pin.title}: {verdict}", *faults])))
    return code


def printable(text: str) -> str:
    """The text without control characters, which could steer a terminal: names are written by others."""
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)


# --- the pin file ---


def read_lock(folder: Path) -> tuple[str, list[Pin]]:
    """The digest of the pin file, after a check, and its pins."""
    try:
        content, yaml = json.loads((folder / LOCK).read_bytes()), (folder / YAML).read_bytes()
        sealed = {key: value for key, value in content.items() if key not in ("digest", "finder")}
        text = json.dumps(sealed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{LOCK}: cannot read the pin file: {error}") from error
    found = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    digest, pins = take(content, "", digest=SHA256, pins=list)
    if digest != found:
        raise ValueError(f"{LOCK}: the file was changed: expected the digest {digest}, found {found}")
    if line := find_difference(yaml, content):
        raise ValueError(f"{YAML}: line {line} differs from {LOCK}")
    return found, [read_pin(pin, f"pins[{place}].") for place, pin in enumerate(pins)]


def read_pin(value: Any, where: str) -> Pin:
    """Read and check one pin."""
    name, split, count, digests = take(value, where, name=TEXT, split=TEXT, num_examples=int, records=dict)
    config = {} if value.get("config") is None else {"config": TEXT}
    *folder, file_format = take(value, where, dataset=TEXT, **config, version=TEXT, file_format=FORMAT)
    take(digests, f"{where}records.", ordered=SHA256, unordered=SHA256, finder=SUMS)
    for key in ("first", "middle", "last") if count else ():
        take(digests.get(key), f"{where}records.{key}.", id=TEXT, sha256=SHA256)
    files, pieces = [], []
    for number, one in enumerate(*take(value, where, files=list)):
        kinds = {"name": TEXT, "num_bytes": int, "sha256": SHA256, "split": TEXT, "first_example": int}
        file, size, sha256, of_split, start, held = take(one, f"{where}files[{number}].", **kinds, num_examples=int)
        path = "/".join([*folder, file])
        files.append(File(path, size, sha256[7:], of_split, start, start + held, file_format))
    for number, one in enumerate(*take(value, where, ranges=list)):
        of_split, start, stop = take(one, f"{where}ranges[{number}].", split=TEXT, start=int, stop=int)
        for file in files:
            first, last = max(start, file.start), min(stop, file.stop)
            if file.split == of_split and first < last:
                pieces.append((file, first - file.start, last - file.start))
    if count != sum(stop - start for _, start, stop in pieces):
        raise ValueError(f"{LOCK}: {where}num_examples: the files do not hold the {count} pinned records")
    size = f"{count} record{'s' * (count != 1)}"
    return Pin(name, f"{'/'.join(folder[:-1])}:{folder[-1]} {split}, {size}", files, pieces, digests)


def take(value: Any, where: str, **kinds: Any) -> list[Any]:
    """Fields of a JSON object. Each must have the given type, or be a text that matches the given pattern."""
    for key, kind in kinds.items():
        found: Any = value.get(key) if isinstance(value, dict) else None
        fits = type(found) is kind if isinstance(kind, type) else type(found) is str and re.fullmatch(kind, found)
        if not fits or (kind is int and not 0 <= found < 2**63):
            raise ValueError(f"{LOCK}: {where}{key}: expected {kind.__name__ if isinstance(kind, type) else kind}")
    return [value[key] for key in kinds]


# --- files and records ---


def check_file(root: Path, file: File, crcs: bool, faults: Faults) -> bytes:
    """The sha256 of the records of a file, up to the first that cannot be read. Adds the problems to ``faults``."""
    path, hasher, hashes = root / file.path, hashlib.sha256(), b""
    try:
        if not path.is_file() or root.resolve() not in path.resolve().parents:
            raise ValueError(f"{file.path}: not found in {root}")
        with path.open("rb") as opened:
            for piece in iter(lambda: opened.read(PIECE), b""):
                hasher.update(piece)
            found = f"{opened.tell()} bytes, sha256 {hasher.hexdigest()}"
        if found != f"{file.num_bytes} bytes, sha256 {file.sha256}":
            faults.append((-1, f"{file.path}: expected {file.num_bytes} bytes, sha256 {file.sha256}; found {found}"))
        if file.file_format != "tfrecord":
            return b""
        hashes = b"".join(sha256 for _, sha256 in walk(root, file, faults, crcs or len(faults) > 0))
        if len(hashes) != 32 * (file.stop - file.start):
            raise ValueError(f"{file.path}: expected {file.stop - file.start} records, found {len(hashes) // 32}")
    except (ValueError, OSError) as error:
        faults.append((-1, str(error) if isinstance(error, ValueError) else f"{file.path}: cannot be read: {error}"))
    return hashes


def walk(root: Path, wanted: File, faults: Faults, crcs: bool) -> Iterator[tuple[str, bytes]]:
    """The place of each record, in words, and its sha256. With ``crcs``, adds wrong checksums to ``faults``."""
    index = offset = 0
    with (root / wanted.path).open("rb") as plain:
        head = plain.peek(12)
        is_gzip = head[:3] == b"\x1f\x8b\x08" and stored_crc(add_crc(ONES, head[:8])) != head[8:12]
        file: Any = gzip.GzipFile(fileobj=plain, mode="rb") if is_gzip else plain
        try:
            while True:
                place = f"{wanted.path}: record {index} at {'inflated ' * is_gzip}byte {offset}"
                head = file.read(12)
                if not head:
                    return
                if index == wanted.stop - wanted.start:  # a small gzip file may hold millions more
                    raise ValueError("the file has more records than the pin file says")
                head += b"".join(read_pieces(file, 12 - len(head)))
                if stored_crc(add_crc(ONES, head[:8])) != head[8:]:
                    raise ValueError("its length and the checksum of the length disagree")
                length, hasher, register = int.from_bytes(head[:8], "little"), hashlib.sha256(), ONES
                for piece in read_pieces(file, length):
                    hasher.update(piece)
                    register = add_crc(register, piece) if crcs else register
                found, expected = stored_crc(register).hex(), b"".join(read_pieces(file, 4)).hex()
                if crcs and found != expected:
                    text = f"{place}: checksum mismatch in {length} bytes: expected {expected}, found {found}"
                    faults.append((index, text))
                yield place, hasher.digest()
                index, offset = index + 1, offset + 16 + length
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{place}: {error}") from error


def read_pieces(file: Any, count: int) -> Iterator[bytes]:
    """The next ``count`` bytes of a file."""
    while count:
        piece = file.read(min(count, PIECE))
        if not piece:
            raise ValueError(f"the file ends {count} bytes too early")
        count -= len(piece)
        yield piece


def check_pin(root: Path, pin: Pin, hashes_of: dict[File, bytes]) -> Iterator[str]:
    """The problems of the records of a pin, from the sha256 of all records of its files."""
    joined = b"".join(hashes_of[file][32 * start : 32 * stop] for file, start, stop in pin.pieces)
    hashes = [joined[at : at + 32] for at in range(0, len(joined), 32)]
    checks = [  # field, found, expected
        ("ordered", f"sha256:{hashlib.sha256(joined).hexdigest()}", pin.digests["ordered"]),
        ("unordered", f"sha256:{hashlib.sha256(b''.join(sorted(hashes))).hexdigest()}", pin.digests["unordered"]),
    ]
    for key, place in (("first", 0), ("middle", len(hashes) // 2), ("last", len(hashes) - 1)) if hashes else ():
        file, index = pin.locate(place)
        found = f"{Path(file.path).name}__{index} sha256:{hashes[place].hex()}"
        checks.append((key, found, "{id} {sha256}".format_map(pin.digests[key])))
    for key, found, expected in checks:
        if found != expected:
            yield f"records.{key}: expected {expected}, found {found}"
    # If exactly one record was changed, the differences of two sums over all sha256 give its place and its old sha256.
    pinned_sum, pinned_weighted = (int(text, 16) for text in pin.digests["finder"].split("-"))
    numbers = [int.from_bytes(one, "big") for one in hashes]
    moved = (sum(numbers) - pinned_sum) % PRIME
    weighted = sum(weight * number for weight, number in enumerate(numbers, 1)) - pinned_weighted
    place = weighted * pow(moved, -1, PRIME) % PRIME - 1 if moved else -1
    if 0 <= place < len(hashes):
        file, index = pin.locate(place)
        where = [words for words, _ in walk(root, file, [], False)][index]
        before = (numbers[place] - moved) % PRIME
        yield f"{where}: sha256 mismatch: expected {before:064x}, found {hashes[place].hex()}"


# --- CRC-32C, the checksum of TFRecord; on long integers, because a loop over bytes takes minutes for a large file ---

ONES = 2**32 - 1
BYTES = list(range(256))  # the effect of 8 zero bits on the low byte of the register
for _ in range(8):
    BYTES = [value >> 1 ^ 0x82F63B78 if value & 1 else value >> 1 for value in BYTES]
FOLDS: dict[int, list[int]] = {}  # n: the terms of x**n modulo the polynomial; filled below


def add_crc(register: int, data: bytes) -> int:
    """The CRC register after at most ``PIECE`` bytes of data. It starts with ``ONES``."""
    value, bits = register ^ int.from_bytes(data, "little"), 8 * len(data)
    while bits >= 1024:  # the first n bits, times x**n modulo the polynomial, are added to the bits that follow
        n = 1 << bits.bit_length() - 2
        value, first, bits = value >> n << 32, value & (1 << n) - 1, bits - n + 32
        for place in FOLDS[n]:
            value ^= first << place
    for _ in range(bits // 8):
        value = value >> 8 ^ BYTES[value & 0xFF]
    return value


for power in range(9, 21):  # each is computed from those before it
    FOLDS[1 << power] = [bit + 1 for bit in range(32) if add_crc(1 << 31, bytes(1 << power - 3)) >> bit & 1]


def stored_crc(register: int) -> bytes:
    """The checksum in the form that TFRecord stores."""
    crc = register ^ ONES
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & ONES).to_bytes(4, "little")


# --- YAML ---

# Only the form that shardbook writes is accepted, with any comments and line ends: YAML readers could disagree about
# the values of another form.
# KEY: a text in quotes, or one without ": " in it, then ":" and the rest of the line.
KEY = re.compile(r'("(?:[^"\\]|\\.)*"|[^"].*?):(?: (.*))?')
WORD = re.compile(r"null|true|false|\{\}|\[\]|-?[0-9]+(?:\.[0-9]+(?:[eE][-+][0-9]+)?)?")
PLAIN = re.compile(r"[A-Za-z0-9_/.(].*")
NOT_PLAIN = re.compile(r": | #|[: ]\Z")
ESCAPE = re.compile(r"\\(?:U([0-9a-fA-F]{8})|.)")
NO_TEXT = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def find_difference(data: bytes, value: Any) -> int:
    """The first line, counted from 1, in which the YAML text ``data`` differs from ``value``; 0 if they are equal."""
    lines: list[str] = []  # in reverse order: each line that is read is removed from the end
    count = 0
    try:
        text = data.decode("utf-8")
        if odd := NO_TEXT.search(text):
            return text.count("\n", 0, odd.start()) + 1
        lines = re.split("\r\n?|\n", text)[::-1]
        count = len(lines)
        compare(value, None, lines, 0)
        while lines:
            if lines.pop().lstrip(" ")[:1] not in ("", "#"):
                raise ValueError
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return max(count - len(lines), 1)
    return 0


def compare(value: Any, rest: str | None, lines: list[str], pad: int) -> None:
    """Read one value from the ``rest`` of a line, or the lines below in column ``pad``. ValueError if it differs."""
    is_same = True
    if rest in ("|", "|-") and isinstance(value, str):
        block = [lines.pop() for _ in range(value.count("\n") + (rest == "|-"))]
        text = "\n".join(line[pad:] for line in block) + "\n" * (rest == "|")
        is_same = text == value and not "".join(line[:pad] for line in block).strip(" ")
    elif rest is None and isinstance(value, dict) and value:
        left = dict(value)
        while left:
            found = KEY.fullmatch(next_line(lines, pad))
            compare(left.pop(scalar(found[1])), found[2], lines, pad + 2)  # type: ignore[index] # caught above
    elif rest is None and isinstance(value, list) and value:
        for one in value:
            line = next_line(lines, pad)
            if line[:2] not in ("- ", "-"):
                raise ValueError
            rest = line[2:] or None
            if isinstance(one, dict) and one:  # its first key is on the line of the dash
                lines.append(" " * (pad + 2) + (rest or ""))
                rest = None
            compare(one, rest, lines, pad + 2)
    else:
        is_same = rest is not None and json.dumps(scalar(rest)) == json.dumps(value)
    if not is_same:
        raise ValueError


def next_line(lines: list[str], pad: int) -> str:
    """The next line that is not empty and not a comment, from column ``pad`` on."""
    while lines[-1].lstrip(" ")[:1] in ("", "#"):
        lines.pop()
    line = lines.pop()
    if line[:pad].strip(" ") or line[pad : pad + 1] == " ":
        raise ValueError
    if line[pad:].startswith("? "):  # a long key: its value is on the next line
        return line[pad + 2 :] + next_line(lines, pad)
    return line[pad:]


def scalar(text: str) -> Any:
    """A value on one line: a text with or without quotes, a number, or a word such as null."""
    if text[:1] == '"':  # JSON knows all escapes except those of eight digits
        return json.loads(ESCAPE.sub(lambda one: chr(int(one[1], 16)) if one[1] else one[0], text))
    if WORD.fullmatch(text):
        return json.loads(text)
    if not PLAIN.fullmatch(text) or NOT_PLAIN.search(text):
        raise ValueError
    return text


if __name__ == "__main__":
    try:
        exit_code = main()
        sys.stdout.flush()
    except (KeyboardInterrupt, OSError) as reason:
        sys.stdout, exit_code = None, 1  # write nothing more, not even at exit
        if not isinstance(reason, BrokenPipeError):  # --ids | head
            print(f"stopped: {str(reason) or 'interrupted'}", file=sys.stderr)
    sys.exit(exit_code)
