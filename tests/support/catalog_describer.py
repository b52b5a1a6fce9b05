"""Describes a version, or renames its dataset, in processes: many at once, or one that is killed at each of its steps.

python catalog_describer.py race URL NUMBER      wait for a line, describe mnist:1.0.0 ten times, print the outcomes
python catalog_describer.py kill URL STEP CHANGE
    fork for each STEP-th n: killed before its n-th statement or COMMIT; CHANGE is describe or rename
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter

import sqlalchemy as sa

from registry.catalog import open_catalog
from registry.model import Description, Reference

VERSION = Reference.parse("mnist:1.0.0")


def race(url: str, number: str) -> None:
    outcomes: Counter[str] = Counter()
    with open_catalog(url) as catalog:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for turn in range(10):
            words = Description(description=f"turn {turn}", tags=[f"tag-{number}-{turn}"])
            change = catalog.lifecycle.describe(VERSION, words, actor=f"actor {number}")
            outcomes["changed" if change.is_change else "same"] += 1
    sys.stdout.write(json.dumps(outcomes) + "\n")


def kill(url: str, step: str, change: str) -> None:
    codes = []
    for number in range(1, 100, int(step)):
        pid = os.fork()
        if not pid:
            _change_until(url, number, change)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if codes[-1] == 0:
            break
    sys.stdout.write(json.dumps(codes) + "\n")


def _change_until(url: str, number: int, change: str) -> None:
    left = [number]

    def count(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_catalog(url) as catalog:
        sa.event.listen(sa.Engine, "before_cursor_execute", count)
        sa.event.listen(sa.Engine, "commit", count)
        if change == "rename":
            catalog.rename("mnist", "digits", actor="doomed")
        else:
            catalog.lifecycle.describe(VERSION, Description(license="MIT"), actor="doomed")
    os._exit(0)


if __name__ == "__main__":
    {"race": race, "kill": kill}[sys.argv[1]](*sys.argv[2:])
