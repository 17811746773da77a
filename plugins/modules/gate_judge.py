# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/gate_judge.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate_judge
short_description: Judges the collected evidence of every host of the play
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Judges by the profile, the baseline, the planned cables and the machine as its BMC describes it. Evidence
    that is missing, cut or changed is unknown, and unknown never admits.
  - Findings and verdicts go into the ledger.
options:
  variable:
    description: Name of the registered variable in which each host holds the result of M(metalyard.fleet.evidence).
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
  metalyard.fleet.gate_judge:
    variable: gate__evidence
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: gate_judge
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
