// Implements `calicoctl node run`, which runs calico-node as a service of this host. `--dryrun` prints the unit and its
// environment, `--init-system` runs calico-node in the foreground for another supervisor.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, openSync, realpathSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { tryParseAddress, tryParseNetwork } from "../../../lib/ip/ip.ts";
import { replaceFile } from "../../../lib/files/replace-file.ts";
import { parseAsNumber } from "../../../model/index.ts";
import {
  ENVIRONMENT_FILE,
  environmentText,
  serviceUnit,
  shownEnvironment,
  UNIT_NAME,
  UNIT_PATH,
} from "../../../node/index.ts";
import { loadConfig } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { runGrammar } from "../../table/node.ts";
import { Failure } from "../../command-line/failure.ts";
import { processesHere, requireRoot } from "../../node/processes.ts";
import { readSupervision } from "../../node/supervisor.ts";

const BACKENDS = ["bird", "vxlan", "none"];
const START_TIMEOUT_MS = 10_000;
const STOP_TIMEOUT_MS = 30_000;

export async function run(call: Call<typeof runGrammar>): Promise<number> {
  const { flags, io } = call;
  const env = { ...(await nodeEnvironment(call)), ...datastoreEnvironment(call) };
  await loadConfig(call); // reports an invalid datastore configuration here instead of in the log of the service
  const executable = nodeExecutable();
  const unit = serviceUnit({ executable, environmentFile: ENVIRONMENT_FILE });
  if (flags.dryrun) {
    io.out(`Use the following command to start the calico-node service:\n\n`);
    io.out(
      `${ENVIRONMENT_FILE}:\n${shownEnvironment(env)}\n${UNIT_PATH}:\n${unit}\nsystemctl enable --now ${UNIT_NAME}\n`,
    );
    return 0;
  }
  requireRoot();
  prepareHost(io.err);
  if (flags["init-system"]) return foreground(executable, env);
  io.out(`Running the node agent ${executable}\n`);
  const before = readSupervision()?.pid;
  if (existsSync("/run/systemd/system")) startUnit(unit, env);
  else await startDaemon(executable, env, flags["log-dir"], io.out);
  await waitUntilStarted(before);
  io.out("Calico node started successfully\n");
  return 0;
}

async function nodeEnvironment({ flags, io }: Call<typeof runGrammar>): Promise<Record<string, string | undefined>> {
  const early = (text: string) => new Failure(`Error executing command: ${text}`, { stream: "out" });
  const as = flags.as;
  if (as !== undefined && parseAsNumber(as) === undefined) throw early(`invalid AS Number specified: ${as}`);
  for (const [flag, version] of [
    ["ip", 4],
    ["ip6", 6],
  ] as const) {
    const text = flags[flag];
    if (text === undefined || ["autodetect", "none", ""].includes(text)) continue;
    const address = tryParseNetwork(text)?.address ?? tryParseAddress(text);
    if (address === undefined || address.includes(":") !== (version === 6))
      throw early(`invalid IPv${version} address specified: ${text}`);
  }
  const { backend } = flags;
  if (!BACKENDS.includes(backend)) throw new Failure(`Error executing command: unknown backend '${backend}'`);
  return {
    NODENAME: flags.name ?? io.env["NODENAME"] ?? hostname().trim().toLowerCase(),
    CALICO_NETWORKING_BACKEND: backend,
    CALICO_MANAGE_CNI: "false",
    NO_DEFAULT_POOLS: flags["no-default-ippools"] ? "true" : undefined,
    IP: flags.ip,
    IP6: flags.ip6,
    AS: as,
    IP_AUTODETECTION_METHOD: method(flags, "ip-autodetection-method"),
    IP6_AUTODETECTION_METHOD: method(flags, "ip6-autodetection-method"),
  };
}

function method(
  flags: Call<typeof runGrammar>["flags"],
  name: "ip-autodetection-method" | "ip6-autodetection-method",
): string | undefined {
  const text = flags[name];
  if (text === undefined) return undefined;
  if (!/^(first-found$|kubernetes-internal-ip$|(can-reach|interface|skip-interface|cidr)=.)/.test(text))
    throw new Failure(
      `Error executing command: invalid IP autodetection method: ${text}: want first-found, can-reach=HOST, interface=REGEX, skip-interface=REGEX or cidr=CIDR`,
    );
  return text;
}

/** Passes the variables that configure the datastore to the service. */
function datastoreEnvironment({ io }: Call<typeof runGrammar>): Record<string, string | undefined> {
  const names = Object.keys(io.env).filter((name) =>
    /^(CALICO_)?(DATASTORE_TYPE|SQLITE_PATH|ETCD_\w+|KUBECONFIG|K8S_\w+|K8SAPITOKEN)$/.test(name),
  );
  return Object.fromEntries(names.map((name) => [name, io.env[name]]));
}

/** Returns the calico-node in the directory of this program, because all programs are links to one file. */
function nodeExecutable(): string {
  const sibling = join(dirname(realpathSync(process.execPath)), "calico-node");
  return existsSync(sibling) ? sibling : "/usr/local/bin/calico-node";
}

const MODULES = ["xt_set", "ip6_tables", "nf_tables", "vxlan", "ipip"];
const SYSCTLS = {
  "net/ipv4/ip_forward": "1",
  "net/ipv6/conf/all/forwarding": "1",
  "net/netfilter/nf_conntrack_max": "1000000",
};

/** Loads modules and sets sysctls. In a container, which may not do so, the host has done it. */
function prepareHost(warn: (text: string) => void): void {
  if (process.env["CALICO_CTL_CONTAINER"] !== undefined) return;
  for (const module of MODULES) spawnSync("modprobe", [module], { stdio: "ignore" });
  for (const [name, value] of Object.entries(SYSCTLS))
    try {
      writeFileSync(`/proc/sys/${name}`, value);
    } catch (error) {
      warn(
        `WARNING: cannot set ${name.replaceAll("/", ".")}: ${error instanceof Error ? error.message : String(error)}\n`,
      );
    }
}

function startUnit(unit: string, env: Readonly<Record<string, string | undefined>>): void {
  replaceFile(ENVIRONMENT_FILE, environmentText(env), 0o600); // may contain passwords
  replaceFile(UNIT_PATH, unit);
  for (const args of [["daemon-reload"], ["enable", UNIT_NAME], ["restart", UNIT_NAME]]) {
    const result = spawnSync("systemctl", args, { encoding: "utf8" });
    if (result.status !== 0)
      throw new Failure(`systemctl ${args.join(" ")}: ${result.stderr || result.error?.message}`);
  }
}

/** On a host without systemd, runs calico-node in the background with a log file. */
async function startDaemon(
  executable: string,
  env: Readonly<Record<string, string | undefined>>,
  logFolder: string,
  out: (text: string) => void,
): Promise<void> {
  await stopAgents();
  mkdirSync(logFolder, { recursive: true });
  const log = openSync(join(logFolder, "calico-node.log"), "a");
  const child = spawn(executable, [], { env: inherited(env), detached: true, stdio: ["ignore", log, log] });
  child.unref();
  out(`Process ${child.pid ?? "?"}, log in ${join(logFolder, "calico-node.log")}\n`);
}

/** Stops running agents and waits until they have ended, because a new agent does not start next to another. */
async function stopAgents(): Promise<void> {
  const agents = () =>
    processesHere().filter(({ words }) => words.length === 1 && /(^|\/)calico-node$/.test(words[0] ?? ""));
  for (const { pid } of agents()) process.kill(pid, "SIGTERM");
  for (const deadlineMs = Date.now() + STOP_TIMEOUT_MS; agents().length > 0; await Bun.sleep(50))
    if (Date.now() > deadlineMs)
      throw new Failure(`The running node agent (process ${agents()[0]?.pid ?? "?"}) did not stop in time`);
}

const inherited = (env: Readonly<Record<string, string | undefined>>): NodeJS.ProcessEnv => ({
  PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin",
  ...Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== "")),
});

function foreground(executable: string, env: Readonly<Record<string, string | undefined>>): Promise<number> {
  const child = spawn(executable, [], { env: inherited(env), stdio: "inherit" });
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => child.kill(signal));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
}

/** Waits for the state file of the new agent. A previous agent may still write its own state while it ends. */
async function waitUntilStarted(before: number | undefined): Promise<void> {
  const isNew = () => ![undefined, before].includes(readSupervision()?.pid);
  for (const deadlineMs = Date.now() + START_TIMEOUT_MS; !isNew(); await Bun.sleep(100))
    if (Date.now() > deadlineMs)
      throw new Failure("The node agent did not start in time: see `journalctl -u calico-node` or its log file");
}
