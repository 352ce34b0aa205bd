"""Nginx: serves a folder by HTTPS with a certificate of its own authority, and by HTTP."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from servers.process import HOST, ServerProcess, Unavailable, accepts, free_ports

_CONFIG = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp; fastcgi_temp_path {folder}/tmp;
    uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;
    server {{
        listen {host}:{https} ssl;
        listen {host}:{http};
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.key;
        root {folder}/root;
        location /private/ {{ auth_basic "x"; auth_basic_user_file {folder}/users; }}
    }}
}}
"""


class Nginx(ServerProcess):
    """A web server on 127.0.0.1 for the folder `root`; below /private it asks for the user `user` with the
    password `password`.

    Attributes:
        https, http: its URLs.
        certificate: the authority's certificate, as PEM.
    """

    name = "nginx"

    def __init__(self, folder: str | Path | None = None) -> None:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        openssl = shutil.which("openssl")
        if program is None or openssl is None:
            raise Unavailable("nginx and openssl are not installed: apt-get install nginx-light openssl")
        self._program = program
        super().__init__(folder)
        ports = free_ports(2)
        self.https = f"https://localhost:{ports[0]}"
        self.http = f"http://{HOST}:{ports[1]}"
        self.port = ports[0]
        self.root = self.folder / "root"
        self.root.mkdir(exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        for path in (self.folder, self.root):
            path.chmod(0o755)  # nginx's worker is another user where its master is root
        (self.folder / "users").write_text("user:{PLAIN}password\n")
        (self.folder / "nginx.conf").write_text(
            _CONFIG.format(folder=self.folder, host=HOST, https=ports[0], http=ports[1])
        )
        self._make_certificates(openssl)
        self.certificate = (self.folder / "authority.pem").read_text()

    def _make_certificates(self, openssl: str) -> None:
        (self.folder / "san").write_text("subjectAltName=DNS:localhost\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        self._run(
            [
                openssl,
                "req",
                "-x509",
                *key,
                "-days",
                "2",
                "-subj",
                "/CN=test",
                "-keyout",
                "authority.key",
                "-out",
                "authority.pem",
            ]
        )
        self._run(
            [openssl, "req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"]
        )
        signing = [
            "-CA",
            "authority.pem",
            "-CAkey",
            "authority.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "san",
        ]
        self._run([openssl, "x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem"])

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=60)

    def command(self) -> list[str]:
        """nginx in the foreground, with its own configuration only."""
        return [
            self._program,
            "-p",
            str(self.folder),
            "-e",
            str(self.folder / "error.log"),
            "-c",
            str(self.folder / "nginx.conf"),
        ]

    def ready(self) -> bool:
        """Whether it listens."""
        return accepts(self.port)

    def kill(self) -> None:
        """Ends nginx with its worker: a master that is killed would leave it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        super().kill()
