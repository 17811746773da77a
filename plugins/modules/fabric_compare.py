# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/fabric_compare.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_compare
short_description: Compares the fabric with the planned cables
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Takes the sealed output of ibnetdiscover, keeps it as evidence, and leaves each host what is wrong with its
    cables, naming both ends.
options:
  document:
    description: What M(metalyard.fleet.evidence) returned as C(document), of the kind V(fabric).
    type: str
    required: true
attributes:
  check_mode:
    description: Reads only, and says what would change.
    support: full
  diff_mode:
    description: Returns the differences per host through M(metalyard.fleet.sweep_result).
    support: none
requirements:
  - The Python package C(metalyard) on the controller.
seealso:
  - module: metalyard.fleet.sweep_result
"""

EXAMPLES = r"""
- name: Sweep all hosts of the play
  metalyard.fleet.fabric_compare:
    document: "{{ fabric__evidence.document }}"
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: fabric_compare
"""

RETURN = r"""
swept:
  description: How many hosts were swept.
  returned: always
  type: int
  sample: 511
trouble:
  description: How many of them failed or did not answer.
  returned: always
  type: int
  sample: 3
"""
