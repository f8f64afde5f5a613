// Which sorts of tunnel the cluster's pools ask for. The same computation decides at start which parts run, so a changed
// answer later means starting again.
import { type Cidr, ipVersion } from "../../lib/ip.ts";
import type { Pool } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";

export type Encapsulation = Extract<DataplaneMessage, { readonly type: "encapsulation" }>;

export interface EncapsulationSettings {
  /** Set = whatever the pools say. */
  readonly ipipEnabled?: boolean;
  readonly vxlanEnabled?: boolean;
  /** Whether routes to pools without encapsulation are ours to program. */
  readonly ownsNoEncapRoutes: boolean;
}

type PoolModes = Pick<Pool, "ipipMode" | "vxlanMode"> & { readonly cidr: Cidr };

export function computeEncapsulation(pools: Iterable<PoolModes>, settings: EncapsulationSettings): Encapsulation {
  let ipip = false;
  let vxlan = false;
  let vxlanV6 = false;
  let plain = false;
  for (const { cidr, ipipMode, vxlanMode } of pools) {
    if (ipipMode !== "") ipip = true;
    if (vxlanMode !== "" && ipVersion(cidr) === 4) vxlan = true;
    if (vxlanMode !== "" && ipVersion(cidr) === 6) vxlanV6 = true;
    if (ipipMode === "" && vxlanMode === "") plain = true;
  }
  return {
    type: "encapsulation",
    ipipEnabled: settings.ipipEnabled ?? ipip,
    vxlanEnabled: settings.vxlanEnabled ?? vxlan,
    vxlanEnabledV6: vxlanV6,
    noEncapNeeded: settings.ownsNoEncapRoutes && plain,
  };
}

/** Says the answer at the end of the first resync, and again after every change of a pool. */
export class EncapsulationResolver {
  readonly #pools = new Map<Cidr, Pool>();
  readonly #settings: EncapsulationSettings;
  readonly #say: (encapsulation: Encapsulation) => void;
  #isInSync = false;

  constructor(settings: EncapsulationSettings, say: (encapsulation: Encapsulation) => void) {
    this.#settings = settings;
    this.#say = say;
  }

  setPool(cidr: Cidr, pool: Pool | undefined): void {
    if (pool === undefined) this.#pools.delete(cidr);
    else this.#pools.set(cidr, pool);
    if (this.#isInSync) this.#say(computeEncapsulation(this.#pools.values(), this.#settings));
  }

  setInSync(): void {
    if (this.#isInSync) return;
    this.#isInSync = true;
    this.#say(computeEncapsulation(this.#pools.values(), this.#settings));
  }
}
