// Declares the commands on resources, and `calicoctl version`.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { CONFIG, command, INPUT, NAMESPACE, OUTPUT, REQUIRED_INPUT } from "./flags.ts";

const INPUT_USAGE = "--filename=<FILENAME> [--recursive] [--skip-empty]";
const COMMON_USAGE = "[--config=<CONFIG>] [--namespace=<NS>]";
const KINDS_NOTE = `Kinds may be written in any case, in the plural, or by their short names:
  bgpConfiguration bgpFilter bgpPeer calicoNodeStatus clusterInformation felixConfiguration globalNetworkPolicy globalNetworkSet hostEndpoint ipamConfiguration ipPool ipReservation kubeControllersConfiguration networkPolicy networkSet node profile stagedGlobalNetworkPolicy stagedKubernetesNetworkPolicy stagedNetworkPolicy tier workloadEndpoint
Short names:
  bgpp bgpf gnp gnetset hep ipp no np netset pro sgnp sknp snp wep bgpconfig clusterinfo felixconfig ipamconfig kubecontrollersconfig nodestatus pool policy`;

const KIND = { name: "KIND", about: "kind of the resource" } as const;
const NAME = { name: "NAME", about: "name of the resource" } as const;
const NAMES = { ...NAME, isOptional: true, isRepeatable: true } as const;

export const writeGrammar = { flags: { ...REQUIRED_INPUT, ...CONFIG, ...NAMESPACE } } as const satisfies Grammar;

export const createGrammar = {
  flags: {
    ...REQUIRED_INPUT,
    "skip-exists": { type: "switch", about: "do not change resources that exist, and do not report them" },
    ...CONFIG,
    ...NAMESPACE,
  },
} as const satisfies Grammar;

export const patchGrammar = {
  arguments: [KIND, NAME],
  flags: {
    patch: {
      type: "text",
      short: "p",
      value: "PATCH",
      isRequired: true,
      about: "the change as JSON, in the form of the resource; null removes a field",
    },
    type: {
      type: "text",
      short: "t",
      value: "TYPE",
      about: "has no effect: strategic, json and merge are all strategic merges",
    },
    ...CONFIG,
    ...NAMESPACE,
  },
} as const satisfies Grammar;

export const deleteGrammar = {
  arguments: [{ ...KIND, isOptional: true }, NAMES],
  flags: {
    "skip-not-exists": { type: "switch", short: "s", about: "do not report resources that do not exist as errors" },
    ...INPUT,
    ...CONFIG,
    ...NAMESPACE,
  },
} as const satisfies Grammar;

export const getGrammar = {
  arguments: [{ ...KIND, isOptional: true }, NAMES],
  flags: {
    ...INPUT,
    output: {
      type: "text",
      short: "o",
      value: "OUTPUT FORMAT",
      default: "ps",
      about: "ps, wide, custom-columns=<HEADING,...>, yaml, json, go-template=<TEMPLATE> or go-template-file=<FILE>",
    },
    ...CONFIG,
    ...NAMESPACE,
    "all-namespaces": { type: "switch", short: "A", hiddenShort: "a", about: "resources of all namespaces" },
    export: {
      type: "switch",
      about: "omit what belongs to this cluster only: namespace, uid, version and times",
    },
  },
} as const satisfies Grammar;

export const labelGrammar = {
  arguments: [KIND, NAME, { name: "LABEL", about: "<key>=<value>, or <key> with --remove" }],
  flags: {
    overwrite: { type: "switch", about: "replace the value of a label that exists" },
    remove: { type: "switch", about: "remove the label" },
    ...CONFIG,
    ...NAMESPACE,
  },
} as const satisfies Grammar;

export const convertGrammar = {
  flags: {
    filename: {
      type: "text",
      short: "f",
      value: "FILENAME",
      isRequired: true,
      about: "file to convert, or - for standard input",
    },
    output: {
      type: "text",
      short: "o",
      value: "OUTPUT FORMAT",
      values: ["yaml", "json"],
      isCheckedByCommand: true, // Calico exits with 1
      default: "yaml",
      about: "output format",
    },
    "ignore-validation": { type: "switch", about: "print the result even if it is not valid" },
  },
} as const satisfies Grammar;

export const versionGrammar = {
  flags: {
    client: { type: "switch", about: "show only the version of this program, without access to the datastore" },
    ...CONFIG,
    ...OUTPUT,
    poll: {
      type: "text",
      value: "POLL",
      defaultText: "once",
      about: "check at this interval (5s, 1m30s) and print changes; Ctrl-C ends it",
    },
  },
} as const satisfies Grammar;

export const resourceCommands: readonly Command[] = [
  command({
    name: "create",
    about: "Create resources; a resource that exists is an error.",
    usage: [`${INPUT_USAGE} [--skip-exists] ${COMMON_USAGE}`],
    ...createGrammar,
    examples: [{ line: "-f pool.yaml", about: "Create the resources of a file." }],
    load: () => import("../commands/create.ts"),
  }),
  command({
    name: "replace",
    about: "Replace resources; a resource that does not exist is an error.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    ...writeGrammar,
    examples: [{ line: "-f pool.yaml", about: "Replace the resources of a file." }],
    load: () => import("../commands/replace.ts"),
  }),
  command({
    name: "apply",
    about: "Create resources, or replace those that exist.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    ...writeGrammar,
    examples: [
      { line: "-f policy.yaml", about: "Apply the resources of a file." },
      { line: "-R -f policies/", about: "Apply all files of a directory and its subdirectories." },
    ],
    load: () => import("../commands/apply.ts"),
  }),
  command({
    name: "patch",
    about: "Change some fields of one resource.",
    usage: [`<KIND> <NAME> --patch=<PATCH> [--type=<TYPE>] ${COMMON_USAGE}`],
    ...patchGrammar,
    details: KINDS_NOTE,
    examples: [
      { line: `node node1 -p '{"spec":{"bgp":{"asNumber":64513}}}'`, about: "Change the AS number of a node." },
    ],
    load: () => import("../commands/patch.ts"),
  }),
  command({
    name: "delete",
    about: "Delete resources by name or by file.",
    usage: [`( (<KIND> [<NAME>...]) | ${INPUT_USAGE} ) [--skip-not-exists] ${COMMON_USAGE}`],
    ...deleteGrammar,
    details: KINDS_NOTE,
    examples: [
      { line: "ippool old-pool", about: "Delete one resource." },
      { line: "-f policy.yaml --skip-not-exists", about: "Delete the resources of a file, if they exist." },
    ],
    load: () => import("../commands/delete.ts"),
  }),
  command({
    name: "get",
    about: "Show resources.",
    usage: [
      `( (<KIND> [<NAME>...]) | ${INPUT_USAGE} ) [--output=<OUTPUT>] ${COMMON_USAGE} [--all-namespaces] [--export]`,
    ],
    ...getGrammar,
    details: KINDS_NOTE,
    examples: [
      { line: "nodes -o wide", about: "All nodes, with more columns." },
      { line: "networkpolicy -A", about: "Policies of all namespaces." },
      { line: "ippool default-ipv4-ippool -o yaml", about: "One pool as YAML." },
    ],
    load: () => import("../commands/get.ts"),
  }),
  command({
    name: "label",
    about: "Set, change or remove one label of a resource.",
    usage: [
      `<KIND> <NAME> <key>=<value> [--overwrite] ${COMMON_USAGE}`,
      `<KIND> <NAME> <key> --remove ${COMMON_USAGE}`,
    ],
    ...labelGrammar,
    details: KINDS_NOTE,
    examples: [
      { line: "node node1 rack=a", about: "Set a label." },
      { line: "node node1 rack --remove", about: "Remove it." },
    ],
    load: () => import("../commands/label.ts"),
  }),
  command({
    name: "validate",
    about: "Check resources without a datastore; nothing is written.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    ...writeGrammar,
    examples: [{ line: "-R -f policies/", about: "Check all files of a directory." }],
    load: () => import("../commands/validate.ts"),
  }),
  command({
    name: "convert",
    about: "Convert resources of calicoctl v1 or Kubernetes network policies to v3 resources on standard output.",
    usage: ["--filename=<FILENAME> [--output=<OUTPUT>] [--ignore-validation]"],
    ...convertGrammar,
    examples: [{ line: "-f policy-v1.yaml -o yaml", about: "Print the resources of a file as v3." }],
    load: () => import("../commands/convert.ts"),
  }),
  command({
    name: "version",
    about: "Show the versions of this program and of the cluster.",
    usage: ["[--client] [--output=<OUTPUT>] [--config=<CONFIG>] [--poll=<POLL>]"],
    ...versionGrammar,
    examples: [{ line: "--client", about: "Only the version of this program." }],
    load: () => import("../commands/version.ts"),
  }),
];
