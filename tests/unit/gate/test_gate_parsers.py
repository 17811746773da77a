"""Parsers: the forms that tools of other versions print, and what is refused."""

import json

import gate_samples as s
import pytest

from metalyard.gate.evidence import Probe
from metalyard.gate.parsers import host, nvidia
from metalyard.gate.parsers.common import ParseError, integer, number
from metalyard.gate.parsers.ibstat import hca_ports


def probe(text, status=0, stderr=""):
    return Probe("gpus", ("nvidia-smi",), status, text, stderr)


LOST = [
    ("Unable to determine the device handle for GPU 0000:C3:00.0: Unknown Error", (None, "0000:c3:00.0")),
    ("Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error", (None, "0000:cb:00.0")),
    ("Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error", (1, "0000:34:00.0")),
    (
        "Unable to determine the device handle for GPU5: 0000:C3:00.0: GPU is lost.  Reboot the system",
        (5, "0000:c3:00.0"),
    ),
    ("Unable to determine the device handle for GPU0: Unknown Error", (0, None)),
]


@pytest.mark.parametrize(("line", "expected"), LOST)
def test_every_writing_of_a_lost_gpu_is_known(line, expected):
    for given in (
        probe(line + "\n" + s.gpus(7), 15),
        probe(s.gpus(7), 15, line + "\n"),
        probe(s.gpus(7) + line + "\n"),
    ):
        rows, (lost,) = nvidia.gpu_rows(given)
        assert len(rows) == 7
        assert (lost.index, lost.pci) == expected


def test_status_15_without_a_word_about_a_gpu_is_a_failure():
    with pytest.raises(ParseError, match="a GPU has fallen off the bus"):
        nvidia.gpu_rows(probe(s.gpus(7), 15))


@pytest.mark.parametrize("status", [2, 9, 255, 77, -9])
def test_another_status_is_a_failure_in_words(status):
    with pytest.raises(ParseError, match=f"ended with status {status}"):
        nvidia.gpu_rows(probe(s.gpus(), status))


def test_a_list_with_other_columns_is_refused():
    with pytest.raises(ParseError, match=r"expected also pcie\.link\.width\.current"):
        nvidia.gpu_rows(probe(s.gpus().replace("pcie.link.width.current, ", "")))
    with pytest.raises(ParseError, match="in its order"):
        nvidia.gpu_rows(probe(s.gpus().replace("index, name", "name, index", 1).replace("name, index, index", "x")))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\n7, ", "\nx, ", "expected a number"),
        ("\n7, ", "\n6, ", "same index"),
        ("00000000:DF:00.0", "DF:00", "not a PCI address"),
        (s.uuid(7), "GPU-1", "expected GPU-"),
        (", 0, 570", ", 570", "line of 17 values"),
    ],
)
def test_a_row_that_is_not_whole_is_refused(old, new, words):
    assert old in s.gpus()
    with pytest.raises(ParseError, match=words):
        nvidia.gpu_rows(probe(s.gpus().replace(old, new)))


def test_the_query_describes_as_many_gpus_as_are_attached():
    with pytest.raises(ParseError, match="says 8 GPUs are attached and describes 7"):
        nvidia.gpu_log(probe(s.gpu_query(7, attached=8)))
    lost = nvidia.gpu_log(probe(s.gpu_query(7, attached=8), 15, LOST[3][0] + "\n")).lost
    assert [gpu.index for gpu in lost] == [5]


def test_a_query_with_entities_is_refused_unread():
    bomb = s.gpu_query().replace("[", "").replace('v12.dtd">', 'v12.dtd" [<!ENTITY a "aaaa">]>')
    with pytest.raises(ParseError, match="entities"):
        nvidia.gpu_log(probe(bomb))


def test_links_that_are_all_inactive_are_none():
    said = "Unable to retrieve NVLink information as all links are inActive"
    text = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {s.uuid(0)})\n\t {said}\n"
    (gpu,) = nvidia.nvlinks(probe(text))
    assert gpu.links == {}
    assert ("nvlink.links", "fail") in s.against(s.with_outputs(nvlink=text))


def test_lscpu_prints_flat_and_nested_fields():
    flat = json.dumps({"lscpu": [{"field": "Socket(s):", "data": "2"}, {"field": "Model name:", "data": "x"}]})
    assert host.cpu(flat) == {"Socket(s)": "2", "Model name": "x"}
    assert host.cpu(s.cpu())["Socket(s)"] == "2"


def test_nvme_prints_flat_and_nested_lists():
    nested = {
        "Devices": [
            {
                "HostNQN": "nqn",
                "Subsystems": [
                    {
                        "Subsystem": "nvme-subsys0",
                        "Controllers": [
                            {
                                "Controller": "nvme0",
                                "SerialNumber": "S64 ",
                                "ModelNumber": "SAMSUNG",
                                "Firmware": "GDC",
                                "Namespaces": [{"NameSpace": "nvme0n1", "PhysicalSize": 5}],
                            }
                        ],
                    }
                ],
            }
        ]
    }
    (drive,) = host.nvme_drives(json.dumps(nested))
    assert (drive.device, drive.serial, drive.size_bytes) == ("nvme0n1", "S64", 5)
    assert host.nvme_drives('{"Devices": []}') == ()


@pytest.mark.parametrize(
    "text", ['{"Devices": [{}]}', '{"Devices": {}}', "[]", '{"Devices": [{"DevicePath": "/dev/a"}]}']
)
def test_a_list_of_drives_of_another_shape_is_refused(text):
    with pytest.raises(ParseError):
        host.nvme_drives(text)


def test_memory_modules_are_as_many_as_the_arrays_have_slots():
    text = s.memory(4)
    with pytest.raises(ParseError, match="have 5 slots, and 4 are described"):
        host.memory_devices(text.replace("Number Of Devices: 4", "Number Of Devices: 5"))
    assert host.memory_devices(s.memory(2, size="65536 MB"))[0].size_mib == 65536


def test_ibstat_names_what_an_adapter_lacks():
    with pytest.raises(ParseError, match="mlx5_0 port 1 lacks Link layer"):
        hca_ports(s.ib().replace("\t\tLink layer: InfiniBand\n", "", 1))
    with pytest.raises(ParseError, match="says 2 ports and describes 1"):
        hca_ports(s.ib().replace("Number of ports: 1", "Number of ports: 2", 1))
    assert hca_ports(s.ib(Rate="40 (FDR10)"))[3].rate == 40


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "0x10", "1,5", "\u0661", "1 W", "--1"])
def test_only_numbers_are_numbers(text):
    with pytest.raises(ParseError, match="the field"):
        number(text, "the field")


def test_units_and_whole_numbers():
    assert number("71.90 W", "x", "W") == 71.9
    assert integer("5", "x") == 5
    for bad in (("5 W", "MHz"), ("5", "W"), ("5.5", "")):
        with pytest.raises(ParseError):
            integer(bad[0], "x", bad[1])
