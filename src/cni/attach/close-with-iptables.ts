// Drops packets of workloads on a kernel without nf_tables, where the guard table (kernel/netfilter/guard-table.ts) is not
// available: writes a chain in the filter table of iptables. When Felix writes its own chains, it deletes other chains that
// begin with `cali-` in the same transaction.
import { existsSync } from "node:fs";
import { Iptables, type IptablesStore } from "../../kernel/index.ts";

const CHAIN = "cali-guard-closed";
const LOCK = { timeoutSeconds: 10, probeMs: 50 };

export const legacyStores = (): IptablesStore[] =>
  ([4, 6] as const)
    .filter((family) => family === 4 || existsSync("/proc/sys/net/ipv6"))
    .map((family) => new Iptables({ family, variant: "legacy", lock: LOCK }));

/** Does nothing in a family in which an agent has chains. */
export async function closeWithIptables(
  stores: readonly IptablesStore[],
  interfacePrefixes: readonly string[],
): Promise<void> {
  for (const store of stores) {
    if (/^:cali-/m.test(await store.save("filter"))) continue;
    const lines = [
      "*filter",
      `:${CHAIN} - -`,
      ...interfacePrefixes.flatMap((prefix) =>
        ["-i", "-o"].map((option) => `-A ${CHAIN} ${option} ${prefix}+ -j DROP`),
      ),
      ...["INPUT", "FORWARD", "OUTPUT"].map((hook) => `-I ${hook} -j ${CHAIN}`),
      "COMMIT",
    ];
    await store.restore(`${lines.join("\n")}\n`);
  }
}
