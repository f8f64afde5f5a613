// Reports the status of endpoints when it changes. A workload is up if its link is running, its policy is enforced and its
// interface is configured.
import type { DataplaneReport, WorkloadEndpointId } from "../../calc/index.ts";
import type { Manager, ManagerMessage } from "../loop/manager.ts";
import { type EndpointRegistry, workloadKey } from "./endpoint-registry.ts";

type Status = "up" | "down" | "error";

export class EndpointStatus implements Manager {
  readonly name = "endpoint status";
  readonly #registry: EndpointRegistry;
  readonly #isConfigured: (interfaceName: string) => boolean;
  readonly #dirty: Set<string>;
  readonly #removed = new Map<string, WorkloadEndpointId>();
  /** The reported status, by workload. */
  readonly #workloads = new Map<string, { readonly text: string; readonly id: WorkloadEndpointId }>();
  readonly #ownerOf = new Map<string, string>();
  readonly #hosts = new Map<string, Status>();
  #hostVersion = -1;

  constructor(registry: EndpointRegistry, isConfigured: (interfaceName: string) => boolean) {
    this.#registry = registry;
    this.#isConfigured = isConfigured;
    this.#dirty = registry.watchWorkloads();
  }

  onUpdate(message: ManagerMessage): void {
    if (message.type === "workloadEndpointRemove") this.#removed.set(workloadKey(message.id), message.id);
    else if (message.type === "workloadEndpointUpdate") this.#removed.delete(workloadKey(message.id));
  }

  reports(): readonly DataplaneReport[] {
    const reports: DataplaneReport[] = [];
    for (const [key, id] of this.#removed) {
      if (this.#workloads.delete(key)) reports.push({ type: "workloadEndpointStatusRemove", id });
    }
    this.#removed.clear();
    for (const interfaceName of [...this.#dirty])
      if (this.#reportWorkload(interfaceName, reports)) this.#dirty.delete(interfaceName);
    if (this.#hostVersion !== this.#registry.hostVersion) this.#reportHosts(reports);
    return reports;
  }

  /** @returns false if the interface is not configured yet, so that its status may change without a message */
  #reportWorkload(interfaceName: string, reports: DataplaneReport[]): boolean {
    const workload = this.#registry.activeWorkloads.get(interfaceName);
    const before = this.#ownerOf.get(interfaceName);
    const key = workload === undefined ? undefined : workloadKey(workload.id);
    // An endpoint that lost its interface, because another endpoint claims it too, has no status.
    if (before !== undefined && before !== key) {
      const shadowed = this.#workloads.get(before);
      const hasMoved = [...this.#ownerOf].some(([name, owner]) => name !== interfaceName && owner === before);
      if (shadowed !== undefined && !hasMoved) {
        this.#workloads.delete(before);
        reports.push({ type: "workloadEndpointStatusRemove", id: shadowed.id });
      }
    }
    if (workload === undefined || key === undefined) {
      this.#ownerOf.delete(interfaceName);
      return true;
    }
    const { id, endpoint } = workload;
    this.#ownerOf.set(interfaceName, key);
    const isLinkUp = this.#registry.interfaces.get(interfaceName)?.state === "up";
    const isConfigured = this.#isConfigured(interfaceName);
    const status: Status = isLinkUp && endpoint.state === "active" && isConfigured ? "up" : "down";
    const isSettled = isConfigured || !isLinkUp;
    // The file for the CNI plugin contains more than the status, so a change of these fields is reported too.
    const { name, mac, ipv4Nets, ipv6Nets, localBgpPeer } = endpoint;
    const text = status === "up" ? JSON.stringify([name, mac, ipv4Nets, ipv6Nets, localBgpPeer]) : status;
    if (this.#workloads.get(key)?.text === text) return isSettled;
    this.#workloads.set(key, { text, id });
    reports.push({ type: "workloadEndpointStatus", id, status, ...(status === "up" ? { endpoint } : {}) });
    return isSettled;
  }

  #reportHosts(reports: DataplaneReport[]): void {
    this.#hostVersion = this.#registry.hostVersion;
    const now = this.#hostStatuses();
    for (const endpointId of this.#hosts.keys())
      if (!now.has(endpointId)) {
        this.#hosts.delete(endpointId);
        reports.push({ type: "hostEndpointStatusRemove", endpointId });
      }
    for (const [endpointId, status] of now) {
      if (this.#hosts.get(endpointId) === status) continue;
      this.#hosts.set(endpointId, status);
      reports.push({ type: "hostEndpointStatus", endpointId, status });
    }
  }

  /** A host endpoint without an interface has an error; if one of its interfaces is down, it is down. */
  #hostStatuses(): Map<string, Status> {
    const { hostEndpoints, hostByInterface, wildcardHost, interfaces } = this.#registry;
    const found = new Map<string, Status>();
    for (const id of hostEndpoints.keys()) found.set(id, id === wildcardHost ? "up" : "error");
    for (const [interfaceName, id] of hostByInterface) {
      const isUp = interfaces.get(interfaceName)?.state === "up";
      const before = found.get(id);
      if (!isUp) found.set(id, "down");
      else if (before === "error") found.set(id, "up");
    }
    return found;
  }
}
