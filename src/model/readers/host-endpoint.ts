// Reads HostEndpoints.
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import { JsonReader, WrongValue } from "../../lib/encoding/json-reader.ts";
import { describeJson, type Json } from "../../lib/encoding/lossless-json.ts";
import { quote, shorten } from "../../lib/shorten.ts";
import type { Labels, Resource } from "../resource.ts";
import type { EndpointPort } from "../stored/derived.ts";
import { isInterfaceName } from "../validation/formats.ts";
import { parseDscp } from "../validation/numbers.ts";
import { namedPortsIn } from "./endpoint-port.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface HostEndpointFields {
  readonly node: string | undefined;
  /** `*` for all interfaces, empty if the endpoint is found by its addresses. */
  readonly interfaceName: string;
  readonly expectedIps: readonly IpAddress[];
  readonly profiles: readonly string[];
  readonly ports: readonly EndpointPort[];
  /** Only an annotation sets it. */
  readonly dscp: number | undefined;
}

const DSCP_ANNOTATION = "qos.projectcalico.org/dscp";

/** An unreadable address or port does not affect the others. */
export function readHostEndpoint({ metadata, spec: json }: Resource, onUnreadable: OnUnreadable): HostEndpointFields {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(json ?? {}, "spec"), undefined) ?? new JsonReader({}, "spec");
  return {
    node: read(() => nodeIn(spec), undefined),
    interfaceName: read(() => interfaceIn(spec), ""),
    expectedIps: read(() => spec.list("expectedIPs"), []).flatMap((item) => read(() => [addressOf(spec, item)], [])),
    profiles: read(() => spec.texts("profiles"), []),
    ports: read(() => spec.list("ports"), []).flatMap((item, i) =>
      read(() => namedPortsIn(new JsonReader(item, `spec.ports[${i}]`)), []),
    ),
    dscp: read(() => dscpIn(metadata.annotations ?? {}), undefined),
  };
}

/** The name becomes part of a key. */
function nodeIn(spec: JsonReader): string | undefined {
  const node = spec.filled("node");
  return node?.includes("/") === true ? spec.fail("node", "a node name without /") : node;
}

function interfaceIn(spec: JsonReader): string {
  const name = spec.text("interfaceName") ?? "";
  if (name === "" || name === "*" || isInterfaceName(name)) return name;
  return spec.fail("interfaceName", "an interface name of at most 15 letters, digits, _, . and -, or *");
}

const addressOf = (spec: JsonReader, item: Json): IpAddress =>
  tryParseAddress(item) ?? spec.fail("expectedIPs", `IP addresses, not ${shorten(describeJson(item))}`);

function dscpIn(annotations: Labels): number | undefined {
  const text = annotations[DSCP_ANNOTATION];
  if (text === undefined) return undefined;
  const dscp = parseDscp(text);
  if (dscp === undefined) throw new WrongValue(DSCP_ANNOTATION, `a DSCP, not ${quote(text)}`);
  return dscp;
}
