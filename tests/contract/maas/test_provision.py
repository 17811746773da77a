"""Nodes through an emulated MAAS that drives BMCs over TLS: from nothing to deployed, and from wherever it stopped."""

import asyncio
import base64
import copy

import pytest
import yaml
from maas_double import HARDWARE, KEY

from metalyard.maas import operations
from metalyard.maas.client import MaasClient
from metalyard.maas.statuses import TABLE, Move
from metalyard.sweep import Context
from metalyard.virtual.maas.status import Status

OURS = frozenset({Status.DEPLOYED, Status.DEPLOYING, Status.ALLOCATED, Status.FAILED_DEPLOYMENT, Status.BROKEN})
"""Statuses in which a machine belongs to somebody."""


async def test_from_nothing_to_deployed(rack):
    results = await rack.sweep()
    for number, result in enumerate((results["gpu-1"], results["gpu-2"]), 1):
        assert not result.failed, result.message
        assert result.changed
        assert result.data["status_name"] == "Deployed"
        assert result.data["address"] == f"10.231.0.{100 + number}/24"
        assert result.data["system_id"] == rack.record(number).system_id
        assert result.diff
    machine = rack.machines[0]
    assert [action.kind for action in machine.boots] == ["commission", "deploy"]
    deploy = machine.boots[-1]
    assert deploy.addresses == ["10.231.0.101/24"]
    assert deploy.hostname == "gpu-1"
    assert deploy.distro_series == "bookworm"
    data = yaml.safe_load(deploy.user_data)
    assert deploy.user_data.startswith(b"#cloud-config\n")
    assert data["hostname"] == "gpu-1"
    assert data["users"][0]["ssh_authorized_keys"] == ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE test"]
    assert rack.record().tags == ["h100"]
    assert len(rack.region.state.machines) == 2


async def test_the_bmc_sees_what_a_rack_controller_sends(rack):
    await rack.sweep(nodes=["gpu-1"])
    log = rack.machines[0].log
    first = log[: log.index("Reset On") + 1]
    assert first == [
        "GET Systems",
        "GET Systems",
        "GET Systems/DGX",
        "GET Systems/DGX",
        "PATCH Systems/DGX",
        "Reset On",
    ]
    assert "Reset ForceOff" in log, "a machine that is on is switched off before it is deployed"


async def test_a_second_run_changes_nothing(rack):
    await rack.sweep()
    before = {m.mac: len(m.log) for m in rack.machines}
    results = await rack.sweep()
    for result in results.values():
        assert not result.failed, result.message
        assert not result.changed
        assert result.diff == []
    assert {m.mac: len(m.log) for m in rack.machines} == before, "nothing touched a BMC"


async def test_check_mode_changes_nothing_and_says_what_would(rack):
    results = await rack.sweep(check=True)
    assert all(result.changed and not result.failed for result in results.values())
    assert "would be enlisted" in results["gpu-1"].message
    assert rack.region.state.machines == {}
    assert set(rack.region.state.tags) == {"virtual"}
    await rack.sweep()
    results = await rack.sweep(check=True)
    assert not any(result.changed for result in results.values())


async def test_a_rotated_password_reaches_maas_and_stays_out_of_the_diff(rack):
    await rack.sweep(nodes=["gpu-1"])
    rack.secrets.entries["bmc/gpu-1"]["password"] = "the-next-one"
    check = (await rack.sweep(nodes=["gpu-1"], check=True))["gpu-1"]
    assert check.changed
    assert rack.record().power_parameters["power_pass"] == "calvin"
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.changed
    assert rack.record().power_parameters["power_pass"] == "the-next-one"
    assert "the-next-one" not in str(result)
    assert "calvin" not in str(result)
    assert not (await rack.sweep(nodes=["gpu-1"]))["gpu-1"].changed


async def test_nodes_at_once_with_one_mac_make_one_machine(rack):
    plan = rack.plan.model_copy(update={"nodes": [rack.plan.nodes[0], rack.plan.nodes[0]]})
    seen = []
    await operations.provision(
        Context(plan=plan, nodes=plan.nodes, secrets=rack.secrets, report=seen.append, options={"poll_seconds": 0.05})
    )
    assert [result.failed for result in seen] == [False, False], [result.message for result in seen]
    assert len(rack.region.state.machines) == 1


async def test_two_machines_with_the_boot_mac_are_for_a_person(rack):
    await rack.sweep(nodes=["gpu-1"])
    twin = rack.record()
    other = copy.deepcopy(twin)
    other.system_id, other.hostname = "twinnn", "race1"
    rack.region.state.machines["twinnn"] = other
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "twinnn" in result.message
    assert "0c:42:a1:00:01:01" in result.message
    assert "Delete" in result.next_step


async def test_a_machine_that_booted_by_itself_is_adopted_by_its_mac(rack):
    async with MaasClient(rack.region.url, KEY) as client:
        await client.create_machine(
            [
                ("architecture", "amd64/generic"),
                ("mac_addresses", rack.machines[0].mac),
                ("power_type", "manual"),
                ("commission", "false"),
                ("hostname", "noted-rhino"),
            ]
        )
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert not result.failed, result.message
    assert len(rack.region.state.machines) == 1
    assert rack.record().power_type == "redfish"


async def _reach(rack, status):
    """Bring gpu-1's machine to a status, ours where that counts."""
    await rack.sweep(nodes=["gpu-1"])
    record = rack.record()
    core = rack.region._core
    machine = rack.machines[0]
    machine.on = False
    record.power_state = "off"
    if status not in OURS:
        core.free(record)
    elif status != Status.DEPLOYED:
        notes = dict(record.annotations)
        core.clear_system(record)
        record.annotations = notes if status != Status.ALLOCATED else {}
    if status in (Status.BROKEN, Status.FAILED_DEPLOYMENT):
        record.error_description = "Installation failed."
    record.previous_status = int(Status.READY)
    core.enter(record, status, quiet=True)
    return record


FINISHES = {
    Status.COMMISSIONING: lambda rack, mac, hw: rack.region.commissioned(mac, hw),
    Status.TESTING: lambda rack, mac, hw: rack.region.commissioned(mac, hw),
    Status.DISK_ERASING: lambda rack, mac, hw: rack.region.commissioned(mac, hw),
    Status.DEPLOYING: lambda rack, mac, hw: rack.region.deployed(mac),
}


@pytest.mark.parametrize("status", list(Status), ids=lambda status: status.name)
async def test_it_resumes_from_every_status(rack, status):
    record = await _reach(rack, status)
    if status == Status.DEPLOYING:
        record.osystem, record.distro_series = "custom", "bookworm"
    boots = len(rack.machines[0].boots)
    rack.progress.clear()
    work = asyncio.create_task(rack.sweep(nodes=["gpu-1"]))
    if TABLE[status].move is Move.WAIT:
        async with asyncio.timeout(20):
            while not rack.progress or "waiting" not in rack.progress[-1][1]:  # noqa: ASYNC110  nobody signals it
                await asyncio.sleep(0.01)
        if status in FINISHES:
            await FINISHES[status](rack, rack.machines[0].mac, HARDWARE)
        else:
            rack.region._core.free(record)
    result = (await work)["gpu-1"]
    move = TABLE[status].move
    kinds = [action.kind for action in rack.machines[0].boots[boots:]]
    if move in (Move.STOP, Move.BROKEN):
        assert result.failed
        assert TABLE[status].name in result.message or "broken" in result.message
        assert result.next_step
        assert kinds == []
        assert record.status == status, "a stop touches nothing"
    else:
        assert not result.failed, result.message
        assert record.status == Status.DEPLOYED
        assert result.changed is (status != Status.DEPLOYED)
        expected = {
            Status.NEW: ["commission", "deploy"],
            Status.DEPLOYED: [],
            Status.DEPLOYING: [],
        }.get(status, ["deploy"])
        assert kinds == expected


async def test_a_failed_deployment_is_said_with_its_reason_and_tried_again_only_when_asked(rack):
    rack.machines[0].fail_with = "Installation failed: no space left"
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "Failed commissioning" in result.message
    assert "maas-support-info" in result.message, "the script that failed is named"
    rack.machines[0].fail_with = None
    still = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert still.failed
    assert "commission it there" in still.next_step
    again = (await rack.sweep(nodes=["gpu-1"], retry_failed=["gpu-1"]))["gpu-1"]
    assert not again.failed, again.message


async def test_a_failed_installation(rack):
    await _reach(rack, Status.READY)
    rack.machines[0].fail_with = "Installation failed: no space left"
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "no space left" in result.message
    assert "release" in result.next_step
    rack.machines[0].fail_with = None
    again = (await rack.sweep(nodes=["gpu-1"], retry_failed=True))["gpu-1"]
    assert not again.failed, again.message


async def test_what_we_broke_is_not_deployed_again_until_it_is_said_to_be_mended(rack):
    await rack.sweep(nodes=["gpu-1"])
    verdicts = {"gpu-1": {"outcome": "fail", "reasons": ["gpu 5 is missing"]}}
    await rack.sweep("admit", nodes=["gpu-1"], verdicts=verdicts)
    boots = len(rack.machines[0].boots)
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "set aside by Metalyard: gpu 5 is missing" in result.message
    assert len(rack.machines[0].boots) == boots
    result = (await rack.sweep(nodes=["gpu-1"], fixed=["gpu-1"]))["gpu-1"]
    assert not result.failed, result.message
    assert rack.record().status == Status.DEPLOYED
    assert rack.machines[0].boots[-1].instance_id.endswith("-2"), "cloud-init runs as on a new machine"


async def test_a_bmc_that_maas_does_not_reach(rack):
    rack.machines[0].password = "changed-behind-our-back"
    results = await rack.sweep()
    bad, good = results["gpu-1"], results["gpu-2"]
    assert bad.failed
    assert "No rack controllers can access the BMC" in bad.message
    assert rack.machines[0].address in bad.message
    assert not good.failed, good.message
    rack.machines[0].password = "calvin"
    assert not (await rack.sweep(nodes=["gpu-1"]))["gpu-1"].failed


async def test_a_deployment_whose_power_fails_is_a_failed_deployment(rack):
    await _reach(rack, Status.READY)
    rack.machines[0].broken_bmc = True
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "503" in result.message
    assert rack.record().status == Status.FAILED_DEPLOYMENT


async def test_a_machine_that_never_comes_up_has_a_deadline(rack):
    rack.machines[0].hang = True
    plan = rack.plan.model_copy(update={"maas": rack.plan.maas.model_copy(update={"commission_timeout": 0.3})})
    result = (await rack.sweep(nodes=["gpu-1"], plan=plan))["gpu-1"]
    assert result.failed
    assert "still Commissioning" in result.message


async def test_a_machine_deployed_by_somebody_else_is_left_alone(rack):
    await rack.sweep(nodes=["gpu-1"])
    record = rack.record()
    record.annotations = {}
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "not by Metalyard" in result.message
    record.owner = "somebody"
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert "by 'somebody'" in result.message
    assert record.status == Status.DEPLOYED


async def test_an_address_that_is_taken(rack):
    await rack.sweep(nodes=["gpu-1"])
    plan = rack.plan.model_copy(
        update={"nodes": [rack.plan.nodes[1].model_copy(update={"address": "10.231.0.101/24"})]}
    )
    result = (await rack.sweep(plan=plan))["gpu-2"]
    assert result.failed
    assert "10.231.0.101" in result.message
    assert "already in use" in result.message


async def test_no_subnet_for_the_planned_address(rack):
    plan = rack.plan.model_copy(update={"nodes": [rack.plan.nodes[0].model_copy(update={"address": "10.9.0.1/24"})]})
    result = (await rack.sweep(plan=plan))["gpu-1"]
    assert result.failed
    assert "no subnet for 10.9.0.1/24" in result.message


async def test_no_password_in_the_store(rack):
    rack.secrets.entries.clear()
    result = (await rack.sweep(nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "'bmc'" in result.next_step
    assert rack.region.state.machines == {}


async def test_a_bad_key_is_said_of_each_node_without_the_secret(rack):
    (rack.folder / "key").write_text("consumer:token:wrong")
    results = await rack.sweep()
    for result in results.values():
        assert result.failed
        assert "API key" in result.message
        assert "401" in result.message
        assert "secret'" not in str(result)
        assert "&secret" not in str(result)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("pool", "nosuch", "no pool 'nosuch'"),
        ("zone", "nosuch", "no zone 'nosuch'"),
        ("bmc_tls_verify", True, "verify"),
    ],
)
async def test_a_plan_that_this_region_can_not_meet(rack, field, value, text):
    plan = rack.plan.model_copy(update={"maas": rack.plan.maas.model_copy(update={field: value})})
    results = await rack.sweep(plan=plan)
    assert all(result.failed and text in result.message for result in results.values())
    assert rack.region.state.machines == {}


async def test_an_image_that_the_region_has_not(rack):
    plan = rack.plan.model_copy(update={"maas": rack.plan.maas.model_copy(update={"distro_series": "plucky"})})
    result = (await rack.sweep(plan=plan, nodes=["gpu-1"]))["gpu-1"]
    assert result.failed
    assert "plucky" in result.message
    assert "ubuntu/noble" in result.message


async def test_a_public_key_that_is_not_there(rack):
    (rack.folder / "id_ed25519.pub").unlink()
    results = await rack.sweep()
    assert all(result.failed and "id_ed25519.pub" in result.message for result in results.values())


@pytest.mark.parametrize("limit", [1, 2])
async def test_blocking_calls_are_few_at_once(rack, limit):
    running, most = 0, 0
    core = rack.region._core
    original = core.power

    async def counted(machine, change):
        nonlocal running, most
        blocks = machine.status == Status.COMMISSIONING
        running += blocks
        most = max(most, running)
        try:
            await asyncio.sleep(0.1)
            await original(machine, change)
        finally:
            running -= blocks

    core.power = counted
    plan = rack.plan.model_copy(update={"maas": rack.plan.maas.model_copy(update={"parallel_power_calls": limit})})
    results = await rack.sweep(plan=plan)
    assert all(not result.failed for result in results.values())
    assert most == limit


async def test_user_data_travels_as_base64(rack):
    await rack.sweep(nodes=["gpu-1"])
    assert base64.b64decode(rack.record().user_data, validate=True).startswith(b"#cloud-config\n")
