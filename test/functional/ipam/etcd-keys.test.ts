// Tests the exact keys and values that an assignment writes to etcd, because other programs read them.
import { expect, test } from "bun:test";
import { openDatastore } from "../../../src/datastore/index.ts";
import { Ipam } from "../../../src/ipam/index.ts";
import { EtcdServer } from "../../support/etcd-server.ts";

const base64 = (text: string) => Buffer.from(text).toString("base64");

async function rawKeys(url: string): Promise<Record<string, string>> {
  const body = JSON.stringify({ key: base64("/calico/ipam/"), range_end: base64("/calico/ipam0") });
  const answer = await fetch(`${url}/v3/kv/range`, { method: "POST", body });
  const { kvs = [] } = (await answer.json()) as { kvs?: { key: string; value: string }[] };
  const text = (b: string) => Buffer.from(b, "base64").toString();
  return Object.fromEntries(kvs.map(({ key, value }) => [text(key), text(value)]));
}

test("CI-072 blocks, affinities, handles and settings have the keys of Calico", async () => {
  await using etcd = await EtcdServer.start();
  const store = await openDatastore(etcd.config);
  const put = (kind: "IPPool" | "Node", name: string, spec: unknown) =>
    store.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec },
    });
  await put("IPPool", "four", { cidr: "10.65.0.0/30", blockSize: 30 });
  await put("IPPool", "six", { cidr: "fd00:65::/126", blockSize: 126 });
  await put("IPPool", "services", { cidr: "10.90.0.0/30", blockSize: 30, allowedUses: ["LoadBalancer"] });
  await put("Node", "n1", {});
  const nowMs = 1_767_225_600_000;
  const ipam = new Ipam({ datastore: store, nowMs: () => nowMs });
  const request = { host: "n1", handleId: "net1.c0", attributes: { node: "n1" }, use: "Workload", count: 1 } as const;
  await ipam.autoAssign({ ...request, version: 4 });
  await ipam.autoAssign({ ...request, version: 6 });
  await ipam.autoAssign({ version: 4, count: 1, host: "", handleId: "lb-x", use: "LoadBalancer" });
  await ipam.configure({ strictAffinity: true });
  const keys = await rawKeys(etcd.url);
  expect(Object.keys(keys).sort()).toEqual([
    "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-30",
    "/calico/ipam/v2/assignment/ipv4/block/10.90.0.0-30",
    "/calico/ipam/v2/assignment/ipv6/block/fd00:65::-126",
    "/calico/ipam/v2/config",
    "/calico/ipam/v2/handle/lb-x",
    "/calico/ipam/v2/handle/net1.c0",
    "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-30",
    "/calico/ipam/v2/host/n1/ipv6/block/fd00:65::-126",
    "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.90.0.0-30",
  ]);
  expect(keys["/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-30"]).toBe(
    `{"cidr":"10.65.0.0/30","affinity":"host:n1","affinity_claim_time":"2026-01-01T00:00:00Z","allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[{"handle_id":"net1.c0","secondary":{"node":"n1"}}],"sequenceNumber":${nowMs}000001,"sequenceNumberForAllocation":{"0":${nowMs}000000},"deleted":false}`,
  );
  expect(keys["/calico/ipam/v2/handle/net1.c0"]).toBe('{"block":{"10.65.0.0/30":1,"fd00:65::/126":1},"deleted":false}');
  expect(keys["/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-30"]).toBe('{"state":"confirmed","deleted":false}');
  expect(JSON.parse(keys["/calico/ipam/v2/config"] ?? "")).toEqual({
    strict_affinity: true,
    auto_allocate_blocks: true,
    kubeVirtVMAddressPersistence: "Enabled",
  });
  await store.close();
});
