"""The page of samples of any number of images: each image, with its sample's fields and draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from documents import documents, write_parquet
from pictures import by_pillow
from serving import Site, serving

import fastload
from fastload import FastLoader, PackedDataset
from fastload.errors import ArgumentError
from fastload.versions import drop
from fastload.view.draws import DEFAULT
from fastload.view.opening import open_subject
from fastload.view.report import write_report
from fastload.view.subject import PageSettings

DROPPED = 2


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents without one, whose images nobody names any more."""
    folder = tmp_path_factory.mktemp("lists")
    fastload.pack(write_parquet(folder / "a.parquet"), folder / "documents.fl", encode="keep")
    drop(folder / "documents.fl", indices=[DROPPED])
    return folder / "documents.fl"


@pytest.fixture(scope="module")
def site(lists: Path) -> Iterator[Site]:
    with serving(lists) as found:
        yield found


def images() -> list[tuple[int, int, int, bytes]]:
    """(sample, its row, number, file) of each image."""
    rows = [row for row in documents() if row["n"] != DROPPED]
    return [
        (sample, row["n"], number, data)
        for sample, row in enumerate(rows)
        for number, data in enumerate(row["images"])
    ]


def test_every_image_with_its_samples_fields(site: Site) -> None:
    wanted, found = images(), site.document("/rows", start=0, count=500)
    assert found["total"] == len(wanted)
    for (index, _, width, height), (sample, row, number, data) in zip(found["rows"], wanted, strict=True):
        pixels = by_pillow(data)
        assert pixels is not None
        assert (height, width) == pixels.shape[:2]
        assert np.array_equal(site.pixels(f"/picture/{index}.png", side=2048), pixels)
        fields = {each["name"]: each["text"] for each in site.document(f"/sample/{index}")["fields"]}
        assert fields["sample"] == f"{sample}, its image {number}"
        assert (fields["text"], fields["n"]) == (f"No. {row}", str(row))


def test_conditions_are_on_samples(site: Site) -> None:
    about = site.document("/dataset")
    assert about["example"] == "images_count > 1"
    assert ["n", "int"] in about["fields"]
    found = site.document("/rows", where="images_count > 1 and n < 8")["rows"]
    all_of = [each[0] for each in site.document("/rows")["rows"]]
    rows = {row["n"]: len(row["images"]) for row in documents()}
    wanted = [at for at, (_, row, _, _) in zip(all_of, images(), strict=True) if rows[row] > 1 and row < 8]
    assert [each[0] for each in found] == wanted
    second = site.document(f"/sample/{wanted[1]}", where="images_count > 1 and n < 8")
    assert (second["before"], second["after"]) == (wanted[0], wanted[2])
    titles = [chart["title"] for chart in site.document("/facts")["charts"]]
    assert {"number of images", "n"} <= set(titles)


def test_draws_are_what_loaders_deliver(site: Site, lists: Path) -> None:
    """One draw for all images of a sample."""
    dataset = PackedDataset(lists, list(DEFAULT))
    with FastLoader(dataset, 1, seed=3, num_workers=1, collate="list", shuffle=False) as loader:
        delivered = [image for batch in loader for image in batch[0]["images"]]
    rows = site.document("/rows")["rows"]
    for (index, *_), image in zip(rows, delivered, strict=True):
        (draw,) = site.document(f"/draws/{index}", seed=3, epoch=0, count=1)["draws"]
        shown = site.pixels("/" + draw["pictures"][0]["path"])
        assert np.array_equal(shown, image.numpy().transpose(1, 2, 0))


def test_an_image_of_no_sample_is_said(site: Site) -> None:
    gone = {*range(len(images()) + 3)} - {each[0] for each in site.document("/rows")["rows"]}
    assert gone
    status, _, content = site.ask(f"/sample/{min(gone)}")
    assert status == 400
    assert b"is of no sample of this version" in content


def test_a_report_on_samples_without_images_is_refused(lists: Path, tmp_path: Path) -> None:
    """By another sentence than where there is no sample."""
    for where, told in (
        ("images_count = 0", "the chosen samples have no images"),
        ("images_count > 99", "the condition is true for none"),
    ):
        subject = open_subject(str(lists), PageSettings(where=where))
        with closing(subject), pytest.raises(ArgumentError, match=f"no sample to report on: .*{told}"):
            write_report(subject, tmp_path / "v.html")
