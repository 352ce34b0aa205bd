"""One turn of bench_cluster.py, in a process of its own: `python cluster_turn.py RAYLETS SOURCE OUT OPTIONS`;
prints JSON.

It starts a cluster of so many raylets of one CPU each, connects to it, and packs some images of SOURCE first,
so that a worker process runs on each raylet and has imported fastload. Then it times one pack of all of
SOURCE. OPTIONS are keywords of fastload.pack, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time


def main() -> None:
    """Runs the turn."""
    raylets, source, out, options = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    folder = tempfile.mkdtemp(prefix="flray-", dir="/tmp")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
    import ray
    from ray.cluster_utils import Cluster

    import fastload

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(raylets - 1):
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        fastload.pack(source, out, **{**options, "shard_samples": 8}, limit=8 * 16, ray=True)
        shutil.rmtree(out)
        os.sync()
        start = time.perf_counter()
        summary = fastload.pack(source, out, ray=True, **options)
        seconds = time.perf_counter() - start
        sys.stdout.write(
            json.dumps(
                {"seconds": seconds, "samples": summary.samples, "mb_per_s": summary.bytes_in / 1e6 / seconds}
            )
            + "\n"
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
