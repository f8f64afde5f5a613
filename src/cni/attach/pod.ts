// Reads the endpoint's properties from a pod and its namespace: labels, ports, profiles, and options in annotations.
import type { Labels, ResourceOf } from "../../model/index.ts";
import { type PodOptions, parsePodOptions, withAnnotations } from "../request/annotations.ts";
import { CALICO_IPAM } from "../ipam/ipam-plugin.ts";
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
  readonly options: PodOptions;
  readonly ipam: IpamSettings;
}

/** The labels of every endpoint. */
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
    options: parsePodOptions(annotations),
    // The annotations are about Calico's pools, so they are not parsed for other IPAM plugins.
    ipam:
      settings.type === CALICO_IPAM
        ? withAnnotations(settings, annotations, namespace.metadata.annotations ?? {})
        : settings,
  };
}

/** Returns the port if it has a name, which policy can refer to, or a host port. */
function endpointPort(port: PodContainerPort): EndpointPort[] {
  const { name = "", hostPort = 0, containerPort } = port;
  if ((name === "" && hostPort === 0) || containerPort === undefined || containerPort === 0) return [];
  const protocol = port.protocol ?? "TCP";
  if (!["TCP", "UDP", "SCTP"].includes(protocol.toUpperCase())) return [];
  return [
    { name, protocol: protocol.toUpperCase(), port: containerPort, hostPort, hostIP: port.hostIP ?? "" },
  ] as EndpointPort[];
}
