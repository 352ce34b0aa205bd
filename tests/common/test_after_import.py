"""after_import() and the modules that it waits for."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from fastload.common.imports import after_import


@pytest.mark.parametrize(("source", "ran"), [("VALUE = 3", True), (None, False)], ids=["module", "namespace package"])
def test_it_is_imported_as_ever(source: str | None, ran: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function runs once the module has; a namespace package, of which nothing runs, is imported, too."""
    (tmp_path / "awaited").mkdir()
    if source:
        (tmp_path / "awaited" / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    calls: list[int] = []
    after_import("awaited", lambda: calls.append(1))
    try:
        module = importlib.import_module("awaited")
    finally:
        sys.modules.pop("awaited", None)
    assert calls == [1] * ran
    assert getattr(module, "VALUE", 0) == 3 * ran
    assert type(module.__spec__.loader).__module__.startswith("_frozen_importlib") or module.__spec__.loader is None
