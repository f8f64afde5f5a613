// Installs Calico's custom resource definitions in a Kubernetes API server.
import type { KubernetesConfig } from "./config.ts";

export async function installCustomResourceDefinitions(config: KubernetesConfig, signal?: AbortSignal): Promise<void> {
  const { installDefinitions } = await import("./kubernetes/install-definitions.ts");
  await installDefinitions(config, signal);
}
