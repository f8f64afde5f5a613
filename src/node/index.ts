// `calico-node`: the whole node, or one of its parts by its flag. The flags have one dash, as they always had.
import { BUILD } from "../lib/build.ts";
import type { Check } from "./probes.ts";

/** What a host knows of its sessions; loaded by who asks, probes start without it. */
export const loadSurroundings = () => import("./session-surroundings.ts");
export type { SupervisorState } from "./supervisor.ts";
export {
  ENVIRONMENT_FILE,
  environmentText,
  serviceUnit,
  shownEnvironment,
  UNIT_NAME,
  UNIT_PATH,
} from "./service-unit.ts";

type Program = (argv: readonly string[]) => Promise<number> | number;

/** Parts that run on their own. */
const roles: Readonly<Record<string, () => Promise<Program>>> = {
  felix: async () => (await import("../felix/index.ts")).main,
  confd: async () => (await import("./confd-command.ts")).main,
  startup: async () => (await import("./startup-command.ts")).main,
  "complete-startup": async () => (await import("./commands.ts")).complete,
  "allocate-tunnel-addrs": async () => (await import("./tunnel-command.ts")).main,
  "monitor-addresses": async () => (await import("./commands.ts")).monitor,
  "monitor-token": async () => (await import("./commands.ts")).monitorToken,
  "status-reporter": async () => (await import("./commands.ts")).statusReporter,
  "show-status": async () => (await import("./status-tables.ts")).main,
  shutdown: async () => (await import("./commands.ts")).shutdown,
  "hostpath-init": async () => {
    const { hostpathInit } = await import("./commands.ts");
    return () => hostpathInit();
  },
  "node-services": async () => (await import("./run-node.ts")).servicesMain,
  uninstall: async () => (await import("./uninstall-command.ts")).main,
  init: async () => (await import("./init-command.ts")).main,
  v: async () => () => {
    console.log(BUILD.version);
    return 0;
  },
};
/** Of these only one at a time. */
const EXCLUSIVE = ["v", "felix", "startup", "confd", "monitor-addresses", "uninstall"];
const PROBES = ["felix-live", "felix-ready", "bird-live", "bird6-live", "bird-ready", "bird6-ready"] as const;

/** What parts are told beside their flag. */
const SWITCHES = [
  "confd-run-once",
  "confd-keep-stage-file",
  "allocate-tunnel-addrs-run-once",
  "run-once",
  "best-effort",
  "purge",
];
const WITH_VALUE = ["threshold-time", "confd-confdir"];

export async function main(argv: readonly string[]): Promise<number> {
  const words = argv.map(oneDash);
  const names = words.filter((word) => word.startsWith("-")).map(nameOf);
  if (words.length === 1 && ["h", "help"].includes(names[0] ?? "")) {
    console.log(usageText());
    return 0;
  }
  const stray = strayWord(words);
  if (stray !== undefined && !names.includes("felix")) {
    console.error(`calico-node: ${stray} means nothing here`);
    return usage();
  }
  const checks: Check[] = PROBES.filter((check) => names.includes(check));
  if (checks.length > 0) return (await import("./commands.ts")).health(checks, await threshold(words));
  const asked = names.filter((name) => Object.hasOwn(roles, name));
  if (asked.filter((name) => EXCLUSIVE.includes(name)).length > 1) {
    console.error("More than one incompatible argument provided");
    return usage();
  }
  if (words.length === 0) return (await import("./run-node.ts")).main();
  const role = roleOf(asked);
  const load = role === undefined ? undefined : roles[role];
  if (role === undefined || load === undefined) return usage();
  return (await load())(argumentsOf(role, argv));
}

const nameOf = (word: string): string => word.slice(1).split("=")[0] ?? "";

/** The first word that is neither a flag nor what a flag asks for. Felix' own flags are its own to judge. */
function strayWord(words: readonly string[]): string | undefined {
  const known = [...Object.keys(roles), ...PROBES, ...SWITCHES, ...WITH_VALUE];
  return words.find((word, i) => {
    const before = words[i - 1] ?? "";
    if (!word.startsWith("-")) return !(before.startsWith("-") && WITH_VALUE.includes(before.slice(1)));
    return !known.includes(nameOf(word));
  });
}

const oneDash = (word: string): string => (/^--[a-z]/.test(word) ? word.slice(1) : word);

/** `-startup -complete-startup` is a startup that says so at once. */
function roleOf(asked: readonly string[]): string | undefined {
  return asked.includes("startup") ? "startup" : asked[0];
}

/** What remains for the part, in its own spelling. */
function argumentsOf(role: string, argv: readonly string[]): readonly string[] {
  return argv
    .filter((word) => oneDash(word) !== `-${role}`)
    .map((word) => (oneDash(word) === "-allocate-tunnel-addrs-run-once" ? "--run-once" : word));
}

async function threshold(words: readonly string[]): Promise<number> {
  const { durationMs } = await import("../model/index.ts");
  const at = words.findIndex((word) => word.startsWith("-threshold-time"));
  const word = words[at] ?? "";
  const text = word.includes("=") ? word.slice(word.indexOf("=") + 1) : (words[at + 1] ?? "");
  return (at < 0 ? undefined : durationMs(text)) ?? 30_000;
}

/** What each part is, for who asks. */
const MEANING: Readonly<Record<string, string>> = {
  felix: "the agent: policy and routes of this host",
  confd: "BIRD's configuration, kept up to date",
  startup: "the node's name, addresses, pools and default configurations, once",
  "complete-startup": "says that the node is on the network",
  "allocate-tunnel-addrs": "addresses of the tunnels",
  "monitor-addresses": "watches the host's addresses",
  "monitor-token": "keeps the CNI plugin's account fresh",
  "status-reporter": "CalicoNodeStatus resources",
  "show-status": "agent and BGP sessions, as tables",
  shutdown: "says that the node leaves the network",
  "hostpath-init": "folders of the host that the others write to",
  "node-services": "the light loops alone, beside agents that somebody else runs",
  uninstall: "removes Calico from this host; keeps the datastore, unless --purge is given too",
  init: "mounts bpffs and cgroup2",
  v: "the version",
};

function usageText(): string {
  const parts = Object.keys(roles).map((name) => `  -${name.padEnd(22)} ${MEANING[name] ?? ""}`);
  const probes = PROBES.map((name) => `  -${name}`);
  return [
    "Usage: calico-node            run the whole node",
    "       calico-node FLAG       run one part:",
    ...parts,
    "       calico-node PROBE... [-threshold-time 30s]",
    ...probes,
  ].join("\n");
}

function usage(): number {
  console.error(usageText());
  return 1;
}
