// Defines the context of a request: everything that ADD, DEL and the other commands depend on. The plugin process and the CNI
// service build one per request (`open-context.ts`); the commands do not read the environment.
import type { CallOptions, Datastore } from "../datastore/index.ts";
import type { Ipam } from "../ipam/index.ts";
import type { LinkRemovalQueue, NetworkNamespace } from "../kernel/index.ts";
import type { KeyedMutex } from "../lib/keyed-mutex.ts";
import type { Logger } from "../lib/log/log.ts";
import type { Labels } from "../model/index.ts";
import type { EndpointIdentity } from "./request/identity.ts";
import type { KubernetesApi } from "./kubernetes/api.ts";
import type { NetConf } from "./request/net-conf.ts";
import type { NodeCache } from "./service/node-cache.ts";
import type { CniRequest } from "./request/request.ts";
import type { MarkStep } from "./step-times.ts";

/** The part of the context that assigning and releasing addresses needs. */
export interface IpamContext {
  readonly conf: NetConf;
  readonly identity: EndpointIdentity;
  readonly store: Datastore;
  readonly ipam: Ipam;
  /** Aborts at the request's deadline. Undefined for GC, which has none. */
  readonly signal: AbortSignal | undefined;
  /** Shared by all requests of this process. */
  readonly mutex: KeyedMutex;
  /** Called only if the configuration uses the Kubernetes API. */
  readonly kubernetes: () => Promise<KubernetesApi>;
  /** Labels of the pod's namespace, which pools may select. */
  readonly namespaceLabels: () => Promise<Labels | undefined>;
  readonly log: Logger;
  readonly now: () => Date;
}

export interface CniContext extends IpamContext {
  readonly request: CniRequest;
  /** The CNI service's cache; undefined in the plugin's own process. */
  readonly cache: NodeCache | undefined;
  /** Opens the pod's network namespace: by path, or from the descriptor that the client passed. */
  readonly openNetns: () => NetworkNamespace;
  /** True if the caller still waits for the reply; also if this function is undefined. */
  readonly isCallerConnected?: () => boolean;
  /** Removes interfaces of several pods in one batch. By default they are removed individually. */
  readonly removeLink?: LinkRemovalQueue["remove"];
  /** Records the end of a step. */
  readonly mark: MarkStep;
}

/** Returns the deadline as an argument of datastore calls. */
export const callOptions = ({ signal }: Pick<IpamContext, "signal">): CallOptions =>
  signal === undefined ? {} : { signal };
