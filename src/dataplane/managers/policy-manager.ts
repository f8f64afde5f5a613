// Policies and profiles as chains, offered to every table that might use them.
import type { PolicyId, ProtoPolicy, ProtoProfile, ProtoRule } from "../../calc/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { Manager, ManagerMessage } from "../manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { LayerTable, RulePlane } from "../rules/layer-table.ts";
import { ChainOwners, type SetNameOwners } from "../rules/name-owners.ts";
import { type ChainNames, type Direction, policyPath, policyTitle } from "../rules/names.ts";
import { type ChainPlace, policyChain, profileChain } from "../rules/policy-chains.ts";
import type { RuleChain } from "../rules/rule.ts";

const DIRECTIONS: readonly Direction[] = ["ingress", "egress"];

export class PolicyManager implements Manager {
  readonly name = "policies";
  readonly #config: RulesConfig;
  readonly #names: ChainNames;
  readonly #planes: readonly RulePlane[];
  readonly #setOwners: SetNameOwners;
  readonly #chainOwners = new ChainOwners();
  readonly #log: Logger;

  constructor(deps: {
    readonly config: RulesConfig;
    readonly names: ChainNames;
    readonly planes: readonly RulePlane[];
    readonly setOwners: SetNameOwners;
    readonly logger: Logger;
  }) {
    this.#config = deps.config;
    this.#names = deps.names;
    this.#planes = deps.planes;
    this.#setOwners = deps.setOwners;
    this.#log = deps.logger;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "activePolicyUpdate") this.#setPolicy(message.id, message.policy);
    else if (message.type === "activePolicyRemove") this.#removePolicy(message.id);
    else if (message.type === "activeProfileUpdate") this.#setProfile(message.name, message.profile);
    else if (message.type === "activeProfileRemove") this.#removeProfile(message.name);
  }

  #setPolicy(id: PolicyId, policy: ProtoPolicy): void {
    const path = policyPath(id);
    for (const direction of DIRECTIONS) {
      const name = this.#names.policy(direction, id);
      const rules = direction === "ingress" ? policy.inboundRules : policy.outboundRules;
      const isClosed = this.#isClosed({ name, path, title: policyTitle(id), rules });
      for (const plane of this.#planes) {
        const built = policyChain(this.#place(plane, direction), id, policy);
        const chain = isClosed ? denyAll(built, policyTitle(id)) : built;
        for (const table of policyTables(plane)) {
          // Only the filter table writes a policy that nothing uses yet.
          if (chain.isForced === true && table.layer !== "filter") table.setChain({ ...chain, isForced: false });
          else table.setChain(chain);
        }
      }
    }
  }

  #removePolicy(id: PolicyId): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.policy(direction, id);
      if (!this.#release(name, policyPath(id))) continue;
      for (const plane of this.#planes) for (const table of policyTables(plane)) table.removeChain(name);
    }
  }

  #setProfile(profileName: string, profile: ProtoProfile): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.profile(direction, profileName);
      const rules = direction === "ingress" ? profile.inboundRules : profile.outboundRules;
      const title = `Profile ${profileName}`;
      const isClosed = this.#isClosed({ name, path: profileName, title, rules });
      for (const plane of this.#planes) {
        const built = profileChain(this.#place(plane, direction), profileName, profile);
        const chain = isClosed ? denyAll(built, title) : built;
        for (const table of profileTables(plane, direction)) table.setChain(chain);
      }
    }
  }

  #removeProfile(profileName: string): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.profile(direction, profileName);
      if (!this.#release(name, profileName)) continue;
      for (const plane of this.#planes) for (const table of profileTables(plane, direction)) table.removeChain(name);
    }
  }

  /** Whether the chain or a set of its rules would be another object's too. */
  #isClosed(of: {
    readonly name: string;
    readonly path: string;
    readonly title: string;
    readonly rules: readonly ProtoRule[];
  }): boolean {
    const sharesChain = isHashed(of.name, of.path) && !this.#chainOwners.claim(of.name, of.path);
    const owners = this.#setOwners;
    const set = owners.hasRejected ? of.rules.flatMap(setsOf).find((id) => owners.isRejected(id)) : undefined;
    if (!sharesChain && set === undefined) return false;
    this.#log.error("two names have the same hash; the policy or profile denies everything", {
      of: of.title,
      ...(sharesChain ? { chain: of.name } : {}),
      ...(set === undefined ? {} : { set }),
    });
    return true;
  }

  /** @returns whether the chain is to be removed; one that another owner has stays closed until that owner changes */
  #release(name: string, path: string): boolean {
    return !isHashed(name, path) || this.#chainOwners.release(name, path);
  }

  #place({ version }: RulePlane, direction: Direction): ChainPlace {
    return { config: this.#config, names: this.#names, version, direction };
  }
}

/** A name that contains the whole path belongs to nobody else. */
const isHashed = (name: string, path: string): boolean => !name.endsWith(path);

const denyAll = (built: RuleChain, title: string): RuleChain => ({
  ...built,
  rules: [{ action: { kind: "decide", decision: "deny" }, comments: [`${title}: denied, its name is not unique`] }],
});

const setsOf = (rule: ProtoRule): readonly string[] => [
  ...rule.srcIpSetIds,
  ...rule.dstIpSetIds,
  ...rule.dstIpPortSetIds,
  ...rule.srcNamedPortIpSetIds,
  ...rule.dstNamedPortIpSetIds,
  ...rule.notSrcIpSetIds,
  ...rule.notDstIpSetIds,
  ...rule.notSrcNamedPortIpSetIds,
  ...rule.notDstNamedPortIpSetIds,
];

const policyTables = ({ tables }: RulePlane): readonly LayerTable[] => [tables.raw, tables.mangle, tables.filter];
/** Host endpoints' egress profiles are also looked at after destination NAT. */
const profileTables = ({ tables }: RulePlane, direction: Direction): readonly LayerTable[] =>
  direction === "egress" ? [tables.mangle, tables.filter] : [tables.filter];
