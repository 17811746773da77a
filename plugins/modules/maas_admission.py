# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/maas_admission.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: maas_admission
short_description: Tells MAAS what the gate decided
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Tags admitted machines, and marks refused ones broken with the reason.
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
  metalyard.fleet.maas_admission:
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: maas_admission
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
