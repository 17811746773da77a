"""The emulated region beside recordings of a real one: the same status, keys, types and error bodies."""

import json
import os
import tarfile
from pathlib import Path

import httpx
import pytest
from maas_replay import ADMIN_KEY, OTHER_KEY, SYSTEM, Driver, compare, place, replay, sign

from metalyard.virtual.maas import lifecycle
from metalyard.virtual.maas.model import BootImage, Interface, Link, Subnet, Tag
from metalyard.virtual.maas.power import PowerActionError, PowerConnError
from metalyard.virtual.maas.region import MaasRegion
from metalyard.virtual.maas.status import Status

S = Status


@pytest.fixture(scope="session")
def recorded():
    folder = os.environ.get("METALYARD_RECORDINGS")
    if not folder:
        pytest.skip("METALYARD_RECORDINGS is not set: the folder that holds maas/recorded.tar.xz")
    archive = Path(folder) / "maas" / "recorded.tar.xz"
    if not archive.exists():
        pytest.skip(f"{archive} is not there")
    found = {}
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(".json"):
                found[Path(member.name).stem] = json.loads(files.extractfile(member).read())
    return found


@pytest.fixture
async def region():
    region = MaasRegion("127.0.0.1", 0, ADMIN_KEY, speed=1000, cidr="10.10.0.0/24", gateway=None)
    region._core.driver = Driver()
    region.add_user("bob", OTHER_KEY, admin=False)
    region.state.images = [BootImage(1, "ubuntu/noble", "ga-24.04"), BootImage(2, "ubuntu/jammy", "ga-22.04")]
    region.state.tags["h100"] = Tag("h100")
    await region.start()
    yield region
    await region.stop()


MACHINE = {"gpu001": ("76pt4c", 1), "gpu002": ("cpbpsn", 2), "gpu003": ("pkdd7t", 3)}
STATUS_VALUES = ("status", "status_name", "owner", "osystem", "distro_series", "hwe_kernel", "netboot", "locked")

# Recording: the status its machine had before. The machine is the one in the recording's URL.
ON_MACHINE = {
    "116-machine-read": S.NEW,
    "117-machine-power-parameters": S.NEW,
    "120-machine-query-power-state": S.NEW,
    "121-machine-update-description": S.NEW,
    "122-machine-update-bad-zone": S.NEW,
    "123b-machine-update-unknown-field": S.NEW,
    "124-machine-update-power-pass": S.NEW,
    "124b-machine-update-power-partial": S.NEW,
    "126-machine-update-json-body": S.NEW,
    "127-machine-deploy-when-new": S.NEW,
    "128-machine-release-when-new": S.NEW,
    "129-machine-mark-fixed-when-new": S.NEW,
    "130-machine-abort-when-new": S.NEW,
    "133-test-when-new": S.NEW,
    "301-commission-while-commissioning": S.COMMISSIONING,
    "302-deploy-while-commissioning": S.COMMISSIONING,
    "306-machine-failed-commissioning": S.FAILED_COMMISSIONING,
    "308-deploy-failed-commissioning": S.FAILED_COMMISSIONING,
    "309-commission-bad-script": S.FAILED_COMMISSIONING,
    "309b-commission-bad-testing-script": S.FAILED_COMMISSIONING,
    "310-commission-ok": S.FAILED_COMMISSIONING,
    "311-machine-ready": S.READY,
    "312-commission-with-testing": S.NEW,
    "322-machine-failed-testing": S.FAILED_TESTING,
    "323-override-failed-testing": S.FAILED_TESTING,
    "330-mark-broken-not-owner": S.READY,
    "330b-mark-broken-again": S.READY,
    "332-lock-when-ready": S.READY,
    "334-power-off-ready": S.READY,
    "335-exit-rescue-when-ready": S.READY,
    "336-rescue-mode": S.READY,
    "507-set-workload-annotations": S.ALLOCATED,
    "510-deploy-bad-series": S.ALLOCATED,
    "511-deploy-bad-osystem": S.ALLOCATED,
    "513-deploy-bad-kernel": S.ALLOCATED,
    "514-deploy": S.ALLOCATED,
    "516-deploy-while-deploying": S.DEPLOYING,
    "516b-lock-deploying": S.DEPLOYING,
    "523-lock-again": S.DEPLOYED,
    "524-unlock": S.DEPLOYED,
    "526-test-deployed": S.DEPLOYED,
    "530-power-off-deployed": S.DEPLOYED,
    "531-power-on-deployed": S.DEPLOYED,
    "533-release": S.DEPLOYED,
    "534-release-ready-again": S.READY,
    "540-deploy-from-ready": S.READY,
    "541b-release-after-abort": S.ALLOCATED,
    "544-deploy-failed-deployment": S.FAILED_DEPLOYMENT,
    "545-mark-broken-owned": S.FAILED_DEPLOYMENT,
    "547-deploy-broken": S.BROKEN,
    "547b-release-broken": S.BROKEN,
    "548-mark-fixed": S.READY,
    "551-release-erase": S.DEPLOYED,
    "552-release-while-erasing": S.DISK_ERASING,
    "559-deploy-userdata-not-base64-accepted": S.READY,
    "559c-release-deploying": S.DEPLOYING,
    "613-commission-bmc-503": S.DEPLOYING,
    "631-release-race": S.ALLOCATED,
    "662-trailing-op-in-body": S.READY,
    "673-machine-set-kernel-crash": S.READY,
    "674-owner-data": S.READY,
    "676-deploy-with-userdata-and-options": S.ALLOCATED,
    "700-release-empty-multipart-terminator-only": S.READY,
    "701-release-empty-multipart-zero-bytes": S.READY,
    "702-release-no-body-no-ct": S.READY,
    "703-release-urlencoded-empty": S.READY,
    "704-release-json-empty": S.READY,
    "705-post-bad-json": S.READY,
}


@pytest.mark.parametrize("name", sorted(ON_MACHINE))
async def test_one_machine(recorded, region, name):
    record, status = recorded[name], ON_MACHINE[name]
    system_id = record["request"]["url"].split("/machines/")[1].split("/")[0]
    number = next(n for i, n in MACHINE.values() if i == system_id)
    system = {"osystem": "ubuntu", "distro_series": "noble", "hwe_kernel": "ga-24.04"} if status in SYSTEM else {}
    off = name in ("541b-release-after-abort", "547b-release-broken", "631-release-race")
    machine = place(region, system_id, number, status, power_state="off" if off else "on", **system)
    machine.netboot = status != S.DEPLOYED
    machine.locked = name in ("523-lock-again", "524-unlock")
    if name == "541b-release-after-abort":
        machine.osystem = machine.distro_series = ""
    answer = await replay(region, record)
    if name == "700-release-empty-multipart-terminator-only":
        assert (answer.status_code, answer.text) == (400, "")
        return
    if name[:3] in ("701", "702", "703", "704"):  # their bodies were cut
        assert (answer.status_code, answer.json()["status_name"]) == (200, "Ready")
        return
    values = STATUS_VALUES if "status_name" in (record["response"].get("json") or {}) else ()
    compare(record, answer, values=values)


ABORTED = {
    "304-abort-commissioning": S.COMMISSIONING,
    "541-abort-deploying": S.DEPLOYING,
    "527-abort-testing": S.TESTING,
}


@pytest.mark.parametrize("name", sorted(ABORTED))
async def test_abort_answers_with_the_old_status_and_its_message(recorded, region, name):
    system = {"osystem": "ubuntu", "distro_series": "noble", "hwe_kernel": "ga-24.04"}
    machine = place(
        region, "pkdd7t", 3, ABORTED[name], previous_status=int(S.DEPLOYED), **({} if "304" in name else system)
    )
    machine.netboot = name != "527-abort-testing"
    if system:
        region._core.allot(machine)
    compare(recorded[name], await replay(region, recorded[name]), values=(*STATUS_VALUES, "status_message"))
    after = {S.COMMISSIONING: S.NEW, S.DEPLOYING: S.ALLOCATED, S.TESTING: S.DEPLOYED}
    assert machine.status == after[ABORTED[name]]


NOT_BY_BOB = {
    "119-machine-power-parameters-nonadmin": S.NEW,
    "315-commissioning-nonadmin": S.READY,
    "517-delete-while-deploying-nonowner": S.DEPLOYING,
    "532-power-on-nonowner": S.DEPLOYED,
}


@pytest.mark.parametrize("name", sorted(NOT_BY_BOB))
async def test_what_others_may_not_do(recorded, region, name):
    system_id = recorded[name]["request"]["url"].split("/machines/")[1].split("/")[0]
    place(region, system_id, 3, NOT_BY_BOB[name])
    compare(recorded[name], await replay(region, recorded[name], OTHER_KEY))


async def test_a_locked_machine_is_not_deleted(recorded, region):
    place(region, "pkdd7t", 3, S.DEPLOYED, locked=True)
    compare(recorded["522-delete-locked"], await replay(region, recorded["522-delete-locked"]))


CREATE = (
    "100-machine-create-redfish-nocommission 103-machine-create-no-mac 105b-machine-create-unknown-power-param "
    "107-machine-create-same-bmc 110-machine-create-default-commissions 600-create-wrong-bmc-pass "
    "604-create-unreachable-bmc 606-create-no-power-type 609-create-manual-power 620-create-power-parameters-json "
    "622-create-multi-mac 624-json-body-create"
)


@pytest.mark.parametrize("name", CREATE.split())
async def test_create(recorded, region, name):
    answer = await replay(region, recorded[name])
    values = ("status", "status_name", "owner", "power_type", "architecture", "netboot", "tag_names")
    compare(recorded[name], answer, values=values if answer.status_code == 200 else ())


async def test_create_what_is_there_already(recorded, region):
    place(region, "cpbpsn", 2, S.NEW)
    for name in ("101-machine-create-dup-mac", "102-machine-create-dup-hostname"):
        compare(recorded[name], await replay(region, recorded[name]))


async def test_create_without_images(recorded, region):
    region.state.images = []
    name = "099-machine-create-no-images"
    compare(recorded[name], await replay(region, recorded[name]))


async def test_create_as_somebody_who_is_no_administrator_does_not_commission(recorded, region):
    name = "109-machine-create-as-nonadmin"
    compare(recorded[name], await replay(region, recorded[name], OTHER_KEY), values=("status", "owner"))


async def test_creations_at_once_with_one_mac_all_succeed(recorded, region):
    import asyncio

    names = [f"632-create-race-{n}" for n in range(4)]
    answers = await asyncio.gather(*(replay(region, recorded[name]) for name in names))
    for name, answer in zip(names, answers, strict=True):
        compare(recorded[name], answer)
    assert len(region.state.machines) == 4


async def test_a_bmc_that_refuses_the_password(recorded, region):
    region._core.driver.trouble = PowerConnError("401")
    machine = place(region, "ykwhaf", 4, S.NEW)
    for name in ("601-query-power-wrong-pass", "602-commission-wrong-bmc-pass"):
        compare(recorded[name], await replay(region, recorded[name]))
    after = recorded["602b-machine-after"]
    compare(after, await replay(region, after), values=("status", "status_message", "owner", "error_description"))
    answer = await replay(region, recorded["603-create-commission-wrong-pass"])
    compare(recorded["603-create-commission-wrong-pass"], answer)
    compare(recorded["603b-list-after"], await replay(region, recorded["603b-list-after"]))
    assert [m.hostname for m in region.state.machines.values()] == [machine.hostname, "gpu005"], "it is there, in New"
    events = recorded["602c-events"]
    seen = await replay(region, events)
    compare(events, seen)
    real = [(e["level"], e["type"], e["description"]) for e in events["response"]["json"]["events"]]
    assert {(e["level"], e["type"], e["description"]) for e in seen.json()["events"]} <= set(real)


async def test_a_bmc_that_answers_503(recorded, region):
    place(region, "pkdd7t", 3, S.DEPLOYED, power_state="on")
    region._core.driver.trouble = PowerActionError("Redfish request failed with response status code: 503.")
    compare(recorded["610-power-off-bmc-503"], await replay(region, recorded["610-power-off-bmc-503"]))
    del region.state.machines["pkdd7t"]
    place(region, "pkdd7t", 3, S.READY)
    answer = await replay(region, recorded["612-deploy-bmc-503"])
    compare(recorded["612-deploy-bmc-503"], answer, values=("status", "owner"))


LISTS = {
    "112-machines-filter-hostname": 1,
    "113-machines-filter-mac": 1,
    "114-machines-filter-status": 1,
    "115b-machines-filter-id": 1,
    "115c-machines-filter-pool": 3,
    "115e-machines-filter-zone": 3,
    "229-machines-filter-tags": 2,
    "225-tag-machines": 2,
}


@pytest.mark.parametrize("name", sorted(LISTS))
async def test_lists(recorded, region, name):
    place(region, "76pt4c", 1, S.READY, tags=["h100"])
    place(region, "cpbpsn", 2, S.NEW, tags=["h100"])
    place(region, "pkdd7t", 3, S.DEPLOYED)
    answer = await replay(region, recorded[name])
    compare(recorded[name], answer)
    assert len(answer.json()) == LISTS[name]


REFUSED = (
    "114b-machines-filter-status-bad 114c-machines-filter-unknown-param 115d-machines-filter-pool-bad "
    "660-machines-limit-param 013-unknown-op 012-machine-404 014-unknown-path 015-no-trailing-slash 016-api-1.0 "
    "017-method-not-allowed 004-machines-list-unauthenticated 005-tags-list-unauthenticated "
    "005b-maas-config-unauthenticated 005c-machine-read-unauthenticated 206-pool-default-delete "
    "214-zone-default-delete 222b-tag-create-bad-definition 222c-tag-create-bad-name 244-script-create-missing-script "
    "249-script-delete-default 313c-events-bad-level 661-events-limit-too-big 625-format-query-yaml 626-delete-tag-404 "
    "501-allocate-no-match 503b-allocate-unknown-constraint 643-delete-again-404 "
    "286b-config-set-bad-value"
)


@pytest.mark.parametrize("name", REFUSED.split())
async def test_refusals(recorded, region, name):
    compare(recorded[name], await replay(region, recorded[name]))


ANSWERED = (
    "001-version-anon 003-whoami 021-users-list 009a-nonce-first 118-machines-power-parameters-bulk 200-pool-create "
    "202-pools-list 210-zone-create 220-tag-create 222-tag-create-definition 223-tag-create-kernel-opts "
    "245-scripts-list 260-subnets-list 271-spaces-list 280-boot-resources 281-boot-resources-is-importing "
    "284-config-get 286-config-set 290-describe-power-types 291-sshkeys-list 313-events-query 655-import-images "
    "293-account-list-tokens"
)


@pytest.mark.parametrize("name", ANSWERED.split())
async def test_answers(recorded, region, name):
    if name.startswith("220"):
        del region.state.tags["h100"]
    record = recorded[name]
    if name.startswith("118"):
        for system_id in record["response"]["json"]:
            place(region, system_id, 3, S.NEW)
    if name.startswith("313-"):
        place(region, "pkdd7t", 3, S.READY)
    if name.startswith("290"):
        kept = [entry for entry in record["response"]["json"] if entry["name"] == "redfish"]
        record["response"]["json"] = kept
    compare(record, await replay(region, record))


async def test_tags_on_machines(recorded, region):
    place(region, "76pt4c", 1, S.READY)
    place(region, "cpbpsn", 2, S.NEW)
    for name in ("224-tag-update-nodes", "224b-tag-update-nodes-unknown"):
        answer = await replay(region, recorded[name])
        assert answer.json() == recorded[name]["response"]["json"]
    region.state.tags["iommu"] = Tag("iommu")
    compare(recorded["227-tag-delete"], await replay(region, recorded["227-tag-delete"]))


async def test_allocate(recorded, region):
    import asyncio

    place(region, "pkdd7t", 3, S.READY)
    place(region, "cpbpsn", 2, S.NEW)
    for name in ("500-allocate-dry-run", "131-allocate-system_id-not-ready", "504-allocate-by-system-id"):
        compare(recorded[name], await replay(region, recorded[name]), values=() if "131" in name else STATUS_VALUES)
    compare(recorded["506-list-allocated"], await replay(region, recorded["506-list-allocated"]))
    region.state.machines["cpbpsn"].status = int(S.READY)
    names = [f"630-allocate-race-{n}" for n in range(3)]
    answers = await asyncio.gather(*(replay(region, recorded[name]) for name in names))
    assert sorted(a.status_code for a in answers) == sorted(recorded[n]["response"]["status"] for n in names)


async def test_results(recorded, region):
    machine = place(region, "pkdd7t", 3, S.NEW)
    await replay(region, recorded["310-commission-ok"])
    compare(recorded["303-results-pending"], await replay(region, recorded["303-results-pending"]))
    pending = recorded["303-results-pending"]["response"]["json"]["results"]
    sets = region.state.sets[machine.commissioning_set]
    assert [run.name for run in sets.runs] == [run["name"] for run in pending]
    lifecycle.failed(region._core, machine, "script failed")
    answer = await replay(region, recorded["307-results-failed"])
    compare(recorded["307-results-failed"], answer)
    assert answer.json()["status"] == 3
    after = recorded["306-machine-failed-commissioning"]
    compare(after, await replay(region, after))


async def test_a_failed_installation_carries_its_reason(recorded, region):
    machine = place(region, "pkdd7t", 3, S.DEPLOYING, osystem="ubuntu", distro_series="noble", hwe_kernel="ga-24.04")
    real = recorded["543-machine-failed-deployment"]
    lifecycle.failed(region._core, machine, real["response"]["json"]["error_description"])
    values = (*STATUS_VALUES, "status_message", "status_action", "error_description")
    compare(real, await replay(region, real), values=values)


def _network(region):
    machine = place(region, "pkdd7t", 3, S.READY)
    region.state.subnets.append(Subnet(2, "storage", "10.20.0.0/24", 5006, "10.20.0.1"))
    boot = machine.interfaces[0]
    boot.id, boot.links = 8, [Link(16, "auto", 1), Link(17, "auto", 1), Link(24, "auto", 1)]
    second = Interface(12, "ens1f1", "52:54:00:01:00:03", vlan=5001, links=[Link(18, "link_up")])
    bond = Interface(15, "bond0", "52:54:00:02:00:03", vlan=5006, links=[Link(20, "link_up")])
    machine.interfaces += [second, bond]
    return machine


async def test_links_to_subnets(recorded, region):
    machine = _network(region)
    for name in (
        "437-link-subnet-static",
        "438-link-subnet-ip-taken",
        "439-link-subnet-wrong-vlan",
        "440-link-subnet-auto",
        "441-link-subnet-bad-mode",
        "443-unlink-bad",
        "444-interface-404",
        "442-interface-disconnect",
        "440b-link-subnet-auto",
    ):
        record = recorded[name]
        answer = await replay(region, record)
        if record["response"]["status"] >= 400:
            compare(record, answer)
            continue
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == set(record["response"]["json"])
    assert machine.interfaces[2].links[0].ip_address == "10.20.0.50"
    assert len(machine.interfaces[0].links) == 4, "AUTO twice makes a second link"


AUTHENTICATION = {
    "006-auth-bad-consumer": {"oauth_consumer_key": "nobody"},
    "007-auth-bad-token": {"oauth_token": "yyyyyyyyyyyyyyyyyy"},
    "008-auth-bad-secret": {"oauth_signature": "%26wrong"},
    "010-auth-old-timestamp": {"oauth_timestamp": "1000"},
    "011-auth-missing-nonce": {"oauth_nonce": None},
    "011b-auth-missing-version": {"oauth_version": None},
}


@pytest.mark.parametrize("name", sorted(AUTHENTICATION))
async def test_signatures(recorded, region, name):
    given = dict(pair.split("=", 1) for pair in sign(ADMIN_KEY)[6:].split(", "))
    for key, value in AUTHENTICATION[name].items():
        given[key] = f'"{value}"'
        if value is None:
            del given[key]
    header = "OAuth " + ", ".join(f"{key}={value}" for key, value in given.items())
    async with httpx.AsyncClient() as client:
        url = f"{region.url}/api/2.0/tags/"
        answer = await client.get(url, headers={"Authorization": header})
        real = recorded[name]["response"]
        assert answer.status_code == real["status"]
        assert answer.headers["content-type"] == real["headers"]["Content-Type"]
        if answer.status_code == 401:
            stem = real["text"].split(":")[0:2]
            assert answer.text.split(":")[0:2] == stem or name == "010-auth-old-timestamp"
            assert answer.headers.get("www-authenticate") == real["headers"].get("WWW-Authenticate")
        else:
            again = await client.get(url, headers={"Authorization": header})
            assert again.status_code == 401
            assert again.text.startswith("Authorization Error: 'Nonce already used:")
