"""What the tools print on a healthy DGX H100, made from a few parameters, and the documents that hold it.

The formats are the real tools': nvidia-smi of driver 570, ibstat of rdma-core, dmesg of util-linux 2.38, chronyc 4,
dmidecode 3, nvme-cli 2, systemd 252, dpkg 1.21.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from metalyard.gate import evidence, judge, load_checks
from metalyard.plan import load_plan
from metalyard.plan.cables import CablePlan
from metalyard.plan.catalogue import load_baseline, load_profile

ROOT = Path(__file__).parents[3]
FABRIC_DATA = ROOT / "tests" / "unit" / "fabric" / "data"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")


def _plan():
    """The virtual rack's plan, at HDR: the ibsim that the stored fabrics came from knows no faster speed."""
    plan = load_plan(ROOT / "inventory" / "virtual")
    return plan.model_copy(update={"cables": [c.model_copy(update={"speed": "HDR"}) for c in plan.cables]})


PLAN = _plan()
CABLES = CablePlan.of(PLAN)
NODE = PLAN.node("gpu-r02-3")
PROFILE = load_profile(PLAN, NODE.profile)
BASELINE = load_baseline(PLAN)
CHECKS = load_checks()


def uuid(index):
    return f"GPU-128a4ea0-31c7-5d97-9871-da724803{index:04x}"


def serial(index):
    return f"165246442356{index}"


def gpus(count=8, **values):
    """nvidia-smi --query-gpu; ``values`` replace columns, by name with underscores, of GPU 3."""
    head = (
        "index, name, uuid, serial, pci.bus_id, vbios_version, memory.total [MiB], temperature.gpu, power.draw [W], "
        "power.limit [W], pcie.link.gen.current, pcie.link.width.current, clocks.max.sm [MHz], "
        "clocks.max.memory [MHz], ecc.errors.uncorrected.volatile.total, ecc.errors.corrected.volatile.total, "
        "ecc.errors.uncorrected.aggregate.total, driver_version"
    )
    lines = [head]
    for i in range(count):
        row = {
            "index": i,
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": uuid(i),
            "serial": serial(i),
            "pci": f"00000000:{BUSES[i]}:00.0",
            "vbios": "96.00.A5.00.01",
            "memory": "81559 MiB",
            "temperature": 31,
            "draw": "71.90 W",
            "limit": "700.00 W",
            "gen": 5,
            "width": 16,
            "sm": "1980 MHz",
            "mem": "2619 MHz",
            "unc": 0,
            "corr": 0,
            "agg": 0,
            "driver": BASELINE.driver,
        }
        if i == 3:
            assert set(values) <= set(row)
            row.update(values)
        lines.append(", ".join(str(value) for value in row.values()))
    return "\n".join(lines) + "\n"


def gpu_query(count=8, attached=None, **values):
    """nvidia-smi -q -x, the elements that the gate reads; ``values`` are for GPU 3."""
    parts = [
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "\t<timestamp>Fri Nov 20 12:00:00 2026</timestamp>\n"
        f"\t<driver_version>{BASELINE.driver}</driver_version>\n\t<cuda_version>12.8</cuda_version>\n"
        f"\t<attached_gpus>{count if attached is None else attached}</attached_gpus>\n"
    ]
    for i in range(count):
        v = {
            **{"action": "None", "ecc": "Enabled", "threshold": "No", "pending": "No", "failure": "No"},
            **dict.fromkeys(("dram", "parity", "secded", "corrected", "remap_corr", "remap_unc", "low", "none"), 0),
            **{"state": "Completed", "status": "Success"},
        }
        if i == 3:
            assert set(values) <= set(v)
            v.update(values)
        parts.append(
            f'\t<gpu id="00000000:{BUSES[i]}:00.0">\n\t\t<serial>{serial(i)}</serial>\n\t\t<uuid>{uuid(i)}</uuid>\n'
            f"\t\t<gpu_recovery_action>{v['action']}</gpu_recovery_action>\n"
            f"\t\t<ecc_mode>\n\t\t\t<current_ecc>{v['ecc']}</current_ecc>\n\t\t</ecc_mode>\n"
            "\t\t<ecc_errors>\n\t\t\t<volatile>\n"
            f"\t\t\t\t<sram_correctable>{v['corrected']}</sram_correctable>\n"
            f"\t\t\t\t<sram_uncorrectable_parity>{v['parity']}</sram_uncorrectable_parity>\n"
            f"\t\t\t\t<sram_uncorrectable_secded>{v['secded']}</sram_uncorrectable_secded>\n"
            "\t\t\t\t<dram_correctable>0</dram_correctable>\n"
            f"\t\t\t\t<dram_uncorrectable>{v['dram']}</dram_uncorrectable>\n\t\t\t</volatile>\n"
            f"\t\t\t<aggregate>\n\t\t\t\t<sram_threshold_exceeded>{v['threshold']}</sram_threshold_exceeded>\n"
            "\t\t\t</aggregate>\n\t\t</ecc_errors>\n\t\t<remapped_rows>\n"
            f"\t\t\t<remapped_row_corr>{v['remap_corr']}</remapped_row_corr>\n"
            f"\t\t\t<remapped_row_unc>{v['remap_unc']}</remapped_row_unc>\n"
            f"\t\t\t<remapped_row_pending>{v['pending']}</remapped_row_pending>\n"
            f"\t\t\t<remapped_row_failure>{v['failure']}</remapped_row_failure>\n"
            "\t\t\t<row_remapper_histogram>\n"
            "\t\t\t\t<row_remapper_histogram_max>2560 bank(s)</row_remapper_histogram_max>\n"
            "\t\t\t\t<row_remapper_histogram_high>0 bank(s)</row_remapper_histogram_high>\n"
            "\t\t\t\t<row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial>\n"
            f"\t\t\t\t<row_remapper_histogram_low>{v['low']} bank(s)</row_remapper_histogram_low>\n"
            f"\t\t\t\t<row_remapper_histogram_none>{v['none']} bank(s)</row_remapper_histogram_none>\n"
            "\t\t\t</row_remapper_histogram>\n\t\t</remapped_rows>\n"
            f"\t\t<fabric>\n\t\t\t<state>{v['state']}</state>\n\t\t\t<status>{v['status']}</status>\n\t\t</fabric>\n"
            "\t</gpu>\n\n"
        )
    return "".join(parts) + "</nvidia_smi_log>\n"


def nvlink(count=8, links=18, inactive=(), slow=()):
    """nvidia-smi nvlink -s; ``inactive`` and ``slow`` are links of GPU 3."""
    lines = []
    for i in range(count):
        lines.append(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: {uuid(i)})")
        for link in range(links):
            state = "26.562 GB/s"
            if i == 3 and link in inactive:
                state = "<inactive>"
            elif i == 3 and link in slow:
                state = "1.562 GB/s"
            lines.append(f"\t Link {link}: {state}")
    return "\n".join(lines) + "\n"


def kernel_log(*extra, minutes=()):
    """dmesg --time-format iso; ``extra`` messages, at those minutes after the boot (one after the other by default)."""
    lines = [
        "2026-11-20T11:00:00,000000+00:00 Linux version 5.15.0-1063-nvidia (buildd@lcy02-amd64-045)",
        "2026-11-20T11:00:00,100000+00:00 Command line: BOOT_IMAGE=/vmlinuz root=UUID=1 ro iommu=pt",
        "2026-11-20T11:00:01,200000+00:00 systemd[1]: Detected architecture x86-64.",
        "                                 a further line of the same message",
    ]
    for i, text in enumerate(extra):
        minute = minutes[i] if minutes else 30
        lines.append(f"2026-11-20T11:{minute:02d}:{i:02d},300000+00:00 {text}")
    return "\n".join(lines) + "\n"


def xid(number, text, bus="C3", domain="0000"):
    return f"NVRM: Xid (PCI:{domain}:{bus.lower()}:00): {number}, {text}"


def ib(guids=None, missing=(), **values):
    """ibstat; ``values`` are fields of mlx5_3, by name with underscores."""
    parts = []
    for device, guid in (guids or NODE.hca_guids).items():
        if device in missing:
            continue
        v = {"State": "Active", "Physical_state": "LinkUp", "Rate": "400", "Link_layer": "InfiniBand"}
        if device == "mlx5_3":
            v.update(values)
        parts.append(
            f"CA '{device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.3560\n"
            f"\tHardware version: 0\n\tNode GUID: {guid}\n\tSystem image GUID: {guid}\n\tPort 1:\n"
            f"\t\tState: {v['State']}\n\t\tPhysical state: {v['Physical_state']}\n\t\tRate: {v['Rate']}\n"
            f"\t\tBase lid: 7\n\t\tLMC: 0\n\t\tSM lid: 1\n\t\tCapability mask: 0xa751e848\n"
            f"\t\tPort GUID: {guid}\n\t\tLink layer: {v['Link_layer']}\n"
        )
    return "".join(parts)


def fabric_manager(active="active", sub="running", load="loaded", restarts=0):
    return (
        f"NRestarts={restarts}\nResult=success\nId=nvidia-fabricmanager.service\nLoadState={load}\n"
        f"ActiveState={active}\nSubState={sub}\n"
    )


def clock(offset="0.000012345", stratum=3, leap="Normal"):
    return (
        f"0A000001,ntp.example,{stratum},1795348800.123456789,{offset},-0.000003210,0.000020000,"
        f"-12.345,0.001,0.020,0.000300000,0.000200000,64.2,{leap}\n"
    )


def cpu(sockets=2, model="Intel(R) Xeon(R) Platinum 8480C"):
    inner = {"field": "Model name:", "data": model, "children": [{"field": "Socket(s):", "data": str(sockets)}]}
    fields = [
        {"field": "Architecture:", "data": "x86_64"},
        {"field": "Vendor ID:", "data": "GenuineIntel", "children": [inner]},
    ]
    return json.dumps({"lscpu": fields}, indent=3) + "\n"


def memory(count=32, empty=0, size="64 GB"):
    """dmidecode -t memory; ``size`` is that of the first module."""
    parts = [
        "# dmidecode 3.5\nGetting SMBIOS data from sysfs.\nSMBIOS 3.5.0 present.\n\n"
        "Handle 0x1000, DMI type 16, 23 bytes\nPhysical Memory Array\n\tLocation: System Board Or Motherboard\n"
        f"\tUse: System Memory\n\tMaximum Capacity: 4 TB\n\tNumber Of Devices: {count}\n\n"
    ]
    for i in range(count):
        fitted = i >= empty
        parts.append(
            f"Handle 0x{0x1100 + i:04X}, DMI type 17, 92 bytes\nMemory Device\n"
            f"\tSize: {(size if i == empty else '64 GB') if fitted else 'No Module Installed'}\n"
            f"\tForm Factor: DIMM\n\tLocator: CPU{i // 16}_DIMM_{i % 16}\n\tType: DDR5\n"
            f"\tSpeed: {'4800 MT/s' if fitted else 'Unknown'}\n\tSerial Number: 80CE{i:04d}\n"
            f"\tConfigured Memory Speed: {'4800 MT/s' if fitted else 'Unknown'}\n\n"
        )
    return "".join(parts)


def drives(count=8):
    devices = [
        {
            "NameSpace": 1,
            "DevicePath": f"/dev/nvme{i}n1",
            "Firmware": "GDC5902Q",
            "ModelNumber": "SAMSUNG MZQL23T8HCLS-00A07",
            "SerialNumber": f"S64FNE0R{i:06d}",
            "PhysicalSize": 3840755982336,
        }
        for i in range(count)
    ]
    return json.dumps({"Devices": devices}, indent=2) + "\n"


def packages(**replaced):
    """dpkg-query; ``replaced`` gives version or status by package name with underscores."""
    lines = ["ii \tbash\t5.1-6ubuntu1.1", "rc \tlinux-image-5.15.0-1-nvidia\t5.15.0-1.1"]
    for name, version in BASELINE.packages.items():
        status = "ii "
        change = replaced.get(name.replace("-", "_"))
        if change == "absent":
            continue
        if change in ("iF ", "rc "):
            status = change
        elif change:
            version = change
        lines.append(f"{status}\t{name}\t{version}")
    return "\n".join(lines) + "\n"


def mounts(options="rw,relatime", used="21%"):
    root = {"target": "/", "source": "/dev/md0", "fstype": "ext4", "options": options, "size": "1.7T", "use%": used}
    boot = {
        "target": "/boot/efi",
        "source": "/dev/nvme8n1p1",
        "fstype": "vfat",
        "options": "rw",
        "size": "1G",
        "use%": "1%",
    }
    proc = {"target": "/proc", "source": "proc", "fstype": "proc", "options": "rw", "size": "0", "use%": "-"}
    return json.dumps({"filesystems": [root, proc, boot]}, indent=3) + "\n"


def processes(before="", after=""):
    usual = "S       1 -                                systemd\nR     812 -                                ps\n"
    return usual + before + "--\n" + usual + after


def facts(**changed):
    """What bmc_discover says of the machine."""
    found = {
        "serial": NODE.serial,
        "vendor": "NVIDIA",
        "model": "DGXH100",
        "firmware": {"HostBMC_0": "24.09.17", "HostBIOS_0": "1.6.7", "CPLDMB_0": "0.2.1.9"}
        | {f"HGX_FW_GPU_SXM_{i + 1}": "96.00.A5.00.01" for i in range(8)},
        "gpus": [{"id": f"GPU_SXM_{i + 1}", "serial": serial(i), "health": "OK"} for i in range(8)],
        "parts": [{"kind": "gpu", "part": f"GPU_SXM_{i + 1}", "serial": serial(i)} for i in range(8)],
        "bios": dict(PROFILE.bios),
        "gaps": [],
    }
    return found | changed


def os_outputs():
    """Probe to output on a healthy node."""
    return {
        "gpus": gpus(),
        "gpu_query": gpu_query(),
        "nvlink": nvlink(),
        "kernel_log": kernel_log(),
        "ib": ib(),
        "fabric_manager": fabric_manager(),
        "clock": clock(),
        "cpu": cpu(),
        "memory": memory(),
        "drives": drives(),
        "services": "[]\n",
        "packages": packages(),
        "mounts": mounts(),
        "processes": processes(),
    }


def os_records(outputs=None, status=None, stderr=None):
    """Probe records; ``status`` and ``stderr`` by probe name."""
    return {
        name: evidence.record(
            (name,), (status or {}).get(name, 0), text.encode(), stderr=(stderr or {}).get(name, "").encode()
        )
        for name, text in (outputs or os_outputs()).items()
    }


def fabric_text(name="as_planned"):
    return (FABRIC_DATA / f"{name}.txt").read_text()


def packed(kind, records, node=NODE.name):
    return evidence.pack(evidence.document(kind, node, NOW, "1", records))


def documents(outputs=None, *, status=None, stderr=None, bmc=None, fabric="as_planned"):
    """The three documents of a node; healthy where nothing else is said."""
    return {
        "os": packed("os", os_records(outputs, status, stderr)),
        "bmc": evidence.pack(evidence.bmc_document(NODE.name, bmc or facts(), NOW)),
        "fabric": packed(
            "fabric", {"ibnetdiscover": evidence.record(("ibnetdiscover",), 0, fabric_text(fabric).encode())}, "sm-1"
        ),
    }


def verdict(given=None, node=NODE, checks=CHECKS):
    return judge(node, PROFILE, BASELINE, documents() if given is None else given, CABLES, checks)


def against(result):
    """(check, outcome) of what is not a pass, as a sorted list."""
    return sorted(
        (f.check, f.outcome.value) for f in result.findings if f.outcome.value not in ("pass", "not_applicable")
    )


def with_outputs(**changed):
    """Verdict on a node whose named probes print something else."""
    return verdict(documents(os_outputs() | changed))
