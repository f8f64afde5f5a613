#!/usr/bin/env bash
# Downloads the Bun that installs the npm packages to a folder: `bootstrap-bun.sh FOLDER` writes FOLDER/bun. The package is downloaded
# without running its scripts, compared with the SHA-512 in bun.lock, and its executable with the SHA-256 in bun.sha256. With
# `--check FILE`, downloads nothing and checks an existing executable.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
hashes=$root/scripts/bun.sha256

fail() {
  echo "setup: $1" >&2
  exit 1
}

version=$(sed -nE 's/.*"bun": "([0-9.]+)".*/\1/p' "$root/package.json")
case "$(uname -m)" in
  x86_64) package=@oven/bun-linux-x64 ;;
  aarch64 | arm64) package=@oven/bun-linux-aarch64 ;;
  *) fail "Bun is not available for $(uname -m)" ;;
esac
# grep must read all of its input: with -q it would exit early, and ldd would fail with SIGPIPE.
if ldd --version 2>&1 | grep -i musl >/dev/null; then package=$package-musl; fi

check() { # FILE
  local wanted actual
  wanted=$(sed -nE "s#^([0-9a-f]{64})  $package@${version//./\\.}\$#\1#p" "$hashes")
  [ -n "$wanted" ] || fail "scripts/bun.sha256 has no SHA-256 of $package@$version"
  actual=$(sha256sum "$1" | cut -d ' ' -f 1)
  [ "$actual" = "$wanted" ] || fail "$1 is not the executable of $package@$version: its SHA-256 is $actual, not $wanted (scripts/bun.sha256)"
}

if [ "$1" = --check ]; then
  check "$2"
  exit 0
fi

folder=$1
if [ -x "$folder/bun" ]; then
  check "$folder/bun"
  exit 0
fi
wanted=$(sed -nE "s#^ *\"$package\": \[\"$package@${version//./\\.}\".*\"(sha512-[A-Za-z0-9+/=]+)\"\],?\$#\1#p" "$root/bun.lock")
[ -n "$wanted" ] || fail "bun.lock has no integrity hash of $package@$version"
mkdir -p "$folder"
unpacked=$(mktemp -d "$folder/download.XXXXXX")
trap 'rm -rf "$unpacked"' EXIT
(cd "$unpacked" && npm pack --silent --ignore-scripts "$package@$version" >/dev/null)
archive=$(find "$unpacked" -name '*.tgz')
[ -n "$archive" ] || fail "npm downloaded no $package@$version"
actual=sha512-$(openssl dgst -sha512 -binary "$archive" | base64 -w 0)
[ "$actual" = "$wanted" ] || fail "the downloaded $package@$version is not the one in bun.lock: its hash is $actual, not $wanted"
tar -xzf "$archive" -C "$unpacked" package/bin/bun
check "$unpacked/package/bin/bun"
chmod +x "$unpacked/package/bin/bun"
mv "$unpacked/package/bin/bun" "$folder/bun"
