// Detects name collisions of chains and sets in the kernel. Long names end in a part of a hash, in the format of Calico. Two
// objects with the same name would share a chain or set, so that the rules or members of one would apply to the other. The
// affected policies deny everything instead.
import { setName } from "./names.ts";
import type { SetId } from "./rule.ts";

/** Sets of policies. The first set of a name has it; later ones are rejected until it is removed. */
export class SetNameOwners {
  readonly #owners = new Map<string, SetId>();
  readonly #rejected = new Set<SetId>();

  /** @returns true if the set may use its name */
  claim(id: SetId): boolean {
    const name = setName(4, id);
    const owner = this.#owners.get(name) ?? id;
    if (owner === id) {
      this.#owners.set(name, id);
      this.#rejected.delete(id);
    } else this.#rejected.add(id);
    return owner === id;
  }

  get hasRejected(): boolean {
    return this.#rejected.size > 0;
  }
  isRejected(id: SetId): boolean {
    return this.#rejected.has(id);
  }

  /** @returns true if the set had its name */
  release(id: SetId): boolean {
    if (this.#rejected.delete(id)) return false;
    this.#owners.delete(setName(4, id));
    return true;
  }
}

/** Chains of policies and profiles. All owners of a name are known, because their endpoints jump to the same chain. */
export class ChainOwners {
  readonly #owners = new Map<string, Set<string>>();

  /** @returns true if the chain has no other owner */
  claim(chain: string, owner: string): boolean {
    const owners = this.#owners.get(chain);
    if (owners === undefined) {
      this.#owners.set(chain, new Set([owner]));
      return true;
    }
    return owners.add(owner).size === 1;
  }

  /** @returns true if the chain has no owner any more */
  release(chain: string, owner: string): boolean {
    const owners = this.#owners.get(chain);
    owners?.delete(owner);
    if (owners !== undefined && owners.size > 0) return false;
    this.#owners.delete(chain);
    return true;
  }
}
