// Reads NetworkSets and GlobalNetworkSets.
import { type Cidr, tryParseCidr } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { shorten } from "../../lib/shorten.ts";
import type { Resource } from "../resource.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

/**
 * Returns the networks of the set. Addresses count as /32 and /128, host bits are cleared. Unreadable entries do not affect
 * the others: a Deny rule may refer to the set, and one unreadable entry must not make it ineffective for all others.
 */
export function readNets(resource: Resource, onUnreadable: OnUnreadable): readonly Cidr[] {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined) ?? new JsonReader({}, "spec");
  const nets: Cidr[] = [];
  for (const item of read(() => spec.list("nets"), [])) {
    const net = tryParseCidr(item);
    if (net !== undefined) nets.push(net);
    else read(() => spec.fail("nets", `CIDRs, not ${shorten(describeJson(item))}`), undefined);
  }
  return nets;
}
