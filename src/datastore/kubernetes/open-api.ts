// Opens a client of the Kubernetes API, for programs that read objects of Kubernetes. Its modules are loaded only then.
import type { Environment } from "../api-config.ts";
import type { KubernetesConfig } from "../config.ts";
import type { KubeApi } from "./api-client.ts";

export async function openKubeApi(
  config: KubernetesConfig,
  env: Environment,
  options: { readonly timeoutMs?: number; readonly beforeWrite?: () => void } = {},
): Promise<KubeApi> {
  const [{ resolveAccess }, { KubeApi: Api }] = await Promise.all([import("./access.ts"), import("./api-client.ts")]);
  return new Api(await resolveAccess(config, env), {
    ...options,
    qps: config.clientQps,
    burst: config.clientBurst,
  });
}
