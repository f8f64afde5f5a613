// `calico lab …`: the command line of the lab.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { dirname } from "node:path";
import { describeError } from "../lib/log.ts";
import { delay } from "../lib/retry.ts";
import { alignColumns } from "../lib/table.ts";
import { isLabelValue, isQualifiedName } from "../model/index.ts";
import { parseArguments } from "./arguments.ts";
import { demonstrate } from "./demo.ts";
import { down } from "./down.ts";
import { breakLab, FAULTS, healLab } from "./faults.ts";
import { LabFolder, listLabs } from "./folder.ts";
import { baseEnvironment } from "./host.ts";
import { Lab } from "./lab.ts";
import { lockExisting } from "./lock.ts";
import { measureMatrix, renderMatrix } from "./matrix.ts";
import { labTitle, nameFlag, nextSteps } from "./next-steps.ts";
import { DEFAULT_OPTIONS, labName, parseLabOptions, UsageError } from "./options.ts";
import { parsePodName, podNamespace, podTitle } from "./pods.ts";
import { datastoreEnvironment, rolePath } from "./programs.ts";
import { changeSettings } from "./settings.ts";
import { labStatus, renderStatus } from "./status.ts";
import { counted, openTerminal } from "./terminal.ts";
import { requireTools } from "./tools.ts";
import { addPods, removePod, up } from "./up.ts";

const USAGE = `calico lab: a cluster in network namespaces on this machine

  up         make one, or finish and repair what is there of it
               [--nodes N] [--pods N] [--topology switch|racks|reflectors|dual-nic] [--backend bird|vxlan]
               [--dataplane nft|iptables] [--datastore sqlite|etcd|kubernetes] [--ipv6]
               --kubernetes: a real Kubernetes cluster with kubelets, containerd and kube-proxy
               (with --nodes, --pods, --backend, --dataplane, --typha)
  demo       a shop with a policy: before, after, and why
  status     what stands and what does not [-o json]
  matrix     who reaches whom, by real packets
               [--protocol tcp|udp|icmp|sctp] [--port N] [--version 4|6] [-n NAMESPACE] [-o json]
  exec       NODE|POD -- COMMAND: run a command on a host or in a pod
  pod        add [NAMESPACE/]NAME [--node NODE] [--labels k=v,…] | del NAME | list [-o json]
  apply      -f FILE: calicoctl apply, on the first node
  set        NODE NAME=VALUE …: change calico-node's environment on a host and start it again
  capture    NODE [-- FILTER]: tcpdump on a host
  break      ${Object.values(FAULTS).join("\n             ")}
  heal       undo what was broken
  kubectl    … or --name LAB -- …: kubectl on a cluster with Kubernetes, as its administrator
  down       remove it, completely

Every command takes --name LAB (default: $CALICO_LAB, or lab); several labs can stand side by side.`;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    await delay(10); // a program that an interrupt ended failed by it: the interrupt has the word
    openTerminal({ fd: 2 }).line(`calico lab: ${describeError(error)}`);
    return error instanceof UsageError ? 2 : 1;
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const [given = "help", ...rest] = argv;
  const command = ["-h", "--help"].includes(given) ? "help" : given;
  if (command === "kubectl") return kubectl(rest);
  const { options: values, words: positionals, inner, wantsHelp } = parseArguments(command, rest);
  const terminal = openTerminal();
  if (command === "help" || wantsHelp) {
    terminal.line(USAGE);
    return 0;
  }
  if (!(command === "pod" && positionals[0] === "list")) requireRoot();
  const name = labName(values.name ?? DEFAULT_OPTIONS.name);
  const json = values.output === "json";
  if (!json && values.output !== undefined) throw new UsageError(`-o ${values.output}: want json, or nothing`);
  const print = (value: unknown, text: () => string) => terminal.line(json ? JSON.stringify(value, null, 2) : text());
  switch (command) {
    case "up": {
      const started = performance.now();
      process.once("SIGINT", () => {
        const flag = nameFlag(name);
        terminal.line(`\ninterrupted: calico lab up${flag} goes on with it, calico lab down${flag} removes it`);
        process.exit(130);
      });
      const lab = await up(parseLabOptions(values, new LabFolder(name).read()?.options), terminal);
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      const size = `${counted(lab.plan.nodes.length, "node")}, ${counted(lab.pods.length, "pod")}`;
      terminal.line(`${labTitle(name)} is up: ${size}, ${seconds} s\n`);
      terminal.line(nextSteps(lab));
      return 0;
    }
    case "demo": {
      using _ = await lockExisting(name);
      await demonstrate(Lab.open(name), terminal);
      return 0;
    }
    case "down": {
      const others = listLabs().filter((each) => each !== name);
      const { wasThere } = await down(name, terminal);
      const rest = others.length === 0 ? "" : `; there is ${others.join(", ")} (--name)`;
      terminal.line(wasThere ? `${labTitle(name)} is gone` : `there was no lab ${name}${rest}`);
      return 0;
    }
    case "status": {
      const lab = Lab.open(name);
      const rows = await labStatus(lab);
      print(rows, () => renderStatus(lab, rows, terminal.colour));
      return rows.every((row) => row.state === "ready") ? 0 : 3;
    }
    case "matrix": {
      const lab = Lab.open(name);
      const version = versionOf(values.version ?? "4");
      if (version === 6 && !lab.options.ipv6)
        throw new UsageError(`lab ${name} has no IPv6; calico lab up --ipv6 makes a lab that has`);
      const cells = await measureMatrix(lab, {
        protocol: protocolOf(values.protocol ?? "tcp"),
        port: portOf(values.port ?? "80"),
        version,
        timeoutMs: 600,
        namespace: values.namespace,
      });
      if (cells.length === 0 && values.namespace !== undefined)
        throw new UsageError(`lab ${name} has no pods in namespace ${values.namespace}; calico lab pod list`);
      print(cells, () => renderMatrix(cells, terminal.colour, terminal.width));
      return 0;
    }
    case "exec":
      return execute(Lab.open(name), positionals[0], inner);
    case "capture":
      return capture(Lab.open(name), positionals[0], inner);
    case "pod": {
      using _ = positionals[0] === "list" ? undefined : await lockExisting(name);
      return pod(Lab.open(name), positionals, values, (value, text) => print(value, text));
    }
    case "apply": {
      if (values.filename === undefined) throw new UsageError("apply -f FILE");
      const lab = Lab.open(name);
      terminal.line(lab.calicoctl(["apply", "-f", "-"], readGiven(values.filename)).trimEnd());
      return 0;
    }
    case "set": {
      const [node = "", ...words] = positionals;
      using _ = await lockExisting(name);
      const started = performance.now();
      await changeSettings(Lab.open(name), node, words);
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      terminal.line(`calico-node on ${node} runs with ${words.join(" ")}, ready after ${seconds} s`);
      return 0;
    }
    case "break": {
      using _ = await lockExisting(name);
      terminal.line(breakLab(Lab.open(name), positionals));
      return 0;
    }
    case "heal": {
      using _ = await lockExisting(name);
      const done = await healLab(Lab.open(name));
      terminal.line(done.length === 0 ? "nothing is broken" : done.join("\n"));
      return 0;
    }
    default:
      throw new UsageError(`no command ${command}; calico lab help`);
  }
}

function pod(
  lab: Lab,
  [verb, text]: readonly string[],
  options: { readonly node?: string | undefined; readonly labels?: string | undefined },
  print: (value: unknown, text: () => string) => void,
): number {
  if (verb === "list") {
    const { pods } = lab;
    const rows = pods.map((p) => [`${p.namespace}/${p.name}`, p.node, p.addresses.join(","), labelText(p.labels)]);
    print(pods, () => alignColumns([["POD", "NODE", "ADDRESSES", "LABELS"], ...rows]));
    return 0;
  }
  if (text === undefined || (verb !== "add" && verb !== "del")) throw new UsageError("pod add|del NAME, or pod list");
  if (verb === "add") {
    const wanted = {
      ...parsePodName(text),
      node: options.node ?? leastLoaded(lab),
      labels: parseLabels(options.labels ?? ""),
    };
    lab.host(wanted.node);
    addPods(lab, [wanted]);
    const added = lab.pod(`${wanted.namespace}/${wanted.name}`);
    if (options.node !== undefined && added.node !== options.node)
      throw new UsageError(`pod ${podTitle(added)} is on ${added.node} already; calico lab pod del it first`);
    const differs = Object.entries(wanted.labels).some(([key, value]) => added.labels[key] !== value);
    if (differs)
      throw new UsageError(
        `pod ${podTitle(added)} is there already, with labels ${labelText(added.labels) || "none"}; calico lab pod del it first`,
      );
    print(added, () => `pod ${podTitle(added)} on ${added.node}: ${added.addresses.join(", ")}`);
    return 0;
  }
  const doomed = lab.pod(text);
  removePod(lab, doomed);
  print(doomed, () => `pod ${podTitle(doomed)} is gone`);
  return 0;
}

function execute(lab: Lab, where: string | undefined, command: readonly string[]): number {
  if (where === undefined || command.length === 0) throw new UsageError("exec NODE|POD -- COMMAND");
  const isHost = lab.hostNames.includes(where);
  const pod = isHost ? undefined : lab.pod(where);
  const host = lab.host(pod?.node ?? where);
  const namespace = pod === undefined ? undefined : (lab.namespaceNames([pod]).get(pod) ?? podNamespace(pod));
  const inside = namespace === undefined ? command : ["ip", "netns", "exec", namespace, ...command];
  const base = baseEnvironment();
  const environment = {
    ...base,
    PATH: `${dirname(rolePath("calicoctl"))}:${base["PATH"]}`,
    ...datastoreEnvironment(lab.options, lab.plan),
    NODENAME: host.name,
  };
  return become(host.enter(inside), environment);
}

/** Everything after the word, or after `--` when the lab is named, is kubectl's. */
async function kubectl(args: readonly string[]): Promise<number> {
  requireRoot();
  const split = args.indexOf("--");
  const isNamed = args[0] === "--name" && split === 2;
  const lab = Lab.open(labName(isNamed ? (args[1] ?? "") : DEFAULT_OPTIONS.name));
  if (lab.options.datastore !== "kubernetes")
    throw new UsageError(
      `lab ${lab.folder.name} has no Kubernetes; calico lab up --kubernetes, or --datastore kubernetes`,
    );
  const { KubernetesCluster } = await import("./kubernetes/cluster.ts");
  return become(new KubernetesCluster(lab).kubectlCommand(isNamed ? args.slice(split + 1) : args), baseEnvironment());
}

function capture(lab: Lab, node: string | undefined, filter: readonly string[]): number {
  if (node === undefined) throw new UsageError("capture NODE [-- FILTER]");
  requireTools(["tcpdump"]);
  return become(lab.host(node).enter(["tcpdump", "-n", "-l", "-i", "any", ...filter]), baseEnvironment());
}

/** Runs it in our place: what is typed is for it, an interrupt too. */
function become(command: readonly [string, ...string[]], environment: Record<string, string>): number {
  process.on("SIGINT", () => {});
  const [file, ...args] = command;
  const { status, signal } = spawnSync(file, args, { stdio: "inherit", env: environment });
  return status ?? (signal === null ? 1 : 128 + constants.signals[signal]);
}

function leastLoaded(lab: Lab): string {
  const { pods } = lab;
  const load = (node: string) => pods.filter((p) => p.node === node).length;
  const [least] = lab.plan.nodes.map(({ name }) => name).sort((a, b) => load(a) - load(b));
  if (least === undefined) throw new UsageError("the lab has no nodes");
  return least;
}

const labelText = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");

function parseLabels(text: string): Record<string, string> {
  if (text === "") return {};
  return Object.fromEntries(
    text.split(",").map((pair) => {
      const [key, value, more] = pair.split("=");
      if (key === undefined || value === undefined || more !== undefined)
        throw new UsageError(`--labels ${text}: want key=value,key=value`);
      if (!isQualifiedName(key)) throw new UsageError(`--labels ${text}: ${JSON.stringify(key)} is no label's name`);
      if (!isLabelValue(value)) throw new UsageError(`--labels ${text}: ${JSON.stringify(value)} is no label's value`);
      return [key, value];
    }),
  );
}

function readGiven(file: string): string {
  try {
    return readFileSync(file === "-" ? 0 : file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(`${file}: ${code === "ENOENT" ? "there is no such file" : message}`);
  }
}

function protocolOf(text: string) {
  const protocol = (["tcp", "udp", "icmp", "sctp"] as const).find((p) => p === text);
  if (protocol === undefined) throw new UsageError(`--protocol ${text}: want tcp, udp, icmp or sctp`);
  return protocol;
}

function versionOf(text: string): 4 | 6 {
  if (text !== "4" && text !== "6") throw new UsageError(`--version ${text}: want 4 or 6`);
  return text === "4" ? 4 : 6;
}

function portOf(text: string): number {
  const port = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!(port >= 1 && port <= 65535)) throw new UsageError(`--port ${text}: want 1 to 65535`);
  return port;
}

function requireRoot(): void {
  if (process.getuid?.() !== 0) throw new UsageError("a lab makes network namespaces: run it as root");
}
