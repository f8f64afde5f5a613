// Commands on resources.
import type { Command } from "../command.ts";
import { CONFIG, INPUT, NAMESPACE } from "./flags.ts";

const ANY = Number.POSITIVE_INFINITY;
const INPUT_USAGE = "--filename=<FILENAME> [--recursive] [--skip-empty]";
const COMMON_USAGE = "[--config=<CONFIG>] [--namespace=<NS>]";
const KINDS_NOTE = `Kinds may be written in any case, in the plural, or by their short names:
  bgpConfiguration bgpFilter bgpPeer calicoNodeStatus clusterInformation felixConfiguration
  globalNetworkPolicy globalNetworkSet hostEndpoint ipamConfiguration ipPool ipReservation
  kubeControllersConfiguration networkPolicy networkSet node profile stagedGlobalNetworkPolicy
  stagedKubernetesNetworkPolicy stagedNetworkPolicy tier workloadEndpoint
Short: bgpp bgpf gnp gnetset hep ipp no np netset pro sgnp sknp snp wep, and bgpconfig clusterinfo felixconfig
  ipamconfig kubecontrollersconfig nodestatus pool policy.`;

export const resourceCommands: readonly Command[] = [
  {
    name: "create",
    about: "Create resources; one that exists already is an error.",
    usage: [`${INPUT_USAGE} [--skip-exists] ${COMMON_USAGE}`],
    flags: [...INPUT, { name: "skip-exists", about: "leave resources that exist as they are" }, CONFIG, NAMESPACE],
    words: { least: 0, most: 0 },
    load: () => import("../commands/create.ts"),
  },
  {
    name: "replace",
    about: "Replace resources that exist; one that does not is an error.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    flags: [...INPUT, CONFIG, NAMESPACE],
    words: { least: 0, most: 0 },
    load: () => import("../commands/replace.ts"),
  },
  {
    name: "apply",
    about: "Create resources, or replace them where they exist.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    flags: [...INPUT, CONFIG, NAMESPACE],
    words: { least: 0, most: 0 },
    load: () => import("../commands/apply.ts"),
  },
  {
    name: "patch",
    about: "Change some fields of one resource.",
    usage: [`<KIND> <NAME> --patch=<PATCH> [--type=<TYPE>] ${COMMON_USAGE}`],
    flags: [
      { name: "patch", short: "p", value: "PATCH", about: "the change, as JSON in the resource's own shape" },
      { name: "type", short: "t", value: "TYPE", about: "strategic, json or merge; any of them is a strategic merge" },
      CONFIG,
      NAMESPACE,
    ],
    words: { least: 2, most: 2 },
    details: KINDS_NOTE,
    load: () => import("../commands/patch.ts"),
  },
  {
    name: "delete",
    about: "Delete resources by name or by file.",
    usage: [`( (<KIND> [<NAME>...]) | ${INPUT_USAGE} ) [--skip-not-exists] ${COMMON_USAGE}`],
    flags: [
      { name: "skip-not-exists", short: "s", about: "resources that are gone already are no error" },
      ...INPUT,
      CONFIG,
      NAMESPACE,
    ],
    words: { least: 0, most: ANY },
    details: KINDS_NOTE,
    load: () => import("../commands/delete.ts"),
  },
  {
    name: "get",
    about: "Show resources.",
    usage: [
      `( (<KIND> [<NAME>...]) | ${INPUT_USAGE} ) [--output=<OUTPUT>] ${COMMON_USAGE} [--all-namespaces] [--export]`,
    ],
    flags: [
      ...INPUT,
      {
        name: "output",
        short: "o",
        value: "OUTPUT FORMAT",
        about:
          "ps (default), wide, custom-columns=<HEADING,…>, yaml, json, go-template=<TEMPLATE> or go-template-file=<FILE>",
      },
      CONFIG,
      NAMESPACE,
      { name: "all-namespaces", short: "A", about: "resources of all namespaces" },
      { name: "a", short: "a", about: "the same as -A", hidden: true, means: "all-namespaces" },
      { name: "export", about: "leave out what belongs to this cluster only: namespace, uid, version, times" },
    ],
    words: { least: 0, most: ANY },
    details: KINDS_NOTE,
    load: () => import("../commands/get.ts"),
  },
  {
    name: "label",
    about: "Set, change or remove one label of a resource.",
    usage: [
      `<KIND> <NAME> <key>=<value> [--overwrite] ${COMMON_USAGE}`,
      `<KIND> <NAME> <key> --remove ${COMMON_USAGE}`,
    ],
    flags: [
      { name: "overwrite", about: "replace the value of a label that is there" },
      { name: "remove", about: "take the label away" },
      CONFIG,
      NAMESPACE,
    ],
    words: { least: 3, most: 3 },
    details: KINDS_NOTE,
    load: () => import("../commands/label.ts"),
  },
  {
    name: "validate",
    about: "Check resources without a datastore; nothing is written.",
    usage: [`${INPUT_USAGE} ${COMMON_USAGE}`],
    flags: [...INPUT, CONFIG, NAMESPACE],
    words: { least: 0, most: 0 },
    load: () => import("../commands/validate.ts"),
  },
  {
    name: "convert",
    about: "Turn calicoctl v1 resources or Kubernetes network policies into v3 resources on standard output.",
    usage: ["--filename=<FILENAME> [--output=<OUTPUT>] [--ignore-validation]"],
    flags: [
      { name: "filename", short: "f", value: "FILENAME", about: "file to convert, or - for standard input" },
      { name: "output", short: "o", value: "OUTPUT FORMAT", about: "yaml (default) or json" },
      { name: "ignore-validation", about: "print the result although it is not valid" },
    ],
    words: { least: 0, most: 0 },
    load: () => import("../commands/convert.ts"),
  },
  {
    name: "version",
    about: "Show the versions of this program and of the cluster.",
    usage: ["[--client] [--output=<OUTPUT>] [--config=<CONFIG>] [--poll=<POLL>]"],
    flags: [
      { name: "client", about: "this program's version only; asks no datastore" },
      CONFIG,
      { name: "output", short: "o", value: "OUTPUT", about: "text (default) or json" },
      { name: "poll", value: "POLL", about: "ask again every so often (5s, 1m30s) and print what changed" },
    ],
    words: { least: 0, most: 0 },
    load: () => import("../commands/version.ts"),
  },
];
