# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/sweep_result.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sweep_result
short_description: Takes one host out of the result of a sweep
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - A sweep talks to all hosts in one process and leaves each host its result in the folder of the run. This
    task picks it up, so that the recap says per host ok, changed or failed.
options:
  sweep:
    description: Name of the sweep.
    type: str
    required: true
attributes:
  check_mode:
    description: Reads only, and says what would change.
    support: full
  diff_mode:
    description: Returns the differences per host through M(metalyard.fleet.sweep_result).
    support: full
requirements:
  - The Python package C(metalyard) on the controller.
seealso:
  - module: metalyard.fleet.bmc_discover
"""

EXAMPLES = r"""
- name: Sweep all hosts of the play
  metalyard.fleet.bmc_discover:
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: bmc_discover
"""

RETURN = r"""
next_step:
  description: What a person does about it.
  returned: always
  type: str
  sample: Check the cable of the BMC and its address in the plan.
data:
  description: What was read.
  returned: always
  type: dict
  sample: {"serial": "1660623000001"}
seconds:
  description: How long this host took.
  returned: always
  type: float
  sample: 3.2
aside:
  description: Whether the machine is not the planned one.
  returned: always
  type: bool
  sample: false
bmc_unreachable:
  description: Whether the BMC did not answer.
  returned: on failure
  type: bool
  sample: false
"""
