// Checks whether workloads have addresses that IPAM assigned and that lie in no pool, because their pool was deleted.
import type { Datastore } from "../../datastore/index.ts";
import { readAllocations, readUsers } from "../../ipam/index.ts";
import { type Cidr, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import type { ClusterFacts } from "./facts.ts";
import { type Finding, formatList, plural } from "./finding.ts";

/** A workload with an address in a block that lies in no pool. */
export interface OutsidePools {
  readonly address: IpAddress;
  readonly block: Cidr;
  /** Such as `workload endpoint default/n1-k8s-web-eth0`. */
  readonly workload: string;
}

/**
 * Reads the workloads that have an address of these blocks. An address without an allocation is not returned: another IPAM
 * plugin (host-local, for example) assigned it.
 * @param blocks blocks with allocations that lie in no pool
 */
export async function readOutsidePools(
  datastore: Datastore,
  blocks: readonly Cidr[],
): Promise<readonly OutsidePools[]> {
  if (blocks.length === 0) return []; // saves reading all workloads
  const [allocations, users] = await Promise.all([readAllocations(datastore), readUsers(datastore)]);
  const blockOf = new Map(
    allocations
      .filter(({ block, coolingDown }) => !coolingDown && blocks.includes(block))
      .map(({ address, block }) => [address, block]),
  );
  return users.flatMap(({ kind, address, name }) => {
    const block = blockOf.get(address);
    return kind !== "workload" || block === undefined ? [] : [{ address, block, workload: name }];
  });
}

const MAX_EVIDENCE = 8;

/** Reports one finding per IP version. */
export function* workloadsOutsidePools(cluster: ClusterFacts): Generator<Finding> {
  for (const version of [4, 6] as const) {
    const found = cluster.outsidePools.filter(({ address }) => ipVersion(address) === version);
    const [example] = found;
    if (example === undefined) continue;
    const blocks = [...Map.groupBy(found, ({ block }) => block)];
    const sizes = [...new Set(blocks.map(([block]) => String(cidrLength(block))))];
    const shown = blocks.slice(0, MAX_EVIDENCE);
    const more = blocks.length - shown.length;
    yield {
      id: "address-in-no-pool",
      severity: "error",
      object: "IPPools",
      problem: `${plural(found.length, "address of a workload is", "addresses of workloads are")} in no IPv${version} pool, for example ${example.address} (${example.workload})`,
      cause:
        "IPAM assigned them from a pool that was deleted: nodes no longer have routes to each other's addresses of that pool, so traffic between nodes fails, and there is no outgoing NAT and no encapsulation for them",
      evidence: [
        ...shown.map(
          ([block, users]) =>
            `block ${block} lies in no pool: ${plural(users.length, "address", "addresses")} of workloads, for example ${users[0]?.address} (${users[0]?.workload})`,
        ),
        ...(more > 0 ? [`and ${plural(more, "more block")}`] : []),
      ],
      fix: `create the deleted pool again, with its cidr and blockSize ${formatList(sizes)}; or restart the workloads, which then get addresses of other pools`,
      address: example.address,
      setting: "IPPool spec.cidr",
    };
  }
}
