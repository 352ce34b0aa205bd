"""Azurite: Microsoft's emulator of Azure blob storage, a Node program that npm installs into a cache
folder at its first use."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from servers.process import HOST, ServerProcess, Unavailable, accepts, free_ports

VERSION = "3.35.0"
# Azurite's documented account and key, the same everywhere: no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azurite_program() -> Path:
    """The path of azurite-blob, installed if it is not there; Unavailable without node, npm or a registry."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("Azurite needs node and npm")
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "fastload-tests"
        / f"azurite-{VERSION}"
    )
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / "node_modules" / ".bin" / "azurite-blob"
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes begin at once
        if not (cache / "installed").exists():
            command = [
                npm,
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(cache),
                f"azurite@{VERSION}",
            ]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=300, check=False, cwd=cache
                )
            except subprocess.TimeoutExpired:
                raise Unavailable("npm did not install azurite within 300 s") from None
            if done.returncode or not program.exists():
                raise Unavailable(f"npm cannot install azurite: {done.stderr[-500:]}")
            (cache / "installed").touch()
    return program


class Azurite(ServerProcess):
    """A server of Azure blobs on 127.0.0.1.

    Attributes:
        endpoint: its URL, with the account.
    """

    name = "azurite"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._program = azurite_program()
        super().__init__(folder)
        self.port = free_ports(1)[0]
        self.endpoint = f"http://{HOST}:{self.port}/{ACCOUNT}"

    def options(self, endpoint: str | None = None) -> dict[str, object]:
        """storage_options for this server, or for a proxy before it."""
        return {
            "account_name": ACCOUNT,
            "account_key": KEY,
            "endpoint": f"{endpoint}/{ACCOUNT}" if endpoint else self.endpoint,
        }

    def command(self) -> list[str]:
        """azurite-blob alone, without telemetry."""
        return [
            *[
                str(self._program),
                "--blobHost",
                HOST,
                "--blobPort",
                str(self.port),
                "--location",
                str(self.folder),
            ],
            *["--silent", "--skipApiVersionCheck", "--disableTelemetry"],
        ]

    def ready(self) -> bool:
        """Whether it listens."""
        return accepts(self.port)

    def make_container(self, name: str) -> None:
        """Makes a container; it must not exist."""
        import base64
        import hashlib
        import hmac
        import urllib.request
        from email.utils import formatdate

        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        canonical = "\n".join(f"{key}:{value}" for key, value in sorted(headers.items()))
        resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        text = "PUT\n\n\n\n\n\n\n\n\n\n\n\n" + f"{canonical}\n{resource}"
        signature = base64.b64encode(
            hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        ).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container", method="PUT", headers=headers
        )
        with urllib.request.urlopen(request, timeout=20):
            pass
