"""A folder of encrypted entries, one file each: written whole or not at all, readable with the key file beside them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

from metalyard.files import write_atomically

KEY = "key"
SUFFIX = ".secret"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")


class SecretsError(ValueError):
    """A secret can't be read or kept. The text names the file or variable and the next step, never a secret."""


class FileSecretStore:
    """Implements :class:`metalyard.sweep.Secrets` with one Fernet-encrypted JSON file per entry.

    ``bmc/gpu-1`` is ``<folder>/bmc/gpu-1.secret``. The key is ``<folder>/key``, made with the first write, for its
    owner only. Back it up apart from the entries: without it they are lost.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> dict[str, Any] | None:
        """The entry, or None when there is none. :class:`SecretsError` where it is there and can't be read."""
        target = self._target(name)
        try:
            sealed = target.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretsError(f"{target} can't be read ({error.strerror}); check its owner and mode") from None
        fernet = self._fernet(target)
        try:
            entry = json.loads(fernet.decrypt(sealed))
        except InvalidToken:
            raise SecretsError(
                f"{target} does not open with {self._key}: another key, or the file is damaged; "
                "restore both from the same backup"
            ) from None
        except ValueError:
            raise SecretsError(f"{target} holds no JSON; restore it from a backup") from None
        if not isinstance(entry, dict):
            raise SecretsError(f"{target} holds no entry (a JSON object); restore it from a backup")
        return entry

    def write(self, name: str, entry: dict[str, Any]) -> None:
        """Keep an entry; it is on disk, with its directory entry, when this returns."""
        target = self._target(name)
        sealed = self._fernet(target, make=True).encrypt(json.dumps(entry, sort_keys=True).encode())
        try:
            write_atomically(target, sealed)
        except OSError as error:
            raise SecretsError(
                f"{target} can't be written ({error.strerror}); check space and owner of the folder"
            ) from None

    @property
    def _key(self) -> Path:
        return self._folder / KEY

    def _target(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise SecretsError(f"'{name}' is no name of an entry; expected words like 'bmc/gpu-r01-1'")
        return self._folder / f"{name}{SUFFIX}"

    def _fernet(self, target: Path, make: bool = False) -> Fernet:
        try:
            if make and not self._key.exists():
                self._make_key()
            mode = self._key.stat().st_mode
            key = self._key.read_bytes().strip()
        except FileNotFoundError:
            raise SecretsError(f"{self._key} is missing, and {target} needs it; restore it from a backup") from None
        except OSError as error:
            raise SecretsError(f"{self._key} can't be used ({error.strerror}); check its owner and mode") from None
        if mode & 0o077:
            raise SecretsError(
                f"{self._key} can be read by others; run `chmod 600 {self._key}` and change what it kept"
            )
        try:
            return Fernet(key)
        except ValueError:
            raise SecretsError(f"{self._key} is no key (it is cut or changed); restore it from a backup") from None

    def _make_key(self) -> None:
        """A new key, unless entries wait for a lost one; of two processes that make one at once, the first wins."""
        orphan = next(self._folder.rglob(f"*{SUFFIX}"), None)
        if orphan is not None and not self._key.exists():
            raise SecretsError(f"{self._key} is missing, and {orphan} needs it; restore it from a backup")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._folder / f".{KEY}.{os.getpid()}"
        write_atomically(draft, Fernet.generate_key())
        try:
            os.link(draft, self._key)
        except FileExistsError:
            return
        finally:
            draft.unlink()
        directory = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
