#!/bin/sh
# Runs in a container of the node image: downloads packages and what they depend on beyond the image into /out.
# Arguments: package names. Environment: SIMULATOR names what is taken from the next release where this one is too old,
# OWNER (uid:gid) is who the files are to belong to.
set -eu
archive=/usr/share/metalyard-virtual/archive
lists=/var/lib/apt/lists
options="-q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$archive -o Dir::Cache::archives=/out"
options="$options -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Debug::NoLocking=true"
if [ -e "$archive/apt.conf" ]; then options="$options -c $archive/apt.conf"; fi
mkdir -p "$lists/partial" /out/partial

# shellcheck disable=SC2086  # options are words
{
  apt-get $options update
  apt-get $options install --yes --download-only "$@"
}

# Debian 12's simulator of an InfiniBand fabric stops at HDR; the next release's knows NDR and needs nothing newer.
. /etc/os-release
if [ "${ID:-}" = debian ] && [ "${VERSION_CODENAME:-}" = bookworm ] && [ -n "${SIMULATOR:-}" ]; then
  mkdir -p /tmp/next
  for source in "$archive"/*.sources; do
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/-security/ && !done { print; done = 1 }' "$source" |
      sed 's/^Suites:.*/Suites: trixie/' >>/tmp/next/next.sources
  done
  for source in "$archive"/*.list; do
    [ -e "$source" ] || continue
    grep -E '^deb .* bookworm ' "$source" | head -n 1 | sed 's/ bookworm / trixie /' >>/tmp/next/next.list || true
  done
  find /tmp/next -empty -type f -delete
  options=$(echo "$options" | sed "s#sourceparts=$archive#sourceparts=/tmp/next#")
  # shellcheck disable=SC2086
  { apt-get $options update && cd /out && apt-get $options download $SIMULATOR; }
else
  # shellcheck disable=SC2086
  apt-get $options install --yes --download-only ${SIMULATOR:-}
fi
rm -rf /out/partial /out/lock
chown -R "${OWNER:-0:0}" /out
