// Implements the CNI service of the node agent. It runs the plugin's commands with open connections, a cache of what they read,
// and the agent's own datastore account. It listens on a Unix socket that only root may use. The pod's network namespace is
// passed as a file descriptor, so that the service also works inside a container.
import { type Datastore, type DatastoreConfig, isUnauthenticated, type KubeApi } from "../../datastore/index.ts";
import {
  LinkRemovalQueue,
  NetworkNamespace,
  type ReceivedRequest,
  RequestServer,
  SyscallError,
} from "../../kernel/index.ts";
import { KeyedMutex } from "../../lib/keyed-mutex.ts";
import { describeError, type Logger, silentLogger } from "../../lib/log/log.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { runCommand } from "../commands.ts";
import { Deadline } from "../deadline.ts";
import { asCniError, CniError, DECODING_FAILURE, errorReply } from "../error.ts";
import { identify } from "../request/identity.ts";
import type { KubernetesApi } from "../kubernetes/api.ts";
import { agentKubeApiOpener, kubernetesReader } from "../kubernetes/client.ts";
import { type NetConf, parseNetConf } from "../request/net-conf.ts";
import { type CachedPod, NodeCache } from "./node-cache.ts";
import { NODENAME_FILE } from "../request/node-files.ts";
import { buildContext } from "../open-context.ts";
import { type CniRequest, type Environment, parseRequest } from "../request/request.ts";
import { agentScope, declineForAllServices, type Scope } from "./scope.ts";
import { SERVICE_SOCKET } from "./client.ts";
import type { ReplyHead, RequestHead } from "./protocol.ts";
import { appendTimes, type MarkStep, noTimes, stepTimes, TIMES_VARIABLE } from "../step-times.ts";
import { warmUp } from "./warm-up.ts";

/**
 * Sets the rate limits of requests to the API server. They are higher than those of a plugin process, because the service is one
 * client for all pods of a node, which may start at the same time. The API server has its own rate limits.
 */
export function withServiceRates(config: DatastoreConfig): DatastoreConfig {
  if (config.type !== "kubernetes") return config;
  return { ...config, clientQps: config.clientQps ?? 100, clientBurst: config.clientBurst ?? 400 };
}

export interface CniServiceOptions {
  readonly store: Datastore;
  /** The configuration of `store`, used to decide whether a network uses the same datastore. */
  readonly datastore?: DatastoreConfig;
  readonly log: Logger;
  /** The agent's access to the Kubernetes API. By default that of the environment or, if it has none, of the network configuration. */
  readonly kubernetes?: () => Promise<KubernetesApi>;
  readonly path?: string;
  readonly env?: Environment;
  readonly now?: () => Date;
  /** This node's name. By default the content of the agent's nodename file. */
  readonly node?: string;
}

/**
 * Starts the service. It listens until it is disposed.
 * @throws SocketInUse
 */
export function startCniService(options: CniServiceOptions): AsyncDisposable {
  const agent = agentKubeApiOpener(options.env ?? process.env);
  const kubernetes =
    options.kubernetes ?? (agent === undefined ? undefined : async () => kubernetesReader(await agent()));
  const caches = new NodeCaches(options, options.store.name === "kubernetes" ? agent : undefined);
  const node = options.node ?? readFileIfExists(NODENAME_FILE)?.trim() ?? "";
  if (node !== "") caches.for(node).catch(() => {}); // the error is reported by requests
  const shared: Shared = {
    ...options,
    kubernetes,
    caches,
    scope: agentScope(options.store.name, options.datastore),
    mutex: new KeyedMutex(),
    removalQueue: new LinkRemovalQueue(),
  };
  const server = new RequestServer({
    path: options.path ?? SERVICE_SOCKET,
    onRequest: (request) => handleRequest(shared, request),
    onFailure: (error) => options.log.error("the CNI service failed", { error }),
  });
  const warming = warmUp(handleWarmUpRequest).catch((error: unknown) =>
    options.log.debug("could not warm up the CNI service", { error: describeError(error) }),
  );
  return {
    async [Symbol.asyncDispose]() {
      await warming;
      await server[Symbol.asyncDispose]();
      await caches[Symbol.asyncDispose]();
    },
  };
}

/** Handles a request of `warm-up.ts`: it is not logged, and shares nothing with other requests. */
export async function handleWarmUpRequest(store: Datastore, request: ReceivedRequest): Promise<string> {
  const log = silentLogger;
  await using caches = new NodeCaches({ store, log }, undefined);
  const own = {
    mutex: new KeyedMutex(),
    removalQueue: new LinkRemovalQueue(),
    scope: () => undefined,
    kubernetes: undefined,
  };
  return await handleRequest({ store, log, env: {}, caches, ...own }, request);
}

/** Shared by all requests of the service. */
type Shared = Omit<CniServiceOptions, "kubernetes"> & {
  readonly kubernetes: CniServiceOptions["kubernetes"] | undefined;
  readonly caches: NodeCaches;
  readonly scope: Scope;
  readonly mutex: KeyedMutex;
  readonly removalQueue: LinkRemovalQueue;
};

/** Creates one cache per node. All requests are for the same node, except in tests. */
class NodeCaches implements AsyncDisposable {
  readonly #caches = new Map<string, Promise<NodeCache>>();
  constructor(
    readonly options: CniServiceOptions,
    /** Set if the datastore is Kubernetes. */
    readonly api: (() => Promise<KubeApi>) | undefined,
  ) {}

  for(node: string): Promise<NodeCache> {
    let cache = this.#caches.get(node);
    if (cache === undefined) {
      cache = this.#create(node);
      this.#caches.set(node, cache);
      cache.catch(() => this.#caches.delete(node));
    }
    return cache;
  }

  async #create(node: string): Promise<NodeCache> {
    const { store, log } = this.options;
    return new NodeCache(node, { store, log, api: await this.api?.() });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cache of this.#caches.values()) await (await cache.catch(() => undefined))?.[Symbol.asyncDispose]();
  }
}

async function handleRequest(shared: Shared, received: ReceivedRequest): Promise<string> {
  const { text, descriptor, pid } = received;
  using netns = descriptor === undefined ? undefined : NetworkNamespace.adopt(descriptor, "the pod's");
  const { log } = shared;
  let request: CniRequest | undefined;
  try {
    const message = parseServiceRequest(text);
    if (message === undefined) return reply({ declined: "the request has no header line before the configuration" });
    using times = recordTimes(shared, message.env);
    const parsed = parseRequest("calico", message.env, message.stdin);
    request = parsed;
    const conf = parseNetConf(parsed.config);
    const candidate = { request: parsed, conf, pid };
    const declined = declineForAllServices(candidate) ?? shared.scope(candidate);
    if (declined !== undefined) {
      const { command, containerId: containerID } = parsed;
      log.debug("declined a CNI command; the plugin runs it", { command, containerID, reason: declined });
      return reply({ declined });
    }
    return await runSequentially(shared.mutex, parsed, async () => {
      if (!received.isCallerConnected()) return "";
      return reply(0, await run(shared, { request: parsed, conf, received, netns, mark: times.mark }));
    });
  } catch (error) {
    // A pod's token is revoked when the pod is deleted, although its process may still run for a while. The plugin then repeats
    // the command with its own credentials, and finds whatever was not undone.
    if (isUnauthenticated(error)) {
      const { command, containerId: containerID } = request ?? {};
      log.warn("the API server rejects this agent's token; the plugin uses its own", { command, containerID });
      return reply({ declined: "the API server rejects the agent's token" });
    }
    log.error("a CNI command failed", { command: request?.command, containerID: request?.containerId, error });
    return reply(1, JSON.stringify(errorReply(asCniError(error), request?.cniVersion)));
  }
}

/**
 * @returns undefined if there is no line before the configuration
 * @throws CniError if that line is invalid
 */
export function parseServiceRequest(text: string): (RequestHead & { readonly stdin: string }) | undefined {
  const line = text.indexOf("\n");
  if (line < 0) return undefined;
  let head: unknown;
  try {
    head = JSON.parse(text.slice(0, line));
  } catch {
    throw new CniError(DECODING_FAILURE, "the first line of the request is not JSON");
  }
  const env = typeof head === "object" && head !== null && "env" in head ? head.env : undefined;
  const isMap = typeof env === "object" && env !== null && !Array.isArray(env);
  if (!isMap || !Object.values(env).every((value) => typeof value === "string"))
    throw new CniError(DECODING_FAILURE, "the request's environment is not a map of strings");
  return { env: env as RequestHead["env"], stdin: text.slice(line + 1) };
}

const reply = (head: ReplyHead, stdout = ""): string => `${JSON.stringify(head)}\n${stdout}\n`;

/**
 * Runs the requests for one attachment sequentially. If the plugin is killed during an ADD, the next request for the attachment
 * starts after that ADD was completed and undone.
 */
function runSequentially<T>(
  mutex: KeyedMutex,
  { command, containerId, ifName }: CniRequest,
  work: () => Promise<T>,
): Promise<T> {
  if (command === "GC" || command === "STATUS") return work();
  return mutex.run(`attachment ${containerId}/${ifName}`, undefined, work);
}

interface ParsedRequest {
  readonly request: CniRequest;
  readonly conf: NetConf;
  readonly received: ReceivedRequest;
  readonly netns: NetworkNamespace | undefined;
  readonly mark: MarkStep;
}

/** @returns the text that the plugin prints */
async function run(shared: Shared, { request, conf, received, netns, mark }: ParsedRequest): Promise<string> {
  const { store, log, mutex } = shared;
  const identity = identify(request, conf);
  const cache = await shared.caches.for(identity.node).catch(() => undefined);
  const { kubernetes } = shared;
  const known = cache?.cachedPod(identity, request.args.podUid);
  using deadline = Deadline.for(store, request, conf);
  return await runCommand(
    buildContext({
      request,
      conf,
      store,
      log,
      mutex,
      cache,
      mark,
      signal: deadline?.signal,
      now: shared.now ?? (() => new Date()),
      env: shared.env ?? process.env,
      isCallerConnected: received.isCallerConnected,
      removeLink: shared.removalQueue.remove,
      kubernetes:
        kubernetes === undefined ? undefined : known === undefined ? kubernetes : cachedPodFirst(known, kubernetes),
      openNetns: () => {
        if (netns === undefined) throw new SyscallError(`open network namespace ${request.netns}`, "ENOENT");
        return NetworkNamespace.open(`/proc/self/fd/${netns.fd}`, request.netns);
      },
    }),
  );
}

/** Returns an API that reads the pod of a request and its namespace from the cache, and everything else from the API server. */
function cachedPodFirst(
  { pod, namespace }: CachedPod,
  api: () => Promise<KubernetesApi>,
): () => Promise<KubernetesApi> {
  const isPod = (inNamespace: string, name: string): boolean =>
    inNamespace === namespace.metadata.name && name === pod.metadata.name;
  return async () => ({
    pod: async (...name) => (isPod(...name) ? pod : (await api()).pod(...name)),
    namespace: async (name) => (name === namespace.metadata.name ? namespace : (await api()).namespace(name)),
    node: async (name) => (await api()).node(name),
    machine: async (...name) => (await api()).machine(...name),
    machineInstance: async (...name) => (await api()).machineInstance(...name),
    version: async () => (await api()).version(),
  });
}

/** Writes the times of the steps, if the environment names a file for them, after the reply was sent. */
function recordTimes(
  { env = process.env }: Shared,
  request: RequestHead["env"],
): Disposable & { readonly mark: MarkStep } {
  const file = env[TIMES_VARIABLE] ?? "";
  if (file === "") return { mark: noTimes, [Symbol.dispose]: () => {} };
  const { mark, times } = stepTimes();
  mark("request received");
  return {
    mark,
    [Symbol.dispose]: () => {
      mark("reply sent");
      setImmediate(() => void appendTimes(file, request, times));
    },
  };
}
