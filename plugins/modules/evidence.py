#!/usr/bin/python
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads evidence off a node; the work is in module_utils/evidence_collector.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence
short_description: Reads evidence off a node, raw and sealed
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Runs declared read-only probes (such as C(nvidia-smi), C(dmesg) and C(ibstat)) side by side, each with a deadline
    and a limit on its output.
  - Returns what they said as one document with its digest. It judges nothing; M(metalyard.fleet.gate_judge) does.
  - A tool that is missing, fails or hangs does not fail the task. It is part of the evidence, and the gate is closed
    on it.
  - Needs root on the node, since the kernel log and the memory modules are for root alone.
options:
  node:
    description: Name of the node in the site plan. The gate refuses evidence of another node.
    type: str
    required: true
  kind:
    description: What is read. V(os) is the node itself, V(fabric) the InfiniBand fabric as a fabric host sees it.
    type: str
    choices: [os, fabric]
    default: os
  deadline:
    description: Seconds within which everything is done; what is not done by then is recorded as timed out.
    type: float
    default: 120
  probes:
    description: Names of the probes to run; all of the kind when it is empty.
    type: list
    elements: str
    default: []
  extra:
    description: Probes of the site, for its own checks. They must only read.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the probe, which checks ask for.
        type: str
        required: true
      argv:
        description: The command, word by word; no shell.
        type: list
        elements: str
        required: true
      deadline:
        description: Seconds.
        type: float
        default: 30
      limit:
        description: Bytes of output; a probe that prints more is not used.
        type: int
        default: 1048576
attributes:
  check_mode:
    description: The same in check mode, since it only reads.
    support: full
  diff_mode:
    description: Nothing changes, so there is no difference to show.
    support: none
seealso:
  - module: metalyard.fleet.gate_judge
  - module: metalyard.fleet.fabric_compare
"""

EXAMPLES = r"""
- name: Collect evidence
  metalyard.fleet.evidence:
    node: "{{ inventory_hostname }}"
  become: true
  register: gate__evidence

- name: Read the fabric
  metalyard.fleet.evidence:
    node: sm-1
    kind: fabric
    deadline: 300
  become: true
  register: fabric__evidence

- name: Collect what a check of the site needs, too
  metalyard.fleet.evidence:
    node: "{{ inventory_hostname }}"
    extra:
      - name: local_disk
        argv: [smartctl, --json, --all, /dev/nvme0]
        deadline: 20
  become: true
"""

RETURN = r"""
document:
  description: The sealed document, gzip-compressed and in base64.
  returned: always
  type: str
  sample: H4sIAAAAAAAC/...
digest:
  description: SHA-256 of the document, by which the ledger refers to it.
  returned: always
  type: str
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
kind:
  description: What was read.
  returned: always
  type: str
  sample: os
node:
  description: The node it was read off.
  returned: always
  type: str
  sample: gpu-r01-1
probes:
  description: Per probe its exit status, error, seconds and bytes of output.
  returned: always
  type: dict
  sample: {"ib": {"exit_status": 0, "error": null, "seconds": 0.041, "bytes": 3128}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metalyard.fleet.plugins.module_utils import evidence_collector


def main():
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": ["os", "fabric"], "default": "os"},
            "deadline": {"type": "float", "default": 120},
            "probes": {"type": "list", "elements": "str", "default": []},
            "extra": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "argv": {"type": "list", "elements": "str", "required": True},
                    "deadline": {"type": "float", "default": 30},
                    "limit": {"type": "int", "default": 1048576},
                },
            },
        },
        supports_check_mode=True,
    )
    if module.params["deadline"] <= 0:
        module.fail_json(msg="deadline is {0} s; expected more than 0".format(module.params["deadline"]))
    extra = [
        evidence_collector.Probe(probe["name"], tuple(probe["argv"]), probe["deadline"], probe["limit"])
        for probe in module.params["extra"]
    ]
    try:
        chosen = evidence_collector.choose(module.params["kind"], module.params["probes"], extra)
    except ValueError as error:
        module.fail_json(msg="{0}: {1}".format(module.params["node"], error))
    document = evidence_collector.collect(
        module.params["node"], module.params["kind"], chosen, module.params["deadline"]
    )
    module.exit_json(
        changed=False,
        document=evidence_collector.pack(document),
        digest=document["digest"],
        kind=document["kind"],
        node=document["node"],
        probes=evidence_collector.summary(document),
    )


if __name__ == "__main__":
    main()
