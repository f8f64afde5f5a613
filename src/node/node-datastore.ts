// Opens the datastore that the environment selects.
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
import { FatalNodeError } from "./failure.ts";

export interface NodeDatastore extends AsyncDisposable {
  readonly store: Datastore;
  readonly config: DatastoreConfig;
  /** Whether pod addresses come from the nodes' pod CIDRs instead of IPAM. */
  readonly usesPodCidrs: boolean;
}

/**
 * @param options.mayCreate creates a SQLite datastore that does not exist, which only the startup does
 * @param options.retryUntil set by programs that wait for the API server; the others fail if it does not respond
 */
export async function openNodeDatastore(
  env: Environment,
  { mayCreate = false, ...options }: { readonly mayCreate?: boolean } & Pick<OpenOptions, "log" | "retryUntil"> = {},
): Promise<NodeDatastore> {
  try {
    const config = chooseDatastore(configFromEnvironment(env), { env });
    // with the request rates of the CNI service, which uses the same connection
    const store = await openDatastore(withServiceRates(config), { ...options, mustExist: !mayCreate });
    return {
      store,
      config,
      usesPodCidrs: config.type === "kubernetes" && config.usePodCidr,
      [Symbol.asyncDispose]: () => store.close(),
    };
  } catch (error) {
    throw new FatalNodeError(`cannot open the datastore: ${describeError(error)}`, { cause: error });
  }
}
