# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/stage.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stage
short_description: Opens or closes a stage in the ledger for all hosts of the play
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Opening takes the nodes for this run, and says per host whether it goes on, is set aside, or is held by
    another run and since when.
  - Closing records the stage as passed for the hosts still in the play, and moves them on.
options:
  name:
    description: The stage.
    type: str
    required: true
    choices: [discover, bmc, firmware, provision, configure, fabric, images, prove, admit]
  state:
    description: Whether the stage begins or has passed.
    type: str
    required: true
    choices: [opened, passed]
  results:
    description: Sweeps whose facts and parts go into the ledger.
    type: list
    elements: str
    default: []
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
  - module: metalyard.fleet.stage_failure
"""

EXAMPLES = r"""
- name: Open the stage
  metalyard.fleet.stage:
    name: bmc
    state: opened
  run_once: true
"""

RETURN = r"""
ansible_facts:
  description: The open stage, when opening.
  returned: when opened
  type: complex
  contains:
    metalyard_stage:
      description: The id of the run, the name of the stage, and a decision for each host.
      returned: when opened
      type: dict
"""
