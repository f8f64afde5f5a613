// Runs test/vm/guest in a virtual machine with Debian's kernel: WireGuard, IPIP, IPVS, flow offload and systemd, which the machine
// may lack. Prints the output of the tests, and `N passed, N failed` at the end.
//
//   bun test/vm/run.ts [test name pattern]
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { boot, fetchKernel } from "./machine.ts";

const root = join(import.meta.dir, "../..");
const LIMIT_MS = 90 * 60_000;
const MEMORY_MB = 3072;

/** Installed here, because only these tests need them. */
const NEEDED: Readonly<Record<string, string>> = {
  "qemu-system-x86": "/usr/bin/qemu-system-x86_64",
  "busybox-static": "/bin/busybox",
  kmod: "/usr/bin/kmod",
  systemd: "/lib/systemd/systemd",
  "wireguard-tools": "/usr/bin/wg",
  ipvsadm: "/usr/sbin/ipvsadm",
};
const missing = Object.keys(NEEDED).filter((name) => !existsSync(NEEDED[name] ?? ""));
if (missing.length > 0) {
  console.log(`vm: installing ${missing.join(" ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const { status } = spawnSync("apt-get", ["install", "-y", "-q", "--no-install-recommends", ...missing], {
    stdio: ["ignore", "ignore", "inherit"],
    env,
  });
  if (status !== 0) {
    console.error(`vm: run once as root: apt-get install ${missing.join(" ")}`);
    process.exit(1);
  }
}
if (!existsSync(join(root, "dist/calico-node"))) {
  console.error("vm: nothing is built; run make build");
  process.exit(1);
}

const cache = join(root, ".cache/vm");
mkdirSync(cache, { recursive: true });
const kernel = fetchKernel(cache);
console.log(`vm: Debian's kernel ${kernel.version}, software emulation`);
const scratch = mkdtempSync(join(tmpdir(), "calico-vm-"));
let output = "";
const started = performance.now();
const pattern = process.argv[2];
const command = [
  process.execPath,
  ...["test", "--timeout=600000", ...(pattern === undefined ? [] : ["-t", pattern]), "./test/vm/guest/"],
];
const code = await boot(
  {
    kernel,
    command,
    folder: root,
    memoryMb: MEMORY_MB,
    limitMs: LIMIT_MS,
    onOutput: (text) => {
      output += text;
      process.stdout.write(text);
    },
  },
  scratch,
).finally(() => rmSync(scratch, { recursive: true, force: true }));
const count = (word: string) => Number(new RegExp(`^\\s*(\\d+) ${word}\\r?$`, "m").exec(output)?.[1] ?? 0);
const failed = count("fail") + (code === 0 || count("fail") > 0 ? 0 : 1);
console.log(`vm: ran in ${Math.round((performance.now() - started) / 1000)} s`);
console.log(`${count("pass")} passed, ${failed} failed`);
process.exitCode = code === 0 && count("pass") > 0 ? 0 : 1;
