// The definitions a Kubernetes API server needs before it can hold our resources.
import type { KubernetesConfig } from "./config.ts";

export async function installCustomResourceDefinitions(config: KubernetesConfig, signal?: AbortSignal): Promise<void> {
  const { installDefinitions } = await import("./kubernetes/install-definitions.ts");
  await installDefinitions(config, signal);
}
