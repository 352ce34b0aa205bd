"""A million samples on a page: each can be reached, and neither the browser nor the server holds more than
what is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Site, serving

import fastload
from fastload.store import DatasetWriter, Field, Schema

pytestmark = pytest.mark.long
Open = Callable[..., Any]
PART, TIMES = 5000, 200
COUNT = PART * TIMES
_CELLS = "[...document.querySelectorAll('.cell[href]')].map(each => parseInt(each.hash.split('/')[2]))"
_SEEN = """[...document.querySelectorAll('.cell[href]')].filter(cell => {
  const place = cell.getBoundingClientRect();
  const view = document.getElementById('scroller').getBoundingClientRect();
  return place.top >= view.top - 1 && place.bottom <= view.bottom + 1;
}).map(each => parseInt(each.hash.split('/')[2])).sort((a, b) => a - b)"""


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 8 x 8 pixels, of which 200 parts refer to the same file; `number` is the sample's in its
    part."""
    root = tmp_path_factory.mktemp("million")
    schema = Schema((Field("image", "image"), Field("number", "int")))
    writer = DatasetWriter(root / "part.fl", schema, shard_size=1 << 30, options={})
    for number in range(PART):
        writer.append(
            {"image": bytes([number % 251, number // 251, 7]) * 64, "number": number},
            image_kind="raw",
            height=8,
            width=8,
        )
    writer.finish(None, {})
    fastload.concat([root / "part.fl"] * TIMES, root / "million.fl")
    return root / "million.fl"


@pytest.fixture(scope="module")
def site(million: Path) -> Iterator[Site]:
    with serving(million) as found:
        yield found


_READY = """() => {
  const cells = [...document.querySelectorAll('.cell')];
  return cells.length > 0 && cells.every(each => each.querySelector('img'));
}"""


def settled(page: Any) -> list[int]:
    """Indices of the samples that are seen whole, once all have their pictures."""
    page.wait_for_function(_READY)
    found: list[int] = page.evaluate(_SEEN)
    return found


@pytest.mark.parametrize("width", [1000, 390])
def test_every_sample_is_reached(site: Site, open_page: Open, width: int) -> None:
    """The first, the last and those between, at two and at seven in a row; the document stays as small as
    what is seen."""
    page = open_page(site.server.address, width=width)
    first = settled(page)
    assert first[0] == 0
    page.focus("#scroller")
    page.keyboard.press("End")
    page.wait_for_function(f"() => {_CELLS}.includes({COUNT - 1})")
    assert settled(page)[-1] == COUNT - 1
    for part in (0.25, 0.5, 0.75):
        page.evaluate(
            "part => { const s = document.getElementById('scroller'); s.scrollTop = part * "
            "(s.scrollHeight - s.clientHeight); }",
            part,
        )
        page.wait_for_function(f"() => Math.abs(Math.min(...{_CELLS}) - {part * COUNT}) < {COUNT // 500}")
        seen = settled(page)
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        assert page.evaluate("document.querySelectorAll('*').length") < 1000
    page.keyboard.press("Home")
    page.wait_for_function(f"() => {_CELLS}.includes(0)")
    assert settled(page) == first


def test_small_moves_pass_no_sample(site: Site, open_page: Open) -> None:
    """The wheel moves the sheet by its own pixels, in the middle of a million samples at two in a row, in
    both directions."""
    page = open_page(site.server.address, width=390)
    settled(page)
    page.evaluate("const s = document.getElementById('scroller'); s.scrollTop = 0.5 * s.scrollHeight;")
    page.wait_for_function(f"() => Math.min(...{_CELLS}) > {COUNT // 3}")
    page.mouse.move(200, 400)
    before = settled(page)
    for step in (120, 120, 120, -120, -120, -120, -120):
        page.mouse.wheel(0, step)
        page.wait_for_timeout(200)  # the scroll bar is put where the sheet is
        after = settled(page)
        moved = after[0] - before[0]
        assert moved * step >= 0
        assert abs(moved) <= 4
        before = after


def test_what_is_scrolled_past_is_not_asked_for(site: Site, open_page: Open) -> None:
    """A way through all samples asks for few of their pictures."""
    page = open_page(site.server.address)
    settled(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/picture/" in request.url else None)
    page.evaluate(
        """async () => {
          const scroller = document.getElementById('scroller');
          const end = scroller.scrollHeight - scroller.clientHeight;
          for (let step = 1; step <= 60; step++) {
            scroller.scrollTop = end * step / 60;
            await new Promise(requestAnimationFrame);
          }
        }"""
    )
    page.wait_for_function(f"() => {_CELLS}.includes({COUNT - 1})")
    settled(page)
    assert len(asked) < 60 * 10


def test_search_and_facts(site: Site, open_page: Open) -> None:
    """A condition over a million samples, and histograms of all of them."""
    page = open_page(site.server.address)
    page.fill("#where", "number = 4999")
    page.press("#where", "Enter")
    page.wait_for_selector(f"text=200 of {COUNT:,} samples")
    assert settled(page)[:2] == [4999, 9999]
    charts = {chart["title"]: chart for chart in site.document("/facts")["charts"]}
    assert charts["width of the image, pixels"]["bars"] == [["8", COUNT, 8, None]]
    assert sum(bar[1] for bar in charts["number"]["bars"]) == COUNT
