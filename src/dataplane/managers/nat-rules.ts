// Keeps the NAT rules: masquerading of workload traffic that leaves the cluster, and floating addresses of workloads.
import type { NatInfo } from "../../calc/index.ts";
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { type RulesConfig, SET } from "../rules/config.ts";
import type { FamilyRules } from "../rules/rule-table.ts";
import {
  type Action,
  chain,
  inSet,
  isAddress,
  type Match,
  notInSet,
  outInterface,
  protocolIs,
  returnAction,
  type Rule,
} from "../rules/rule.ts";
import type { ActiveWorkload, EndpointRegistry } from "./endpoint-registry.ts";

/** Keeps the chain `cali-nat-outgoing`. It is empty unless a pool of the family has outgoing NAT. */
export class OutgoingNat implements Manager {
  readonly name = "outgoing NAT";
  readonly #config: RulesConfig;
  readonly #families: readonly FamilyRules[];
  readonly #pools = new Map<string, IpVersion>();
  #isStale = true;

  constructor(config: RulesConfig, families: readonly FamilyRules[]) {
    this.#config = config;
    this.#families = families;
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "poolUpdate" && message.masquerade) this.#pools.set(message.id, ipVersion(message.cidr));
    else if (message.type === "poolUpdate" || message.type === "poolRemove") this.#pools.delete(message.id);
    else return;
    this.#isStale = true;
  }

  apply(): void {
    if (!this.#isStale) return;
    this.#isStale = false;
    const versions = new Set(this.#pools.values());
    for (const { tables, version } of this.#families)
      tables.nat.setChain(chain("cali-nat-outgoing", versions.has(version) ? this.#rules(version) : []));
  }

  #rules(version: IpVersion): Rule[] {
    const { natExcludesHosts, natOutgoingInterface, natOutgoingAddress, natPortRange: ports } = this.#config;
    const leaving = (protocol?: string): Match[] => [
      inSet("source", SET.masqueradePools),
      notInSet("destination", SET.allPools),
      ...(natExcludesHosts ? [notInSet("destination", SET.allHosts)] : []),
      ...(protocol === undefined ? [] : [protocolIs(protocol)]),
      ...(natOutgoingInterface === undefined ? [] : [outInterface(natOutgoingInterface.replace(/\+$/, "*"))]),
    ];
    // The configured address belongs to one family; the other family is masqueraded.
    const to =
      natOutgoingAddress !== undefined && ipVersion(natOutgoingAddress) === version ? natOutgoingAddress : undefined;
    const translate = (withPorts: boolean): Action => {
      const range = withPorts && ports !== undefined ? { ports } : {};
      return to === undefined ? { kind: "masquerade", ...range } : { kind: "snat", to, ...range };
    };
    const rules: Rule[] = [];
    if (ports !== undefined)
      for (const protocol of ["tcp", "udp"])
        rules.push(
          { match: leaving(protocol), action: translate(true) },
          { match: leaving(protocol), action: returnAction },
        );
    rules.push({ match: leaving(), action: translate(false) });
    return rules;
  }
}

/** Keeps the chains `cali-fip-dnat` and `cali-fip-snat`. */
export class FloatingIps implements Manager {
  readonly name = "floating addresses";
  readonly #families: readonly FamilyRules[];
  readonly #registry: EndpointRegistry;
  readonly #isEnabled: boolean;
  readonly #dirty: Set<string>;
  #isStale = true;

  constructor(deps: {
    readonly families: readonly FamilyRules[];
    readonly registry: EndpointRegistry;
    readonly isEnabled: boolean;
  }) {
    this.#families = deps.families;
    this.#registry = deps.registry;
    this.#isEnabled = deps.isEnabled;
    this.#dirty = deps.registry.watchWorkloads();
  }

  onUpdate(): void {} // the registry stores the messages

  apply(): void {
    if (this.#dirty.size === 0 && !this.#isStale) return;
    this.#dirty.clear();
    this.#isStale = false;
    for (const { tables, version } of this.#families) {
      const owners = floatingAddressTargets(this.#registry, version, this.#isEnabled);
      tables.nat.setChain(
        chain(
          "cali-fip-dnat",
          [...owners].map(
            ([external, internal]): Rule => ({
              match: [isAddress("destination", external)],
              action: { kind: "dnat", to: internal },
            }),
          ),
        ),
      );
      tables.nat.setChain(chain("cali-fip-snat", hairpinRules(owners)));
    }
  }
}

/** Floating addresses of OpenStack workloads are always used, those of others only if the feature is enabled. */
export function floatingAddresses(
  { id, endpoint }: ActiveWorkload,
  version: IpVersion,
  isEnabled: boolean,
): readonly NatInfo[] {
  if (!isEnabled && id.orchestrator !== "openstack") return [];
  return version === 4 ? endpoint.ipv4Nat : endpoint.ipv6Nat;
}

/**
 * Returns the internal address for each external address, sorted. If several workloads claim one external address, it belongs
 * to the lowest internal address, for NAT and for routes.
 */
export function floatingAddressTargets(
  registry: EndpointRegistry,
  version: IpVersion,
  isEnabled: boolean,
): Map<IpAddress, IpAddress> {
  const owners = new Map<IpAddress, IpAddress>();
  for (const workload of registry.activeWorkloads.values())
    for (const { external, internal } of floatingAddresses(workload, version, isEnabled)) {
      const other = owners.get(external);
      if (other === undefined || internal < other) owners.set(external, internal);
    }
  return new Map([...owners].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** For a workload that connects to its own floating address: the reply must come from that address. */
function hairpinRules(owners: ReadonlyMap<IpAddress, IpAddress>): Rule[] {
  const externalOf = new Map<IpAddress, IpAddress>();
  for (const [external, internal] of owners) {
    const other = externalOf.get(internal);
    if (other === undefined || external < other) externalOf.set(internal, external);
  }
  return [...externalOf]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([internal, external]) => ({
      match: [isAddress("destination", internal), isAddress("source", internal)],
      action: { kind: "snat", to: external },
    }));
}
