// Converts workload endpoints, host endpoints and network sets to the form that the calculation graph uses.
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { HostEndpointKey, NetworkSetKey, ResourceKey, WorkloadEndpointKey } from "../keys/keys.ts";
import { isSystemLabel, NAMESPACE_LABEL, NAMESPACE_PROFILE, withoutLabels } from "../labels.ts";
import { readHostEndpoint } from "../readers/host-endpoint.ts";
import { readNets } from "../readers/network-set.ts";
import { affects, isWrongType, type OnUnreadable } from "../readers/unreadable.ts";
import { readWorkloadEndpoint } from "../readers/workload-endpoint.ts";
import type { Labels, Resource } from "../resource.ts";
import type { HostEndpoint, NetworkSet } from "../stored/derived.ts";
import { NotConvertible, type ReportProblem } from "../validation/value-error.ts";
import { parseWorkloadEndpointName } from "../workload-name.ts";
import { conflictResolving } from "./conflict-cache.ts";
import { oneToOne, type UpdateProcessor } from "./processor.ts";

// --- workload endpoints ------------------------------------------------------------------------------------------
export const workloadEndpointProcessor: UpdateProcessor = oneToOne(workloadEndpointKey, (resource, report) =>
  readWorkloadEndpoint(resource, reportIgnored(report)),
);

function workloadEndpointKey(key: ResourceKey): WorkloadEndpointKey | undefined {
  const identity = parseWorkloadEndpointName(key.name);
  if (identity === undefined) return undefined;
  return {
    type: "workloadEndpoint",
    host: identity.node,
    orchestrator: identity.orchestrator,
    workload: `${key.namespace ?? ""}/${identity.workload}`,
    endpoint: identity.endpoint,
  };
}

const reportIgnored =
  (report: ReportProblem): OnUnreadable =>
  ({ message }) =>
    report(`${message}: ignored`);

// --- host endpoints ----------------------------------------------------------------------------------------------
export const hostEndpointProcessor = (): UpdateProcessor => conflictResolving(convertHostEndpoint);

const REQUIRED_FIELDS = ["spec.node", "spec.interfaceName", "spec.profiles"];
const LISTS: readonly string[] = ["spec.expectedIPs", "spec.ports"];

/** An unreadable address or port is ignored, but not the endpoint: without it, the interface would have no policy. */
function convertHostEndpoint(
  resource: Resource,
  report: ReportProblem,
): { readonly key: HostEndpointKey; readonly value: HostEndpoint } {
  const { node, interfaceName, expectedIps, profiles, ports, dscp } = readHostEndpoint(resource, (error) => {
    if (affects(error, REQUIRED_FIELDS) || (isWrongType(error) && LISTS.includes(error.path))) throw error;
    reportIgnored(report)(error);
  });
  if (node === undefined) throw new NotConvertible("spec.node: want the node's name");
  if (interfaceName === "" && expectedIps.length === 0)
    throw new NotConvertible("spec: want interfaceName or expectedIPs");
  return {
    key: { type: "hostEndpoint", host: node, endpoint: resource.metadata.name },
    value: {
      name: interfaceName,
      expectedIpv4Addrs: expectedIps.filter(isFamily(4)),
      expectedIpv6Addrs: expectedIps.filter(isFamily(6)),
      labels: resource.metadata.labels ?? {},
      profileIds: profiles,
      ports,
      ...(dscp === undefined ? {} : { qosControls: { dscp } }),
    },
  };
}

const isFamily =
  (version: IpVersion) =>
  (address: IpAddress): boolean =>
    ipVersion(address) === version;

// --- network sets ------------------------------------------------------------------------------------------------
export const networkSetProcessor: UpdateProcessor = oneToOne(
  (key): NetworkSetKey => ({ type: "networkSet", name: `${key.namespace ?? ""}/${key.name}` }),
  (resource, report) => {
    const namespace = resource.metadata.namespace ?? "";
    const set = convertNetworkSet(resource, report);
    for (const name in set.labels)
      if (isSystemLabel(name)) report(`metadata.labels.${name}: only the system sets this label: ignored`);
    return {
      ...set,
      labels: networkSetLabels(set.labels, namespace),
      profileIds: [NAMESPACE_PROFILE + namespace],
    };
  },
);

/** A set matches selectors by its own labels and its namespace's, which it inherits from the namespace's profile. */
export const networkSetLabels = (own: Labels, namespace: string): Labels => ({
  ...withoutLabels(own, isSystemLabel),
  [NAMESPACE_LABEL]: namespace,
});

export const globalNetworkSetProcessor = (): UpdateProcessor =>
  conflictResolving((resource, report) => ({
    key: { type: "networkSet", name: resource.metadata.name },
    value: convertNetworkSet(resource, report),
  }));

/** @throws WrongShape if the whole list cannot be read */
function convertNetworkSet(resource: Resource, report: ReportProblem): NetworkSet {
  const nets = readNets(resource, (error) => {
    if (isWrongType(error)) throw error;
    reportIgnored(report)(error);
  });
  return { nets, labels: resource.metadata.labels ?? {}, profileIds: [] };
}
