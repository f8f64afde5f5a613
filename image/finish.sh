#!/bin/sh
# Runs inside the image's root once the packages are there: what programs need of them, what nobody needs, and the list
# of what is in. Both ways of making the image end with it.
set -eu

# Of the stock CNI plugins those that a configuration list beside ours uses; the rest is 40 MB.
mkdir -p /opt/cni/bin
for plugin in bandwidth host-local loopback portmap tuning; do
  mv "/usr/lib/cni/$plugin" /opt/cni/bin/
done
rm -rf /usr/lib/cni

# Nobody in a container becomes root by running a program.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +

# BIRD and the agent write there; the host's folders are mounted over them.
mkdir -p /var/run/calico /var/lib/calico /var/log/calico /etc/calico/confd/config /host /status
rm -f /etc/bird/*.conf

# CycloneDX, one component per Debian package.
mkdir -p /usr/share/sbom
{
  printf '{"bomFormat":"CycloneDX","specVersion":"1.5","version":1,"components":[\n'
  dpkg-query -W -f='{"type":"library","name":"${Package}","version":"${Version}","purl":"pkg:deb/debian/${Package}@${Version}?arch=${Architecture}"},\n' |
    sed '$ s/,$//'
  printf ']}\n'
} >/usr/share/sbom/debian.cdx.json

rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* /usr/share/man /usr/share/locale
find /usr/share/doc -type f ! -name copyright -delete 2>/dev/null || true
