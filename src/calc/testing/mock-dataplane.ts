// A dataplane that stores the messages it receives and throws if they violate a guarantee of messages.ts.
import type { DataplaneMessage, PolicyId, TierInfo } from "../messages.ts";

const policyText = ({ kind, namespace, name }: PolicyId) => `${kind} ${namespace === "" ? "" : `${namespace}/`}${name}`;

export class MockDataplane {
  readonly sets = new Map<string, Set<string>>();
  readonly objects = new Map<string, DataplaneMessage>();
  readonly setTypes = new Map<string, string>();
  encapsulation: DataplaneMessage | undefined;
  bgp: DataplaneMessage | undefined;
  isInSync = false;
  messages = 0;
  /** Nodes that are destinations of this flush's routes and have no tunnel endpoint so far. */
  readonly #routesWithoutVtep = new Set<string>();

  /** Marks the end of a flush. A tunnel endpoint may arrive after its routes only in a later flush. */
  endFlush(): void {
    this.#routesWithoutVtep.clear();
  }

  receive(message: DataplaneMessage): void {
    this.messages++;
    switch (message.type) {
      case "inSync":
        this.#check(!this.isInSync, "inSync twice");
        this.isInSync = true;
        return;
      case "ipSetUpdate":
        this.#check(new Set(message.members).size === message.members.length, `${message.id} has repeated members`);
        this.sets.set(message.id, new Set(message.members));
        this.setTypes.set(message.id, message.setType);
        return;
      case "ipSetDeltaUpdate": {
        const members = this.sets.get(message.id);
        if (members === undefined) throw new Error(`delta for unknown set ${message.id}`);
        this.#check(message.added.length + message.removed.length > 0, `empty delta for ${message.id}`);
        for (const member of message.removed)
          this.#check(members.delete(member), `${message.id}: removes ${member}, which is not a member`);
        for (const member of message.added) {
          this.#check(!members.has(member), `${message.id}: adds ${member}, which is already a member`);
          members.add(member);
        }
        return;
      }
      case "ipSetRemove":
        this.#check(this.sets.delete(message.id), `removes unknown set ${message.id}`);
        this.#check(!this.#usesSet(message.id), `removes set ${message.id}, which a rule uses`);
        return;
      case "activePolicyUpdate": {
        for (const rule of [...message.policy.inboundRules, ...message.policy.outboundRules])
          for (const id of setsOf(rule)) this.#check(this.sets.has(id), `rule of a policy uses unknown set ${id}`);
        this.objects.set(`policy ${policyText(message.id)}`, message);
        return;
      }
      case "activePolicyRemove": {
        const name = policyText(message.id);
        for (const endpoint of this.#endpoints())
          for (const tier of tiersOf(endpoint))
            for (const id of [...tier.ingressPolicies, ...tier.egressPolicies])
              this.#check(policyText(id) !== name, `removes policy ${name}, which an endpoint uses`);
        return this.#remove(`policy ${name}`);
      }
      case "activeProfileUpdate":
        for (const rule of [...message.profile.inboundRules, ...message.profile.outboundRules])
          for (const id of setsOf(rule)) this.#check(this.sets.has(id), `rule of a profile uses unknown set ${id}`);
        this.objects.set(`profile ${message.name}`, message);
        return;
      case "activeProfileRemove":
        for (const endpoint of this.#endpoints())
          this.#check(
            !endpoint.endpoint.profileIds.includes(message.name),
            `removes profile ${message.name}, which an endpoint uses`,
          );
        return this.#remove(`profile ${message.name}`);
      case "workloadEndpointUpdate":
      case "hostEndpointUpdate":
        for (const name of message.endpoint.profileIds)
          this.#check(this.objects.has(`profile ${name}`), `endpoint uses unknown profile ${name}`);
        for (const tier of tiersOf(message))
          for (const id of [...tier.ingressPolicies, ...tier.egressPolicies])
            this.#check(this.objects.has(`policy ${policyText(id)}`), `endpoint uses unknown policy ${policyText(id)}`);
        this.objects.set(
          message.type === "workloadEndpointUpdate" ? `wep ${message.id.workload}` : `hep ${message.endpointId}`,
          message,
        );
        return;
      case "workloadEndpointRemove":
        return this.#remove(`wep ${message.id.workload}`);
      case "hostEndpointRemove":
        return this.#remove(`hep ${message.endpointId}`);
      case "hostMetadataUpdate":
        this.objects.set(`host ${message.hostname}`, message);
        return;
      case "hostMetadataRemove":
        return this.#remove(`host ${message.hostname}`);
      case "poolUpdate":
        this.objects.set(`pool ${message.id}`, message);
        return;
      case "poolRemove":
        return this.#remove(`pool ${message.id}`);
      case "serviceAccountUpdate":
        this.objects.set(`serviceaccount ${message.namespace}/${message.name}`, message);
        return;
      case "serviceAccountRemove":
        return this.#remove(`serviceaccount ${message.namespace}/${message.name}`);
      case "namespaceUpdate":
        this.objects.set(`namespace ${message.name}`, message);
        return;
      case "namespaceRemove":
        return this.#remove(`namespace ${message.name}`);
      case "routeUpdate":
        if (message.poolType === "vxlan" && !this.objects.has(`vtep ${message.dstNodeName}`))
          this.#routesWithoutVtep.add(message.dstNodeName);
        this.objects.set(`route ${message.dst}`, message);
        return;
      case "routeRemove":
        return this.#remove(`route ${message.dst}`);
      case "vtepUpdate":
        this.#check(!this.#routesWithoutVtep.has(message.node), `a route through ${message.node} came before its VTEP`);
        this.objects.set(`vtep ${message.node}`, message);
        return;
      case "vtepRemove":
        return this.#remove(`vtep ${message.node}`);
      case "wireguardUpdate":
        this.objects.set(`wireguard ${message.ipVersion} ${message.hostname}`, message);
        return;
      case "wireguardRemove":
        return this.#remove(`wireguard ${message.ipVersion} ${message.hostname}`);
      case "serviceUpdate":
        this.objects.set(`service ${message.namespace}/${message.name}`, message);
        return;
      case "serviceRemove":
        return this.#remove(`service ${message.namespace}/${message.name}`);
      case "encapsulation":
        this.encapsulation = message;
        return;
      case "globalBgpConfigUpdate":
        // An empty configuration is equivalent to none.
        this.bgp = Object.values(message).some((value) => value !== message.type && value.length > 0)
          ? message
          : undefined;
        return;
      case "configUpdate":
        return;
    }
  }

  /** Returns the complete state in a form that tests can compare. */
  state(): Record<string, unknown> {
    const state: Record<string, unknown> = {};
    for (const [id, members] of this.sets) state[`set ${id}`] = [...members].sort();
    for (const [key, message] of this.objects) state[key] = message;
    if (this.encapsulation !== undefined) state["encapsulation"] = this.encapsulation;
    if (this.bgp !== undefined) state["bgp"] = this.bgp;
    return Object.fromEntries(Object.entries(state).sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  #endpoints() {
    return [...this.objects.values()].filter(
      (message) => message.type === "workloadEndpointUpdate" || message.type === "hostEndpointUpdate",
    );
  }

  #usesSet(id: string): boolean {
    for (const message of this.objects.values()) {
      const rules =
        message.type === "activePolicyUpdate"
          ? [...message.policy.inboundRules, ...message.policy.outboundRules]
          : message.type === "activeProfileUpdate"
            ? [...message.profile.inboundRules, ...message.profile.outboundRules]
            : [];
      if (rules.some((rule) => setsOf(rule).includes(id))) return true;
    }
    return false;
  }

  #remove(key: string): void {
    this.#check(this.objects.delete(key), `removes ${key}, which was never sent`);
  }

  #check(isValid: boolean, violation: string): void {
    if (!isValid) throw new Error(violation);
  }
}

function tiersOf(message: Extract<DataplaneMessage, { endpoint: unknown }>): readonly TierInfo[] {
  if (message.type === "workloadEndpointUpdate") return message.endpoint.tiers;
  const { tiers, untrackedTiers, preDnatTiers, forwardTiers } = message.endpoint;
  return [...tiers, ...untrackedTiers, ...preDnatTiers, ...forwardTiers];
}

type Rules = Extract<DataplaneMessage, { type: "activePolicyUpdate" }>["policy"]["inboundRules"];
function setsOf(rule: Rules[number]): readonly string[] {
  return [
    ...rule.srcIpSetIds,
    ...rule.dstIpSetIds,
    ...rule.notSrcIpSetIds,
    ...rule.notDstIpSetIds,
    ...rule.srcNamedPortIpSetIds,
    ...rule.dstNamedPortIpSetIds,
    ...rule.notSrcNamedPortIpSetIds,
    ...rule.notDstNamedPortIpSetIds,
    ...rule.dstIpPortSetIds,
  ];
}
