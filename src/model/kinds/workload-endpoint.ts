// Defines the kind WorkloadEndpoint: one interface of one workload, with its addresses.
import { cidrContains, cidrLength, ipVersion, tryParseAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import { isContainerId } from "../validation/formats.ts";
import { hasPorts, PROTOCOL_NAMES } from "../validation/numbers.ts";
import {
  address,
  always,
  dscp,
  field,
  int64,
  integer,
  interfaceName,
  list,
  mac,
  maskedNetwork,
  matching,
  network,
  object,
  pointer,
  portName,
  portNumber,
  protocol,
  subdomain,
} from "./fields.ts";
import { defineKind, type ResourceFor, type RuleContext, type Stored } from "./kind.ts";

const port = object({
  name: always(portName(), ""),
  protocol: protocol(),
  port: integer(1, 65535),
  hostPort: always(portNumber(), 0),
  hostIP: always(maskedNetwork(), ""),
});

const rate = () => field(int64());
const spec = object({
  orchestrator: field(subdomain()),
  workload: field(subdomain()),
  node: field(subdomain()),
  containerID: field(matching(isContainerId, "want letters, digits and dashes")),
  pod: field(subdomain()),
  endpoint: field(subdomain()),
  serviceAccountName: field(subdomain()),
  ipNetworks: field(list(maskedNetwork())),
  ipNATs: field(list(object({ internalIP: always(address(), ""), externalIP: always(address(), "") }))),
  ipv4Gateway: field(address(4)),
  ipv6Gateway: field(address(6)),
  profiles: field(list(subdomain())),
  interfaceName: interfaceName(),
  mac: field(mac()),
  ports: field(list(port)),
  allowSpoofedSourcePrefixes: field(list(network())),
  qosControls: pointer(
    object({
      ingressBandwidth: rate(),
      ingressBurst: rate(),
      ingressPeakrate: rate(),
      ingressMinburst: rate(),
      egressBandwidth: rate(),
      egressBurst: rate(),
      egressPeakrate: rate(),
      egressMinburst: rate(),
      ingressPacketRate: rate(),
      ingressPacketBurst: rate(),
      egressPacketRate: rate(),
      egressPacketBurst: rate(),
      ingressMaxConnections: rate(),
      egressMaxConnections: rate(),
      dscp: pointer(dscp()),
    }),
  ),
});
export type WorkloadEndpointResource = ResourceFor<"WorkloadEndpoint", typeof spec>;
type Spec = Stored<typeof spec>;

export default defineKind({
  kind: "WorkloadEndpoint",
  description: "One interface of one workload.",
  spec,
  rules: (endpoint, context) => {
    checkSegments(endpoint, context);
    checkAddresses(endpoint, context);
    for (const [i, port] of (endpoint.ports ?? []).entries()) checkPort(port, ["ports", i], context);
  },
});

/** The endpoint's name consists of these fields joined by `-`, so they may not begin or end with it. */
function checkSegments(endpoint: Spec, { report }: RuleContext): void {
  for (const name of ["node", "orchestrator", "pod", "containerID", "workload", "endpoint"] as const)
    if (/^-|-$/.test(endpoint[name] ?? "")) report([name], endpoint[name], "must not begin or end with -");
}

function checkAddresses(endpoint: Spec, { report }: RuleContext): void {
  const networks = (endpoint.ipNetworks ?? []).map((text) => tryParseCidr(text));
  for (const [i, cidr] of networks.entries())
    if (cidr !== undefined && cidrLength(cidr) !== (ipVersion(cidr) === 4 ? 32 : 128))
      report(["ipNetworks", i], endpoint.ipNetworks?.[i], "want one address: /32 or /128");
  for (const [i, nat] of (endpoint.ipNATs ?? []).entries()) {
    const internal = tryParseAddress(nat.internalIP);
    const external = tryParseAddress(nat.externalIP);
    if (internal === undefined) report(["ipNATs", i, "internalIP"], nat.internalIP, "want an IP address");
    if (external === undefined) report(["ipNATs", i, "externalIP"], nat.externalIP, "want an IP address");
    if (internal === undefined || external === undefined) continue;
    if (ipVersion(internal) !== ipVersion(external))
      report(
        ["ipNATs", i, "externalIP"],
        nat.externalIP,
        `want an IPv${ipVersion(internal)} address, like internalIP ${nat.internalIP}`,
      );
    if (!networks.some((cidr) => cidr !== undefined && cidrContains(cidr, internal)))
      report(["ipNATs", i, "internalIP"], nat.internalIP, "is not in ipNetworks");
  }
}

function checkPort(
  port: Stored<typeof spec>["ports"] extends infer P
    ? NonNullable<P> extends readonly (infer I)[]
      ? I
      : never
    : never,
  at: readonly (string | number)[],
  { report }: RuleContext,
): void {
  const known = typeof port.protocol === "number" || PROTOCOL_NAMES.some((name) => name === port.protocol);
  if (!known || !hasPorts(port.protocol)) report([...at, "protocol"], port.protocol, "want TCP, UDP or SCTP");
  if (port.name === "" && port.hostPort === 0) report([...at, "name"], undefined, "name or hostPort is required");
}
