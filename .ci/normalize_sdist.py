"""Rewrites an sdist so that equal trees give equal bytes: ``normalize_sdist.py FILE.tar.gz``.

setuptools honours ``SOURCE_DATE_EPOCH`` in wheels, but an sdist keeps the order, times and owners of the disk and the
time of the compression. ``.ci/release`` calls this after each build.
"""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def normalize(path: Path, *, epoch: int) -> None:
    """Sort the members of the tar file at ``path``; give each the time ``epoch`` in seconds, owner 0 and no names."""
    packed = io.BytesIO()
    with tarfile.open(path) as source, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=epoch) as file:
        file.write(packed.getvalue())


if __name__ == "__main__":
    normalize(Path(sys.argv[1]), epoch=int(os.environ["SOURCE_DATE_EPOCH"]))
