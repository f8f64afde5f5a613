// Every allocation there is, beside everything that uses an address: what the check of a cluster compares.
import type { Datastore } from "../../datastore/index.ts";
import { type Cidr, cidrContains, type IpAddress } from "../../lib/ip/ip.ts";
import {
  type Block,
  ignoreUnreadable,
  type Labels,
  readNode,
  readWorkloadAddresses,
  type Resource,
  tunnelAddresses,
} from "../../model/index.ts";
import { addressAt, isCooling, sameHandle, WINDOWS_RESERVED_HANDLE } from "../blocks/block.ts";
import { ATTRIBUTE, machineOfHandle } from "../names.ts";
import { Records } from "../records.ts";

export interface AllocationRecord {
  readonly address: IpAddress;
  readonly block: Cidr;
  /** Whose block it is. */
  readonly affinity?: string;
  readonly handleId?: string;
  readonly attributes: Labels;
  readonly sequenceNumber?: bigint;
  /** Given back, and resting. */
  readonly coolingDown: boolean;
  /** Held by a node out of another node's block. */
  readonly borrowed: boolean;
}

/** Something that says it has an address. */
export interface AddressUser {
  readonly address: IpAddress;
  readonly kind: "workload" | "tunnel";
  /** In words: `workload endpoint default/n1-k8s-web-eth0`, `IPIP tunnel of node n1`. */
  readonly name: string;
}

export interface UsageFindings {
  /** Allocated, and nobody has it. */
  readonly leaked: readonly AllocationRecord[];
  /** In use, and in no enabled pool: not ours to judge, but worth knowing. */
  readonly outsidePools: readonly AddressUser[];
  /** In use inside a pool, and anybody may be given it. */
  readonly unallocated: readonly AddressUser[];
  /** One address, two users. */
  readonly shared: readonly { readonly address: IpAddress; readonly users: readonly AddressUser[] }[];
}

export async function readAllocations(datastore: Datastore): Promise<readonly AllocationRecord[]> {
  return (await new Records(datastore).blocks()).flatMap(({ value }) => allocationsIn(value));
}

/** What a host keeps of its blocks for itself is not an allocation. */
export function allocationsIn(block: Block): AllocationRecord[] {
  return block.allocations.flatMap((index, ordinal) => {
    if (index === null) return [];
    const entry = block.attributes[index] ?? {};
    if (sameHandle(entry.handleId, WINDOWS_RESERVED_HANDLE)) return [];
    const attributes = entry.secondary ?? {};
    const node = attributes[ATTRIBUTE.node];
    const sequenceNumber = block.sequenceNumberForAllocation[ordinal];
    return [
      {
        address: addressAt(block, ordinal),
        block: block.cidr,
        attributes,
        coolingDown: isCooling(entry),
        borrowed:
          node !== undefined && block.affinity?.startsWith("host:") === true && block.affinity !== `host:${node}`,
        affinity: block.affinity,
        handleId: entry.handleId,
        sequenceNumber,
      },
    ];
  });
}

export async function readUsers(datastore: Datastore): Promise<readonly AddressUser[]> {
  const records = new Records(datastore);
  const [endpoints, nodes] = await Promise.all([records.resources("WorkloadEndpoint"), records.resources("Node")]);
  return [...endpoints.flatMap(usersOfEndpoint), ...nodes.flatMap(usersOfNode)];
}

function usersOfEndpoint(endpoint: Resource): AddressUser[] {
  const { namespace = "", name } = endpoint.metadata;
  return readWorkloadAddresses(endpoint, ignoreUnreadable).map((address) => ({
    address,
    kind: "workload",
    name: `workload endpoint ${namespace}/${name}`,
  }));
}

const TUNNEL_NAMES = { ipip: "IPIP", vxlan: "VXLAN", wireguard: "WireGuard" } as const;

function usersOfNode(resource: Resource): AddressUser[] {
  const node = readNode(resource, ignoreUnreadable);
  return tunnelAddresses(node).map(({ type, address }) => ({
    address,
    kind: "tunnel",
    name: `${TUNNEL_NAMES[type]} tunnel of node ${node.name}`,
  }));
}

/** @param pools ranges of the enabled pools */
export function compareUsage(
  allocations: readonly AllocationRecord[],
  users: readonly AddressUser[],
  pools: readonly Cidr[],
): UsageFindings {
  const byAddress = Map.groupBy(users, ({ address }) => address);
  const allocated = new Set(allocations.filter(({ coolingDown }) => !coolingDown).map(({ address }) => address));
  const unallocatedUsers = users.filter(({ address }) => !allocated.has(address));
  const machines = new Set(allocations.filter(isMachine).map(({ address }) => address));
  const inPool = (address: IpAddress) => pools.some((pool) => cidrContains(pool, address));
  return {
    leaked: allocations.filter(
      (record) => !record.coolingDown && !byAddress.has(record.address) && !isService(record) && !isMachine(record),
    ),
    outsidePools: users.filter(({ address }) => !inPool(address)),
    unallocated: unallocatedUsers.filter(({ address }) => inPool(address)),
    shared: [...byAddress].flatMap(([address, all]) =>
      all.length > 1 && !machines.has(address) ? [{ address, users: all }] : [],
    ),
  };
}

/** A machine has its addresses also while it is off, and in two pods while it moves; a controller sees when it is gone. */
const isMachine = ({ attributes, handleId = "" }: AllocationRecord): boolean =>
  attributes[ATTRIBUTE.vmiName] !== undefined || machineOfHandle(handleId) !== undefined;

/** Addresses of services are kept by a controller that sees services; here nothing says whether they are used. */
const isService = ({ attributes }: AllocationRecord): boolean => attributes[ATTRIBUTE.service] !== undefined;
