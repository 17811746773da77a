"""A BMC that answers as a recording of a real one does, without a network: one recorded tree as a transport."""

from __future__ import annotations

import json
import os
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import pytest
from multidict import CIMultiDict

from metalyard.redfish.client import Bmc

TREES = ("nvidia_viking", "dell", "hpe", "lenovo", "nvidia_gh200")


def extract(name: str, folder: Path) -> Path:
    """The recording's root folder; skips the test where there are no recordings."""
    home = os.environ.get("METALYARD_RECORDINGS")
    if not home:
        pytest.skip("METALYARD_RECORDINGS is not set: it names the folder that holds redfish/*.tar.xz")
    archive = Path(home) / "redfish" / f"{name}.tar.xz"
    if not archive.is_file():
        pytest.skip(f"{archive} does not exist")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / name


class _Response:
    """As much of an aiohttp response as the DMTF client reads."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = CIMultiDict(headers)
        self._body = body

    async def read(self) -> bytes:
        return self._body

    def get_encoding(self) -> str:
        return "utf-8"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class RecordedBmc:
    """Serves ``index.json`` files; paths are compared without case and trailing slash, as iLO does.

    ``asked`` counts the paths, ``written`` keeps every write but sessions: a reader must leave it empty.
    """

    def __init__(self, root: Path) -> None:
        self._files = {"/" + str(file.parent.relative_to(root)).lower(): file for file in root.rglob("index.json")}
        self.asked: Counter[str] = Counter()
        self.written: list[tuple[str, str]] = []
        self.sessions = 0

    def request(self, method: str, url: Any, **_: Any) -> _Response:
        path = unquote(url.path_qs)
        if path.rstrip("/") == "/redfish/v1/SessionService/Sessions" and method == "POST":
            self.sessions += 1
            return _Response(201, b"{}", {"X-Auth-Token": "t", "Location": f"{path}/{self.sessions}"})
        if method == "DELETE":
            self.sessions -= 1
            return _Response(204, b"", {})
        if method != "GET":
            self.written.append((method, path))
            return _Response(405, b"", {})
        self.asked[path] += 1
        file = self._files.get(path.rstrip("/").lower())
        if file is None:
            return _Response(404, json.dumps({"error": {"code": "Base.1.0.ResourceMissingAtURI"}}).encode(), {})
        return _Response(200, file.read_bytes(), {"Content-Type": "application/json"})


@dataclass
class Recorded:
    """A recording and the client on it."""

    name: str
    double: RecordedBmc
    bmc: Bmc
