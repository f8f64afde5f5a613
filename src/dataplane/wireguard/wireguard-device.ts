// Keeps the WireGuard device of this node: link, key, address and peers. The private key is generated here and stored only in
// the kernel. An existing device keeps its key when Felix restarts.
import {
  hasErrno,
  type Link,
  type Rtnetlink,
  type Wireguard,
  type WireguardChange,
  type WireguardDevice,
  type WireguardPeer,
} from "../../kernel/index.ts";
import { addressBits, type IpAddress, type IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";

export interface WireguardKernel {
  /** Returns undefined if the kernel does not support WireGuard. The module may be loaded later. */
  open(): Wireguard | undefined;
  /** Enables or disables a separate kernel thread for decryption. */
  setThreadedNapi(interfaceName: string, on: boolean): void;
}

export interface WireguardDeviceOptions {
  readonly version: IpVersion;
  readonly interfaceName: string;
  readonly port: number;
  /** The mark of encrypted packets, so that they are not encrypted again. */
  readonly mark: number;
  readonly mtu: number;
  readonly isThreaded: boolean;
  readonly kernel: Pick<Rtnetlink, "links" | "addresses"> & { readonly wireguard: WireguardKernel };
  readonly logger: Logger;
  /** The setting that requires WireGuard, for the log. */
  readonly setting: string;
  readonly randomKey?: () => string;
}

const RETRY_MS = 10_000;

export class WireguardDeviceReconciler implements Reconciler {
  readonly name: string;
  readonly #options: WireguardDeviceOptions;
  readonly #log: Logger;
  readonly #desired = new Map<string, WireguardPeer>(); // by public key
  readonly #actual = new Map<string, WireguardPeer>();
  readonly #dirty = new Set<string>();
  #address: IpAddress | undefined;
  #socket: Wireguard | undefined;
  #publicKey: string | undefined;
  #needsResync = true;
  #isThreadingSet = false;
  #lastError = "";

  constructor(options: WireguardDeviceOptions) {
    this.#options = options;
    this.name = `WireGuard device IPv${options.version}`;
    this.#log = options.logger.with({ device: options.interfaceName });
  }

  /** The public key of this node; undefined before the device works, empty if the kernel does not support WireGuard. */
  get publicKey(): string | undefined {
    return this.#publicKey;
  }

  setAddress(address: IpAddress | undefined): void {
    if (address === this.#address) return;
    this.#address = address;
    this.#needsResync = true;
  }

  setPeer(peer: WireguardPeer): void {
    this.#desired.set(peer.publicKey, peer);
    this.#dirty.add(peer.publicKey);
  }

  removePeer(publicKey: string): void {
    this.#desired.delete(publicKey);
    this.#dirty.add(publicKey);
  }

  queueResync(): void {
    this.#needsResync = true;
  }

  apply(): ApplyOutcome {
    if (!this.#needsResync && this.#dirty.size === 0) return {};
    try {
      if (this.#needsResync) this.#resync();
      this.#writePeers();
      this.#setThreading();
      this.#needsResync = false;
      if (this.#lastError !== "") this.#log.info("WireGuard device is configured");
      this.#lastError = "";
      return {};
    } catch (error) {
      this.#needsResync = true;
      return this.#onFailure(error);
    }
  }

  /** Without a device, traffic is not encrypted. This is logged, and an empty key is published. */
  #onFailure(error: unknown): ApplyOutcome {
    const reason = describeError(error);
    const isMissing = error instanceof WireguardUnsupported || hasErrno(error, "EOPNOTSUPP");
    if (reason !== this.#lastError)
      this.#log.warn(
        isMissing
          ? "kernel does not support WireGuard; traffic to other nodes is not encrypted"
          : "configuring the WireGuard device failed; traffic to other nodes is not encrypted; retrying",
        { setting: this.#options.setting, error: reason },
      );
    this.#lastError = reason;
    if (isMissing) this.#publicKey = "";
    return { againInMs: RETRY_MS };
  }

  #resync(): void {
    const link = this.#ensureLink();
    const { interfaceName, port, mark, kernel, randomKey = newPrivateKey } = this.#options;
    this.#socket ??= kernel.wireguard.open();
    if (this.#socket === undefined) throw new WireguardUnsupported("the kernel has no netlink family wireguard");
    let device = this.#read(this.#socket);
    const change: { -readonly [K in keyof WireguardChange]: WireguardChange[K] } = {};
    if (device.publicKey === undefined) {
      change.privateKey = randomKey();
      this.#log.info("generated a new WireGuard key");
    }
    if (device.port !== port) change.port = port;
    if (device.mark !== mark) change.mark = mark;
    if (Object.keys(change).length > 0) {
      this.#socket.set(interfaceName, change);
      device = this.#read(this.#socket);
    }
    if (device.publicKey === undefined) throw new Error(`device ${interfaceName} has no key after it was set`);
    this.#publicKey = device.publicKey;
    if (link.mtu !== this.#options.mtu) kernel.links.set(interfaceName, { mtu: this.#options.mtu });
    this.#ensureAddress(link.index);
    if (!link.isUp) kernel.links.set(interfaceName, { up: true });
    this.#compare(device);
  }

  #read(socket: Wireguard): WireguardDevice {
    const device = socket.get(this.#options.interfaceName);
    if (device === undefined) throw new Error(`device ${this.#options.interfaceName} was deleted`);
    return device;
  }

  #ensureLink(): Link {
    const { interfaceName: name, mtu, kernel } = this.#options;
    const found = kernel.links.get(name);
    if (found === undefined) {
      this.#isThreadingSet = false;
      kernel.links.create({ name, type: { kind: "wireguard" }, mtu });
    } else if (found.kind !== "wireguard")
      throw new Error(`${name} is a ${found.kind ?? "device"} of another program; rename or delete it`);
    const link = kernel.links.get(name);
    if (link === undefined) throw new Error(`device ${name} does not exist after its creation`);
    return link;
  }

  /** The device has one address of its family, or none. */
  #ensureAddress(link: number): void {
    const { version, kernel } = this.#options;
    const length = addressBits(version);
    let hasAddress = false;
    for (const found of kernel.addresses.list({ version, link })) {
      if (found.address === this.#address && found.length === length) hasAddress = true;
      else if (found.scope !== "link") kernel.addresses.delete({ link, address: found.address, length: found.length });
    }
    if (!hasAddress && this.#address !== undefined)
      kernel.addresses.replace({ link, address: this.#address, length, noDuplicateDetection: version === 6 });
  }

  #compare(device: WireguardDevice): void {
    const isFirst = this.#actual.size === 0;
    this.#actual.clear();
    let changed = 0;
    for (const peer of device.peers) this.#actual.set(peer.publicKey, peer);
    for (const key of new Set([...this.#actual.keys(), ...this.#desired.keys()])) {
      if (isSamePeer(this.#desired.get(key), this.#actual.get(key))) continue;
      if (!this.#dirty.has(key)) changed++;
      this.#dirty.add(key);
    }
    if (changed > 0 && !isFirst)
      this.#log.info("another program changed WireGuard peers; restoring them", { count: changed });
  }

  #writePeers(): void {
    const set: WireguardPeer[] = [];
    const remove: string[] = [];
    for (const key of this.#dirty) {
      const desired = this.#desired.get(key);
      const actual = this.#actual.get(key);
      if (desired === undefined) {
        if (actual !== undefined) remove.push(key);
      } else if (!isSamePeer(desired, actual)) set.push(desired);
    }
    if (set.length + remove.length > 0) this.#socket?.set(this.#options.interfaceName, { set, remove });
    for (const key of remove) this.#actual.delete(key);
    for (const peer of set) this.#actual.set(peer.publicKey, peer);
    this.#dirty.clear();
  }

  /** Has no effect before the first peer exists, because the kernel creates the threads with its receive queue. */
  #setThreading(): void {
    if (this.#isThreadingSet || this.#actual.size === 0) return;
    this.#isThreadingSet = true;
    const { interfaceName, isThreaded, kernel } = this.#options;
    try {
      kernel.wireguard.setThreadedNapi(interfaceName, isThreaded);
    } catch (error) {
      if (isThreaded)
        this.#log.warn("kernel does not support threads for WireGuard", {
          setting: "WireguardThreadingEnabled",
          error: describeError(error),
        });
    }
  }
}

class WireguardUnsupported extends Error {
  override readonly name = "WireguardUnsupported";
}

function isSamePeer(a: WireguardPeer | undefined, b: WireguardPeer | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return (
    a.endpoint?.address === b.endpoint?.address &&
    a.endpoint?.port === b.endpoint?.port &&
    (a.keepaliveSeconds ?? 0) === (b.keepaliveSeconds ?? 0) &&
    a.allowed.length === b.allowed.length &&
    new Set(a.allowed).isSupersetOf(new Set(b.allowed))
  );
}

/** Curve25519 requires some fixed bits (RFC 7748, section 5). */
function newPrivateKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  bytes[0] = (bytes[0] ?? 0) & 248;
  bytes[31] = ((bytes[31] ?? 0) & 127) | 64;
  return btoa(String.fromCharCode(...bytes));
}
