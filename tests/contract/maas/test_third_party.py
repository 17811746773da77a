"""A real client that others wrote drives the emulated region: python-libmaas, through the API's own description.

python-libmaas is AGPL and unmaintained, so it is no dependency, not even of the tests: point METALYARD_LIBMAAS at a
Python that has it (``python3.11 -m venv DIR && DIR/bin/pip install python-libmaas``).
"""

import asyncio
import json
import os

import pytest
from maas_double import KEY

PROGRAM = """
import asyncio, json, sys
from maas.client import connect
from maas.client.bones import CallError
from maas.client.enum import NodeStatus

async def main():
    url, key, mac = sys.argv[1:4]
    client = await connect(url, apikey=key)
    said = {"me": (await client.users.whoami()).username, "version": (await client.version.get()).version}
    power = {"power_address": sys.argv[4], "power_user": "admin", "power_pass": sys.argv[5]}
    machine = await client.machines.create("amd64/generic", [mac], "redfish", power, hostname="lib")
    while machine.status == NodeStatus.COMMISSIONING:
        await asyncio.sleep(0.1)
        await machine.refresh()
    await machine.commission(testing_scripts=["smartctl-validate"], wait=True, wait_interval=0.1)
    said["names"] = sorted(m.hostname for m in await client.machines.list())
    said["commissioned"] = machine.status.name
    said["boot_mac"] = machine.boot_interface.mac_address
    taken = await client.machines.allocate(hostname="lib")
    await taken.deploy(user_data=b"#cloud-config\\n", distro_series="noble", wait=True, wait_interval=0.1)
    said["deployed"] = taken.status.name
    tag = await client.tags.create("third", comment="by libmaas")
    said["tags"] = sorted(t.name for t in await client.tags.list())
    said["subnets"] = [s.cidr for s in await client.subnets.list()]
    said["zones"] = [z.name for z in await client.zones.list()]
    said["pools"] = [p.name for p in await client.resource_pools.list()]
    try:
        await taken.release()
    except CallError as error:
        said["release_with_an_empty_multipart"] = error.status
    await taken.release(comment="done", wait=True, wait_interval=0.1)
    said["released"] = taken.status.name
    print(json.dumps(said))

asyncio.get_event_loop().run_until_complete(main())
"""


async def test_libmaas_from_new_to_deployed_and_back(rack):
    python = os.environ.get("METALYARD_LIBMAAS")
    if not python:
        pytest.skip("METALYARD_LIBMAAS is not set: a Python that has python-libmaas")
    machine = rack.machines[0]
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        PROGRAM,
        rack.region.url,
        KEY,
        machine.mac,
        machine.address,
        machine.password,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, errors.decode()[-3000:]
    said = json.loads(out)
    assert said["me"] == "admin"
    assert said["version"] == "3.7.3"
    assert (said["commissioned"], said["deployed"], said["released"]) == ("READY", "DEPLOYED", "READY")
    assert said["release_with_an_empty_multipart"] == 400, "as a region since 3.6 answers it"
    assert said["boot_mac"] == machine.mac
    assert said["tags"] == ["third", "virtual"]
    assert said["subnets"] == ["10.231.0.0/24"]
    assert [action.kind for action in machine.boots] == ["commission", "commission", "deploy"]
    assert machine.boots[-1].user_data == b"#cloud-config\n"
