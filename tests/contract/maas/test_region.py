"""The emulated region over time: kills, restarts, deadlines, verification of certificates."""

import asyncio
import random
import time

import pytest
from maas_double import KEY, Machine

from metalyard.maas.errors import MaasUnavailable
from metalyard.virtual.maas import lifecycle
from metalyard.virtual.maas.model import RegionState
from metalyard.virtual.maas.power import PowerConnError, RedfishDriver
from metalyard.virtual.maas.region import MaasRegion
from metalyard.virtual.maas.status import Status


@pytest.mark.parametrize("seed", range(6))
async def test_killed_at_any_moment_and_run_again_ends_in_the_same_place(rack, seed):
    dice = random.Random(seed)
    for _ in range(3):
        work = asyncio.create_task(rack.sweep())
        await asyncio.sleep(dice.uniform(0.0, 0.7))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    results = await rack.sweep()
    assert all(not result.failed for result in results.values()), [r.message for r in results.values()]
    machines = rack.region.state.machines.values()
    assert sorted(machine.hostname for machine in machines) == ["gpu-1", "gpu-2"]
    assert {machine.status for machine in machines} == {Status.DEPLOYED}
    assert all(machine.tags == ["h100"] for machine in machines)
    results = await rack.sweep()
    assert not any(result.changed for result in results.values())


async def test_a_restart_keeps_machines_and_goes_on_with_what_was_pending(rack):
    await rack.sweep(nodes=["gpu-1"])
    record = rack.record()
    record.pending, record.status = "off", int(Status.RELEASING)
    rack.region._core.save()
    port = rack.region.port
    await rack.region._runner.cleanup()
    again = MaasRegion("127.0.0.1", port, KEY, state_path=rack.folder / "maas.json", speed=100)
    await again.start()
    try:
        async with asyncio.timeout(10):
            while again.state.machines[record.system_id].status != Status.READY:  # noqa: ASYNC110  nobody signals it
                await asyncio.sleep(0.02)
        kept = again.state.machines[record.system_id]
        assert kept.power_parameters["power_pass"] == "calvin"
        assert not rack.machines[0].on
    finally:
        await again.stop()


async def test_the_state_is_whole_and_for_its_owner_only(rack):
    await rack.sweep(nodes=["gpu-1"])
    path = rack.folder / "maas.json"
    assert path.stat().st_mode & 0o077 == 0
    assert RegionState.load(path) == rack.region.state
    path.write_text("{")
    with pytest.raises(ValueError, match="not the state of an emulated MAAS region"):
        RegionState.load(path)


async def test_a_machine_that_reports_nothing_is_given_up(rack):
    rack.machines[0].hang = True
    work = asyncio.create_task(rack.sweep(nodes=["gpu-1"]))
    async with asyncio.timeout(10):
        while not rack.progress or "waiting" not in rack.progress[-1][1]:  # noqa: ASYNC110  nobody signals it
            await asyncio.sleep(0.02)
    rack.record().since = time.time() - 31 * 60
    lifecycle.expire(rack.region._core)
    result = (await work)["gpu-1"]
    assert result.failed
    assert "timed out after 30 minutes" in result.message


async def test_an_unknown_machine_boots_nothing(rack):
    assert (await rack.region.boot("00:00:00:00:00:01")).kind == "none"


async def test_certificates_are_verified_where_the_driver_can(rack, tmp_path_factory):
    machine = rack.machines[0]
    parameters = {
        "power_address": machine.address,
        "power_user": "admin",
        "power_pass": machine.password,
        "power_verify_ssl": "y",
    }
    trusting, strict = RedfishDriver(rack.folder / "bmc.pem"), RedfishDriver(None)
    try:
        assert await trusting.query(parameters) == "off"
        with pytest.raises(PowerConnError):
            await strict.query(parameters)
        assert await strict.query(parameters | {"power_verify_ssl": "n"}) == "off"
    finally:
        await trusting.close()
        await strict.close()


async def test_a_region_with_a_verifying_driver_is_told_to_verify(rack):
    region = MaasRegion("127.0.0.1", 0, KEY, bmc_ca=rack.folder / "bmc.pem", speed=100, verify_field=True)
    await region.start()
    try:
        for machine in rack.machines:
            machine.region = region
        maas = rack.plan.maas.model_copy(update={"url": region.url, "bmc_tls_verify": True})
        results = await rack.sweep(plan=rack.plan.model_copy(update={"maas": maas}))
        assert not any(result.failed for result in results.values())
        kept = {m.power_parameters["power_verify_ssl"] for m in region.state.machines.values()}
        assert kept == {"y"}
    finally:
        await region.stop()


async def test_a_region_that_goes_away_is_waited_for(rack, monkeypatch):
    machine: Machine = rack.machines[0]
    machine.hang = True
    work = asyncio.create_task(rack.sweep(nodes=["gpu-1"]))
    async with asyncio.timeout(10):
        while not rack.progress or "waiting" not in rack.progress[-1][1]:  # noqa: ASYNC110  nobody signals it
            await asyncio.sleep(0.02)
    port = rack.region.port
    await rack.region._runner.cleanup()
    await asyncio.sleep(0.3)
    rack.region.port = port
    await rack.region.start()
    machine.hang = False
    await machine.boot()
    result = (await work)["gpu-1"]
    assert not result.failed, result.message


async def test_a_region_that_is_not_there(rack):
    await rack.region.stop()
    from metalyard.maas import client

    results = {}
    original = client.MaasClient.__init__

    def quick(self, *args, **kwargs):
        original(self, *args, **kwargs, pause=0.01)

    client.MaasClient.__init__ = quick
    try:
        results = await rack.sweep()
    finally:
        client.MaasClient.__init__ = original
    assert all(result.failed and rack.region.url in result.message for result in results.values())
    assert MaasUnavailable.__name__ not in str(results)
