// Tests a real container runtime: podman with its CNI backend runs two containers from a root file system that the test creates,
// and each fetches a page from the other. Containers, storage and the CNI cache are in temporary folders.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, collect, DIST } from "../functional/cni/cni-host.ts";
import { startService } from "../functional/cni/service.ts";

const missing = missingProgram();
if (canRun && missing !== undefined) console.log(`podman tests skipped: they need ${missing}`);

function missingProgram(): string | undefined {
  for (const program of ["podman", "crun", "busybox"]) if (Bun.which(program) === null) return program;
  const backend = execFileSync("podman", ["info", "--format", "{{.Host.NetworkBackend}}"], {
    env: { ...process.env, CONTAINERS_CONF: "/dev/null" },
  });
  return backend.toString().trim() === "cni" ? undefined : "a podman with the CNI backend";
}

/** Runs in the host's namespaces; prints lines `name: value`. */
const SCENARIO = `
set -eu
work=$1; shift
for folder in /var/lib/cni /var/lib/containers /etc/cni; do mkdir -p $folder; mount -t tmpfs podman-test $folder; done
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding # like the node agent on a real host
umount /sys/fs/cgroup/unified 2>/dev/null || true # crun does not support cgroup v1 and v2 at the same time
for name in one two; do
  root=$work/$name; mkdir -p $root/bin $root/etc $root/proc $root/sys $root/dev $root/tmp $root/run
  cp "$(command -v busybox)" $root/bin/busybox
  for applet in sh httpd wget ip; do ln -s busybox $root/bin/$applet; done
done
podman="podman --root $work/storage --runroot $work/runroot --tmpdir $work/tmp --storage-driver vfs --runtime crun" # runc requires control groups
trap '$podman rm --force --time 0 one two >/dev/null 2>&1 || true' EXIT
for name in one two; do
  $podman run --detach --name $name --network net1 --cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --security-opt seccomp=unconfined \\
    --rootfs $work/$name /bin/sh -c "echo I am $name > /tmp/index.html; exec httpd -f -p '[::]:80' -h /tmp" >/dev/null
done
address() { $podman exec $1 ip -o $2 addr show dev eth0 scope global | while read _ _ _ cidr _; do echo \${cidr%/*}; done; }
fetch() { timeout 10 $podman exec $1 wget -q -O - "http://$2/" || echo unreachable; }
one4=$(address one -4); two4=$(address two -4); one6=$(address one -6); two6=$(address two -6)
echo "addresses: $one4 $two4 $one6 $two6"
echo "address in podman: $($podman inspect one --format '{{(index .NetworkSettings.Networks "net1").IPAddress}}')"
echo "one to two: $(fetch one $two4)"
echo "two to one: $(fetch two $one4)"
echo "one to two by IPv6: $(fetch one "[$two6]")"
echo "two to one by IPv6: $(fetch two "[$one6]")"
$podman rm --force --time 0 one two >/dev/null
echo "done: yes"
`;

describe.skipIf(!canRun || missing !== undefined)("podman", () => {
  test("CI-083 two containers of podman's CNI backend reach each other, and leave no resources", async () => {
    await using host = await CniHost.create();
    await runContainers(host, {});
  });

  test("the same with the CNI service", async () => {
    await using host = await CniHost.create();
    const service_socket = join(host.folder, "run/cni.sock");
    await startService(host, service_socket).ready;
    await runContainers(host, { service_socket });
  });
});

async function runContainers(host: CniHost, conf: Record<string, unknown>): Promise<void> {
  const networks = join(host.folder, "net.d");
  mkdirSync(networks);
  const {
    cniVersion: _,
    name: _name,
    ...plugin
  } = host.conf({
    mtu: 1440, // with an MTU, the result includes the pod's interface, from which podman gets the address
    ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" },
    ...conf,
  });
  const list = { cniVersion: "1.0.0", name: "net1", plugins: [plugin, { type: "tuning" }] };
  writeFileSync(join(networks, "net1.conflist"), JSON.stringify(list));
  const settings = join(host.folder, "containers.conf");
  writeFileSync(
    settings,
    `[network]\nnetwork_backend = "cni"\nnetwork_config_dir = "${networks}"\ncni_plugin_dirs = ["${DIST}", "/usr/lib/cni"]\n` +
      `[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n`,
  );
  const child = host.start("sh", ["-c", SCENARIO, "sh", host.folder], { CONTAINERS_CONF: settings });
  const { code, stdout, stderr } = await collect(child);
  const output = new Map(stdout.split("\n").map((line) => line.split(": ", 2) as [string, string]));
  expect([code, code === 0 ? "" : stderr]).toEqual([0, ""]);
  const [one4] = output.get("addresses")?.split(" ") ?? [];
  expect(output.get("address in podman")).toBe(one4);
  expect(output.get("one to two")).toBe("I am two");
  expect(output.get("two to one")).toBe("I am one");
  expect(output.get("one to two by IPv6")).toBe("I am two");
  expect(output.get("two to one by IPv6")).toBe("I am one");
  expect(host.workloadLinks()).toEqual([]);
  expect(await host.allocations()).toEqual([]);
  expect((await host.all("WorkloadEndpoint")).size).toBe(0);
  expect(existsSync(join(host.folder, "one"))).toBe(true);
}
