// The node-local CNI service: the plugin's commands with warm connections and the node agent's own datastore account.
// It answers on a Unix socket that root alone may use; the pod's namespace comes as a descriptor, so that the service
// may live in a container.
import { type Datastore, type DatastoreConfig, isUnauthenticated, type KubeApi } from "../datastore/index.ts";
import { IpamMemory } from "../ipam/index.ts";
import { LinkRemover, NetworkNamespace, type ReceivedRequest, RequestServer, SyscallError } from "../kernel/index.ts";
import { createLogger, describeError, type Logger } from "../lib/log.ts";
import { readIfThere } from "../lib/whole-file.ts";
import { runCommand } from "./commands.ts";
import { asCniError, errorReply } from "./error.ts";
import type { KubernetesApi } from "./kubernetes-api.ts";
import { identify } from "./identity.ts";
import { agentKubernetes, readerOf } from "./kubernetes-client.ts";
import { type NetConf, parseNetConf } from "./net-conf.ts";
import { NODENAME_FILE } from "./node-files.ts";
import { agentScope, notForServices, type Scope } from "./scope.ts";
import { buildContext, deadlineOf } from "./open-context.ts";
import { type CniRequest, type Environment, parseRequest } from "./request.ts";
import type { ReplyHead, RequestHead } from "./service-protocol.ts";
import { SERVICE_SOCKET } from "./service-client.ts";
import { rehearse } from "./rehearsal.ts";
import { SharedLock } from "./shared-lock.ts";
import { Turns } from "./turns.ts";
import { appendTimes, noTimes, stepTimes, TIMES_VARIABLE } from "./step-times.ts";
import { timedStore } from "./timed-store.ts";
import { type WarmContext, WarmReads } from "./warm-reads.ts";

/**
 * How often it may ask: one client for all pods of a node, where each plugin process has a limit of its own. A node full
 * of pods that starts at once must not wait for us; the API server has fairness of its own.
 */
export function withServiceRates(config: DatastoreConfig): DatastoreConfig {
  if (config.type !== "kubernetes") return config;
  return { ...config, clientQps: config.clientQps ?? 100, clientBurst: config.clientBurst ?? 400 };
}

export interface CniServiceOptions {
  readonly store: Datastore;
  /** Where the store is, as far as that must be told from others of its kind. */
  readonly datastore?: DatastoreConfig;
  readonly log: Logger;
  /** The agent's own way to the API; absent: what the environment names, else what the network configuration does. */
  readonly kubernetes?: () => Promise<KubernetesApi>;
  readonly path?: string;
  readonly env?: Environment;
  readonly now?: () => Date;
  /** This node's name; absent: what the agent's file says. */
  readonly node?: string;
}

/**
 * Listens until it is disposed of.
 * @throws PlaceTaken
 */
export function startCniService(options: CniServiceOptions): AsyncDisposable {
  const memory = new IpamMemory();
  const lock = new SharedLock();
  const agent = agentKubernetes(options.env ?? process.env);
  const kubernetes = options.kubernetes ?? (agent === undefined ? undefined : async () => readerOf(await agent()));
  const warm = new WarmNodes(options, options.store.name === "kubernetes" ? agent : undefined);
  warm.begin(options.node ?? readIfThere(NODENAME_FILE)?.trim() ?? "");
  const all = {
    ...options,
    kubernetes,
    warm,
    memory,
    scope: agentScope(options.store.name, options.datastore),
    hostLock: lock.take,
    turns: new Turns(),
    remover: new LinkRemover(),
  };
  const server = new RequestServer({
    path: options.path ?? SERVICE_SOCKET,
    onRequest: (request) => answer(all, request),
    onFailure: (error) => options.log.error("The CNI service failed", { error }),
  });
  const closing = new AbortController();
  const stage = { store: options.store, recall: memory.recall, answer: onStage, signal: closing.signal };
  // Whoever asks for a pod hears what is wrong.
  const rehearsed = rehearse(stage).catch((error: unknown) =>
    options.log.debug("The CNI service could not be rehearsed", { error: describeError(error) }),
  );
  return {
    async [Symbol.asyncDispose]() {
      closing.abort();
      await rehearsed;
      await server[Symbol.asyncDispose]();
      await warm[Symbol.asyncDispose]();
    },
  };
}

/** Answers a rehearsed request: nothing of it is seen or kept. */
export function onStage(store: Datastore, request: ReceivedRequest): Promise<string> {
  const log = createLogger({ level: "error", write: () => {} });
  return answer(
    {
      store,
      log,
      env: {},
      kubernetes: undefined,
      warm: new WarmNodes({ store, log }, undefined),
      memory: new IpamMemory(),
      scope: () => undefined,
      hostLock: async () => ({ [Symbol.dispose]: () => {} }),
      turns: new Turns(),
      remover: new LinkRemover(),
    },
    request,
  );
}

/** What is followed for the node of the requests: one, but for tests. Begun when its name is known. */
class WarmNodes implements AsyncDisposable {
  readonly #nodes = new Map<string, Promise<WarmReads | undefined>>();
  constructor(
    readonly options: CniServiceOptions,
    readonly agent: (() => Promise<KubeApi>) | undefined,
  ) {}

  /** So that the first pod need not be read either. Another name than its network's costs a few watches, no more. */
  begin(node: string): void {
    if (this.agent !== undefined && node !== "") this.#reads(node, this.agent).catch(() => {}); // no name of a node
  }

  /** An ADD of a pod that is known reads what is known; everything else reads the datastore. */
  async contextFor(
    request: CniRequest,
    conf: NetConf,
    cold: CniServiceOptions["kubernetes"],
  ): Promise<Partial<WarmContext>> {
    if (this.agent === undefined || cold === undefined) return {};
    const identity = identify(request, conf);
    if (identity.orchestrator !== "k8s") return {};
    const reads = await this.#reads(identity.node, this.agent);
    if (reads === undefined) return {};
    const warm = request.command === "ADD" ? reads.contextFor(identity, request.args.podUid, cold) : undefined;
    return warm ?? { store: reads.store.readingThrough };
  }

  #reads(node: string, agent: () => Promise<KubeApi>): Promise<WarmReads | undefined> {
    let reads = this.#nodes.get(node);
    if (reads === undefined) {
      const { store, log } = this.options;
      reads = agent().then(
        (api) => new WarmReads(node, { store, api, log }),
        () => void this.#nodes.delete(node), // the request itself says what is wrong
      );
      this.#nodes.set(node, reads);
    }
    return reads;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const reads of this.#nodes.values()) await (await reads)?.[Symbol.asyncDispose]();
  }
}

type AnswerOptions = Omit<CniServiceOptions, "kubernetes"> & {
  readonly kubernetes: CniServiceOptions["kubernetes"] | undefined;
  readonly warm: WarmNodes;
  readonly memory: IpamMemory;
  readonly scope: Scope;
  readonly hostLock: SharedLock["take"];
  readonly turns: Turns;
  readonly remover: LinkRemover;
};

async function answer(options: AnswerOptions, { text, descriptor, isAwaited, pid }: ReceivedRequest): Promise<string> {
  using netns = descriptor === undefined ? undefined : NetworkNamespace.adopt(descriptor, "the pod's");
  const { log } = options;
  let request: CniRequest | undefined;
  try {
    const line = text.indexOf("\n");
    if (line < 0) return reply({ declined: "the request has no line of its own before the configuration" });
    const { env } = JSON.parse(text.slice(0, line)) as RequestHead;
    const timesFile = (options.env ?? process.env)[TIMES_VARIABLE] ?? "";
    const { mark, times } = timesFile === "" ? { mark: noTimes, times: [] } : stepTimes();
    mark("request received");
    request = parseRequest("calico", env, text.slice(line + 1));
    const conf = parseNetConf(request.config);
    const candidate = { request, conf, pid };
    const declined = notForServices(candidate) ?? options.scope(candidate);
    if (declined !== undefined) {
      const { command, containerId: containerID } = request;
      log.debug("A CNI command is left to the plugin", { command, containerID, why: declined });
      return reply({ declined });
    }
    // The plugin may be killed while its ADD is in progress. The next request for the attachment starts after that ADD has
    // been completed and undone.
    const attachment = ["GC", "STATUS"].includes(request.command)
      ? undefined
      : `${request.containerId}/${request.ifName}`;
    using _turn = attachment === undefined ? undefined : await options.turns.take(attachment);
    if (!isAwaited()) return "";
    const { store: untimed = options.store, ...warm } = await options.warm.contextFor(
      request,
      conf,
      options.kubernetes,
    );
    using deadline = deadlineOf(untimed, request, conf);
    const signal = deadline?.signal;
    const context = buildContext({
      request,
      conf,
      store: signal === undefined ? untimed : timedStore(untimed, signal),
      untimed,
      signal,
      log,
      now: options.now ?? (() => new Date()),
      env: options.env ?? process.env,
      // One after the other: pods of one host would only get in each other's way at the same block.
      serialise: (action, until) => options.memory.inTurn("addresses of this host", until, action),
      hostLock: options.hostLock,
      mark,
      memory: options.memory,
      isAwaited,
      removeLink: options.remover.remove,
      ...(options.kubernetes === undefined ? {} : { kubernetes: options.kubernetes }),
      ...warm,
      openNetns: () => {
        if (netns === undefined) throw new SyscallError(`open network namespace ${request?.netns}`, "ENOENT");
        return NetworkNamespace.open(`/proc/self/fd/${netns.fd}`, request?.netns);
      },
    });
    const stdout = await runCommand(context);
    mark("answered");
    if (timesFile !== "") setImmediate(() => void appendTimes(timesFile, env, times)); // behind the reply
    return reply(0, stdout);
  } catch (error) {
    // A pod's token is revoked when the pod is deleted, and its process may still run for a while. Whatever was not undone is
    // found by the plugin, which does the command again with its own credentials.
    if (isUnauthenticated(error)) {
      const { command, containerId: containerID } = request ?? {};
      log.warn("the API server rejects this agent's token; the plugin uses its own", { command, containerID });
      return reply({ declined: "the API server rejects the agent's token" });
    }
    log.error("A CNI command failed", { command: request?.command, containerID: request?.containerId, error });
    return reply(1, JSON.stringify(errorReply(asCniError(error), request?.cniVersion)));
  }
}

const reply = (head: ReplyHead, stdout = ""): string => `${JSON.stringify(head)}\n${stdout}\n`;
