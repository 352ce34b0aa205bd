"""A ray.data.Dataset is a source, with and without a cluster: its rows in its order, images as bytes or
pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_helpers import files_of
from packing_helpers import encoded, picture, stored_samples

import fastload
from fastload.errors import PackError

# ray.data's own warnings, of its imports and of its defaults
pytestmark = [pytest.mark.long, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]
ROWS = 23


@pytest.fixture(scope="module")
def connected(cluster: Any) -> Any:
    """The process is connected to the cluster, as the program of somebody who uses ray.data is."""
    import ray

    ray.init(address=cluster.address, log_to_driver=False, ignore_reinit_error=True)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


def test_bytes_and_fields(tmp_path: Path, connected: Any) -> None:
    """Rows with encoded images and objects: the same dataset as of a list of the same rows, whether a
    cluster packs it or this process."""

    def row(i: int) -> dict[str, Any]:
        objects = {"bbox": [[n, 1.5, 3, 4] for n in range(i % 4)], "category": [n % 2 for n in range(i % 4)]}
        return {
            "image": encoded(picture(i, 16 + i, 24)),
            "label": i % 5,
            "caption": f"number {i}",
            "objects": objects,
        }

    rows = [row(i) for i in range(ROWS)]

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "label": row["label"] + 1}

    dataset = connected.data.from_items(rows, override_num_blocks=4).map(counted)
    fastload.pack([counted(row) for row in rows], tmp_path / "list", shard_samples=5, box_format="xywh")  # type: ignore[arg-type]
    fastload.pack(dataset, tmp_path / "one", shard_samples=5, box_format="xywh")
    fastload.pack(dataset, tmp_path / "many", shard_samples=5, ray=True, box_format="xywh")
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert [sample.data for sample in stored_samples(tmp_path / "one")] == [row["image"] for row in rows]
    assert [sample.values for sample in stored_samples(tmp_path / "one")] == [
        s.values for s in stored_samples(tmp_path / "list")
    ]
    for number, want in enumerate(rows):
        sample = fastload.PackedDataset(tmp_path / "many")[number]
        assert (sample["boxes"].tolist(), sample["labels"].tolist()) == (
            want["objects"]["bbox"],
            want["objects"]["category"],
        )


def test_pixels(tmp_path: Path, connected: Any) -> None:
    """Images as arrays of different shapes."""
    images = [np.asarray(picture(i, 10 + i % 3, 12)) for i in range(9)]
    dataset = connected.data.from_items(
        [{"image": image, "label": i} for i, image in enumerate(images)], override_num_blocks=2
    )
    fastload.pack(dataset, tmp_path / "out", shard_samples=4, shuffle=False, ray=True)
    for sample, image in zip(stored_samples(tmp_path / "out"), images, strict=True):
        np.testing.assert_array_equal(sample.pixels, image)


def test_a_dataset_that_fails(tmp_path: Path, connected: Any) -> None:
    """What the dataset's own function raises is the reason in one error."""

    def broken(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no such luck")

    with pytest.raises(PackError, match="no such luck"):
        fastload.pack(connected.data.range(4).map(broken), tmp_path / "out")
