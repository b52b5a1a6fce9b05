"""Are these the records that the paper used? A check that needs Python 3.9 or later and nothing else.

    python -I -S verify.py [DIR] [--ids] [--pin NAME] [--crc always|never]
It reads dataset.lock.json and .yaml beside itself, and the data from DIR/data or DIR. README.txt says what the digests
are. With --crc never the checksums stored with each record are looked at only in files that are not as pinned: sha256
proves more. Exit code: 0 the records are as pinned, 5 they are not, 2 wrong usage, 1 stopped on the way.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import runpy
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LOCK, YAML, READER = "dataset.lock.json", "dataset.lock.yaml", "verify_yaml.py"
PIECE, PRIME, ONES = 2**18, 2**256 - 189, 2**32 - 1
TEXT, SHA256, SUMS = r"[^\x00-\x1f\x7f\ud800-\udfff]+", "sha256:[0-9a-f]{64}", "[0-9a-f]{64}-[0-9a-f]{64}"

BYTES, FOLDS = list(range(256)), {}  # of CRC32C: what 8 zero bits make of a byte; of FOLDS see below
for _ in range(8):
    BYTES = [value >> 1 ^ 0x82F63B78 if value & 1 else value >> 1 for value in BYTES]

File = NamedTuple("File", [("path", str), ("size", int), ("sha", str), ("split", str), ("start", int), ("stop", int)])
Piece = tuple[File, int, int]  # records of a file, from the first up to, not with, the last
Faults = list[tuple[int, str]]  # of a file: the record of each, or -1, and what it is
# A slice: its files, and what of a split each holds; its records, in order; digests.
Pin = NamedTuple("Pin", [("name", str), ("title", str), ("files", list[File]), ("pieces", list[Piece]), ("sums", Any)])


def locate(pin: Pin, place: int) -> tuple[File, int]:
    """The file of a record of a slice, and which of its records that is."""
    return [(file, at) for file, start, stop in pin.pieces for at in range(start, stop)][place]


def add_crc(crc: int, data: bytes) -> int:
    """The CRC32C register after ``data``, of ``PIECE`` bytes at most; before the first data it is ``ONES``."""
    value, bits = crc ^ int.from_bytes(data, "little"), 8 * len(data)
    while bits >= 1024:  # the first n bits, times x**n modulo the polynomial, are added to what follows them
        n = 1 << bits.bit_length() - 2
        value, first, bits = value >> n << 32, value & (1 << n) - 1, bits - n + 32
        for place in FOLDS[n]:
            value ^= first << place
    for _ in range(bits // 8):
        value = value >> 8 ^ BYTES[value & 0xFF]
    return value


for power in range(9, 21):  # the terms of x**n for n = 2**power, each found by those before it
    FOLDS[1 << power] = [bit + 1 for bit in range(32) if add_crc(1 << 31, bytes(1 << power - 3)) >> bit & 1]


def stored(register: int) -> bytes:
    """A checksum as TFRecord stores it."""
    crc = register ^ ONES
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & ONES).to_bytes(4, "little")


def read_pieces(file: Any, count: int) -> Iterator[bytes]:
    """The next ``count`` bytes of a file."""
    while count:
        piece = file.read(min(count, PIECE))
        if not piece:
            raise ValueError(f"the file ends {count} bytes before it should")
        count -= len(piece)
        yield piece


def walk(root: Path, wanted: File, faults: Faults, crcs: bool) -> Iterator[tuple[str, bytes]]:
    """The place of each record, in words, and its sha256; wrong checksums, if looked at, go to ``faults``."""
    index = offset = 0
    with (root / wanted.path).open("rb") as plain:
        head = plain.peek(12)
        packed = head[:3] == b"\x1f\x8b\x08" and stored(add_crc(ONES, head[:8])) != head[8:12]
        file: Any = gzip.GzipFile(fileobj=plain, mode="rb") if packed else plain
        try:
            while True:
                place = f"{wanted.path}: record {index} at {'inflated ' * packed}byte {offset}"
                head = file.read(12)
                if not head:
                    return
                if index == wanted.stop - wanted.start:  # a small gzip file may hold millions more
                    raise ValueError("there should be no such record")
                head += b"".join(read_pieces(file, 12 - len(head)))
                if stored(add_crc(ONES, head[:8])) != head[8:]:
                    raise ValueError("its length and the checksum of the length disagree")
                length, hasher, register = int.from_bytes(head[:8], "little"), hashlib.sha256(), ONES
                for piece in read_pieces(file, length):
                    hasher.update(piece)
                    register = add_crc(register, piece) if crcs else register
                crc, kept = stored(register).hex(), b"".join(read_pieces(file, 4)).hex()
                if crcs and crc != kept:
                    faults.append((index, f"{place}: the checksum of its {length} bytes is {crc}, expected {kept}"))
                yield place, hasher.digest()
                index, offset = index + 1, offset + 16 + length
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{place}: {error}") from error


def check_file(root: Path, file: File, crcs: bool, faults: Faults) -> bytes:
    """The sha256 of all records of a file, as far as it can be read; what is wrong with it is added to ``faults``."""
    path, hasher, records = root / file.path, hashlib.sha256(), b""
    try:
        if not path.is_file() or root.resolve() not in path.resolve().parents:
            raise ValueError(f"{file.path}: no such file in {root}")
        with path.open("rb") as opened:
            for piece in iter(lambda: opened.read(PIECE), b""):
                hasher.update(piece)
            found = f"{opened.tell()} bytes, sha256 {hasher.hexdigest()}"
        if found != f"{file.size} bytes, sha256 {file.sha}":
            faults.append((-1, f"{file.path}: {found}, expected {file.size}, {file.sha}"))
        records = b"".join(digest for _, digest in walk(root, file, faults, crcs or len(faults) > 0))
        if len(records) != 32 * (file.stop - file.start):
            raise ValueError(f"{file.path}: it holds {len(records) // 32} records, expected {file.stop - file.start}")
    except (ValueError, OSError) as error:
        faults.append((-1, str(error) if isinstance(error, ValueError) else f"{file.path}: it cannot be read: {error}"))
    return records


def check_pin(root: Path, pin: Pin, records: dict[File, bytes]) -> Iterator[str]:
    """What is wrong with the records of a pin; given are the sha256 of all records of its files."""
    rows = b"".join(records[file][32 * start : 32 * stop] for file, start, stop in pin.pieces)
    hashes = [rows[at : at + 32] for at in range(0, len(rows), 32)]
    lists = {"ordered": rows, "unordered": b"".join(sorted(hashes))}
    told = [(key, f"sha256:{hashlib.sha256(one).hexdigest()}", pin.sums[key]) for key, one in lists.items()]
    for key, place in (("first", 0), ("middle", len(hashes) // 2), ("last", len(hashes) - 1)) if hashes else ():
        (file, index), expected = locate(pin, place), "{id} {sha256}".format_map(pin.sums[key])
        told.append((key, f"{Path(file.path).name}__{index} sha256:{hashes[place].hex()}", expected))
    yield from (f"records.{key}: it is {found}, expected {pinned}" for key, found, pinned in told if found != pinned)
    # Where one record was changed, how far two sums over all sha256 moved tells its place, and what it was.
    kept = [int(text, 16) for text in pin.sums["finder"].split("-")]
    numbers = [int.from_bytes(one, "big") for one in hashes]
    moved, weighted = (sum(numbers) - kept[0]) % PRIME, sum(p * n for p, n in enumerate(numbers, 1)) - kept[1]
    place = weighted * pow(moved, -1, PRIME) % PRIME - 1 if moved else -1
    if 0 <= place < len(hashes):
        file, index = locate(pin, place)
        where, was = [told for told, _ in walk(root, file, [], False)][index], (numbers[place] - moved) % PRIME
        yield f"{where}: its sha256 is {hashes[place].hex()}, expected {was:064x}"


def shown(text: str) -> str:
    """A text without what steers a terminal: names come from others."""
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)


def take(value: Any, where: str, **kinds: Any) -> list[Any]:
    """Fields of a JSON object, each if it is of its type, or a text of its form."""
    for key, kind in kinds.items():
        found: Any = value.get(key) if isinstance(value, dict) else None
        fits = type(found) is kind if isinstance(kind, type) else type(found) is str and re.fullmatch(kind, found)
        if not fits or (kind is int and not 0 <= found < 2**63):
            raise ValueError(f"{LOCK}: {where}{key}: expected {kind.__name__ if isinstance(kind, type) else kind}")
    return [value[key] for key in kinds]


def read_pin(value: Any, where: str) -> Pin:
    """A pin, with everything checked that is used of it."""
    name, split, count, digests = take(value, where, name=TEXT, split=TEXT, num_examples=int, records=dict)
    folder = take(value, where, dataset=TEXT, **({} if value.get("config") is None else {"config": TEXT}), version=TEXT)
    take(digests, f"{where}records.", ordered=SHA256, unordered=SHA256, finder=SUMS)
    for key in ("first", "middle", "last") if count else ():
        take(digests.get(key), f"{where}records.{key}.", id=TEXT, sha256=SHA256)
    files, pieces = [], []
    for number, one in enumerate(*take(value, where, files=list)):
        kinds = {"name": TEXT, "num_bytes": int, "sha256": SHA256, "split": TEXT, "first_example": int}
        file, size, sha256, of_split, start, held = take(one, f"{where}files[{number}].", **kinds, num_examples=int)
        files.append(File("/".join([*folder, file]), size, sha256[7:], of_split, start, start + held))
    for number, one in enumerate(*take(value, where, ranges=list)):
        of_split, start, stop = take(one, f"{where}ranges[{number}].", split=TEXT, start=int, stop=int)
        for file in files:
            first, last = max(start, file.start), min(stop, file.stop)
            if file.split == of_split and first < last:
                pieces.append((file, first - file.start, last - file.start))
    if count != sum(stop - start for _, start, stop in pieces):
        raise ValueError(f"{LOCK}: {where}num_examples: the files do not hold the {count} pinned records")
    return Pin(name, f"{'/'.join(folder[:-1])}:{folder[-1]} {split}, {count} records", files, pieces, digests)


def read_lock(folder: Path) -> tuple[str, list[Pin]]:
    """The digest of the pin file, which is checked, and its pins."""
    try:
        content, yaml = json.loads((folder / LOCK).read_bytes()), (folder / YAML).read_bytes()
        told = {key: value for key, value in content.items() if key not in ("digest", "finder")}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{LOCK}: no pin file can be read: {error}") from error
    found = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    digest, pins = take(content, "", digest=SHA256, pins=list)
    if digest != found:
        raise ValueError(f"{LOCK}: it was changed: the digest of its content is {found}, expected {digest}")
    if line := runpy.run_path(str(folder / READER))["find_difference"](yaml, content):
        raise ValueError(f"{YAML}: line {line} is not what {LOCK} says")
    return found, [read_pin(pin, f"pins[{place}].") for place, pin in enumerate(pins)]


def main() -> int:
    """Check, or list, what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(description="Check that data is what a paper pinned.")
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path, help="an unpacked bundle, or its data folder")
    parser.add_argument("--ids", action="store_true", help="list the TFDS ids of the records instead")
    parser.add_argument("--pin", metavar="NAME", help="this pin only")
    parser.add_argument("--crc", choices=("always", "never"), default="always", help="checksums of records")
    asked, here, code = parser.parse_args(), Path(__file__).resolve().parent, 0
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # it is a file here
    roots = [folder for folder in ((asked.folder or here) / "data", asked.folder or here) if folder.is_dir()]
    if not roots:
        parser.error(f"there is no folder {asked.folder}")
    try:
        digest, all_pins = read_lock(here)
        pins = [pin for pin in all_pins if asked.pin in (None, pin.name)]
        if not pins:
            parser.error(f"no pin {asked.pin!r}; there are: {shown(', '.join(pin.name for pin in all_pins))}")
        if asked.ids:
            pieces = ((shown(Path(file.path).name), start, stop) for pin in pins for file, start, stop in pin.pieces)
            sys.stdout.writelines(f"{name}__{index}\n" for name, start, stop in pieces for index in range(start, stop))
            return 0
        print(f"{LOCK}: {digest}")
        told: dict[File, Faults] = {file: [] for pin in pins for file in pin.files}
        records = {file: check_file(roots[0], file, asked.crc == "always", faults) for file, faults in told.items()}
        for pin in pins:
            is_whole = all(len(records[file]) == 32 * (file.stop - file.start) for file in pin.files)
            differ = [*check_pin(roots[0], pin, records)] if is_whole else []
            is_damaged = any(start <= at < stop for file, start, stop in pin.pieces for at, _ in told[file])
            code = 5 if (is_wrong := is_damaged or not is_whole or bool(differ)) else code
            faults = [text for file in pin.files for _, text in told[file]] + differ
            verdict = "NOT as pinned, faults" if is_wrong else "as pinned; faults in bytes that are not pinned"
            verdict = f"{verdict}: {len(faults)}" if faults else "as pinned"
            print(shown("\n  ".join([f"{pin.name}: {pin.title}: {verdict}", *faults])))
    except ValueError as error:
        print(shown(str(error)))
        code = 5
    return code


if __name__ == "__main__":
    try:
        exit_code = main()
        sys.stdout.flush()
    except (KeyboardInterrupt, OSError) as reason:
        sys.stdout, exit_code = None, 1  # nothing more is to be written, also not at the end
        if not isinstance(reason, BrokenPipeError):  # --ids | head
            print(f"stopped: {str(reason) or 'interrupted'}", file=sys.stderr)
    sys.exit(exit_code)
