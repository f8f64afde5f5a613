// Before the agent looks for its Typha: is WireGuard, as an earlier run left it, in the way?
//
// With host encryption a node that believes to be a peer sends to the others through the tunnel, and they answer only if
// they believe it too. Whoever missed the other's news cannot hear it any more. So: what the kernel has must be what we
// published, else all of it goes and the others are told to come unencrypted; and a Typha on a node that sees us
// differently from how we see it is not asked.
import type { Datastore } from "../datastore/index.ts";
import { NotFound } from "../datastore/index.ts";
import type { RouteKernel, Wireguard, WireguardDevice } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import type { Resource, ResourceKey } from "../model/index.ts";
import type { TyphaAddress } from "../typha/index.ts";
import type { FelixConfig } from "./config/index.ts";
import { writeWireguardKey } from "./status/wireguard-key.ts";

export type WireguardStartSettings = Pick<
  FelixConfig,
  | "FelixHostname"
  | "WireguardEnabled"
  | "WireguardEnabledV6"
  | "WireguardInterfaceName"
  | "WireguardInterfaceNameV6"
  | "WireguardHostEncryptionEnabled"
>;

export interface WireguardStartOptions {
  readonly config: WireguardStartSettings;
  readonly store: Datastore;
  readonly links: Pick<RouteKernel["links"], "get" | "delete">;
  readonly openWireguard: () => Wireguard | undefined;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

type Version = 4 | 6;
const VERSIONS: readonly Version[] = [4, 6];

export class WireguardStart {
  readonly #options: WireguardStartOptions;
  readonly #log: Logger;
  /** What the kernel held when we started and still stands. */
  readonly #standing = new Map<Version, WireguardDevice>();

  constructor(options: WireguardStartOptions) {
    this.#options = options;
    this.#log = options.log;
  }

  /** Takes away what is off or does not fit what we published. */
  async prepare(): Promise<void> {
    for (const version of VERSIONS)
      try {
        await this.#prepare(version);
      } catch (error) {
        // The dataplane sets things right as soon as it has its state; this only makes that more likely.
        this.#log.warn("WireGuard could not be checked before the start", { version, error: describeError(error) });
      }
  }

  async #prepare(version: Version): Promise<void> {
    const { config } = this.#options;
    const { isEnabled, device: name } = settingsOf(config, version);
    if (!isEnabled) return this.#remove(version, undefined);
    if (!config.WireguardHostEncryptionEnabled) return;
    const wireguard = this.#options.openWireguard();
    const device = wireguard?.get(name);
    wireguard?.[Symbol.dispose]();
    if (device?.publicKey === undefined || device.peers.length === 0)
      return this.#remove(version, "the kernel has no peers yet");
    const published = await this.#publishedKey(config.FelixHostname, version);
    if (published !== device.publicKey) return this.#remove(version, "the published key is not the kernel's");
    this.#standing.set(version, device);
  }

  /** Servers whose node and ours agree on how to reach each other. When there is none, encryption goes and all are. */
  async chooseTyphas(found: readonly TyphaAddress[]): Promise<readonly TyphaAddress[]> {
    if (this.#standing.size === 0) return found;
    const kept: TyphaAddress[] = [];
    for (const typha of found) if (await this.#isReachable(typha)) kept.push(typha);
    if (kept.length > 0) return kept;
    for (const version of [...this.#standing.keys()])
      await this.#remove(version, "no Typha could be reached past it: the nodes see each other differently");
    return found;
  }

  /** The last resort after Typha could not be reached. */
  async giveUp(): Promise<void> {
    const { config } = this.#options;
    if (!config.WireguardHostEncryptionEnabled) return;
    for (const version of VERSIONS)
      if (settingsOf(config, version).isEnabled) await this.#remove(version, "Typha could not be reached");
  }

  async #isReachable({ host, nodeName }: TyphaAddress): Promise<boolean> {
    const version: Version = host.includes(":") ? 6 : 4;
    const device = this.#standing.get(version);
    if (device === undefined || nodeName === undefined || nodeName === this.#options.config.FelixHostname) return true;
    try {
      const key = await this.#publishedKey(nodeName, version);
      if (key !== "") return device.peers.some((peer) => peer.publicKey === key);
      return !device.peers.some((peer) => peer.endpoint?.address === host);
    } catch {
      return true; // it may well work
    }
  }

  async #publishedKey(node: string, version: Version): Promise<string> {
    const key: ResourceKey = { type: "resource", kind: "Node", name: node };
    try {
      const { value } = await this.#options.store.get(key, { signal: this.#options.signal });
      const status = ((value as Resource).status ?? {}) as Record<string, unknown>;
      return String(status[version === 4 ? "wireguardPublicKey" : "wireguardPublicKeyV6"] ?? "");
    } catch (error) {
      if (error instanceof NotFound) return "";
      throw error;
    }
  }

  async #remove(version: Version, why: string | undefined): Promise<void> {
    const { config, links, store, signal } = this.#options;
    const { device } = settingsOf(config, version);
    this.#standing.delete(version);
    if (links.get(device)?.kind === "wireguard") {
      links.delete(device);
      this.#log.warn("WireGuard is taken away for the start", { device, reason: why ?? "it is off" });
    }
    await writeWireguardKey({ store, host: config.FelixHostname, version, publicKey: "", signal });
  }
}

function settingsOf(config: WireguardStartSettings, version: Version) {
  return version === 4
    ? { isEnabled: config.WireguardEnabled, device: config.WireguardInterfaceName }
    : { isEnabled: config.WireguardEnabledV6, device: config.WireguardInterfaceNameV6 };
}
