# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/bmc_discover.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_discover
short_description: Reads every BMC of the play and holds each machine against the plan
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Reads vendor, model, serials, firmware, GPUs, NICs, DIMMs and drives of every host of the play through its
    BMC, in one process.
  - A machine whose serial is not the planned one fails with both serials; nothing is done to it.
options: {}
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
  - module: metalyard.fleet.sweep_result
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
