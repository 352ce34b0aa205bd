"""The child process of bench_remote.py for other libraries, run by the Python of each: ``python
remote_peer.py SPEC``.

It makes a library's dataset of a CLASS/IMAGE tree, or trains from one in a bucket, and speaks as
remote_turn.py does. It imports no fastload. Every library gets the files' own JPEG bytes in chunks or shards
of 16 MB: with their default of 64 MB a cache of half of so small a dataset is refused by one, and another
stands still in it. The transform is the same for all: Pillow's decoder, torchvision's RandomResizedCrop(224)
written out, a flip, uint8.
"""

from __future__ import annotations

import io
import json
import math
import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from remote_lines import event, say

HERE = Path(__file__).resolve().parent
SIZE = 224
BATCH = 64
CHUNK = 16_000_000
WDS_BUFFER = 1000  # samples, as in WebDataset's own examples
Json = dict[str, Any]


def files_of(tree: Path) -> list[tuple[str, int]]:
    """(path, class number) of every image, class after class."""
    classes = sorted(each for each in tree.iterdir() if each.is_dir())
    return [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]


def transformed(data: bytes) -> Any:
    """A 3 x 224 x 224 uint8 tensor of a JPEG: RandomResizedCrop and a flip, by Pillow."""
    import numpy as np
    import torch
    from PIL import Image
    from PIL.JpegImagePlugin import JpegImageFile

    with JpegImageFile(io.BytesIO(data)) as opened:
        picture = opened.convert("RGB")
    width, height = picture.size
    box = (0, 0, width, height)
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            x, y = random.randint(0, width - wide), random.randint(0, height - high)
            box = (x, y, x + wide, y + high)
            break
    picture = picture.crop(box).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def numbered(data: bytes, label: int) -> tuple[Any, int]:
    """A sample for the batch; where NUMBERS is set, the number in the photograph's comment alone, which
    bench_foreign.py wrote there."""
    return (0, int.from_bytes(data[6:10], "big")) if NUMBERS in os.environ else (transformed(data), label)


NUMBERS = "FASTLOAD_BENCH_NUMBERS"


def sample(item: Json) -> tuple[Any, int]:
    """A sample of LitData or Streaming, for the batch."""
    return numbered(item["image"], int(item["label"]))


# ---- LitData


def read_item(item: tuple[str, int]) -> Json:
    """An item as LitData stores it."""
    return {"image": Path(item[0]).read_bytes(), "label": item[1]}


def make_litdata(tree: Path, out: Path) -> None:
    """LitData's own optimize, one worker, so that classes follow each other."""
    import litdata

    litdata.optimize(read_item, inputs=files_of(tree), output_dir=str(out), chunk_bytes=CHUNK, num_workers=1)


def allow_http() -> None:
    """Lets LitData read from this machine's server, which speaks plain HTTP."""
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True


def load_litdata(spec: Json) -> Any:
    """StreamingDataset in StreamingDataLoader; obstore is installed beside."""
    import litdata

    allow_http()
    more = {} if spec["limit"] is None else {"max_cache_size": f"{spec['limit'] // 1000}kb"}
    dataset = litdata.StreamingDataset(
        spec["url"],
        cache_dir=spec["cache"],
        shuffle=True,
        seed=spec["seed"],
        storage_options={
            "endpoint_url": spec["options"]["endpoint"],
            "aws_access_key_id": spec["options"]["access_key_id"],
            "aws_secret_access_key": spec["options"]["secret_access_key"],
            "region_name": spec["options"]["region"],
        },
        transform=sample,
        **more,
    )
    return litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=spec["workers"], persistent_workers=True
    )


def use_environment(options: Json) -> None:
    """Names the store as boto3, s3fs and Mosaic Streaming take it."""
    os.environ |= {
        "AWS_ENDPOINT_URL": options["endpoint"],
        "S3_ENDPOINT_URL": options["endpoint"],
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_DEFAULT_REGION": options["region"],
    }


def load_litdata_raw(spec: Json) -> Any:
    """StreamingRawDataset of class folders, its files cached, in torch's DataLoader."""
    import litdata
    import torch

    use_environment(spec["options"])
    allow_http()

    class Dataset(litdata.StreamingRawDataset):  # type: ignore[misc,name-defined]
        def __getitems__(self, indices: list[int]) -> list[tuple[Any, int]]:
            labels = [int(self.items[each].path.split("/")[-2]) for each in indices]
            return [
                numbered(data, label)
                for data, label in zip(super().__getitems__(indices), labels, strict=True)
            ]

    dataset = Dataset(spec["url"], cache_dir=spec["cache"], cache_files=True)
    return _in_loader(torch, dataset, spec, shuffle=True)


def parquet_sample(found: Any) -> tuple[Any, int]:
    """A sample of LitData's Parquet, for the batch."""
    image, label = found.values() if isinstance(found, dict) else found
    return numbered(image["bytes"], int(label))


def load_litdata_parquet(spec: Json) -> Any:
    """StreamingDataset of Parquet files, which are indexed first, in StreamingDataLoader; it asks for spawned
    workers."""
    import litdata
    from litdata.streaming.item_loader import ParquetLoader

    use_environment(spec["options"])
    allow_http()
    litdata.index_parquet_dataset(spec["url"])

    dataset = litdata.StreamingDataset(
        spec["url"],
        item_loader=ParquetLoader(),
        cache_dir=spec["cache"],
        shuffle=True,
        seed=spec["seed"],
        transform=parquet_sample,
    )
    return litdata.StreamingDataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=spec["workers"],
        persistent_workers=True,
        multiprocessing_context="spawn",
    )


def _in_loader(torch: Any, dataset: Any, spec: Json, **more: Any) -> Any:
    """torch's DataLoader, or for a resume torchdata's, which has a state."""
    if NUMBERS in os.environ:
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(dataset, batch_size=BATCH, num_workers=spec["workers"], **more)
    return torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, num_workers=spec["workers"], persistent_workers=True, **more
    )


# ---- Mosaic Streaming


def import_streaming() -> Any:
    """The library; it imports torchvision, which needs help beside torch's CPU build."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import torchvision_ops

    assert torchvision_ops
    import streaming

    return streaming


def make_streaming(tree: Path, out: Path) -> None:
    """MDS shards."""
    with import_streaming().MDSWriter(
        out=str(out), columns={"image": "bytes", "label": "int"}, size_limit=CHUNK
    ) as writer:
        for item in files_of(tree):
            writer.write(read_item(item))


def load_streaming(spec: Json) -> Any:
    """StreamingDataset in torch's DataLoader, as its documentation has it."""
    import torch

    use_environment(spec["options"])
    streaming = import_streaming()
    streaming.base.util.clean_stale_shared_memory()  # of a turn that was ended

    class Dataset(streaming.StreamingDataset):  # type: ignore[misc,name-defined]
        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            return sample({"image": found["jpg"], "label": found["cls"]} if "jpg" in found else found)

    dataset = Dataset(
        remote=spec["url"],
        local=spec["cache"],
        shuffle=True,
        shuffle_seed=spec["seed"],
        batch_size=BATCH,
        cache_limit=spec["limit"],
        **spec["more"],
    )
    if NUMBERS in os.environ:
        return streaming.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=spec["workers"])
    return torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, num_workers=spec["workers"], persistent_workers=True
    )


# ---- WebDataset


def make_webdataset(tree: Path, out: Path) -> None:
    """Tar files."""
    import webdataset

    out.mkdir(parents=True)
    with webdataset.ShardWriter(
        f"file:{out}/train-%05d.tar", maxcount=10**9, maxsize=CHUNK, verbose=0
    ) as writer:
        for number, (path, label) in enumerate(files_of(tree)):
            writer.write(
                {"__key__": f"{number:08d}", "jpg": Path(path).read_bytes(), "cls": str(label).encode()}
            )


def tar_sample(found: tuple[bytes, bytes]) -> tuple[Any, int]:
    """A sample of WebDataset, for the batch."""
    return numbered(found[0], int(found[1]))


def load_webdataset(spec: Json) -> Any:
    """Shards in random order, cached, a shuffle buffer, batches made in the workers."""
    import webdataset

    options = {} if spec["limit"] is None else {"cache_size": spec["limit"]}
    dataset = (
        webdataset.WebDataset(
            spec["urls"], shardshuffle=100, cache_dir=spec["cache"], seed=spec["seed"], **options
        )
        .shuffle(WDS_BUFFER)
        .to_tuple("jpg", "cls")
        .map(tar_sample)
        .batched(BATCH)
    )
    return webdataset.WebLoader(
        dataset, batch_size=None, num_workers=spec["workers"], persistent_workers=True
    )


# ---- Hugging Face's streaming, of tars that are there


def load_datasets(spec: Json) -> Any:
    """IterableDataset of tars in torch's DataLoader: shards in random order, and a shuffle buffer. It keeps
    nothing."""
    import datasets
    import torch

    def made(row: Json) -> Json:
        image, label = tar_sample((row["jpg"]["bytes"], str(row["cls"]).encode()))
        return {"image": image, "label": label}

    found = datasets.load_dataset(
        "webdataset", data_files={"train": spec["urls"]}, split="train", streaming=True
    )
    found = found.cast_column("jpg", datasets.Image(decode=False))
    found = found.shuffle(seed=spec["seed"], buffer_size=WDS_BUFFER).map(
        made, remove_columns=found.column_names
    )
    return _in_loader(torch, found.with_format("torch"), spec, collate_fn=_pairs)


def _pairs(rows: list[Json]) -> tuple[Any, list[int]]:
    import torch

    images = [torch.as_tensor(row["image"], dtype=torch.uint8) for row in rows]
    return torch.stack(images), [int(row["label"]) for row in rows]


MAKERS = {"litdata": make_litdata, "streaming": make_streaming, "webdataset": make_webdataset}
LOADERS = {
    "litdata": load_litdata,
    "streaming": load_streaming,
    "webdataset": load_webdataset,
    "datasets": load_datasets,
    "litdata_raw": load_litdata_raw,
    "litdata_parquet": load_litdata_parquet,
}


def train(spec: Json) -> Json:
    """Epochs, or with none of them the first batch."""
    import torch

    torch.set_num_threads(1)
    random.seed(spec["seed"])
    if spec["library"] == "streaming":
        import_streaming()
    else:
        __import__(spec["library"].partition("_")[0])
    began = time.perf_counter()
    loader = LOADERS[spec["library"]](spec)
    open_s = time.perf_counter() - began
    event("opened")
    epochs: list[Json] = []
    classes: list[int] = []
    first_s, start = 0.0, time.perf_counter()
    for number in range(spec["epochs"] or 1):
        images, arrived = 0, start
        for at, (_, labels) in enumerate(loader):
            arrived = time.perf_counter()
            if number == 0 and at == 0:
                first_s = open_s + arrived - start
                if not spec["epochs"]:
                    return {"open_s": open_s, "first_s": first_s}
            labels = [int(each) for each in labels]
            images += len(labels)
            if len(labels) == BATCH:
                classes.append(len(set(labels)))
        epochs.append({"images": images, "wall_s": arrived - start})
        start = arrived
        event("epoch")
    return {"open_s": open_s, "first_s": first_s, "epochs": epochs, "classes": sum(classes) / len(classes)}


def resume(spec: Json) -> Json:
    """Stops after some batches of the first epoch, and goes on in a new loader: how many samples came never,
    and how many twice."""
    os.environ[NUMBERS] = "1"
    random.seed(spec["seed"])
    loader, seen = LOADERS[spec["library"]](spec), list[int]()
    if not hasattr(loader, "state_dict"):
        return {"resume": "no state"}
    for at, (_, numbers) in enumerate(loader, 1):
        seen += [int(each) for each in numbers]
        if at == spec["stop"]:
            state = loader.state_dict()
            break
    del loader
    random.seed(spec["seed"])
    loader = LOADERS[spec["library"]](spec)
    loader.load_state_dict(state)
    for _, numbers in loader:
        seen += [int(each) for each in numbers]
    return {"resume": f"{spec['count'] - len(set(seen)):,} lost, {len(seen) - len(set(seen)):,} twice"}


def main() -> int:
    """Makes a dataset, or takes a turn."""
    spec = json.loads(sys.argv[1])
    if spec["mode"] == "make":
        MAKERS[spec["library"]](Path(spec["tree"]), Path(spec["out"]))
        say(result={"ok": True})
        return 0
    shutil.rmtree(spec["cache"], ignore_errors=True)
    os.makedirs(spec["cache"])
    try:
        result = {"ok": True, **(resume if spec["mode"] == "resume" else train)(spec)}
    except Exception as error:  # a row of the table
        lines = str(error).strip().splitlines() or [""]
        lines = [line for line in str(error).splitlines() if line.strip(' {}()[],"')] or [""]
        result = {"ok": False, "reason": f"{type(error).__name__}: {lines[-1].strip()}"[:300]}
    say(result=result)
    sys.stdout.flush()
    os._exit(0)  # workers that hang are the parent's to end


if __name__ == "__mp_main__":  # a spawned worker of LitData's
    allow_http()
if __name__ == "__main__":
    sys.exit(main())
