"""An addition that is killed at any step is finished by the next identical one, under the right number."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import FOLDER, TESTS, warm_python
from support.levels import either, every_step

SCRIPT = FOLDER / "killed_additions.py"


@pytest.mark.parametrize("every", either(60, every_step(6)))
@pytest.mark.parametrize("store", ["local", "s3"])
def test_an_addition_that_was_killed_is_never_half_visible_and_the_next_one_finishes_it(
    catalog_url: str, tmp_path: Path, store: str, every: int, request: pytest.FixtureRequest
) -> None:
    data_dir = request.getfixturevalue("bucket") if store == "s3" else str(tmp_path / "data")
    (tmp_path / "tmp").mkdir()
    for name, count in (("old.zip", 5), ("new.zip", 8)):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("n.csv", "n,text\n" + "".join(f"{n},some text\n" for n in range(count)))
    asked = {"catalog": catalog_url, "data_dir": data_dir, "folder": str(tmp_path), "every": every}
    ran = warm_python.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(TESTS)},
    )
    assert ran.returncode == 0, ran.stderr
    rows: list[dict[str, Any]] = json.loads(ran.stdout)
    old, new = list(range(5)), list(range(8))
    for row in rows:
        assert row["first"] == {"outcome": "published", "version": "1.0.0"}, row
        assert row["killed"] is None, row
        is_done = "2.0.0" in row["between"]["versions"]
        assert row["between"]["versions"] == ({"1.0.0": old, "2.0.0": new} if is_done else {"1.0.0": old}), row
        assert row["again"] == {"outcome": "unchanged" if is_done else "published", "version": "2.0.0"}, row
        assert row["after"]["versions"] == {"1.0.0": old, "2.0.0": new}, row
        assert row["after"]["reservations"] == [], row
        assert row["after"]["folders"] == ["1.0.0", "2.0.0"], row
        # A kill around the row may leave the notes of the folder, which are not content.
        assert set(row["after"]["hidden"]) <= {"2.0.0/.finished.json", "2.0.0/.owner.json"}, row
        assert row["after"]["temporary"] == [], row
    assert len({row["step"] for row in rows}) > 1
