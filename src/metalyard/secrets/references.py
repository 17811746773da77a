"""Reads a secret that the plan only names: an environment variable, or a file that not everybody may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from metalyard.plan.model import SecretRef, SitePlan
from metalyard.secrets.store import SecretsError


def resolve(ref: SecretRef, plan: SitePlan) -> str:
    """The secret, without the newline that editors leave at the end.

    :class:`SecretsError` names the variable or file: not there, empty, no text, or readable by everybody.
    """
    if ref.env is not None and ref.file is None:
        return _from_environment(ref.env)
    if ref.file is not None and ref.env is None:
        return _from_file(plan.path(ref.file))
    raise SecretsError("a secret's reference needs exactly one of 'env' and 'file'")


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise SecretsError(f"the environment variable {name} is not set; export it before this command")
    if not value.strip():
        raise SecretsError(f"the environment variable {name} is empty; set it to the secret")
    return value.rstrip("\r\n")


def _from_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise SecretsError(f"{path} is no file; name the file that holds the secret")
        if mode & stat.S_IRWXO:
            raise SecretsError(f"{path} can be read by everybody; run `chmod 600 {path}`")
        value = path.read_bytes().decode()
    except FileNotFoundError:
        raise SecretsError(f"{path} does not exist; write the secret there, with mode 600") from None
    except UnicodeDecodeError:
        raise SecretsError(f"{path} is no UTF-8 text; write the secret there as text") from None
    except OSError as error:
        raise SecretsError(f"{path} can't be read ({error.strerror}); check its owner and mode") from None
    if not value.strip():
        raise SecretsError(f"{path} is empty; write the secret there")
    return value.rstrip("\r\n")
