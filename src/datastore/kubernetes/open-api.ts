// The Kubernetes API itself, for who reads Kubernetes' own objects beside Calico's. Loaded when it is opened.
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
