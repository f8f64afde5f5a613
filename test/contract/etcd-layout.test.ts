// Tests the keys and values that calico-ts writes to etcd: they must be the same as Calico's.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Client, type Datastore, openDatastore } from "../../src/datastore/index.ts";
import { parseCidr } from "../../src/lib/ip/ip.ts";
import { API_VERSION, decodeValue, encodeValue, type KindName, KINDS, parseStoredPath } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";

let server: EtcdServer;
let store: Datastore;
beforeAll(async () => {
  server = await EtcdServer.start();
  store = await openDatastore(server.config);
});
afterAll(async () => {
  await store.close();
  await server[Symbol.asyncDispose]();
});

/** Reads all keys under a prefix with etcdctl. */
function dump(prefix: string): Record<string, string> {
  const json = JSON.parse(server.etcdctl("get", "--prefix", prefix, "-w", "json")) as {
    kvs?: { key: string; value?: string }[];
  };
  const text = (encoded = "") => Buffer.from(encoded, "base64").toString();
  return Object.fromEntries((json.kvs ?? []).map(({ key, value }) => [text(key), text(value)]));
}

test("DM-081 every kind is stored under its plural, and namespaced kinds under their namespace", async () => {
  const wanted: string[] = [];
  for (const kind of KINDS) {
    const place = kind.namespaced ? { namespace: "prod" } : {};
    const metadata = { name: "a.b-c", ...place };
    const key = { type: "resource", kind: kind.name, name: "a.b-c", ...place } as const;
    await store.apply({ key, value: { apiVersion: API_VERSION, kind: kind.name, metadata, spec: {} } });
    wanted.push(`/calico/resources/v3/projectcalico.org/${kind.plural}/${kind.namespaced ? "prod/" : ""}a.b-c`);
  }
  expect(Object.keys(dump("/calico/resources/"))).toEqual(wanted.sort());
  server.etcdctl("del", "--prefix", "/calico/");
});

test("DM-081 a resource is stored as complete JSON, without revision, with fields in Calico's order", async () => {
  const client = new Client(store, { now: () => new Date("2026-01-02T03:04:05Z") });
  const create = (kind: KindName, metadata: object, spec: object) =>
    client.create({ apiVersion: API_VERSION, kind, metadata: { name: "", uid: "u", ...metadata }, spec });
  await create("IPPool", { name: "p", labels: { site: "east" } }, { cidr: "10.10.0.0/16", natOutgoing: true });
  await create(
    "NetworkPolicy",
    { name: "np", namespace: "prod" },
    { selector: "all()", ingress: [{ action: "Deny" }] },
  );
  const root = "/calico/resources/v3/projectcalico.org";
  expect(dump(`${root}/`)).toEqual({
    [`${root}/ippools/p`]:
      '{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"site":"east"}},"spec":{"cidr":"10.10.0.0/16","vxlanMode":"Never","ipipMode":"Never","natOutgoing":true,"blockSize":26,"nodeSelector":"all()","allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic"}}',
    [`${root}/networkpolicies/prod/np`]:
      '{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"np","namespace":"prod","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"projectcalico.org/tier":"default"},"annotations":{"projectcalico.org/metadata":"{\\"name\\":\\"np\\"}"}},"spec":{"tier":"default","ingress":[{"action":"Deny"}],"selector":"all()","types":["Ingress"]}}',
  });
});

test("DM-082 DM-086 IPAM's keys and values", async () => {
  const [four, six] = [parseCidr("10.65.0.64/26"), parseCidr("fd00:10::40/122")];
  await store.create({
    key: { type: "block", cidr: four },
    value: {
      cidr: four,
      affinity: "host:n1",
      allocations: [0, null],
      unallocated: [1],
      attributes: [{ handleId: "net.c1", secondary: { node: "n1" } }],
      sequenceNumber: 18446744073709551615n,
      sequenceNumberForAllocation: { 0: 9007199254740993n },
      deleted: false,
    },
  });
  const free = {
    allocations: [],
    unallocated: [],
    attributes: [],
    sequenceNumber: 0n,
    sequenceNumberForAllocation: {},
  };
  await store.create({ key: { type: "block", cidr: six }, value: { cidr: six, ...free, deleted: false } });
  const confirmed = { state: "confirmed", deleted: false } as const;
  await store.create({
    key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr: four },
    value: confirmed,
  });
  await store.create({
    key: { type: "blockAffinity", affinityType: "virtual", host: "load-balancer", cidr: six },
    value: { state: "pending", deleted: false },
  });
  const handle = { handleId: "net.c1", block: { [four]: 1 }, deleted: false };
  await store.create({ key: { type: "ipamHandle", handleId: "net.c1" }, value: handle });
  const config = { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0 };
  await store.create({ key: { type: "ipamConfig" }, value: config });
  await store.create({ key: { type: "ipamHost", host: "n1" }, value: {} });
  const root = "/calico/ipam/v2";
  expect(dump("/calico/ipam/")).toEqual({
    [`${root}/assignment/ipv4/block/10.65.0.64-26`]:
      '{"cidr":"10.65.0.64/26","affinity":"host:n1","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"net.c1","secondary":{"node":"n1"}}],"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{"0":9007199254740993},"deleted":false}',
    [`${root}/assignment/ipv6/block/fd00:10::40-122`]:
      '{"cidr":"fd00:10::40/122","affinity":null,"allocations":[],"unallocated":[],"attributes":[],"sequenceNumber":0,"sequenceNumberForAllocation":{},"deleted":false}',
    [`${root}/config`]: '{"auto_allocate_blocks":true}',
    [`${root}/handle/net.c1`]: '{"block":{"10.65.0.64/26":1},"deleted":false}',
    [`${root}/host/n1`]: "{}",
    [`${root}/host/n1/ipv4/block/10.65.0.64-26`]: '{"state":"confirmed","deleted":false}',
    [`${root}/virtual/load-balancer/ipv6/block/fd00:10::40-122`]: '{"state":"pending","deleted":false}',
  });
});

test("DM-083 DM-086 status keys: region, escaped names, time to live by lease", async () => {
  const status = { type: "felixStatus", region: "no-region", host: "n1", last: false } as const;
  const value = { time: "2026-01-02T03:04:05Z", uptime: 12.5, firstUpdate: true };
  await store.apply({ key: status, value, ttlSeconds: 90 });
  await store.apply({ key: { ...status, region: "region-eu", last: true }, value });
  const names = { host: "n1", orchestrator: "k8s", workload: "prod/web-1", endpoint: "eth0%1" };
  await store.apply({ key: { type: "workloadStatus", region: "no-region", ...names }, value: { status: "up" } });
  await store.apply({ key: { type: "hostEndpointStatus", host: "n1", endpoint: "a/b" }, value: { status: "down" } });
  const json = '{"time":"2026-01-02T03:04:05Z","uptime":12.5,"first_update":true}';
  expect(dump("/calico/felix/")).toEqual({
    "/calico/felix/v1/host/n1/endpoint/a%2fb": '{"status":"down"}',
    "/calico/felix/v2/no-region/host/n1/status": json,
    "/calico/felix/v2/no-region/host/n1/workload/k8s/prod%2fweb-1/endpoint/eth0%251": '{"status":"up"}',
    "/calico/felix/v2/region-eu/host/n1/last_reported_status": json,
  });
  const leases = server.etcdctl("lease", "list").trim().split("\n").slice(1);
  expect(leases).toHaveLength(1);
  expect(server.etcdctl("lease", "timetolive", "--keys", leases[0]!)).toContain("no-region/host/n1/status");
});

const recordings = join(import.meta.dir, "../../../shared/golden");
test.skipIf(!existsSync(recordings))(
  "values that Calico stored are read, and would be written in the same form",
  () => {
    let compared = 0;
    for (const folder of ["datamodel", "datamodel/master"])
      for (const file of readdirSync(join(recordings, folder)).filter((name) => name.endsWith(".json"))) {
        const recording = JSON.parse(readFileSync(join(recordings, folder, file), "utf8")) as {
          cases?: { stored?: Record<string, unknown> }[];
        };
        for (const { stored = {} } of recording.cases ?? [])
          for (const [path, value] of Object.entries(stored)) {
            const key = parseStoredPath(path);
            expect(key, path).toBeDefined();
            const again: unknown = JSON.parse(encodeValue(key!, decodeValue(key!, JSON.stringify(value))));
            expect(unnamed(again), path).toEqual(unnamed(value));
            compared++;
          }
      }
    expect(compared).toBeGreaterThan(50);
  },
);

/** Removes the annotation with a policy's name, which newer releases add. */
function unnamed(value: unknown): unknown {
  const { metadata = {}, ...rest } = value as { metadata?: { annotations?: Record<string, string>; name?: string } };
  const { annotations = {}, name, ...others } = metadata;
  const { "projectcalico.org/metadata": _, ...kept } = annotations;
  return { ...rest, metadata: { ...others, name: name?.replace(/^default\./, ""), annotations: kept } };
}
