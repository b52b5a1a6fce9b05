"""Breaks twenty guarantees on purpose, one at a time, and reports whether the README's level of the tests notices each.

    .venv/bin/python .ci/breaks.py [NAME...]

Each break replaces one line in a copy of the tree; the tests named beside it then run at the everyday level, and one of
them has to fail. Exit code 1: a break was not noticed, or its line has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Break:
    """A guarantee, the line that gives it, a line that breaks it, and the tests that have to notice."""

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


BREAKS = {
    "halves of a percent are rounded up": Break(
        "registry/splits/documented.py",
        "return (2 * numerator + denominator) // (2 * denominator)",
        "return (2 * numerator + denominator - 1) // (2 * denominator)",
        ("tests/property/test_splits_even.py", "tests/conformance/splits"),
    ),
    "a negative percent is replaced by its complement": Break(
        "registry/splits/documented.py",
        "return 100 + percent if percent < 0 else percent",
        "return 99 + percent if percent < 0 else percent",
        ("tests/property/test_splits_resolve.py", "tests/conformance/splits"),
    ),
    "pct1_dropremainder drops the remainder": Break(
        "registry/splits/documented.py",
        "return int(percent * (num_examples // 100))",
        "return int(percent * num_examples // 100)",
        ("tests/property/test_splits_resolve.py", "tests/conformance/splits"),
    ),
    "TFDS's rule rounds halves to even": Break(
        "registry/splits/tfds4.py",
        "return round(number * extent.num_examples / 100.0)",
        "return int(number * extent.num_examples / 100.0 + 0.5)",
        ("tests/conformance/splits",),
    ),
    "the seeded shuffle is tf.data's": Break(
        "registry/order/shuffles.py",
        "key = [(word + step) & 0xFFFFFFFF",
        "key = [(word + step + 1) & 0xFFFFFFFF",
        ("tests/conformance/order",),
    ),
    "processes share every record once": Break(
        "registry/reading/state.py",
        "start = small * index + min(index, extra)",
        "start = small * index",
        ("tests/property/test_resume_laws.py", "tests/property/test_reading_laws.py"),
    ),
    "a shard with another sha256 is a fault": Break(
        "registry/publishing/verify.py",
        "elif shard.sha256 != promised.sha256:",
        "elif shard.sha256[:0] != promised.sha256[:0]:",
        (
            "tests/end_to_end/test_build_dataset.py",
            "tests/end_to_end/test_wrong_files.py",
            "tests/cli/test_cli_commands.py",
        ),
    ),
    "the length of a record is checked": Break(
        "registry/tfrecord/framing.py",
        "return bool(masked_crc32c(start[:8]) == length_crc)",
        "return bool(masked_crc32c(start[:8]) | length_crc)",
        ("tests/unit/test_tfrecord_files.py", "tests/unit/test_tfrecord_forward.py", "tests/unit/test_shard_faults.py"),
    ),
    "the same example has the same bytes": Break(
        "registry/wire/codec.py",
        "    entries.sort()\n",
        "    pass\n",
        ("tests/unit/test_wire_codec.py", "tests/property/test_wire_laws.py"),
    ),
    "records are sorted by the hash of their key": Break(
        "registry/building/sorter.py",
        "    order = order_words(high)",
        "    order = np.arange(high.size)",
        (
            "tests/property/test_building_laws.py",
            "tests/unit/test_building_sorter.py",
            "tests/end_to_end/test_build_dataset.py",
        ),
    ),
    "a yanked version answers no wildcard": Break(
        "registry/model/dataset_version.py",
        "WITHDRAWN: Final = frozenset({VersionState.YANKED, VersionState.DROPPED})",
        "WITHDRAWN: Final = frozenset({VersionState.DROPPED})",
        ("tests/unit/test_model_choice.py", "tests/catalog/test_catalog_lifecycle.py"),
    ),
    "a removed feature needs a MAJOR number": Break(
        "registry/publishing/changes.py",
        "return Change(level=ChangeLevel.MAJOR, kind=kind, where=where, text=text, brief=brief)",
        "return Change(level=ChangeLevel.MINOR, kind=kind, where=where, text=text, brief=brief)",
        (
            "tests/unit/test_version_changes.py",
            "tests/property/test_proof_laws.py",
            "tests/end_to_end/test_version_proof.py",
        ),
    ),
    "writers of SQLite wait for each other": Break(
        "registry/catalog/session.py",
        '"BEGIN IMMEDIATE" if is_writing(connection) else "BEGIN"',
        '"BEGIN" if is_writing(connection) else "BEGIN"',
        ("tests/catalog/test_catalog_races.py", "tests/catalog/test_catalog_crowd.py"),
    ),
    "a broken unique constraint is decided, not raised": Break(
        "registry/catalog/faults.py",
        "    if isinstance(error, sa.exc.IntegrityError):",
        "    if isinstance(error, sa.exc.DataError):",
        ("tests/catalog/test_catalog_between.py",),
    ),
    "an object is created once": Break(
        "registry/storage/object_client.py",
        'mode="create", attributes={_WRITER: mark}',
        'mode="overwrite", attributes={_WRITER: mark}',
        ("tests/storage", "tests/end_to_end/test_publish_races_on_objects.py"),
    ),
    "neighbouring ranges are one request": Break(
        "registry/storage/remote.py",
        "start <= spans[-1][1] + _NEAR_BYTES",
        "start < spans[-1][1] - _NEAR_BYTES",
        ("registry/storage/remote.py", "tests/storage/test_store_ranges.py", "tests/storage/test_shard_requests.py"),
    ),
    "a read resumes with the next record": Break(
        "registry/reading/state.py",
        "begin, last = max(start - passed, 0), min(stop - passed, end - first)",
        "begin, last = max(start - passed, 0), min(stop - passed, end)",
        ("tests/property/test_resume_laws.py", "tests/end_to_end/test_resume_after_kill.py"),
    ),
    "a signature names the file that it signs": Break(
        "registry/pins/signature.py",
        "if sha256 != signed_sha256:",
        "if sha256[:0] != signed_sha256[:0]:",
        ("tests/unit/test_pin_signature.py",),
    ),
    "a pin is verified by its files' digests": Break(
        "registry/pins/places.py",
        "if hasher.hexdigest() != pinned_file.sha256:",
        "if len(hasher.hexdigest()) != len(pinned_file.sha256):",
        ("tests/end_to_end/test_pin_verifiers.py", "tests/end_to_end/test_pin_restore.py"),
    ),
    "files are on disk before they get their name": Break(
        "registry/storage/local.py",
        "                    os.fsync(raw.fileno())\n",
        "                    raw.fileno()\n",
        ("tests/storage",),
    ),
}


_OPTIONS = ("--no-header", "--hypothesis-profile=unshrunk", "-p", "no:cacheprovider")


def is_noticed(one: Break) -> tuple[bool, str]:
    """Whether a test fails in a copy of the tree with this break, and the last line that pytest prints."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        # Not "site" of the docs: that is also a folder of registry/catalog.
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache"))
        path = copy / one.file
        text = path.read_text()
        if text.count(one.right) != 1:
            return False, f"the line is there {text.count(one.right)} times in {one.file}"
        path.write_text(text.replace(one.right, one.wrong))
        done = subprocess.run(  # noqa: S603 (our own tests)
            [sys.executable, "-m", "pytest", "-q", "-x", *_OPTIONS, *one.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "CI": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))] or [""]
        return done.returncode == 1, lines[0][:160]


def main() -> int:
    """Try the breaks that are named, or all of them."""
    missed = 0
    for name in sys.argv[1:] or BREAKS:
        began = time.monotonic()
        noticed, line = is_noticed(BREAKS[name])
        missed += not noticed
        print(f"{'noticed' if noticed else 'MISSED '} {time.monotonic() - began:5.0f} s  {name}: {line}", flush=True)  # noqa: T201 (its output)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
