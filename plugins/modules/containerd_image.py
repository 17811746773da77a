#!/usr/bin/python
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has a containerd hold a container image, or not; the work with ctr is in module_utils/containerd.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_image
short_description: Has a containerd hold a container image
version_added: 0.1.0
author: The Metalyard developers (@metalyard)
description:
  - Pulls an image into containerd with C(ctr), through the mirrors that containerd's hosts directory names,
    and unpacks it, so that a container can start at once.
  - An image that is there, complete and unpacked counts as present; the registry is not asked whether its tag has
    moved. Give O(digest), or a reference with a digest, to be sure of what it is.
  - An image that an interrupted pull left behind is pulled again.
options:
  name:
    description: The image's reference in full, with registry, and with a tag or digest.
    type: str
    required: true
  state:
    description: Whether the image is to be there.
    type: str
    choices: [present, absent]
    default: present
  digest:
    description:
      - The digest that the image must have, V(sha256:) and 64 hexadecimal digits.
      - An image with another one is pulled again. Where the registry has another one as well, the task fails and the
        image is not kept.
    type: str
  namespace:
    description: Namespace of containerd; Kubernetes sees V(k8s.io).
    type: str
    default: k8s.io
  hosts_dir:
    description: Folder with the registries' mirrors; empty to ask each registry itself.
    type: str
    default: /etc/containerd/certs.d
  snapshotter:
    description: What unpacks layers; empty for containerd's own choice.
    type: str
    default: ''
  platform:
    description: Such as V(linux/amd64); empty for the node's own.
    type: str
    default: ''
  timeout:
    description: Seconds for the pull. After that it is ended, and the task fails.
    type: float
    default: 1800
  address:
    description: The socket of containerd.
    type: path
    default: /run/containerd/containerd.sock
  executable:
    description: The program C(ctr), by name or path.
    type: str
    default: ctr
attributes:
  check_mode:
    description: Says whether it would pull or remove, and does not.
    support: full
  diff_mode:
    description: Shows the digest before and after.
    support: full
requirements:
  - containerd 1.6 or later, with C(ctr)
  - Python 3.8 or later
"""

EXAMPLES = r"""
- name: Hold an image, through the mirror of its registry
  metalyard.fleet.containerd_image:
    name: registry.example/burn-in:1

- name: Hold exactly this image, inside a container
  metalyard.fleet.containerd_image:
    name: registry.example/burn-in:1
    digest: sha256:f72bff5357ac21c52853206934ab05a19a2c140ca2127100c8acb57f9142b534
    snapshotter: native
    timeout: 300

- name: Forget an image
  metalyard.fleet.containerd_image:
    name: registry.example/burn-in:1
    state: absent
"""

RETURN = r"""
image:
  description: The image as containerd has it in the end; empty without one, and in check mode before a pull.
  returned: success
  type: dict
  sample:
    name: registry.example/burn-in:1
    digest: sha256:f72bff5357ac21c52853206934ab05a19a2c140ca2127100c8acb57f9142b534
    complete: true
    unpacked: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metalyard.fleet.plugins.module_utils.containerd import (
    DIGEST,
    Containerd,
    ContainerdError,
    check_reference,
)


def described(name, image):
    """What a diff shows of an image."""
    if image is None:
        return "{0}: absent\n".format(name)
    flaw = "" if image.ready else ", incomplete" if not image.complete else ", not unpacked"
    return "{0}: {1}{2}\n".format(name, image.digest, flaw)


def present(containerd, parameters, wanted, before, check_mode):
    """Have the image there; returns (changed, image after, text after)."""
    name = parameters["name"]
    if before is not None and before.ready and wanted in (None, before.digest):
        return False, before, described(name, before)
    if check_mode:
        return True, None, "{0}: {1}\n".format(name, wanted or "pulled")
    containerd.pull(name, parameters["hosts_dir"], parameters["platform"], parameters["timeout"])
    after = containerd.find(name)
    if after is None or not after.ready:
        raise ContainerdError(
            "{0} was pulled, and containerd has it {1}: expected it complete and unpacked. Look into the journal of "
            "containerd on the node".format(name, described(name, after).split(": ", 1)[1].strip())
        )
    if wanted not in (None, after.digest):
        containerd.remove(name)
        raise ContainerdError(
            "{0} is {1} in the registry, expected {2}: its tag has moved, or the mirror holds another image. It is not "
            "kept. Push the expected image, or change the digest in the plan".format(name, after.digest, wanted)
        )
    return True, after, described(name, after)


def absent(containerd, parameters, before, check_mode):
    """Have the image gone; returns (changed, image after, text after)."""
    if before is None:
        return False, None, described(parameters["name"], None)
    if not check_mode:
        containerd.remove(parameters["name"])
    return True, None, described(parameters["name"], None)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "digest": {"type": "str"},
            "namespace": {"type": "str", "default": "k8s.io"},
            "hosts_dir": {"type": "str", "default": "/etc/containerd/certs.d"},
            "snapshotter": {"type": "str", "default": ""},
            "platform": {"type": "str", "default": ""},
            "timeout": {"type": "float", "default": 1800},
            "address": {"type": "path", "default": "/run/containerd/containerd.sock"},
            "executable": {"type": "str", "default": "ctr"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    try:
        inner = check_reference(parameters["name"])
        wanted = parameters["digest"] or inner
        if wanted is not None and not DIGEST.match(wanted):
            raise ContainerdError(
                "the digest '{0}' is no digest: expected sha256: and 64 hexadecimal digits".format(wanted)
            )
        if inner not in (None, wanted):
            raise ContainerdError(
                "the reference '{0}' and the digest {1} name two images: expected one. Leave one of them out".format(
                    parameters["name"], wanted
                )
            )
        if parameters["timeout"] <= 0:
            raise ContainerdError("timeout is {0:g}: expected seconds above 0".format(parameters["timeout"]))
        containerd = Containerd(
            parameters["executable"], parameters["address"], parameters["namespace"], parameters["snapshotter"]
        )
        before = containerd.find(parameters["name"])
        if parameters["state"] == "present":
            changed, after, text = present(containerd, parameters, wanted, before, module.check_mode)
        else:
            changed, after, text = absent(containerd, parameters, before, module.check_mode)
    except ContainerdError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=changed,
        image=after._asdict() if after is not None else {},
        diff={"before": described(parameters["name"], before), "after": text},
    )


if __name__ == "__main__":
    main()
