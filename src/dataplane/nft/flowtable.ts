// The short cut for established connections: packets of a flow that both sides have agreed on pass from device to
// device without seeing any rule again. Only packets that enter by one of its devices are looked up.
import type { NftChange, TableRef } from "../../kernel/index.ts";

/** Before everything else at ingress. */
const PRIORITY = 0;

export class Flowtable {
  readonly #table: TableRef;
  readonly #name: string;
  readonly #exists: (device: string) => boolean;
  #wanted: ReadonlySet<string> | undefined;
  #actual: ReadonlySet<string> | undefined;
  /** What the kernel will have once the changes given out are committed. */
  #pending: { readonly devices: ReadonlySet<string> | undefined } | undefined;

  /** @param exists whether a device is there right now: naming one that is not would spoil the whole transaction */
  constructor(table: TableRef, name: string, exists: (device: string) => boolean) {
    this.#table = table;
    this.#name = name;
    this.#exists = exists;
  }

  /** Its devices; nothing when there shall be no flowtable. */
  set(devices: ReadonlySet<string> | undefined): void {
    this.#wanted = devices;
  }

  /** What the kernel has; nothing when there is none. */
  found(devices: readonly string[] | undefined): void {
    this.#actual = devices === undefined ? undefined : new Set(devices);
    this.#pending = undefined;
  }

  get hasChanges(): boolean {
    if (this.#wanted === undefined || this.#actual === undefined) return this.#wanted !== this.#actual;
    return [...this.#wanted.symmetricDifference(this.#actual)].some(this.#exists);
  }

  /** Before the rules that name it. */
  creation(): NftChange[] {
    if (this.#wanted === undefined) {
      this.#pending = { devices: undefined };
      return [];
    }
    const actual = this.#actual ?? new Set<string>();
    const devices = [...this.#wanted.difference(actual)].filter(this.#exists).sort();
    this.#pending = { devices: new Set([...actual.intersection(this.#wanted), ...devices]) };
    if (this.#actual !== undefined && devices.length === 0) return [];
    return [{ op: "addFlowtable", table: this.#table, flowtable: this.#name, priority: PRIORITY, devices }];
  }

  /** After the rules that no longer name it. */
  removal(): NftChange[] {
    if (this.#actual === undefined) return [];
    const at = { table: this.#table, flowtable: this.#name };
    if (this.#wanted === undefined) return [{ op: "deleteFlowtable", ...at }];
    // A device that is gone has left by itself.
    const devices = [...this.#actual.difference(this.#wanted)].filter(this.#exists);
    return devices.length === 0 ? [] : [{ op: "deleteFlowtable", ...at, devices }];
  }

  committed(): void {
    if (this.#pending !== undefined) this.#actual = this.#pending.devices;
    this.#pending = undefined;
  }
}
