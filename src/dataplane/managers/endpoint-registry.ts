// Determines the endpoint of each interface. Host endpoints are found by interface name or by address.
//
// If several workloads claim one interface, it belongs to the one in the interface's alias. Without such an alias it belongs to
// none, and the interface stays closed. (Calico assigns it to the lowest identity. The author of a pod could then get the
// addresses or the policy of another pod by a name with the same hash.)
import type { ProtoHostEndpoint, ProtoWorkloadEndpoint, WorkloadEndpointId } from "../../calc/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { ownsInterface, parseInterfaceAlias } from "../../model/index.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";

export interface ActiveWorkload {
  readonly id: WorkloadEndpointId;
  readonly endpoint: ProtoWorkloadEndpoint;
}
export interface InterfaceInfo {
  readonly index: number;
  readonly state: "up" | "down";
}

export interface EndpointRegistryOptions {
  /** Reads the alias of an interface from the kernel. Called only for interfaces that several workloads claim. */
  readonly aliasOf?: (interfaceName: string) => string | undefined;
  readonly logger?: Logger;
}

/** A text for an identity. Texts have the same order as identities. */
export const workloadKey = (id: WorkloadEndpointId): string =>
  `${id.orchestrator}\u0000${id.workload}\u0000${id.endpoint}`;

export class EndpointRegistry implements Manager {
  readonly name = "endpoint registry";
  readonly #workloads = new Map<string, ActiveWorkload>();
  /** Keys of the workloads that claim each interface. */
  readonly #claims = new Map<string, Set<string>>();
  readonly #active = new Map<string, ActiveWorkload>();
  readonly #hosts = new Map<string, ProtoHostEndpoint>();
  readonly #interfaces = new Map<string, InterfaceInfo>();
  readonly #addresses = new Map<string, ReadonlySet<IpAddress>>();
  readonly #touched = new Set<string>();
  readonly #workloadListeners: Set<string>[] = [];
  readonly #isExcluded: (interfaceName: string) => boolean;
  readonly #options: EndpointRegistryOptions;
  /** Interfaces that several workloads claim, with the logged fields. */
  readonly #contested = new Map<string, string>();
  #areHostsStale = true;
  #hostVersion = 0;
  #hostByInterface: ReadonlyMap<string, string> = new Map();
  #wildcard: string | undefined;

  /** @param isExcluded true for interfaces that never belong to a host endpoint: of workloads, or excluded by configuration */
  constructor(isExcluded: (interfaceName: string) => boolean, options: EndpointRegistryOptions = {}) {
    this.#isExcluded = isExcluded;
    this.#options = options;
  }

  /** Workloads by interface. */
  get activeWorkloads(): ReadonlyMap<string, ActiveWorkload> {
    return this.#active;
  }
  get hostEndpoints(): ReadonlyMap<string, ProtoHostEndpoint> {
    return this.#hosts;
  }
  get interfaces(): ReadonlyMap<string, InterfaceInfo> {
    return this.#interfaces;
  }
  get addresses(): ReadonlyMap<string, ReadonlySet<IpAddress>> {
    return this.#addresses;
  }
  /** Host endpoint ids by interface. */
  get hostByInterface(): ReadonlyMap<string, string> {
    return this.#hostByInterface;
  }
  /** The host endpoint for all interfaces without their own. */
  get wildcardHost(): string | undefined {
    return this.#wildcard;
  }
  /** Changes whenever host endpoints may have changed. */
  get hostVersion(): number {
    return this.#hostVersion;
  }

  /** Returns a set to which interfaces are added when their workload changes. The caller empties it. */
  watchWorkloads(): Set<string> {
    const listener = new Set<string>();
    this.#workloadListeners.push(listener);
    return listener;
  }

  onUpdate(message: ManagerMessage): void {
    switch (message.type) {
      case "workloadEndpointUpdate":
        return this.#setWorkload(workloadKey(message.id), { id: message.id, endpoint: message.endpoint });
      case "workloadEndpointRemove":
        return this.#removeWorkload(workloadKey(message.id));
      case "hostEndpointUpdate":
        this.#hosts.set(message.endpointId, message.endpoint);
        this.#areHostsStale = true;
        return;
      case "hostEndpointRemove":
        this.#hosts.delete(message.endpointId);
        this.#areHostsStale = true;
        return;
      case "interfaceState": {
        const { name, index, state } = message;
        if (state === "gone") this.#interfaces.delete(name);
        else this.#interfaces.set(name, { index, state });
        this.#touched.add(name);
        this.#areHostsStale = true;
        return;
      }
      case "interfaceAddresses":
        if (message.addresses === undefined) this.#addresses.delete(message.name);
        else this.#addresses.set(message.name, message.addresses);
        this.#areHostsStale = true;
        return;
      default:
        return;
    }
  }

  resolve(): void {
    // An alias can change without a message.
    for (const name of this.#contested.keys())
      if (this.#ownerOf(name) !== this.#active.get(name)) this.#touched.add(name);
    for (const interfaceName of this.#touched) {
      const owner = this.#ownerOf(interfaceName);
      if (owner === undefined) this.#active.delete(interfaceName);
      else this.#active.set(interfaceName, owner);
      for (const listener of this.#workloadListeners) listener.add(interfaceName);
    }
    this.#touched.clear();
    if (this.#areHostsStale) this.#resolveHosts();
  }

  /** Returns the workload to which the interface belongs. */
  #ownerOf(interfaceName: string): ActiveWorkload | undefined {
    const claims = [...(this.#claims.get(interfaceName) ?? [])].sort().flatMap((key) => this.#workloads.get(key) ?? []);
    if (claims.length < 2) {
      this.#contested.delete(interfaceName);
      return claims[0];
    }
    const named = parseInterfaceAlias(this.#options.aliasOf?.(interfaceName));
    const owner =
      named === undefined ? undefined : claims.find(({ id }) => ownsInterface(named, id.orchestrator, id.workload));
    const fields = {
      interface: interfaceName,
      endpoints: claims.map(({ id }) => `${id.orchestrator} ${id.workload} ${id.endpoint}`).join(", "),
      owner: owner?.id.workload ?? "none; the interface stays closed",
    };
    const text = JSON.stringify(fields);
    if (this.#contested.get(interfaceName) !== text)
      this.#options.logger?.warn(
        "several workload endpoints claim one interface; the alias of the interface decides",
        fields,
      );
    this.#contested.set(interfaceName, text);
    return owner;
  }

  #setWorkload(key: string, workload: ActiveWorkload): void {
    const before = this.#workloads.get(key);
    if (before !== undefined && before.endpoint.name !== workload.endpoint.name)
      this.#unclaim(key, before.endpoint.name);
    this.#workloads.set(key, workload);
    const { name } = workload.endpoint;
    let claims = this.#claims.get(name);
    if (claims === undefined) this.#claims.set(name, (claims = new Set()));
    claims.add(key);
    this.#touched.add(name);
  }

  #removeWorkload(key: string): void {
    const before = this.#workloads.get(key);
    if (before === undefined) return;
    this.#workloads.delete(key);
    this.#unclaim(key, before.endpoint.name);
  }

  #unclaim(key: string, interfaceName: string): void {
    const claims = this.#claims.get(interfaceName);
    claims?.delete(key);
    if (claims?.size === 0) this.#claims.delete(interfaceName);
    this.#touched.add(interfaceName);
  }

  #resolveHosts(): void {
    this.#areHostsStale = false;
    this.#hostVersion++;
    const ids = [...this.#hosts.keys()].sort();
    this.#wildcard = ids.find((id) => this.#hosts.get(id)?.name === "*");
    const found = new Map<string, string>();
    const names = new Set([...this.#interfaces.keys(), ...this.#addresses.keys()]);
    for (const interfaceName of names) {
      if (this.#isExcluded(interfaceName)) continue;
      const addresses = this.#addresses.get(interfaceName);
      const id = ids.find((candidate) => {
        const endpoint = this.#hosts.get(candidate);
        if (endpoint === undefined || endpoint.name === "*") return false;
        if (endpoint.name !== "") return endpoint.name === interfaceName; // if there is a name, addresses are ignored
        const expected = [...endpoint.expectedIpv4Addrs, ...endpoint.expectedIpv6Addrs];
        return expected.some((address) => addresses?.has(address) === true);
      });
      if (id !== undefined) found.set(interfaceName, id);
    }
    this.#hostByInterface = found;
  }
}
