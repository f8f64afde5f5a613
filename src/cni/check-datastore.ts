// Implements `calico -t`: checks that the datastore responds and is marked as ready.
import { chooseDatastore, openDatastore } from "../datastore/index.ts";
import { asCniError, CniError, errorReply, TEST_FAILED } from "./error.ts";
import { checkDatastoreReady } from "./attach/readiness.ts";
import { openKubernetes } from "./kubernetes/client.ts";
import { parseNetConf } from "./request/net-conf.ts";
import { apiConfig } from "./request/api-config.ts";
import type { Environment, JsonObject } from "./request/request.ts";

const TEST_TIMEOUT_MS = 2000;

export async function checkDatastore(stdin: string, env: Environment, print: (text: string) => void): Promise<number> {
  try {
    const conf = parseNetConf(JSON.parse(stdin) as JsonObject);
    const config = chooseDatastore(apiConfig(conf, env), { env });
    await checkDatastoreReady(
      await openDatastore(config, { oneShot: true, mustExist: true, timeoutMs: TEST_TIMEOUT_MS }),
    );
    if (conf.kubernetes.kubeconfig !== "") await (await openKubernetes(conf, env)).version();
    return 0;
  } catch (error) {
    const failure = new CniError(TEST_FAILED, "data store connection failed", asCniError(error).message, {
      cause: error,
    });
    print(JSON.stringify(errorReply(failure)));
    return 1;
  }
}
