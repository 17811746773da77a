# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/gate_admit.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate_admit
short_description: Lets the verdicts of this run take effect in the ledger
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Gives admitted nodes a signed admission and sets refused ones aside with the reason. A refused host fails,
    with the next step.
options: {}
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
  metalyard.fleet.gate_admit:
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: gate_admit
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
