// Reads the workload of an ADD: the options of the pod or container, and the endpoint that is stored for it.
import { type Cidr, type IpAddress, type IpNetwork, ipVersion } from "../../lib/ip/ip.ts";
import type { CniContext } from "../context.ts";
import { defaultRoutes } from "./interface-pair.ts";
import type { EndpointDraft, WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { GrpcWorkload } from "./grpc-dataplane.ts";
import { containerRoutes } from "../ipam/host-local.ts";
import type { EndpointIdentity } from "../request/identity.ts";
import { mesosLabels } from "../request/mesos-labels.ts";
import type { IpamSettings } from "../request/net-conf.ts";
import { baseLabels, type PodFacts, podFacts } from "./pod.ts";
import { cidrText } from "../request/result.ts";

/** The interface that was created, or will be. */
export interface AttachedInterface {
  readonly hostName: string;
  readonly mac: string;
  /** The pod's addresses, each with the full prefix length (/32, /128). */
  readonly networks: readonly IpNetwork[];
}

export interface Workload {
  /** Set by an annotation of the pod. */
  readonly mac?: string;
  readonly ipam: IpamSettings;
  /** Addresses requested by an annotation of the pod; the second list is not assigned by IPAM. */
  readonly ipAddrs?: readonly IpAddress[];
  readonly ipAddrsNoIpam?: readonly IpAddress[];
  /** Destinations that the pod reaches via its gateway. */
  readonly routes: readonly Cidr[];
  /** Sent to a gRPC dataplane. */
  readonly description: Pick<GrpcWorkload, "labels" | "annotations" | "ports">;
  readonly draft: (attached: AttachedInterface) => EndpointDraft;
}

/** Mesos sets the namespace of a container in its labels. */
export function workloadIdentity({ conf, identity }: CniContext): EndpointIdentity {
  if (identity.orchestrator === "k8s") return identity;
  const { namespace } = mesosLabels(conf);
  return namespace === undefined ? identity : { ...identity, namespace };
}

export async function readWorkload(context: CniContext): Promise<Workload> {
  return context.identity.orchestrator === "k8s" ? readPodWorkload(context) : containerWorkload(context);
}

function containerWorkload({ conf, identity }: CniContext): Workload {
  const { labels } = mesosLabels(conf);
  return {
    ipam: conf.ipam,
    routes: defaultRoutes(),
    description: { labels, annotations: {}, ports: [] },
    draft: ({ hostName, mac, networks }) => ({
      identity,
      labels: { ...labels, ...baseLabels(identity) },
      spec: { ipNetworks: networks.map(cidrText), profiles: [conf.name], interfaceName: hostName, mac },
    }),
  };
}

async function readPodWorkload(context: CniContext): Promise<Workload> {
  const { conf, request } = context;
  const routes = containerRoutes(request.config, conf.includeDefaultRoutes);
  const facts = conf.policy.type === "k8s" ? await readPod(context) : undefined;
  return {
    mac: facts?.options.hwAddr,
    ipam: facts?.ipam ?? conf.ipam,
    ipAddrs: facts?.options.ipAddrs,
    ipAddrsNoIpam: facts?.options.ipAddrsNoIpam,
    routes,
    description: { labels: facts?.labels ?? {}, annotations: facts?.annotations ?? {}, ports: facts?.ports ?? [] },
    draft: (attached) => podDraft(context, facts, attached),
  };
}

async function readPod({ conf, identity, kubernetes }: CniContext): Promise<PodFacts> {
  const api = await kubernetes();
  const [namespace, pod] = await Promise.all([
    api.namespace(identity.namespace),
    api.pod(identity.namespace, identity.pod),
  ]);
  return podFacts(identity, pod, namespace, conf.ipam);
}

function podDraft(context: CniContext, facts: PodFacts | undefined, attached: AttachedInterface): EndpointDraft {
  const { conf, identity } = context;
  const ipNATs = floatingAddresses(context, facts, attached.networks);
  const allowSpoofed = facts?.options.allowedSourcePrefixes;
  return {
    identity,
    labels: facts?.labels ?? baseLabels(identity),
    generateName: facts?.generateName,
    spec: {
      ...(facts?.serviceAccountName === undefined ? {} : { serviceAccountName: facts.serviceAccountName }),
      ipNetworks: attached.networks.map(cidrText),
      ...(ipNATs.length === 0 ? {} : { ipNATs }),
      profiles: facts?.profiles ?? [conf.name],
      interfaceName: attached.hostName,
      mac: attached.mac,
      ...(facts === undefined || facts.ports.length === 0 ? {} : { ports: facts.ports }),
      ...(allowSpoofed === undefined ? {} : { allowSpoofedSourcePrefixes: allowSpoofed }),
    } as WorkloadEndpoint["spec"],
  };
}

/** Each floating address is translated to the pod's own address of the same family. */
function floatingAddresses({ conf }: CniContext, facts: PodFacts | undefined, networks: readonly IpNetwork[]) {
  const floating = facts?.options.floatingIps;
  if (floating === undefined) return [];
  if (!conf.features.floatingIps) throw new CniError(INTERNAL, "requested feature is not enabled: floating_ips");
  return floating.map((externalIP) => {
    const internal = networks.find(({ address }) => ipVersion(address) === ipVersion(externalIP));
    if (internal === undefined)
      throw new CniError(INTERNAL, `floating IP ${externalIP}: the pod has no IPv${ipVersion(externalIP)} address`);
    return { internalIP: internal.address, externalIP };
  });
}
