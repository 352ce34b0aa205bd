"""Runs the blocks of pages: python run_blocks.py SCRATCH PAGE...

Prints a line of JSON for each page: {"page": ..., "error": null or text, "seconds": ...}. Blocks of one page
run one after another, in one session and one folder, which holds what SCRATCH/given does. Of a diff, the
program after it runs. All pages run in one process, which spares each of them the import of torch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import Any, TextIO

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import torchvision_ops  # noqa: E402, F401  (before anything imports torchvision)
from docs_helpers import blocks, name_of, side  # noqa: E402


def run_page(page: Path, scratch: Path) -> str | None:
    """Runs a page's blocks; what went wrong, or None."""
    folder = scratch / name_of(page).replace("/", "-")
    shutil.copytree(scratch / "given", folder)
    os.chdir(folder)
    # Classes of the page are looked up in __main__, as those of a script are.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    for block in blocks(page):
        if block.language == "sh" and not block.text.startswith("make"):
            done = subprocess.run(
                ["bash", "-euc", block.text], capture_output=True, text=True, timeout=120, check=False
            )
            if done.returncode:
                return f"{block.text}\n{done.stdout}\n{done.stderr}"
        elif block.language in ("python", "diff"):
            text = block.text if block.language == "python" else side(block.text, "+")
            try:
                exec(compile(text, f"<{name_of(page)}>", "exec"), main.__dict__)
                check(main.__dict__, block.language)
            except Exception:
                return f"{text}\n{traceback.format_exc()}"
    return None


def check(names: dict[str, Any], language: str) -> None:
    """After a diff that makes batches: they are batches of images or tensors and labels, of the asked
    size, and not empty."""
    batches = names.pop("batches", None)
    if language == "diff" and batches is not None:
        assert len(batches) >= 2, "no batches"
        for data, labels in batches:
            assert len(data) == len(labels) > 0, (data.shape, labels.shape)
            assert str(labels.dtype) == "torch.int64", labels.dtype
        for loader in (
            each for each in list(names.values()) if hasattr(each, "close") and hasattr(each, "dataset")
        ):
            loader.close()


def main() -> None:
    warnings.simplefilter("error")
    # Of libraries that pages import, in their own files: not what a page says.
    warnings.filterwarnings(
        "ignore", module=r"(lightning|torch|timm|accelerate|kornia|datasets|dill|multiprocess)\b"
    )
    scratch = Path(sys.argv[1])
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        run_pages(out, scratch)


def run_pages(out: TextIO, scratch: Path) -> None:
    """Runs the pages that the command line names."""
    for page in [Path(each).resolve() for each in sys.argv[2:]]:
        began = time.monotonic()
        error = run_page(page, scratch)
        out.write(json.dumps({"page": str(page), "error": error, "seconds": time.monotonic() - began}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
