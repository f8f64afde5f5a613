// Runs a complete node: calico-node without a flag.
//
//   startup ─► tunnel addresses ─► supervisor: felix, confd (BGP service), bird, bird6     (child processes)
//                              └─► loops: host addresses, tunnels, status, CNI service …   (in this process)
import { join } from "node:path";
import { keepTokenFresh, startCniService } from "../../cni/index.ts";
import type { Environment } from "../../datastore/index.ts";
import { Client, recordVersion } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { enlargeThreadPool } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { aborted, backoffDelay, pause } from "../../lib/retry.ts";
import { serveBgpMetrics } from "../bgp/bgp-metrics.ts";
import { monitorAddresses } from "../startup/address-monitor.ts";
import { effectiveBackend, planChildren, RUN_FOLDER, SUPERVISOR_FILE } from "./children.ts";
import { stopLeftovers } from "./leftover-processes.ts";
import { runMode } from "../mode.ts";
import { completeStartup } from "../startup/network-condition.ts";
import { type NodeDatastore, openNodeDatastore } from "../node-datastore.ts";
import { nodeName } from "../startup/node-name.ts";
import { ChildOutput } from "./child-output.ts";
import { CNI_KUBECONFIG, isBackend, type NodeSettings, readSettings } from "../settings.ts";
import { SessionErrors } from "../bgp/session-errors.ts";
import { runUntilSignal } from "../signals.ts";
import { startUp } from "../startup/startup.ts";
import { reportStatus } from "../bgp/status-reporter.ts";
import { Supervisor } from "./supervisor.ts";
import { reconcileTunnelAddresses } from "../tunnels/tunnel-addresses.ts";
import { watchTunnels } from "../tunnels/tunnel-command.ts";

export function main(): Promise<number> {
  enlargeThreadPool(); // for the CNI service
  return runMode("Calico node failed to start", async (log) => {
    const { backend, legacy } = effectiveBackend(process.env, readSettings(process.env).backend);
    const requested = process.env["CALICO_NETWORKING_BACKEND"] ?? "";
    if (!isBackend(requested))
      log.warn("unknown CALICO_NETWORKING_BACKEND: want bird, vxlan or none; using bird", { value: requested });
    if (legacy) log.warn("CALICO_NETWORKING is deprecated: use CALICO_NETWORKING_BACKEND", { backend });
    const env: Environment = { ...process.env, CALICO_NETWORKING_BACKEND: backend };
    const name = await startUp(env, log);
    await runUntilSignal((signal) => runChildrenAndLoops({ ...env, NODENAME: name }, name, log, signal));
    log.info("calico-node stopped");
  });
}

/** `-node-services`: runs only the loops, for a host on which another program runs Felix and BIRD. */
export function servicesMain(): Promise<number> {
  enlargeThreadPool();
  return runMode("node services failed", async (log) => {
    const settings = readSettings(process.env);
    const name = nodeName({ env: process.env, file: settings.nodenameFile }, log);
    await runUntilSignal(async (signal) => {
      await using opened = await openNodeDatastore(process.env, { log, retryUntil: signal });
      await runLoops(process.env, name, opened, log, signal);
    });
  });
}

async function runChildrenAndLoops(env: Environment, name: string, log: Logger, signal: AbortSignal): Promise<void> {
  const settings = readSettings(env);
  await using opened = await openNodeDatastore(env, { log, retryUntil: signal });
  const { store } = opened;
  const client = new Client(store, { log });
  // In Kubernetes, nodes may not update ClusterInformation: calico-kube-controllers records its version.
  if (store.name !== "kubernetes")
    await recordVersion(client).catch((error: unknown) =>
      log.warn("could not record the version of calico-ts", { error: describeError(error) }),
    );
  if (needsTunnels(opened, settings))
    await reconcileTunnelAddresses({
      client,
      ipam: new Ipam({ datastore: store, log }),
      node: name,
      log,
    });
  const errors = new SessionErrors();
  const output = new ChildOutput(settings.fileLogging ? "/var/log/calico" : undefined);
  const plans = planChildren(env, name, settings.backend);
  await stopLeftovers({ file: SUPERVISOR_FILE, plans, log });
  const supervisor = new Supervisor({
    plans,
    file: SUPERVISOR_FILE,
    log,
    output: (child, line) => {
      output.line(child, line);
      errors.onLine(child, line);
    },
  });
  await Promise.all([supervisor.run(signal), runLoops(env, name, opened, log, signal)]);
}

/** Runs the tasks that need no process of their own. */
async function runLoops(
  env: Environment,
  name: string,
  opened: NodeDatastore,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  const settings = readSettings(env);
  const { store } = opened;
  const loop = (name: string, work: () => Promise<void>) => keepRunning(name, work, log, signal);
  await Promise.all([
    loop("readiness", () => completeStartup(settings, name, log, signal)),
    loop("status", () => reportStatus({ env, store, node: name, log }, signal)),
    ...(settings.backend === "bird" && settings.bgpMetrics.port > 0
      ? [loop("BGP metrics", () => serveBgpMetrics({ ...settings.bgpMetrics, log }, signal))]
      : []),
    loop("CNI service", () => serveCni(opened, name, log, signal)),
    ...(needsTunnels(opened, settings)
      ? [loop("tunnel addresses", () => watchTunnels({ env, store, node: name, log }, signal))]
      : []),
    ...(settings.managesCni
      ? [loop("CNI token", () => keepTokenFresh({ env, log, signal, path: CNI_KUBECONFIG }))]
      : []),
    ...(settings.backend === "none"
      ? []
      : [loop("address monitor", () => monitorAddresses(store, name, settings, log, signal))]),
  ]);
}

const needsTunnels = (opened: NodeDatastore, settings: NodeSettings): boolean =>
  !opened.usesPodCidrs && settings.backend !== "none";

async function serveCni(
  { store, config }: NodeDatastore,
  node: string,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  await using _service = startCniService({ store, datastore: config, node, log, path: join(RUN_FOLDER, "cni.sock") });
  await aborted(signal);
}

const BACKOFF = { firstMs: 500, maxMs: 30_000 };

/** Restarts a loop that fails, so that one failing loop does not stop the node. */
async function keepRunning(loop: string, work: () => Promise<void>, log: Logger, signal: AbortSignal): Promise<void> {
  for (let failures = 0; !signal.aborted; failures++)
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) return;
      log.error("node loop failed, restarting", { loop, error: describeError(error) });
      await pause(backoffDelay(BACKOFF, failures), signal);
    }
}
