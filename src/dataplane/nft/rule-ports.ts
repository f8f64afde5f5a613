// Keeps the ports of policy rules in one nftables set for all rules, as elements (slot of the rule, port). A change of ports
// then changes elements, and no rule is rewritten.
//
// The reason: if a transaction adds a rule that jumps, sets a mark or uses a set, the kernel validates all rules of the table
// again, so that a change of one policy costs as much as thousands of policies. Changes of elements have no such cost.
import type { SetElement, NftChange, SetType, TableRef } from "../../kernel/index.ts";
import { listsEqual } from "../../lib/compare-lists.ts";
import type { Chain, Match, PortRange, Rule } from "../rules/rule.ts";
import type { PhasedChanges } from "./phases.ts";

/** A number that identifies one side (source or destination) of one rule of one chain. */
export type Slot = number;
export type PortsMatch = Match & { readonly kind: "ports" };
/** A match on ports that were moved to the set. */
export type SlottedPorts = PortsMatch & { readonly slot: Slot };

export const PORTS_SET = "cali-rule-ports";
export const PORTS_TYPE: SetType = { key: ["mark", "inet_service"] };

/** More ports stay in the rule, as ranges: a range is one comparison in a rule, but may be thousands of elements in a set. */
const MAX_PORTS = 32;

const digest = Buffer.alloc(32);

export const isSlotted = (m: Match): m is SlottedPorts => m.kind === "ports" && "slot" in m;

/** Returns the chain without its ports, and the ports by slot. Only chains of policies and profiles are changed. */
export function extractPorts(
  name: string,
  chain: Chain,
  slots: SlotNumbers,
): { readonly chain: Chain; readonly ports: ReadonlyMap<Slot, readonly number[]> } {
  const ports = new Map<Slot, readonly number[]>();
  if (chain.kind !== "rules" || !chain.rules.some(({ action }) => action?.kind === "decide")) return { chain, ports };
  slots.release(name);
  const rules = chain.rules.map((rule, index): Rule => {
    if (rule.match?.some(({ kind }) => kind === "ports") !== true) return rule;
    const match = rule.match.map((m): Match => {
      if (m.kind !== "ports") return m;
      const numbers = listPorts(m.ranges);
      if (numbers === undefined) return m;
      const slot = slots.take(name, `${index} ${m.side} ${m.negated === true ? "not" : ""}`);
      ports.set(slot, numbers);
      const slotted: SlottedPorts = { ...m, ranges: [], slot };
      return slotted;
    });
    return { ...rule, match };
  });
  return { chain: ports.size === 0 ? chain : { ...chain, rules }, ports };
}

/** Returns each port once, in order; undefined if there are none or too many. */
function listPorts(ranges: readonly PortRange[]): readonly number[] | undefined {
  let count = 0;
  for (const { first, last } of ranges) if ((count += last - first + 1) > MAX_PORTS) return undefined;
  if (count === 0) return undefined;
  const numbers = new Set<number>();
  for (const { first, last } of ranges) for (let port = first; port <= last; port++) numbers.add(port);
  return [...numbers].sort((a, b) => a - b);
}

/**
 * Assigns a slot to each side of each rule. A slot has one owner. It is the same after a restart, unless the hashes of two
 * owners collide. The hash is cryptographic, because chains are named after policies: with a weak hash, a user could choose
 * names that collide, and make the search for a free slot slow.
 */
export class SlotNumbers {
  readonly #owners = new Map<Slot, string>();
  readonly #byChain = new Map<string, Slot[]>();

  take(chain: string, place: string): Slot {
    const owner = `${chain} ${place}`;
    Bun.CryptoHasher.hash("sha256", owner, digest);
    let slot = digest.readUInt32LE(0);
    while (this.#owners.has(slot)) slot = (slot + 1) >>> 0;
    this.#owners.set(slot, owner);
    const slots = this.#byChain.get(chain);
    if (slots === undefined) this.#byChain.set(chain, [slot]);
    else slots.push(slot);
    return slot;
  }

  /** Frees the slots of a chain. */
  release(chain: string): void {
    for (const slot of this.#byChain.get(chain) ?? []) this.#owners.delete(slot);
    this.#byChain.delete(chain);
  }
}

/** Keeps the port set equal to the ports of all written chains. */
export class RulePorts {
  readonly #table: TableRef;
  readonly #desired = new Map<Slot, readonly number[]>();
  readonly #actual = new Map<Slot, readonly number[]>();
  readonly #dirty = new Set<Slot>();
  /** The slots of each written chain. */
  readonly #slots = new Map<string, readonly Slot[]>();
  /** The chain that owns each slot. A new chain may take over a slot before its previous owner is removed. */
  readonly #chainOf = new Map<Slot, string>();
  #isPresent = false;
  /** The kernel has a set with this name but another type. */
  #isMisfit = false;

  constructor(table: TableRef) {
    this.#table = table;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#isMisfit;
  }

  /** @param ports undefined if the chain is not written */
  setChain(name: string, ports: ReadonlyMap<Slot, readonly number[]> | undefined): void {
    for (const slot of this.#slots.get(name) ?? [])
      if (ports?.has(slot) !== true && this.#chainOf.get(slot) === name) {
        this.#chainOf.delete(slot);
        this.#desired.delete(slot);
        this.#touch(slot);
      }
    if (ports === undefined || ports.size === 0) {
      this.#slots.delete(name);
      return;
    }
    this.#slots.set(name, [...ports.keys()]);
    for (const [slot, numbers] of ports) {
      this.#chainOf.set(slot, name);
      this.#desired.set(slot, numbers);
      this.#touch(slot);
    }
  }

  /** @param elements undefined if the kernel has no such set; "misfit" if the set has another type */
  found(elements: readonly SetElement[] | "misfit" | undefined): void {
    this.#isPresent = Array.isArray(elements);
    this.#isMisfit = elements === "misfit";
    this.#actual.clear();
    const found = new Map<Slot, number[]>();
    for (const { key } of Array.isArray(elements) ? (elements as readonly SetElement[]) : []) {
      const view = new DataView(key.buffer, key.byteOffset, key.byteLength);
      const slot = view.getUint32(0, true);
      const port = view.getUint16(4);
      const ports = found.get(slot);
      if (ports === undefined) found.set(slot, [port]);
      else ports.push(port);
    }
    for (const [slot, ports] of found)
      this.#actual.set(
        slot,
        ports.sort((a, b) => a - b),
      );
    this.#dirty.clear();
    for (const slot of this.#desired.keys()) this.#touch(slot);
    for (const slot of this.#actual.keys()) this.#touch(slot);
  }

  changes(): PhasedChanges {
    const table = this.#table;
    const changes: NftChange[] = [];
    if (this.#isMisfit) changes.push({ op: "deleteSet", table, set: PORTS_SET });
    if (!this.#isPresent && this.#desired.size > 0)
      changes.push({ op: "addSet", table, set: PORTS_SET, type: PORTS_TYPE });
    const surplus: { key: Uint8Array }[] = [];
    const missing: { key: Uint8Array }[] = [];
    for (const slot of this.#dirty) {
      const actual = this.#actual.get(slot) ?? [];
      const desired = this.#desired.get(slot) ?? [];
      for (const port of actual) if (!desired.includes(port)) surplus.push({ key: portKey(slot, port) });
      for (const port of desired) if (!actual.includes(port)) missing.push({ key: portKey(slot, port) });
    }
    if (surplus.length > 0) changes.push({ op: "deleteElements", table, set: PORTS_SET, elements: surplus });
    if (missing.length > 0) changes.push({ op: "addElements", table, set: PORTS_SET, elements: missing });
    return { create: changes };
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    this.#isPresent ||= this.#desired.size > 0;
    this.#isMisfit = false;
    for (const slot of this.#dirty) {
      const desired = this.#desired.get(slot);
      if (desired === undefined) this.#actual.delete(slot);
      else this.#actual.set(slot, desired);
    }
    this.#dirty.clear();
  }

  #touch(slot: Slot): void {
    const desired = this.#desired.get(slot);
    const actual = this.#actual.get(slot);
    if (desired === actual || (desired !== undefined && actual !== undefined && listsEqual(desired, actual)))
      this.#dirty.delete(slot);
    else this.#dirty.add(slot);
  }
}

/** The slot in host byte order, and the port in network byte order, padded to 32 bits. */
function portKey(slot: Slot, port: number): Uint8Array {
  const key = new Uint8Array(8);
  key[0] = slot;
  key[1] = slot >>> 8;
  key[2] = slot >>> 16;
  key[3] = slot >>> 24;
  key[4] = port >>> 8;
  key[5] = port;
  return key;
}
