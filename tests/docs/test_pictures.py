"""The pictures of README and the documentation show what the pages say, in light and dark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import draw_pictures
from docs_helpers import PAGES, ROOT

_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+\.svg)\)")


def test_pictures_are_those_of_the_script() -> None:
    """docs/pictures holds what tools/draw_pictures.py makes of the figures as they are now, and nothing
    else."""
    made = draw_pictures.files()
    there = {path.name: path.read_text(encoding="utf-8") for path in draw_pictures.FOLDER.iterdir()}
    assert there == made, "run python tools/draw_pictures.py"
    rows = draw_pictures.rates()
    assert len(rows) >= 3
    assert all(f"{rate:,}" in made["rate.svg"] for _, rate in rows)


def test_pictures_follow_the_colour_scheme() -> None:
    """Every shape has its colours from the style sheet in the file, which knows each class in both
    schemes."""
    for name, content in draw_pictures.files().items():
        picture = ElementTree.fromstring(content)
        light, _, dark = (picture.findtext("{*}style") or "").partition("@media (prefers-color-scheme: dark)")
        for shape in picture.iter():
            assert shape.get("fill") in (None, "none"), name
            assert shape.get("stroke") is None, name
            for each in (shape.get("class") or "").split():
                assert f".{each} {{" in light, (name, each)
                assert f".{each} {{" in dark, (name, each)


def test_pages_show_pictures_that_exist() -> None:
    """Each drawn picture is on a page, and each that a page shows is there, with a text for those who do
    not see it."""
    shown = [
        (page, *found)
        for page in (*PAGES, ROOT / "README.md")
        for found in _SHOWN.findall(page.read_text(encoding="utf-8"))
    ]
    for page, words, source in shown:
        assert (page.parent / source).is_file(), page
        assert len(words) >= 10, page
    assert {(page.parent / source).resolve() for page, _, source in shown} == set(
        draw_pictures.FOLDER.iterdir()
    )
    assert [page.name for page, _, _ in shown].count("index.md") == 1


def test_readmes_words() -> None:
    """README's words for those who do not see its picture have the ratios, rounded."""
    ((words, _),) = _SHOWN.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", words)]
    own, first, packed, later, dct, cached = (ratio for _, ratio in draw_pictures.ratios()[1:])
    place = [round(first), round(later), round(cached, 1)]
    assert said == [round(own, 1), *place, round(packed, 1), round(dct, 1)]
