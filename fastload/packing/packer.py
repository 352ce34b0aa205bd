"""pack: makes a dataset of a source, whose images it encodes and copies."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fastload.common.files import expanded
from fastload.common.limits import checked_max_pixels
from fastload.errors import PackError
from fastload.packing.job import PackJob, run_job
from fastload.packing.options import (
    BoxFormat,
    Check,
    Encode,
    Exif,
    Format,
    OnError,
    PackOptions,
    Paths,
    RunOptions,
    SourceOptions,
    Subsampling,
)
from fastload.packing.sources import open_source
from fastload.packing.sources.ray_data import with_rows
from fastload.packing.summary import PackSummary


def pack(
    source: object,
    out: str | os.PathLike[str],
    *,
    encode: Encode = "lossless",
    quality: int = 90,
    subsampling: Subsampling = "4:2:0",
    max_side: int | None = None,
    min_side: int | None = None,
    shard_size: str | int | None = None,
    shard_samples: int | None = None,
    workers: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    exif: Exif = "ignore",
    check: Check = "entropy",
    index: bool = True,
    optimize_huffman: bool = False,
    on_error: OnError = "raise",
    limit: int | None = None,
    max_pixels: int | None = None,
    path_column: str | int | None = None,
    label_column: str | int | None = None,
    header: bool | None = None,
    key_pattern: str | None = None,
    label_pattern: str | None = None,
    format: Format | None = None,
    annotations: Paths | None = None,
    masks: str | os.PathLike[str] | None = None,
    split: str | None = None,
    box_format: BoxFormat | None = None,
    overwrite: bool = False,
    resume: bool = False,
    staging: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    ray: bool | str | None = None,
    progress: bool = False,
) -> PackSummary:
    """Packs a source into the dataset directory `out`, or to a URL; the dataset exists once this returns, and not before.

    To a URL, each shard is uploaded as soon as it is complete; the local disk needs room for two.

    Args:
        source: a folder of class folders, a dataset in the layout of COCO, Pascal VOC, YOLO, Cityscapes or ADE20K, a folder of images and
            one of masks, a .csv/.tsv of path,label, .tar files (WebDataset), .parquet, .arrow or TFRecord files, a folder
            of MDS shards or LitData chunks, an LMDB file, a map-style Dataset, a ray.data.Dataset, or any
            `Source`.
        out: the directory to make, or a URL: ``s3://bucket/train.fl``, ``gs://``, ``az://``, ``file://``.
        encode: "lossless" (the same pixels: JPEGs keep their coefficients and lose their metadata, progressive and
            arithmetic ones become baseline, other formats become raw pixels, CMYK becomes RGB at quality 100), "keep" (every
            JPEG byte for byte), "jpeg" (all encoded anew) or "raw" (all decoded).
        quality: quality of JPEGs that are encoded, 1 to 100.
        subsampling: chroma subsampling of these JPEGs: "4:4:4", "4:2:2", "4:2:0", "gray".
        max_side: images whose longer side is longer are shrunk to it.
        min_side: images whose shorter side is longer are shrunk to it; with both, the smaller result.
        shard_size: bytes at which a new shard is begun, a number or "500MB"; 1 GiB by default.
        shard_samples: instead, each shard takes so many consecutive samples of the order: what is in which shard does not depend on sizes.
            A shard from which on_error="skip" left samples out has fewer.
        workers: threads that read and encode; the CPUs this process may use by default.
        shuffle: pack in a random order that `seed` decides.
        seed: seed of the shuffle.
        exif: "ignore" the orientation, as ImageFolder does, or "apply" it. Annotations of COCO, VOC and YOLO, and masks in folders, turn
            with their images, unless they are of the upright ones already; other sources with boxes or masks are refused with "apply".
        check: "entropy" walks the coded data of every JPEG, so that each that libjpeg-turbo would only decode with warnings is named; it
            costs about 0.4 ms of CPU time for 100 KB. "structure" walks the markers, and looks into the coded data of those files only
            whose markers are not as they should be (cut off, without an end, with bytes between segments, restarts out of order).
        index: store with each JPEG where in its coded data MCUs start (at most 1.5 % of its size), so that a crop is decoded without
            reading what comes before it; the JPEG itself is not changed. It is made in the walk of check="entropy".
        optimize_huffman: give JPEGs Huffman tables of their own: the same pixels in some per cent less, for about 4 ms of CPU time
            for 100 KB. Not with "keep" or "raw".
        on_error: "raise" at the first sample that cannot be packed, or "skip" such samples and name them.
        limit: pack the first so many samples (after the shuffle) only.
        max_pixels: larger images are refused before they are decoded; FASTLOAD_MAX_PIXELS or 2**28 by default.
        path_column: for a .csv or .tsv, the column of paths: its name in the header line, or its number from 0. Usual names (path,
            filename, image_path, ...) are recognised.
        label_column: likewise the column of labels (label, class, target, ...).
        header: True if the first line of a .csv or .tsv names the columns; None recognises it, or asks.
        key_pattern: for an LMDB file, the keys of images with their number, as in "image-%09d"; without it every key is an image's.
        label_pattern: likewise the keys of labels.
        format: the layout of a folder: "folder" (of class folders), "coco", "voc" (boxes), "voc-segmentation", "yolo", "cityscapes",
            "ade20k" or "pairs" (of images and masks). Usual ones are recognised.
        annotations: the JSON file of a dataset in COCO's form (instances, keypoints, captions, panoptic); `source` is the folder of its
            images, or one above it. It may be left out where the folder has only one. A list of several: of other images, or of other
            kinds of the same images, which are one by their ids.
        masks: the folder of the masks for the images in `source`, or of the PNGs of a panoptic dataset.
        split: the part of a dataset that is packed, if its layout has several: "train", "val", "train2017", ...
        box_format: for a column of objects as Hugging Face's detection datasets have it (`objects`, with `bbox` and `category`), in Parquet
            and Arrow files or a Dataset, the format of the boxes: "xywh" (as COCO has them), "xyxy", "cxcywh", ... The boxes, their
            labels and the other members of each object become fields. Without it the column is JSON: it does not say what the numbers are.
        overwrite: replace a dataset, finished or half-written, at `out`.
        resume: go on with a half-written one, made with the same options; on_error, limit, max_pixels and workers may be others. What is
            written already must be in the source as it was; a sample that is not written yet may be mended, removed or added.
        staging: for a URL, the local folder of shards that are being written, and of the journal, which resume=True needs; by default one
            of its own for each URL in `staging` of the cache folder ($FASTLOAD_CACHE, or ~/.cache/fastload).
        storage_options: for a URL, options of the store: ``endpoint``, ``region``, ...; the environment by default.
        ray: pack on a Ray cluster: True for the one that ``ray.init()`` finds or starts, or an address ("auto", "10.0.0.5:6379"). Every
            shard is a task; `out` is a URL or a folder that all nodes share, and they all see the source. With the same shard_samples
            the dataset is that of a pack on one machine, byte for byte; without it, a shard takes a 64th of the samples, and at most
            8192. `workers` are the threads of each task, 1 by default; `staging` is a folder of each node. Needs fastload[ray].
        progress: show a bar on the terminal.

    Returns:
        PackSummary: the counts of what was done.

    Raises:
        ArgumentError: an argument out of range, or two that contradict each other.
        RemoteError: the store does not answer, or denies access.
        PackError: the source or a sample cannot be packed (PackStoppedError), `out` is in the way, the disk is full. What has been
            written stays, for resume=True.
    """
    options = PackOptions(
        encode=encode,
        quality=quality,
        subsampling=subsampling,
        max_side=max_side,
        min_side=min_side,
        exif=exif,
        check=check,
        index=index,
        optimize_huffman=optimize_huffman,
        on_error=on_error,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        max_pixels=checked_max_pixels(max_pixels),
    )
    run = RunOptions(
        shard_size=shard_size,
        shard_samples=shard_samples,
        workers=workers,
        overwrite=overwrite,
        resume=resume,
        staging=staging,
        storage_options=storage_options,
        ray=ray or None,
        progress=progress,
    )
    if overwrite:
        refuse_source_inside(source, out)
    reading = SourceOptions.of(
        path_column=path_column,
        label_column=label_column,
        header=header,
        key_pattern=key_pattern,
        label_pattern=label_pattern,
        format=format,
        annotations=annotations,
        masks=masks,
        split=split,
        box_format=box_format,
    )
    source = with_rows(source)
    job = PackJob(open_source(source, reading), options)
    if run.ray is None:
        return run_job(job, out, run)
    from fastload.packing.cluster.cluster_plan import SourceSpec
    from fastload.packing.cluster.driver import run_on_cluster

    return run_on_cluster(job, SourceSpec.of(source, reading), out, run)


def refuse_source_inside(source: object, out: str | os.PathLike[str]) -> None:
    """Raises PackError if the source lies inside `out`: overwriting would remove what is to be packed."""
    if not isinstance(source, str | os.PathLike):
        return
    inner, outer = os.path.realpath(expanded(source)), os.path.realpath(expanded(out))
    if inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep):
        raise PackError(f"{os.fspath(out)}: the source lies in it; overwriting would remove what is to be packed")
