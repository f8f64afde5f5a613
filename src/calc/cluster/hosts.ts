// Every node of the cluster as the dataplane knows it: addresses, AS number, labels.
import type { Resource } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";
import { networkText, nodeAddress, type NodeSpec, specOf } from "../resources.ts";

export type HostMetadata = Extract<DataplaneMessage, { readonly type: "hostMetadataUpdate" }>;

export interface HostListener {
  onHost(host: HostMetadata): void;
  onHostGone(hostname: string, ipv4Addr: string): void;
}

export class HostDirectory {
  readonly #said = new Map<string, HostMetadata>();
  readonly #listener: HostListener;

  constructor(listener: HostListener) {
    this.#listener = listener;
  }

  setNode(name: string, resource: Resource | undefined): void {
    const before = this.#said.get(name);
    const after = resource === undefined ? undefined : metadataOf(name, resource);
    if (after === undefined) {
      if (before === undefined) return;
      this.#said.delete(name);
      this.#listener.onHostGone(name, before.ipv4Addr);
    } else if (!Bun.deepEquals(before, after, true)) {
      this.#said.set(name, after);
      this.#listener.onHost(after);
    }
  }
}

function metadataOf(hostname: string, resource: Resource): HostMetadata | undefined {
  const spec = specOf<NodeSpec>(resource);
  if (spec.bgp !== undefined && Object.values(spec.bgp).every(isZero)) return undefined;
  const asNumber = spec.bgp?.asNumber;
  return {
    type: "hostMetadataUpdate",
    hostname,
    ipv4Addr: networkText(nodeAddress(spec, 4)),
    ipv6Addr: networkText(nodeAddress(spec, 6)),
    asNumber: asNumber === undefined || isZero(asNumber) ? "" : String(asNumber),
    labels: resource.metadata.labels ?? {},
  };
}

const isZero = (value: unknown): boolean => value === undefined || value === null || value === "" || value === 0;
