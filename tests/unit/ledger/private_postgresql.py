"""A PostgreSQL server for tests alone: its own folder, a loopback port, ended with the session."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

OWNER = "metalyard"
PASSWORD = "only-for-this-test"


def _program(name: str) -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")) + [
        Path(path) for path in (shutil.which(name),) if path
    ]
    return found[0] if found else None


@dataclass
class Server:
    """A running server. ``url`` of a database has no password; ``passfile`` holds it."""

    folder: Path
    port: int
    passfile: Path

    def url(self, database: str) -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """A fresh, empty database; its URL."""
        import psycopg

        name = f"ledger_{secrets.token_hex(6)}"
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=OWNER, password=PASSWORD, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)


def serve() -> Iterator[Server]:
    """Start a server, or skip the test with the reason."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed (pip install 'metalyard[postgresql]')")
    initdb, control = _program("initdb"), _program("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    as_owner: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("there is no user 'postgres' to run PostgreSQL as")
        as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    folder = Path(tempfile.mkdtemp(prefix="mlpg"))
    try:
        if as_owner:
            shutil.chown(folder, "postgres", "postgres")
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data = folder / "data"

        def call(*command: object) -> None:
            done = subprocess.run(
                [*as_owner, *map(str, command)], capture_output=True, text=True, timeout=120, cwd=folder
            )
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

        call(initdb, "-D", data, "-U", OWNER, "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "-E", "UTF8")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        call(control, "-D", data, "-w", "-t", "60", "-l", folder / "log", "-o", options, "start")
        passfile = folder / "pgpass"
        passfile.write_text(f"127.0.0.1:{port}:*:{OWNER}:{PASSWORD}\n")
        passfile.chmod(0o600)
        try:
            yield Server(folder, port, passfile)
        finally:
            call(control, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
