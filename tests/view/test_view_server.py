"""The server of a page: who is let in, what it answers, and that pixels, layers and draws are the
dataset's own."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import torch
from coco_objects import write_coco
from scenes import Outlined
from serving import Site, serving

import fastload
from fastload import FastLoader, PackedDataset, transforms
from fastload.dataset.drawing import box_corners, colour_of, numbers_of
from fastload.errors import ArgumentError, ResourceError
from fastload.view.server import PageServer
from fastload.view.subject import PageSettings


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with a mask, boxes, points, instances and outlines."""
    out = tmp_path_factory.mktemp("scenes") / "scenes.fl"
    fastload.pack(Outlined(24), out, workers=1)
    return out


@pytest.fixture(scope="module")
def site(scenes: Path) -> Iterator[Site]:
    with serving(scenes) as found:
        yield found


@pytest.fixture(scope="module")
def photos(packed: Path) -> Iterator[Site]:
    with serving(packed) as found:
        yield found


def test_the_example_condition_holds(scenes: Path) -> None:
    """The example of a condition is over columns that the dataset has, so that it can be searched for."""
    with serving(scenes) as site:
        example = site.document("/dataset")["example"]
        assert example == "number = 3 and width > 400"
        site.content("/rows", where=example)


def test_only_the_token_opens_the_page(photos: Site) -> None:
    """Without the cookie, with another one or another token every path is refused; the address with the
    token gives it, for this site."""
    paths = [
        "/",
        "/page.js",
        "/dataset",
        "/rows",
        "/picture/0.png",
        "/sample/0",
        "/?token=",
        "/?token=a",
        "/none",
        "/rows?token=a",
    ]
    for path in paths:
        for cookie in (
            "",
            "fastload_view=x",
            photos.cookie[:-1],
            photos.cookie + "x",
            f"{photos.cookie.partition('=')[0]}=\xe4",
        ):
            status, headers, content = photos.ask(path, Cookie=cookie)
            assert status == 403, (path, cookie)
            assert "set-cookie" not in headers
            assert b"needs the token" in content
    entry = photos.server.address.partition(str(photos.server.port))[2]
    status, headers, _ = photos.ask(entry, Cookie="")
    assert status == 200
    assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))
    assert photos.ask("/dataset", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200


def test_a_ticket_opens_the_page_once(packed: Path) -> None:
    """The address in a browser's arguments is worth nothing to those who read them later."""
    with serving(packed) as site:
        ticket = site.server.ticket.partition(str(site.server.port))[2]
        status, headers, _ = site.ask(ticket, Cookie="")
        assert status == 200
        assert headers["set-cookie"].partition(";")[0] == site.cookie
        assert site.ask(ticket, Cookie="")[0] == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.", "[::1]", "127.0.0.1:x"],
)
def test_foreign_hosts(photos: Site, host: str) -> None:
    """A name that resolves to this machine is not this server, even with the cookie."""
    assert photos.ask("/dataset", Host=host)[0] == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9999"])
def test_own_hosts(photos: Site, host: str) -> None:
    """Any port is right: it may be forwarded."""
    assert photos.ask("/dataset", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get(photos: Site, method: str) -> None:
    """Nothing but reading is answered."""
    assert photos.ask("/dataset", method)[0] == 405


def test_headers_of_every_answer(photos: Site) -> None:
    """Pages, pictures and errors have the policy; nothing is stored, framed or guessed."""
    for path in (
        "/",
        "/page.js",
        "/page.css",
        "/icon.svg",
        "/dataset",
        "/picture/0.png?side=64",
        "/picture/x.png",
        "/none",
        "/rows?start=x",
    ):
        _, headers, _ = photos.ask(path)
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    _, headers, _ = photos.ask("/picture/0.png", Cookie="")
    assert "default-src 'none'" in headers["content-security-policy"]


def test_it_listens_on_this_machine_alone(photos: Site) -> None:
    """The socket is of 127.0.0.1; another address of the machine has nobody there."""
    assert photos.server._socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", photos.server.port), timeout=5)


def test_a_port_that_is_taken(packed: Path, photos: Site) -> None:
    """One sentence, which names the port and what to do."""
    with pytest.raises(
        ResourceError, match=rf"port {photos.server.port} of 127.0.0.1 cannot be used: .*--port"
    ):
        PageServer(photos.subject, photos.server.port)


@pytest.mark.parametrize(
    "condition",
    [
        "(select count(*) from read_text('/etc/passwd')) > 0",
        "read_text('/etc/passwd') is not null",
        "exists(select * from '/etc/passwd')",
        "label in (select 1 from glob('/etc/*'))",
        "true) from read_csv('/etc/passwd') --",
        "getenv('HOME') <> ''",
        "label = 1; attach '/tmp/x.db'",
        "label = 1; copy (select 1) to '/tmp/view-was-here'",
    ],
)
def test_a_condition_reads_nothing_else(photos: Site, condition: str) -> None:
    """The text of the search box reaches no file, variable or second statement; the answer is a sentence."""
    status, _, content = photos.ask(f"/rows?where={quote(condition)}")
    assert status == 400
    assert b"where(" in content
    assert b"root:" not in content
    assert not Path("/tmp/view-was-here").exists()


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/rows?start=-1", 400, "position 0"),
        ("/rows?count=501", 400, "1 to 500"),
        ("/rows?start=1e3", 400, "start='1e3' is no whole number"),
        (f"/rows?start={10**30}", 400, "no whole number"),
        ("/rows?where=nothing+%3D+3", 400, "there is no column"),
        ("/sample/50", 400, "there is no sample 50; the dataset has 50"),
        ("/sample/-1", 404, "no number"),
        ("/sample/x", 404, "no number"),
        ("/sample/0%2f..%2f1", 404, ""),
        ("/picture/0.png?side=100000", 400, "have a side of"),
        ("/picture/0.png?field=label", 400, "no image"),
        ("/picture/0.png?field=none", 400, "there is no field 'none'"),
        ("/layer/0.png?field=label", 400, "no pixels to lay over"),
        ("/draws/0?count=17", 400, "1 to 16 epochs"),
        ("/draws/0?seed=-1", 400, "seed"),
        ("/draw/0.png?view=3", 400, "view 3"),
        ("/check?start=51", 400, "no sample 51"),
        ("/page/../page.js", 404, ""),
        ("/../../etc/passwd", 404, ""),
    ],
)
def test_wrong_requests(photos: Site, path: str, status: int, text: str) -> None:
    """Each is answered by one sentence, and none ends the server."""
    got, _, content = photos.ask(path)
    assert (got, text in content.decode()) == (status, True), content


def test_listing(photos: Site, packed: Path) -> None:
    """Samples by position, all or those of a condition, with class and size as the dataset has them."""
    dataset = PackedDataset(packed)
    heights, widths = dataset.sizes
    found = photos.document("/rows", start=10, count=7)
    assert found["total"] == 50
    assert found["rows"] == [
        [i, dataset.classes[dataset.targets[i]], int(widths[i]), int(heights[i])] for i in range(10, 17)
    ]
    condition = "label = 1 and width > 300"
    chosen = np.asarray(dataset.where(condition).indices).tolist()
    assert len(chosen) > 2
    found = photos.document("/rows", where=condition)
    assert [row[0] for row in found["rows"]] == chosen
    sample = photos.document(f"/sample/{chosen[1]}", where=condition)
    assert (sample["position"], sample["before"], sample["after"]) == (1, chosen[0], chosen[2])
    assert photos.document("/rows", where="label > 99") == {"total": 0, "start": 0, "rows": []}
    first, last = photos.document("/sample/0"), photos.document("/sample/49")
    assert (first["before"], first["after"], last["before"], last["after"]) == (None, 1, 48, None)


def test_pictures_are_the_datasets_pixels(photos: Site, packed: Path) -> None:
    """Whole images bit for bit, and thumbnails as the native resize makes them."""
    whole, small = PackedDataset(packed), PackedDataset(packed, transforms.Resize(None, max_size=128))
    for index in (0, 17, 49):
        assert np.array_equal(photos.pixels(f"/picture/{index}.png"), whole[index][0].permute(1, 2, 0))
        assert np.array_equal(
            photos.pixels(f"/picture/{index}.png", side=128), small[index][0].permute(1, 2, 0)
        )


def test_many_threads(photos: Site, packed: Path) -> None:
    """Requests that come at once get each its own picture."""
    small, wrong = PackedDataset(packed, transforms.Resize(None, max_size=64)), []

    def ask(start: int) -> None:
        for index in range(start, 50, 8):
            same = np.array_equal(
                photos.pixels(f"/picture/{index}.png", side=64), small[index][0].permute(1, 2, 0)
            )
            wrong.extend([] if same else [index])

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_masks_and_instances(site: Site, scenes: Path) -> None:
    """A label's colour lies on the label's pixels, and an instance's where it is the smallest one;
    elsewhere the layer is transparent."""
    dataset = PackedDataset(scenes)
    colours = np.array([(0, 0, 0), *map(colour_of, range(1, 255)), (128, 128, 128)], np.uint8)
    for index in (0, 5, 8, 14):
        sample = dataset[index]
        layer = site.pixels(f"/layer/{index}.png", field="mask")
        mask = sample["mask"].numpy()
        assert np.array_equal(layer[..., 3], np.where(mask == 0, 0, 255))
        assert np.array_equal(layer[..., :3], colours[numbers_of(mask)])
        masks = sample["masks"].numpy()
        numbers = np.zeros(mask.shape, int)
        for row in sorted(range(len(masks)), key=lambda row: -int(masks[row].sum())):
            numbers[masks[row] == 1] = row + 1
        layer = site.pixels(f"/layer/{index}.png", field="masks")
        assert np.array_equal(layer[..., 3], np.where(numbers == 0, 0, 255))
        assert np.array_equal(layer[..., :3], colours[numbers])


def test_layers(site: Site, scenes: Path) -> None:
    """Boxes, points and outlines have the dataset's coordinates, and boxes the labels of their objects."""
    sample = PackedDataset(scenes)[8]
    document = site.document("/sample/8")
    layers = {layer["name"]: layer for layer in document["layers"]}
    assert set(layers) == {"mask", "boxes", "points", "masks", "lines"}
    left, top, right, bottom = sample["boxes"].double().numpy().T
    corners = np.stack([left, top, right, top, right, bottom, left, bottom], 1).reshape(-1, 1, 4, 2)
    assert np.abs(np.array(layers["boxes"]["shapes"]) - corners).max() <= 0.005001
    assert layers["boxes"]["texts"] == [str(label) for label in sample["labels"].tolist()]
    assert np.abs(np.array(layers["points"]["points"]) - sample["points"].double().numpy()).max() <= 0.005001
    assert [len(parts) for parts in layers["lines"]["shapes"]] == [len(parts) for parts in sample["lines"]]
    assert {field["name"] for field in document["fields"]} == {
        "number",
        "boxes",
        "labels",
        "points",
        "tokens",
        "lines",
    }
    assert site.document("/sample/2")["layers"][-1]["count"] == 1000


@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy"])
def test_corners_of_boxes(form: str) -> None:
    """Corners are those that torchvision converts each format to."""
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    rotated = torch.tensor(
        [[10.0, 20, 30, 14, 0], [50, 40, 21, 8, 33], [50, 40, 21, 8, -70], [9, 9, 3, 5, 170]],
        dtype=torch.float64,
    )
    upright = torch.tensor([[10.0, 20, 30, 34], [1, 2, 3, 4]], dtype=torch.float64)
    kinds = tv_tensors.BoundingBoxFormat
    start, given = (
        (kinds.CXCYWHR, rotated) if form in ("xywhr", "cxcywhr", "xyxyxyxy") else (kinds.XYXY, upright)
    )
    boxes = functional.convert_bounding_box_format(given, start, kinds[form.upper()])
    corners = box_corners(boxes.numpy(), form)
    if start is kinds.CXCYWHR:
        wanted = (
            functional.convert_bounding_box_format(given, start, kinds.XYXYXYXY).numpy().reshape(-1, 4, 2)
        )
    else:
        wanted = given.numpy()[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    assert np.allclose(corners, wanted)


def test_draws_are_what_a_loader_delivers(site: Site, scenes: Path) -> None:
    """Of each (seed, epoch, index) the very bytes of FastLoader's batch, and the boxes and masks that go
    with them."""
    transform = [transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip()]
    with serving(scenes, PageSettings(transform=transform)) as own:
        loader = FastLoader(PackedDataset(scenes, transform, fields=("image", "mask")), batch_size=8, seed=7)
        for epoch in range(3):
            batches = list(loader)  # the loader counts the epochs
            images, masks = (torch.cat([batch[part] for batch in batches]) for part in (0, 1))
            for index in (3, 8, 20):
                image = images[index].permute(1, 2, 0)
                assert np.array_equal(own.pixels(f"/draw/{index}.png", seed=7, epoch=epoch), image)
                layer = own.pixels(f"/draw-layer/{index}.png", seed=7, epoch=epoch, field="mask")
                assert np.array_equal(layer[..., 3] != 0, masks[index].numpy() != 0)
        found = own.document("/draws/8", seed=7, epoch=0, count=2)
        drawing = PackedDataset(scenes, transform).drawing(7, 1)[8]
        (boxes,) = (layer for layer in found["draws"][1]["pictures"][0]["layers"] if layer["name"] == "boxes")
        assert (
            np.abs(
                np.array(boxes["shapes"])[:, 0, [0, 2]].reshape(-1, 4) - drawing["boxes"].double().numpy()
            ).max()
            <= 0.005001
        )
    assert [draw["epoch"] for draw in site.document("/draws/8", epoch=5, count=3)["draws"]] == [5, 6, 7]


def test_draws_of_python_steps(packed: Path) -> None:
    """Steps in Python draw as in a loader with seed_by="sample", and leave the process's own generators as
    they were."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    transform = [
        transforms.RandomResizedCrop(64),
        v2.RandomSolarize(threshold=100, p=0.5),
        v2.GaussianBlur(5),
    ]
    with serving(packed, PageSettings(transform=transform)) as site:
        loader = FastLoader(
            PackedDataset(packed, transform), batch_size=10, seed=3, seed_by="sample", num_workers=0
        )
        images = torch.cat([batch[0] for batch in loader])
        before = torch.get_rng_state()
        for index in (0, 21, 42):
            assert np.array_equal(site.pixels(f"/draw/{index}.png", seed=3), images[index].permute(1, 2, 0))
        assert torch.equal(torch.get_rng_state(), before)


def test_draws_of_views_and_floats(packed: Path) -> None:
    """Each view is a picture, and Normalize is undone for the eye."""
    crop = transforms.RandomResizedCrop(48)
    normalize = transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    with serving(
        packed,
        PageSettings(transform=[transforms.Views([[crop, normalize], [transforms.Resize(32), normalize]])]),
    ) as site:
        pictures = site.document("/draws/4", count=1)["draws"][0]["pictures"]
        assert len(pictures) == 2
        assert "Normalize is undone" in pictures[0]["note"]
        plain = PackedDataset(packed, [transforms.Views([[crop], [transforms.Resize(32)]])], seed=0)[4][0]
        for view, path in enumerate(picture["path"] for picture in pictures):
            assert np.array_equal(site.pixels(f"/{path}"), plain[view].permute(1, 2, 0))


def test_a_transform_that_fails(packed: Path) -> None:
    """The sentence stands in the draw's place."""

    def breaks(image: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such luck")

    with serving(packed, PageSettings(transform=[transforms.Resize(32), breaks])) as site:
        (draw,) = site.document("/draws/1", count=1)["draws"]
        assert "ValueError: no such luck" in draw["error"]
        assert site.ask("/draw/1.png")[0] == 422


def test_facts(photos: Site, site: Site, packed: Path) -> None:
    """Classes are counted, each bar's condition finds as many samples as the bar says, and bars sum to all
    samples."""
    dataset = PackedDataset(packed)
    facts = photos.document("/facts")
    assert sorted(facts["classes"]) == [
        [name, i, dataset.targets.count(i)] for i, name in enumerate(dataset.classes)
    ]
    for each in (photos, site):
        for chart in each.document("/facts")["charts"]:
            assert sum(bar[1] for bar in chart["bars"]) == len(each.subject.dataset), chart["title"]
            for text, count, least, most in chart["bars"] if chart["name"] else ():
                name = '"' + chart["name"] + '"'
                condition = f"{name} = {least}" if most is None else f"{name} >= {least} and {name} < {most}"
                assert each.document("/rows", where=condition, count=1)["total"] == count, (
                    chart["title"],
                    text,
                )


def test_a_detection_dataset(tmp_path: Path) -> None:
    """An image has no class, whatever its id is; objects have theirs: over the image, on the sheet, and
    counted in the facts."""
    fastload.pack(write_coco(tmp_path / "src", images=5), tmp_path / "coco.fl", workers=1)
    with serving(tmp_path / "coco.fl") as site:
        assert site.document("/dataset")["label"] is None
        assert site.document("/dataset")["marked"]
        assert [row[1] for row in site.document("/rows")["rows"]] == [""] * 5
        names = ["person", "dog", "car"]
        for index in range(5):
            sample, sheet = site.document(f"/sample/{index}"), site.document(f"/layers/{index}", side=128)
            assert sample["label"] == ""
            (boxes,) = sheet["layers"]
            assert sample["layers"] == [boxes]
            assert boxes["texts"] == ([] if index == 1 else [names[row % 3] for row in range(index + 1)])
        facts = site.document("/facts")
        assert facts["classes"] == []
        (objects,) = facts["objects"]
        assert (objects["field"], objects["of"], objects["left"]) == ("labels", "boxes", 0)
        wanted = {
            name: sum(len(range(row, index + 1, 3)) for index in (0, 2, 3, 4))
            for row, name in enumerate(names)
        }
        assert {name: count for name, _, count in objects["classes"]} == wanted
        for _, label, _ in objects["classes"]:
            found = site.document("/rows", where=f'{label} in "labels"')["rows"]
            assert [row[0] for row in found] == [index for index in (0, 2, 3, 4) if index >= label]


def test_pictures_of_layers_are_reduced(site: Site) -> None:
    """A mask on the sheet has pixels of the mask, within the side that is asked for; another side is
    refused."""
    whole = site.pixels("/layer/8.png", field="mask")
    small = site.pixels("/layer/8.png", field="mask", side=64)
    step = -(-max(whole.shape) // 64)
    assert step > 1
    assert np.array_equal(small, whole[::step, ::step])
    assert site.ask("/layer/8.png?field=mask&side=63")[0] == 400
    layers = site.document("/layers/8", side=64)["layers"]
    assert {layer["picture"] for layer in layers if layer["form"] == "picture"} == {
        f"layer/8.png?field={name}&side=64" for name in ("mask", "masks")
    }


def test_a_bad_sample(packed: Path, tmp_path: Path) -> None:
    """A damaged record is a sentence where its picture would be; it is listed, as are all when all are
    checked, and others are shown."""
    dataset = tmp_path / "copy.fl"
    shutil.copytree(packed, dataset)
    damage(dataset, 3)
    with serving(dataset) as site:
        assert site.document("/bad") == {"bad": []}
        status, _, content = site.ask("/picture/3.png?side=128")
        assert status == 422
        assert b"sample 3 of" in content
        assert site.pixels("/picture/4.png", side=128).shape[2] == 3
        assert [index for index, _ in site.document("/bad")["bad"]] == [3]
        at = 0
        while at < 50:
            found = site.document("/check", start=at)
            assert found["next"] > at
            at = found["next"]
        assert [index for index, _ in site.document("/bad")["bad"]] == [3]
        assert "not those that were packed" in str(site.document("/sample/3")["facts"])
        assert "sample 3" in site.document("/draws/3", count=1)["draws"][0]["error"]


def damage(dataset: Path, index: int) -> None:
    """Changes one byte in the middle of a sample's image."""
    record = PackedDataset(dataset).opened.reader.record(index)
    for shard in sorted(dataset.glob("*.lmdb")):
        content = shard.read_bytes()
        at = content.find(record[100:400])
        if at >= 0:
            with shard.open("r+b") as file:
                file.seek(at + 150)
                file.write(bytes([content[at + 150] ^ 0xFF]))
            return
    raise AssertionError(f"sample {index} is in no shard")


def test_a_wrong_transform(packed: Path) -> None:
    """It is refused before anything is served."""
    with (
        pytest.raises((fastload.errors.TransformError, ArgumentError)),
        serving(packed, PageSettings(transform=[3])),
    ):
        pass
