// Keeps the chains of policies and profiles in every table that might use them.
import type { PolicyId, ProtoPolicy, ProtoProfile, ProtoRule } from "../../calc/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import type { RulesConfig } from "../rules/config.ts";
import type { RuleTable, FamilyRules } from "../rules/rule-table.ts";
import { ChainOwners, type SetNameOwners } from "../rules/name-owners.ts";
import { type ChainNames, type Direction, policyPath, policyTitle } from "../rules/names.ts";
import { type PolicyChainContext, policyChain, profileChain } from "../rules/policy-chains.ts";
import type { RuleChain } from "../rules/rule.ts";

const DIRECTIONS: readonly Direction[] = ["ingress", "egress"];

export class PolicyManager implements Manager {
  readonly name = "policies";
  readonly #config: RulesConfig;
  readonly #names: ChainNames;
  readonly #families: readonly FamilyRules[];
  readonly #setOwners: SetNameOwners;
  readonly #chainOwners = new ChainOwners();
  readonly #log: Logger;

  constructor(deps: {
    readonly config: RulesConfig;
    readonly names: ChainNames;
    readonly families: readonly FamilyRules[];
    readonly setOwners: SetNameOwners;
    readonly logger: Logger;
  }) {
    this.#config = deps.config;
    this.#names = deps.names;
    this.#families = deps.families;
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
      for (const family of this.#families) {
        const built = policyChain(this.#contextFor(family, direction), id, policy);
        const chain = isClosed ? denyAll(built, policyTitle(id)) : built;
        for (const table of policyTables(family)) {
          // A forced chain is written only to the filter table.
          if (chain.isForced === true && table.tableName !== "filter") table.setChain({ ...chain, isForced: false });
          else table.setChain(chain);
        }
      }
    }
  }

  #removePolicy(id: PolicyId): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.policy(direction, id);
      if (!this.#release(name, policyPath(id))) continue;
      for (const family of this.#families) for (const table of policyTables(family)) table.removeChain(name);
    }
  }

  #setProfile(profileName: string, profile: ProtoProfile): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.profile(direction, profileName);
      const rules = direction === "ingress" ? profile.inboundRules : profile.outboundRules;
      const title = `Profile ${profileName}`;
      const isClosed = this.#isClosed({ name, path: profileName, title, rules });
      for (const family of this.#families) {
        const built = profileChain(this.#contextFor(family, direction), profileName, profile);
        const chain = isClosed ? denyAll(built, title) : built;
        for (const table of profileTables(family, direction)) table.setChain(chain);
      }
    }
  }

  #removeProfile(profileName: string): void {
    for (const direction of DIRECTIONS) {
      const name = this.#names.profile(direction, profileName);
      if (!this.#release(name, profileName)) continue;
      for (const family of this.#families)
        for (const table of profileTables(family, direction)) table.removeChain(name);
    }
  }

  /** True if the name of the chain, or of a set that its rules use, is not unique. */
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
      policy: of.title,
      ...(sharesChain ? { chain: of.name } : {}),
      ...(set === undefined ? {} : { set }),
    });
    return true;
  }

  /** @returns true if the chain must be removed; a chain of another owner stays closed until that owner changes */
  #release(name: string, path: string): boolean {
    return !isHashed(name, path) || this.#chainOwners.release(name, path);
  }

  #contextFor({ version }: FamilyRules, direction: Direction): PolicyChainContext {
    return { config: this.#config, names: this.#names, version, direction };
  }
}

/** A name that contains the whole path is unique. */
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

const policyTables = ({ tables }: FamilyRules): readonly RuleTable[] => [tables.raw, tables.mangle, tables.filter];
/** Egress profiles of host endpoints are also applied after destination NAT, in mangle. */
const profileTables = ({ tables }: FamilyRules, direction: Direction): readonly RuleTable[] =>
  direction === "egress" ? [tables.mangle, tables.filter] : [tables.filter];
