"""Training from a bucket: an S3 server on this machine, real photographs packed into it, two epochs through a
cache. `make demo-remote`.

    python examples/demo_remote.py [CLASS-FOLDERS]

The server is SeaweedFS, started here and ended here; with a bucket elsewhere, leave it out and set your own
AWS_* variables. Without a folder of photographs of your own, those of demo.py are taken.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from demo import OUT, console, fastload, train, write_source

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from servers.seaweedfs import SeaweedFS

from fastload import FastLoader

BUCKET = "demo"
URL = f"s3://{BUCKET}/photos.fl"
HERE = OUT / "remote"


def credentials(server: SeaweedFS) -> dict[str, str]:
    """The environment by which S3 clients find a server."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_REGION": "us-east-1",
    }


class Fetched:
    """Prints after each epoch what it fetched from the bucket."""

    def __init__(self) -> None:
        self.before = 0

    def __call__(self, loader: FastLoader) -> None:
        now = loader.stats()["fetched_bytes"]
        console.print(f"         fetched from {URL}: {(now - self.before) / 1e6:.1f} MB")
        self.before = now


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    console.rule("1. Photographs")
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "photos"
    if len(sys.argv) < 2:
        write_source(source)

    console.rule("2. A bucket: SeaweedFS, on this machine")
    with SeaweedFS((HERE / "server").absolute()) as server:
        server.make_bucket(BUCKET)
        os.environ.update(credentials(server))
        os.environ["FASTLOAD_CACHE"] = str((HERE / "cache").absolute())
        console.print(f"{server.endpoint}, bucket {BUCKET}; its address and keys are in AWS_* variables")

        console.rule("3. Pack the photographs into it")
        fastload("pack", source, URL)

        console.rule("4. Train a small CNN from it")
        train(URL, Fetched())

        console.rule("5. What is on the local disk now")
        fastload("cache")
    console.rule("Done")
    console.print("The server has ended. Its data and the cache are in demo/remote.")


if __name__ == "__main__":
    main()
