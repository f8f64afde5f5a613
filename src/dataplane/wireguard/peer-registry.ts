// Determines the WireGuard peers and their prefixes from messages. It does not access the kernel.
//
// A node is a peer if its address and key are known, and no other node has the same key. If two nodes publish the same key,
// neither is a peer, because it is undefined which of them could decrypt the packets.
import { ROUTE_TYPE } from "../../calc/index.ts";
import type { WireguardPeer } from "../../kernel/index.ts";
import { type Cidr, type IpAddress, type IpVersion, tryParseNetwork } from "../../lib/ip/ip.ts";
import type { ManagerMessage } from "../loop/manager.ts";

export interface PeerRegistryOptions {
  readonly hostname: string;
  readonly version: IpVersion;
  /** Traffic of the hosts themselves is encrypted too. */
  readonly encryptsHosts: boolean;
  readonly port: number;
  readonly keepaliveSeconds: number;
}

interface Node {
  address?: IpAddress;
  key?: string;
  readonly prefixes: Set<Cidr>;
}

/** 32 bytes in base64. */
const IS_KEY = /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/;
const ZERO_KEY = `${"A".repeat(43)}=`;
const ENCRYPTED_TYPES =
  ROUTE_TYPE.localWorkload | ROUTE_TYPE.remoteWorkload | ROUTE_TYPE.localTunnel | ROUTE_TYPE.remoteTunnel;

export class PeerRegistry {
  readonly #options: PeerRegistryOptions;
  readonly #nodes = new Map<string, Node>();
  readonly #nodeOfPrefix = new Map<Cidr, string>();
  readonly #claims = new Map<string, Set<string>>();
  readonly #changed = new Set<string>();
  readonly #freed = new Set<Cidr>();
  #interfaceAddress: IpAddress | undefined;
  #publishedKey = "";

  constructor(options: PeerRegistryOptions) {
    this.#options = options;
  }

  /** The key of this node in the datastore. */
  get publishedKey(): string {
    return this.#publishedKey;
  }

  /** The address of the device of this node: its own, or the node's address if host traffic is encrypted. */
  get deviceAddress(): IpAddress | undefined {
    if (this.#interfaceAddress !== undefined) return this.#interfaceAddress;
    return this.#options.encryptsHosts ? this.#nodes.get(this.#options.hostname)?.address : undefined;
  }

  /** Returns changed nodes, and prefixes that no node has any more, since the last call. */
  takeChanges(): { readonly nodes: ReadonlySet<string>; readonly freed: ReadonlySet<Cidr> } {
    const nodes = new Set(this.#changed);
    const freed = new Set([...this.#freed].filter((prefix) => !this.#nodeOfPrefix.has(prefix)));
    this.#changed.clear();
    this.#freed.clear();
    return { nodes, freed };
  }

  get nodes(): Iterable<string> {
    return this.#nodes.keys();
  }

  prefixesOf(node: string): ReadonlySet<Cidr> {
    return this.#nodes.get(node)?.prefixes ?? new Set();
  }

  peerOf(name: string): WireguardPeer | undefined {
    const { hostname, port, keepaliveSeconds } = this.#options;
    const node = this.#nodes.get(name);
    if (name === hostname || node?.address === undefined || node.key === undefined) return undefined;
    if (this.#claims.get(node.key)?.size !== 1) return undefined;
    return {
      publicKey: node.key,
      endpoint: { address: node.address, port },
      keepaliveSeconds,
      allowed: [...node.prefixes].sort(),
    };
  }

  onUpdate(message: ManagerMessage): void {
    const { version, encryptsHosts } = this.#options;
    switch (message.type) {
      case "hostMetadataUpdate": {
        const text = version === 4 ? message.ipv4Addr : message.ipv6Addr;
        return this.#setAddress(message.hostname, text === "" ? undefined : tryParseNetwork(text)?.address);
      }
      case "hostMetadataRemove":
        return this.#setAddress(message.hostname, undefined);
      case "wireguardUpdate":
        if (message.ipVersion !== version) return;
        return this.#setKey(message.hostname, message.publicKey, message.interfaceAddr || undefined);
      case "wireguardRemove":
        if (message.ipVersion === version) this.#setKey(message.hostname, "", undefined);
        return;
      case "routeUpdate": {
        if (message.dst.includes(":") !== (version === 6)) return;
        // The address of a host is treated as such even if a tunnel has it too.
        const isHost = (message.types & ROUTE_TYPE.remoteHost) !== 0;
        const isEncrypted = isHost ? encryptsHosts : (message.types & ENCRYPTED_TYPES) !== 0;
        return this.#setPrefix(message.dst, isEncrypted ? message.dstNodeName : undefined);
      }
      case "routeRemove":
        return this.#setPrefix(message.dst, undefined);
      default:
        return;
    }
  }

  #setAddress(name: string, address: IpAddress | undefined): void {
    this.#change(name, (node) => {
      if (address === undefined) delete node.address;
      else node.address = address;
    });
  }

  #setKey(name: string, text: string, interfaceAddress: IpAddress | undefined): void {
    // All other nodes write the published key to their kernels in one message. An invalid key is ignored.
    const key = text === ZERO_KEY || !IS_KEY.test(text) ? undefined : text;
    if (name === this.#options.hostname) {
      this.#publishedKey = key ?? "";
      this.#interfaceAddress = interfaceAddress;
    }
    const before = this.#nodes.get(name)?.key;
    if (before !== key) {
      this.#claim(before, (nodes) => nodes.delete(name));
      this.#claim(key, (nodes) => nodes.add(name));
    }
    this.#change(name, (node) => {
      if (key === undefined) delete node.key;
      else node.key = key;
    });
  }

  /** Any node with this key may become a peer, or stop being one. */
  #claim(key: string | undefined, change: (nodes: Set<string>) => void): void {
    if (key === undefined) return;
    const nodes = this.#claims.get(key) ?? new Set();
    change(nodes);
    if (nodes.size === 0) this.#claims.delete(key);
    else this.#claims.set(key, nodes);
    for (const node of nodes) this.#changed.add(node);
  }

  #setPrefix(prefix: Cidr, owner: string | undefined): void {
    const before = this.#nodeOfPrefix.get(prefix);
    if (before === owner) return;
    if (before !== undefined) {
      this.#nodeOfPrefix.delete(prefix);
      this.#freed.add(prefix);
      this.#change(before, (node) => node.prefixes.delete(prefix));
    }
    if (owner === undefined) return;
    this.#nodeOfPrefix.set(prefix, owner);
    this.#change(owner, (node) => node.prefixes.add(prefix));
  }

  #change(name: string, change: (node: Node) => void): void {
    const node = this.#nodes.get(name) ?? { prefixes: new Set<Cidr>() };
    change(node);
    if (node.address === undefined && node.key === undefined && node.prefixes.size === 0) this.#nodes.delete(name);
    else this.#nodes.set(name, node);
    this.#changed.add(name);
  }
}
