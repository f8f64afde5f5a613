// Emits the metadata of each node that the dataplane needs: addresses, AS number, labels.
import type { IpNetwork } from "../../lib/ip/ip.ts";
import type { Node } from "../../model/index.ts";
import type { DataplaneMessage } from "../messages.ts";
import { nodeAddress } from "./node-address.ts";

export type HostMetadata = Extract<DataplaneMessage, { readonly type: "hostMetadataUpdate" }>;

export interface HostListener {
  onHostUpdate(host: HostMetadata): void;
  onHostRemove(hostname: string, ipv4Addr: string): void;
}

export class HostMetadataEmitter {
  readonly #emitted = new Map<string, HostMetadata>();
  readonly #listener: HostListener;

  constructor(listener: HostListener) {
    this.#listener = listener;
  }

  setNode(name: string, node: Node | undefined): void {
    const before = this.#emitted.get(name);
    const after = node === undefined || node.hasEmptyBgp ? undefined : metadataOf(name, node);
    if (after === undefined) {
      if (before === undefined) return;
      this.#emitted.delete(name);
      this.#listener.onHostRemove(name, before.ipv4Addr);
    } else if (!Bun.deepEquals(before, after, true)) {
      this.#emitted.set(name, after);
      this.#listener.onHostUpdate(after);
    }
  }
}

function metadataOf(hostname: string, node: Node): HostMetadata {
  return {
    type: "hostMetadataUpdate",
    hostname,
    ipv4Addr: networkText(nodeAddress(node, 4)),
    ipv6Addr: networkText(nodeAddress(node, 6)),
    asNumber: node.asNumber === undefined ? "" : String(node.asNumber),
    labels: node.labels,
  };
}

const networkText = (network: IpNetwork | undefined): string =>
  network === undefined ? "" : `${network.address}/${network.length}`;
