"""The fabric against the planned cables: each fault by its name, with both ends, against the right nodes."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.fabric import Fault, Topology, compare, parse_ibnetdiscover
from metalyard.fabric.compare import AGGREGATION, affecting
from metalyard.fabric.topology import Device, FoundLink, Port
from metalyard.plan import load_plan
from metalyard.plan.cables import CablePlan, expected_links

ROOT = Path(__file__).parents[3]
DATA = Path(__file__).parent / "data"


def _plan():
    """The virtual rack's plan, at HDR: the ibsim that the stored fabrics came from knows no faster speed."""
    plan = load_plan(ROOT / "inventory" / "virtual")
    return plan.model_copy(update={"cables": [c.model_copy(update={"speed": "HDR"}) for c in plan.cables]})


PLAN = _plan()
CABLES = CablePlan.of(PLAN)


def found(name):
    return compare(CABLES, parse_ibnetdiscover((DATA / f"{name}.txt").read_text()))


def topology(links, names=None, width="4x", speed="HDR"):
    """A fabric from pairs of planned ends (``leaf-1:4``); an end ``?name`` is a device that the plan does not know."""
    guids = {end.key: end.guid for end in CABLES.devices.values()}
    devices, ports = {}, {}
    for key in dict.fromkeys(key for pair in links for key in pair):
        host, _, port = key.partition(":")
        if host in CABLES.switches:
            devices.setdefault(host, Device(CABLES.switches[host].guid, "switch", host, 64))
            ports[key] = (host, int(port))
        else:
            guid = guids.get(key, "0x00000000000000aa")
            devices[key] = Device(guid, "ca", (names or {}).get(key, key.replace(":", " ")), 1, ((1, guid),))
            ports[key] = (key, 1)
    order = list(devices)
    place = {key: Port(order.index(device), number) for key, (device, number) in ports.items()}
    return Topology(tuple(devices.values()), tuple(FoundLink((place[a], place[b]), width, speed) for a, b in links))


PLANNED = [tuple(end.key for end in link.ends) for link in CABLES.links]


def test_a_fabric_as_planned_has_no_findings():
    assert found("as_planned") == ()
    assert compare(CABLES, topology(PLANNED)) == ()


def test_the_demo_swap_is_one_finding_with_both_ends():
    (finding,) = found("cable_swap")
    assert (finding.fault, finding.severity, finding.nodes) == (Fault.SWAPPED, "fail", ("gpu-r02-3",))
    assert finding.ends == ("gpu-r02-3:mlx5_0", "leaf-1:13", "gpu-r02-3:mlx5_2", "leaf-2:13")
    assert finding.measured == "gpu-r02-3:mlx5_0 to leaf-2:13, gpu-r02-3:mlx5_2 to leaf-1:13"
    for word in ("C049", "C051", "rack r02, unit 19", "leaf-1 port 13 (rack r01, unit 41)"):
        assert word in finding.summary


def test_many_faults_each_have_their_own_finding():
    findings = found("many_faults")
    assert [(f.fault.value, f.nodes, f.part) for f in findings] == [
        ("degraded", ("gpu-r01-1",), "C001"),
        ("degraded", ("gpu-r01-2",), "C010"),
        ("missing", ("gpu-r01-4",), "C028"),
        ("unknown device", ("gpu-r02-1",), "C037"),
        ("wrong port", ("gpu-r02-2",), "C048"),
        ("swapped", (), "C065"),
    ]
    assert all(f.severity == "fail" and f.remedy for f in findings)
    width, speed, _, stranger, port, trunk = findings
    assert (width.measured, speed.measured) == ("1x HDR", "4x EDR")
    assert "0xb83fd203000fff04" in stranger.summary
    assert "leaf-4 port 30" in port.summary
    assert "spine-1 port 1" in trunk.summary
    assert affecting(findings, "gpu-r02-4") == ()
    assert affecting(findings, "gpu-r01-4") == (findings[2],)


def test_a_swap_between_two_nodes_stands_against_both():
    a, b = ("gpu-r01-1:mlx5_0", "leaf-1:1"), ("gpu-r01-2:mlx5_0", "leaf-1:3")
    links = [pair for pair in PLANNED if pair not in (a, b)] + [(a[0], b[1]), (b[0], a[1])]
    (finding,) = compare(CABLES, topology(links))
    assert (finding.fault, finding.nodes) == (Fault.SWAPPED, ("gpu-r01-1", "gpu-r01-2"))


def test_a_cable_between_switches_that_is_missing_is_the_fabrics():
    (finding,) = compare(CABLES, topology([pair for pair in PLANNED if pair != ("leaf-2:20", "spine-1:8")]))
    assert (finding.fault, finding.nodes, finding.severity) == (Fault.MISSING, (), "fail")


def test_a_node_that_is_off_is_one_finding():
    (finding,) = compare(CABLES, topology([pair for pair in PLANNED if not pair[0].startswith("gpu-r02-2:")]))
    assert (finding.fault, finding.nodes, finding.part) == (Fault.MISSING, ("gpu-r02-2",), "gpu-r02-2")
    assert "none of the 8 InfiniBand ports" in finding.summary


def test_what_hangs_on_a_switch_that_is_not_seen_is_unknown():
    findings = compare(
        CABLES, topology([pair for pair in PLANNED if not any(end.startswith("leaf-3:") for end in pair)])
    )
    at_nodes = [f for f in findings if f.nodes]
    assert {f.severity for f in at_nodes} == {"unknown"}
    assert len(at_nodes) == 16
    assert "leaf-3 is not on the fabric" in at_nodes[0].summary
    assert {f.severity for f in findings if not f.nodes} == {"fail"}


def test_a_rate_that_is_not_known_is_unknown():
    findings = compare(CABLES, topology(PLANNED, speed="???"))
    assert {f.severity for f in findings} == {"unknown"}


def test_faster_than_planned_is_no_fault():
    assert compare(CABLES, topology(PLANNED, speed="NDR")) == ()


def test_a_device_at_a_port_without_a_cable_is_told_and_keeps_nobody_out():
    (finding,) = compare(CABLES, topology([*PLANNED, ("?storage-1", "leaf-1:50")], {"?storage-1": "storage-1 mlx5_0"}))
    assert (finding.fault, finding.severity, finding.nodes) == (Fault.UNKNOWN_DEVICE, "watch", ())
    assert "leaf-1 port 50" in finding.summary
    assert "storage-1 mlx5_0" in finding.summary


def test_a_known_switch_port_used_beside_the_plan_is_unplanned():
    (finding,) = compare(CABLES, topology([*PLANNED, ("leaf-1:60", "leaf-2:60")]))
    assert (finding.fault, finding.severity) == (Fault.UNPLANNED, "watch")


def test_the_aggregation_engine_of_a_switch_is_a_part_of_it():
    assert compare(CABLES, topology([*PLANNED, ("?sharp", "leaf-1:64")], {"?sharp": AGGREGATION})) == ()


def test_two_devices_with_one_guid_stand_against_the_nodes_of_both():
    whole = topology(PLANNED)
    index = {device.name: i for i, device in enumerate(whole.devices)}
    one, two = whole.devices[index["gpu-r01-1 mlx5_0"]], index["gpu-r01-2 mlx5_0"]
    devices = list(whole.devices)
    devices[two] = Device(one.guid, "ca", "gpu-r01-2 mlx5_0", 1, one.port_guids)
    findings = compare(CABLES, Topology(tuple(devices), whole.links, (one.guid,)))
    duplicate = next(f for f in findings if f.fault is Fault.DUPLICATE_GUID)
    assert set(duplicate.nodes) == {"gpu-r01-1", "gpu-r01-2"}
    assert duplicate.severity == "fail"


def test_an_adapter_is_known_by_its_port_guid_where_its_node_guid_is_another():
    """A plan holds port GUIDs; adapters of two ports have another node GUID."""
    whole = topology(PLANNED)
    devices = tuple(
        Device("0x00000000000000bb", "ca", "localhost mlx5_0", 2, device.port_guids)
        if device.name == "gpu-r01-1 mlx5_0"
        else device
        for device in whole.devices
    )
    assert compare(CABLES, Topology(devices, whole.links)) == ()


def test_switches_without_a_planned_guid_are_known_by_name():
    plan = PLAN.model_copy(update={"switches": [s.model_copy(update={"guid": None}) for s in PLAN.switches]})
    text = (DATA / "cable_swap.txt").read_text().replace('"leaf-1"', '"MF0;leaf-1:MQM9700/U1"')
    assert [f.fault for f in compare(CablePlan.of(plan), parse_ibnetdiscover(text))] == [Fault.SWAPPED]


def test_ethernet_cables_are_not_looked_for_on_the_fabric():
    switches = [s.model_copy(update={"kind": "ethernet"}) if s.name == "leaf-4" else s for s in PLAN.switches]
    cables = CablePlan.of(PLAN.model_copy(update={"switches": switches}))
    assert len(cables.infiniband) == 96 - 16 - 8
    links = [pair for pair in PLANNED if not any(end.startswith("leaf-4:") for end in pair)]
    assert compare(cables, topology(links)) == ()


def test_expected_links_per_node():
    links = expected_links(PLAN)
    assert {len(own) for own in links.values()} == {8}
    assert str(links["gpu-r01-1"][0]) == (
        "cable C001: gpu-r01-1 mlx5_0 (rack r01, unit 1) to leaf-1 port 1 (rack r01, unit 41)"
    )
    assert expected_links(PLAN, ["nobody"]) == {"nobody": ()}


def test_a_cable_with_an_end_that_is_not_there_is_named():
    cables = [PLAN.cables[0].model_copy(update={"ends": ("gpu-r01-1:mlx5_0", "leaf-9:1"), "label": "C999"})]
    with pytest.raises(ValueError, match=r"cable C999: its end 'leaf-9:1'"):
        CablePlan.of(PLAN.model_copy(update={"cables": cables}))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_any_swaps_of_distinct_pairs_are_found_as_such(seed, count):
    chosen = random.Random(seed).sample(range(64), 2 * count)
    links = list(PLANNED)
    for i in range(count):
        a, b = chosen[2 * i], chosen[2 * i + 1]
        links[a], links[b] = (PLANNED[a][0], PLANNED[b][1]), (PLANNED[b][0], PLANNED[a][1])
    findings = compare(CABLES, topology(links))
    assert [f.fault for f in findings] == [Fault.SWAPPED] * count
    nodes = {PLANNED[i][0].partition(":")[0] for i in chosen}
    assert {node for f in findings for node in f.nodes} == nodes


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(12)))
def test_a_node_is_clean_only_when_its_cables_are_as_planned(order):
    """However twelve cables are mixed up: exactly the nodes with a cable elsewhere have a finding."""
    links = [(PLANNED[i][0], PLANNED[j][1]) for i, j in enumerate(order)] + PLANNED[12:]
    findings = compare(CABLES, topology(links))
    wrong = {PLANNED[i][0].partition(":")[0] for i, j in enumerate(order) if i != j}
    assert {node for f in findings for node in f.nodes} == wrong
    assert all(f.severity == "fail" for f in findings)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 63), min_size=1, max_size=20))
def test_every_missing_cable_is_told_at_its_node(missing):
    links = [pair for i, pair in enumerate(PLANNED) if i not in missing]
    findings = compare(CABLES, topology(links))
    told = {label for f in findings for label in ([f.part] if re.fullmatch(r"C\d+", f.part) else _cables_of(f.part))}
    assert told == {CABLES.links[i].label for i in missing}
    assert {f.severity for f in findings} == {"fail"}


def _cables_of(node):
    return [link.label for link in CABLES.of_node(node)]
