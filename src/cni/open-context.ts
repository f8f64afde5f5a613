// Builds the context of a request. The plugin process opens the datastore here; the CNI service passes its own datastore.
import { chooseDatastore, openDatastore } from "../datastore/index.ts";
import { Ipam } from "../ipam/index.ts";
import { NetworkNamespace } from "../kernel/index.ts";
import { KeyedMutex } from "../lib/keyed-mutex.ts";
import type { Logger } from "../lib/log/log.ts";
import { apiConfig, usesKubernetesApi } from "./request/api-config.ts";
import type { CniContext } from "./context.ts";
import { Deadline, ROLLBACK_SHARE } from "./deadline.ts";
import { CniError, INVALID_NETNS, notAvailable } from "./error.ts";
import { identify } from "./request/identity.ts";
import { openKubernetes } from "./kubernetes/client.ts";
import type { NetConf } from "./request/net-conf.ts";
import type { CniRequest, Environment } from "./request/request.ts";
import type { MarkStep } from "./step-times.ts";

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
    mustExist: true, // the plugin must not create an empty datastore, in which no pod could be attached
    timeoutMs: conf.datastoreTimeoutSeconds * (1 - ROLLBACK_SHARE) * 1000,
    onUnreadable: (error) => log.warn("skipped an entry of the datastore that cannot be parsed", { error }),
  }).catch((error: unknown) => {
    throw request.command === "STATUS" ? notAvailable(error) : error;
  });
  mark("datastore opened");
  return buildContext({
    request,
    conf,
    log,
    now,
    store,
    env,
    mark,
    signal: Deadline.for(store, request, conf)?.signal, // the process ends before the deadline, or soon after
    mutex: new KeyedMutex(),
    openNetns: () => NetworkNamespace.open(request.netns),
  });
}

type ContextParts = Omit<CniContext, "identity" | "ipam" | "cache" | "kubernetes" | "namespaceLabels"> &
  Partial<Pick<CniContext, "cache" | "kubernetes">> & { readonly env: Environment };

export function buildContext({ env, ...parts }: ContextParts): CniContext {
  const { request, conf, store, log, cache } = parts;
  const kubernetes = once(parts.kubernetes ?? (() => openKubernetes(conf, env)));
  const identity = identify(request, conf);
  return {
    ...parts,
    cache,
    identity,
    ipam: new Ipam({ datastore: store, log, cache: cache?.assignments }),
    kubernetes,
    namespaceLabels: async () => {
      if (identity.orchestrator !== "k8s" || !usesKubernetesApi(conf)) return undefined;
      return (await (await kubernetes()).namespace(identity.namespace)).metadata.labels;
    },
  };
}

/** @throws CniError if CNI_NETNS is the plugin's own network namespace: the pod would have the host's interfaces */
export function rejectOwnNetns(context: CniContext): void {
  const { request } = context;
  if (request.netns === "" || request.netnsOverride) return;
  let pod: NetworkNamespace;
  try {
    pod = context.openNetns();
  } catch {
    return; // each command decides what a missing namespace means
  }
  using _pod = pod;
  using own = NetworkNamespace.current();
  if (pod.inode === own.inode)
    throw new CniError(
      INVALID_NETNS,
      `plugin's netns and netns from CNI_NETNS should not be the same: ${request.netns}`,
    );
}

function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | undefined;
  return () => (opened ??= open());
}
