"""The emulated packages: names, versions and contents of what a GPU node installs and no container can run.

``metalyard-virtual-node`` is part of the node image: it gives a container the machine that its model describes.
The others carry the names of NVIDIA's packages, at the versions of a baseline, with the tools of :mod:`.tools`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metalyard.plan.model import Bmc, Node
from metalyard.plan.profile import Baseline, Profile
from metalyard.virtual import models
from metalyard.virtual.debs import Package

LIBRARY = "/usr/lib/metalyard-virtual"
SHARE = "/usr/share/metalyard-virtual"
UNITS = "/lib/systemd/system"
TOOLS = Path(__file__).with_name("tools")

NODE_PROGRAMS: dict[str, tuple[str, str]] = {
    "dmesg": ("kernel_log", "/bin/dmesg"),
    "modprobe": ("modules", "/sbin/modprobe"),
    "lsmod": ("modules", "/sbin/lsmod"),
    "modinfo": ("modules", "/sbin/modinfo"),
    "nvme": ("inventory", "/usr/sbin/nvme"),
    "dmidecode": ("inventory", "/usr/sbin/dmidecode"),
    "lscpu": ("inventory", "/usr/bin/lscpu"),
    "lspci": ("inventory", "/usr/bin/lspci"),
}
"""Program to the module that emulates it, and to where Debian's package puts the real one."""

KERNEL_MODULES: dict[str, dict[str, Any]] = {
    "mlx5_core": {"autoload": True, "size": 2260992},
    "ib_core": {"autoload": True, "size": 471040},
    "mlx5_ib": {"autoload": True, "size": 471040, "depends": ["mlx5_core", "ib_core"]},
    "ib_uverbs": {"size": 184320, "depends": ["ib_core"]},
    "ib_umad": {"size": 40960, "depends": ["ib_core"]},
    "ib_cm": {"size": 139264, "depends": ["ib_core"]},
    "iw_cm": {"size": 61440, "depends": ["ib_core"]},
    "ib_ipoib": {"size": 155648, "depends": ["ib_cm", "ib_core"]},
    "rdma_cm": {"size": 139264, "depends": ["iw_cm", "ib_cm", "ib_core"]},
    "rdma_ucm": {"size": 36864, "depends": ["rdma_cm", "ib_uverbs"]},
    "nvme": {"autoload": True, "size": 57344},
    "overlay": {"size": 163840},
    "br_netfilter": {"size": 32768},
    "nf_conntrack": {"size": 188416},
    "tcp_bbr": {"size": 20480},
    "ipmi_devintf": {"size": 20480},
    "ipmi_si": {"size": 81920},
    "msr": {"size": 16384},
}

LAUNCHER = """\
#!/usr/bin/python3
# Starts the emulated {name}; see metalyard.virtual.tools.{module}.
import sys

sys.path.insert(0, "{library}")
from metalyard.virtual.tools.{module} import main

sys.exit(main())
"""

NODE_UNIT = f"""\
# Gives a container the machine that its hardware model describes, before anything looks at it.
[Unit]
Description=Virtual node: adapters, kernel settings and modules of its own
DefaultDependencies=no
ConditionVirtualization=container
After=systemd-remount-fs.service
Before=sysinit.target systemd-sysctl.service systemd-modules-load.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={LIBRARY}/bin/boot

[Install]
WantedBy=sysinit.target
"""

MODULES_LOAD = f"""\
# The kernel is the host's: modules are loaded by the emulated modprobe.
[Unit]
ConditionKernelCommandLine=
ConditionCapability=
ConditionDirectoryNotEmpty=

[Service]
ExecStart=
ExecStart={LIBRARY}/bin/load-modules
"""

CHRONY = """\
# The clock is the host's: chrony measures the offset and leaves the clock alone (-x).
[Unit]
ConditionCapability=

[Service]
ExecStart=
ExecStart=!/usr/sbin/chronyd $DAEMON_OPTS -x
CapabilityBoundingSet=~CAP_SYS_TIME
"""

DIVERT = """\
#!/bin/sh
# Puts the emulated programs in the place of the real ones, also of those that are installed later.
set -e
case "$1" in
{case})
  for pair in {pairs}; do
    name=${{pair%%=*}}
    usual=${{pair#*=}}
    paths=$(dpkg-query --search "*bin/$name" 2>/dev/null | sed -n "s#^.*: \\(\\(/usr\\)\\?/s\\?bin/$name\\)\\$#\\1#p")
    for path in ${{paths:-$usual}}; do
      {action}
    done
  done
  ;;
esac
"""

ADD = f"""if [ "$(dpkg-divert --listpackage "$path")" != metalyard-virtual-node ]; then
        dpkg-divert --package metalyard-virtual-node --divert "$path.distrib" --rename --add "$path" >/dev/null
      fi
      ln -sf {LIBRARY}/bin/$name "$path\""""

REMOVE = """if [ "$(dpkg-divert --listpackage "$path")" = metalyard-virtual-node ]; then
        rm -f "$path"
        dpkg-divert --package metalyard-virtual-node --rename --remove "$path" >/dev/null
      fi"""


def launcher(name: str, module: str) -> bytes:
    """The program that starts a tool's module."""
    return LAUNCHER.format(name=name, module=module, library=LIBRARY).encode()


def default_node() -> Node:
    """The node whose model containers outside a rack have."""
    return Node(
        name="virtual-node",
        rack="virtual",
        unit=1,
        serial="1660000000000",
        profile="dgx-h100",
        bmc=Bmc(address="127.0.0.1"),
        boot_mac="0c:42:a1:ff:ff:01",
        address="192.0.2.1/24",
        hca_guids={f"mlx5_{index}": f"0xb83fd203ffff010{index}" for index in range(8)},
    )


def node_package(profile: Profile, baseline: Baseline) -> Package:
    """``metalyard-virtual-node``, for the node image. Its version names its contents."""
    library: dict[str, bytes] = {}
    for path in sorted(TOOLS.glob("*.py")):
        library[f"{LIBRARY}/metalyard/virtual/tools/{path.name}"] = path.read_bytes()
    for parent in ("metalyard", "metalyard/virtual"):
        library[f"{LIBRARY}/{parent}/__init__.py"] = b'"""Holds the tools of a virtual node."""\n'
    model = models.generate(default_node(), profile, baseline)
    default = {f"{SHARE}/default/hardware.json": model.model_dump_json(indent=1).encode()}
    for name, text in models.sysfs_infiniband(model).items():
        default[f"{SHARE}/default/sysfs-infiniband/{name}"] = text.encode()
    programs = {f"{LIBRARY}/bin/{name}": launcher(name, module) for name, (module, _) in NODE_PROGRAMS.items()}
    programs[f"{LIBRARY}/bin/boot"] = launcher("boot", "boot")
    programs[f"{LIBRARY}/bin/load-modules"] = launcher("load-modules", "modules")
    pairs = " ".join(f"{name}={usual}" for name, (_, usual) in NODE_PROGRAMS.items())
    package = Package(
        name="metalyard-virtual-node",
        version="0",
        summary="the machine that a virtual node's hardware model describes",
        depends=["python3 (>= 3.8)"],
        fields={"Multi-Arch": "foreign"},
        files={
            **library,
            **default,
            f"{SHARE}/modules/kernel.json": json.dumps(KERNEL_MODULES, indent=1).encode(),
            f"{UNITS}/metalyard-virtual-node.service": NODE_UNIT.encode(),
            f"{UNITS}/chrony.service.d/metalyard-virtual.conf": CHRONY.encode(),
            f"{UNITS}/systemd-modules-load.service.d/metalyard-virtual.conf": MODULES_LOAD.encode(),
        },
        programs=programs,
        links={f"{UNITS}/sysinit.target.wants/metalyard-virtual-node.service": "../metalyard-virtual-node.service"},
        scripts={
            "postinst": DIVERT.format(case="configure", pairs=pairs, action=ADD),
            "prerm": DIVERT.format(case="remove | deconfigure", pairs=pairs, action=REMOVE),
        },
    )
    package.version = f"1.0+{package.digest()[:12]}"
    return package


SERVICE = """\
# Emulated; the unit's names and order are the real one's.
[Unit]
Description={description}
{unit}
[Service]
Type={kind}
ExecStart={command}
{service}
[Install]
WantedBy=multi-user.target
"""

FABRIC_MANAGER_CONFIGURATION = b"""\
# Fabric manager's configuration; the options that a site changes, at their defaults.
LOG_LEVEL=4
LOG_FILE_NAME=/var/log/fabricmanager.log
DAEMONIZE=0
BIND_INTERFACE_IP=127.0.0.1
STARTING_TCP_PORT=16000
FABRIC_MODE=0
FM_STAY_RESIDENT_ON_FAILURES=0
"""

RUNTIME = b"""\
#!/bin/sh
# Devices come by CDI; the runtime below does the rest.
exec runc "$@"
"""

LOAD_DRIVER = """\
#!/bin/sh
# A running machine loads the driver it has just got; one that runs an older driver keeps it until the next boot.
set -e
if [ "$1" = configure ] && [ -z "${2:-}" ]; then
  for module in nvidia nvidia_uvm nvidia_modeset; do /usr/lib/metalyard-virtual/bin/modprobe -q "$module" || true; done
fi
"""

UNIT_SCRIPT = """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
{enable}
fi
"""


def _unit(description: str, command: str, *, kind: str = "exec", unit: str = "", service: str = "") -> bytes:
    return SERVICE.format(description=description, command=command, kind=kind, unit=unit, service=service).encode()


def _scripts(enable: str = "") -> dict[str, str]:
    line = (
        f'  if [ "$1" = configure ]; then systemctl enable --now {enable} >/dev/null 2>&1 || true; fi' if enable else ""
    )
    return {
        "postinst": UNIT_SCRIPT.format(enable=line),
        "postrm": UNIT_SCRIPT.format(enable=""),
    }


def gpu_packages(baseline: Baseline) -> list[Package]:
    """NVIDIA's packages at the versions of a baseline; raises ``KeyError`` naming the package it has no version for."""
    versions = baseline.packages
    driver, utils = "nvidia-driver-570-server-open", "nvidia-utils-570-server"
    manager, toolkit = "nvidia-fabricmanager-570", "nvidia-container-toolkit"
    dcgm = "datacenter-gpu-manager-4-cuda12"
    modules: dict[str, dict[str, Any]] = {
        "nvidia": {"version": baseline.driver, "license": "Dual MIT/GPL", "autoload": True, "size": 11567104},
        "nvidia_uvm": {"version": baseline.driver, "autoload": True, "depends": ["nvidia"], "size": 4923392},
        "nvidia_modeset": {"version": baseline.driver, "autoload": True, "depends": ["nvidia"], "size": 1306624},
        "nvidia_drm": {"version": baseline.driver, "depends": ["nvidia_modeset", "nvidia"], "size": 122880},
        "nvidia_peermem": {"version": baseline.driver, "depends": ["nvidia", "ib_core"], "size": 16384},
    }
    node = "metalyard-virtual-node"
    return [
        Package(
            name=driver,
            version=versions[driver],
            summary="NVIDIA driver (emulated): server, open kernel modules",
            depends=[f"{utils} (= {versions[utils]})", f"nvidia-compute-utils-570-server (= {versions[utils]})", node],
            files={f"{SHARE}/modules/nvidia.json": json.dumps(modules, indent=1).encode()},
            scripts={"postinst": LOAD_DRIVER},
        ),
        Package(
            name=utils,
            version=versions[utils],
            summary="NVIDIA driver's tools (emulated): nvidia-smi",
            depends=[node],
            files={f"{SHARE}/nvidia-library-version": f"{baseline.driver}\n".encode()},
            programs={"/usr/bin/nvidia-smi": launcher("nvidia-smi", "nvidia_smi")},
        ),
        Package(
            name="nvidia-compute-utils-570-server",
            version=versions[utils],
            summary="NVIDIA driver's daemon (emulated): nvidia-persistenced",
            depends=[node],
            files={
                f"{UNITS}/nvidia-persistenced.service": _unit(
                    "NVIDIA Persistence Daemon", "/usr/bin/nvidia-persistenced --verbose"
                )
            },
            programs={"/usr/bin/nvidia-persistenced": launcher("nvidia-persistenced", "daemons")},
            scripts=_scripts(),
        ),
        Package(
            name=manager,
            version=versions[manager],
            summary="NVIDIA fabric manager (emulated)",
            depends=[node],
            files={
                f"{SHARE}/fabricmanager-version": f"{baseline.fabric_manager}\n".encode(),
                "/etc/nvidia/fabricmanager.cfg": FABRIC_MANAGER_CONFIGURATION,
                f"{UNITS}/nvidia-fabricmanager.service": _unit(
                    "NVIDIA fabric manager service",
                    "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg",
                    unit="After=network-online.target\nRequires=network-online.target",
                    service="LimitCORE=infinity",
                ),
            },
            programs={"/usr/bin/nv-fabricmanager": launcher("nv-fabricmanager", "daemons")},
            links={"/usr/share/nvidia/nvswitch/fabricmanager.cfg": "/etc/nvidia/fabricmanager.cfg"},
            scripts=_scripts(),
        ),
        Package(
            name="datacenter-gpu-manager-4-core",
            version=versions[dcgm],
            summary="NVIDIA DCGM (emulated): daemon and dcgmi",
            depends=[node],
            files={
                f"{SHARE}/dcgm-version": f"{baseline.dcgm}\n".encode(),
                f"{UNITS}/nvidia-dcgm.service": _unit(
                    "NVIDIA DCGM service",
                    "/usr/bin/nv-hostengine -n --service-account nvidia-dcgm",
                    service="Restart=on-abort",
                ),
            },
            programs={
                "/usr/bin/nv-hostengine": launcher("nv-hostengine", "daemons"),
                "/usr/bin/dcgmi": launcher("dcgmi", "dcgmi"),
            },
            scripts=_scripts(),
        ),
        Package(
            name=dcgm,
            version=versions[dcgm],
            summary="NVIDIA DCGM (emulated): CUDA 12 part",
            depends=[f"datacenter-gpu-manager-4-core (= {versions[dcgm]})"],
        ),
        Package(
            name=f"{toolkit}-base",
            version=versions[toolkit],
            summary="NVIDIA container toolkit (emulated): nvidia-ctk",
            depends=[node],
            files={f"{SHARE}/container-toolkit-version": (versions[toolkit].split("-")[0] + "\n").encode()},
            programs={"/usr/bin/nvidia-ctk": launcher("nvidia-ctk", "container_toolkit")},
        ),
        Package(
            name=toolkit,
            version=versions[toolkit],
            summary="NVIDIA container toolkit (emulated): runtime",
            depends=[f"{toolkit}-base (= {versions[toolkit]})"],
            programs={"/usr/bin/nvidia-container-runtime": RUNTIME},
        ),
    ]
