"""after_import() and the modules that it waits for."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest

from fastload.common.imports import after_import


@pytest.mark.parametrize("is_namespace", [False, True])
@pytest.mark.parametrize("waiting", [1, 3])
def test_the_module_is_imported_as_ever(
    waiting: int, is_namespace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each function runs once the module has, in their order; a namespace package, of which nothing runs, is
    imported, too."""
    (tmp_path / "awaited").mkdir()
    if not is_namespace:
        (tmp_path / "awaited" / "__init__.py").write_text("VALUE = 3")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    calls: list[int] = []
    for number in range(waiting):
        after_import("awaited", functools.partial(calls.append, number))
    try:
        module = importlib.import_module("awaited")
    finally:
        sys.modules.pop("awaited", None)
    assert calls == ([] if is_namespace else list(range(waiting)))
    assert getattr(module, "VALUE", None) == (None if is_namespace else 3)
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__module__ == "_frozen_importlib_external"
