// Counts the requests of an ADD and a DEL through the node's CNI service with warm caches, in the API server's audit log.
import { afterAll, beforeAll, expect } from "bun:test";
import type { KubeObject } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { canRun } from "../functional/cni/cni-host.ts";
import { isAvailable, suite } from "./cluster.ts";
import { ServedHost } from "./served-host.ts";

let served: ServedHost;
beforeAll(async () => {
  if (isAvailable && canRun) served = await ServedHost.create();
}, 600_000);
afterAll(async () => await served?.[Symbol.asyncDispose]());

suite("the service has cached what the first pod needs", async () => {
  if (!canRun) return;
  const { host, conf } = served;
  const isFollowed = (path: string) => served.requests().some((request) => request.startsWith(`list ${path}`));
  const followed = ["pods", "namespaces"].map((plural) => `/api/v1/${plural}`);
  await eventually(() => followed.every(isFollowed));
  const pod = host.pod();
  const call = await served.makePod("first");
  await Bun.sleep(200); // until the watch has received it; otherwise there is a read, and the next line fails
  const requests = await counted(async () => {
    expect((await host.add(pod, { conf, ...call })).code).toBe(0);
  });
  // The pod and its namespace are cached. The claim of a new block needs reads, once for all pods of the block.
  expect(requests.filter((request) => request.startsWith("get /api/v1/"))).toEqual(["get /api/v1/nodes/n1"]);
  expect((await host.del(pod, { conf, ...call })).code).toBe(0);
}, 120_000);

suite("an ADD through the warm service sends at most three requests to the API server", async () => {
  if (!canRun) return;
  const { host, conf } = served;
  await served.warmUp();
  const calls = [];
  for (let i = 0; i < 6; i++) calls.push({ pod: host.pod(), call: await served.makePod(`pod-${i}`) });
  const addresses = new Set<string>();
  for (const { pod, call } of calls) {
    const requests = await counted(async () => {
      const run = await host.add(pod, { conf, ...call });
      expect({ code: run.code, message: run.json["msg"] }).toEqual({ code: 0, message: undefined });
      for (const { address } of run.json["ips"] as { address: string }[]) addresses.add(address);
    });
    expect(requests.map((request) => request.replace(/pod-\d|[^/]*-26$/, "*"))).toEqual([
      "create /apis/crd.projectcalico.org/v1/ipamhandles",
      "update /apis/crd.projectcalico.org/v1/ipamblocks/*",
      "patch /api/v1/namespaces/ns1/pods/*/status",
    ]);
  }
  expect(addresses.size).toBe(calls.length);
  for (const { pod, call } of calls) expect((await host.del(pod, { conf, ...call })).code).toBe(0);
  const { items } = await served.cluster.api.list("/apis/crd.projectcalico.org/v1/ipamhandles");
  expect(items).toEqual([]);
}, 120_000);

suite("changes by other programs are detected: a block, a pool, a pod that was created again", async () => {
  if (!canRun) return;
  const { host, conf, cluster } = served;
  await served.warmUp();
  // Another program takes the address that would be next.
  const blocks = "/apis/crd.projectcalico.org/v1/ipamblocks";
  const [block] = (await cluster.api.list(blocks, { lossless: true })).items as (KubeObject & { spec: Block })[];
  const { spec } = block!;
  const next = spec.unallocated[0]!;
  const taken = spec.cidr.replace(/\d+\/26$/, (tail) => String(Number.parseInt(tail, 10) + next));
  const body = {
    ...block,
    spec: {
      ...spec,
      allocations: spec.allocations.map((index, ordinal) => (ordinal === next ? spec.attributes.length : index)),
      attributes: [...spec.attributes, { handle_id: "other" }],
      unallocated: spec.unallocated.slice(1),
    },
  };
  await cluster.api.json({ method: "PUT", path: `${blocks}/${block!.metadata.name}`, body, lossless: true });
  const pod = host.pod();
  const added = await host.add(pod, { conf, ...(await served.makePod("after-other")) });
  expect(added.json["ips"]).not.toEqual([{ address: `${taken}/32` }]);
  // Another pod with the same name: its own annotations are used.
  await cluster.delete("/api/v1/namespaces/ns1/pods/after-other");
  await cluster.put("/apis/crd.projectcalico.org/v1/ippools", {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPPool",
    metadata: { name: "late" },
    spec: { cidr: "10.77.0.0/24", blockSize: 26, nodeSelector: "!all()" },
  });
  const again = await served.makePod("after-other", { "cni.projectcalico.org/ipv4pools": '["late"]' });
  const second = await host.add(host.pod(), { conf, ...again });
  expect((second.json["ips"] as { address: string }[])[0]!.address).toStartWith("10.77.0.");
}, 120_000);

interface Block {
  readonly cidr: string;
  readonly allocations: readonly (number | null)[];
  readonly attributes: readonly object[];
  readonly unallocated: readonly number[];
}

async function counted(work: () => Promise<void>): Promise<string[]> {
  const before = served.requests().length;
  await work();
  return served.requests().slice(before);
}
