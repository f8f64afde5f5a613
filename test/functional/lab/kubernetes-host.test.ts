// Tests one node of a Kubernetes lab without its programs: the environment of a kubelet, that changes stay on the node, and that
// `down` removes everything.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { listNamedNamespaces } from "../../../src/kernel/index.ts";
import { down } from "../../../src/lab/down.ts";
import { buildFabric, connectHost } from "../../../src/lab/fabric.ts";
import { LabFolder } from "../../../src/lab/folder.ts";
import { machineHierarchies } from "../../../src/lab/kubernetes/cgroups.ts";
import { KubernetesHost } from "../../../src/lab/kubernetes/host.ts";
import { obtainPause, ProgramsMissing } from "../../../src/lab/kubernetes/programs.ts";
import { resolveLabOptions } from "../../../src/lab/options.ts";
import { planLab } from "../../../src/lab/plan.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";

const LAB = "testkube";
const quiet = openTerminal({ quiet: true });
const missing = await obtainPause().then(
  () => undefined,
  (error: unknown) => {
    if (error instanceof ProgramsMissing) return error.message;
    throw error;
  },
);
if (missing !== undefined) console.error(`KUBERNETES NODE TESTS SKIPPED: ${missing}`);
const suite = missing === undefined ? test : test.skip; // the programs are neither cached nor can they be built

const folder = new LabFolder(LAB);
const host = new KubernetesHost(folder, "node1");
const sh = (script: string): string => {
  const { code, stdout, stderr } = host.run(["sh", "-c", script]);
  if (code !== 0) throw new Error(`${script}: ${stderr}`);
  return stdout.trim();
};
const groups = (): string[] =>
  machineHierarchies().flatMap((hierarchy) =>
    readdirSync(`/sys/fs/cgroup/${hierarchy.folder}`).filter((name) => name.startsWith(folder.namespacePrefix)),
  );

beforeAll(async () => {
  if (missing !== undefined) return;
  const plan = planLab(resolveLabOptions({ name: LAB, kubernetes: true, nodes: 1 }));
  folder.create();
  buildFabric(folder, plan);
  for (const node of plan.nodes) connectHost(folder, node);
  await host.start();
}, 30_000);
afterAll(() => down(LAB, quiet), 30_000);

suite("a node has its own pid namespace, and its own control groups as root", () => {
  expect(sh("cat /proc/1/comm")).toBe("pause");
  expect(sh("hostname")).toBe("node1");
  expect(sh("cut -d: -f3 /proc/1/cgroup | sort -u")).toBe("/");
  expect(groups().length).toBe(machineHierarchies().length);
});

suite("orphaned processes are reaped", async () => {
  const before = sh("ls -d /proc/[0-9]* | wc -l");
  sh("(sleep 0.05 &) ; true");
  const deadline = performance.now() + 5000;
  while (sh("ls -d /proc/[0-9]* | wc -l") !== before) {
    if (performance.now() > deadline) throw new Error(sh("ps -ef"));
    await Bun.sleep(20);
  }
});

suite("sysctls and files that a kubelet writes are visible only on the node", () => {
  const own = readFileSync("/proc/sys/kernel/panic", "utf8");
  expect(sh("cat /proc/sys/kernel/panic /proc/sys/vm/overcommit_memory")).toBe("10\n1");
  sh("echo 77 > /proc/sys/kernel/panic; touch /etc/testkube /opt/testkube /var/testkube /run/testkube");
  expect(readFileSync("/proc/sys/kernel/panic", "utf8")).toBe(own);
  for (const place of ["/etc", "/opt", "/var", "/run"]) expect(existsSync(`${place}/testkube`)).toBe(false);
});

suite("an overlay can be mounted in containerd's folder", () => {
  const at = "/var/lib/containerd";
  sh(`cd ${at} && mkdir l u w m && mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m && umount m`);
});

suite("down leaves no process, namespace, control group, mount or file", async () => {
  const launcher = host.holder!.pid!;
  await down(LAB, quiet);
  expect(existsSync(`/proc/${launcher}`) && !readFileSync(`/proc/${launcher}/stat`, "utf8").includes(") Z ")).toBe(
    false,
  );
  expect(listNamedNamespaces().filter((name) => name.startsWith(folder.namespacePrefix))).toEqual([]);
  expect(groups()).toEqual([]);
  expect(existsSync(folder.path)).toBe(false);
  expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(folder.path);
});
