// Ports of policies' rules as data. The kernel walks every rule of a table again when a transaction brings one rule
// that jumps, sets a mark or looks something up: editing one policy among thousands would cost the thousands. Elements
// of a set it takes as they come. So a policy's rule asks whether (its slot, the packet's port) is in one set for all
// rules, and another port is another element: no rule is rewritten, no counter starts again, whatever else is there.
import type { DumpedElement, NftChange, SetType, TableRef } from "../../kernel/index.ts";
import type { Chain, Match, PortRange, Rule } from "../rules/rule.ts";
import { sameList } from "../../lib/same-list.ts";

/** A number that stands for one side of one rule of one chain. */
export type Slot = number;
export type PortsMatch = Match & { readonly kind: "ports" };
/** A match on ports whose numbers stand in the set. */
export type SlottedPorts = PortsMatch & { readonly slot: Slot };

export const PORTS_SET = "cali-rule-ports";
export const PORTS_TYPE: SetType = { key: ["mark", "inet_service"] };

/** More than so many stay in the rule, as ranges: a range is one comparison there and thousands of elements here. */
const MOST_PORTS = 32;

const digest = Buffer.alloc(32);

export const isSlotted = (m: Match): m is SlottedPorts => m.kind === "ports" && "slot" in m;

/**
 * The chain with its ports taken out, and the ports by slot. Only policies' and profiles' chains are edited often; the
 * others are left as they are.
 */
export function takePorts(
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

/** Each port once, in order; nothing when they are none or too many. */
function listPorts(ranges: readonly PortRange[]): readonly number[] | undefined {
  let count = 0;
  for (const { first, last } of ranges) if ((count += last - first + 1) > MOST_PORTS) return undefined;
  if (count === 0) return undefined;
  const numbers = new Set<number>();
  for (const { first, last } of ranges) for (let port = first; port <= last; port++) numbers.add(port);
  return [...numbers].sort((a, b) => a - b);
}

/**
 * Gives each rule's side a number of its own: the same after a restart, unless two sides start at the same number. A
 * number always has one owner. The start is a cryptographic hash, because chains are named after policies: with a weak
 * one, somebody could choose names that all start at the same number and make the search for a free one slow.
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

  /** The chain's numbers are free again. */
  release(chain: string): void {
    for (const slot of this.#byChain.get(chain) ?? []) this.#owners.delete(slot);
    this.#byChain.delete(chain);
  }
}

/** The set of all slots' ports: wanted, and as the kernel has it. */
export class RulePorts {
  readonly #table: TableRef;
  readonly #wanted = new Map<Slot, readonly number[]>();
  readonly #actual = new Map<Slot, readonly number[]>();
  readonly #dirty = new Set<Slot>();
  /** Slots of each chain that is written. */
  readonly #slots = new Map<string, readonly Slot[]>();
  /** Whose ports a slot holds now: one chain's slot may be another's before the first is gone. */
  readonly #chainOf = new Map<Slot, string>();
  #isPresent = false;
  /** The kernel has a set of the name that is not like ours. */
  #isMisfit = false;

  constructor(table: TableRef) {
    this.#table = table;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#isMisfit;
  }

  /** The ports of one chain's rules; none when it is not to be written. */
  setChain(name: string, ports: ReadonlyMap<Slot, readonly number[]> | undefined): void {
    for (const slot of this.#slots.get(name) ?? [])
      if (ports?.has(slot) !== true && this.#chainOf.get(slot) === name) {
        this.#chainOf.delete(slot);
        this.#wanted.delete(slot);
        this.#touch(slot);
      }
    if (ports === undefined || ports.size === 0) {
      this.#slots.delete(name);
      return;
    }
    this.#slots.set(name, [...ports.keys()]);
    for (const [slot, numbers] of ports) {
      this.#chainOf.set(slot, name);
      this.#wanted.set(slot, numbers);
      this.#touch(slot);
    }
  }

  /** @param elements nothing when there is no such set; "misfit" when it holds something else */
  found(elements: readonly DumpedElement[] | "misfit" | undefined): void {
    this.#isPresent = Array.isArray(elements);
    this.#isMisfit = elements === "misfit";
    this.#actual.clear();
    const found = new Map<Slot, number[]>();
    for (const { key } of Array.isArray(elements) ? (elements as readonly DumpedElement[]) : []) {
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
    for (const slot of this.#wanted.keys()) this.#touch(slot);
    for (const slot of this.#actual.keys()) this.#touch(slot);
  }

  /** Before rules are written that ask for the set. */
  changes(): NftChange[] {
    const table = this.#table;
    const changes: NftChange[] = [];
    if (this.#isMisfit) changes.push({ op: "deleteSet", table, set: PORTS_SET });
    if (!this.#isPresent && this.#wanted.size > 0)
      changes.push({ op: "addSet", table, set: PORTS_SET, type: PORTS_TYPE });
    const surplus: { key: Uint8Array }[] = [];
    const missing: { key: Uint8Array }[] = [];
    for (const slot of this.#dirty) {
      const actual = this.#actual.get(slot) ?? [];
      const wanted = this.#wanted.get(slot) ?? [];
      for (const port of actual) if (!wanted.includes(port)) surplus.push({ key: portKey(slot, port) });
      for (const port of wanted) if (!actual.includes(port)) missing.push({ key: portKey(slot, port) });
    }
    if (surplus.length > 0) changes.push({ op: "deleteElements", table, set: PORTS_SET, elements: surplus });
    if (missing.length > 0) changes.push({ op: "addElements", table, set: PORTS_SET, elements: missing });
    return changes;
  }

  /** The transaction went through. */
  committed(): void {
    this.#isPresent ||= this.#wanted.size > 0;
    this.#isMisfit = false;
    for (const slot of this.#dirty) {
      const wanted = this.#wanted.get(slot);
      if (wanted === undefined) this.#actual.delete(slot);
      else this.#actual.set(slot, wanted);
    }
    this.#dirty.clear();
  }

  #touch(slot: Slot): void {
    const wanted = this.#wanted.get(slot);
    const actual = this.#actual.get(slot);
    if (wanted === actual || (wanted !== undefined && actual !== undefined && sameList(wanted, actual)))
      this.#dirty.delete(slot);
    else this.#dirty.add(slot);
  }
}

/** The slot in the host's order, the port in the network's, padded. */
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
