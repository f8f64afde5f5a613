// Tests a lab of two hosts: creation, connections, a policy, faults, and complete removal.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { listNamedNamespaces } from "../../../src/kernel/index.ts";
import { down } from "../../../src/lab/down.ts";
import { breakLab } from "../../../src/lab/faults.ts";
import { HOST_DATASTORE } from "../../../src/lab/folder.ts";
import { Lab } from "../../../src/lab/lab.ts";
import { measureMatrix } from "../../../src/lab/matrix.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../../src/lab/options.ts";
import { namespaceFolderOf } from "../../../src/lab/process.ts";
import { rolePath } from "../../../src/lab/programs.ts";
import { openTerminal } from "../../../src/lab/terminal.ts";
import { up } from "../../../src/lab/up.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION } from "../../../src/model/index.ts";

const quiet = openTerminal({ quiet: true });
const shapes: readonly (Partial<LabOptions> & { readonly name: string })[] = [
  { name: "testbgp", backend: "bird", dataplane: "nft", ipv6: true },
  { name: "testvxlan", backend: "vxlan", dataplane: "iptables" },
];
const matrixOptions = { protocol: "tcp", port: 80, version: 4, timeoutMs: 500 } as const;

for (const shape of shapes)
  describe(`a lab with ${shape.backend} and ${shape.dataplane}`, () => {
    const options: LabOptions = { ...DEFAULT_OPTIONS, nodes: 2, podsPerNode: 2, ...shape };
    let lab: Lab;
    beforeAll(async () => {
      lab = await up(options, quiet);
    }, 90_000);
    afterAll(() => down(options.name, quiet), 30_000);

    const reached = async (version: 4 | 6 = 4) => {
      const cells = await measureMatrix(lab, { ...matrixOptions, version });
      return cells.filter((cell) => cell.result === "reached").map(({ from, to }) => `${from} ${to}`);
    };

    test("all pods reach each other, also across hosts", async () => {
      await eventually(async () => (await reached()).length === 16);
      if (options.ipv6) await eventually(async () => (await reached(6)).length === 16);
    }, 30_000);

    test("each pod has one route on its host, and other hosts have only a route to its block", async () => {
      await eventually(() => {
        const own = lab.host("node1").run(["ip", "-4", "route", "show"]).stdout.split("\n");
        const pods = lab.record.pods.filter((pod) => pod.node === "node1").map((pod) => pod.addresses[0] ?? "");
        return pods.every((address) => own.filter((line) => line.startsWith(`${address} `)).length === 1);
      });
      await eventually(() => {
        const far = lab.host("node2").run(["ip", "-4", "route", "show"]).stdout.split("\n");
        const pods = lab.record.pods.filter((pod) => pod.node === "node1").map((pod) => pod.addresses[0] ?? "");
        return pods.every((address) => !far.some((line) => line.startsWith(`${address} `)));
      });
    }, 30_000);

    test("a policy denies only the connections it should, until it is deleted", async () => {
      const policy = {
        apiVersion: API_VERSION,
        kind: "NetworkPolicy",
        metadata: { name: "only-app1", namespace: "default" },
        spec: {
          selector: "app == 'app2'",
          types: ["Ingress"],
          ingress: [{ action: "Allow", source: { selector: "app == 'app1'" } }],
        },
      } as const;
      lab.apply([policy]);
      // pod2 and pod4 are app2: only pod1 and pod3 reach them, and each reaches itself, because that traffic does not leave the pod.
      await eventually(async () => (await reached()).length === 14);
      const open = await reached();
      expect(open).not.toContain("default/pod2 default/pod4");
      expect(open).not.toContain("default/pod4 default/pod2");
      expect(open).toContain("default/pod1 default/pod4");
      lab.calicoctl(["delete", "networkpolicy", "only-app1"]);
      await eventually(async () => (await reached()).length === 16);
    }, 30_000);

    test("`break routes` deletes the routes of all families, and the agents restore them", async () => {
      const families = options.ipv6 ? ["-4", "-6"] : ["-4"];
      const host = lab.host("node1");
      const routes = () =>
        families
          .flatMap((family) => host.run(["ip", family, "route", "show"]).stdout.split("\n"))
          .filter((line) => /proto (80|bird)/.test(line))
          .sort();
      const before = routes();
      for (const family of families)
        expect(before.some((line) => line.startsWith("fd") === (family === "-6"))).toBe(true);
      const [file, ...args] = host.enter(["ip", "-o", "monitor", "route"]);
      const monitor = Bun.spawn([file, ...args], { stdin: "ignore", stdout: "pipe", stderr: "ignore" });
      let seen = "";
      const reading = (async () => {
        for await (const chunk of monitor.stdout) seen += new TextDecoder().decode(chunk);
      })();
      try {
        // The monitor is ready when it reports a change.
        await eventually(() => {
          host.run(["ip", "route", "replace", "192.0.2.0/24", "dev", "lo"]);
          host.run(["ip", "route", "del", "192.0.2.0/24"]);
          return seen.includes("192.0.2.0");
        });
        breakLab(lab, ["routes", "node1"]);
        const destinations = before.map(
          (line) => line.split(" proto ")[0]?.split(" dev ")[0]?.split(" via ")[0] ?? line,
        );
        await eventually(() => destinations.every((to) => seen.includes(`Deleted ${to} `)));
      } finally {
        monitor.kill();
        await reading;
      }
      await eventually(() => JSON.stringify(routes()) === JSON.stringify(before), 40_000);
    }, 60_000);

    test("`break rules` fails if the rules cannot be flushed", () => {
      const host = lab.host("node1");
      const tool = options.dataplane === "nft" ? "nft" : "iptables-legacy";
      const path = host.run(["sh", "-c", `readlink -f "$(command -v ${tool})"`]).stdout.trim();
      expect(host.run(["mount", "--bind", "/bin/false", path]).code).toBe(0);
      try {
        expect(() => breakLab(lab, ["rules", "node1"])).toThrow(`${tool} `);
      } finally {
        host.run(["umount", path]);
      }
    });

    test("a second up changes nothing", async () => {
      const before = lab.host("node1").program("calico-node")?.pid;
      await up(options, quiet);
      expect(lab.host("node1").program("calico-node")?.pid).toBe(before);
    }, 60_000);

    test("down leaves no process, namespace or file", async () => {
      const pids = lab.plan.nodes.map((node) => lab.host(node.name).program("calico-node")!.pid!);
      await down(options.name, quiet);
      expect(listNamedNamespaces().filter((name) => name.startsWith(lab.folder.namespacePrefix))).toEqual([]);
      expect(existsSync(lab.folder.path)).toBe(false);
      expect(pids.filter(isAlive)).toEqual([]);
      expect(readFileSync("/proc/self/mounts", "utf8")).not.toContain(lab.folder.path);
    }, 30_000);
  });

/** A zombie counts as exited. */
function isAlive(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}

/** Whether a process is a host's holder: a `sleep` that has the lab's folder mounted. */
function isHolderOf(pid: string, lab: string): boolean {
  try {
    return (
      readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("sleep\0infinity") &&
      readFileSync(`/proc/${pid}/mountinfo`, "utf8").includes(`/calico-lab/${lab}/shared`)
    );
  } catch {
    return false;
  }
}

describe("a lab of one host", () => {
  const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testone", nodes: 1, podsPerNode: 1 };
  beforeAll(() => up(options, quiet), 90_000);
  afterAll(() => down(options.name, quiet), 30_000);
  const calico = (...words: string[]) =>
    Bun.spawn([rolePath("calico"), "lab", ...words], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });

  test("records all pods that are added concurrently", async () => {
    const names = ["a", "b", "c"];
    const added = names.map((name) => calico("pod", "add", name, "--name", options.name));
    expect(await Promise.all(added.map((child) => child.exited))).toEqual([0, 0, 0]);
    expect(Lab.open(options.name).pods.map((pod) => pod.name)).toEqual(expect.arrayContaining(names));
  }, 30_000);

  test("accepts a process name that starts with a dash", async () => {
    const host = Lab.open(options.name).host("node1");
    const inHost = ["--ns", String(host.holder?.pid), "--nslist", "net"];
    const felix = () => host.run(["pgrep", ...inHost, "-f", "--", "-felix"]).stdout.trim();
    const before = felix();
    expect(before).not.toBe("");
    expect(await calico("break", "process", "node1", "-felix", "--name", options.name).exited).toBe(0);
    await eventually(() => felix() !== "" && felix() !== before);
    expect(await calico("heal", "--name", options.name).exited).toBe(0);
  }, 30_000);

  test("two concurrent `up` commands do not interfere", async () => {
    const shape = ["--nodes", "1", "--pods", "1", "--name", "testtwo"];
    try {
      const both = [calico("up", ...shape), calico("up", ...shape)];
      const messages = await Promise.all(both.map((child) => new Response(child.stderr).text()));
      expect({ messages, codes: await Promise.all(both.map((child) => child.exited)) }).toMatchObject({
        codes: [0, 0],
      });
      expect(messages.join("")).toContain("another command is changing lab testtwo");
      expect(Lab.open("testtwo").pods.length).toBe(1);
      const holders = readdirSync("/proc").filter((pid) => isHolderOf(pid, "testtwo"));
      expect(holders.length).toBe(1);
      // One command removes the lab while another creates it; in any order, the result is complete.
      const [made, removed] = [calico("up", ...shape), calico("down", "--name", "testtwo")];
      expect([await made.exited, await removed.exited]).toEqual([0, 0]);
    } finally {
      await down("testtwo", quiet);
    }
    expect(existsSync("/var/lib/calico-lab/testtwo.lock")).toBe(false);
    expect(existsSync("/var/lib/calico-lab/testtwo")).toBe(false);
  }, 90_000);

  test("an interrupted up prints how to resume, and can be resumed", async () => {
    const shape = ["--nodes", "1", "--pods", "0", "--name", "testint"];
    try {
      const first = calico("up", ...shape);
      // The host is still starting; a command that ran in it now would use the machine's own files.
      await eventually(() => first.exitCode !== null || existsSync("/var/lib/calico-lab/testint/pid/node1-host"));
      first.kill("SIGINT");
      expect(await first.exited).toBe(130);
      expect(await new Response(first.stdout).text()).toContain("resume with calico lab up --name testint");
      const before = existsSync(HOST_DATASTORE);
      expect(await calico("up", "--name", "testint").exited).toBe(0);
      expect(existsSync(HOST_DATASTORE)).toBe(before);
    } finally {
      await down("testint", quiet);
    }
  }, 60_000);

  test("down with a lab's name as argument is rejected and removes nothing", async () => {
    expect(await calico("down", options.name).exited).toBe(2);
    expect(Lab.open(options.name).host("node1").holder).toBeDefined();
  });

  const rejected = [
    { words: "matrix -o yaml", message: "-o yaml: want json" },
    { words: "matrix --version 5", message: "--version 5: want 4 or 6" },
    { words: "matrix --version 6", message: "lab testone has no IPv6; create one with calico lab up --ipv6" },
    { words: "matrix -n nobody", message: "lab testone has no pods in namespace nobody; see calico lab pod list" },
    { words: "break link", message: "NODE is missing; hosts of lab testone: node1" },
    { words: "break rules", message: "NODE is missing; hosts of lab testone: node1" },
    { words: "break link node9", message: "lab testone has no host node9; its hosts: node1" },
  ];
  for (const { words, message } of rejected)
    test(`rejects ${words}`, async () => {
      const child = calico(...words.split(" "), "--name", options.name);
      const printed = await new Response(child.stderr).text();
      expect({ code: await child.exited, printed }).toEqual({ code: 2, printed: expect.stringContaining(message) });
    });

  test("on a host, `install` is the machine's program, not calico-install", async () => {
    const where = async (name: string) => {
      const child = calico("exec", "node1", "--name", options.name, "--", "sh", "-c", `command -v ${name}`);
      return (await new Response(child.stdout).text()).trim();
    };
    expect(await where("calico-install")).toBe(rolePath("calico-install"));
    expect(await where("install")).toBe("/usr/bin/install");
  });

  test("up restarts a host whose holder was killed, with its pods", async () => {
    const names = () => Lab.open(options.name).pods.map((pod) => pod.name);
    const before = names();
    const orphan = Lab.open(options.name).host("node1").program("calico-node")!.pid!;
    process.kill(Lab.open(options.name).host("node1").holder!.pid!, "SIGKILL");
    await eventually(() => Lab.open(options.name).host("node1").holder === undefined);
    expect(await calico("status", "--name", options.name).exited).toBe(3);
    const again = await up(options, quiet);
    expect(isAlive(orphan)).toBe(false);
    expect(names().toSorted()).toEqual(before.toSorted());
    const all = before.length ** 2;
    await eventually(
      async () =>
        (await measureMatrix(again, matrixOptions)).filter((cell) => cell.result === "reached").length === all,
    );
  }, 60_000);

  test("pods that a killed up attached but did not record are attached once, with one address each", async () => {
    const lab = Lab.open(options.name);
    const { pods } = lab.record;
    lab.update({ pods: pods.filter((pod) => pod.name !== "pod1") });
    await up(options, quiet);
    expect(Lab.open(options.name).pods.length).toBe(pods.length);
    const found = JSON.parse(lab.calicoctl(["get", "workloadendpoints", "-A", "-o", "json"])) as { items: unknown[] };
    expect(found.items.length).toBe(pods.length);
    expect(lab.calicoctl(["ipam", "check"])).toContain("found 0 problems");
  }, 30_000);

  test("rejects invalid labels before it creates a pod", async () => {
    expect(await calico("pod", "add", "bad", "--labels", "a=b c", "--name", options.name).exited).toBe(2);
    expect(Lab.open(options.name).pods.map((pod) => pod.name)).not.toContain("bad");
  });

  test("down kills programs of a pod whose host was killed before", async () => {
    const program = calico("exec", "pod1", "--name", options.name, "--", "sleep", "1000");
    const sleeping = () =>
      Bun.spawnSync(["pgrep", "-P", String(program.pid)])
        .stdout.toString()
        .trim();
    await eventually(() => sleeping() !== "");
    const pid = sleeping();
    const isIn = () => readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("sleep");
    await eventually(isIn);
    const holder = Lab.open(options.name).host("node1").holder!.pid!;
    expect(holder).toBeGreaterThan(0);
    process.kill(holder, "SIGKILL");
    await eventually(() => !existsSync(namespaceFolderOf(holder)));
    await down(options.name, quiet);
    await program.exited;
    expect(existsSync(`/proc/${pid}`)).toBe(false);
  }, 30_000);
});

// Like a machine that is itself a node of a cluster. $1 the executable, $2 the lab.
const WITH_CALICO = `set -eu
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/upper/calico /mnt/upper/cni/net.d /mnt/work
echo "datastore: elsewhere" > /mnt/upper/calico/calicoctl.cfg
echo "DatastoreType = elsewhere" > /mnt/upper/calico/felix.cfg
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
umount -l /mnt
code=0
"$1" lab up --name "$2" --nodes 1 --pods 1 || code=$?
"$1" lab exec node1 --name "$2" -- ls /etc/calico /etc/cni/net.d /var/lib/calico || code=$?
"$1" lab down --name "$2"
exit $code`;

test("the machine's own Calico files are not visible in a lab", () => {
  const words = ["--mount", "--", "sh", "-c", WITH_CALICO, "try", rolePath("calico"), "testcfg"];
  const { exitCode, stdout, stderr } = Bun.spawnSync(["unshare", ...words]);
  const output = `${stdout}${stderr}`;
  expect({ exitCode, output }).toMatchObject({ exitCode: 0 });
  expect(output).not.toMatch(/calicoctl\.cfg|felix\.cfg|calico\.db/);
  expect(output).toContain("datastore");
}, 60_000);
