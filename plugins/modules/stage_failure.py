# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/stage_failure.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stage_failure
short_description: Records why a host failed a stage, and fails the host
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Used in the rescue of a stage. The ledger gets the message and the next step; the host fails with one clear
    sentence.
options:
  name:
    description: The stage.
    type: str
    required: true
  task:
    description: Name of the task that failed.
    type: str
    required: true
  result:
    description: What that task returned.
    type: dict
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
  - module: metalyard.fleet.stage
"""

EXAMPLES = r"""
- name: Record the failure
  metalyard.fleet.stage_failure:
    name: bmc
    task: "{{ ansible_failed_task.name }}"
    result: "{{ ansible_failed_result }}"
"""

RETURN = r"""
next_step:
  description: What a person does about it.
  returned: always
  type: str
  sample: Check the cable of the BMC and its address in the plan.
"""
