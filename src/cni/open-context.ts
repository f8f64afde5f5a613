// From a request to everything it needs: configuration, identity, datastore, IPAM. Used by the plugin process; the
// node-local service has its own datastore and builds the rest the same way.
import { chooseDatastore, type Datastore, openDatastore } from "../datastore/index.ts";
import { Ipam, IpamMemory } from "../ipam/index.ts";
import { NetworkNamespace } from "../kernel/index.ts";
import type { Logger } from "../lib/log.ts";
import { apiConfig, usesKubernetesApi } from "./api-config.ts";
import { ROLLBACK_SHARE } from "./attach.ts";
import type { CniContext } from "./context.ts";
import { FOREIGN_ANSWER_SECONDS, isForeign } from "./dataplane-options.ts";
import { CniError, INVALID_NETNS, notAvailable } from "./error.ts";
import { GATE_TIMEOUT_SECONDS } from "./gates.ts";
import { identify } from "./identity.ts";
import { openKubernetes } from "./kubernetes-client.ts";
import type { NetConf } from "./net-conf.ts";
import type { CniRequest, Environment } from "./request.ts";
import type { MarkStep } from "./step-times.ts";
import { Deadline, timedStore } from "./timed-store.ts";

export async function openContext(options: {
  readonly request: CniRequest;
  readonly conf: NetConf;
  readonly env: Environment;
  readonly log: Logger;
  readonly now: () => Date;
  readonly mark: MarkStep;
}): Promise<CniContext> {
  const { request, conf, env, log, now, mark } = options;
  mark("request parsed");
  const config = chooseDatastore(apiConfig(conf, env), { env });
  const store = await openDatastore(config, {
    oneShot: true,
    mustExist: true, // pods cannot be attached to a cluster that was made a moment ago
    timeoutMs: conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000,
    onUnreadable: (error) => log.warn("Skipped what cannot be read in the datastore", { error }),
  }).catch((error: unknown) => {
    throw request.command === "STATUS" ? notAvailable(error) : error;
  });
  mark("datastore opened");
  const openNetns = (): NetworkNamespace => NetworkNamespace.open(request.netns);
  const signal = deadlineOf(store, request, conf)?.signal; // the process ends before it, or soon after
  const timed = signal === undefined ? { store } : { store: timedStore(store, signal), untimed: store, signal };
  return buildContext({ request, conf, log, now, ...timed, openNetns, env, mark });
}

export function buildContext(
  parts: Pick<
    CniContext,
    | "request"
    | "conf"
    | "log"
    | "now"
    | "store"
    | "openNetns"
    | "untimed"
    | "signal"
    | "serialise"
    | "hostLock"
    | "isAwaited"
    | "removeLink"
    | "mark"
  > &
    Partial<Pick<CniContext, "kubernetes" | "memory">> & { readonly env: Environment },
): CniContext {
  const { request, conf, store, env, memory = new IpamMemory(), ...rest } = parts;
  const kubernetes = once(parts.kubernetes ?? (() => openKubernetes(conf, env)));
  const identity = identify(request, conf);
  return {
    ...rest,
    request,
    conf,
    store,
    identity,
    ipam: new Ipam({ datastore: store, log: rest.log, memory }),
    memory,
    kubernetes,
    namespaceLabels: async () => {
      if (identity.orchestrator !== "k8s" || !usesKubernetesApi(conf)) return undefined;
      return (await (await kubernetes()).namespace(identity.namespace)).metadata.labels;
    },
  };
}

/** Where a request is one or two journeys; of Kubernetes, and of what has much to do, each has a time of its own. */
export function deadlineOf(store: Datastore, request: CniRequest, conf: NetConf): Deadline | undefined {
  if (store.name === "kubernetes" || request.command === "GC") return undefined;
  const gates = conf.readinessGates.length * GATE_TIMEOUT_SECONDS;
  const others = gates + (isForeign(conf) ? FOREIGN_ANSWER_SECONDS : 0);
  return new Deadline(store, others + conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE));
}

/** What the first question has, where not all have one time together. */
export const gateSignal = ({ store, conf }: Pick<CniContext, "store" | "conf">): AbortSignal | undefined =>
  store.name === "kubernetes"
    ? AbortSignal.timeout(conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000)
    : undefined;

/** A pod in the plugin's own namespace would take the host's network apart. */
export function refuseOwnNetns(context: CniContext): void {
  const { request } = context;
  if (request.netns === "" || request.netnsOverride) return;
  let pod: NetworkNamespace;
  try {
    pod = context.openNetns();
  } catch {
    return; // missing: each command says what that means for it
  }
  using _pod = pod;
  using own = NetworkNamespace.current();
  if (pod.inode === own.inode)
    throw new CniError(
      INVALID_NETNS,
      `plugin's netns and netns from CNI_NETNS should not be the same: ${request.netns}`,
    );
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
