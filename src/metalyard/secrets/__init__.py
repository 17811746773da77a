"""Secrets: an encrypted store for those Metalyard makes, and the reading of those an operator gives by reference."""

from metalyard.secrets.references import resolve
from metalyard.secrets.store import FileSecretStore, SecretsError

__all__ = ["FileSecretStore", "SecretsError", "resolve"]
