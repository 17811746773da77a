"""A region with two machines behind it, a plan for them, and one way to sweep."""

import asyncio
import contextlib

import pytest
from maas_double import KEY, Machine, Secrets, certificate

from metalyard.maas import operations
from metalyard.plan.model import SitePlan
from metalyard.sweep import Context
from metalyard.virtual.maas.region import MaasRegion

MACS = ("0c:42:a1:00:01:01", "0c:42:a1:00:01:02")


def plan_of(folder, region, machines, **maas):
    return SitePlan.model_validate(
        {
            "schema": 1,
            "site": "virtual",
            "state": str(folder / "state"),
            "baseline": "b",
            "bmc": {"factory_password": {"env": "NONE"}},
            "maas": {
                "url": region.url,
                "key": {"file": str(folder / "key")},
                "bmc_tls_verify": False,
                "distro_series": "bookworm",
                "tags": ["h100"],
                "commission_timeout": 20,
                "deploy_timeout": 20,
                **maas,
            },
            "ssh": {"user": "metalyard", "key": str(folder / "id_ed25519")},
            "racks": [{"name": "r01"}],
            "nodes": [
                {
                    "name": f"gpu-{number}",
                    "rack": "r01",
                    "unit": number,
                    "serial": f"S{number}",
                    "profile": "dgx-h100",
                    "bmc": {"address": machine.address},
                    "boot_mac": machine.mac,
                    "address": f"10.231.0.{100 + number}/24",
                }
                for number, machine in enumerate(machines, 1)
            ],
        }
    )


class Rack:
    def __init__(self, folder, region, machines):
        self.folder, self.region, self.machines = folder, region, machines
        self.plan = plan_of(folder, region, machines)
        self.secrets = Secrets(
            {f"bmc/gpu-{n}": {"user": "admin", "password": m.password} for n, m in enumerate(machines, 1)}
        )
        self.progress = []

    async def sweep(self, operation="provision", *, check=False, plan=None, nodes=None, **options):
        plan = plan or self.plan
        results = {}

        def report(result):
            assert result.host not in results, "each host is reported once"
            results[result.host] = result

        context = Context(
            plan=plan,
            nodes=[node for node in plan.nodes if nodes is None or node.name in nodes],
            secrets=self.secrets,
            report=report,
            check=check,
            options={"poll_seconds": 0.05, **options},
            progress=lambda host, text: self.progress.append((host, text)),
        )
        async with asyncio.timeout(60):
            await getattr(operations, operation)(context)
        assert set(results) == {node.name for node in context.nodes}
        return results

    def record(self, number=1):
        return next(m for m in self.region.state.machines.values() if m.hostname == f"gpu-{number}")


@pytest.fixture
async def rack(tmp_path):
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "id_ed25519.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE test\n")
    cert, key = certificate(tmp_path)
    region = MaasRegion("127.0.0.1", 0, KEY, bmc_ca=cert, state_path=tmp_path / "maas.json", speed=100)
    machines = [Machine(mac) for mac in MACS]
    async with contextlib.AsyncExitStack() as stack:
        await region.start()
        stack.push_async_callback(region.stop)
        for machine in machines:
            machine.region = region
            await machine.start(cert, key)
            stack.push_async_callback(machine.stop)
        yield Rack(tmp_path, region, machines)
