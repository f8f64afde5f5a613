// Lists the EndpointSlices of a service.
import type { KubernetesConfig } from "../config.ts";
import type { KubeObject } from "./api-client.ts";

export interface EndpointSlice extends KubeObject {
  readonly ports?: readonly { readonly name?: string; readonly port?: number }[] | null;
  readonly endpoints?:
    | readonly {
        readonly addresses: readonly string[];
        readonly nodeName?: string;
        readonly conditions?: { readonly ready?: boolean };
      }[]
    | null;
}

/** Returns a function that lists a service's slices. All calls share one client. */
export async function endpointSliceLister(
  config: KubernetesConfig,
  env: Readonly<Record<string, string | undefined>>,
): Promise<(namespace: string, service: string, signal?: AbortSignal) => Promise<readonly EndpointSlice[]>> {
  const [{ resolveAccess }, { KubeApi }] = await Promise.all([import("./access.ts"), import("./api-client.ts")]);
  const api = new KubeApi(await resolveAccess(config, env));
  return async (namespace, service, signal) => {
    const path = `/apis/discovery.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/endpointslices`;
    const query = { labelSelector: `kubernetes.io/service-name=${service}` };
    return (await api.list<EndpointSlice>(path, { query, signal })).items;
  };
}
