"""The page in a real Chromium: pictures in it are the dataset's, and what is clicked is what is shown."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import Outlined
from serving import Site, serving
from test_view_server import damage

import fastload
from fastload import PackedDataset, transforms
from fastload.packing import Item
from fastload.store import Field
from fastload.view.report import write_report
from fastload.view.subject import PageSettings

pytestmark = pytest.mark.long
Open = Callable[..., Any]
_PIXELS = """image => {
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return [canvas.width, canvas.height, ...context.getImageData(0, 0, canvas.width, canvas.height).data];
}"""


@pytest.fixture(scope="module")
def photos(packed: Path) -> Iterator[Site]:
    with serving(packed) as site:
        yield site


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes") / "scenes.fl"
    fastload.pack(Outlined(16), out, workers=1)
    return out


def pixels(locator: Any) -> np.ndarray[Any, Any]:
    """Pixels (height, width, 3) of an <img>, as the browser has decoded them."""
    locator.wait_for(state="attached")
    locator.evaluate(
        "image => image.src && image.complete ? 0 : new Promise(done => image.addEventListener('load', done))"
    )
    width, height, *values = locator.evaluate(_PIXELS)
    return np.array(values, np.uint8).reshape(height, width, 4)[..., :3]


def shown(page: Any, count: int) -> list[int]:
    """Indices of the samples on the sheet, in order, once there are `count`."""
    page.wait_for_function("count => document.querySelectorAll('.cell[href]').length === count", arg=count)
    cells = page.eval_on_selector_all(
        ".cell", "all => all.map(each => [each.getBoundingClientRect(), each.hash])"
    )
    ordered = sorted((round(place["y"]), round(place["x"]), link) for place, link in cells)
    return [int(re.match(r"#/sample/(\d+)", link)[1]) for *_, link in ordered]


def test_the_sheet(photos: Site, packed: Path, open_page: Open) -> None:
    """All samples in order, each thumbnail with the pixels of the native resize, its index and its class."""
    page = open_page(photos.server.address, height=2000)
    assert "token" not in page.url
    assert shown(page, 50) == list(range(50))
    small = PackedDataset(packed, transforms.Resize(None, max_size=128))
    for index in (0, 7, 49):
        cell = page.locator(f'.cell[href="#/sample/{index}"]')
        assert np.array_equal(pixels(cell.locator("img")), small[index][0].permute(1, 2, 0))
        assert cell.inner_text().split() == [str(index), small.classes[small[index][1]]]
    page.select_option("#side", "64")
    assert shown(page, 50) == list(range(50))
    assert max(pixels(page.locator('.cell[href="#/sample/3"] img')).shape) == 64


def test_the_sheet_of_objects(scenes: Path, open_page: Open) -> None:
    """Boxes with the labels of their objects, masks and instances lie over the thumbnails, and where they
    lie over the whole image."""
    dataset = PackedDataset(scenes)
    with serving(scenes) as site:
        page = open_page(site.server.address, height=2000)
        assert shown(page, 16) == list(range(16))
        for index in (8, 13):
            sample, cell = dataset[index], page.locator(f'.cell[href="#/sample/{index}"]')
            cell.locator('svg[data-layer="boxes"]').wait_for()
            assert cell.locator('svg[data-layer="boxes"] text').all_text_contents() == [
                str(label) for label in sample["labels"].tolist()
            ]
            place = cell.locator("img").first.bounding_box()
            scale = place["width"] / sample["image"].shape[2]
            boxes = cell.locator('svg[data-layer="boxes"] polygon').evaluate_all(
                "all => all.map(each => { const box = each.getBoundingClientRect(); return "
                "[box.left, box.top, box.right, box.bottom]; })"
            )
            corner = np.array([place["x"], place["y"]] * 2)
            assert np.abs((np.array(boxes) - corner) / scale - sample["boxes"].numpy()).max() < 2.5 / scale
            for name in ("mask", "masks"):
                over = cell.locator(f'img[data-layer="{name}"]')
                assert np.array_equal(
                    pixels(over), site.pixels(f"/layer/{index}.png", field=name, side=128)[..., :3]
                )
                assert over.bounding_box() == pytest.approx(place, abs=0.5)


def test_search(photos: Site, packed: Path, open_page: Open) -> None:
    """A condition leaves the samples for which it is true; a wrong one gives its sentence; the browser's
    back button goes back."""
    page = open_page(photos.server.address, height=2000)
    assert len(shown(page, 50)) == 50
    condition = "label = 2 and width > 250"
    page.fill("#where", condition)
    page.press("#where", "Enter")
    wanted = np.asarray(PackedDataset(packed).where(condition).indices).tolist()
    assert shown(page, len(wanted)) == wanted
    page.locator(".cell").nth(1).click()
    page.wait_for_selector("#sample h2")
    page.click("text=after →")
    page.wait_for_function(
        "index => document.querySelector('#sample h2')?.textContent.startsWith(`Sample ${index}:`)",
        arg=wanted[2],
    )
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "index => document.querySelector('#sample h2')?.textContent.startsWith(`Sample ${index}:`)",
        arg=wanted[1],
    )
    page.click("text=All samples")
    assert shown(page, len(wanted)) == wanted
    page.fill("#where", "read_text('/etc/passwd') = ''")
    page.click("text=Search")
    page.wait_for_selector("#found .error")
    assert "read_text" in page.inner_text("#found")
    page.go_back()
    assert shown(page, len(wanted)) == wanted
    assert page.input_value("#where") == condition


def test_facts_are_clicked(photos: Site, packed: Path, open_page: Open) -> None:
    """A class and a bar of a histogram lead to their samples."""
    dataset = PackedDataset(packed)
    page = open_page(photos.server.address, "#/facts", height=2000)
    page.click(f"#facts .list >> text={dataset.classes[1]}")
    assert shown(page, dataset.targets.count(1)) == [
        i for i, label in enumerate(dataset.targets) if label == 1
    ]
    page.go_back()
    bar = page.locator(".chart", has_text="width of the image").locator(".bars button").last
    text, count = bar.get_attribute("title").split(": ")
    bar.click()
    low, high = map(float, text.split(" .. "))
    assert shown(page, int(count)) == [i for i, width in enumerate(dataset.sizes[1]) if low <= width <= high]


def test_a_sample(scenes: Path, open_page: Open) -> None:
    """The whole image, and over it boxes, points, outlines and labels where the dataset has them."""
    sample = PackedDataset(scenes)[8]
    height, width = sample["image"].shape[1:]
    with serving(scenes) as site:
        page = open_page(site.server.address, "#/sample/8")
        stage = page.locator("#sample .columns .stage")
        assert np.array_equal(pixels(stage.locator("img").first), sample["image"].permute(1, 2, 0))
        place = stage.bounding_box()
        scale = place["width"] / width
        assert place["height"] == pytest.approx(height * scale, abs=1)
        boxes = stage.locator('svg[data-layer="boxes"] polygon').evaluate_all(
            "all => all.map(each => { const box = each.getBoundingClientRect(); return [box.left, "
            "box.top, box.right, box.bottom]; })"
        )
        corner = np.array([place["x"], place["y"]] * 2)
        # Lines are two pixels wide.
        assert np.abs((np.array(boxes) - corner) / scale - sample["boxes"].numpy()).max() < 2.5 / scale
        texts = stage.locator('svg[data-layer="boxes"] text').all_text_contents()
        assert texts == [str(label) for label in sample["labels"].tolist()]
        circles = stage.locator('svg[data-layer="points"] circle').evaluate_all(
            "all => all.map(each => [each.cx.baseVal.value, each.cy.baseVal.value])"
        )
        points = sample["points"].reshape(-1, 3).numpy()
        assert np.allclose(circles, points[points[:, 2] > 0][:, :2], atol=0.01)
        assert stage.locator('svg[data-layer="lines"] polygon').count() == sum(
            len(parts) for parts in sample["lines"]
        )
        colours = pixels(stage.locator('img[data-layer="mask"]'))
        assert np.array_equal(
            colours[sample["mask"].numpy() > 0],
            site.pixels("/layer/8.png", field="mask")[sample["mask"].numpy() > 0][:, :3],
        )
        page.get_by_label("boxes").uncheck()
        assert stage.locator('svg[data-layer="boxes"]').is_hidden()
        assert stage.locator('svg[data-layer="points"]').is_visible()
        assert f"{width} x {height}, jpeg" in page.inner_text("#sample")


def test_draws(packed: Path, open_page: Open) -> None:
    """Eight epochs side by side, each the sample that the dataset draws for it; another seed and epoch
    draw anew."""
    transform = [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip()]
    with serving(packed, PageSettings(transform=transform, seed=5, epoch=2)) as site:
        page = open_page(site.server.address, "#/sample/11")
        dataset = PackedDataset(packed, transform)
        figures = page.locator("#draws figure")
        figures.nth(7).wait_for()
        assert figures.count() == 8
        for at in (0, 7):
            assert np.array_equal(
                pixels(figures.nth(at).locator("img")), dataset.drawing(5, 2 + at)[11][0].permute(1, 2, 0)
            )
        page.click("text=epochs →")
        page.wait_for_selector("text=epoch 17,")
        assert np.array_equal(
            pixels(figures.nth(0).locator("img")), dataset.drawing(5, 10)[11][0].permute(1, 2, 0)
        )
        page.get_by_label("seed").fill("6")
        page.get_by_label("first epoch").fill("0")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.wait_for_selector("text=epoch 0,")
        assert np.array_equal(
            pixels(figures.nth(1).locator("img")), dataset.drawing(6, 1)[11][0].permute(1, 2, 0)
        )


def test_bad_samples(packed: Path, tmp_path: Path, open_page: Open) -> None:
    """The sentence stands in the sample's place; a check of all finds all, and each leads to its sample."""
    dataset = tmp_path / "copy.fl"
    shutil.copytree(packed, dataset)
    damage(dataset, 2)
    damage(dataset, 48)
    with serving(dataset) as site:
        page = open_page(site.server.address)
        error = page.locator('.cell[href="#/sample/2"] .error')
        error.wait_for()
        assert "sample 2 of" in error.inner_text()
        page.click("nav >> text=Bad samples")
        page.click("text=Check all samples")
        page.wait_for_selector("#bad progress[value='50']")
        page.wait_for_function("() => document.querySelectorAll('#bad li').length === 2")
        assert [item.split(":")[0] for item in page.locator("#bad li").all_inner_texts()] == [
            "sample 2",
            "sample 48",
        ]
        page.click("text=sample 48")
        page.wait_for_selector("#sample .stage .error")


_HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;\u202e</script>"


class Hostile:
    """Four samples whose names and values are HTML."""

    title, concurrent = "hostile", False
    classes = (_HOSTILE, "b&amp;<b>")
    fields = (
        Field("label", "int"),
        Field("<i>text</i>", "text"),
        Field("json", "json"),
        Field("boxes", "boxes", format="xyxy"),
        Field("of", "array", "int64", (None,), of="boxes"),
    )

    def __len__(self) -> int:
        return 4

    def name(self, position: int) -> str:
        return _HOSTILE

    def read(self, position: int) -> Item:
        values = {
            "label": position % 2,
            "<i>text</i>": _HOSTILE,
            "json": {_HOSTILE: [_HOSTILE]},
            "boxes": [[1, 2, 30, 40]],
            "of": [0],
        }
        return Item(_HOSTILE, np.zeros((48, 48, 3), np.uint8), values)


def test_hostile_names(tmp_path: Path, open_page: Open) -> None:
    """Names and values are text wherever they are shown, in the served page and in a report; no script of
    theirs runs."""
    fastload.pack(Hostile(), tmp_path / "a&b.fl")
    with serving(tmp_path / "a&b.fl") as site:
        write_report(site.subject, tmp_path / "report.html")
        for address in (site.server.address, (tmp_path / "report.html").as_uri()):
            page = open_page(address)
            shown(page, 4)
            assert page.locator(".cell .caption").first.inner_text() == f"0 {_HOSTILE}"
            page.evaluate("location.hash = '#/sample/1'")
            page.wait_for_selector("#sample .stage text")
            assert page.locator("#sample .stage text").first.text_content() == _HOSTILE
            assert page.inner_text("#sample h2") == "Sample 1: b&amp;<b>"
            assert _HOSTILE in page.locator("#sample pre").all_text_contents()
            assert page.locator("#sample dt").all_text_contents()[1] == "<i>text</i>"
            assert json.loads(page.locator("#sample pre").nth(2).text_content()) == {_HOSTILE: [_HOSTILE]}
            page.evaluate("location.hash = '#/facts'")
            page.wait_for_selector("#facts .list button")
            assert _HOSTILE in page.locator("#facts .name").all_text_contents()
            assert page.locator("i, b:not(.caption b)").count() == 0
            assert page.evaluate("document.scripts.length") == (1 if address.startswith("http") else 2)


def test_a_report(scenes: Path, tmp_path: Path, open_page: Open) -> None:
    """One file shows samples, layers, draws and facts from a folder, and asks nothing of anybody."""
    out = tmp_path / "report.html"
    with serving(scenes, PageSettings(where="number >= 3 and number < 9", seed=2)) as site:
        assert write_report(site.subject, out) == 6
        layer = site.pixels("/layer/5.png", field="mask")
    page = open_page(out.as_uri())
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    assert shown(page, 6) == [3, 4, 5, 6, 7, 8]
    assert "number >= 3" in page.inner_text("#found")
    page.click('.cell[href="#/sample/5"]')
    stage = page.locator("#sample .columns .stage")
    whole = PackedDataset(scenes)[5]["image"].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(pixels(stage.locator("img").first) - whole).mean() < 6  # a JPEG of it
    opaque = layer[..., 3] > 0
    assert np.array_equal(pixels(stage.locator('img[data-layer="mask"]'))[opaque], layer[opaque][:, :3])
    page.locator("#draws figure").nth(3).wait_for()
    assert pixels(page.locator("#draws figure img").first).shape == (224, 224, 3)
    page.click("text=after →")
    page.wait_for_selector("text=Sample 6")
    page.click("nav >> text=Facts")
    page.wait_for_selector(".chart")
    assert all(url.startswith(("data:", "file:", "blob:")) for url in requests)
    assert not [url for url in requests if url.startswith("file:") and not url.startswith(out.as_uri())]


def test_a_phone(scenes: Path, open_page: Open) -> None:
    """At 390 pixels nothing is wider than the screen."""
    with serving(scenes) as site:
        page = open_page(site.server.address, width=390, height=800)
        for view, ready in (
            ("#/samples", ".cell img"),
            ("#/sample/8", "#draws figure"),
            ("#/facts", ".chart"),
            ("#/bad", "#bad button"),
        ):
            page.evaluate("view => { location.hash = view; }", view)
            page.locator(ready).first.wait_for()
            assert page.evaluate(
                "[...document.querySelectorAll('html, body, .view:not([hidden])')].every(e => "
                "e.scrollWidth <= 390)"
            ), view
