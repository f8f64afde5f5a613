// Selects and loads the part of calico-node that its flags, or the arguments of `calico component`, name.
import { loadFelixProgram } from "../felix/index.ts";
import type { Call, Flag } from "../lib/command-line/command.ts";
import { UsageError } from "../lib/command-line/usage-error.ts";
import { BUILD } from "../lib/process/build.ts";
import type { Check } from "./commands/probes.ts";
import {
  type confdGrammar,
  type initGrammar,
  nodeGrammar,
  type probeGrammar,
  type startupGrammar,
  type tunnelGrammar,
  type uninstallGrammar,
} from "./table.ts";

type NodeCall = Call<typeof nodeGrammar>;
type NodeFlags = NodeCall["flags"];

/** The parts without options. */
export const PLAIN_MODES = {
  "complete-startup": async () => (await import("./commands/commands.ts")).complete(),
  "monitor-addresses": async () => (await import("./commands/commands.ts")).monitor(),
  "monitor-token": async () => (await import("./commands/commands.ts")).monitorToken(),
  "status-reporter": async () => (await import("./commands/commands.ts")).statusReporter(),
  "show-status": async () => (await import("./bgp/status-tables.ts")).main(),
  shutdown: async () => (await import("./commands/commands.ts")).shutdown(),
  "hostpath-init": async () => (await import("./commands/commands.ts")).hostpathInit(),
  "node-services": async () => (await import("./supervisor/run-node.ts")).servicesMain(),
} as const satisfies Partial<Record<keyof NodeFlags, () => Promise<number>>>;

/** All parts by their flags. If several flags are given, the first part in this table runs. */
const MODES = {
  startup: ({ flags }) => startup(flags["complete-startup"]),
  felix: async (call) => (await loadFelixProgram()).run(call),
  confd: ({ flags }) => confd(flags["confd-run-once"], flags["confd-confdir"]),
  "allocate-tunnel-addrs": ({ flags }) => allocate(flags["run-once"] || flags["allocate-tunnel-addrs-run-once"]),
  ...PLAIN_MODES,
  uninstall: ({ flags }) => uninstall(flags.purge),
  init: ({ flags }) => init(flags["best-effort"]),
  v: printVersion,
} as const satisfies Partial<Record<keyof NodeFlags, (call: NodeCall) => Promise<number> | number>>;

type Mode = keyof typeof MODES;
const MODE_NAMES = Object.keys(MODES) as readonly Mode[];

/** At most one of these may be given. */
const EXCLUSIVE: readonly Mode[] = ["v", "felix", "startup", "confd", "monitor-addresses", "uninstall"];

export async function run(call: NodeCall): Promise<number> {
  const { flags } = call;
  if (requestedProbes(flags).length > 0) return runProbes(flags);
  const modes = MODE_NAMES.filter((mode) => flags[mode]);
  if (modes.filter((mode) => EXCLUSIVE.includes(mode)).length > 1)
    throw new UsageError("More than one incompatible argument provided");
  const [mode] = modes;
  if (mode !== undefined) return MODES[mode](call);
  const option = givenFlags(flags)[0];
  if (option !== undefined) throw new UsageError(`-${option} requires the flag of a part or probe`);
  return (await import("./supervisor/run-node.ts")).main();
}

function givenFlags(flags: NodeFlags): readonly string[] {
  const defaultOf = (flag: Flag) => (flag.type === "switch" ? false : flag.default);
  return Object.entries(nodeGrammar.flags)
    .filter(([name, flag]) => flags[name as keyof NodeFlags] !== defaultOf(flag))
    .map(([name]) => name);
}

export function printVersion({ io }: Pick<Call, "io">): number {
  io.out(`${BUILD.version}\n`);
  return 0;
}

export const confdComponent = ({ flags }: Call<typeof confdGrammar>): Promise<number> =>
  confd(flags["run-once"], flags.confdir);

export const startupComponent = ({ flags }: Call<typeof startupGrammar>): Promise<number> =>
  startup(flags["complete-startup"]);

export const tunnelComponent = ({ flags }: Call<typeof tunnelGrammar>): Promise<number> =>
  allocate(flags["run-once"] || flags["allocate-tunnel-addrs-run-once"]);

export const initComponent = ({ flags }: Call<typeof initGrammar>): Promise<number> => init(flags["best-effort"]);

export const uninstallComponent = ({ flags }: Call<typeof uninstallGrammar>): Promise<number> => uninstall(flags.purge);

export async function healthComponent({ flags }: Call<typeof probeGrammar>): Promise<number> {
  if (requestedProbes(flags).length === 0) throw new UsageError("want at least one probe");
  return runProbes(flags);
}

type ProbeFlags = Call<typeof probeGrammar>["flags"];

const requestedProbes = (flags: ProbeFlags): readonly Check[] =>
  (["felix-live", "felix-ready", "bird-live", "bird6-live", "bird-ready", "bird6-ready"] as const).filter(
    (check) => flags[check],
  );

async function runProbes(flags: ProbeFlags): Promise<number> {
  const { durationMs } = await import("../model/index.ts");
  const text = flags["threshold-time"];
  const thresholdMs = durationMs(text);
  if (thresholdMs === undefined) throw new UsageError(`-threshold-time ${text}: want a duration such as 30s`);
  return (await import("./commands/commands.ts")).health(requestedProbes(flags), thresholdMs);
}

const startup = async (completes: boolean): Promise<number> =>
  (await import("./startup/startup-command.ts")).runStartup({ completes });

const confd = async (once: boolean, folder: string): Promise<number> =>
  (await import("./bgp/confd-command.ts")).runConfd({ once, folder });

const allocate = async (once: boolean): Promise<number> =>
  (await import("./tunnels/tunnel-command.ts")).allocateTunnelAddresses({ once });

const uninstall = async (purge: boolean): Promise<number> =>
  (await import("./commands/uninstall-command.ts")).runUninstall({ purge });

const init = async (isBestEffort: boolean): Promise<number> =>
  (await import("./commands/init-command.ts")).prepareHost({ isBestEffort });
