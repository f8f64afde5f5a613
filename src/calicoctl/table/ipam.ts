// Declares `calicoctl ipam …`. Each command is implemented in a file under commands/ipam/.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { command, CONFIG, GROUP_FLAGS, OUTPUT } from "./flags.ts";

export const checkGrammar = {
  flags: {
    "show-all-ips": { type: "switch", about: "print every address that was examined" },
    "show-problem-ips": { type: "switch", about: "print every address that has a problem" },
    output: { type: "text", short: "o", value: "FILE", about: "write a report for `ipam release --from-report`" },
    fix: { type: "switch", about: "repair the problems that were found, after confirmation" },
    yes: { type: "switch", short: "y", about: "with --fix: do not ask for confirmation" },
    kubeconfig: {
      type: "text",
      value: "FILE",
      about: "has no effect: workloads are read from the datastore",
      isHidden: true,
    },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const releaseGrammar = {
  flags: {
    ip: { type: "text", value: "IP", about: "address to release" },
    "from-report": {
      type: "text",
      value: "REPORT",
      isRepeatable: true,
      about: "release the leaked addresses in a report of `ipam check -o`; if repeated, those that all reports contain",
    },
    force: {
      type: "switch",
      about: "continue if the datastore is not locked, or a report is outdated or of another version",
    },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const showGrammar = {
  flags: {
    ip: { type: "text", value: "IP", about: "show the owner of this address" },
    "show-blocks": { type: "switch", about: "also show the blocks of each pool" },
    "show-borrowed": { type: "switch", about: "show addresses that a node uses from another node's block" },
    "show-configuration": { type: "switch", about: "show the settings that apply to all pools" },
    ...OUTPUT,
    ...CONFIG,
  },
} as const satisfies Grammar;

export const splitGrammar = {
  arguments: [{ name: "NUMBER", about: "number of parts, a power of two" }],
  flags: {
    cidr: { type: "text", value: "CIDR", about: "CIDR of the pool" },
    name: { type: "text", value: "POOL_NAME", about: "name of the pool" },
    ...CONFIG,
  },
} as const satisfies Grammar;

/** Values are checked by the command: for invalid ones Calico exits with 1. */
export const configureGrammar = {
  flags: {
    strictaffinity: { type: "text", value: "true/false", about: "whether a node may use only its own blocks" },
    "max-blocks-per-host": {
      type: "text",
      value: "N",
      about: "maximum number of blocks of one IP version on a node, where 0 is 20",
    },
    "kubevirt-ip-persistence": {
      type: "text",
      value: "Enabled/Disabled",
      about: "whether a virtual machine keeps its address",
    },
    "ip-cooldown-seconds": { type: "text", value: "N", about: "time before a released address is reused, 0 to 1200" },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const ipamGroup: Command = {
  name: "ipam",
  about: "Show and repair the allocation of addresses.",
  flags: GROUP_FLAGS,
  commands: [
    command({
      name: "check",
      about: "Compare the addresses that are allocated with those in use.",
      usage: ["[--show-all-ips] [--show-problem-ips] [-o <FILE>] [--fix [--yes]] [--config=<CONFIG>]"],
      ...checkGrammar,
      details:
        "Finds addresses that are allocated but unused, used but not allocated, or used by two owners, inconsistent handles and blocks, and blocks of nodes that no longer exist.",
      exitCodes: { 0: "no problem", 1: "could not check", 3: "problems" },
      examples: [
        { line: "--show-problem-ips", about: "List the addresses that have a problem." },
        { line: "--fix", about: "Repair the problems, after confirmation." },
      ],
      load: () => import("../commands/ipam/check.ts"),
    }),
    command({
      name: "release",
      about: "Release an unused address.",
      usage: ["[--ip=<IP>] [--from-report=<REPORT>]... [--force] [--config=<CONFIG>]"],
      ...releaseGrammar,
      examples: [{ line: "--ip=10.65.0.2", about: "Release one address." }],
      load: () => import("../commands/ipam/release.ts"),
    }),
    command({
      name: "show",
      about: "Show how full pools and blocks are, or the owner of one address.",
      usage: [
        "[--ip=<IP> | --show-blocks | --show-borrowed | --show-configuration] [--output=<OUTPUT>] [--config=<CONFIG>]",
      ],
      ...showGrammar,
      examples: [
        { line: "--show-blocks", about: "Pools with their blocks." },
        { line: "--ip=10.65.0.2", about: "The owner of an address." },
      ],
      load: () => import("../commands/ipam/show.ts"),
    }),
    command({
      name: "split",
      about: "Split a pool into smaller ones of equal size.",
      usage: ["<NUMBER> [--cidr=<CIDR>] [--name=<POOL_NAME>] [--config=<CONFIG>]"],
      ...splitGrammar,
      details: "The datastore must be locked (`calicoctl datastore migrate lock`).",
      examples: [{ line: "4 --name=default-ipv4-ippool", about: "Split a pool into four." }],
      load: () => import("../commands/ipam/split.ts"),
    }),
    command({
      name: "configure",
      about: "Change the settings that apply to all pools.",
      usage: [
        "[--strictaffinity=<true/false>] [--max-blocks-per-host=<N>] [--kubevirt-ip-persistence=<Enabled/Disabled>] [--ip-cooldown-seconds=<N>] [--config=<CONFIG>]",
      ],
      ...configureGrammar,
      examples: [{ line: "--strictaffinity=true", about: "Nodes no longer borrow addresses." }],
      load: () => import("../commands/ipam/configure.ts"),
    }),
  ],
};
