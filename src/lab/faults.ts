// Breaking things on purpose, each in a way that `heal` can undo: a fault is recorded as the words it was asked with
// before it is made.
import { setPlug } from "./fabric.ts";
import type { LabHost } from "./host.ts";
import { startControllers, startServer } from "./kubernetes/fake-kubelet.ts";
import { DATASTORE_FAULT, type Lab } from "./lab.ts";
import { InvalidRequest } from "./options.ts";
import { findProcess } from "./process.ts";
import { startEtcd, startNode, startRouter } from "./programs.ts";
import { requireTools } from "./tools.ts";

const FAULT_KINDS = ["link", "process", "rules", "routes", "datastore"] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Nobody else's business runs on them; SQLite is a file. */
const DATASTORE_PROGRAMS = { sqlite: [], etcd: ["etcd"], kubernetes: ["kube-apiserver", "etcd"] } as const;

/** Felix's and BIRD's, as the kernel counts them. */
const ROUTE_PROTOCOLS = ["80", "12"];

/** @param words the kind, then the host, then the interface or process */
export function breakLab(lab: Lab, words: readonly string[]): string {
  const [kind = "", node = "", detail] = words;
  const remember = () => lab.update({ faults: [...lab.record.faults, words.join(" ")] });
  switch (kind) {
    case "link": {
      const { host, nic } = interfaceOf(lab, node, detail);
      remember();
      setPlug(lab.folder, host, nic, false);
      return `${node} ${nic.name} is unplugged`;
    }
    case "process": {
      const pids = processesNamed(lab, node, detail ?? "calico-node");
      remember();
      // By the host's own kill: a node of a Kubernetes cluster counts its processes by itself.
      const { code, stderr } = lab.host(node).run(["kill", "-KILL", ...pids.map(String)]);
      if (code !== 0 && !stderr.includes("No such process")) throw new Error(`kill on ${node}: ${stderr.trim()}`);
      return `killed on ${node}: ${pids.length === 1 ? "process" : "processes"} ${pids.join(", ")}`;
    }
    case "rules": {
      const host = lab.host(node);
      remember();
      flushRules(lab, host);
      return `all packet filter rules on ${node} are gone`;
    }
    case "routes": {
      const host = lab.host(node);
      remember();
      for (const family of lab.options.ipv6 ? ["-4", "-6"] : ["-4"])
        for (const protocol of ROUTE_PROTOCOLS) demand(host, ["ip", family, "route", "flush", "proto", protocol]);
      return `routes of Calico and BIRD on ${node} are gone`;
    }
    case "datastore": {
      const programs = DATASTORE_PROGRAMS[lab.options.datastore].flatMap((program) => {
        const found = findProcess(lab.folder, program);
        return found === undefined ? [] : [{ program, pid: found.pid }];
      });
      if (programs.length === 0)
        throw new InvalidRequest(
          `lab ${lab.folder.name} has no datastore to stop that runs (datastore ${lab.options.datastore})`,
        );
      // Who the pods are is not to be had from it afterwards.
      lab.update({ pods: lab.pods });
      remember();
      for (const { pid } of programs) process.kill(pid, "SIGKILL");
      return `stopped: ${programs.map(({ program }) => program).join(", ")}`;
    }
    default:
      throw new InvalidRequest(
        `break ${kind === "" ? "what" : kind}? There are ${FAULT_KINDS.join(", ")}; calico lab break --help`,
      );
  }
}

/** Undoes every recorded fault; what repairs itself (rules, routes, killed children) is left to the agents. */
export async function healLab(lab: Lab): Promise<string[]> {
  const done: string[] = [];
  for (const fault of lab.record.faults) {
    const [kind, node = "", detail] = fault.split(" ");
    if (kind === "link") {
      const { host, nic } = interfaceOf(lab, node, detail);
      setPlug(lab.folder, host, nic, true);
      done.push(`${node} ${nic.name} is plugged in`);
    } else if (kind === "rules" || kind === "routes")
      done.push(`${kind} on ${node}: the agent writes them again by itself`);
    else if (kind === "process" && (lab.options.kubelets || lab.host(node).program("calico-node") !== undefined))
      done.push(`${detail ?? "calico-node"} on ${node}: started again by itself`);
  }
  if (lab.options.datastore === "etcd" && findProcess(lab.folder, "etcd") === undefined) {
    startEtcd(lab.folder, lab.plan);
    done.push("etcd is started");
  }
  if (lab.cluster !== undefined && lab.record.faults.includes(DATASTORE_FAULT)) {
    const { startControlPlane } = await import("./kubernetes/up.ts");
    await startControlPlane(lab.cluster);
    done.push("the API server and its etcd are started");
  } else if (lab.options.datastore === "kubernetes" && lab.record.faults.includes(DATASTORE_FAULT)) {
    await startServer(lab);
    startControllers(lab);
    done.push("the API server and its etcd are started");
  }
  for (const router of lab.plan.routers) startRouter(lab.folder, router);
  // A kubelet starts again what was killed there.
  for (const node of lab.options.kubelets ? [] : lab.plan.nodes) {
    if (lab.host(node.name).program("calico-node") !== undefined) continue;
    startNode(lab.folder, lab.options, lab.plan, node, lab.record.settings?.[node.name]);
    done.push(`calico-node on ${node.name} is started`);
  }
  lab.update(lab.cluster === undefined ? { faults: [] } : { faults: [], pods: [] });
  return done;
}

function interfaceOf(lab: Lab, node: string, name = "eth0") {
  lab.host(node); // says which hosts there are when this is none
  const host = [...lab.plan.nodes, ...lab.plan.routers].find((h) => h.name === node);
  const nic = host?.interfaces.find((i) => i.name === name);
  if (host === undefined || nic === undefined)
    throw new InvalidRequest(
      `${node} has no interface ${name}; it has ${host?.interfaces.map((i) => i.name).join(", ")}`,
    );
  return { host, nic };
}

/** @throws when the host's tool could not do it: a fault that did not happen proves nothing */
function demand(host: LabHost, command: readonly string[]): void {
  const { code, stdout, stderr } = host.run(command);
  if (code === 0) return;
  const why = (stderr || stdout).trim().split("\n")[0] || `exit ${code}`;
  throw new Error(`${command.join(" ")} on ${host.name}: ${why}`);
}

const isInstalled = (host: LabHost, tool: string): boolean =>
  host.run(["sh", "-c", 'command -v "$1"', "look", tool]).code === 0;

/** What `nft flush ruleset` and `iptables -F` in every table do; of the tools for iptables one will do. */
function flushRules(lab: Lab, host: LabHost): void {
  if (lab.options.dataplane === "nft") return demand(host, ["nft", "flush", "ruleset"]);
  // Calico takes the legacy tables where the host has both; who asks an unused one for its rules makes it.
  const families = lab.options.ipv6 ? ["ip", "ip6"] : ["ip"];
  const tools = ["tables-legacy", "tables"].flatMap((tool) => families.map((family) => `${family}${tool}`));
  const found = tools.filter((tool) => isInstalled(host, tool));
  if (found.length === 0) throw new Error(`${host.name} has none of ${tools.join(", ")}`);
  if (isInstalled(host, "nft")) demand(host, ["nft", "flush", "ruleset"]);
  for (const tool of found)
    for (const table of ["raw", "mangle", "nat", "filter"]) demand(host, [tool, "-t", table, "-F"]);
}

/** Processes of a host whose program or first arguments carry the name. */
function processesNamed(lab: Lab, node: string, name: string): number[] {
  const host = lab.host(node);
  requireTools(["ps"]);
  if (name === "") throw new InvalidRequest("process NODE NAME: the name is empty");
  const holder = lab.options.kubelets ? undefined : host.holder?.pid; // a Kubernetes node counts by itself
  const listed = host.run(["ps", "-eo", "pid=,netns=,args="]).stdout;
  const own = host.run(["readlink", "/proc/self/ns/net"]).stdout.replace(/\D/g, "");
  const found = listed
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, namespace, ...command]) => namespace === own && command.slice(0, 3).some((word) => word.includes(name)))
    .map(([pid]) => Number(pid))
    .filter((pid) => pid !== holder); // with it the host would be gone
  if (found.length === 0) throw new InvalidRequest(`no process ${name} runs on ${node}`);
  return found;
}
