"""The browser of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.chromium import Chromium


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.driver.quit()
