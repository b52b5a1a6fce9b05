"""Measures the export of a raster to patches and the assembly of patches, with peak memory, next to rasterio.

    python benchmarks/earth_engine.py [--size 20000] [--patch 256] [--kernel 128] [--rounds 1]

A synthetic GeoTIFF of one band, uint8, size x size, tiled and deflated, is exported and assembled again. Each way
runs in its own process; the table shows its peak memory. MB are of the raster's pixels, one byte each. "rasterio read"
reads it block by block, "rasterio write" reads and writes it so, with as many threads: exports compare with the one,
assemblies with the other. Wall clock without imports, the fastest round.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np

from registry.engines import num_cpus

_BLOCK: Final = 256
_PLACE: Final = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_100_000.0)

_WAYS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("rasterio read", "read", {}),
    ("rasterio write, deflate", "write", {"compress": "deflate"}),
    ("rasterio write, plain", "write", {"compress": "none"}),
    ("rasterio write, float32", "write", {"compress": "deflate", "dtype": "float32"}),
    ("export native, plain", "export", {"encoding": "native", "compressed": False}),
    ("export native, gzip", "export", {"encoding": "native", "compressed": True}),
    ("export float, plain", "export", {"encoding": "float", "compressed": False}),
    ("export native, margin", "export", {"encoding": "native", "compressed": False, "kernel": True}),
    ("assemble native, plain", "assemble", {"of": "export native, plain", "compress": "deflate"}),
    ("assemble, plain GeoTIFF", "assemble", {"of": "export native, plain", "compress": "none"}),
    ("assemble native, gzip", "assemble", {"of": "export native, gzip", "compress": "deflate"}),
    ("assemble float to uint8", "assemble", {"of": "export float, plain", "compress": "deflate", "dtypes": "uint8"}),
    ("assemble float", "assemble", {"of": "export float, plain", "compress": "deflate"}),
    ("assemble native, margin", "assemble", {"of": "export native, margin", "compress": "deflate"}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=20_000, help="side of the raster in pixels")
    parser.add_argument("--patch", type=int, default=256)
    parser.add_argument("--kernel", type=int, default=128, help="of the export with a margin")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    root = Path(tempfile.mkdtemp(prefix="bench-earth-engine-"))
    try:
        show(root, options)
    finally:
        shutil.rmtree(root)


def show(root: Path, options: argparse.Namespace) -> None:
    """Print a line for each way."""
    source = root / "source.tif"
    make(source, options.size)
    megabytes = options.size**2 / 1e6
    print(f"{options.size:,} x {options.size:,} uint8, {megabytes:,.0f} MB of pixels, {_stored(source):,.0f} MB stored")
    print(f"{'':24} {'seconds':>8} {'MB/s':>7} {'beside rasterio':>16} {'peak MB':>8} {'stored MB':>10}")
    measured: dict[str, float] = {}
    for name, action, settings in _WAYS:
        folder = root / name
        task = {"action": action, "source": str(source), "target": str(folder), "patch": options.patch}
        task |= {"settings": _for(settings, root, options.kernel)}
        results = [run(task) for _ in range(options.rounds)]
        seconds, peak = min(one["seconds"] for one in results), max(one["peak"] for one in results)
        measured[name] = seconds
        base = measured["rasterio read" if action in ("read", "export") else _write_of(settings)]
        ratio = "" if action in ("read", "write") else f"{seconds / base:.2f} x"
        stored = _stored(folder)
        print(f"{name:24} {seconds:8.2f} {megabytes / seconds:7.0f} {ratio:>16} {peak / 1e6:8.0f} {stored:10,.0f}")


def run(task: dict[str, Any]) -> dict[str, float]:
    """Do one task in a process of its own: its seconds, and the most memory that it had."""
    shutil.rmtree(task["target"], ignore_errors=True)
    command = [sys.executable, __file__, "--child", json.dumps(task)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def child(task: dict[str, Any]) -> None:
    """What runs in the process of its own."""
    actions: dict[str, Callable[..., None]] = {"read": _read, "write": _write, "export": _export, "assemble": _assemble}
    import rasterio  # noqa: F401 - loaded before the clock starts, as what is measured is

    import registry.builders.earth_engine.assembling.assemble
    import registry.builders.earth_engine.exporting.image  # noqa: F401

    Path(task["target"]).mkdir()
    start = time.perf_counter()
    actions[task["action"]](Path(task["source"]), Path(task["target"]), task["patch"], **task["settings"])
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": peak_memory()}))


def peak_memory() -> int:
    """Most bytes that this process had in memory; on Linux without what its parent had when it started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def make(path: Path, side: int) -> None:
    """A raster whose pixels are smooth, with noise on top: half of its size when it is deflated."""
    import rasterio

    random = np.random.default_rng(0)
    columns = np.sin(np.arange(side) / 97)[None]
    with rasterio.open(path, "w", **_profile(side, "deflate")) as file:
        for start in range(0, side, _BLOCK):
            rows = np.sin(np.arange(start, min(start + _BLOCK, side)) / 61)[:, None]
            noise = random.integers(0, 12, (len(rows), side))
            file.write(
                (100 + 60 * rows * columns + noise).astype(np.uint8), 1, window=((start, start + len(rows)), (0, side))
            )


def _profile(side: int, compress: str) -> dict[str, Any]:
    import rasterio

    profile: dict[str, Any] = {"driver": "GTiff", "width": side, "height": side, "count": 1, "dtype": "uint8"}
    profile |= {"crs": "EPSG:32610", "transform": rasterio.Affine(*_PLACE)}
    profile |= {"tiled": True, "blockxsize": _BLOCK, "blockysize": _BLOCK, "BIGTIFF": "IF_SAFER"}
    return profile | ({} if compress == "none" else {"compress": compress})


def _read(source: Path, _target: Path, _patch: int) -> None:
    import rasterio

    with rasterio.Env(GDAL_CACHEMAX=2**26), rasterio.open(source) as file:
        for _, window in file.block_windows(1):
            file.read(1, window=window)


def _write(source: Path, target: Path, _patch: int, *, compress: str, dtype: str = "uint8") -> None:
    import rasterio

    with rasterio.Env(GDAL_CACHEMAX=2**26), rasterio.open(source) as file:
        profile = _profile(file.width, compress) | {"dtype": dtype}
        if compress != "none":
            profile |= {"num_threads": min(4, num_cpus()), "predictor": 3 if dtype == "float32" else 1}
        with rasterio.open(target / "out.tif", "w", **profile) as out:
            for _, window in file.block_windows(1):
                out.write(file.read(1, window=window).astype(dtype, copy=False), 1, window=window)


def _export(source: Path, target: Path, patch: int, *, kernel: int = 1, **options: Any) -> None:
    from registry.builders.earth_engine.exporting.image import export_image

    export_image(source, target, "area", patch_dimensions=patch, kernel_size=kernel, **options)


def _assemble(_source: Path, target: Path, _patch: int, *, of: str, compress: str, dtypes: str | None = None) -> None:
    from registry.builders.earth_engine.assembling.assemble import assemble

    assemble(of, output=target / "out.tif", compress=compress, dtypes=dtypes)


def _for(settings: dict[str, Any], root: Path, kernel: int) -> dict[str, Any]:
    """The settings of a way, with the folder that it reads and the kernel that was asked for."""
    made = dict(settings)
    if "of" in made:
        made["of"] = str(root / made["of"])
    if "kernel" in made:
        made["kernel"] = kernel
    return made


def _write_of(settings: dict[str, Any]) -> str:
    if settings.get("compress") == "none":
        return "rasterio write, plain"
    is_float = "float" in settings.get("of", "") and "dtypes" not in settings
    return "rasterio write, float32" if is_float else "rasterio write, deflate"


def _stored(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6


if __name__ == "__main__":
    main()
