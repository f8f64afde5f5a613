// Compares all allocations with everything that uses an address, for `calicoctl ipam check`.
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
  /** The owner of the block: `host:NODE` or `virtual:NAME`. */
  readonly affinity?: string;
  readonly handleId?: string;
  readonly attributes: Labels;
  readonly sequenceNumber?: bigint;
  /** Released, and not assignable until the cooldown ends. */
  readonly coolingDown: boolean;
  /** Assigned to a node from another node's block. */
  readonly borrowed: boolean;
}

/** A workload endpoint or tunnel whose resource contains an address. */
export interface AddressUser {
  readonly address: IpAddress;
  readonly kind: "workload" | "tunnel";
  /** For example `workload endpoint default/n1-k8s-web-eth0` or `IPIP tunnel of node n1`. */
  readonly name: string;
}

export interface UsageFindings {
  /** Allocated, but not used. */
  readonly leaked: readonly AllocationRecord[];
  /** Used, but outside all enabled pools, so IPAM does not manage the address. */
  readonly outsidePools: readonly AddressUser[];
  /** Used inside a pool, but not allocated, so IPAM may assign the address a second time. */
  readonly unallocated: readonly AddressUser[];
  /** Used more than once. */
  readonly shared: readonly { readonly address: IpAddress; readonly users: readonly AddressUser[] }[];
}

export async function readAllocations(datastore: Datastore): Promise<readonly AllocationRecord[]> {
  return (await new Records(datastore).blocks()).flatMap(({ value }) => allocationsIn(value));
}

/** Addresses that a host reserves in its blocks are left out. */
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

/** @param pools the CIDRs of the enabled pools */
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

/**
 * A virtual machine keeps its addresses while it is stopped, and two pods use them while it migrates. The IPAM garbage
 * collector releases them when the machine is deleted.
 */
const isMachine = ({ attributes, handleId = "" }: AllocationRecord): boolean =>
  attributes[ATTRIBUTE.vmiName] !== undefined || machineOfHandle(handleId) !== undefined;

/** The load-balancer controller releases addresses of services. Services are not read here, so their use is unknown. */
const isService = ({ attributes }: AllocationRecord): boolean => attributes[ATTRIBUTE.service] !== undefined;
