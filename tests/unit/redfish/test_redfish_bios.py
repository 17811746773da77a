"""BIOS attributes: what differs, what waits already, and the reset that applies them."""

from __future__ import annotations

from typing import Any

import pytest
from bmc_double import SYSTEM, BmcDouble, Reply
from hypothesis import given
from hypothesis import strategies as st

from metalyard.redfish.bios import BiosState, apply_bios, drift, read_bios, same, write_bios
from metalyard.redfish.client import Bmc
from metalyard.redfish.errors import BmcError
from metalyard.redfish.layout import read_layout

BIOS = f"{SYSTEM}/Bios"
WAITING = f"{SYSTEM}/Bios/Settings"
DESIRED = {"SubNumaClustering": "Disabled", "NumaNodesPerSocket": 1}
NAMES = st.sampled_from(["A", "B", "C", "D"])
VALUES = st.sampled_from(["Enabled", "Disabled"]) | st.integers(0, 3) | st.booleans()


def state(current: dict[str, Any], pending: dict[str, Any] | None = None) -> BiosState:
    return BiosState(BIOS, WAITING, current, pending or {}, False)


@pytest.fixture
def double() -> BmcDouble:
    made = BmcDouble()
    made.resources[SYSTEM]["Bios"] = {"@odata.id": BIOS}
    made.resources[BIOS] = {
        "Attributes": {"SubNumaClustering": "Enabled", "NumaNodesPerSocket": 1, "Other": "x"},
        "@Redfish.Settings": {"SettingsObject": {"@odata.id": WAITING}},
    }
    made.resources[WAITING] = {"Attributes": {}}

    def applies(request: Any) -> Reply:
        made.resources[SYSTEM]["PowerState"] = "Off" if "Off" in request.body["ResetType"] else "On"
        if "Off" not in request.body["ResetType"]:
            made.resources[BIOS]["Attributes"] |= made.resources[WAITING].pop("Attributes", {})
        return Reply(204)

    made.always("POST", ".*ComputerSystem.Reset", applies)
    return made


@pytest.fixture
async def bmc(double: BmcDouble) -> Bmc:
    client = double.client()
    await client.login("admin", "factory-Pass-1")
    return client


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, "1", True),
        (True, "true", True),
        ("True", True, True),
        (1, True, False),
        ("Enabled", "enabled", False),
        ("Enable", "Enabled", False),
        (2, "1", False),
    ],
)
def test_values_that_mean_the_same(left: object, right: object, expected: bool) -> None:
    assert same(left, right) is expected


def test_the_four_cases() -> None:
    left = drift(
        state({"A": "on", "B": "off", "C": "off", "D": "on"}, {"C": "on", "D": "off"}),
        {"A": "on", "B": "on", "C": "on", "D": "on", "E": "on"},
    )
    assert left.write == {"B": "on", "D": "on"}  # D is right, and waits to be changed away
    assert left.waiting == {"C": "on"}
    assert left.unknown == ("E",)


def test_supermicros_suffix_and_types() -> None:
    current = {"AES_NI_3C75": "Disable", "Cores_0A1F": "0", "Depth": 4, "Flag": False}
    left = drift(state(current), {"AES_NI": "Enable", "Cores": 0, "Depth": "8", "Flag": "true"})
    assert left.write == {"AES_NI_3C75": "Enable", "Depth": 8, "Flag": True}
    assert drift(state({"X_0001": 1, "X_0002": 1}), {"X": 1}).unknown == ("X",)


@given(
    current=st.dictionaries(NAMES, VALUES),
    pending=st.dictionaries(NAMES, VALUES),
    desired=st.dictionaries(NAMES, VALUES),
)
def test_writing_and_resetting_always_ends_right(
    current: dict[str, Any], pending: dict[str, Any], desired: dict[str, Any]
) -> None:
    pending = {k: v for k, v in pending.items() if k in current and not same(v, current[k])}
    left = drift(state(current, pending), desired)
    assert set(left.unknown) == set(desired) - set(current)
    assert not set(left.write) & set(left.waiting)
    known = {k: v for k, v in desired.items() if k in current}
    after_write = {k: v for k, v in {**pending, **left.write}.items() if not same(v, current[k])}
    again = drift(state(current, after_write), known)
    assert not again.write  # a pending change is not made twice
    assert drift(state({**current, **after_write}), known).right


async def test_only_what_differs_is_written(double: BmcDouble, bmc: Bmc) -> None:
    read = await read_bios(bmc, await read_layout(bmc))
    assert read is not None
    await write_bios(bmc, read, drift(read, DESIRED).write)
    assert double.sent("PATCH")[0].path == WAITING
    assert double.sent("PATCH")[0].body == {"Attributes": {"SubNumaClustering": "Disabled"}}


async def test_the_apply_time_goes_along_where_the_bmc_wants_it(double: BmcDouble, bmc: Bmc) -> None:
    double.resources[BIOS]["@Redfish.Settings"]["SupportedApplyTimes"] = ["OnReset", "AtMaintenanceWindowStart"]
    read = await read_bios(bmc, await read_layout(bmc))
    assert read is not None
    await write_bios(bmc, read, {"SubNumaClustering": "Disabled"})
    assert double.sent("PATCH")[0].body["@Redfish.SettingsApplyTime"] == {"ApplyTime": "OnReset"}


@pytest.mark.parametrize(
    ("settings", "pending"),
    [
        ({}, {}),
        ({"Attributes": None}, {}),
        ({"Attributes": {"SubNumaClustering": "Disabled"}}, {"SubNumaClustering": "Disabled"}),
        ({"Attributes": {"SubNumaClustering": "Enabled", "Other": None, "Gone": 1}}, {}),
    ],
)
async def test_what_waits(double: BmcDouble, bmc: Bmc, settings: dict, pending: dict) -> None:
    double.resources[WAITING] = settings
    read = await read_bios(bmc, await read_layout(bmc))
    assert read is not None
    assert read.pending == pending


async def test_a_bmc_without_bios(double: BmcDouble, bmc: Bmc) -> None:
    del double.resources[SYSTEM]["Bios"]
    assert await read_bios(bmc, await read_layout(bmc)) is None


@pytest.mark.parametrize("power", ["On", "Off"])
async def test_a_reset_applies_and_leaves_the_power_as_it_was(double: BmcDouble, bmc: Bmc, power: str) -> None:
    double.resources[SYSTEM]["PowerState"] = power
    layout = await read_layout(bmc)
    read = await read_bios(bmc, layout)
    assert read is not None
    await write_bios(bmc, read, drift(read, DESIRED).write)
    await apply_bios(bmc, layout, DESIRED)
    assert double.resources[BIOS]["Attributes"]["SubNumaClustering"] == "Disabled"
    assert double.resources[SYSTEM]["PowerState"] == power


async def test_an_attribute_that_does_not_take_is_named(double: BmcDouble, bmc: Bmc) -> None:
    layout = await read_layout(bmc)
    with pytest.raises(BmcError, match="SubNumaClustering is 'Enabled', expected 'Disabled'"):
        await apply_bios(bmc, layout, DESIRED, deadline=600)
    assert bmc.pace.time < 700
