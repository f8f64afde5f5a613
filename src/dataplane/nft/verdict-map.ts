// The map of one dispatch chain: interface name → the chain its packets go to.
import { type DumpedElement, interfaceNameBytes, type NftChange, type TableRef } from "../../kernel/index.ts";

export class VerdictMap {
  readonly #table: TableRef;
  readonly #name: string;
  readonly #wanted = new Map<string, string>();
  readonly #actual = new Map<string, string>();
  #isPresent = false;
  /** Wanted or found anew since the last commit: else both are known to be the same. */
  #isStale = false;

  constructor(table: TableRef, name: string) {
    this.#table = table;
    this.#name = name;
  }

  get hasChanges(): boolean {
    if (!this.#isStale) return false;
    if (!this.#isPresent) return this.#wanted.size > 0;
    if (this.#wanted.size !== this.#actual.size) return true;
    for (const [key, chain] of this.#wanted) if (this.#actual.get(key) !== chain) return true;
    return false;
  }

  set(targets: ReadonlyMap<string, string>): void {
    if (targets.size === 0 && this.#wanted.size === 0) return;
    this.#isStale = true;
    this.#wanted.clear();
    for (const [key, chain] of targets) this.#wanted.set(key, chain);
  }

  /** The kernel's elements; nothing when there is no such map. */
  found(elements: readonly DumpedElement[] | undefined): void {
    this.#isStale = true;
    this.#isPresent = elements !== undefined;
    this.#actual.clear();
    for (const { key, value } of elements ?? []) {
      const end = key.indexOf(0);
      const name = Buffer.from(end < 0 ? key : key.subarray(0, end)).toString();
      const isOurs = value !== undefined && "kind" in value && value.kind === "goto" && "chain" in value;
      this.#actual.set(name, isOurs ? value.chain : "");
    }
  }

  /** Before chains are deleted or written: entries that lead elsewhere or nowhere. */
  removals(): NftChange[] {
    if (!this.#isStale) return [];
    const gone = [...this.#actual].filter(([key, chain]) => this.#wanted.get(key) !== chain);
    if (gone.length === 0) return [];
    const elements = gone.map(([key]) => ({ key: interfaceNameBytes(key) }));
    return [{ op: "deleteElements", table: this.#table, set: this.#name, elements }];
  }

  creation(): NftChange[] {
    if (this.#isPresent || this.#wanted.size === 0) return [];
    return [{ op: "addSet", table: this.#table, set: this.#name, type: { key: ["ifname"], value: "verdict" } }];
  }

  /** After the chains they lead to are there. */
  additions(): NftChange[] {
    if (!this.#isStale) return [];
    const missing = [...this.#wanted].filter(([key, chain]) => this.#actual.get(key) !== chain);
    if (missing.length === 0) return [];
    const elements = missing.map(([key, chain]) => ({
      key: interfaceNameBytes(key),
      value: { kind: "goto", chain } as const,
    }));
    return [{ op: "addElements", table: this.#table, set: this.#name, elements }];
  }

  deletion(): NftChange[] {
    return this.#isPresent ? [{ op: "deleteSet", table: this.#table, set: this.#name }] : [];
  }

  committed(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    this.#isPresent ||= this.#wanted.size > 0;
    this.#actual.clear();
    for (const [key, chain] of this.#wanted) this.#actual.set(key, chain);
  }
}
