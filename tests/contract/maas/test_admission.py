"""The gate's word in MAAS: tags, and broken with the reason."""

import pytest

from metalyard.maas.deployment import MARK
from metalyard.maas.operations import IN_SERVICE, QUARANTINED
from metalyard.virtual.maas.status import Status

PASS = {"outcome": "pass", "reasons": []}
FAIL = {"outcome": "fail", "reasons": ["gpu-1: 7 of 8 GPUs, expected 8", "gpu-1: Xid 79"]}


@pytest.fixture
async def deployed(rack):
    results = await rack.sweep()
    assert not any(result.failed for result in results.values())
    return rack


async def test_admitted_and_refused(deployed):
    results = await deployed.sweep("admit", verdicts={"gpu-1": FAIL, "gpu-2": PASS})
    assert all(result.changed and not result.failed for result in results.values()), results
    bad, good = deployed.record(1), deployed.record(2)
    assert good.status == Status.DEPLOYED
    assert IN_SERVICE in good.tags
    assert QUARANTINED not in good.tags
    assert bad.status == Status.BROKEN
    assert bad.error_description == f"{MARK}gpu-1: 7 of 8 GPUs, expected 8; gpu-1: Xid 79"
    assert QUARANTINED in bad.tags
    assert IN_SERVICE not in bad.tags
    assert results["gpu-1"].data["status_name"] == "Broken"
    assert results["gpu-1"].data["admitted"] is False


async def test_a_second_run_changes_nothing(deployed):
    verdicts = {"gpu-1": FAIL, "gpu-2": PASS}
    await deployed.sweep("admit", verdicts=verdicts)
    results = await deployed.sweep("admit", verdicts=verdicts)
    assert not any(result.changed or result.failed for result in results.values())


async def test_check_mode(deployed):
    results = await deployed.sweep("admit", check=True, verdicts={"gpu-1": FAIL, "gpu-2": PASS})
    assert all(result.changed for result in results.values())
    assert IN_SERVICE not in deployed.region.state.tags
    assert {machine.status for machine in deployed.region.state.machines.values()} == {Status.DEPLOYED}


async def test_an_admitted_node_that_fails_later_loses_the_tag(deployed):
    await deployed.sweep("admit", verdicts={"gpu-1": PASS, "gpu-2": PASS})
    await deployed.sweep("admit", verdicts={"gpu-1": FAIL, "gpu-2": PASS})
    assert IN_SERVICE not in deployed.record(1).tags
    assert QUARANTINED in deployed.record(1).tags


@pytest.mark.parametrize("verdicts", [{}, {"gpu-1": {"outcome": "unknown"}}, {"gpu-1": {}}, {"gpu-1": None}])
async def test_unknown_never_admits(deployed, verdicts):
    result = (await deployed.sweep("admit", nodes=["gpu-1"], verdicts=verdicts))["gpu-1"]
    assert not result.failed
    assert result.data["admitted"] is False
    assert IN_SERVICE not in deployed.record(1).tags
    assert QUARANTINED not in deployed.record(1).tags
    assert deployed.record(1).status == Status.DEPLOYED, "in doubt: proven again, not set aside"


async def test_only_what_is_deployed_is_in_service(rack):
    await rack.sweep(nodes=["gpu-1"])
    rack.region._core.free(rack.record())
    result = (await rack.sweep("admit", nodes=["gpu-1"], verdicts={"gpu-1": PASS}))["gpu-1"]
    assert result.failed
    assert "'Ready'" in result.message
    assert IN_SERVICE not in rack.record().tags


async def test_a_node_that_maas_does_not_know(rack):
    results = await rack.sweep("admit", verdicts={"gpu-1": PASS, "gpu-2": FAIL})
    assert all(result.failed and "0c:42:a1" in result.message for result in results.values())


async def test_the_machine_of_somebody_else_is_not_marked_broken(deployed):
    deployed.record(1).owner = "somebody"
    result = (await deployed.sweep("admit", nodes=["gpu-1"], verdicts={"gpu-1": FAIL}))["gpu-1"]
    assert result.failed
    assert "'somebody'" in result.message
    assert QUARANTINED in deployed.record(1).tags, "the tag at least says so"


async def test_shadow_mode_tells_maas_nothing(deployed):
    gate = deployed.plan.gate.model_copy(update={"mode": "shadow"})
    plan = deployed.plan.model_copy(update={"gate": gate})
    results = await deployed.sweep("admit", plan=plan, verdicts={"gpu-1": FAIL, "gpu-2": PASS})
    assert not any(result.changed or result.failed for result in results.values())
    assert "shadow" in results["gpu-1"].message
    assert set(deployed.region.state.tags) == {"virtual", "h100"}


async def test_a_tag_that_maas_silently_did_not_set_is_a_failure(deployed, monkeypatch):
    from metalyard.virtual.maas import routes

    async def nothing(core, request):
        return {"added": 0, "removed": 0}

    resource = next(entry for entry in routes.RESOURCES if entry.name == "TagHandler")
    monkeypatch.setitem(resource.operations, ("POST", "update_nodes"), nothing)
    result = (await deployed.sweep("admit", nodes=["gpu-1"], verdicts={"gpu-1": PASS}))["gpu-1"]
    assert result.failed
    assert IN_SERVICE in result.message
