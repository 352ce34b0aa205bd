"""Types of the native module; one section for each of its parts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from mmap import mmap
from os import PathLike
from types import FunctionType, ModuleType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, Self

_T = TypeVar("_T")
_BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap | npt.NDArray[np.uint8]

# --- cpu.pxi

def use_cpu(names: str) -> None: ...
def cpu_features() -> str: ...

# --- status.pxi

RESOURCE_CODES: frozenset[int]
REMOTE_CODE: int
CHECKSUM_CODE: int

# --- record.pxi

KIND_JPEG: int
KIND_RAW: int
KIND_BYTES: int
KIND_TEXT: int
KIND_JSON: int
KIND_INDEX: int
KIND_PLACE: int
KIND_DCT: int
RECORD_INDEX: int

def crc32c(data: _BytesLike, crc: int = 0) -> int: ...
def crc32c_differ(
    data: Buffer,
    starts: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.uint32],
    expected: npt.NDArray[np.uint32],
) -> list[int]: ...
def start_writeback(fd: int) -> None: ...
def build_record(
    entries: Sequence[tuple[int, int, _BytesLike | tuple[_BytesLike, ...]]],
) -> tuple[bytes, int]: ...
def split_record(record: bytes) -> list[tuple[int, int, bytes]]: ...
def read_attached(entry: bytes, base: str | None) -> bytes: ...

# --- table.pxi

TABLE_BLOCK: int

class TableFile:
    def __new__(cls, fd: int, name: str | bytes | PathLike[str]) -> Self: ...

class Table:
    @property
    def width(self) -> int: ...
    def __new__(
        cls, file: TableFile, offset: int, rows: int, width: int, crcs: npt.NDArray[np.uint32]
    ) -> Self: ...
    def __len__(self) -> int: ...
    def read(self, first: int, count: int) -> npt.NDArray[np.uint8]: ...
    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]: ...

class JoinedTables:
    @property
    def width(self) -> int: ...
    def __new__(
        cls,
        firsts: npt.NDArray[np.int64],
        tables: list[Table],
        rows: list[npt.NDArray[np.uint32] | None],
        count: int,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def take(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]: ...

# --- store.pxi

class Store:
    @property
    def closed(self) -> bool: ...
    @property
    def shards(self) -> int: ...
    def __new__(cls) -> Self: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...
    def add(
        self,
        path: str | bytes | PathLike[str],
        first: int,
        count: int,
        bytes: int,
        key: int | None = None,
        stored: int | None = None,
        base: str | None = None,
        places: Table | None = None,
        columns: Sequence[tuple[bytes, int, int]] = (),
        absent: bool = False,
        guarded: bool = False,
    ) -> None: ...
    def places(self, shard: int) -> bytes: ...
    def columns(self, shard: int) -> list[tuple[bytes, int, int]]: ...
    def base(self, index: int) -> str | None: ...
    def set_rows(self, shard: int, rows: npt.NDArray[np.uint32]) -> None: ...
    def column_bytes(self, shard: int, name: str) -> int: ...
    def column(self, shard: int, name: str, into: _BytesLike) -> None: ...
    def set_checksums(self, shard: int, crc: npt.NDArray[np.uint32]) -> None: ...
    def shard_of(self, index: int) -> int: ...
    def get(self, index: int) -> bytes: ...

# --- files.pxi

_Places = tuple[
    npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.uint32]
]

def file_stamp(path: bytes) -> int: ...
def content_stamp(path: bytes) -> int: ...

KEPT_LOGS: int
KEPT_MAGIC: bytes
KEPT_HEAD: int
KEPT_ROW: int

class Kept:
    def __new__(cls, table: int, count: int) -> Self: ...
    def add_log(self, number: int, fd: int) -> None: ...
    def append(self, number: int, end: int) -> None: ...
    def grant(self, size: int) -> None: ...
    def entries(self) -> tuple[int, int, int]: ...
    def bytes_of(self, index: int, stamp: int) -> bytes | None: ...
    def counts(self) -> dict[str, int]: ...

KEEP_FACTS: int
KEEP_FORMS: int
KEEP_BYTES: int

class Files:
    def __new__(
        cls,
        prefix: bytes,
        names: bytes,
        count: int,
        room: int,
        places: _Places | None = None,
        kinds: Iterable[int] | None = None,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def read(self, index: int) -> bytes: ...
    def learnt(self) -> tuple[int, int]: ...
    def keep(self, kept: Kept, keeping: int) -> None: ...
    def keeps(self, keeping: int) -> bool: ...

# --- image.pxi

MAX_PIXELS: int

class JpegHeader(NamedTuple):
    width: int
    height: int
    components: int
    progressive: bool
    arithmetic: bool

IMAGE_KINDS: Mapping[str, int]

def stored_kind(data: _BytesLike) -> int: ...
def stored_size(kind: int, data: _BytesLike, max_pixels: int = ...) -> tuple[int, int]: ...
def stored_decode(
    kind: int, data: _BytesLike, box: Sequence[int] | None = None, max_pixels: int = ...
) -> npt.NDArray[np.uint8]: ...
def jpeg_header(data: _BytesLike, max_pixels: int = ...) -> JpegHeader: ...
def jpeg_decode(
    data: _BytesLike, box: Sequence[int] | None = None, eighths: int = 8, max_pixels: int = ...
) -> npt.NDArray[np.uint8]: ...
def jpeg_decode_report(
    data: _BytesLike, box: Sequence[int] | None = None, eighths: int = 8, max_pixels: int = ...
) -> tuple[npt.NDArray[np.uint8], int, str]: ...
def jpeg_scale(box: Sequence[int], target: Sequence[int]) -> int: ...
def jpeg_scan(data: _BytesLike) -> dict[str, Any]: ...
def jpeg_transform(data: _BytesLike, orientation: int, max_pixels: int = ...) -> bytes: ...
def jpeg_to_baseline(data: _BytesLike, max_pixels: int = ...) -> bytes: ...
def jpeg_survey(data: _BytesLike, max_pixels: int = ...) -> tuple[int, str, bool]: ...
def jpeg_check(data: _BytesLike, max_pixels: int = ...) -> tuple[int, str]: ...
def resize(
    image: npt.NDArray[np.uint8],
    box: Sequence[float] | None,
    size: Sequence[int],
    filter: str = "bilinear",
    antialias: bool = True,
    *,
    window: Sequence[int] | None = None,
    hflip: bool = False,
    vflip: bool = False,
    dtype: str = "uint8",
    layout: str = "HWC",
    lut: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]: ...
def resize_planes(
    image: npt.NDArray[np.uint8] | npt.NDArray[np.uint16],
    box: Sequence[float] | None,
    size: Sequence[int],
    filter: str = "bilinear",
    antialias: bool = True,
    *,
    window: Sequence[int] | None = None,
    hflip: bool = False,
    vflip: bool = False,
    dtype: str | None = None,
    layout: str = "HWC",
    lut: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]: ...

# --- exact.pxi

def resize_exact(
    image: npt.NDArray[np.uint8],
    box: Sequence[float] | None,
    size: Sequence[int],
    filter: str = "bilinear",
    *,
    order: str = "horizontal",
    window: Sequence[int] | None = None,
    hflip: bool = False,
    vflip: bool = False,
    dtype: str = "uint8",
    layout: str = "HWC",
    into: npt.NDArray[Any] | None = None,
    lut: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[Any]: ...
def resize_exact_reads(
    image_size: Sequence[int],
    box: Sequence[float] | None,
    size: Sequence[int],
    filter: str = "bilinear",
    *,
    window: Sequence[int] | None = None,
) -> tuple[int, int, int, int]: ...
def normalize(
    image: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    mean: Sequence[float],
    std: Sequence[float],
    interleaved: bool = False,
) -> None: ...
def reduce_exact(
    image: npt.NDArray[np.uint8], factors: int | Sequence[int], box: Sequence[int] | None = None
) -> npt.NDArray[np.uint8]: ...

# --- colour.pxi

def colour(
    image: npt.NDArray[np.uint8], steps: Sequence[tuple[str | int | float | bytes, ...]]
) -> npt.NDArray[np.uint8]: ...
def colour_blend(
    image: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], factor: float
) -> npt.NDArray[np.uint8]: ...
def colour_convolve(
    image: npt.NDArray[np.uint8], weights: npt.NDArray[np.float32]
) -> npt.NDArray[np.uint8]: ...
def colour_band(image: npt.NDArray[np.uint8], band: str) -> npt.NDArray[np.uint8]: ...
def colour_counts(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]: ...
def colour_warp(
    image: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], numbers: Sequence[float], filter: str
) -> None: ...
def gaussian_radius(radius: float, passes: int = 3) -> float: ...

# --- pack.pxi

class Prepared(NamedTuple):
    width: int
    height: int
    components: int
    precision: int
    kind: str
    arithmetic: bool
    orientation: int
    scans: int
    whole: bool
    sound: bool
    data: bytes | None
    entropy_index: bytes

class JpegPreparer:
    def prepare(self, data: bytes, entropy: bool = True, index: bool = False) -> Prepared: ...
    def index(self, data: bytes) -> bytes: ...
    def index_holds(self, data: bytes, index: bytes) -> bool: ...

# --- dct.pxi

def is_dct_form(data: _BytesLike) -> bool: ...

class DctCoder:
    def encode(self, data: _BytesLike, max_pixels: int = ...) -> tuple[bytes | None, str]: ...
    @property
    def sound(self) -> bool: ...
    def restore(self, data: _BytesLike) -> bytes: ...

# --- planes.pxi

KIND_PLANES: int
KIND_VARYING: int
PLANES_STORED: int
PLANES_RUNS: int
PLANES_ZLIB: int

class PlanesHeader(NamedTuple):
    height: int
    width: int
    channels: int
    dtype: np.dtype[Any]
    codec: int

def encode_planes(pixels: npt.NDArray[Any]) -> bytes: ...
def planes_header(data: bytes) -> PlanesHeader: ...
def decode_planes(data: bytes, box: tuple[int, int, int, int] | None = None) -> npt.NDArray[Any]: ...
def sample_planes(
    data: bytes, rows: npt.NDArray[np.uint32], columns: npt.NDArray[np.uint32]
) -> npt.NDArray[Any]: ...
def split_varying(
    data: bytes, levels: int, unit: int
) -> tuple[int, tuple[npt.NDArray[np.uint32], ...], npt.NDArray[np.uint8]]: ...
def decode_instances(data: bytes, height: int, width: int) -> npt.NDArray[np.uint8]: ...

# --- regions.pxi

def has_end_marker(data: bytes) -> bool: ...

class RegionDecoder:
    def __new__(cls) -> Self: ...
    def close(self) -> None: ...
    def open(self, data: _BytesLike, max_pixels: int = ...) -> tuple[int, int]: ...
    @property
    def fell_back(self) -> bool: ...
    @property
    def components(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def warnings(self) -> int: ...
    def decode(
        self,
        box: Sequence[int] | None = None,
        eighths: int = 8,
        grey: bool = False,
        index: bytes = b"",
        learn: bool = False,
    ) -> tuple[int, int]: ...
    def learnt(self, most: int) -> bytes: ...
    def resample(
        self,
        box: Sequence[float] | None,
        size: Sequence[int],
        filter: str = "bilinear",
        *,
        image: Sequence[int] | None = None,
        window: Sequence[int] | None = None,
        hflip: bool = False,
        vflip: bool = False,
        dtype: str = "uint8",
        layout: str = "HWC",
        into: npt.NDArray[Any] | None = None,
        lut: npt.NDArray[np.float32] | None = None,
        order: str = "horizontal",
        exact: bool = True,
    ) -> npt.NDArray[Any]: ...
    def pixels(
        self,
        box: Sequence[int] | None = None,
        *,
        hflip: bool = False,
        vflip: bool = False,
        dtype: str = "uint8",
        layout: str = "HWC",
        into: npt.NDArray[Any] | None = None,
        lut: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[Any]: ...

# --- engine.pxi

def random_words(seed: int, epoch: int, index: int, stream: int, count: int) -> list[int]: ...
def random_rows(
    seed: int,
    epoch: int,
    indices: npt.NDArray[np.uint64],
    wants: Sequence[tuple[int, int]],
    seeds: npt.NDArray[np.uint64] | None = None,
) -> npt.NDArray[np.uint32]: ...
def occurrence_seeds(
    seed: int, epoch: int, stream: int, occurrences: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint64]: ...
def count_occurrences(
    counts: npt.NDArray[np.uint32], positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]: ...

ITEMS_MOST: int

class Program:
    def __init__(self, ops: Sequence[dict[str, Any]]) -> None: ...
    def size(
        self, width: int, height: int, seed: int = 0, epoch: int = 0, index: int = 0
    ) -> tuple[int, int]: ...
    def resolve(self, width: int, height: int, seed: int, epoch: int, index: int) -> dict[str, Any]: ...

class Geometry:
    boxes: npt.NDArray[Any] | None
    keep: npt.NDArray[np.bool_] | None
    def __init__(
        self,
        program: Program,
        size: Sequence[int],
        seed: int,
        epoch: int,
        index: int,
        boxes: npt.NDArray[Any] | None = None,
        format: str = "xyxy",
    ) -> None: ...
    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def mask_fill(self) -> int: ...
    @property
    def steps(self) -> list[dict[str, Any]]: ...
    @property
    def exchanged(self) -> bool: ...
    def keypoints(self, points: npt.ArrayLike) -> npt.NDArray[np.float32]: ...
    def outline(self, points: npt.ArrayLike) -> npt.NDArray[np.float32]: ...
    def mask_tables(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
    def mask(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]: ...

class Source:
    data: Store | Files
    def __init__(
        self,
        data: Store | Files,
        programs: list[Program],
        image_field: int,
        max_pixels: int,
        further: Sequence[tuple[str, int | npt.NDArray[np.uint16], Sequence[Program]]] = (),
        items: Sequence[dict[str, Any]] = (),
    ) -> None: ...
    @property
    def has_items(self) -> bool: ...

class Output:
    dtype: str
    layout: str
    itemsize: int
    channels: int
    def __init__(
        self,
        dtype: str = "uint8",
        layout: str = "HWC",
        lut: npt.NDArray[Any] | None = None,
        planes: tuple[int, int] | None = None,
    ) -> None: ...

def image_sizes(
    programs: list[Program],
    heights: npt.NDArray[np.int32],
    widths: npt.NDArray[np.int32],
    indices: npt.NDArray[np.uint64],
    max_pixels: int,
    seed: int,
    epoch: int,
    seeds: npt.NDArray[np.uint64] | None = None,
) -> tuple[npt.NDArray[np.uint32], list[tuple[int, bool, str]]]: ...
def batch_bytes(
    rows: int,
    sizes: Sequence[tuple[int, int]] | npt.NDArray[np.uint32],
    outputs: list[Output],
    layout: str = "equal",
    pad_to: int = 1,
) -> int: ...

class Decoder:
    pid: int
    def __new__(cls) -> Self: ...
    def decode(
        self,
        source: Source,
        index: int,
        seed: int,
        epoch: int,
        outputs: list[Output],
        into: list[npt.NDArray[np.uint8]],
        sizes: Sequence[tuple[int, int]],
        record: Buffer | None = None,
        found: list[tuple[int, int]] | None = None,
    ) -> list[tuple[npt.NDArray[np.uint8], int] | None]: ...

class _Event(Protocol):
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...

class _Guard(Protocol):
    def pin(self, address: int, size: int, /) -> bool: ...
    def unpin(self, address: int, /) -> None: ...
    def end_of_lease(self) -> _Event: ...

class Ring:
    def __new__(
        cls, keep: int, slot_bytes: int, memory: Callable[[int], tuple[int, object] | None] | None = None
    ) -> Self: ...
    def counts(self) -> dict[str, int]: ...

class Stop:
    def set(self, ring: Ring) -> None: ...

class Lease:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Engine:
    sources: list[Source]
    ring: Ring
    threads: int
    pid: int
    closed: bool
    def __new__(cls, sources: list[Source], threads: int, capacity: int, ring: Ring) -> Self: ...
    def close(self) -> None: ...
    def counters(self) -> dict[str, int]: ...

class Batch:
    def __new__(
        cls,
        engine: Engine,
        sources: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.uint64],
        sizes: Sequence[tuple[int, int]] | npt.NDArray[np.uint32],
        outputs: list[Output],
        seed: int,
        epoch: int,
        layout: str = "equal",
        pad_to: int = 1,
        even: bool = False,
        bounded: bool = False,
        seeds: npt.NDArray[np.uint64] | None = None,
    ) -> Self: ...
    @property
    def rows(self) -> int: ...
    @property
    def parts(self) -> list[tuple[int, int, int, Output]]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def places(self) -> list[npt.NDArray[np.int64] | None]: ...
    @property
    def ready(self) -> bool: ...
    def row_arrays(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]: ...
    def submit(self) -> None: ...
    def make(self) -> None: ...
    occurrences: npt.NDArray[np.uint32] | None
    fetch: Any
    early: bool
    @property
    def held(self) -> bool: ...
    def hold(self) -> None: ...
    def give(self, row: int, record: Buffer) -> None: ...
    def fail(self, row: int, reason: str, remote: bool = True) -> None: ...
    def release(self) -> None: ...
    def failures(self) -> list[tuple[int, int, int, int, str]]: ...
    def redo(
        self, row: int, source: int, index: int, record: Buffer | None = None, seed: int | None = None
    ) -> bool: ...
    def renew(self) -> None: ...
    def redo_with(self, row: int, pixels: npt.NDArray[np.uint8]) -> None: ...
    def compact(self) -> None: ...
    def tighten(self) -> None: ...
    @property
    def items(
        self,
    ) -> list[
        tuple[npt.NDArray[np.uint8] | None, npt.NDArray[np.int64], npt.NDArray[np.uint32] | None] | None
    ]: ...
    def lease(self) -> Any: ...

def extremes(values: npt.NDArray[np.int64]) -> tuple[int, int]: ...

class Snapshot:
    def __init__(
        self,
        places: list[tuple[ModuleType | type | dict[str, Any], Sequence[str] | None]],
        functions: list[FunctionType],
    ) -> None: ...
    def holds(self) -> bool: ...

def wait_any(batches: Sequence[Batch], timeout: float, stop: Stop | None = None) -> int: ...

# ---- shared.pxi

def live_handles() -> dict[str, int]: ...
def watch_process(pid: int) -> None: ...

class SharedSlot:
    leased: bool
    retired: bool
    def __new__(cls, bytes: int = 0, *, fd: int = -1, sparse: bool = False) -> Self: ...
    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def fd(self) -> int: ...
    def release_fd(self) -> None: ...
    def guard(self, guarded: _Guard) -> bool: ...
    @property
    def cooling(self) -> bool: ...
    def lease(self) -> SharedLease: ...
    @property
    def offered(self) -> bool: ...
    def offer(self) -> None: ...
    def accept(self) -> bool: ...
    def open_ticket(self, batch: int) -> None: ...
    def claim(self, batch: int, limit: int) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class SharedLease:
    def __buffer__(self, flags: int, /) -> memoryview: ...

# ---- indexes.pxi

SHARED_INDEX_EXTRA: int

def index_key(data: bytes, size: int) -> int: ...

class SharedIndexes:
    def __new__(cls, room: int = 0, *, fd: int = -1) -> Self: ...
    @property
    def fd(self) -> int: ...
    def release_fd(self) -> None: ...
    @property
    def room(self) -> int: ...
    @property
    def found(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def find(self, key: int) -> bytes | None: ...
    def keep(self, key: int, index: bytes) -> bool: ...
    def learnt(self) -> tuple[int, int]: ...
    def export(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], bytes]: ...
    def learn(self, keys: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint32], indexes: bytes) -> None: ...

# ---- traces.pxi

TRACE_EVENT: np.dtype[np.void]
TRACE_STAGES: tuple[str, ...]

def clock_ns() -> int: ...
def trace_workers(
    capacity: int, on_wait: Callable[[object, int, int, int, BaseException | None], None] | None = None
) -> None: ...
def traced_events() -> list[tuple[bytes, int]]: ...

# ---- steps.pxi

class StepRing:
    @property
    def window(self) -> int: ...
    def __new__(cls, window: int) -> Self: ...
    def add(self, wait_s: float, step_s: float, samples: int, first: bool) -> None: ...
    def copy(self) -> tuple[bytes, bytes, bytes, int, tuple[int, int, int, float, float]]: ...

class StepTimer:
    def time_steps(
        self,
        ring: StepRing,
        waited_s: float,
        count: Callable[[Any], int],
        plain: bool,
        on_first: Callable[[Any], None],
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class TimedIterator(StepTimer, Generic[_T]):
    def __init__(self, iterator: Iterator[_T]) -> None: ...
    @property
    def iterator(self) -> Iterator[_T]: ...
    def __next__(self) -> _T: ...
    def __len__(self) -> int: ...
    def __getattr__(self, name: str) -> Any: ...
