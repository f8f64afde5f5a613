// Policies and profiles as chains, offered to every table that might use them.
import type { PolicyId, ProtoPolicy, ProtoProfile } from "../../calc/index.ts";
import type { Manager, ManagerMessage } from "../manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { LayerTable, RulePlane } from "../rules/layer-table.ts";
import type { ChainNames, Direction } from "../rules/names.ts";
import { type ChainPlace, policyChain, profileChain } from "../rules/policy-chains.ts";

const DIRECTIONS: readonly Direction[] = ["ingress", "egress"];

export class PolicyManager implements Manager {
  readonly name = "policies";
  readonly #config: RulesConfig;
  readonly #names: ChainNames;
  readonly #planes: readonly RulePlane[];

  constructor(deps: {
    readonly config: RulesConfig;
    readonly names: ChainNames;
    readonly planes: readonly RulePlane[];
  }) {
    this.#config = deps.config;
    this.#names = deps.names;
    this.#planes = deps.planes;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "activePolicyUpdate") this.#setPolicy(message.id, message.policy);
    else if (message.type === "activePolicyRemove") this.#removePolicy(message.id);
    else if (message.type === "activeProfileUpdate") this.#setProfile(message.name, message.profile);
    else if (message.type === "activeProfileRemove") this.#removeProfile(message.name);
  }

  #setPolicy(id: PolicyId, policy: ProtoPolicy): void {
    for (const plane of this.#planes)
      for (const direction of DIRECTIONS) {
        const built = policyChain(this.#place(plane, direction), id, policy);
        for (const table of policyTables(plane)) {
          // Only the filter table writes a policy that nothing uses yet.
          if (built.isForced === true && table.layer !== "filter") table.setChain({ ...built, isForced: false });
          else table.setChain(built);
        }
      }
  }

  #removePolicy(id: PolicyId): void {
    for (const plane of this.#planes)
      for (const direction of DIRECTIONS)
        for (const table of policyTables(plane)) table.removeChain(this.#names.policy(direction, id));
  }

  #setProfile(name: string, profile: ProtoProfile): void {
    for (const plane of this.#planes)
      for (const direction of DIRECTIONS) {
        const built = profileChain(this.#place(plane, direction), name, profile);
        for (const table of profileTables(plane, direction)) table.setChain(built);
      }
  }

  #removeProfile(name: string): void {
    for (const plane of this.#planes)
      for (const direction of DIRECTIONS)
        for (const table of profileTables(plane, direction)) table.removeChain(this.#names.profile(direction, name));
  }

  #place({ version }: RulePlane, direction: Direction): ChainPlace {
    return { config: this.#config, names: this.#names, version, direction };
  }
}

const policyTables = ({ tables }: RulePlane): readonly LayerTable[] => [tables.raw, tables.mangle, tables.filter];
/** Host endpoints' egress profiles are also looked at after destination NAT. */
const profileTables = ({ tables }: RulePlane, direction: Direction): readonly LayerTable[] =>
  direction === "egress" ? [tables.mangle, tables.filter] : [tables.filter];
