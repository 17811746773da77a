"""A hardware model followed in its file: read anew when the file changes, and not for every answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metalyard.virtual.hardware import Hardware, load


def hardware_file(path: Path) -> Callable[[], Hardware]:
    """What a :class:`~metalyard.virtual.bmc.config.BmcConfig` calls for its hardware.

    A look at the file's inode, size and time costs a thousandth of reading it. While a writer is half through, the
    model as it was goes on being answered; a file that never could be read raises ``OSError`` or ``ValueError``.
    """
    seen: tuple[int, int, int] | None = None
    model: Hardware | None = None

    def current() -> Hardware:
        nonlocal seen, model
        status = path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if model is None or stamp != seen:
            try:
                model = load(path)
            except ValueError:
                if model is None:
                    raise
            else:
                seen = stamp
        return model

    return current
