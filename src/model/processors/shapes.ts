// Resources that calculations read as they are stored: those whose fields have other types than their kind's count as
// gone, and are reported. Checked here, once, so that nobody behind meets a list that is a number.
import { WrongShape } from "../../lib/json-reader.ts";
import type { Resource } from "../resource.ts";
import { NotConvertible } from "../value-error.ts";
import { convertOrReport, type DerivedUpdate, resourceOf, type UpdateProcessor } from "./processor.ts";

/** Throws `WrongShape` with the path of what does not fit. */
type Check = (value: unknown, path: string) => void;

const of =
  (type: "string" | "number", wanted: string): Check =>
  (value, path) => {
    if (typeof value !== type) throw new WrongShape(path, wanted);
  };
const text = of("string", "text");
const number = of("number", "a number");
const textOrNumber: Check = (value, path) => (typeof value === "number" ? undefined : text(value, path));

const list =
  (item: Check): Check =>
  (value, path) => {
    if (!Array.isArray(value)) throw new WrongShape(path, "a list");
    for (const [i, each] of value.entries()) item(each, `${path}[${i}]`);
  };
/** Fields that are there must fit; others are none of ours. */
const object =
  (fields: Readonly<Record<string, Check>>): Check =>
  (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new WrongShape(path, "an object");
    for (const [name, check] of Object.entries(fields)) {
      const field = (value as Readonly<Record<string, unknown>>)[name];
      if (field !== undefined) check(field, path === "" ? name : `${path}.${name}`);
    }
  };
const map: Check = (value, path) =>
  object(Object.fromEntries(Object.keys(Object(value) as object).map((name) => [name, text])))(value, path);

const cidrs = list(object({ cidr: text }));
const identifier = object({ hostname: text, orchestratorID: text, workloadID: text, endpointID: text });
const endpointSlice = {
  endpoints: list(object({ addresses: list(text) })),
  ports: list(object({ protocol: text, port: number })),
};

const SHAPES = {
  Node: object({
    spec: object({
      bgp: object({
        asNumber: textOrNumber,
        ipv4Address: text,
        ipv6Address: text,
        ipv4IPIPTunnelAddr: text,
        routeReflectorClusterID: text,
      }),
      ipv4VXLANTunnelAddr: text,
      vxlanTunnelMACAddr: text,
      ipv6VXLANTunnelAddr: text,
      vxlanTunnelMACAddrV6: text,
      wireguard: object({ interfaceIPv4Address: text, interfaceIPv6Address: text }),
      addresses: list(object({ address: text, type: text })),
    }),
  }),
  Profile: object({ spec: object({ labelsToApply: map }) }),
  BGPConfiguration: object({
    spec: object({
      serviceClusterIPs: cidrs,
      serviceExternalIPs: cidrs,
      serviceLoadBalancerIPs: cidrs,
      localWorkloadPeeringIPV4: text,
      localWorkloadPeeringIPV6: text,
    }),
  }),
  BGPPeer: object({ spec: object({ node: text, nodeSelector: text, localWorkloadSelector: text }) }),
  LiveMigration: object({
    spec: object({
      source: object({ workload: identifier, workloadEndpoint: identifier }),
      target: object({ selector: text, workloadEndpoint: identifier }),
    }),
  }),
  KubernetesService: object({
    spec: object({
      type: text,
      clusterIP: text,
      clusterIPs: list(text),
      loadBalancerIP: text,
      externalIPs: list(text),
      ports: list(object({ protocol: text, port: number, nodePort: number })),
    }),
    status: object({ loadBalancer: object({ ingress: list(object({ ip: text })) }) }),
  }),
  // Its fields stand beside the metadata, or in a spec.
  KubernetesEndpointSlice: object({ ...endpointSlice, spec: object(endpointSlice) }),
} as const satisfies Readonly<Record<string, Check>>;

/** The resource itself, a field that is null left out; throws when its fields are not what its kind has. */
export function shapely(kind: keyof typeof SHAPES, resource: Resource): Resource {
  const read = withoutNulls(resource) as Resource;
  SHAPES[kind](read, "");
  return read;
}

/** Far beyond every kind. Whoever writes to etcd may nest as deeply as a process has stack. */
const MOST_DEPTH = 100;

/** Null is how some write what is not there. The same value where there is none. */
function withoutNulls(value: unknown, depth = 0): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (depth > MOST_DEPTH) throw new NotConvertible(`nested more than ${MOST_DEPTH} times`);
  if (Array.isArray(value)) {
    const items = value.map((item) => withoutNulls(item, depth + 1));
    return items.every((item, i) => item === value[i]) ? value : items;
  }
  const fields = Object.entries(value);
  const kept = fields
    .filter(([, field]) => field !== null)
    .map(([name, field]) => [name, withoutNulls(field, depth + 1)] as const);
  const isSame = kept.length === fields.length && kept.every(([, field], i) => field === fields[i]?.[1]);
  return isSame ? value : Object.fromEntries(kept);
}

/** Hands resources of a kind through as they are. */
export const passThroughOf = (kind: keyof typeof SHAPES): UpdateProcessor => ({
  restart: () => {},
  process: (update, report) => [
    {
      ...update,
      value: convertOrReport(resourceOf(update), (resource) => shapely(kind, resource), report),
    } as DerivedUpdate,
  ],
});
