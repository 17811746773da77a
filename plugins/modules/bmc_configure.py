# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of an action that runs on the controller: plugins/action/bmc_configure.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_configure
short_description: Brings every BMC of the play to the plan
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Replaces the factory password by one of its own per node, written down before it is set and verified after,
    so that a crash at any moment locks nobody out.
  - Sets time servers, boot mode and the BIOS attributes of the profile. A value that waits for a reset is not
    C(changed) again.
options:
  reset:
    description:
      - When a pending BIOS value is applied. V(auto) resets nodes that are not yet provisioned and leaves others.
    type: str
    choices: [auto, now, later]
    default: auto
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
  metalyard.fleet.bmc_configure:
    reset: auto
  run_once: true

- name: Take the host's result
  metalyard.fleet.sweep_result:
    sweep: bmc_configure
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
