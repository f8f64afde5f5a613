#!/bin/sh
# Runs inside the image's root once the packages are there: what programs need of them, what nobody needs, and the list
# of what is in. Both ways of making the image end with it.
set -eu

# A tag may name another image tomorrow.
case "${BASE:-}" in
  "" | localhost/* | *@sha256:*) ;;
  *)
    echo "finish.sh: BASE=$BASE has no digest: use NAME@sha256:…" >&2
    exit 1
    ;;
esac

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

# CycloneDX 1.5: the base, and one component per Debian package with the SHA-256 of its .deb file, which is in the package
# index (packages.available). The release is the hash of the index' signed release files.
. /etc/os-release
mkdir -p /usr/share/sbom
{
  printf '{"bomFormat":"CycloneDX","specVersion":"1.5","version":1,\n'
  printf '"metadata":{"component":{"type":"operating-system","name":"%s","version":"%s"},\n' "$ID" "$(cat /etc/debian_version)"
  printf '"properties":[{"name":"calico-ts:base-image","value":"%s"},' "${BASE:-none}"
  printf '{"name":"calico-ts:debian-release-sha256","value":"%s"}]},\n' "$(cat /tmp/release.sha256)"
  printf '"components":[\n'
  dpkg-query -W -f='${Package} ${Version} ${Architecture}\n' | awk '
    NR == FNR { if ($1 == "Package:") name = $2; else if ($1 == "Version:") version = $2; else if ($1 == "SHA256:") sha[name " " version] = $2; next }
    {
      hash = sha[$1 " " $2]
      printf "%s{\"type\":\"library\",\"name\":\"%s\",\"version\":\"%s\",\"purl\":\"pkg:deb/debian/%s@%s?arch=%s\"", comma, $1, $2, $1, $2, $3
      if (hash != "") printf ",\"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"%s\"}]", hash
      printf "}"
      comma = ",\n"
    }' /tmp/packages.available -
  printf '\n]}\n'
} >/usr/share/sbom/debian.cdx.json
rm /tmp/packages.available /tmp/release.sha256

rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* /usr/share/man /usr/share/locale
find /usr/share/doc -type f ! -name copyright -delete 2>/dev/null || true
