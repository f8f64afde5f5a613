// The datastore that the environment names, for the parts of a node.
import { withServiceRates } from "../cni/index.ts";
import {
  chooseDatastore,
  configFromEnvironment,
  type Datastore,
  type DatastoreConfig,
  type Environment,
  openDatastore,
} from "../datastore/index.ts";
import { describeError } from "../lib/log.ts";
import { NodeFailure } from "./failure.ts";

export interface NodeDatastore extends AsyncDisposable {
  readonly store: Datastore;
  readonly config: DatastoreConfig;
  /** Addresses come from the nodes' pod CIDRs, not from IPAM. */
  readonly usesPodCidrs: boolean;
}

/** @param options.mayCreate creates a SQLite datastore that does not exist, which only the startup does */
export async function openNodeDatastore(
  env: Environment,
  { mayCreate = false }: { readonly mayCreate?: boolean } = {},
): Promise<NodeDatastore> {
  try {
    const config = chooseDatastore(configFromEnvironment(env), { env });
    const store = await openDatastore(withServiceRates(config), { mustExist: !mayCreate }); // the CNI service is one of the parts
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
