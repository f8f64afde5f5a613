// The datastore that the environment names, for the parts of a node.
import { withServiceRates } from "../cni/index.ts";
import {
  chooseDatastore,
  configFromEnvironment,
  type Datastore,
  type DatastoreConfig,
  type Environment,
  openDatastore,
  type OpenOptions,
} from "../datastore/index.ts";
import { describeError } from "../lib/log/log.ts";
import { NodeFailure } from "./failure.ts";

export interface NodeDatastore extends AsyncDisposable {
  readonly store: Datastore;
  readonly config: DatastoreConfig;
  /** Addresses come from the nodes' pod CIDRs, not from IPAM. */
  readonly usesPodCidrs: boolean;
}

/**
 * @param options.mayCreate creates a SQLite datastore that does not exist, which only the startup does
 * @param options.retryUntil set by programs that wait for the API server; the others fail if it does not answer
 */
export async function openNodeDatastore(
  env: Environment,
  { mayCreate = false, ...options }: { readonly mayCreate?: boolean } & Pick<OpenOptions, "log" | "retryUntil"> = {},
): Promise<NodeDatastore> {
  try {
    const config = chooseDatastore(configFromEnvironment(env), { env });
    // The CNI service is one of the parts.
    const store = await openDatastore(withServiceRates(config), { ...options, mustExist: !mayCreate });
    return {
      store,
      config,
      usesPodCidrs: config.type === "kubernetes" && config.usePodCidr,
      [Symbol.asyncDispose]: () => store.close(),
    };
  } catch (error) {
    throw new NodeFailure(`cannot open the datastore: ${describeError(error)}`, { cause: error });
  }
}
