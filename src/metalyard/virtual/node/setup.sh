#!/bin/sh
# Turns a plain Debian or Ubuntu root into what a node is after MAAS has deployed it. Runs inside the image build.
set -eu
here=$(dirname "$0")
export DEBIAN_FRONTEND=noninteractive

# A public base image has neither these packages nor package lists; the one from mmdebstrap has them already.
# shellcheck disable=SC2046  # one package name a word
if ! dpkg-query --show $(cat "$here/packages.txt") >/dev/null 2>&1; then
  apt-get update --quiet
  apt-get install --yes --no-install-recommends $(cat "$here/packages.txt")
fi

# The archive's own sources stay for whoever fills the test bed's repository; the node itself sees that repository only.
mkdir -p /usr/share/metalyard-virtual/archive
for source in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  if [ -s "$source" ]; then mv "$source" "/usr/share/metalyard-virtual/archive/$(basename "$source")"; fi
done
if [ -e /etc/apt/apt.conf.d/99mmdebstrap ]; then
  mv /etc/apt/apt.conf.d/99mmdebstrap /usr/share/metalyard-virtual/archive/apt.conf
fi
rm -f /etc/apt/apt.conf.d/docker-clean /etc/apt/apt.conf.d/docker-gzip-indexes /etc/apt/apt.conf.d/docker-no-languages
rm -f /usr/sbin/policy-rc.d

cp -R "$here/etc/." /etc/
# A mount from the rack; without it (a scenario that needs no packages) apt has nothing to read and says so.
mkdir -p /opt/virtual-rack /opt/virtual-rack-apt /var/lib/cloud/seed/nocloud

# Host keys are the deployed machine's own: cloud-init makes them, and where it does not run, the first start does.
rm -f /etc/ssh/ssh_host_*
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id

for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer \
  man-db.timer motd-news.timer; do
  rm -f "/etc/systemd/system/timers.target.wants/$unit"
done
# These want a console, a kernel or a clock of their own, which a container lacks.
for unit in systemd-udev-trigger.service systemd-udevd.service systemd-udevd-control.socket \
  systemd-udevd-kernel.socket systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service \
  systemd-resolved.service systemd-timesyncd.service e2scrub_reap.service getty.target console-getty.service; do
  ln -sf /dev/null "/etc/systemd/system/$unit"
done
systemctl enable ssh.service >/dev/null 2>&1 || ln -sf /lib/systemd/system/ssh.service \
  /etc/systemd/system/multi-user.target.wants/ssh.service
# Ubuntu listens through a socket unit, which would keep the port from the service.
systemctl disable ssh.socket >/dev/null 2>&1 || true

# Last: from here on the emulated programs stand in the place of the real ones.
dpkg --install "$here"/metalyard-virtual-node_*.deb

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt/* /var/log/dpkg.log /var/log/bootstrap.log
