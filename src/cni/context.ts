// Everything that ADD, DEL and the other commands depend on. The plugin process and the CNI service each build one per
// request (`open-context.ts`); the commands themselves do not read the environment.
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

/** What assigning and releasing addresses needs. */
export interface IpamContext {
  readonly conf: NetConf;
  readonly identity: EndpointIdentity;
  readonly store: Datastore;
  readonly ipam: Ipam;
  /** Aborts when the request's time is over. Undefined on Kubernetes, where each call has its own time limit. */
  readonly signal: AbortSignal | undefined;
  /** Shared by all requests of this process. */
  readonly mutex: KeyedMutex;
  /** Used only if the configuration names Kubernetes. */
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
  /** Opens the pod's namespace: by path, or the descriptor that the client passed. */
  readonly openNetns: () => NetworkNamespace;
  /** Whether the caller still waits for the reply. By default it does. */
  readonly isCallerConnected?: () => boolean;
  /** Removes pods' interfaces in groups. By default they are removed one by one. */
  readonly removeLink?: LinkRemovalQueue["remove"];
  /** Records when a step was done. */
  readonly mark: MarkStep;
}

/** The deadline as an argument of datastore calls. */
export const callOptions = ({ signal }: Pick<IpamContext, "signal">): CallOptions =>
  signal === undefined ? {} : { signal };
