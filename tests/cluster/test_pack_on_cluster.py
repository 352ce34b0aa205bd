"""pack(ray=...) makes the dataset of a pack on one machine, byte for byte, whatever is lost on the way;
nothing of it stays in OUT."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import COUNT, EACH, counts, files_of, folder, path_of
from packing_helpers import encoded, picture
from servers.seaweedfs import SeaweedFS
from sources import Kills

import fastload
from fastload.errors import PackError, PackStoppedError
from fastload.packing import export
from fastload.remote.client import open_objects
from fastload.sources.folder import FolderSource
from fastload.store import JOURNAL_NAME

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    "how", [{}, {"shuffle": True, "seed": 3, "limit": 33, "workers": 1}, {"encode": "dct"}]
)
def test_the_same_bytes(tmp_path: Path, cluster: Any, how: dict[str, Any]) -> None:
    """Every file equals that of a pack on one machine with the same shard_samples; so does the summary."""
    source = folder(tmp_path / "src")
    one = fastload.pack(source, tmp_path / "one", shard_samples=EACH, **how)
    many = fastload.pack(source, tmp_path / "many", shard_samples=EACH, ray=cluster.address, **how)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert counts(many) == counts(one)
    assert many.packed_now == one.packed_now


def test_relative_paths_and_objects(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source named from the working directory, with names as the user wrote them, and a Dataset that is
    sent to the tasks."""
    folder(tmp_path / "src", bad=(9,))
    monkeypatch.chdir(tmp_path)
    rows = [{"image": encoded(picture(i, 16, 24)), "label": i % 3} for i in range(9)]
    for name, source in (("path", "src"), ("rows", rows)):
        one = fastload.pack(source, f"{name}-one", shard_samples=EACH, on_error="skip")
        many = fastload.pack(source, f"{name}-many", shard_samples=EACH, on_error="skip", ray=cluster.address)
        assert files_of(Path(f"{name}-many")) == files_of(Path(f"{name}-one"))
        assert counts(many) == counts(one)


def test_tars_in_a_store(tmp_path: Path, cluster: Any, seaweedfs: SeaweedFS, monkeypatch: Any) -> None:
    """The driver lists them, and the tasks read their samples of the same objects."""
    folder(tmp_path / "src")
    fastload.pack(tmp_path / "src", tmp_path / "packed")
    export(tmp_path / "packed", tmp_path / "a.tar")
    objects = open_objects("s3://fastload/cluster", seaweedfs.options(), 20)
    objects.put("a.tar", (tmp_path / "a.tar").read_bytes())
    objects.close()
    one = fastload.pack(tmp_path / "a.tar", tmp_path / "one", shard_samples=EACH)
    monkeypatch.chdir(tmp_path / "src")
    options = {"ray": cluster.address, "storage_options": seaweedfs.options()}
    many = fastload.pack("s3://fastload/cluster/*.tar", tmp_path / "many", shard_samples=EACH, **options)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert counts(many) == counts(one)


def test_complete_datasets(tmp_path: Path, cluster: Any) -> None:
    """A complete dataset is left alone, replaced by overwrite, and found complete by resume; other options
    are refused."""
    source, out = folder(tmp_path / "src"), tmp_path / "out"
    fastload.pack(source, out, shard_samples=EACH, ray=cluster.address)
    first = files_of(out)
    with pytest.raises(PackError, match="already holds a packed dataset"):
        fastload.pack(source, out, shard_samples=EACH, ray=cluster.address)
    assert fastload.pack(source, out, shard_samples=EACH, ray=cluster.address, resume=True).packed_now == 0
    assert fastload.pack(source, out, shard_samples=EACH, resume=True).packed_now == 0
    with pytest.raises(PackError, match="quality=90"):
        fastload.pack(source, out, ray=cluster.address, resume=True, quality=80)
    assert files_of(out) == first
    fastload.pack(source, out, shard_samples=20, ray=cluster.address, overwrite=True)
    assert len(list(out.glob("*.lmdb"))) == 2


def test_the_first_bad_sample_is_named(tmp_path: Path, cluster: Any) -> None:
    """Under on_error="raise" it is the first by position, whichever task failed first; a resume makes only
    what is missing."""
    bad = (9, 20, 38)
    source, out, one = folder(tmp_path / "src", bad), tmp_path / "out", tmp_path / "one"
    with pytest.raises(PackStoppedError, match=r"0009\.jpg"):
        fastload.pack(source, out, shard_samples=EACH, ray=cluster.address)
    assert (out / "shard-00000.done").exists()
    assert not list(out.glob("*.part"))
    with pytest.raises(PackError, match="holds an unfinished pack"):
        fastload.pack(source, out, shard_samples=EACH, ray=cluster.address)
    with pytest.raises(PackError, match="was begun on a cluster"):
        fastload.pack(source, out, shard_samples=EACH, resume=True)
    for number in bad:
        path_of(source, number).write_bytes(encoded(picture(number, 20, 30)))
    summary = fastload.pack(source, out, ray=cluster.address, resume=True)
    assert summary.packed_now <= COUNT - EACH
    fastload.pack(source, one, shard_samples=EACH)
    assert files_of(out) == files_of(one)


def test_bad_samples_are_left_out(tmp_path: Path, cluster: Any) -> None:
    """Under on_error="skip" counts, names and their order are those of one machine; a range without a
    sample has no shard."""
    source = folder(tmp_path / "src", (0, 9, *range(12, 18), 39))
    one = fastload.pack(source, tmp_path / "one", shard_samples=EACH, on_error="skip")
    many = fastload.pack(source, tmp_path / "many", shard_samples=EACH, on_error="skip", ray=cluster.address)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert counts(many) == counts(one)
    nothing = folder(tmp_path / "nothing", tuple(range(4)), 4)
    with pytest.raises(PackError, match="none of its 4 samples could be packed; the first"):
        fastload.pack(nothing, tmp_path / "none", on_error="skip", ray=cluster.address)


def test_a_worker_killed(tmp_path: Path, cluster: Any) -> None:
    """A worker process ends by signal 9 in the midst of a shard: Ray runs its task again."""
    root, flag = folder(tmp_path / "src"), tmp_path / "killed"
    fastload.pack(FolderSource(str(root)), tmp_path / "one", shard_samples=EACH)
    fastload.pack(Kills(root, 15, flag), tmp_path / "many", shard_samples=EACH, ray=cluster.address)
    assert flag.exists()
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")


def test_a_raylet_killed(tmp_path: Path, cluster: Any) -> None:
    """A node dies in the midst: the others make its shards."""
    root, waiting, flag, out = (
        folder(tmp_path / "src"),
        tmp_path / "waiting",
        tmp_path / "go",
        tmp_path / "many",
    )
    waiting.mkdir()
    fastload.pack(FolderSource(str(root)), tmp_path / "one", shard_samples=EACH)
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
    script = (
        "import sys, fastload; from pathlib import Path; from sources import Waits;"
        "root, waiting, flag, out, address = sys.argv[1:];"
        f"fastload.pack(Waits(Path(root), Path(waiting), Path(flag)), out, shard_samples={EACH}, ray=address)"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", script, root, waiting, flag, out, cluster.address], stderr=subprocess.PIPE
    )
    try:
        _until(lambda: (waiting / node.node_id).exists(), driver)
        cluster.remove_node(node, allow_graceful=False)
        node = None
        flag.touch()
        assert driver.wait(120) == 0, driver.stderr.read().decode()  # type: ignore[union-attr]
    finally:
        if node is not None:
            cluster.remove_node(node)
        driver.kill()
        driver.communicate()
    assert files_of(out) == files_of(tmp_path / "one")


def test_the_driver_killed(tmp_path: Path, cluster: Any) -> None:
    """A driver ends by signal 9; --resume from another process skips the shards that are whole."""
    root, waiting, flag, out = (
        folder(tmp_path / "src"),
        tmp_path / "waiting",
        tmp_path / "go",
        tmp_path / "many",
    )
    command = [
        sys.executable,
        "-m",
        "fastload",
        "pack",
        root,
        out,
        f"--shard-samples={EACH}",
        "--quiet",
        "--ray",
        cluster.address,
    ]
    # a first driver that its own source stops after some shards, and that then is killed
    waiting.mkdir()
    script = (
        "import sys, fastload; from pathlib import Path; from sources import Waits;"
        "root, waiting, flag, out, address = sys.argv[1:];"
        f"fastload.pack(Waits(Path(root), Path(waiting), Path(flag), 20), out, shard_samples={EACH}, "
        "ray=address)"
    )
    driver = subprocess.Popen([sys.executable, "-c", script, root, waiting, flag, out, cluster.address])
    try:
        _until(lambda: len(list(out.glob("*.done"))) >= 3 and any(waiting.iterdir()), driver)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        flag.touch()
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("shard-*.lmdb")}
    assert (out / JOURNAL_NAME).exists()
    assert not (out / "manifest.json").exists()
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    fastload.pack(root, tmp_path / "one", shard_samples=EACH)
    assert files_of(out) == files_of(tmp_path / "one")
    kept = [name for name, time_ in done.items() if (out / name).stat().st_mtime_ns == time_]
    assert len(kept) >= 3, (kept, done)


def _until(there: Any, driver: subprocess.Popen[Any], limit: float = 90.0) -> None:
    """Waits until `there()`; the driver must not end before."""
    end = time.monotonic() + limit
    while not there():
        assert driver.poll() is None, "the driver ended"
        assert time.monotonic() < end, "not within the limit"
        time.sleep(0.05)
