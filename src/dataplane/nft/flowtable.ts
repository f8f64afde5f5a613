// Keeps the flowtable of one nftables table. Packets of an established connection that enter through one of its devices are
// forwarded without passing the rules again. https://docs.kernel.org/networking/nf_flowtable.html
import type { NftChange, TableRef } from "../../kernel/index.ts";
import type { PhasedChanges } from "./phases.ts";

/** Of the ingress hook. */
const PRIORITY = 0;

export class Flowtable {
  readonly #table: TableRef;
  readonly #name: string;
  readonly #exists: (device: string) => boolean;
  #desired: ReadonlySet<string> | undefined;
  #actual: ReadonlySet<string> | undefined;
  /** The devices that the kernel has after the last returned changes are committed. */
  #pending: { readonly devices: ReadonlySet<string> | undefined } | undefined;

  /** @param exists whether a device exists; the kernel rejects a transaction with a missing device */
  constructor(table: TableRef, name: string, exists: (device: string) => boolean) {
    this.#table = table;
    this.#name = name;
    this.#exists = exists;
  }

  /** @param devices undefined if no flowtable is desired */
  set(devices: ReadonlySet<string> | undefined): void {
    this.#desired = devices;
  }

  /** @param devices undefined if the kernel has no flowtable */
  found(devices: readonly string[] | undefined): void {
    this.#actual = devices === undefined ? undefined : new Set(devices);
    this.#pending = undefined;
  }

  get hasChanges(): boolean {
    if (this.#desired === undefined || this.#actual === undefined) return this.#desired !== this.#actual;
    return [...this.#desired.symmetricDifference(this.#actual)].some(this.#exists);
  }

  changes(): PhasedChanges {
    return { create: this.#creation(), remove: this.#removal() };
  }

  #creation(): NftChange[] {
    if (this.#desired === undefined) {
      this.#pending = { devices: undefined };
      return [];
    }
    const actual = this.#actual ?? new Set<string>();
    const devices = [...this.#desired.difference(actual)].filter(this.#exists).sort();
    this.#pending = { devices: new Set([...actual.intersection(this.#desired), ...devices]) };
    if (this.#actual !== undefined && devices.length === 0) return [];
    return [{ op: "addFlowtable", table: this.#table, flowtable: this.#name, priority: PRIORITY, devices }];
  }

  #removal(): NftChange[] {
    if (this.#actual === undefined) return [];
    const at = { table: this.#table, flowtable: this.#name };
    if (this.#desired === undefined) return [{ op: "deleteFlowtable", ...at }];
    // The kernel removes devices that no longer exist.
    const devices = [...this.#actual.difference(this.#desired)].filter(this.#exists);
    return devices.length === 0 ? [] : [{ op: "deleteFlowtable", ...at, devices }];
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    if (this.#pending !== undefined) this.#actual = this.#pending.devices;
    this.#pending = undefined;
  }
}
