// Reads WorkloadEndpoints.
import { type Cidr, type IpAddress, type IpVersion, ipVersion, tryParseNetwork } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { NAMESPACE_PREFIX, SERVICE_ACCOUNT_LABEL, SERVICE_ACCOUNT_PREFIX, withoutLabels } from "../labels.ts";
import type { Labels, Resource } from "../resource.ts";
import type { NatEntry, QosControls, WorkloadEndpoint } from "../stored/derived.ts";
import { isInterfaceName } from "../validation/formats.ts";
import { parseDscp } from "../validation/numbers.ts";
import type { WorkloadNameFields } from "../workload-name.ts";
import { namedPortsIn } from "./endpoint-port.ts";
import { addressIn, cidrsIn } from "./fields.ts";
import { fieldReader, type OnUnreadable, type ReadField } from "./unreadable.ts";

/**
 * Returns the endpoint in the form that the calculation graph uses. Unreadable entries of `ipNATs` are ignored; if any
 * other field cannot be read, the endpoint is rejected. Clusters have many endpoints, so each field is checked only once.
 * @returns undefined if the endpoint has no addresses: its workload is finished or not yet running
 * @throws WrongShape
 */
export function readWorkloadEndpoint(resource: Resource, onUnreadable: OnUnreadable): WorkloadEndpoint | undefined {
  const spec = new JsonReader(resource.spec, "spec");
  const nets = cidrsIn(spec, "ipNetworks");
  if (nets.length === 0) return undefined;
  const nats = natsIn(spec, fieldReader(onUnreadable));
  const prefixes = cidrsIn(spec, "allowSpoofedSourcePrefixes");
  const qos = qosIn(spec);
  const v4Gateway = addressIn(spec, "ipv4Gateway");
  const v6Gateway = addressIn(spec, "ipv6Gateway");
  const { generateName, annotations } = resource.metadata;
  const mac = macIn(spec);
  return {
    state: "active",
    name: interfaceIn(spec),
    ...(mac === undefined ? {} : { mac }),
    profileIds: spec.texts("profiles"),
    ipv4Nets: ofFamily(nets, 4),
    ipv6Nets: ofFamily(nets, 6),
    ...(nats.length === 0
      ? {}
      : {
          ...lists(
            "ipv4Nat",
            nats.filter((nat) => ipVersion(nat.internal) === 4),
          ),
          ...lists(
            "ipv6Nat",
            nats.filter((nat) => ipVersion(nat.internal) === 6),
          ),
        }),
    ...(v4Gateway === undefined ? {} : { ipv4Gateway: v4Gateway }),
    ...(v6Gateway === undefined ? {} : { ipv6Gateway: v6Gateway }),
    labels: workloadLabels(resource.metadata.labels ?? {}, spec.filled("serviceAccountName")),
    ports: spec.objects("ports").flatMap(namedPortsIn),
    ...(generateName === undefined || generateName === "" ? {} : { generateName }),
    ...lists("allowSpoofedSourcePrefixes", prefixes),
    ...(annotations === undefined || Object.keys(annotations).length === 0 ? {} : { annotations }),
    ...(qos === undefined ? {} : { qosControls: qos }),
  };
}

/** Returns all readable addresses of the endpoint, even if other fields cannot be read. */
export function readWorkloadAddresses(resource: Resource, onUnreadable: OnUnreadable): readonly IpAddress[] {
  const read = fieldReader(onUnreadable);
  const entries = read(() => new JsonReader(resource.spec ?? {}, "spec").list("ipNetworks"), []);
  return entries.flatMap((entry) => tryParseNetwork(entry)?.address ?? []);
}

/** Returns the fields from which the endpoint's name is built. */
export function readWorkloadNameFields(resource: Resource, onUnreadable: OnUnreadable): WorkloadNameFields {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  const text = (name: string) => read(() => spec?.filled(name), undefined);
  return {
    node: text("node"),
    orchestrator: text("orchestrator"),
    pod: text("pod"),
    containerID: text("containerID"),
    workload: text("workload"),
    endpoint: text("endpoint"),
  };
}

export function readServiceAccountName(resource: Resource, onUnreadable: OnUnreadable): string | undefined {
  const read = fieldReader(onUnreadable);
  return read(() => new JsonReader(resource.spec ?? {}, "spec").filled("serviceAccountName"), undefined);
}

/** The name becomes part of rules, in which a wildcard, blank or line break would change the meaning. */
function interfaceIn(spec: JsonReader): string {
  const name = spec.filled("interfaceName") ?? "";
  return isInterfaceName(name)
    ? name
    : spec.fail("interfaceName", "an interface name of at most 15 letters, digits, _, . and -");
}

function macIn(spec: JsonReader): string | undefined {
  const text = spec.filled("mac");
  if (text === undefined) return undefined;
  return /^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$/.test(text)
    ? text.toLowerCase().replaceAll("-", ":")
    : spec.fail("mac", "an address such as ee:ee:ee:ee:ee:ee");
}

const natsIn = (spec: JsonReader, read: ReadField): readonly NatEntry[] =>
  spec.objects("ipNATs").flatMap((nat) =>
    read(() => {
      const internal = addressIn(nat, "internalIP") ?? nat.fail("internalIP", "an IP address");
      const external = addressIn(nat, "externalIP") ?? nat.fail("externalIP", "an IP address");
      return [{ internal, external }];
    }, []),
  );

/** Removes system labels: those of the namespace come from profiles, the service account's name from the spec. */
function workloadLabels(own: Labels, serviceAccount: string | undefined): Labels {
  const isRemoved = (name: string) =>
    name.startsWith(NAMESPACE_PREFIX) ||
    name.startsWith(SERVICE_ACCOUNT_PREFIX) ||
    (serviceAccount === undefined && name === SERVICE_ACCOUNT_LABEL);
  const kept = withoutLabels(own, isRemoved);
  return serviceAccount === undefined ? kept : { ...kept, [SERVICE_ACCOUNT_LABEL]: serviceAccount };
}

const QOS_FIELDS = [
  "ingressBandwidth",
  "egressBandwidth",
  "ingressBurst",
  "egressBurst",
  "ingressPeakrate",
  "egressPeakrate",
  "ingressMinburst",
  "egressMinburst",
  "ingressPacketRate",
  "egressPacketRate",
  "ingressPacketBurst",
  "egressPacketBurst",
  "ingressMaxConnections",
  "egressMaxConnections",
] as const satisfies readonly (keyof QosControls)[];

function qosIn(spec: JsonReader): QosControls | undefined {
  const controls = spec.object("qosControls");
  if (controls === undefined) return undefined;
  const found: Record<string, number> = {};
  for (const field of QOS_FIELDS) {
    const value = controls.number(field);
    if (value !== undefined && value !== 0) found[field] = value;
  }
  const dscp = controls.raw("dscp");
  if (dscp !== undefined)
    found["dscp"] = parseDscp(dscp) ?? controls.fail("dscp", "0 to 63 or a name such as EF, AF11, CS1");
  return Object.keys(found).length === 0 ? undefined : found;
}

/** Returns the list itself if all entries have the IP version, which is the case for almost all endpoints. */
function ofFamily(nets: readonly Cidr[], version: IpVersion): readonly Cidr[] {
  const [only] = nets;
  if (nets.length === 1 && only !== undefined) return ipVersion(only) === version ? nets : [];
  return nets.filter((net) => ipVersion(net) === version);
}

function lists<N extends string, T>(name: N, items: readonly T[]): { readonly [P in N]?: readonly T[] } {
  return (items.length === 0 ? {} : { [name]: items }) as { readonly [P in N]?: readonly T[] };
}
