// A fake Wireguard in memory, for tests without root. It passes the same tests as the real kernel.
import { createPrivateKey, createPublicKey } from "node:crypto";
import type { Cidr } from "../../lib/ip/ip.ts";
import type { Links } from "../route/links.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { Wireguard } from "../wireguard/wireguard.ts";
import type { WireguardChange, WireguardDevice, WireguardPeerState } from "../wireguard/wireguard-message.ts";

interface Device {
  readonly index: number;
  publicKey?: string;
  port: number;
  mark: number;
  readonly peers: Map<string, WireguardPeerState>;
}

/** The bytes that precede an X25519 private key in PKCS #8. https://www.rfc-editor.org/rfc/rfc8410#section-7 */
const PKCS8_PREFIX = Buffer.from("302e020100300506032b656e04220420", "hex");

export class MemoryWireguard implements Wireguard {
  readonly #links: Links;
  readonly #devices = new Map<string, Device>();

  constructor(links: Links) {
    this.#links = links;
  }

  get(name: string): WireguardDevice | undefined {
    const device = this.#device(name);
    if (device === undefined) return undefined;
    const { port, mark, peers, publicKey } = device;
    return { name, port, mark, peers: [...peers.values()], publicKey };
  }

  set(name: string, change: WireguardChange): void {
    const device = this.#device(name);
    if (device === undefined) throw new NetlinkError(`set WireGuard device ${name}`, "ENODEV");
    if (change.privateKey !== undefined) device.publicKey = publicKeyOf(change.privateKey);
    if (change.port !== undefined) device.port = change.port;
    if (change.mark !== undefined) device.mark = change.mark;
    if (change.replacePeers === true) device.peers.clear();
    for (const key of change.remove ?? []) device.peers.delete(key);
    for (const peer of change.set ?? []) {
      // A prefix belongs to one peer, the last for which it was set.
      for (const [key, other] of device.peers)
        device.peers.set(key, { ...other, allowed: without(other.allowed, peer.allowed) });
      const before = device.peers.get(peer.publicKey);
      const { keepaliveSeconds = before?.keepaliveSeconds ?? 0, endpoint = before?.endpoint, ...rest } = peer;
      const { lastHandshake = 0, receivedBytes = 0n, sentBytes = 0n } = before ?? {};
      device.peers.set(peer.publicKey, {
        ...{ ...rest, lastHandshake, receivedBytes, sentBytes },
        endpoint,
        ...(keepaliveSeconds === 0 ? {} : { keepaliveSeconds }),
      });
    }
  }

  [Symbol.dispose](): void {}

  /** A link that was deleted and created again has no peers. */
  #device(name: string): Device | undefined {
    const link = this.#links.get(name);
    if (link?.kind !== "wireguard") return undefined;
    let device = this.#devices.get(name);
    if (device?.index !== link.index) this.#devices.set(name, (device = newDevice(link.index)));
    return device;
  }
}

const newDevice = (index: number): Device => ({ index, port: 0, mark: 0, peers: new Map() });
const without = (all: readonly Cidr[], gone: readonly Cidr[]): Cidr[] => all.filter((cidr) => !gone.includes(cidr));

function publicKeyOf(privateKey: string): string {
  const der = Buffer.concat([PKCS8_PREFIX, Buffer.from(privateKey, "base64")]);
  const key = createPublicKey(createPrivateKey({ key: der, format: "der", type: "pkcs8" }));
  return key.export({ format: "der", type: "spki" }).subarray(-32).toString("base64");
}
