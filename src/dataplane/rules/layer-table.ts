// Where managers put chains and sets, whichever renderer is behind.
import type { IpVersion } from "../../lib/ip.ts";
import type { Chain, Layer, Rule, SetId } from "./rule.ts";

/** One layer (raw, mangle, nat, filter) of one family. */
export interface LayerTable {
  readonly layer: Layer;
  readonly version: IpVersion;
  /** Offers a chain; it is written if something leads to it. */
  setChain(chain: Chain): void;
  removeChain(name: string): void;
  /** Whether something leads to the chain. */
  isNeeded(name: string): boolean;
  /** Our rules in one of the kernel's chains (FORWARD, …). */
  setHook(kernelChain: string, place: "insert" | "append", rules: readonly Rule[]): void;
}

export type LayerTables = Readonly<Record<Layer, LayerTable>>;

/** `ip`: `10.0.0.1`; `net`: `10.0.0.0/8`; `ipAndPort`: `10.0.0.1,tcp:80`. */
export type MemberType = "ip" | "net" | "ipAndPort";

/** The sets of addresses of one family. Members of the other family are ignored. */
export interface IpSets {
  readonly version: IpVersion;
  replace(id: SetId, type: MemberType, members: Iterable<string>): void;
  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void;
  remove(id: SetId): void;
}

/** Everything managers write rules with, for one family. */
export interface RulePlane {
  readonly version: IpVersion;
  readonly tables: LayerTables;
  readonly sets: IpSets;
}
