#!/usr/bin/env bash
# Installs the missing packages. If nothing is missing, it does nothing and requires no network.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian packages, each with a program of the package, which is searched for on systems without dpkg.
debian_packages=(
  bird2:bird busybox-static:busybox conntrack:conntrack containernetworking-plugins:/usr/lib/cni/bridge crun:crun curl:curl etcd-client:etcdctl
  etcd-server:etcd ethtool:ethtool frr:/usr/lib/frr/bgpd gobgpd:gobgpd iproute2:ip ipset:ipset
  iptables:iptables-restore iperf3:iperf3 iputils-ping:ping jq:jq mmdebstrap:mmdebstrap netcat-openbsd:nc nftables:nft openssl:openssl
  podman:podman procps:ps runc:runc socat:socat strace:strace tcpdump:tcpdump
)

is_installed() { # PACKAGE PROGRAM
  if command -v dpkg-query >/dev/null; then
    [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]
  else
    PATH=$PATH:/usr/sbin:/sbin command -v "$2" >/dev/null || [ -x "/opt/cni/bin/${2##*/}" ]
  fi
}

missing=()
for entry in "${debian_packages[@]}"; do
  is_installed "${entry%%:*}" "${entry#*:}" || missing+=("${entry%%:*}")
done
# These may be installed without a package.
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: not a Debian system; install the contents of these Debian packages: ${missing[*]}" >&2
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "setup: run once as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]} (a minute or two, once)"
  export DEBIAN_FRONTEND=noninteractive
  # Prevents daemons of packages from starting; tests start their own daemons in namespaces.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  apt-get update -q >/dev/null
  apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi

stamp=node_modules/.lock.sum
if [ ! -x node_modules/.bin/bun ] || ! sha256sum --status -c "$stamp" 2>/dev/null; then
  echo "setup: installing npm packages"
  version=$(sed -nE 's/.*"bun": "([0-9.]+)".*/\1/p' package.json)
  bootstrap=.cache/bun-$version
  scripts/bootstrap-bun.sh "$bootstrap"
  # Compares every package with its hash in bun.lock.
  "$bootstrap/bun" install --frozen-lockfile --silent
  scripts/bootstrap-bun.sh --check node_modules/.bin/bun
  sha256sum package.json bun.lock >"$stamp"
fi
