// Keeps the set of endpoints whose connections must not be offloaded to a flowtable, because a rule must process each of
// their packets: endpoints with packet-rate or connection limits, or with a DSCP.
import { type Cidr, cidrAddress } from "../../lib/ip/ip.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { SET } from "../rules/config.ts";
import type { FamilyRules } from "../rules/rule-table.ts";

export class OffloadExclusions implements Manager {
  readonly name = "offload exclusions";
  readonly #families: readonly FamilyRules[];
  readonly #endpoints = new Map<string, readonly Cidr[]>();
  #isStale = true;

  constructor(families: readonly FamilyRules[]) {
    this.#families = families;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type !== "workloadEndpointUpdate" && message.type !== "workloadEndpointRemove") return;
    const key = JSON.stringify(message.id);
    if (message.type === "workloadEndpointRemove" || !needsEveryPacket(message.endpoint)) this.#endpoints.delete(key);
    else this.#endpoints.set(key, [...message.endpoint.ipv4Nets, ...message.endpoint.ipv6Nets]);
    this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    const members = [...this.#endpoints.values()].flat().map(cidrAddress);
    for (const { sets } of this.#families) sets.replace(SET.noOffload, "ip", members);
  }
}

function needsEveryPacket(endpoint: (ManagerMessage & { type: "workloadEndpointUpdate" })["endpoint"]): boolean {
  const qos = endpoint.qosControls;
  return (
    endpoint.qosPolicies.length > 0 ||
    [qos?.ingressPacketRate, qos?.egressPacketRate, qos?.ingressMaxConnections, qos?.egressMaxConnections].some(
      (limit) => (limit ?? 0) > 0,
    )
  );
}
