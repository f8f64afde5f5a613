// A pod and its namespace as an endpoint: labels, ports, profiles, and what its annotations ask for.
import type { Labels, ResourceOf } from "../../model/index.ts";
import { type PodWishes, parsePodWishes, withWishes } from "../request/annotations.ts";
import { CALICO_IPAM } from "../ipam/delegation.ts";
import type { EndpointIdentity } from "../request/identity.ts";
import type { KubernetesNamespace, KubernetesPod, PodContainerPort } from "../kubernetes/api.ts";
import type { IpamSettings } from "../request/net-conf.ts";

type EndpointPort = NonNullable<ResourceOf<"WorkloadEndpoint">["spec"]["ports"]>[number];

export interface PodFacts {
  readonly labels: Labels;
  readonly annotations: Labels;
  readonly ports: readonly EndpointPort[];
  readonly profiles: readonly string[];
  readonly generateName?: string;
  readonly serviceAccountName?: string;
  readonly wishes: PodWishes;
  readonly ipam: IpamSettings;
}

/** What every endpoint is labelled with. */
export const baseLabels = ({ namespace, orchestrator }: EndpointIdentity): Labels => ({
  "projectcalico.org/namespace": namespace,
  "projectcalico.org/orchestrator": orchestrator,
});

export function podFacts(
  identity: EndpointIdentity,
  pod: KubernetesPod,
  namespace: KubernetesNamespace,
  settings: IpamSettings,
): PodFacts {
  const { metadata, spec } = pod;
  const account = spec.serviceAccountName ?? "";
  const annotations = metadata.annotations ?? {};
  return {
    labels: {
      ...metadata.labels,
      ...baseLabels(identity),
      ...(account !== "" && account.length < 63 ? { "projectcalico.org/serviceaccount": account } : {}),
    },
    annotations,
    ports: [...(spec.containers ?? []), ...(spec.initContainers ?? [])].flatMap((c) =>
      (c.ports ?? []).flatMap(endpointPort),
    ),
    profiles: [`kns.${identity.namespace}`, ...(account === "" ? [] : [`ksa.${identity.namespace}.${account}`])],
    generateName: metadata.generateName,
    ...(account === "" ? {} : { serviceAccountName: account }),
    wishes: parsePodWishes(annotations),
    // Other address managers have no pools: what is said of ours is not even read.
    ipam:
      settings.type === CALICO_IPAM
        ? withWishes(settings, annotations, namespace.metadata.annotations ?? {})
        : settings,
  };
}

/** Only ports that policy can name or that the host opens. */
function endpointPort(port: PodContainerPort): EndpointPort[] {
  const { name = "", hostPort = 0, containerPort } = port;
  if ((name === "" && hostPort === 0) || containerPort === undefined || containerPort === 0) return [];
  const protocol = port.protocol ?? "TCP";
  if (!["TCP", "UDP", "SCTP"].includes(protocol.toUpperCase())) return [];
  return [
    { name, protocol: protocol.toUpperCase(), port: containerPort, hostPort, hostIP: port.hostIP ?? "" },
  ] as EndpointPort[];
}
