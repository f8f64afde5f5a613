// Warns about written resources that are valid, but probably do not work as intended, and about deleted resources that are
// still in use.
import type { Client } from "../../datastore/index.ts";
import { cidrContains } from "../../lib/ip/ip.ts";
import {
  ignoreUnreadable,
  type IpPool,
  type KindName,
  readPool,
  type Resource,
  specFields,
} from "../../model/index.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { MTU_SETTINGS, type MtuSetting } from "./mtu-settings.ts";

/** The MTU of most networks. */
const USUAL_MTU = 1500;

/** Prints one line per warning on standard error. */
export async function warnOfWritten(io: CommandIo, store: Client, written: readonly Resource[]): Promise<void> {
  const warnings = written.filter(({ kind }) => kind === "FelixConfiguration").flatMap(mtuWarnings);
  const peers = written.filter(({ kind }) => kind === "BGPPeer");
  if (peers.length > 0) warnings.push(...(await peerWarnings(store, peers)));
  for (const warning of warnings) io.err(`Warning: ${warning}\n`);
}

/** Prints one line on standard error for each deleted pool that still has addresses in use. */
export async function warnOfDeleted(io: CommandIo, store: Client, deleted: readonly Resource[]): Promise<void> {
  const pools = deleted.flatMap((each) => (each.kind === "IPPool" ? (readPool(each, ignoreUnreadable) ?? []) : []));
  if (pools.length === 0) return;
  for (const warning of await poolWarnings(store, pools)) io.err(`Warning: ${warning}\n`);
}

/** Returns no warnings if the addresses cannot be read: the deletion itself has succeeded. */
async function poolWarnings(store: Client, deleted: readonly IpPool[]): Promise<readonly string[]> {
  try {
    const { readAllocations } = await import("../../ipam/index.ts");
    const [allocations, { items }] = await Promise.all([
      readAllocations(store.datastore),
      store.list({ kind: "IPPool" }),
    ]);
    const remaining = items.flatMap((each) => readPool(each, ignoreUnreadable) ?? []);
    const inUse = allocations.filter(
      ({ address, coolingDown }) => !coolingDown && !remaining.some(({ cidr }) => cidrContains(cidr, address)),
    );
    return deleted.flatMap(({ name, cidr, blockSize }) => {
      const count = inUse.filter(({ address }) => cidrContains(cidr, address)).length;
      if (count === 0) return [];
      const [addresses, have] = count === 1 ? ["address", "is"] : ["addresses", "are"];
      return [
        `IPPool(${name}) is deleted, but ${count} ${addresses} of ${cidr} ${have} still in use: nodes no longer have routes to each other's addresses of this pool, so traffic between nodes fails, and outgoing NAT and encapsulation end for them; fix: create the pool again with cidr ${cidr} and blockSize ${blockSize}. Before a pool is deleted, disable it (spec.disabled: true) and move its workloads to another pool`,
      ];
    });
  } catch {
    return [];
  }
}

function mtuWarnings(resource: Resource): readonly string[] {
  const { metadata } = resource;
  const settings = specFields(resource);
  return (Object.keys(MTU_SETTINGS) as MtuSetting[]).flatMap((setting) => {
    const { tunnel, overhead } = MTU_SETTINGS[setting];
    const mtu = settings[setting];
    if (typeof mtu !== "number" || mtu + overhead <= USUAL_MTU) return [];
    return [
      `FelixConfiguration(${metadata.name}) spec.${setting} is ${mtu}: with the ${overhead} bytes of ${tunnel}, all networks between nodes must carry packets of ${mtu + overhead} bytes (most carry ${USUAL_MTU}), otherwise large packets of pods are lost; 0 lets Felix detect the MTU`,
    ];
  });
}

/** The kinds that doctor needs to detect a node that has the address of another interface than its peer expects. */
const PEERING_KINDS = [
  "Node",
  "BGPConfiguration",
  "BGPPeer",
  "BGPFilter",
  "IPPool",
  "CalicoNodeStatus",
] as const satisfies readonly KindName[];

/** Returns no warnings if the other resources cannot be read: the write itself has succeeded. */
async function peerWarnings(store: Client, peers: readonly Resource[]): Promise<readonly string[]> {
  try {
    const lists = await Promise.all(PEERING_KINDS.map(async (kind) => (await store.list({ kind })).items));
    const { sourceAddressFaults } = await import("../doctor/examine.ts");
    const { clusterFacts } = await import("../doctor/facts.ts");
    const cluster = clusterFacts(lists.flat());
    const addresses = new Set<string | undefined>(
      peers.flatMap(({ metadata }) => cluster.bgp.peers.get(metadata.name)?.peerAddress?.address ?? []),
    );
    return sourceAddressFaults(cluster)
      .filter(({ peer }) => addresses.has(peer))
      .map(({ problem, fix }) => `${problem}; fix: ${fix}`);
  } catch {
    return [];
  }
}
