// Injects faults that `heal` can repair. Each fault is recorded, as the arguments of `break`, before it is injected.
import { setConnected } from "./fabric.ts";
import type { LabHost } from "./host.ts";
import { startControllers, startServer } from "./kubernetes/fake-kubelet.ts";
import { DATASTORE_FAULT, type Lab } from "./lab.ts";
import { InvalidRequest } from "./options.ts";
import { findProcess } from "./process.ts";
import { startEtcd, startNode, startRouter } from "./programs.ts";
import { requireTools } from "./tools.ts";

const FAULT_KINDS = ["link", "process", "rules", "routes", "datastore"] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Programs of each datastore; SQLite has none. */
const DATASTORE_PROGRAMS = { sqlite: [], etcd: ["etcd"], kubernetes: ["kube-apiserver", "etcd"] } as const;

/** Protocol numbers of routes by Felix and BIRD. */
const ROUTE_PROTOCOLS = ["80", "12"];

/** @param words the kind, then the host, then the interface or process */
export function breakLab(lab: Lab, words: readonly string[]): string {
  const [kind = "", node = "", detail] = words;
  const recordFault = () => lab.update({ faults: [...lab.record.faults, words.join(" ")] });
  switch (kind) {
    case "link": {
      const { host, nic } = interfaceOf(lab, node, detail);
      recordFault();
      setConnected(lab.folder, host, nic, false);
      return `disconnected ${nic.name} of ${node}`;
    }
    case "process": {
      const pids = processesNamed(lab, node, detail ?? "calico-node");
      recordFault();
      // With the host's own kill, because a Kubernetes node has its own pid namespace.
      const { code, stderr } = lab.host(node).run(["kill", "-KILL", ...pids.map(String)]);
      if (code !== 0 && !stderr.includes("No such process")) throw new Error(`kill on ${node}: ${stderr.trim()}`);
      return `killed on ${node}: ${pids.length === 1 ? "process" : "processes"} ${pids.join(", ")}`;
    }
    case "rules": {
      const host = lab.host(node);
      recordFault();
      flushRules(lab, host);
      return `deleted all packet filter rules on ${node}`;
    }
    case "routes": {
      const host = lab.host(node);
      recordFault();
      for (const family of lab.options.ipv6 ? ["-4", "-6"] : ["-4"])
        for (const protocol of ROUTE_PROTOCOLS) runOrThrow(host, ["ip", family, "route", "flush", "proto", protocol]);
      return `deleted the routes of Calico and BIRD on ${node}`;
    }
    case "datastore": {
      const programs = DATASTORE_PROGRAMS[lab.options.datastore].flatMap((program) => {
        const found = findProcess(lab.folder, program);
        return found === undefined ? [] : [{ program, pid: found.pid }];
      });
      if (programs.length === 0)
        throw new InvalidRequest(
          `lab ${lab.folder.name} has no running datastore process to stop (datastore ${lab.options.datastore})`,
        );
      // The pods cannot be listed while the datastore is stopped.
      lab.update({ pods: lab.pods });
      recordFault();
      for (const { pid } of programs) process.kill(pid, "SIGKILL");
      return `stopped: ${programs.map(({ program }) => program).join(", ")}`;
    }
    default:
      throw new InvalidRequest(
        `unknown fault ${JSON.stringify(kind)}: want one of ${FAULT_KINDS.join(", ")}; see calico lab break --help`,
      );
  }
}

/** Repairs all recorded faults. Rules, routes and killed child processes are restored by the agents themselves. */
export async function healLab(lab: Lab): Promise<string[]> {
  const done: string[] = [];
  for (const fault of lab.record.faults) {
    const [kind, node = "", detail] = fault.split(" ");
    if (kind === "link") {
      const { host, nic } = interfaceOf(lab, node, detail);
      setConnected(lab.folder, host, nic, true);
      done.push(`reconnected ${nic.name} of ${node}`);
    } else if (kind === "rules" || kind === "routes") done.push(`${kind} on ${node}: the agent restores them`);
    else if (kind === "process" && (lab.options.kubelets || lab.host(node).program("calico-node") !== undefined))
      done.push(`${detail ?? "calico-node"} on ${node}: restarted automatically`);
  }
  if (lab.options.datastore === "etcd" && findProcess(lab.folder, "etcd") === undefined) {
    startEtcd(lab.folder, lab.plan);
    done.push("started etcd");
  }
  if (lab.cluster !== undefined && lab.record.faults.includes(DATASTORE_FAULT)) {
    const { startControlPlane } = await import("./kubernetes/up.ts");
    await startControlPlane(lab.cluster);
    done.push("started the API server and its etcd");
  } else if (lab.options.datastore === "kubernetes" && lab.record.faults.includes(DATASTORE_FAULT)) {
    await startServer(lab);
    startControllers(lab);
    done.push("started the API server and its etcd");
  }
  for (const router of lab.plan.routers) startRouter(lab.folder, router);
  // Kubelets restart killed pods themselves.
  for (const node of lab.options.kubelets ? [] : lab.plan.nodes) {
    if (lab.host(node.name).program("calico-node") !== undefined) continue;
    startNode(lab.folder, lab.options, lab.plan, node, lab.record.settings?.[node.name]);
    done.push(`started calico-node on ${node.name}`);
  }
  lab.update(lab.cluster === undefined ? { faults: [] } : { faults: [], pods: [] });
  return done;
}

function interfaceOf(lab: Lab, node: string, name = "eth0") {
  lab.host(node); // throws an error with the names of the hosts if there is no such host
  const host = [...lab.plan.nodes, ...lab.plan.routers].find((h) => h.name === node);
  const nic = host?.interfaces.find((i) => i.name === name);
  if (host === undefined || nic === undefined)
    throw new InvalidRequest(
      `${node} has no interface ${name}; it has ${host?.interfaces.map((i) => i.name).join(", ")}`,
    );
  return { host, nic };
}

/** @throws if the command fails: a fault that was not injected would prove nothing */
function runOrThrow(host: LabHost, command: readonly string[]): void {
  const { code, stdout, stderr } = host.run(command);
  if (code === 0) return;
  const reason = (stderr || stdout).trim().split("\n")[0] || `exit ${code}`;
  throw new Error(`${command.join(" ")} on ${host.name}: ${reason}`);
}

const isInstalled = (host: LabHost, tool: string): boolean =>
  host.run(["sh", "-c", 'command -v "$1"', "find", tool]).code === 0;

/** Flushes all rules with nft, and with each installed iptables variant. */
function flushRules(lab: Lab, host: LabHost): void {
  if (lab.options.dataplane === "nft") return runOrThrow(host, ["nft", "flush", "ruleset"]);
  // If the host has both variants, Calico uses the legacy tables. Reading unused legacy tables would create them.
  const families = lab.options.ipv6 ? ["ip", "ip6"] : ["ip"];
  const tools = ["tables-legacy", "tables"].flatMap((tool) => families.map((family) => `${family}${tool}`));
  const found = tools.filter((tool) => isInstalled(host, tool));
  if (found.length === 0) throw new Error(`${host.name} has none of ${tools.join(", ")}`);
  if (isInstalled(host, "nft")) runOrThrow(host, ["nft", "flush", "ruleset"]);
  for (const tool of found)
    for (const table of ["raw", "mangle", "nat", "filter"]) runOrThrow(host, [tool, "-t", table, "-F"]);
}

/** Returns the processes of a host whose program or first two arguments contain the name. */
function processesNamed(lab: Lab, node: string, name: string): number[] {
  const host = lab.host(node);
  requireTools(["ps"]);
  if (name === "") throw new InvalidRequest("process NODE NAME: the name is empty");
  const holder = lab.options.kubelets ? undefined : host.holder?.pid; // a Kubernetes node has its own pid namespace
  const listed = host.run(["ps", "-eo", "pid=,netns=,args="]).stdout;
  const own = host.run(["readlink", "/proc/self/ns/net"]).stdout.replace(/\D/g, "");
  const found = listed
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, namespace, ...command]) => namespace === own && command.slice(0, 3).some((word) => word.includes(name)))
    .map(([pid]) => Number(pid))
    .filter((pid) => pid !== holder); // killing it would remove the host
  if (found.length === 0) throw new InvalidRequest(`no process ${name} runs on ${node}`);
  return found;
}
