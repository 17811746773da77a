"""Firmware images of the emulated machines: a small header that says for what, and a payload with its digest.

Vendors' images are opaque to whoever pushes them, so this format is ours; only the emulated BMC reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metalyard.files import write_atomically

MAGIC = b"METALYARD VIRTUAL FIRMWARE 1\n"
HEADER_LIMIT = 65536


class ImageError(ValueError):
    """The file is no image, or is damaged; the text says what was found."""


@dataclass(frozen=True)
class Image:
    """What an image brings: a version for components, by regular expression on the FirmwareInventory member's Id."""

    targets: tuple[str, ...]
    version: str

    def fits(self, component: str) -> bool:
        """Whether the image is for this FirmwareInventory member."""
        return any(re.fullmatch(target, component) for target in self.targets)


def firmware_image(path: Path, targets: Sequence[str], version: str, *, size: int = 65536) -> Path:
    """Write an image that brings ``version`` to the components whose Id matches one of ``targets`` in full.

    ``targets`` are FirmwareInventory member Ids or regular expressions on them (``HGX_FW_GPU_SXM_[1-8]``);
    ``size`` is the payload's length in bytes. The content follows from the arguments alone. Returns ``path``.
    """
    if not targets or not version:
        raise ValueError("an image needs at least one target and a version")
    seed = hashlib.sha256(json.dumps([sorted(targets), version]).encode()).digest()
    payload = (seed * (size // len(seed) + 1))[:size]
    header = {"targets": list(targets), "version": version, "size": size, "sha256": hashlib.sha256(payload).hexdigest()}
    write_atomically(path, MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + payload, mode=0o644)
    return path


def read_image(data: bytes) -> Image:
    """Read and verify an image; :class:`ImageError` when it is none or not whole."""
    if not data.startswith(MAGIC):
        raise ImageError("not a firmware image of this machine: its signature is missing")
    line, newline, payload = data[len(MAGIC) : len(MAGIC) + HEADER_LIMIT].partition(b"\n")
    if not newline:
        raise ImageError("the image's header is cut short")
    try:
        header = json.loads(line)
        targets, version = tuple(str(t) for t in header["targets"]), str(header["version"])
        size, digest = int(header["size"]), str(header["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise ImageError(f"the image's header can't be read: {error}") from error
    payload = data[len(MAGIC) + len(line) + 1 :]
    if len(payload) != size:
        raise ImageError(f"the image's payload is {len(payload)} bytes, expected {size}")
    if hashlib.sha256(payload).hexdigest() != digest:
        raise ImageError("the image's payload does not have the digest that its header names")
    return Image(targets, version)
