"""The output of the real ibnetdiscover: read whole, and refused wherever it was cut or garbled."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalyard.fabric import FabricError, parse_ibnetdiscover

DATA = Path(__file__).parent / "data"
SMALL = (DATA / "small.txt").read_text()


@pytest.mark.parametrize(
    ("name", "devices", "links"),
    [("as_planned", 70, 96), ("cable_swap", 70, 96), ("many_faults", 69, 95), ("small", 4, 3)],
)
def test_the_tools_own_output_is_read(name, devices, links):
    topology = parse_ibnetdiscover((DATA / f"{name}.txt").read_text())
    assert (len(topology.devices), len(topology.links)) == (devices, links)
    assert topology.duplicates == ()


def test_what_is_read_is_what_stands_there():
    topology = parse_ibnetdiscover(SMALL)
    leaf, spine, second, first = topology.devices
    assert (leaf.guid, leaf.kind, leaf.name, leaf.ports) == ("0xfc6a1c0300000101", "switch", "leaf-1", 64)
    assert spine.host == "spine-1"
    assert (first.guid, first.kind, first.name, first.host) == (
        "0xb83fd20300010100",
        "ca",
        "gpu-r01-1 mlx5_0",
        "gpu-r01-1",
    )
    assert second.port_guids == ((1, "0xb83fd20300010102"),)
    told = {
        (topology.devices[a.device].name, a.number, topology.devices[b.device].name, b.number, link.width, link.speed)
        for a, b, link in topology.peers()
    }
    assert ("leaf-1", 17, "spine-1", 1, "4x", "HDR") in told
    assert ("gpu-r01-1 mlx5_1", 1, "leaf-1", 2, "4x", "HDR") in told
    assert len(told) == 6


def test_a_managed_switch_is_known_by_the_name_in_its_description():
    topology = parse_ibnetdiscover(SMALL.replace('"leaf-1"', '"MF0;leaf-1:MQM9700/U1"'))
    assert topology.devices[0].host == "leaf-1"


def test_a_rate_that_the_tool_does_not_know_is_kept_as_such():
    topology = parse_ibnetdiscover(SMALL.replace("4xHDR", "4x???"))
    assert {link.speed for link in topology.links} == {"???"}


@pytest.mark.parametrize("name", ["small", "many_faults"])
def test_text_cut_anywhere_is_refused(name):
    text = (DATA / f"{name}.txt").read_text()
    for length in range(0, len(text), 1 if name == "small" else 11):
        with pytest.raises(FabricError, match=r"line \d+"):
            parse_ibnetdiscover(text[:length])


@pytest.mark.parametrize("first", range(1, 8))
def test_text_without_its_beginning_is_refused(first):
    lines = SMALL.splitlines(keepends=True)
    with pytest.raises(FabricError):
        parse_ibnetdiscover("".join(lines[first:]))


GARBLED = [
    ("4xHDR\n", "4xHD\n", 1, "port line"),
    ("4xHDR\n", "2xHDR\n", 1, "as line"),
    ("[17]", "[65]", 1, "each port of 1 to 64"),
    ("[17]", "[2]", 1, "at most once"),
    ("switchguid=0xfc6a1c0300000101", "switchguid=0xfc6a1c0300000111", 1, "the GUID of line"),
    ("Switch\t64", "Switsch\t64", 1, "a Switch line"),
    ("vendid=0x0", "vendid=", 1, "vendid"),
    ("# Topology file", "# Topologie", 1, "Topology file"),
    ("from node fc6a1c0300000201", "from node fc6a1c0300000209", 1, "where the discovery began"),
    ('"S-fc6a1c0300000201"[1]', '"S-fc6a1c0300000201"[3]', 1, "the same link in that device's record"),
]


@pytest.mark.parametrize(("old", "new", "count", "words"), GARBLED, ids=range(len(GARBLED)))
def test_garbled_text_is_refused_with_the_line_and_what_was_expected(old, new, count, words):
    text = SMALL.replace(old, new, count)
    assert text != SMALL
    with pytest.raises(FabricError, match=words) as error:
        parse_ibnetdiscover(text)
    assert "ibnetdiscover line" in str(error.value)


def test_a_device_that_is_told_twice_is_a_duplicate():
    record = SMALL[SMALL.index("\nvendid=0x0\ndevid=0x0\nsysimgguid=0xb83fd20300010100") :]
    assert parse_ibnetdiscover(SMALL + record).duplicates == ("0xb83fd20300010100", "0xb83fd20300010101")


def test_a_fabric_without_a_link_is_no_fabric():
    lonely = "".join(line for line in SMALL.splitlines(keepends=True) if not line.startswith("["))
    with pytest.raises(FabricError, match="no link at all"):
        parse_ibnetdiscover(lonely)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, len(SMALL) - 1), new=st.characters(codec="utf-8"))
def test_one_other_character_never_makes_another_fabric_in_silence(place, new):
    """Refused, or the change is in a comment, a name, an identifier that joins nothing, or a rate told twice."""
    text = SMALL[:place] + new + SMALL[place + 1 :]
    try:
        topology = parse_ibnetdiscover(text)
    except FabricError:
        return
    assert [link.ends for link in topology.links] == [link.ends for link in parse_ibnetdiscover(SMALL).links]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_noise_is_refused_and_nothing_else_happens(text):
    with pytest.raises(FabricError):
        parse_ibnetdiscover(text)
