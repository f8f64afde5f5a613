// Reads the ports of endpoints.
import type { JsonReader } from "../../lib/encoding/json-reader.ts";
import { parseRuleProtocol } from "../rule-conversion.ts";
import type { EndpointPort } from "../stored/derived.ts";

/** Policy can only refer to ports with a name. Ports without a name, which exist for host ports, are ignored. */
export function namedPortsIn(port: JsonReader): readonly EndpointPort[] {
  const name = port.filled("name");
  if (name === undefined) return [];
  const number = port.whole("port") ?? 0;
  const protocol = parseRuleProtocol(port.raw("protocol") ?? "TCP") ?? port.fail("protocol", "a protocol");
  if (number < 1 || number > 65535) return port.fail("port", "1 to 65535");
  return [{ name, protocol, port: number }];
}
