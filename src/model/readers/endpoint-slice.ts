// Reads Kubernetes EndpointSlices.
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface EndpointSlice {
  readonly namespace: string;
  /** The name of the service; undefined if the slice belongs to no service. */
  readonly service: string | undefined;
  readonly addressType: string;
  readonly endpoints: readonly SliceEndpoint[];
  readonly ports: readonly SlicePort[];
}
interface SliceEndpoint {
  readonly addresses: readonly IpAddress[];
  readonly nodeName: string | undefined;
  readonly isReady: boolean;
}
interface SlicePort {
  readonly protocol: string;
  readonly port: number;
}

const SERVICE_LABEL = "kubernetes.io/service-name";

/**
 * In the Kubernetes API the fields are at the top level. In resources that calico-ts stores in other datastores they are
 * in the spec.
 * @param json the object of the Kubernetes API, or the resource derived from it
 */
export function readEndpointSlice(json: unknown, onUnreadable: OnUnreadable): EndpointSlice {
  const read = fieldReader(onUnreadable);
  const object = read(() => new JsonReader(json), undefined);
  const metadata = read(() => object?.object("metadata"), undefined);
  const spec = read(() => object?.object("spec"), undefined);
  const fields = object?.names.includes("endpoints") === true || spec === undefined ? object : spec;
  return {
    namespace: read(() => metadata?.text("namespace"), undefined) ?? "",
    service: read(() => metadata?.map("labels")?.[SERVICE_LABEL], undefined) || undefined,
    addressType: read(() => object?.text("addressType"), undefined) ?? "",
    endpoints: read(() => fields?.objects("endpoints").map(endpointOf), undefined) ?? [],
    ports: read(() => fields?.objects("ports").flatMap(portsIn), undefined) ?? [],
  };
}

/** Returns the number of members that the slice adds to the IP set of its service: all ports of all addresses. */
export const countSliceMembers = ({ endpoints, ports }: EndpointSlice): number =>
  endpoints.reduce((sum, { addresses }) => sum + addresses.length, 0) * Math.max(1, ports.length);

/** Endpoints of type FQDN have names instead of addresses. */
const endpointOf = (endpoint: JsonReader): SliceEndpoint => ({
  addresses: endpoint.texts("addresses").flatMap((text) => tryParseAddress(text) ?? []),
  nodeName: endpoint.text("nodeName"),
  isReady: endpoint.object("conditions")?.flag("ready") !== false,
});

/** A port without a number means all ports, which an IP set cannot contain. */
function portsIn(entry: JsonReader): readonly SlicePort[] {
  const port = entry.number("port");
  const protocol = entry.text("protocol") ?? "TCP";
  return port === undefined ? [] : [{ protocol, port }];
}
