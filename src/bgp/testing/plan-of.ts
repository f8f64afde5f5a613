// Computes the plan of node n1 from a short description of a cluster, for tests.
import { expect } from "bun:test";
import { API_VERSION, type KindName, type Labels } from "../../model/index.ts";
import { birdConfiguration } from "../bird/configuration.ts";
import { BgpCollector } from "../collect.ts";
import { type LocalInputs, plan } from "../plan.ts";
import type { BgpPlan, PlannedPeer } from "../plan-types.ts";

export interface Given {
  readonly nodes?: Readonly<
    Record<string, { readonly bgp?: object; readonly labels?: Labels; readonly wireguard?: object }>
  >;
  readonly configuration?: object;
  readonly nodeConfiguration?: object;
  readonly peers?: Readonly<Record<string, object>>;
  readonly filters?: Readonly<Record<string, object>>;
  readonly pools?: Readonly<Record<string, object>>;
  readonly blocks?: Readonly<Record<string, "" | "pending" | "confirmed" | "pendingDeletion">>;
  readonly inputs?: LocalInputs;
}
export const NO_MESH = { nodeToNodeMeshEnabled: false };
export const n = (number: number, more: object = {}) => ({ bgp: { ipv4Address: `10.0.0.${number}/24`, ...more } });

/** The plan of n1. */
export function planOf(given: Given, node = "n1"): BgpPlan {
  const collector = new BgpCollector();
  const put = (kind: KindName, name: string, spec: object, labels?: Labels) =>
    collector.setResource(name, { apiVersion: API_VERSION, kind, metadata: { name, labels }, spec }, kind);
  for (const [name, { bgp, labels, wireguard }] of Object.entries(given.nodes ?? { n1: n(1), n2: n(2) }))
    put("Node", name, { bgp, wireguard }, labels);
  if (given.configuration !== undefined) put("BGPConfiguration", "default", given.configuration);
  if (given.nodeConfiguration !== undefined) put("BGPConfiguration", "node.n1", given.nodeConfiguration);
  for (const [name, spec] of Object.entries(given.peers ?? {})) put("BGPPeer", name, spec);
  for (const [name, spec] of Object.entries(given.filters ?? {})) put("BGPFilter", name, spec);
  for (const [name, spec] of Object.entries(given.pools ?? {})) put("IPPool", name, spec);
  for (const [cidr, state] of Object.entries(given.blocks ?? {}))
    collector.setBlock(node, cidr, { state, deleted: false });
  return plan(collector.stateFor(node), node, given.inputs);
}
export const one = (given: Given): PlannedPeer => {
  const { peers, problems } = planOf(given);
  expect({ peers: peers.length, problems }).toEqual({ peers: 1, problems: [] });
  const [peer] = peers;
  if (peer === undefined) throw new Error("no peer");
  return peer;
};
export const tor = (spec: object = {}): Given => ({
  nodes: { n1: n(1) },
  configuration: NO_MESH,
  peers: { tor: { peerIP: "10.9.0.1", asNumber: 65100, ...spec } },
});
export const conf = (given: Given, family: 4 | 6 = 4): string =>
  birdConfiguration(planOf(given), family, { password: () => "pw" });
