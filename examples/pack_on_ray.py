"""Packs a folder of class folders on a Ray cluster: as it is, or through ray.data, where every image passes a
function of yours.

    python examples/pack_on_ray.py /shared/photos /shared/train.fl --address 10.0.0.5:6379
    python examples/pack_on_ray.py /shared/photos s3://bucket/train.fl --least-bytes 4096

Needs `torch-fastload[ray]` on every node, and a source that every node sees under the same path. Without
--address it takes the cluster that ray.init() finds, or starts one on this machine. What was stopped goes on
with --resume.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import ray

import fastload


def rows(folder: str, least: int) -> Any:
    """The images of a folder of class folders as a ray.data.Dataset, without files of fewer bytes than
    `least`."""
    classes = {name: number for number, name in enumerate(sorted(os.listdir(folder)))}

    def row(file: dict[str, Any]) -> dict[str, Any]:
        return {
            "image": file["bytes"],
            "label": classes[os.path.basename(os.path.dirname(file["path"]))],
            "path": file["path"],
        }

    return (
        ray.data.read_binary_files(folder, include_paths=True)
        .filter(lambda file: len(file["bytes"]) >= least)
        .map(row)
    )


def main() -> None:
    """Packs, and says what was done."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("source", help="a folder of class folders that all nodes see")
    made.add_argument("out", help="a folder that all nodes share, or a URL")
    made.add_argument("--address", help="of the cluster")
    made.add_argument("--shard-samples", type=int, default=8192)
    made.add_argument("--least-bytes", type=int, help="leave out smaller files, by ray.data")
    made.add_argument("--resume", action="store_true", help="go on with a pack that was stopped")
    arguments = made.parse_args()
    ray.init(address=arguments.address, log_to_driver=False)
    source = os.path.abspath(arguments.source)
    summary = fastload.pack(
        source if arguments.least_bytes is None else rows(source, arguments.least_bytes),
        arguments.out,
        shard_samples=arguments.shard_samples,
        on_error="skip",
        resume=arguments.resume,
        ray=True,
    )
    print(
        f"{summary.samples} samples in {summary.shards} shards, {summary.skipped_count} left out, "
        f"{summary.images_per_second:.0f} images/s"
    )


if __name__ == "__main__":
    main()
