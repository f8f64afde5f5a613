// Declares the commands of `calico lab`. Handlers are in commands/ and are loaded when their command runs.
import {
  type Argument,
  type Call,
  type Command,
  commandsWith,
  type FlagTable,
  type Grammar,
} from "../lib/command-line/command.ts";
import { BACKENDS, DATAPLANES, DATASTORES, MAX_NODES, MAX_PODS_PER_NODE, TOPOLOGIES } from "./options.ts";

const GLOBAL_FLAGS = {
  name: { type: "text", value: "LAB", defaultText: "$CALICO_LAB, or lab", about: "name of the lab" },
} as const satisfies FlagTable;

export type LabCall<G extends Grammar> = Call<G, typeof GLOBAL_FLAGS>;

const command = commandsWith(GLOBAL_FLAGS);

/** An unexpected argument is probably the name of a lab: `down other` must not remove the default lab. */
const extraArgumentHint = (word: string): string => `To select a lab, use --name ${word}`;

/** The handlers report a missing name with the names that the lab has. */
const NODE = { name: "NODE", about: "name of a host", isCheckedByCommand: true } as const satisfies Argument;

const JSON_OUTPUT = {
  output: { type: "text", short: "o", value: "FORMAT", values: ["json"], about: "format for scripts" },
} as const satisfies FlagTable;

export const upGrammar = {
  flags: {
    nodes: { type: "number", value: "N", min: 1, max: MAX_NODES, defaultText: "3", about: "number of hosts" },
    pods: {
      type: "number",
      value: "N",
      min: 0,
      max: MAX_PODS_PER_NODE,
      defaultText: "3, or 0 with --kubernetes",
      about: "number of pods on each host",
    },
    topology: {
      type: "text",
      value: "TOPOLOGY",
      values: TOPOLOGIES,
      defaultText: "switch",
      about: "how the hosts are connected",
    },
    backend: {
      type: "text",
      value: "BACKEND",
      values: BACKENDS,
      defaultText: "bird",
      about: "how routes are exchanged",
    },
    dataplane: {
      type: "text",
      value: "DATAPLANE",
      values: DATAPLANES,
      defaultText: "nft",
      about: "how policy is programmed in the kernel",
    },
    datastore: {
      type: "text",
      value: "DATASTORE",
      values: DATASTORES,
      defaultText: "sqlite",
      about: "where the cluster stores its resources",
    },
    ipv6: { type: "switch", about: "IPv6 as well as IPv4" },
    kubernetes: { type: "switch", about: "a real Kubernetes cluster with kubelets, containerd and kube-proxy" },
    typha: { type: "switch", about: "with --kubernetes: agents connect to Typha" },
  },
} as const satisfies Grammar;

export const noGrammar = {} as const satisfies Grammar;
export const statusGrammar = { flags: JSON_OUTPUT } as const satisfies Grammar;

export const matrixGrammar = {
  flags: {
    protocol: {
      type: "text",
      value: "PROTOCOL",
      values: ["tcp", "udp", "icmp", "sctp"],
      default: "tcp",
      about: "protocol of the packets",
    },
    port: { type: "number", value: "PORT", min: 1, max: 65535, default: 80, about: "destination port" },
    version: { type: "text", value: "VERSION", values: ["4", "6"], default: "4", about: "IP version" },
    namespace: { type: "text", short: "n", value: "NAMESPACE", defaultText: "all", about: "namespace of the pods" },
    ...JSON_OUTPUT,
  },
} as const satisfies Grammar;

export const execGrammar = {
  arguments: [{ name: "NODE|POD", about: "host or pod in which the command runs" }],
  rest: { name: "COMMAND", about: "the command with its arguments", begins: "after --" },
} as const satisfies Grammar;

export const captureGrammar = {
  arguments: [NODE],
  rest: { name: "FILTER", about: "arguments for tcpdump", isOptional: true, begins: "after --" },
} as const satisfies Grammar;

export const podAddGrammar = {
  arguments: [{ name: "POD", about: "[NAMESPACE/]NAME of the pod" }],
  flags: {
    node: { type: "text", value: "NODE", defaultText: "the node with the fewest pods", about: "host of the pod" },
    labels: { type: "text", value: "LABELS", defaultText: "none", about: "labels of the pod: key=value,key=value" },
    ...JSON_OUTPUT,
  },
} as const satisfies Grammar;

export const podDeleteGrammar = {
  arguments: [{ name: "POD", about: "[NAMESPACE/]NAME of the pod" }],
  flags: JSON_OUTPUT,
} as const satisfies Grammar;

export const podListGrammar = { flags: JSON_OUTPUT } as const satisfies Grammar;

export const applyGrammar = {
  flags: {
    filename: {
      type: "text",
      short: "f",
      value: "FILE",
      isRequired: true,
      about: "file with resources, or - for standard input",
    },
  },
} as const satisfies Grammar;

export const setGrammar = {
  arguments: [NODE, { name: "NAME=VALUE", isRepeatable: true, about: "setting; without a value it is removed" }],
} as const satisfies Grammar;

export const breakLinkGrammar = {
  arguments: [NODE, { name: "INTERFACE", isOptional: true, about: "interface of the host; eth0 if absent" }],
} as const satisfies Grammar;

export const breakProcessGrammar = {
  arguments: [
    NODE,
    {
      name: "NAME",
      isOptional: true,
      mayBeginWithDash: true,
      about: "part of the command line: calico-node (if absent), felix, bird, ...",
    },
  ],
} as const satisfies Grammar;

export const breakNodeGrammar = { arguments: [NODE] } as const satisfies Grammar;

export const kubectlGrammar = {
  rest: {
    name: "ARGUMENT",
    about: "arguments of kubectl; -- before the first one lets it begin with --name or --help",
    isOptional: true,
    begins: "with the first other word",
  },
} as const satisfies Grammar;

const [CLUSTER, WORK, FAULTS] = ["Create and remove", "Work in the cluster", "Break and heal"];

export const LAB: Command = {
  name: "lab",
  about: "Run a cluster in network namespaces on this machine.",
  globalFlags: GLOBAL_FLAGS,
  exitCodes: { 0: "done", 1: "failed", 2: "wrong usage, or impossible in this lab", 130: "interrupted" },
  examples: [
    { line: "up", about: "Three hosts with three pods each." },
    { line: "matrix", about: "Which pods can connect to which." },
    { line: "down", about: "Remove everything." },
  ],
  commands: [
    command({
      name: "up",
      section: CLUSTER,
      about: "Create a lab, or resume and repair one.",
      details:
        "On a lab that exists, options that are not given have the values with which it was created. Several labs can exist at the same time.",
      ...upGrammar,
      extraArgumentHint,
      examples: [
        { line: "--nodes 4 --topology racks", about: "Four hosts in two racks, each behind a router." },
        { line: "--name two --datastore etcd --ipv6", about: "A second lab, with etcd and IPv6." },
        { line: "--kubernetes --nodes 2", about: "A Kubernetes cluster of two nodes." },
      ],
      load: () => import("./commands/up.ts"),
    }),
    command({
      name: "demo",
      section: CLUSTER,
      about: "Create an example with a policy, and show connections before and after it.",
      ...noGrammar,
      extraArgumentHint,
      load: () => import("./commands/demo.ts"),
    }),
    command({
      name: "status",
      section: CLUSTER,
      about: "Show the state of every host.",
      exitCodes: { 0: "all hosts are ready", 1: "failed", 3: "a host is not ready" },
      ...statusGrammar,
      extraArgumentHint,
      examples: [{ line: "-o json", about: "The same for scripts." }],
      load: () => import("./commands/status.ts"),
    }),
    command({
      name: "down",
      section: CLUSTER,
      about: "Remove a lab completely.",
      ...noGrammar,
      extraArgumentHint,
      examples: [{ line: "--name two", about: "Remove the lab named two." }],
      load: () => import("./commands/down.ts"),
    }),
    command({
      name: "matrix",
      section: WORK,
      about: "Show which pods can connect to which, measured with real packets.",
      ...matrixGrammar,
      extraArgumentHint,
      examples: [
        { line: "--port 8080 -n shop", about: "TCP port 8080 between the pods of one namespace." },
        { line: "--protocol icmp --version 6", about: "IPv6 pings." },
      ],
      load: () => import("./commands/matrix.ts"),
    }),
    command({
      name: "exec",
      section: WORK,
      about: "Run a command on a host or in a pod.",
      details: "The exit code is that of the command.",
      ...execGrammar,
      examples: [
        { line: "node1 -- calicoctl node status", about: "BGP sessions of node1." },
        { line: "shop/frontend -- ip route", about: "Routes in a pod." },
      ],
      load: () => import("./commands/exec.ts"),
    }),
    {
      name: "pod",
      section: WORK,
      about: "Add, delete and list pods.",
      commands: [
        command({
          name: "add",
          about: "Add a pod.",
          ...podAddGrammar,
          examples: [{ line: "team/web --node node2 --labels app=web", about: "A pod with a label on node2." }],
          load: () => import("./commands/pod-add.ts"),
        }),
        command({
          name: "del",
          about: "Delete a pod.",
          ...podDeleteGrammar,
          examples: [{ line: "team/web", about: "Delete the pod web of namespace team." }],
          load: () => import("./commands/pod-delete.ts"),
        }),
        command({
          name: "list",
          about: "List all pods with their addresses and labels.",
          ...podListGrammar,
          extraArgumentHint,
          load: () => import("./commands/pod-list.ts"),
        }),
      ],
    },
    command({
      name: "apply",
      section: WORK,
      about: "Run calicoctl apply on the first node.",
      ...applyGrammar,
      extraArgumentHint,
      examples: [{ line: "-f policy.yaml", about: "Apply the resources of a file." }],
      load: () => import("./commands/apply.ts"),
    }),
    command({
      name: "set",
      section: WORK,
      about: "Change the environment of calico-node on a host, and restart it.",
      ...setGrammar,
      examples: [{ line: "node1 FELIX_LOGSEVERITYSCREEN=debug", about: "More log messages on node1." }],
      load: () => import("./commands/set.ts"),
    }),
    command({
      name: "capture",
      section: WORK,
      about: "Run tcpdump on a host.",
      ...captureGrammar,
      examples: [{ line: "node1 -- port 179", about: "BGP packets on node1." }],
      load: () => import("./commands/capture.ts"),
    }),
    command({
      name: "kubectl",
      section: WORK,
      about: "Run kubectl as administrator of a lab with Kubernetes.",
      ...kubectlGrammar,
      examples: [
        { line: "get nodes -o wide", about: "Nodes of the default lab." },
        { line: "--name two -- get pods -A", about: "Pods of the lab named two." },
      ],
      load: () => import("./commands/kubectl.ts"),
    }),
    {
      name: "break",
      section: FAULTS,
      about: "Cause a fault, which `heal` repairs.",
      commands: [
        command({
          name: "link",
          about: "Disconnect an interface.",
          ...breakLinkGrammar,
          examples: [{ line: "node2", about: "Disconnect eth0 of node2." }],
          load: async () => ({ run: (await import("./commands/break.ts")).breakLink }),
        }),
        command({
          name: "process",
          about: "Kill processes of a host with SIGKILL.",
          ...breakProcessGrammar,
          examples: [{ line: "node1 felix", about: "Kill Felix on node1." }],
          load: async () => ({ run: (await import("./commands/break.ts")).breakProcess }),
        }),
        command({
          name: "rules",
          about: "Flush the packet filter of a host, as another tool might.",
          ...breakNodeGrammar,
          examples: [{ line: "node1", about: "Flush the rules on node1." }],
          load: async () => ({ run: (await import("./commands/break.ts")).breakRules }),
        }),
        command({
          name: "routes",
          about: "Delete the routes that Calico and BIRD programmed on a host.",
          ...breakNodeGrammar,
          examples: [{ line: "node3", about: "Delete the routes on node3." }],
          load: async () => ({ run: (await import("./commands/break.ts")).breakRoutes }),
        }),
        command({
          name: "datastore",
          about: "Stop the datastore: etcd, or the Kubernetes API server with its etcd.",
          ...noGrammar,
          extraArgumentHint,
          load: async () => ({ run: (await import("./commands/break.ts")).breakDatastore }),
        }),
      ],
    },
    command({
      name: "heal",
      section: FAULTS,
      about: "Repair everything that `break` broke.",
      ...noGrammar,
      extraArgumentHint,
      load: () => import("./commands/heal.ts"),
    }),
  ],
};
