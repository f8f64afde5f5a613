// Computes which kinds of tunnel the cluster's IP pools require. Felix uses the same computation at startup to decide
// which parts run, so it restarts when the result changes later.
import { type Cidr, ipVersion } from "../../lib/ip/ip.ts";
import type { Pool } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";

export type Encapsulation = Extract<DataplaneMessage, { readonly type: "encapsulation" }>;

export interface EncapsulationSettings {
  /** If set, overrides the value computed from the pools. The same applies to `vxlanEnabled`. */
  readonly ipipEnabled?: boolean;
  readonly vxlanEnabled?: boolean;
  /** True if Felix, not BIRD, programs the routes to pools without encapsulation. */
  readonly programsNoEncapRoutes: boolean;
}

type PoolModes = Pick<Pool, "ipipMode" | "vxlanMode"> & { readonly cidr: Cidr };

export function computeEncapsulation(pools: Iterable<PoolModes>, settings: EncapsulationSettings): Encapsulation {
  let ipip = false;
  let vxlan = false;
  let vxlanV6 = false;
  let noEncap = false;
  for (const { cidr, ipipMode, vxlanMode } of pools) {
    if (ipipMode !== "") ipip = true;
    if (vxlanMode !== "" && ipVersion(cidr) === 4) vxlan = true;
    if (vxlanMode !== "" && ipVersion(cidr) === 6) vxlanV6 = true;
    if (ipipMode === "" && vxlanMode === "") noEncap = true;
  }
  return {
    type: "encapsulation",
    ipipEnabled: settings.ipipEnabled ?? ipip,
    vxlanEnabled: settings.vxlanEnabled ?? vxlan,
    vxlanEnabledV6: vxlanV6,
    noEncapNeeded: settings.programsNoEncapRoutes && noEncap,
  };
}

/** Emits the result at the end of the first resync, and again after each change of a pool. */
export class EncapsulationResolver {
  readonly #pools = new Map<Cidr, Pool>();
  readonly #settings: EncapsulationSettings;
  readonly #emit: (encapsulation: Encapsulation) => void;
  #isInSync = false;

  constructor(settings: EncapsulationSettings, emit: (encapsulation: Encapsulation) => void) {
    this.#settings = settings;
    this.#emit = emit;
  }

  setPool(cidr: Cidr, pool: Pool | undefined): void {
    if (pool === undefined) this.#pools.delete(cidr);
    else this.#pools.set(cidr, pool);
    if (this.#isInSync) this.#emit(computeEncapsulation(this.#pools.values(), this.#settings));
  }

  setInSync(): void {
    if (this.#isInSync) return;
    this.#isInSync = true;
    this.#emit(computeEncapsulation(this.#pools.values(), this.#settings));
  }
}
