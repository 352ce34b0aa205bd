"""README's picture of rates is what its script draws of the saved results, and the words beside it say the same."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import draw_rates


def test_rates() -> None:
    """benchmarks/results/rates.svg is up to date, and well-formed."""
    drawn = draw_rates.drawn()
    assert draw_rates.PICTURE.read_text(encoding="utf-8") == drawn, "run: python tools/draw_rates.py"
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"


def test_readmes_words() -> None:
    """README's words for those who do not see the picture have its ratios, rounded."""
    words = re.search(
        r"!\[(Images a second[^\]]*)\]\(benchmarks/results/rates\.svg\)", (draw_rates.ROOT / "README.md").read_text(encoding="utf-8")
    )
    assert words is not None
    said = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", words[1])]
    own, first, packed, later = (ratio for _, ratio in draw_rates.bars()[1:])
    assert said == [round(own, 1), round(first), round(later), round(packed, 1)]
