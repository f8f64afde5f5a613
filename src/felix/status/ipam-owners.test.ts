import { expect, test } from "bun:test";
import type { Allocation, Ipam } from "../../ipam/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { createLogger } from "../../lib/log/log.ts";
import { swapOwners } from "./ipam-owners.ts";

const here = { pod: "virt-launcher-2", namespace: "ns", node: "node-a" };
const there = { pod: "virt-launcher-1", namespace: "ns", node: "node-b" };

/** One address with its owners, and a datastore that is unavailable for the first `failures` reads. */
function open(options: { alternate?: Record<string, string>; failures?: number }) {
  let failures = options.failures ?? 0;
  let entry: Pick<Allocation, "attributes" | "alternateAttributes"> = {
    attributes: there,
    alternateAttributes: options.alternate,
  };
  const logged: string[] = [];
  let reads = 0;
  const ipam: Pick<Ipam, "allocationOf" | "setOwnerAttributes"> = {
    allocationOf: async (address) => {
      reads++;
      if (failures-- > 0) throw new Error("the datastore is unavailable");
      return { address, block: "10.65.0.0/26" as Cidr, handleId: "net.vmi.ns.vm", ...entry };
    },
    setOwnerAttributes: async ({ active, alternate, expectActive, expectAlternate }) => {
      expect([expectActive, expectAlternate]).toEqual([entry.attributes, entry.alternateAttributes ?? null]);
      entry = { attributes: active ?? {}, ...(alternate ? { alternateAttributes: alternate } : {}) };
    },
  };
  const arrive = () =>
    swapOwners({
      ipam,
      arrival: {
        id: { orchestrator: "k8s", workload: "ns/virt-launcher-2", endpoint: "eth0" },
        endpoint: { ipv4Nets: [`${"10.65.0.2" as IpAddress}/32` as Cidr], ipv6Nets: [] },
      },
      log: createLogger({ level: "debug", write: ({ level, message }) => void logged.push(`${level} ${message}`) }),
      signal: new AbortController().signal,
      firstRetryMs: 1,
    });
  return { arrive, logged, reads: () => reads, owners: () => [entry.attributes, entry.alternateAttributes] };
}

test("FD-127 after a migration, the new pod is the owner and the old pod the alternate owner; repeating changes nothing", async () => {
  const m = open({ alternate: here });
  await m.arrive();
  expect(m.owners()).toEqual([here, there]);
  await m.arrive(); // Felix was restarted
  expect(m.owners()).toEqual([here, there]);
});

test("FD-127 does not change the owner of other workloads' addresses", async () => {
  for (const alternate of [undefined, { ...here, pod: "virt-launcher-3" }, { ...here, namespace: "other" }]) {
    const m = open(alternate === undefined ? {} : { alternate });
    await m.arrive();
    expect(m.owners()).toEqual([there, alternate]);
    expect(m.logged).toEqual([]);
  }
});

test("FD-127 tries an unavailable datastore five times, then logs a warning", async () => {
  const soon = open({ alternate: here, failures: 4 });
  await soon.arrive();
  expect([soon.owners()[0], soon.reads()]).toEqual([here, 5]);
  const never = open({ alternate: here, failures: 9 });
  await never.arrive();
  expect([never.reads(), never.logged]).toEqual([
    5,
    ["warn could not change the owner of a migrated workload's address in IPAM"],
  ]);
});
