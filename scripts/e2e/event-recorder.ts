// Records events on a cluster during a test: changes of links, addresses, routes, neighbours and rules on every node, as
// reported by the kernel, changes of pods, as reported by the API server, and the logs of calico-node. Every line has a time.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createWriteStream, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { baseEnvironment } from "../../src/lab/host.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";

/** Commands whose output may explain where a node dropped a packet. */
const SNAPSHOT: Readonly<Record<string, readonly string[]>> = {
  routes: ["ip", "-4", "route", "show", "table", "all"],
  neighbours: ["ip", "-4", "neigh"],
  forwarding: ["bridge", "fdb"],
  links: ["ip", "-s", "link"],
  rules: ["nft", "list", "ruleset"],
  legacy: ["iptables-legacy-save", "-c"],
  connections: ["conntrack", "-L"],
};

export class EventRecorder {
  readonly #children: ChildProcess[] = [];
  readonly #before: ReadonlyMap<string, string>;

  constructor(
    private readonly cluster: KubernetesCluster,
    readonly folder: string,
  ) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    for (const { name } of cluster.lab.plan.nodes) {
      const inside = (command: readonly string[]) => this.#inNode(name, command);
      this.#follow(`${name}-routes`, inside(["ip", "monitor", "link", "address", "route", "neigh", "rule"]));
      this.#follow(`${name}-rules`, inside(["nft", "monitor"]));
    }
    const pods = ["get", "pods", "--all-namespaces", "--watch", "--output-watch-events", "-o", "wide"];
    this.#follow("pods", cluster.kubectlCommand(pods));
    for (const pod of this.#agents())
      this.#follow(
        "calico-node",
        cluster.kubectlCommand(["logs", "--follow", "--tail=1", "--prefix", "-n", "kube-system", pod]),
      );
    this.#before = this.#counters();
  }

  /** Saves the state of all nodes that may explain a lost packet. Only the first call has an effect. */
  snapshot = once(async () => {
    await Promise.all(
      this.cluster.lab.plan.nodes.flatMap(({ name }) =>
        Object.entries(SNAPSHOT).map(async ([what, command]) => {
          const [file, ...args] = this.#inNode(name, command);
          const text = await output(file, args);
          writeFileSync(join(this.folder, `${name}-snapshot-${what}`), `${new Date().toISOString()}\n${text}`);
        }),
      ),
    );
  });

  note(line: string): void {
    this.#file("probes").write(`${new Date().toISOString()} ${line}\n`);
  }

  /** Stops recording. The files are kept only if `keep` is set. */
  async end(keep: boolean): Promise<void> {
    for (const child of this.#children) child.kill("SIGKILL");
    if (keep) {
      const after = this.#counters();
      const changed = [...after].filter(([what, value]) => this.#before.get(what) !== value);
      writeFileSync(
        join(this.folder, "counters"),
        changed.map(([what, value]) => `${what} ${this.#before.get(what) ?? 0} -> ${value}\n`).join(""),
      );
      const logs = ["logs", "--namespace=kube-system", "--selector=k8s-app=calico-node", "--tail=-1", "--prefix"];
      writeFileSync(join(this.folder, "calico-node-new.log"), this.cluster.tryKubectl(logs).stdout);
    }
    for (const stream of this.#files.values()) await new Promise((resolve) => stream.end(resolve));
    if (!keep) rmSync(this.folder, { recursive: true, force: true });
  }

  /** Enters only the network namespace, so that killing the child process ends the command. */
  #inNode(node: string, command: readonly string[]): readonly [string, ...string[]] {
    return ["nsenter", `--net=/run/netns/${this.cluster.lab.folder.namespace(node)}`, "--", ...command];
  }

  #agents(): string[] {
    const names = this.cluster.tryKubectl([
      ...["get", "pods", "-n", "kube-system", "-l", "k8s-app=calico-node", "-o", "name"],
    ]);
    return names.stdout.split("\n").filter((line) => line !== "");
  }

  #follow(name: string, [file, ...args]: readonly [string, ...string[]]): void {
    const child = spawn(file, args, { env: baseEnvironment(), stdio: ["ignore", "pipe", "ignore"] });
    child.on("error", () => {}); // a missing tool is ignored
    this.#children.push(child);
    const stream = this.#file(name);
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (!stream.writableEnded) stream.write(`${new Date().toISOString()} ${line}\n`);
    });
  }

  readonly #files = new Map<string, ReturnType<typeof createWriteStream>>();
  #file(name: string): ReturnType<typeof createWriteStream> {
    const file = this.#files.get(name) ?? createWriteStream(join(this.folder, `${name}.log`));
    this.#files.set(name, file);
    return file;
  }

  /** Reads the kernel's network counters of each node, and those of the machine's ARP table. */
  #counters(): Map<string, string> {
    const found = new Map<string, string>();
    for (const { host } of this.cluster.places) {
      const pid = host.holder?.pid;
      if (pid === undefined) continue;
      for (const file of ["snmp", "netstat"])
        for (const [name, value] of pairs(readFileSync(`/proc/${pid}/net/${file}`, "utf8")))
          found.set(`${host.name} ${name}`, value);
    }
    const [names = "", ...rows] = readFileSync("/proc/net/stat/arp_cache", "utf8").trim().split("\n");
    for (const [cpu, row] of rows.entries())
      for (const [i, name] of words(names).entries())
        found.set(`machine arp_cache cpu${cpu} ${name}`, String(Number.parseInt(words(row)[i] ?? "0", 16)));
    return found;
  }
}

const words = (line: string): string[] => line.trim().split(/\s+/);

/** Parses pairs of lines: names, then values. */
function pairs(text: string): (readonly [string, string])[] {
  const lines = text.trim().split("\n");
  return lines.flatMap((line, i) => {
    if (i % 2 === 1) return [];
    const [group = "", ...names] = words(line);
    const values = words(lines[i + 1] ?? "").slice(1);
    return names.map((name, n) => [`${group}${name}`, values[n] ?? "0"] as const);
  });
}

function output(file: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve) => {
    execFile(file, [...args], { maxBuffer: 1 << 28, env: baseEnvironment() }, (error, stdout, stderr) =>
      resolve(stdout + stderr + (error === null ? "" : `\n${error.message}`)),
    );
  });
}

function once(work: () => Promise<void>): () => Promise<void> {
  let startMs: Promise<void> | undefined;
  return () => (startMs ??= work());
}
