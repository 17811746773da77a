"""Emulates ``nvidia-ctk`` 1.17: the CDI specification of the model's GPUs, and the registration with containerd.

The specification names the devices and files of the real one; the files themselves are not there on a virtual node.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from metalyard.virtual.tools import node
from metalyard.virtual.tools.daemons import version


def option(words: list[str], name: str, default: str) -> str:
    """The value of ``--name=value`` or ``--name value``."""
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    return default


def specification() -> dict[str, Any]:
    """The CDI document for ``nvidia.com/gpu``."""
    driver = node.library_version() or ""
    gpus = node.gpus(node.hardware())
    devices = []
    for gpu in gpus:
        edits = {"deviceNodes": [{"path": "/dev/nvidia{}".format(gpu["index"])}]}
        devices.append({"name": str(gpu["index"]), "containerEdits": edits})
        devices.append({"name": gpu["uuid"], "containerEdits": edits})
    every = [{"path": "/dev/nvidia{}".format(gpu["index"])} for gpu in gpus]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": every}})
    libraries = [f"/usr/lib/x86_64-linux-gnu/{name}.so.{driver}" for name in ("libcuda", "libnvidia-ml")]
    mounts = [
        {"hostPath": path, "containerPath": path, "options": ["ro", "nosuid", "nodev", "bind"]} for path in libraries
    ]
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}, {"path": "/dev/nvidia-uvm-tools"}],
            "mounts": mounts,
        },
    }


def as_yaml(value: Any, depth: int = 0) -> list[str]:
    """Block YAML of plain dictionaries, lists and strings, as nvidia-ctk writes it: keys sorted."""
    pad = "    " * depth
    out: list[str] = []
    if isinstance(value, dict):
        for key in sorted(value):
            inner = value[key]
            if isinstance(inner, (dict, list)):
                out.append(f"{pad}{key}:")
                out += as_yaml(inner, depth + 1)
            else:
                out.append(f"{pad}{key}: {json.dumps(inner)}")
    else:
        for inner in value:
            if isinstance(inner, dict):
                lines = as_yaml(inner, depth + 1)
                out.append(f"{pad}  - {lines[0].strip()}")
                out += lines[1:]
            else:
                out.append(f"{pad}  - {json.dumps(inner)}")
    return out


def generate(words: list[str]) -> int:
    """``nvidia-ctk cdi generate [--output FILE] [--format yaml|json]``."""
    if node.loaded_module("nvidia") is None:
        sys.stderr.write('ERRO[0000] failed to generate CDI spec: failed to initialize NVML: "Driver Not Loaded"\n')
        return 1
    output = option(words, "--output", "")
    layout = option(words, "--format", "json" if output.endswith(".json") else "yaml")
    document = specification()
    if layout == "json":
        text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    else:
        text = "---\n" + "\n".join(as_yaml(document)) + "\n"
    sys.stderr.write("INFO[0000] Generated CDI spec with version {}\n".format(document["cdiVersion"]))
    if not output:
        sys.stdout.write(text)
        return 0
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    part = Path(output + ".part")
    part.write_text(text)
    part.chmod(0o644)
    os.replace(str(part), output)
    return 0


def list_devices() -> int:
    """``nvidia-ctk cdi list``: the devices of the specifications that are there."""
    names: list[str] = []
    for folder in ("/etc/cdi", "/var/run/cdi"):
        for path in sorted(Path(folder).glob("*")):
            names += re.findall(r'name"?: "?([^",\s]+)', path.read_text())
    sys.stderr.write(f"INFO[0000] Found {len(names)} CDI devices\n")
    for name in names:
        print(f"nvidia.com/gpu={name}")
    return 0


def configure(words: list[str]) -> int:
    """``nvidia-ctk runtime configure --runtime=containerd [--config FILE] [--set-as-default]``."""
    runtime = option(words, "--runtime", "docker")
    if runtime != "containerd":
        sys.stderr.write(f"ERRO[0000] unrecognized runtime '{runtime}': this one knows containerd\n")
        return 1
    path = Path(option(words, "--config", "/etc/containerd/config.toml"))
    text = path.read_text() if path.exists() else "version = 2\n"
    table = 'plugins."io.containerd.grpc.v1.cri".containerd'
    if "runtimes.nvidia]" not in text:
        text += (
            f'\n[{table}.runtimes.nvidia]\n  runtime_type = "io.containerd.runc.v2"\n'
            f'[{table}.runtimes.nvidia.options]\n  BinaryName = "/usr/bin/nvidia-container-runtime"\n'
        )
    if "--set-as-default" in words and 'default_runtime_name = "nvidia"' not in text:
        text = re.sub(r"(?m)^\s*default_runtime_name = .*\n", "", text)
        heading = f"[{table}]"
        line = f'{heading}\n  default_runtime_name = "nvidia"\n'
        text = text.replace(heading + "\n", line, 1) if heading + "\n" in text else text + "\n" + line
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sys.stderr.write(f"INFO[0000] Wrote updated config to {path}\n")
    sys.stderr.write("INFO[0000] It is recommended that containerd daemon be restarted.\n")
    return 0


def main() -> int:
    """Read the command as nvidia-ctk does."""
    words = sys.argv[1:]
    if words in (["--version"], ["-v"]):
        print(f"NVIDIA Container Toolkit CLI version {version('container-toolkit')}")
        return 0
    if words[:2] == ["cdi", "generate"]:
        return generate(words[2:])
    if words[:2] == ["cdi", "list"]:
        return list_devices()
    if words[:2] == ["runtime", "configure"]:
        return configure(words[2:])
    sys.stderr.write("nvidia-ctk: this one knows: cdi generate, cdi list, runtime configure, --version\n")
    return 1
