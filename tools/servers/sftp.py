"""SftpServer: an SSH server that offers SFTP alone, by asyncssh; run as a program, it is that server."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from servers.process import HOST, ServerProcess, Unavailable, accepts, free_ports

USER = "fastload"
PASSWORD = "open-sesame-of-a-test"


class SftpServer(ServerProcess):
    """A server on 127.0.0.1 that shows one folder to one user."""

    name = "sftp"

    def __init__(self, folder: str | Path | None = None) -> None:
        if find_spec("asyncssh") is None:
            raise Unavailable("an SFTP server needs asyncssh")
        super().__init__(folder)
        self.port = free_ports(1)[0]
        (self.folder / "served").mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        """Of the folder that it serves."""
        return f"sftp://{HOST}:{self.port}"

    def options(self) -> dict[str, object]:
        """storage_options for this server."""
        return {"username": USER, "password": PASSWORD}

    def new_ports(self) -> bool:
        self.port = free_ports(1)[0]
        return True

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), str(self.port), str(self.folder / "served")]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}

    def ready(self) -> bool:
        return accepts(self.port)


async def _serve(port: int, folder: str) -> None:
    import asyncssh

    class Login(asyncssh.SSHServer):
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == (USER, PASSWORD)

    await asyncssh.create_server(
        Login,
        HOST,
        port,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=os.fsencode(folder)),
    )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
