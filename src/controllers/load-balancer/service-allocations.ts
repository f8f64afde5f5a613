// Indexes the addresses that blocks allocate to services, by service and handle. A service that was deleted and created again
// with the same name has another handle.
import { ATTRIBUTE, allocationsIn } from "../../ipam/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { Block } from "../../model/index.ts";

interface ServiceAllocation {
  readonly service: string;
  readonly handleId: string;
  readonly address: IpAddress;
}

export class ServiceAllocations {
  readonly #byBlock = new Map<string, readonly ServiceAllocation[]>();
  readonly #byService = new Map<string, Set<ServiceAllocation>>();

  /** @returns the services whose allocations may have changed */
  setBlock(cidr: string, block: Block | undefined): ReadonlySet<string> {
    const affected = new Set<string>();
    for (const allocation of this.#byBlock.get(cidr) ?? []) {
      const allocations = this.#byService.get(allocation.service);
      allocations?.delete(allocation);
      if (allocations?.size === 0) this.#byService.delete(allocation.service);
      affected.add(allocation.service);
    }
    const current = block === undefined ? [] : serviceAllocationsIn(block);
    if (current.length === 0) this.#byBlock.delete(cidr);
    else this.#byBlock.set(cidr, current);
    for (const allocation of current) {
      const allocations = this.#byService.get(allocation.service) ?? new Set();
      this.#byService.set(allocation.service, allocations.add(allocation));
      affected.add(allocation.service);
    }
    return affected;
  }

  services(): Iterable<string> {
    return this.#byService.keys();
  }

  handlesOf(service: string): ReadonlySet<string> {
    return new Set([...(this.#byService.get(service) ?? [])].map(({ handleId }) => handleId));
  }

  addressesOf(service: string, handleId: string): readonly IpAddress[] {
    return [...(this.#byService.get(service) ?? [])].flatMap((allocation) =>
      allocation.handleId === handleId ? [allocation.address] : [],
    );
  }
}

const serviceAllocationsIn = (block: Block): readonly ServiceAllocation[] =>
  allocationsIn(block).flatMap(({ attributes, handleId, address, coolingDown }) => {
    const { [ATTRIBUTE.service]: name, [ATTRIBUTE.namespace]: namespace } = attributes;
    if (coolingDown || handleId === undefined || name === undefined || namespace === undefined) return [];
    return [{ service: `${namespace}/${name}`, handleId, address }];
  });
