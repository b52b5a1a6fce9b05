"""Write the code that protoc makes of registry/wire/example.proto, or check that the committed files are what it makes.

python .ci/generated_code.py [--write]      (the tools are pinned in the extra `check`: other versions, other bytes)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = "registry/wire/example.proto"
GENERATED = ("registry/wire/example_pb2.py", "registry/wire/example_pb2.pyi")


def generate(folder: Path) -> None:
    """Run protoc and its mypy plugin; both write below ``folder``."""
    plugin = shutil.which("protoc-gen-mypy", path=str(Path(sys.executable).parent)) or shutil.which("protoc-gen-mypy")
    if plugin is None:
        sys.exit("protoc-gen-mypy is not installed. Install the tools with: pip install -e '.[check]'")
    subprocess.run(  # noqa: S603 - the tools of this environment
        [
            sys.executable,
            *("-m", "grpc_tools.protoc"),
            f"--proto_path={ROOT}",
            f"--python_out={folder}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--mypy_out=quiet:{folder}",
            PROTO,
        ],
        check=True,
    )


def main() -> int:
    """Write or check; the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {name: (Path(folder) / name).read_bytes() for name in GENERATED}
    if sys.argv[1:] == ["--write"]:
        for name, content in fresh.items():
            (ROOT / name).write_bytes(content)
        return 0
    stale = [name for name, content in fresh.items() if (ROOT / name).read_bytes() != content]
    if stale:
        sys.stderr.write(f"not what protoc makes of {PROTO}: {', '.join(stale)}\n")
        sys.stderr.write("Run: python .ci/generated_code.py --write\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
