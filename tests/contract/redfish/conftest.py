"""Fixtures: each recorded tree as a BMC that Metalyard is logged in to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from recorded_bmc import TREES, Recorded, RecordedBmc, extract

from metalyard.redfish.client import Bmc


@pytest.fixture(scope="session", params=TREES)
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return request.param, extract(request.param, tmp_path_factory.mktemp(request.param))


@pytest_asyncio.fixture
async def recorded(tree: tuple[str, Path]) -> AsyncIterator[Recorded]:
    name, root = tree
    double = RecordedBmc(root)
    bmc = Bmc(name, "bmc.test", double)
    await bmc.login("root", "secret-1")
    yield Recorded(name, double, bmc)
    await bmc.logout()
    assert double.sessions == 0
    assert double.written == []
