"""A real headless Chromium for tests of pages, which skip where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OWN = ("http://127.0.0.1:", "blob:", "data:", "file:")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. It ends with the file of tests: until then Playwright's event loop counts as this
    thread's."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(f"needs Chromium: there is none of {', '.join(_NAMES)}")
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a page of its own: open_page(address, view="", **settings of the context).

    At the test's end no page has had an error of a script or of its policy, and none has asked for anything
    from elsewhere.
    """
    contexts, errors, foreign = [], [], []

    def open_(address: str, view: str = "", width: int = 1000, height: int = 700, **settings: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(message.text) if "Content Security Policy" in message.text else None
            ),
        )
        page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
        page.on(
            "request", lambda request: None if request.url.startswith(_OWN) else foreign.append(request.url)
        )
        page.goto(address)
        page.wait_for_selector("#summary:not(:empty)")
        if view:
            page.evaluate("view => { location.hash = view; }", view)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
    assert foreign == []
