// Boots a virtual machine with Debian's kernel and the machine's own files, read-only below an overlay in memory. It is emulated
// in software, without disk and network; nothing is installed or remains afterwards.
//
//   initramfs: busybox, modules for 9p and overlay ─► 9p / ─► overlay ─► systemd ─► one service, then power off
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { cpioArchive, type CpioEntry } from "./cpio.ts";

export interface Kernel {
  readonly version: string;
  readonly image: string;
  /** Folder that contains lib/modules. */
  readonly root: string;
}

/** Modules needed to mount the machine's files. */
const BOOT_MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/** Downloads and unpacks Debian's current kernel package, without installing it. */
export function fetchKernel(cache: string): Kernel {
  const found = readKernel(cache);
  if (found !== undefined) return found;
  mkdirSync(cache, { recursive: true });
  const depends = run("apt-cache", ["depends", "linux-image-amd64"], cache);
  const name = /Depends: (linux-image-\S+)/.exec(depends)?.[1];
  if (name === undefined) throw new Error("no kernel package found for linux-image-amd64; run apt-get update");
  run("apt-get", ["download", "-q", name], cache);
  const file = readdirSync(cache).find((entry) => entry.startsWith(`${name}_`) && entry.endsWith(".deb"));
  if (file === undefined) throw new Error(`apt-get download ${name} did not download a package`);
  run("dpkg-deb", ["-x", file, "."], cache);
  const version = name.slice("linux-image-".length);
  // In Debian 13 and later, all files are below /usr.
  const root = existsSync(join(cache, "lib/modules")) ? cache : join(cache, "usr");
  run("depmod", ["-b", root, version], cache);
  const kernel = readKernel(cache);
  if (kernel === undefined) throw new Error(`${file} contains no kernel`);
  return kernel;
}

function readKernel(cache: string): Kernel | undefined {
  for (const root of [cache, join(cache, "usr")]) {
    const modules = join(root, "lib/modules");
    for (const version of existsSync(modules) ? readdirSync(modules) : []) {
      const image = join(cache, "boot", `vmlinuz-${version}`);
      if (existsSync(image) && existsSync(join(modules, version, "modules.dep"))) return { version, image, root };
    }
  }
  return undefined;
}

/** Paths of the boot modules and their dependencies, in load order. */
function moduleFiles({ root, version }: Kernel): string[] {
  const folder = join(root, "lib/modules", version);
  const lines = readFileSync(join(folder, "modules.dep"), "utf8").split("\n");
  const dependencies = new Map(lines.map((line) => [line.split(":")[0] ?? "", line.split(":")[1]?.trim() ?? ""]));
  const order: string[] = [];
  const add = (path: string) => {
    if (order.includes(path)) return;
    for (const needed of (dependencies.get(path) ?? "").split(" ").filter(Boolean)) add(needed);
    order.push(path);
  };
  for (const name of BOOT_MODULES) {
    const path = [...dependencies.keys()].find((candidate) => basename(candidate).split(".")[0] === name);
    if (path !== undefined) add(path); // otherwise built into the kernel
  }
  return order.map((path) => join(folder, path));
}

/** Units that are not needed in the virtual machine. */
const MASKED_UNITS = [
  ...["apparmor", "ldconfig", "systemd-binfmt", "systemd-firstboot", "systemd-hwdb-update", "systemd-modules-load"],
  ...["systemd-journal-catalog-update", "systemd-journal-flush", "systemd-machine-id-commit", "systemd-networkd"],
  ...["systemd-pstore", "systemd-random-seed", "systemd-resolved", "systemd-sysctl", "systemd-sysusers"],
  ...["systemd-timesyncd", "systemd-tmpfiles-setup-dev", "systemd-udev-trigger", "systemd-udevd"],
  ...["systemd-update-done", "systemd-update-utmp", "systemd-remount-fs"],
];

/** The checkout is mounted separately, because it may be below /tmp, which is empty in the guest. */
const INIT = (modules: readonly string[], kernel: Kernel, folder: string) => `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in ${modules.join(" ")}; do $b insmod /modules/$m || echo "vm: module $m does not load"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 files /files || exec $b poweroff -f
$b mount -t tmpfs tmpfs /layer; $b mkdir /layer/upper /layer/work
$b mount -t overlay -o lowerdir=/files,upperdir=/layer/upper,workdir=/layer/work overlay /system
for m in dev proc sys; do $b mount --move /$m /system/$m; done
$b mount --bind /system${quote(folder)} /checkout
$b mount -t tmpfs tmpfs /system/run; $b mount -t tmpfs -o mode=1777 tmpfs /system/tmp
$b mkdir -p /system${quote(folder)}; $b mount --move /checkout /system${quote(folder)}
$b mkdir -p /system/lib/modules /system/run/systemd/system
$b mount --bind /system${quote(join(kernel.root, "lib/modules"))} /system/lib/modules
$b cp /vm-test.service /system/run/systemd/system/; $b cp /vm-test.sh /system/run/
$b rm -f /system/etc/fstab /system/.dockerenv; echo vm-$($b date +%s) | $b md5sum | $b cut -c1-32 > /system/etc/machine-id
for unit in ${MASKED_UNITS.join(" ")}; do
  $b ln -s /dev/null /system/run/systemd/system/$unit.service
done
exec $b switch_root /system /lib/systemd/systemd
`;

const SERVICE = `[Unit]
Description=Tests of the virtual machine
[Service]
Type=oneshot
TimeoutStartSec=infinity
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/bash /run/vm-test.sh
`;

const SCRIPT = (
  command: readonly string[],
  folder: string,
) => `export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root NO_COLOR=1 CALICO_LAB_PATIENCE=10
ip link set lo up
cd ${quote(folder)} && ${command.map(quote).join(" ")}
echo "vm: exit $?"
echo o > /proc/sysrq-trigger
sleep infinity
`;

const quote = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

export interface BootOptions {
  readonly kernel: Kernel;
  /** Runs in \`folder\`, as root, with all programs of the machine. */
  readonly command: readonly string[];
  readonly folder: string;
  readonly memoryMb: number;
  readonly limitMs: number;
  readonly onOutput: (text: string) => void;
}

/** @returns the command's exit code; 255 if the command did not finish */
export function boot(options: BootOptions, scratch: string): Promise<number> {
  const { kernel, command, folder, onOutput } = options;
  const files = moduleFiles(kernel);
  const plain = (path: string) => basename(path).replace(/\.(xz|zst|gz)$/, "");
  const entries: CpioEntry[] = [
    ...["bin", "modules", "proc", "sys", "dev", "files", "layer", "system", "checkout"].map((path) => ({ path })),
    { path: "bin/busybox", content: readFileSync("/bin/busybox"), isExecutable: true },
    ...files.map((path) => ({ path: `modules/${plain(path)}`, content: unpacked(path) })),
    { path: "init", content: INIT(files.map(plain), kernel, folder), isExecutable: true },
    { path: "vm-test.service", content: SERVICE },
    { path: "vm-test.sh", content: SCRIPT(command, folder) },
  ];
  const initramfs = join(scratch, "initramfs");
  writeFileSync(initramfs, Bun.gzipSync(new Uint8Array(cpioArchive(entries)), { level: 1 }));
  const share = "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap";
  const machine = ["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", String(options.memoryMb)];
  const child = spawn(
    "qemu-system-x86_64",
    [
      ...machine,
      ...["-display", "none", "-serial", "stdio", "-monitor", "none", "-nodefaults", "-no-reboot"],
      ...["-kernel", kernel.image, "-initrd", initramfs, "-virtfs", share],
      ...["-append", "console=ttyS0 quiet panic=-1 loglevel=3 systemd.show_status=false systemd.unit=vm-test.service"],
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let code = 255;
  let tail = "";
  const take = (chunk: Buffer) => {
    const text = chunk.toString();
    tail = (tail + text).slice(-200);
    const exit = /vm: exit (\d+)/.exec(tail)?.[1];
    if (exit !== undefined) code = Number(exit);
    onOutput(text);
  };
  child.stdout.on("data", take);
  child.stderr.on("data", take);
  const timer = setTimeout(() => {
    onOutput(`\nvm: timed out after ${options.limitMs / 1000} s\n`);
    child.kill("SIGKILL");
  }, options.limitMs);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", () => {
      clearTimeout(timer);
      resolve(code);
    });
  });
}

function unpacked(path: string): Buffer {
  const tool = path.endsWith(".xz") ? "xz" : path.endsWith(".zst") ? "zstd" : path.endsWith(".gz") ? "gzip" : undefined;
  if (tool === undefined) return readFileSync(path);
  const { stdout, status } = spawnSync(tool, ["-dc", path], { maxBuffer: 1 << 28 });
  if (status !== 0) throw new Error(`${tool} cannot unpack ${path}`);
  return stdout;
}

function run(program: string, args: readonly string[], folder: string): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd: folder, encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr.trim()}`);
  return stdout;
}
