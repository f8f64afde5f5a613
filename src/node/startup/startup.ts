// Prepares the datastore and the host before the agents start (calico-node -startup). Every step can be repeated; the Node
// resource is written only if it changed.
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import {
  Client,
  type Datastore,
  DatastoreError,
  type Environment,
  NotFound,
  Unauthorized,
  Unavailable,
} from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { BUILD } from "../../lib/process/build.ts";
import { type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";
import { API_VERSION, ignoreUnreadable, parseAsNumber, readPool, type ResourceOf } from "../../model/index.ts";
import { announceAgent } from "./announce-guard.ts";
import { defaultPools } from "./default-pools.ts";
import { ensureDefaults } from "./default-resources.ts";
import { FatalNodeError } from "../failure.ts";
import { readHostInterfaces } from "./host-interfaces.ts";
import { findKubernetes, type KubernetesFacts, readFacts } from "./kubernetes-facts.ts";
import { AddressFailure, configureAddresses, findConflict, type NodeSpec, withoutDetected } from "./node-addresses.ts";
import { openNodeDatastore } from "../node-datastore.ts";
import { nodeName } from "./node-name.ts";
import { warnOfPeersAtOtherInterfaces } from "./peer-interfaces.ts";
import { type NodeSettings, readSettings } from "../settings.ts";

const UPGRADE_WITHIN_MS = 90_000;

export type NodeResource = ResourceOf<"Node">;

/**
 * @param root the host's root directory; replaced by tests
 * @returns the node's name
 */
export async function startUp(env: Environment, log: Logger, root = "/"): Promise<string> {
  const settings = readSettings(env);
  const name = nodeName({ env, file: settings.nodenameFile }, log);
  // Never aborted: while startup waits for the datastore, only a signal ends the process.
  const retryUntil = settings.waitForDatastore ? new AbortController().signal : undefined;
  const retry = retryUntil === undefined ? {} : { retryUntil };
  await using opened = await openNodeDatastore(env, { mayCreate: true, log, ...retry });
  const { store } = opened;
  if (settings.waitForDatastore) await waitForDatastore(store, log);
  const client = new Client(store, { log });
  await new Ipam({ datastore: store, log }).upgradeHost({ type: "host", name }, AbortSignal.timeout(UPGRADE_WITHIN_MS));
  const facts = await kubernetesFacts(settings, name);
  await configureNode({ client, name, settings, facts, log });
  createDirectories(settings, root, log);
  await createPools(client, settings, facts, log);
  const words = [settings.clusterType, facts?.kubeadm && "kubeadm", facts?.isRancher === true && "rancher"];
  await ensureDefaults(client, name, { clusterType: words.filter(Boolean).join(","), version: BUILD.version });
  if (settings.backend === "bird")
    await warnOfPeersAtOtherInterfaces({ client, node: name, interfaces: readHostInterfaces(), log });
  await announceAgent({ nodenameFile: settings.nodenameFile, env }, log);
  writeNodename(settings.nodenameFile, name);
  log.info("startup finished", { name });
  return name;
}

async function waitForDatastore(store: Datastore, log: Logger): Promise<void> {
  // Logged after a second, because a driver may retry for much longer before it fails.
  const timer = setTimeout(() => log.info("waiting for the datastore"), 1000);
  using _ = { [Symbol.dispose]: () => clearTimeout(timer) };
  for (;;)
    try {
      await store.get({ type: "resource", kind: "Node", name: "foo" });
      return;
    } catch (error) {
      if (error instanceof NotFound) return;
      if (error instanceof Unauthorized)
        throw new FatalNodeError(`the datastore rejected the credentials: ${error.message}`, { cause: error });
      if (!(error instanceof Unavailable || error instanceof DatastoreError)) throw error;
      log.info("waiting for the datastore", { error });
      await delay(1000);
    }
}

async function kubernetesFacts(settings: NodeSettings, name: string): Promise<KubernetesFacts | undefined> {
  const api = await findKubernetes(settings.env);
  return api === undefined ? undefined : readFacts(api, settings.kubernetesNode ?? name);
}

interface StartingNode {
  readonly client: Client;
  readonly name: string;
  readonly settings: NodeSettings;
  /** Undefined without Kubernetes. */
  readonly facts: KubernetesFacts | undefined;
  readonly log: Logger;
}

/** Writes addresses, AS number and the reference to the Kubernetes node to the Node resource, if they changed. */
async function configureNode(node: StartingNode): Promise<void> {
  const { client, name, settings } = node;
  const stored = await findNode(client, name);
  const before: NodeSpec = stored?.spec ?? {};
  const { spec: addressed, changed } = await configureAddressesOrClear(node, stored);
  if (changed && settings.checksConflicts) await checkConflict(node, stored, addressed);
  const spec = withReference(withAsNumber(addressed, settings), settings);
  if (!changed && Bun.deepEquals(spec, before)) return;
  try {
    await writeNode(client, stored, name, spec);
  } catch (error) {
    throw new FatalNodeError(`cannot write Node ${name}: ${describeError(error)}`, { cause: error });
  }
}

export async function findNode(client: Client, name: string): Promise<NodeResource | undefined> {
  try {
    return await client.get({ kind: "Node", name });
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw new FatalNodeError(`cannot read Node ${name}: ${describeError(error)}`, { cause: error });
  }
}

/** If no address is found, clears stored addresses that should have been autodetected: they may be wrong. */
async function configureAddressesOrClear(
  { client, settings, facts, log }: StartingNode,
  stored: NodeResource | undefined,
) {
  try {
    return await configureAddresses(stored?.spec ?? {}, {
      settings,
      interfaces: readHostInterfaces(),
      kubernetesAddresses: facts?.internalAddresses,
      log,
    });
  } catch (error) {
    if (error instanceof AddressFailure && stored !== undefined)
      await clearDetected(client, stored, settings).catch((again: unknown) =>
        log.error("could not clear the node's addresses", { error: again }),
      );
    throw error;
  }
}

async function clearDetected(client: Client, stored: NodeResource, settings: NodeSettings): Promise<void> {
  const spec = withoutDetected(stored.spec, settings.ip);
  if (JSON.stringify(spec) !== JSON.stringify(stored.spec)) await client.update({ ...stored, spec });
}

async function checkConflict(
  { client, name, settings, log }: StartingNode,
  stored: NodeResource | undefined,
  spec: NodeSpec,
): Promise<void> {
  const { items } = await client.list({ kind: "Node" });
  const nodes = items.map((node) => ({ name: node.metadata.name, spec: node.spec }));
  const conflict = findConflict(name, spec, nodes);
  if (conflict === undefined) {
    for (const version of [4, 6] as const) {
      const [old, now] = [stored?.spec, spec].map((each) => each?.bgp?.[`ipv${version}Address`]);
      if (old !== undefined && old !== now)
        log.warn(`the node's IPv${version} address changed`, { from: old, to: now });
    }
    return;
  }
  if (stored !== undefined) await clearDetected(client, stored, settings);
  throw new FatalNodeError(
    `conflicting node detected: IPv${conflict.version} address conflict: Node ${conflict.node} also has ${conflict.address}; delete that Node if it no longer exists, or set ${conflict.version === 4 ? "IP" : "IP6"} or its autodetection method`,
  );
}

function withAsNumber(spec: NodeSpec, { asNumber: text, backend }: NodeSettings): NodeSpec {
  if (text === "" || backend === "none") return spec;
  const asNumber = parseAsNumber(text);
  if (asNumber === undefined)
    throw new FatalNodeError(
      `The AS number specified in the environment (AS=${text}) is not valid: want 64512 or 1.10`,
    );
  return { ...spec, bgp: { ...spec.bgp, asNumber } };
}

function withReference(spec: NodeSpec, { kubernetesNode }: NodeSettings): NodeSpec {
  return kubernetesNode === undefined
    ? spec
    : { ...spec, orchRefs: [{ nodeName: kubernetesNode, orchestrator: "k8s" }] };
}

async function writeNode(
  client: Client,
  stored: NodeResource | undefined,
  name: string,
  spec: NodeSpec,
): Promise<void> {
  if (stored !== undefined) await client.update({ ...stored, spec });
  else await client.create({ apiVersion: API_VERSION, kind: "Node", metadata: { name }, spec });
}

function createDirectories({ backend, fileLogging }: NodeSettings, root: string, log: Logger): void {
  const folders = [
    ...(backend === "bird" ? ["var/run/calico"] : []),
    "var/lib/calico",
    ...(fileLogging ? ["var/log/calico"] : []),
  ].map((folder) => join(root, folder));
  for (const folder of folders) {
    if (existsSync(folder)) continue;
    log.warn("creating a directory that should be mounted from the host", { folder });
    try {
      mkdirSync(folder, { recursive: true });
    } catch (error) {
      throw new FatalNodeError(`cannot create ${folder}: ${describeError(error)}`, { cause: error });
    }
  }
}

async function createPools(
  client: Client,
  settings: NodeSettings,
  facts: KubernetesFacts | undefined,
  log: Logger,
): Promise<void> {
  const { items } = await client.list({ kind: "IPPool" });
  const existing = new Set<IpVersion>(
    items.flatMap((each) => {
      const pool = readPool(each, ignoreUnreadable);
      return pool === undefined ? [] : [ipVersion(pool.cidr)];
    }),
  );
  const pools = defaultPools({
    env: settings.env,
    interfaces: readHostInterfaces(),
    podSubnets: facts?.kubeadm?.podSubnets ?? [],
    existing,
    ipv6InKernel: existsSync("/proc/sys/net/ipv6"),
  });
  for (const pool of pools)
    try {
      await client.create(pool);
      log.info("created a default pool", { name: pool.metadata.name, cidr: readPool(pool, ignoreUnreadable)?.cidr });
    } catch (error) {
      if (error instanceof DatastoreError && error.name === "AlreadyExists") continue;
      throw new FatalNodeError(`cannot create pool ${pool.metadata.name}: ${describeError(error)}`, { cause: error });
    }
}

/** Replaces the file atomically, because the CNI plugin may read it at any time. */
function writeNodename(file: string, name: string): void {
  try {
    replaceFile(file, name);
  } catch (error) {
    throw new FatalNodeError(`cannot write the node's name to ${file}: ${describeError(error)}`, { cause: error });
  }
}
