// Keeps the verdict maps of one nftables table equal to the dispatch chains: each maps interface names to the chains that
// process their packets.
import {
  type SetElement,
  type DumpedSet,
  interfaceNameBytes,
  type NftChange,
  type TableRef,
} from "../../kernel/index.ts";
import type { PhasedChanges } from "./phases.ts";

export class VerdictMaps {
  readonly #table: TableRef;
  /** By the kernel name of the dispatch chain, which is also the name of the map. */
  readonly #maps = new Map<string, VerdictMap>();
  /** Names of maps in the kernel that are not desired. */
  readonly #surplus = new Set<string>();

  constructor(table: TableRef) {
    this.#table = table;
  }

  get hasChanges(): boolean {
    return this.#surplus.size > 0 || this.#maps.values().some((map) => map.hasChanges);
  }

  /** @param targets chain by interface name */
  set(name: string, targets: ReadonlyMap<string, string>): void {
    let map = this.#maps.get(name);
    if (map === undefined) this.#maps.set(name, (map = new VerdictMap(this.#table, name)));
    map.set(targets);
  }

  /** Deletes all elements of a map, if it exists. */
  clear(name: string): void {
    this.#maps.get(name)?.set(new Map());
  }

  remove(name: string): void {
    this.#maps.get(name)?.remove();
  }

  /** Records the maps that the kernel has. */
  found(maps: readonly DumpedSet[], elementsOf: (name: string) => readonly SetElement[]): void {
    const names = new Set(maps.map(({ name }) => name));
    for (const [name, map] of this.#maps) map.found(names.has(name) ? elementsOf(name) : undefined);
    this.#surplus.clear();
    for (const name of names) if (!this.#maps.has(name)) this.#surplus.add(name);
  }

  changes(): PhasedChanges {
    const maps = [...this.#maps.values()];
    const surplus = [...this.#surplus];
    return {
      release: [
        ...maps.flatMap((map) => map.deletedElements()),
        ...surplus.map((set): NftChange => ({ op: "flushSet", table: this.#table, set })),
      ],
      create: maps.flatMap((map) => map.creation()),
      fill: maps.flatMap((map) => map.addedElements()),
      remove: [
        ...surplus.map((set): NftChange => ({ op: "deleteSet", table: this.#table, set })),
        ...maps.flatMap((map) => map.deletion()),
      ],
    };
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    this.#surplus.clear();
    for (const [name, map] of this.#maps) {
      map.committed();
      if (map.isRemoved) this.#maps.delete(name);
    }
  }
}

class VerdictMap {
  readonly #table: TableRef;
  readonly #name: string;
  readonly #desired = new Map<string, string>();
  readonly #actual = new Map<string, string>();
  #isPresent = false;
  /** False if desired and actual elements are known to be equal. */
  #isStale = false;
  #isRemoved = false;

  constructor(table: TableRef, name: string) {
    this.#table = table;
    this.#name = name;
  }

  get isRemoved(): boolean {
    return this.#isRemoved;
  }

  get hasChanges(): boolean {
    if (!this.#isStale) return false;
    if (!this.#isPresent) return this.#desired.size > 0;
    if (this.#desired.size !== this.#actual.size) return true;
    for (const [key, chain] of this.#desired) if (this.#actual.get(key) !== chain) return true;
    return false;
  }

  set(targets: ReadonlyMap<string, string>): void {
    this.#isRemoved = false;
    if (targets.size === 0 && this.#desired.size === 0) return;
    this.#isStale = true;
    this.#desired.clear();
    for (const [key, chain] of targets) this.#desired.set(key, chain);
  }

  remove(): void {
    this.set(new Map());
    this.#isRemoved = true;
  }

  /** @param elements undefined if the kernel does not have the map */
  found(elements: readonly SetElement[] | undefined): void {
    this.#isStale = true;
    this.#isPresent = elements !== undefined;
    this.#actual.clear();
    for (const { key, value } of elements ?? []) {
      const end = key.indexOf(0);
      const name = Buffer.from(end < 0 ? key : key.subarray(0, end)).toString();
      const isGoto = value !== undefined && "kind" in value && value.kind === "goto" && "chain" in value;
      this.#actual.set(name, isGoto ? value.chain : "");
    }
  }

  deletedElements(): NftChange[] {
    if (!this.#isStale) return [];
    const surplus = [...this.#actual].filter(([key, chain]) => this.#desired.get(key) !== chain);
    if (surplus.length === 0) return [];
    const elements = surplus.map(([key]) => ({ key: interfaceNameBytes(key) }));
    return [{ op: "deleteElements", table: this.#table, set: this.#name, elements }];
  }

  creation(): NftChange[] {
    if (this.#isPresent || this.#desired.size === 0) return [];
    return [{ op: "addSet", table: this.#table, set: this.#name, type: { key: ["ifname"], value: "verdict" } }];
  }

  addedElements(): NftChange[] {
    if (!this.#isStale) return [];
    const missing = [...this.#desired].filter(([key, chain]) => this.#actual.get(key) !== chain);
    if (missing.length === 0) return [];
    const elements = missing.map(([key, chain]) => ({
      key: interfaceNameBytes(key),
      value: { kind: "goto", chain } as const,
    }));
    return [{ op: "addElements", table: this.#table, set: this.#name, elements }];
  }

  deletion(): NftChange[] {
    return this.#isPresent && this.#isRemoved ? [{ op: "deleteSet", table: this.#table, set: this.#name }] : [];
  }

  committed(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    this.#isPresent ||= this.#desired.size > 0;
    this.#actual.clear();
    for (const [key, chain] of this.#desired) this.#actual.set(key, chain);
  }
}
