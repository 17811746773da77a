"""The region's power driver and the emulated BMCs of the rack: the two halves of the virtual rack fit."""

import asyncio

from maas_double import HARDWARE, KEY

from metalyard.plan.catalogue import load_baseline, load_profile
from metalyard.virtual.bmc.config import BmcConfig
from metalyard.virtual.bmc.server import BmcFleet
from metalyard.virtual.maas.region import MaasRegion
from metalyard.virtual.maas.status import Status
from metalyard.virtual.models import generate


class Metal:
    """What the BMC switches."""

    def __init__(self, node, mac, region):
        self.node, self.mac, self.region = node, mac, region
        self.power_state = "Off"
        self.booted = []
        self.tasks = []

    async def power_on(self, boot):
        self.power_state = "On"
        if boot.network:
            self.tasks.append(asyncio.create_task(self.boot()))

    async def power_off(self, graceful):
        self.power_state = "Off"

    async def boot(self):
        action = await self.region.boot(self.mac)
        self.booted.append(action.kind)
        if action.kind == "commission":
            await self.region.commissioned(self.mac, HARDWARE)
        elif action.kind == "deploy":
            await self.region.deployed(self.mac)


async def test_commission_deploy_and_quarantine_over_the_emulated_bmc(rack):
    plan = rack.plan.model_copy(update={"baseline": "2026.11-h100"})
    node = plan.nodes[0]
    hardware = generate(node, load_profile(plan, node.profile), load_baseline(plan))
    region = MaasRegion("127.0.0.1", 0, KEY, state_path=rack.folder / "other.json", speed=20)
    metal = Metal(node.name, node.boot_mac, region)
    config = BmcConfig(
        node=node.name,
        address="127.0.0.1:0",
        hardware=lambda: hardware,
        machine=metal,
        factory_password="factory",
        certificate=rack.folder / "bmc.pem",
        key=rack.folder / "bmc.key",
        quirks={"password_change_enforced": False},
    )
    fleet = BmcFleet([config])
    await region.start()
    await fleet.start()
    try:
        server = next(iter(fleet.servers.values()))
        rack.secrets.entries["bmc/gpu-1"]["password"] = "factory"
        bmc = node.bmc.model_copy(update={"address": f"127.0.0.1:{server.port}"})
        maas = plan.maas.model_copy(update={"url": region.url})
        plan = plan.model_copy(update={"nodes": [node.model_copy(update={"bmc": bmc})], "maas": maas})
        result = (await rack.sweep(plan=plan))["gpu-1"]
        assert not result.failed, result.message
        assert metal.booted == ["commission", "deploy"]
        verdicts = {"gpu-1": {"outcome": "fail", "reasons": ["a GPU is missing"]}}
        result = (await rack.sweep("admit", plan=plan, verdicts=verdicts))["gpu-1"]
        assert not result.failed, result.message
        record = next(iter(region.state.machines.values()))
        async with asyncio.timeout(20):
            while record.pending:  # noqa: ASYNC110  nobody signals it
                await asyncio.sleep(0.02)
        assert (record.status, metal.power_state) == (Status.BROKEN, "Off")
    finally:
        await region.stop()
        await fleet.stop()
