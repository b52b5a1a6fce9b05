"""The public names of ``registry.builders.earth_engine``: all there, and loaded only when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from registry.builders import earth_engine


def test_every_name_is_there() -> None:
    assert set(earth_engine.__all__) <= set(dir(earth_engine))
    for name in earth_engine.__all__:
        assert getattr(earth_engine, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'assembel'"):
        _ = earth_engine.assembel


def test_arrays_and_tables_need_no_optional_package() -> None:
    code = (
        "import sys; from registry.builders import earth_engine\n"
        "assert 'numpy' not in sys.modules\n"
        "for name in earth_engine.__all__: getattr(earth_engine, name)\n"
        "assert not {'rasterio', 'affine', 'PIL', 'xarray', 'sqlalchemy', 'pandas', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
