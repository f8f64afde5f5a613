// Checks at startup whether the WireGuard device of an earlier run would prevent the connection to Typha.
//
// With host encryption, traffic between two hosts passes only if both have the other one as a WireGuard peer, or neither
// has. If one host missed a change of the other's key, they cannot communicate, and so it cannot learn the new key through
// Typha either. Therefore:
//
// - If the kernel's key differs from the published one, the device is deleted and the published key is cleared, so that
//   other hosts send unencrypted traffic.
// - A Typha is not used if its host's published key and this host's list of peers disagree.
import type { Datastore } from "../datastore/index.ts";
import { NotFound } from "../datastore/index.ts";
import type { Rtnetlink, Wireguard, WireguardDevice } from "../kernel/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { type FelixConfig, ignoreUnreadable, readNode, type ResourceKey } from "../model/index.ts";
import type { TyphaAddress } from "../typha/index.ts";
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
  readonly links: Pick<Rtnetlink["links"], "get" | "delete">;
  readonly openWireguard: () => Wireguard | undefined;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

type Version = 4 | 6;
const VERSIONS: readonly Version[] = [4, 6];

export class WireguardStart {
  readonly #options: WireguardStartOptions;
  readonly #log: Logger;
  /** Devices of an earlier run that are kept, by IP version. */
  readonly #keptDevices = new Map<Version, WireguardDevice>();

  constructor(options: WireguardStartOptions) {
    this.#options = options;
    this.#log = options.log;
  }

  /** Removes devices that are disabled or whose key differs from the published one. */
  async prepare(): Promise<void> {
    for (const version of VERSIONS)
      try {
        await this.#prepare(version);
      } catch (error) {
        // Not fatal: the dataplane corrects WireGuard when it is in sync. This check only avoids that it never gets there.
        this.#log.warn("could not check WireGuard at startup", { version, error: describeError(error) });
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
      return this.#remove(version, "the device has no peers");
    const published = await this.#publishedKey(config.FelixHostname, version);
    if (published !== device.publicKey) return this.#remove(version, "the published key differs from the kernel's key");
    this.#keptDevices.set(version, device);
  }

  /** Returns the servers whose host agrees with this host on encryption. If there are none, removes the encryption and
   * returns all servers. */
  async chooseTyphas(servers: readonly TyphaAddress[]): Promise<readonly TyphaAddress[]> {
    if (this.#keptDevices.size === 0) return servers;
    const reachable: TyphaAddress[] = [];
    for (const server of servers) if (await this.#isReachable(server)) reachable.push(server);
    if (reachable.length > 0) return reachable;
    for (const version of [...this.#keptDevices.keys()])
      await this.#remove(version, "no Typha is reachable with the current peers");
    return servers;
  }

  /** Removes the encryption after the connection to Typha failed. */
  async removeEncryption(): Promise<void> {
    const { config } = this.#options;
    if (!config.WireguardHostEncryptionEnabled) return;
    for (const version of VERSIONS)
      if (settingsOf(config, version).isEnabled) await this.#remove(version, "Typha could not be reached");
  }

  async #isReachable({ host, nodeName }: TyphaAddress): Promise<boolean> {
    const version: Version = host.includes(":") ? 6 : 4;
    const device = this.#keptDevices.get(version);
    if (device === undefined || nodeName === undefined || nodeName === this.#options.config.FelixHostname) return true;
    try {
      const key = await this.#publishedKey(nodeName, version);
      if (key !== "") return device.peers.some((peer) => peer.publicKey === key);
      return !device.peers.some((peer) => peer.endpoint?.address === host);
    } catch {
      return true; // unknown: the connection may succeed
    }
  }

  async #publishedKey(node: string, version: Version): Promise<string> {
    const key: ResourceKey = { type: "resource", kind: "Node", name: node };
    try {
      const { value } = await this.#options.store.get(key, { signal: this.#options.signal });
      return readNode(value, ignoreUnreadable).wireguardKeys[version] ?? "";
    } catch (error) {
      if (error instanceof NotFound) return "";
      throw error;
    }
  }

  async #remove(version: Version, reason: string | undefined): Promise<void> {
    const { config, links, store, signal } = this.#options;
    const { device } = settingsOf(config, version);
    this.#keptDevices.delete(version);
    if (links.get(device)?.kind === "wireguard") {
      links.delete(device);
      this.#log.warn("removed the WireGuard device at startup", { device, reason: reason ?? "WireGuard is disabled" });
    }
    await writeWireguardKey({ store, host: config.FelixHostname, version, publicKey: "", signal });
  }
}

function settingsOf(config: WireguardStartSettings, version: Version) {
  return version === 4
    ? { isEnabled: config.WireguardEnabled, device: config.WireguardInterfaceName }
    : { isEnabled: config.WireguardEnabledV6, device: config.WireguardInterfaceNameV6 };
}
