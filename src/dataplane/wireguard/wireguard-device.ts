// Our WireGuard device: the link, its key, its address, its peers. The private key is made here, given to the kernel and
// forgotten; a device that has one keeps it over restarts, so that the others need not learn a new one.
import {
  hasErrno,
  type Link,
  type RouteKernel,
  type Wireguard,
  type WireguardChange,
  type WireguardDevice,
  type WireguardPeer,
} from "../../kernel/index.ts";
import { addressBits, type IpAddress, type IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";

export interface WireguardKernel {
  /** Nothing while the kernel has no WireGuard; a module may come later. */
  open(): Wireguard | undefined;
  /** Whether packets of the device are decrypted by a thread of their own. */
  setThreaded(interfaceName: string, on: boolean): void;
}

export interface WireguardDeviceOptions {
  readonly version: IpVersion;
  readonly interfaceName: string;
  readonly port: number;
  /** On the encrypted packets, so that they are not sent through the device again. */
  readonly mark: number;
  readonly mtu: number;
  readonly isThreaded: boolean;
  readonly kernel: Pick<RouteKernel, "links" | "addresses"> & { readonly wireguard: WireguardKernel };
  readonly logger: Logger;
  /** The setting that asks for all this, for the log. */
  readonly setting: string;
  readonly randomKey?: () => string;
}

const RETRY_MS = 10_000;

export class WireguardDeviceReconciler implements Reconciler {
  readonly name: string;
  readonly #options: WireguardDeviceOptions;
  readonly #log: Logger;
  readonly #wanted = new Map<string, WireguardPeer>(); // by public key
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

  /** Ours, once the device works: nothing yet, or empty when this kernel cannot. */
  get publicKey(): string | undefined {
    return this.#publicKey;
  }

  setAddress(address: IpAddress | undefined): void {
    if (address === this.#address) return;
    this.#address = address;
    this.#needsResync = true;
  }

  setPeer(peer: WireguardPeer): void {
    this.#wanted.set(peer.publicKey, peer);
    this.#dirty.add(peer.publicKey);
  }

  removePeer(publicKey: string): void {
    this.#wanted.delete(publicKey);
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
      if (this.#lastError !== "") this.#log.info("WireGuard works now");
      this.#lastError = "";
      return {};
    } catch (error) {
      this.#needsResync = true;
      return this.#onFailure(error);
    }
  }

  /** Traffic goes on unencrypted while there is no device: that is said, and the others are told not to expect any. */
  #onFailure(error: unknown): ApplyOutcome {
    const reason = describeError(error);
    const isMissing = error instanceof NoWireguard || hasErrno(error, "EOPNOTSUPP");
    if (reason !== this.#lastError)
      this.#log.warn(
        isMissing
          ? "this kernel has no WireGuard; traffic to other nodes goes unencrypted, and a module that comes is used"
          : "the WireGuard device cannot be set up; traffic to other nodes goes unencrypted; trying again",
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
    if (this.#socket === undefined) throw new NoWireguard("the kernel does not know the family wireguard");
    let device = this.#read(this.#socket);
    const change: { -readonly [K in keyof WireguardChange]: WireguardChange[K] } = {};
    if (device.publicKey === undefined) {
      change.privateKey = randomKey();
      this.#log.info("a new WireGuard key is made");
    }
    if (device.port !== port) change.port = port;
    if (device.mark !== mark) change.mark = mark;
    if (Object.keys(change).length > 0) {
      this.#socket.set(interfaceName, change);
      device = this.#read(this.#socket);
    }
    if (device.publicKey === undefined) throw new Error(`device ${interfaceName} did not take a key`);
    this.#publicKey = device.publicKey;
    if (link.mtu !== this.#options.mtu) kernel.links.set(interfaceName, { mtu: this.#options.mtu });
    this.#ensureAddress(link.index);
    if (!link.isUp) kernel.links.set(interfaceName, { up: true });
    this.#compare(device);
  }

  #read(socket: Wireguard): WireguardDevice {
    const device = socket.get(this.#options.interfaceName);
    if (device === undefined) throw new Error(`device ${this.#options.interfaceName} went away`);
    return device;
  }

  #ensureLink(): Link {
    const { interfaceName: name, mtu, kernel } = this.#options;
    const found = kernel.links.get(name);
    if (found === undefined) {
      this.#isThreadingSet = false;
      kernel.links.create({ name, type: { kind: "wireguard" }, mtu });
    } else if (found.kind !== "wireguard")
      throw new Error(`${name} is a ${found.kind ?? "device"} of somebody else; rename or delete it`);
    const link = kernel.links.get(name);
    if (link === undefined) throw new Error(`device ${name} is not there after it was made`);
    return link;
  }

  /** One address of its family, or none. */
  #ensureAddress(link: number): void {
    const { version, kernel } = this.#options;
    const length = addressBits(version);
    let hasOurs = false;
    for (const found of kernel.addresses.list({ version, link })) {
      if (found.address === this.#address && found.length === length) hasOurs = true;
      else if (found.scope !== "link") kernel.addresses.delete({ link, address: found.address, length: found.length });
    }
    if (!hasOurs && this.#address !== undefined)
      kernel.addresses.replace({ link, address: this.#address, length, noDuplicateDetection: version === 6 });
  }

  #compare(device: WireguardDevice): void {
    const isFirst = this.#actual.size === 0;
    this.#actual.clear();
    let repaired = 0;
    for (const peer of device.peers) this.#actual.set(peer.publicKey, peer);
    for (const key of new Set([...this.#actual.keys(), ...this.#wanted.keys()])) {
      if (isSamePeer(this.#wanted.get(key), this.#actual.get(key))) continue;
      if (!this.#dirty.has(key)) repaired++;
      this.#dirty.add(key);
    }
    if (repaired > 0 && !isFirst) this.#log.info("WireGuard peers differed from what was written", { count: repaired });
  }

  #writePeers(): void {
    const set: WireguardPeer[] = [];
    const remove: string[] = [];
    for (const key of this.#dirty) {
      const wanted = this.#wanted.get(key);
      const actual = this.#actual.get(key);
      if (wanted === undefined) {
        if (actual !== undefined) remove.push(key);
      } else if (!isSamePeer(wanted, actual)) set.push(wanted);
    }
    if (set.length + remove.length > 0) this.#socket?.set(this.#options.interfaceName, { set, remove });
    for (const key of remove) this.#actual.delete(key);
    for (const peer of set) this.#actual.set(peer.publicKey, peer);
    this.#dirty.clear();
  }

  /** The kernel makes the threads with the first peer's receive queue: before there is one the switch does nothing. */
  #setThreading(): void {
    if (this.#isThreadingSet || this.#actual.size === 0) return;
    this.#isThreadingSet = true;
    const { interfaceName, isThreaded, kernel } = this.#options;
    try {
      kernel.wireguard.setThreaded(interfaceName, isThreaded);
    } catch (error) {
      if (isThreaded)
        this.#log.warn("this kernel has no threads for WireGuard; packets are decrypted where they arrive", {
          setting: "WireguardThreadingEnabled",
          error: describeError(error),
        });
    }
  }
}

class NoWireguard extends Error {
  override readonly name = "NoWireguard";
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

/** Curve25519 wants some bits fixed; the kernel would fix them too. */
function newPrivateKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  bytes[0] = (bytes[0] ?? 0) & 248;
  bytes[31] = ((bytes[31] ?? 0) & 127) | 64;
  return btoa(String.fromCharCode(...bytes));
}
