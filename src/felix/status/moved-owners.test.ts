import { expect, test } from "bun:test";
import type { Allocation, Ipam } from "../../ipam/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip.ts";
import { createLogger } from "../../lib/log.ts";
import { moveOwners } from "./moved-owners.ts";

const here = { pod: "virt-launcher-2", namespace: "ns", node: "node-a" };
const there = { pod: "virt-launcher-1", namespace: "ns", node: "node-b" };

/** One address with its owners, and a datastore that may be away for a while. */
function open(given: { alternate?: Record<string, string>; refusals?: number }) {
  let refusals = given.refusals ?? 0;
  let entry: Pick<Allocation, "attributes" | "alternateAttributes"> = {
    attributes: there,
    ...(given.alternate === undefined ? {} : { alternateAttributes: given.alternate }),
  };
  const said: string[] = [];
  let asked = 0;
  const ipam: Pick<Ipam, "allocationOf" | "setOwners"> = {
    allocationOf: async (address) => {
      asked++;
      if (refusals-- > 0) throw new Error("the datastore is away");
      return { address, block: "10.65.0.0/26" as Cidr, handleId: "net.vmi.ns.vm", ...entry };
    },
    setOwners: async ({ active, alternate, expectActive, expectAlternate }) => {
      expect([expectActive, expectAlternate]).toEqual([entry.attributes, entry.alternateAttributes ?? null]);
      entry = { attributes: active ?? {}, ...(alternate ? { alternateAttributes: alternate } : {}) };
    },
  };
  const arrive = () =>
    moveOwners({
      ipam,
      arrival: {
        id: { orchestrator: "k8s", workload: "ns/virt-launcher-2", endpoint: "eth0" },
        endpoint: { ipv4Nets: [`${"10.65.0.2" as IpAddress}/32` as Cidr], ipv6Nets: [] },
      },
      log: createLogger({ level: "debug", write: ({ level, sentence }) => void said.push(`${level} ${sentence}`) }),
      signal: new AbortController().signal,
      pauseMs: 1,
    });
  return { arrive, said, asked: () => asked, owners: () => [entry.attributes, entry.alternateAttributes] };
}

test("FD-127 an arrived machine's addresses are its new pod's, the one it left is the alternate owner, and once is enough", async () => {
  const m = open({ alternate: here });
  await m.arrive();
  expect(m.owners()).toEqual([here, there]);
  await m.arrive(); // the agent was started anew
  expect(m.owners()).toEqual([here, there]);
});

test("FD-127 nobody else's address changes hands", async () => {
  for (const alternate of [undefined, { ...here, pod: "virt-launcher-3" }, { ...here, namespace: "other" }]) {
    const m = open(alternate === undefined ? {} : { alternate });
    await m.arrive();
    expect(m.owners()).toEqual([there, alternate]);
    expect(m.said).toEqual([]);
  }
});

test("FD-127 a datastore that is away is asked five times, then it is said", async () => {
  const soon = open({ alternate: here, refusals: 4 });
  await soon.arrive();
  expect([soon.owners()[0], soon.asked()]).toEqual([here, 5]);
  const never = open({ alternate: here, refusals: 9 });
  await never.arrive();
  expect([never.asked(), never.said]).toEqual([5, ["warn an arrived workload's address keeps its old owner in IPAM"]]);
});
