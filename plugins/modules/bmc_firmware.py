# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/bmc_firmware.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_firmware
short_description: Brings the firmware of every node of the play to the baseline
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Compares the inventory with the baseline, pushes the image of what is behind, follows the task, resets as
    the component needs it, and reads the version back.
  - An update that the BMC calls done and whose version did not change is a failure.
options:
  firmware_dir:
    description: Folder on the controller that holds the image files of the baseline.
    type: path
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
  - module: metalyard.fleet.sweep_result
"""

EXAMPLES = r"""
- name: Sweep all hosts of the play
  metalyard.fleet.bmc_firmware:
    firmware_dir: /srv/firmware
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: bmc_firmware
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
