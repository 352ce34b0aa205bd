"""The documentation's pictures show what the pages say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import docs_pictures
from docs_helpers import PAGES, ROOT


def test_pictures_are_those_of_the_script() -> None:
    """docs/pictures holds what tools/docs_pictures.py makes of the figures of docs/benchmarks.md, and nothing else."""
    made = docs_pictures.files()
    assert {path.name: path.read_text() for path in docs_pictures.FOLDER.iterdir()} == made, "run python tools/docs_pictures.py"
    for content in made.values():
        ElementTree.fromstring(content)
    rows = docs_pictures.rates()
    assert len(rows) >= 3
    assert all(f"{rate:,}" in made["rate-light.svg"] for _, rate in rows)


def test_pages_show_pictures_that_exist() -> None:
    """Each picture that a page shows by HTML is there, in both schemes, with a text for those who do not see it."""
    shown = [(page, tag) for page in PAGES for tag in re.findall(r"<picture>.*?</picture>", page.read_text(), re.DOTALL)]
    assert shown
    for page, tag in shown:
        sources = re.findall(r'(?:src|srcset)="([^"]+)"', tag)
        assert {source.rpartition("-")[2] for source in sources} == {"light.svg", "dark.svg"}, page
        assert all((page.parent / source).is_file() for source in sources), page
        assert re.search(r'alt="[^"]{10,}"', tag), page
    assert (ROOT / "docs" / "index.md").read_text().count("<picture>") == 1
