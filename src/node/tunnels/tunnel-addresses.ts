// Assigns the addresses of this node's tunnels: each from a pool that uses the tunnel, with its own IPAM handle, and recorded
// in the Node resource. The address is released when no pool uses the tunnel any more.
import { type Client, Conflict, DatastoreError } from "../../datastore/index.ts";
import {
  type Allocation,
  ATTRIBUTE,
  describeShortage,
  InCooldown,
  type Ipam,
  NotAssigned,
  type Tunnel,
  tunnelAttributeType,
  tunnelHandle,
  UnknownHandle,
} from "../../ipam/index.ts";
import {
  type Cidr,
  cidrAddress,
  cidrContains,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseAddress,
} from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import {
  ignoreUnreadable,
  type IpPool,
  matchesSelector,
  type Node,
  parseSelector,
  readFelixConfiguration,
  readNode,
  readPool,
} from "../../model/index.ts";
import { FatalNodeError } from "../failure.ts";
import type { NodeSpec } from "../startup/node-addresses.ts";
import { findNode, type NodeResource } from "../startup/startup.ts";

/** One tunnel type in one family: the field of its address in the Node, and the pools that use it. */
interface TunnelKind {
  readonly tunnel: Tunnel;
  readonly version: IpVersion;
  readonly read: (spec: NodeSpec) => string | undefined;
  readonly write: (spec: NodeSpec, address: string | undefined) => NodeSpec;
  readonly isUsedBy: (pool: IpPool, node: Node, hostEncryption: boolean) => boolean;
}

/** In order of assignment. WireGuard is first, because pools of any type use it. */
const KINDS: readonly TunnelKind[] = [
  wireguard(4),
  wireguard(6),
  {
    tunnel: "ipip",
    version: 4,
    read: (spec) => spec.bgp?.ipv4IPIPTunnelAddr,
    write: (spec, ipv4IPIPTunnelAddr) => withSection(spec, "bgp", { ...spec.bgp, ipv4IPIPTunnelAddr }),
    isUsedBy: (pool) => pool.ipipMode !== "Never",
  },
  vxlan(4),
  vxlan(6),
];

function wireguard(version: IpVersion): TunnelKind {
  const field = version === 4 ? "interfaceIPv4Address" : "interfaceIPv6Address";
  return {
    tunnel: "wireguard",
    version,
    read: (spec) => spec.wireguard?.[field],
    write: (spec, address) => withSection(spec, "wireguard", { ...spec.wireguard, [field]: address }),
    // With host encryption, the tunnel uses the node's own address.
    isUsedBy: (_, node, hostEncryption) => node.wireguardKeys[version] !== undefined && !hostEncryption,
  };
}

function vxlan(version: IpVersion): TunnelKind {
  const field = version === 4 ? "ipv4VXLANTunnelAddr" : "ipv6VXLANTunnelAddr";
  return {
    tunnel: "vxlan",
    version,
    read: (spec) => spec[field],
    write: (spec, address) => {
      const { [field]: _, ...rest } = spec;
      return address === undefined ? rest : { ...rest, [field]: address };
    },
    isUsedBy: (pool) => pool.vxlanMode !== "Never",
  };
}

/** Removes the section if it has no fields. */
function withSection(spec: NodeSpec, name: "bgp" | "wireguard", fields: Readonly<Record<string, unknown>>): NodeSpec {
  const { [name]: _, ...rest } = spec;
  const kept = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));
  return Object.keys(kept).length === 0 ? rest : { ...rest, [name]: kept };
}

export interface TunnelInputs {
  readonly client: Client;
  readonly ipam: Ipam;
  readonly node: string;
  readonly log: Logger;
  readonly signal?: AbortSignal;
}

const WRITE_ATTEMPTS = 5;

/** Assigns and releases the node's tunnel addresses as the pools require. Writes the Node only if an address changed. */
export async function reconcileTunnelAddresses(inputs: TunnelInputs): Promise<void> {
  const { client, node: name } = inputs;
  const stored = await findNode(client, name);
  if (stored === undefined) throw new FatalNodeError(`Node ${name} does not exist: run calico-node -startup first`);
  const node = readNode(stored, ignoreUnreadable);
  const { items } = await client.list({ kind: "IPPool" });
  const pools = items
    .flatMap((each) => readPool(each, ignoreUnreadable) ?? [])
    .filter((each) => isEligible(each, node));
  const hostEncryption = await hasHostEncryption(client);
  const assigned: string[] = [];
  const changes = new Map<TunnelKind, string | undefined>();
  try {
    for (const kind of KINDS) {
      const cidrs = pools
        .filter((pool) => ipVersion(pool.cidr) === kind.version && kind.isUsedBy(pool, node, hostEncryption))
        .map(({ cidr }) => cidr);
      const worker = new TunnelWorker(kind, inputs, (handle) => assigned.push(handle));
      const address = await worker.reconcile(kind.read(stored.spec), cidrs);
      if ((address ?? "") !== (kind.read(stored.spec) ?? "")) changes.set(kind, address);
    }
    if (changes.size > 0) await writeAddresses(inputs, stored, changes);
  } catch (error) {
    for (const handle of assigned) await inputs.ipam.releaseByHandle(handle).catch(() => {});
    throw error;
  }
}

function isEligible({ isDisabled, isDeleting, allowedUses, nodeSelector }: IpPool, node: Node): boolean {
  if (isDisabled || isDeleting || !allowedUses.includes("Tunnel")) return false;
  return nodeSelector === "" || matchesSelector(parseSelector(nodeSelector), node.labels);
}

async function hasHostEncryption(client: Client): Promise<boolean> {
  try {
    const configuration = await client.get({ kind: "FelixConfiguration", name: "default" });
    return readFelixConfiguration(configuration, ignoreUnreadable).wireguardHostEncryptionEnabled;
  } catch (error) {
    if (error instanceof DatastoreError && error.name === "NotFound") return false;
    throw error;
  }
}

/** Changes only the tunnel addresses, so that concurrent changes of other fields are kept. */
async function writeAddresses(
  { client, node: name }: TunnelInputs,
  first: NodeResource,
  changes: ReadonlyMap<TunnelKind, string | undefined>,
): Promise<void> {
  for (let attempt = 1, node: NodeResource | undefined = first; node !== undefined; attempt++) {
    let spec = node.spec;
    for (const [kind, address] of changes) spec = kind.write(spec, address);
    try {
      await client.update({ ...node, spec });
      return;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt >= WRITE_ATTEMPTS) throw error;
      node = await findNode(client, name);
    }
  }
  throw new FatalNodeError(`Node ${name} was deleted while its tunnel addresses were assigned`);
}

/** Reconciles the address of one tunnel with the Node resource and IPAM. */
class TunnelWorker {
  readonly #handle: string;
  readonly #type: string;

  constructor(
    readonly kind: TunnelKind,
    readonly inputs: TunnelInputs,
    readonly onAssigned: (handle: string) => void,
  ) {
    this.#handle = tunnelHandle(kind.tunnel, kind.version, inputs.node);
    this.#type = tunnelAttributeType(kind.tunnel, kind.version);
  }

  /** @returns the address that the Node should have */
  async reconcile(text: string | undefined, pools: readonly Cidr[]): Promise<string | undefined> {
    const current = text === undefined ? undefined : tryParseAddress(text);
    if (pools.length === 0) {
      await this.#release(current);
      return undefined;
    }
    if (current === undefined) {
      await this.#releaseHandle();
      return this.#assign(pools);
    }
    return this.#keepOrReplace(current, pools);
  }

  async #keepOrReplace(current: IpAddress, pools: readonly Cidr[]): Promise<string> {
    const allocation = await this.#allocationOf(current);
    if (allocation === undefined) {
      await this.#releaseHandle();
      return this.#assign(pools);
    }
    if (this.#isOwn(allocation)) {
      if (pools.some((pool) => cidrContains(pool, current))) return current;
      await this.#releaseAddress(allocation);
      return this.#assign(pools);
    }
    if (hasNoHandle(allocation)) {
      // Assigned by an old Calico, which used no handles: assign the same address again, with a handle.
      await this.#releaseAddress(allocation);
      await this.#claim(current);
      return current;
    }
    this.inputs.log.warn("tunnel address belongs to another owner; assigning a new one", {
      address: current,
      owner: allocation.handleId,
    });
    return this.#assign(pools);
  }

  /** No pool needs this tunnel. */
  async #release(current: IpAddress | undefined): Promise<void> {
    if (await this.#releaseHandle()) return;
    if (current === undefined) return;
    const allocation = await this.#allocationOf(current);
    if (allocation === undefined) return;
    if (hasNoHandle(allocation) || allocation.handleId === this.#handle) await this.#releaseAddress(allocation);
    else
      this.inputs.log.warn("tunnel address belongs to another owner; not releasing it", {
        address: current,
        owner: allocation.handleId,
      });
  }

  async #assign(pools: readonly Cidr[]): Promise<string> {
    const { ipam, node, signal, log } = this.inputs;
    const result = await ipam.autoAssign(
      {
        version: this.kind.version,
        count: 1,
        host: node,
        handleId: this.#handle,
        attributes: this.#attributes,
        use: "Tunnel",
        pools,
      },
      signal,
    );
    const [cidr] = result.addresses;
    if (cidr === undefined)
      throw new FatalNodeError(`no address for the ${this.kind.tunnel} tunnel: ${describeShortage(result)}`);
    this.onAssigned(this.#handle);
    const address = cidrAddress(cidr);
    log.info("assigned tunnel address", { tunnel: this.kind.tunnel, address });
    return address;
  }

  async #claim(address: IpAddress): Promise<void> {
    const { ipam, node, signal } = this.inputs;
    const request = {
      address,
      host: node,
      handleId: this.#handle,
      attributes: this.#attributes,
      use: "Tunnel",
    } as const;
    await ipam.assignAddress(request, signal);
    this.onAssigned(this.#handle);
  }

  get #attributes() {
    return { [ATTRIBUTE.node]: this.inputs.node, [ATTRIBUTE.type]: this.#type };
  }

  #isOwn({ attributes }: Allocation): boolean {
    return attributes[ATTRIBUTE.type] === this.#type && attributes[ATTRIBUTE.node] === this.inputs.node;
  }

  async #allocationOf(address: IpAddress): Promise<Allocation | undefined> {
    try {
      return await this.inputs.ipam.allocationOf(address, this.inputs.signal);
    } catch (error) {
      if (error instanceof NotAssigned || error instanceof InCooldown) return undefined;
      throw error;
    }
  }

  /** @returns false if the handle does not exist */
  async #releaseHandle(): Promise<boolean> {
    try {
      await this.inputs.ipam.releaseByHandle(this.#handle, this.inputs.signal);
      return true;
    } catch (error) {
      if (error instanceof UnknownHandle) return false;
      throw error;
    }
  }

  async #releaseAddress({ address, handleId, sequenceNumber }: Allocation): Promise<void> {
    const request = {
      address,
      handleId,
      sequenceNumber,
    };
    const { error } = await this.inputs.ipam.release([request], this.inputs.signal);
    if (error !== undefined) throw error;
  }
}

const hasNoHandle = ({ handleId, attributes }: Allocation): boolean =>
  (handleId ?? "") === "" && Object.keys(attributes).length === 0;
