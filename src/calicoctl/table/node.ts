// `calicoctl node …`: one line per command, each in a file of its own under commands/.
import type { Group } from "../command.ts";
import { CONFIG } from "./flags.ts";

const none = { least: 0, most: 0 };

export const nodeGroup: Group = {
  name: "node",
  about: "Run and inspect the node agent of this machine.",
  commands: [
    {
      name: "run",
      about: "Run the node agent as a service of this host.",
      usage: [
        "[--ip=<IP>] [--ip6=<IP6>] [--as=<AS_NUM>] [--name=<NAME>] [--ip-autodetection-method=<METHOD>]",
        "[--ip6-autodetection-method=<METHOD>] [--backend=(bird|vxlan|none)] [--no-default-ippools] [--log-dir=<LOG_DIR>]",
        "[--dryrun] [--init-system] [--config=<CONFIG>]",
      ],
      flags: [
        { name: "name", value: "NAME", about: "the node's name; the host's without it" },
        { name: "as", value: "AS_NUM", about: "the node's AS number" },
        { name: "ip", value: "IP", about: "IPv4 address: an address, autodetect or none" },
        { name: "ip6", value: "IP6", about: "IPv6 address: an address, autodetect or none" },
        {
          name: "ip-autodetection-method",
          value: "METHOD",
          about: "first-found, can-reach=, interface=, skip-interface=, cidr=",
        },
        { name: "ip6-autodetection-method", value: "METHOD", about: "the same for IPv6" },
        { name: "backend", value: "(bird|vxlan|none)", about: "how routes get to other nodes" },
        { name: "no-default-ippools", about: "make no pools" },
        { name: "log-dir", value: "LOG_DIR", about: "where logs go; /var/log/calico without it" },
        { name: "dryrun", about: "show what would be done" },
        { name: "init-system", about: "run in the foreground, for another supervisor" },
        { name: "node-image", value: "IMAGE", about: "not needed: the agent is this program", hidden: true },
        { name: "disable-docker-networking", about: "not needed", hidden: true },
        { name: "felix-config", value: "FILE", about: "not needed: /etc/calico/felix.cfg is read", hidden: true },
        CONFIG,
      ],
      words: none,
      load: () => import("../commands/node-run.ts"),
    },
    {
      name: "status",
      about: "Show whether the agent runs and how its BGP sessions are.",
      usage: ["[--output=<OUTPUT>]"],
      flags: [{ name: "output", short: "o", value: "OUTPUT", about: "text (default) or json" }],
      words: none,
      load: () => import("../commands/node-status.ts"),
    },
    {
      name: "diags",
      about: "Collect what helps to find out what is wrong with this host.",
      usage: ["[--log-dir=<LOG_DIR>]"],
      flags: [{ name: "log-dir", value: "LOG_DIR", about: "where the agent's logs are; /var/log/calico without it" }],
      words: none,
      load: () => import("../commands/node-diags.ts"),
    },
    {
      name: "checksystem",
      about: "Check whether this host's kernel has what the agent needs.",
      usage: ["[--kernel-config=<kernel-config>]"],
      flags: [
        {
          name: "kernel-config",
          short: "f",
          value: "kernel-config",
          about: "the kernel's configuration file, if it is elsewhere",
        },
      ],
      words: none,
      load: () => import("../commands/node-checksystem.ts"),
    },
  ],
};
