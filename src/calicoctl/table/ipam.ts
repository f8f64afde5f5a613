// `calicoctl ipam …`: one line per command, each in a file of its own under commands/.
import type { Group } from "../command.ts";
import { CONFIG } from "./flags.ts";

const none = { least: 0, most: 0 };

export const ipamGroup: Group = {
  name: "ipam",
  about: "Show and repair which addresses are in use.",
  commands: [
    {
      name: "check",
      about: "Compare what is allocated with what is in use; exit code 3 when something is wrong.",
      usage: ["[--show-all-ips] [--show-problem-ips] [-o <FILE>] [--fix [--yes]] [--config=<CONFIG>]"],
      flags: [
        { name: "show-all-ips", about: "print every address that was looked at" },
        { name: "show-problem-ips", about: "print every address with which something is wrong" },
        { name: "output", short: "o", value: "FILE", about: "write a report for `ipam release --from-report`" },
        { name: "fix", about: "repair what was found, after asking" },
        { name: "yes", short: "y", about: "with --fix: do not ask" },
        { name: "kubeconfig", value: "FILE", about: "not needed: workloads are read from the datastore", hidden: true },
        CONFIG,
      ],
      words: none,
      details:
        "Looks for addresses allocated to nobody, used without allocation or by two owners, for handles and blocks that disagree, and for blocks whose owner is gone. Exit code 0: nothing found, 3: something found, 1: could not look.",
      load: () => import("../commands/ipam-check.ts"),
    },
    {
      name: "release",
      about: "Give an address back that nobody uses any more.",
      usage: ["[--ip=<IP>] [--from-report=<REPORT>]... [--force] [--config=<CONFIG>]"],
      flags: [
        { name: "ip", value: "IP", about: "the address" },
        {
          name: "from-report",
          value: "REPORT",
          repeatable: true,
          about: "release what `ipam check -o` found leaked; given more than once, only what all reports name",
        },
        { name: "force", about: "also when the datastore is not locked or the report is of another version" },
        CONFIG,
      ],
      words: none,
      load: () => import("../commands/ipam-release.ts"),
    },
    {
      name: "show",
      about: "Show how full pools and blocks are, or what is known about one address.",
      usage: [
        "[--ip=<IP> | --show-blocks | --show-borrowed | --show-configuration] [--output=<OUTPUT>] [--config=<CONFIG>]",
      ],
      flags: [
        { name: "ip", value: "IP", about: "whose address this is" },
        { name: "show-blocks", about: "also the blocks of each pool" },
        { name: "show-borrowed", about: "addresses that a node has out of another node's block" },
        { name: "show-configuration", about: "the settings that apply to all pools" },
        { name: "output", short: "o", value: "OUTPUT", about: "text (default) or json" },
        CONFIG,
      ],
      words: none,
      load: () => import("../commands/ipam-show.ts"),
    },
    {
      name: "split",
      about: "Split a pool into smaller ones of equal size.",
      usage: ["<NUMBER> [--cidr=<CIDR>] [--name=<POOL_NAME>] [--config=<CONFIG>]"],
      flags: [
        { name: "cidr", value: "CIDR", about: "the pool's range" },
        { name: "name", value: "POOL_NAME", about: "the pool's name" },
        CONFIG,
      ],
      words: { least: 1, most: 1 },
      details: "The datastore must be locked (`calicoctl datastore migrate lock`). NUMBER is a power of two.",
      load: () => import("../commands/ipam-split.ts"),
    },
    {
      name: "configure",
      about: "Change the settings that apply to all pools.",
      usage: [
        "[--strictaffinity=<true/false>] [--max-blocks-per-host=<N>] [--kubevirt-ip-persistence=<Enabled/Disabled>]",
        "[--ip-cooldown-seconds=<N>] [--config=<CONFIG>]",
      ],
      flags: [
        { name: "strictaffinity", value: "true/false", about: "whether a node may use its own blocks only" },
        { name: "max-blocks-per-host", value: "N", about: "most blocks of a family a node may have; 0 = 20" },
        { name: "kubevirt-ip-persistence", value: "Enabled/Disabled", about: "keep the address of a virtual machine" },
        { name: "ip-cooldown-seconds", value: "N", about: "how long a released address rests, 0 to 1200" },
        CONFIG,
      ],
      words: none,
      load: () => import("../commands/ipam-configure.ts"),
    },
  ],
};
