"""Emulated BMCs for the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_bmc import FACTORY, PASSWORD, Running, emulated


@pytest.fixture
def delivered(tmp_path: Path) -> Iterator[Running]:
    """A BMC as it comes from the factory."""
    with emulated(tmp_path) as running:
        yield running


@pytest.fixture
def bmc(delivered: Running) -> Running:
    """A BMC whose factory password is replaced."""
    delivered.ask("PATCH", "/redfish/v1/AccountService/Accounts/1", {"Password": PASSWORD}, password=FACTORY)
    return delivered
