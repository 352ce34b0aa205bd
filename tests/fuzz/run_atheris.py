"""Runs one test of test_hostile_input.py under Atheris (`pip install atheris`), guided by fastload's
coverage.

Example:
    python tests/fuzz/run_atheris.py table -max_total_time=600
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["fastload.store", "fastload.packing"]):
    import test_hostile_input as tests

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("manifest", "table", "tar"):
        sys.exit("which: manifest, table or tar")
    test = getattr(tests, f"test_only_our_own_exceptions_leave_a_{sys.argv.pop(1)}")
    atheris.Setup(sys.argv, test.hypothesis.fuzz_one_input)
    atheris.Fuzz()
