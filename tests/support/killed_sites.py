"""Writes a site again after a change, killed at many of its writing calls: a script, with a JSON line for each kill.

    python killed_sites.py CATALOG FOLDER STEP

A larger STEP kills more runs: the next one is killed 1 / STEP later.

After each kill, every file is that of the old site or of the new one, and the first page and the index are not ahead of
the others. Then the next run finishes, and leaves what a run that was not killed leaves.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import registry
from registry.cli.main import run
from support.killed_commands import run_forked
from support.site_checks import tree_of, without_time

FOREIGN = {"CNAME": b"example.org"}


def main() -> None:
    url, folder, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(["site", str(folder / "old"), "--catalog", url]) == 0
        (folder / "old" / "CNAME").write_bytes(FOREIGN["CNAME"])
        with registry.connect(url) as catalog:
            catalog.lifecycle.yank("plain:1.0.0", reason="wrong labels")
            catalog.lifecycle.drop("plain:2.0.0", reason="wrong labels")
            catalog.describe("plain:3.0.0", description="Words on the first page.")
        shutil.copytree(folder / "old", folder / "new")
        assert run(["site", str(folder / "new"), "--catalog", url]) == 0
    old, new = without_time(tree_of(folder / "old")), without_time(tree_of(folder / "new"))
    assert old.keys() - new.keys(), "a page is removed"
    assert old["index.html"] != new["index.html"]
    number, code = 1, -9
    while code < 0:
        site = folder / "site"
        shutil.copytree(folder / "old", site)
        code = run_forked(["site", str(site), "--catalog", url], number)
        left = without_time(tree_of(site))
        for name, content in left.items():
            assert content in (old.get(name), new.get(name)), f"kill {number}: {name} is neither old nor new"
        is_new = left["index.html"] == new["index.html"]
        assert json.loads(left["site.json"])["catalog"]["path"] in left
        if is_new:
            missing = {name for name in new if left.get(name) != new[name]}
            assert not missing, f"kill {number}: the first page is new, but not {missing}"
        assert run_forked(["site", str(site), "--catalog", url], None) == 0
        done = without_time(tree_of(site))
        gone = {
            name for name in new if new[name] == old.get(name) and name.startswith("catalog/")
        }  # if site.json was new
        assert done == {name: it for name, it in new.items() if name in done or name not in gone}, number
        assert not list(site.glob("incomplete.*"))
        sys.stdout.write(json.dumps({"number": number, "code": code, "state": "new" if is_new else "old"}) + "\n")
        shutil.rmtree(site)
        number += 1 + number // step


if __name__ == "__main__":
    main()
