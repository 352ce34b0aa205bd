"""The table in docs/architecture.md, answer by answer: what each does while a dataset is opened, once it is
open, and to a write."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reading
from reading import URL, same
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

from fastload import PackedDataset, push
from fastload.errors import DatasetError, RemoteError, SampleError
from fastload.packing import verify

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
COLUMNS = ("while a dataset is opened", "once it is open", "a write")
MANIFEST, SIDECAR, SHARD = "manifest.json", "index-", "shard-"
NOWHERE = "http://127.0.0.1:1/x"
SAMPLE = 5


def _fault(kind: str, opening: str = MANIFEST, **more: Any) -> dict[str, Any]:
    """A row's fault: what Proxy.spoil takes, and the object that it befalls while a dataset is opened."""
    return {"kind": kind, "opening": opening, **more}


FAULTS: dict[str, dict[str, Any]] = {
    "the connection is refused": _fault("refuse"),
    "the connection is reset before the answer": _fault("reset"),
    "silence": _fault("silence", seconds=60.0),
    "500, 502, 504 and other 5xx": _fault("status", status=502, code="BadGateway"),
    "503 or 429: fewer requests, please": _fault("status", status=429),
    "408": _fault("status", status=408, code="RequestTimeout"),
    "401 or 403: access denied": _fault("status", status=403, code="AccessDenied"),
    "404: no such object or bucket": _fault("status", status=404, code="NoSuchKey"),
    "any other 4xx": _fault("status", status=405, code="MethodNotAllowed"),
    "400, for a request that was damaged on its way": _fault("status", status=400, code="IncompleteBody"),
    "a redirect to nowhere, or to a host that is gone": _fault(
        "status", status=307, code="x", location=NOWHERE
    ),
    "416 of a range that should be there": _fault("status", SIDECAR, status=416, code="InvalidRange"),
    "a body that is cut off": _fault("cut"),
    "a body that is short": _fault("short"),
    "a body that is too long": _fault("long"),
    "no body": _fault("empty"),
    "200 and the whole object in place of a range": _fault("whole", SIDECAR),
    "another range than was asked for": _fault("other range", SIDECAR),
    "a range that does not say which": _fault("no range", SIDECAR),
    "a gateway's page in place of the object": _fault("page"),
    "wrong bytes, other ones each time": _fault("noise"),
    "the same wrong bytes each time": _fault("flip"),
    "the manifest names another dataset by now": _fault("replaced"),
}
"""How each row of the table is provoked."""


def _table() -> dict[str, dict[str, str]]:
    """The table: for each answer the cells by the names of their columns. A row holds for each answer that
    it names; no answer has two rows."""
    text = PAGE.read_text().split("## Answers of a store")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert head == ["answers", *COLUMNS]
    named = [(answer, cells) for answers, *cells in rows for answer in answers.split("; ")]
    assert len({answer for answer, _ in named}) == len(named)
    return {answer: dict(zip(COLUMNS, cells, strict=True)) for answer, cells in named}


TABLE = _table()
Read = Callable[[], Any]


def rows(column: str, *cells: str) -> list[str]:
    """The answers of which a column says one of these."""
    return [answer for answer, row in TABLE.items() if row[column] in cells]


def test_each_row_has_a_test() -> None:
    """Answers and faults are the same, and each cell says one of four things."""
    assert TABLE.keys() == FAULTS.keys()
    assert {cell for row in TABLE.values() for cell in row.values()} == {"again", "at once", "3 times", "-"}


@pytest.fixture
def opened(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, tmp_path: Path
) -> Iterator[Callable[..., PackedDataset]]:
    """Opens a dataset by way of the proxy, without a cache."""
    found: list[PackedDataset] = []

    def open_(url: str = URL, timeout: float = 20.0) -> PackedDataset:
        options = seaweedfs.options(proxy.endpoint)
        found.append(
            PackedDataset(
                url,
                cache=tmp_path,
                cache_size=0,
                storage_options=options,
                fields=("image", "label"),
                timeout=timeout,
            )
        )
        return found[-1]

    yield open_
    for dataset in found:
        dataset.close()


def spoil(proxy: Proxy, answer: str, count: int, part: str, method: str = "GET") -> None:
    """Lets a row's answer come `count` times, to requests of one kind."""
    more = {key: value for key, value in FAULTS[answer].items() if key not in ("kind", "opening")}
    kind = FAULTS[answer]["kind"]
    proxy.counts(reset=True)
    if kind == "refuse":
        proxy.refuse()
        if count < 100:
            threading.Timer(0.3, proxy.refuse, (False,)).start()
        return
    proxy.spoil(kind, count, method=method, part=part, **more)


def faults(proxy: Proxy, answer: str) -> int | None:
    """How often a row's answer came; None where that is not counted."""
    return None if FAULTS[answer]["kind"] == "refuse" else int(proxy.counts()["faults"])


def patience(answer: str) -> float:
    """A timeout within which two failed tries and a third one pass."""
    return 6.0 if answer == "silence" else 20.0


@pytest.mark.parametrize("answer", rows("while a dataset is opened", "again", "3 times"))
def test_opening_tries_again(proxy: Proxy, opened: Callable[..., PackedDataset], answer: str) -> None:
    """Two such answers, and the dataset opens."""
    spoil(proxy, answer, 2, FAULTS[answer]["opening"])
    assert len(opened(timeout=patience(answer))) == reading.COUNT
    assert faults(proxy, answer) in (2, None)


@pytest.mark.parametrize("answer", rows("while a dataset is opened", "at once"))
def test_opening_ends_at_once(proxy: Proxy, opened: Callable[..., PackedDataset], answer: str) -> None:
    """Though the timeout is long: after one try, or two where credentials are asked for anew."""
    spoil(proxy, answer, 10_000, FAULTS[answer]["opening"])
    with pytest.raises(RemoteError, match=re.escape(URL)):
        opened(timeout=3600.0)
    assert faults(proxy, answer) in (1, 2)


@pytest.mark.parametrize("answer", rows("while a dataset is opened", "3 times"))
def test_opening_believes_bytes_that_stay_the_same(
    proxy: Proxy, opened: Callable[..., PackedDataset], answer: str
) -> None:
    """A manifest that is damaged for good is told from one that was damaged on its way."""
    spoil(proxy, answer, 10_000, FAULTS[answer]["opening"])
    with pytest.raises(DatasetError, match=re.escape(URL)) as caught:
        opened(timeout=3600.0)
    assert not isinstance(caught.value, RemoteError)
    assert faults(proxy, answer) == 3


@pytest.mark.parametrize("answer", rows("once it is open", "again", "3 times"))
def test_reading_tries_again(
    proxy: Proxy, opened: Callable[..., PackedDataset], photos: Path, answer: str
) -> None:
    """Two such answers, and the sample is the one that was packed."""
    dataset = opened(timeout=patience(answer))
    spoil(proxy, answer, 2, SHARD)
    assert same(dataset[SAMPLE], PackedDataset(photos, fields=("image", "label"))[SAMPLE])
    assert faults(proxy, answer) in (2, None)


@pytest.mark.parametrize("answer", rows("once it is open", "again"))
def test_reading_gives_up_after_the_timeout(
    proxy: Proxy, opened: Callable[..., PackedDataset], answer: str
) -> None:
    """One RemoteError that names object, range, tries and cause; the next sample comes once the server is
    well."""
    dataset = opened(timeout=2.0)
    spoil(proxy, answer, 10_000, SHARD)
    named = r"reading bytes \d+-\d+ of s3://\S+/(shard-\d+.lmdb|index-\d+.bin) failed after \d+ tries in "
    with pytest.raises(RemoteError, match=named) as caught:
        dataset[SAMPLE]
    assert caught.value.tries > 2
    assert "\n" not in str(caught.value)
    proxy.clear()
    proxy.refuse(False)
    dataset[SAMPLE + 1]


def test_a_last_try_that_the_timeout_cuts_does_not_hide_the_answer(
    proxy: Proxy, opened: Callable[..., PackedDataset]
) -> None:
    """A slow server that denies access says so: the last try has no time for an answer."""
    dataset = opened(timeout=2.0)
    spoil(proxy, "401 or 403: access denied", 10_000, SHARD)
    proxy.set(round_trip=0.2)
    with pytest.raises(RemoteError, match=r"access denied: .*403.*check the credentials"):
        dataset[SAMPLE]


@pytest.mark.parametrize("answer", rows("once it is open", "3 times"))
def test_reading_believes_bytes_that_stay_the_same(
    proxy: Proxy, opened: Callable[..., PackedDataset], answer: str
) -> None:
    """They are that sample's damage, as of a damaged disk."""
    dataset = opened(timeout=3600.0)
    spoil(proxy, answer, 10_000, SHARD)
    with pytest.raises(SampleError, match="not those that were packed"):
        dataset[SAMPLE]
    assert faults(proxy, answer) == 3


@pytest.mark.parametrize("answer", rows("once it is open", "at once"))
@pytest.mark.parametrize(
    "wrong", ["404: no such object or bucket", "wrong bytes, other ones each time", "no body"]
)
def test_a_replaced_dataset_ends_the_tries(
    seaweedfs: SeaweedFS,
    proxy: Proxy,
    opened: Callable[..., PackedDataset],
    photos: Path,
    s3_url: str,
    tmp_path: Path,
    answer: str,
    wrong: str,
) -> None:
    """Whatever the answer looks like, once the manifest names another dataset no further try is made."""
    assert FAULTS[answer]["kind"] == "replaced"
    push(photos, s3_url, storage_options=seaweedfs.options())
    dataset = opened(s3_url, timeout=3600.0)
    dataset[SAMPLE + 1]  # with which the places of the shard's samples are fetched
    push(
        reading.write_photos(tmp_path / "other.fl", 40),
        s3_url,
        overwrite=True,
        storage_options=seaweedfs.options(),
    )
    spoil(proxy, wrong, 10_000, SHARD)
    with pytest.raises(
        RemoteError, match="the dataset there was replaced by another after it was opened: open it again"
    ):
        dataset[SAMPLE]
    assert 2 <= proxy.counts()["faults"] <= 8


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one shard."""
    return reading.write_photos(tmp_path_factory.mktemp("small") / "small.fl", 12)


@pytest.mark.parametrize("answer", rows("a write", "again"))
def test_a_write_is_tried_again(
    seaweedfs: SeaweedFS, proxy: Proxy, small: Path, s3_url: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two such answers to what push sends, and the dataset is at the URL, whole."""
    monkeypatch.setattr("fastload.remote.obstore.WRITE_LIMIT", 1.0)
    spoil(proxy, answer, 2, SHARD, "PUT")
    push(small, s3_url, storage_options=seaweedfs.options(proxy.endpoint), timeout=20.0)
    assert faults(proxy, answer) in (2, None)
    assert verify(s3_url, storage_options=seaweedfs.options()).ok


@pytest.mark.parametrize(
    "answer", ["401 or 403: access denied", "404: no such object or bucket", "any other 4xx"]
)
def test_the_first_write_ends_at_once(
    seaweedfs: SeaweedFS, proxy: Proxy, small: Path, s3_url: str, answer: str
) -> None:
    """Before any write has succeeded, the answer is about this user's access, or the bucket."""
    spoil(proxy, answer, 10_000, "", "PUT")
    with pytest.raises(RemoteError, match=r"failed after [12] tr(y|ies) in .*; push again, and it goes on"):
        push(small, s3_url, storage_options=seaweedfs.options(proxy.endpoint), timeout=3600.0)


@pytest.mark.parametrize("kind", ["noise", "short", "page"])
def test_sidecars_by_the_same_rule(proxy: Proxy, opened: Callable[..., PackedDataset], kind: str) -> None:
    """Spoiled twice, they are fetched a third time."""
    proxy.spoil(kind, 2, method="GET", part=SIDECAR)
    assert len(opened()) == reading.COUNT
    assert proxy.counts()["faults"] == 2


@pytest.mark.parametrize("decode", [False, True])
def test_verify_reads_again_what_was_damaged_on_its_way(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, decode: bool
) -> None:
    """A wrong checksum of a whole file is no finding unless it comes again and again."""
    proxy.spoil("noise", 2, method="GET", part=SHARD)
    options = seaweedfs.options(proxy.endpoint)
    assert verify(URL, decode=decode, storage_options=options).ok
    assert proxy.counts()["faults"] == 2
    proxy.spoil("flip", 10_000, method="GET", part="shard-00001")
    report = verify(URL, storage_options=options)
    assert len(report.problems) == 1
    assert re.search(r"shard-00001\.lmdb: its checksum is", report.problems[0])
