// Declares `calicoctl node …`. Each command is implemented in a file under commands/node/.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { command, CONFIG, GROUP_FLAGS, OUTPUT } from "./flags.ts";

const LOG_DIR = { type: "text", value: "LOG_DIR", default: "/var/log/calico" } as const;
const METHOD = { type: "text", value: "METHOD" } as const;

export const runGrammar = {
  flags: {
    name: { type: "text", value: "NAME", defaultText: "the host name", about: "name of the node" },
    as: { type: "text", value: "AS_NUM", about: "AS number of the node" },
    ip: { type: "text", value: "IP", about: "IPv4 address: an address, autodetect or none" },
    ip6: { type: "text", value: "IP6", about: "IPv6 address: an address, autodetect or none" },
    "ip-autodetection-method": {
      ...METHOD,
      about: "first-found, can-reach=HOST, interface=REGEX, skip-interface=REGEX or cidr=CIDR",
    },
    "ip6-autodetection-method": { ...METHOD, about: "the same for IPv6" },
    backend: {
      type: "text",
      value: "BACKEND",
      values: ["bird", "vxlan", "none"],
      isCheckedByCommand: true, // Calico exits with 1
      default: "bird",
      about: "how routes reach other nodes",
    },
    "no-default-ippools": { type: "switch", about: "create no pools" },
    "log-dir": { ...LOG_DIR, about: "directory for logs" },
    dryrun: { type: "switch", about: "show what would be done" },
    "init-system": { type: "switch", about: "run in the foreground, for another supervisor" },
    "node-image": {
      type: "text",
      value: "IMAGE",
      isHidden: true,
      about: "has no effect: the agent is part of this program",
    },
    "disable-docker-networking": { type: "switch", isHidden: true, about: "has no effect" },
    "felix-config": {
      type: "text",
      value: "FILE",
      isHidden: true,
      about: "has no effect: /etc/calico/felix.cfg is read",
    },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const statusGrammar = { flags: OUTPUT } as const satisfies Grammar;

export const diagsGrammar = {
  flags: { "log-dir": { ...LOG_DIR, about: "directory with the logs of the agent" } },
} as const satisfies Grammar;

export const checksystemGrammar = {
  flags: {
    "kernel-config": {
      type: "text",
      short: "f",
      value: "kernel-config",
      defaultText: "the usual places",
      about: "configuration file of the kernel",
    },
  },
} as const satisfies Grammar;

export const nodeGroup: Command = {
  name: "node",
  about: "Run and inspect the node agent of this machine.",
  flags: GROUP_FLAGS,
  commands: [
    command({
      name: "run",
      about: "Run the node agent as a service of this host.",
      usage: [
        "[--ip=<IP>] [--ip6=<IP6>] [--as=<AS_NUM>] [--name=<NAME>] [--ip-autodetection-method=<METHOD>] [--ip6-autodetection-method=<METHOD>] [--backend=(bird|vxlan|none)] [--no-default-ippools] [--log-dir=<LOG_DIR>] [--dryrun] [--init-system] [--config=<CONFIG>]",
      ],
      ...runGrammar,
      examples: [
        { line: "--dryrun", about: "Show the service unit and its environment." },
        { line: "--ip=autodetect --ip-autodetection-method=interface=eth1", about: "Use the address of eth1." },
      ],
      load: () => import("../commands/node/run.ts"),
    }),
    command({
      name: "status",
      about: "Show whether the agent runs, and the state of its BGP sessions.",
      usage: ["[--output=<OUTPUT>]"],
      ...statusGrammar,
      examples: [{ line: "-o json", about: "The same for scripts." }],
      load: () => import("../commands/node/status.ts"),
    }),
    command({
      name: "diags",
      about: "Collect diagnostics of this host in one archive.",
      usage: ["[--log-dir=<LOG_DIR>]"],
      ...diagsGrammar,
      load: () => import("../commands/node/diags.ts"),
    }),
    command({
      name: "checksystem",
      about: "Check whether the kernel of this host has the features that the agent needs.",
      usage: ["[--kernel-config=<kernel-config>]"],
      ...checksystemGrammar,
      load: () => import("../commands/node/checksystem.ts"),
    }),
  ],
};
