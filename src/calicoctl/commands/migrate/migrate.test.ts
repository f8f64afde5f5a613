// Tests the commands of `calicoctl datastore migrate`: the lock, export and import.
import { expect, test } from "bun:test";
import { API_VERSION, isDatastoreReady } from "../../../model/index.ts";
import { openStore } from "../../resources/client.ts";
import { CommandLine, networkSet, pool, callWith } from "../../testing/command-line.ts";
import { importExport } from "./import.ts";

test("TC-C40 lock and unlock set the datastoreReady flag that all agents watch", async () => {
  using line = new CommandLine();
  const ready = async () => (await line.stored("ClusterInformation")).map(isDatastoreReady);
  const migrate = (word: string) => line.run("datastore", "migrate", word);
  expect(await migrate("lock")).toEqual({ code: 0, out: "Datastore locked.\n", err: "" });
  expect(await ready()).toEqual([false]);
  expect((await migrate("lock")).code).toBe(0);
  expect(await migrate("unlock")).toEqual({ code: 0, out: "Datastore unlocked.\n", err: "" });
  expect(await ready()).toEqual([true]);
  const metadata = { name: "default", uid: "u", creationTimestamp: "2026-01-01T00:00:00Z" };
  await line.put({
    apiVersion: API_VERSION,
    kind: "ClusterInformation",
    metadata,
    spec: { clusterGUID: "0".repeat(32), clusterType: "k8s" },
  });
  await migrate("lock");
  expect((await line.stored("ClusterInformation"))[0]?.spec).toEqual({
    clusterGUID: "0".repeat(32),
    clusterType: "k8s",
    datastoreReady: false,
  });
});

test("TC-C41 export requires a locked etcd datastore", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  expect((await line.run("datastore", "migrate", "export")).err).toStartWith(
    "Datastore is not locked. Run the `calicoctl",
  );
  await line.run("datastore", "migrate", "lock");
  expect((await line.run("datastore", "migrate", "export")).err).toContain("Invalid datastore type: sqlite");
});

const exported = `${pool("a")}---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkSetList
items:
- metadata: {name: s}
  spec: {nets: [10.0.0.1/32]}
---
===
{"kind": "ClusterInformation", "spec": {"clusterGUID": "0123456789abcdef0123456789abcdef", "calicoVersion": "v3.28.5"}}
===
{
  "block_affinities": [{"Key": "/calico/ipam/v2/host/n1/ipv4/block/10.1.0.0-30", "Value": {"state": "confirmed"}, "TTL": 0}],
  "blocks": [{"Key": "/calico/ipam/v2/assignment/ipv4/block/10.1.0.0-30", "Value": {"cidr": "10.1.0.0/30", "affinity": "host:n1",
    "allocations": [0, null, null, null], "unallocated": [1, 2, 3], "attributes": [{"handle_id": "h"}],
    "sequenceNumber": 18446744073709551615, "sequenceNumberForAllocation": {"0": 18446744073709551614}, "deleted": false}, "TTL": 0}],
  "handles": [{"Key": "/calico/ipam/v2/handle/h", "Value": {"block": {"10.1.0.0/30": 1}}, "TTL": 0}]
}
`;

const storeOf = (line: CommandLine) => openStore(callWith(line.env));

test("TC-C42 import writes resources, the cluster's GUID and IPAM data to a locked, empty datastore", async () => {
  using line = new CommandLine();
  let out = "";
  {
    await using store = await storeOf(line);
    await importExport(store, { file: "f", text: exported }, { out: (text) => void (out += text), err: () => {} });
    const [block] = (await store.datastore.list({ type: "block" })).items;
    expect(block?.value).toMatchObject({ affinity: "host:n1", sequenceNumber: 18446744073709551615n });
    expect((await store.datastore.list({ type: "ipamHandle" })).items).toHaveLength(1);
    expect((await store.datastore.list({ type: "blockAffinity" })).items).toHaveLength(1);
  }
  expect(out).toStartWith(
    "Successfully applied 2 resource(s)\nImporting IPAM resources\nSuccessfully applied 3 IPAM resource(s)\n",
  );
  expect((await line.stored("ClusterInformation"))[0]?.spec).toMatchObject({
    clusterGUID: "0123456789abcdef0123456789abcdef",
    calicoVersion: "v3.28.5",
    datastoreReady: false,
  });
  expect((await line.stored("IPPool")).map((p) => p.metadata.name)).toEqual(["a"]);
});

test("TC-C42 import rejects other datastores, files that are not an export, and clusters with data", async () => {
  using line = new CommandLine();
  const file = line.file("f", exported);
  expect((await line.run("datastore", "migrate", "import", "-f", file)).err).toContain(
    "Invalid datastore type: sqlite to import to for datastore migration. Datastore type must be kubernetes",
  );
  expect((await line.run("datastore", "migrate", "import")).err).toContain("Usage:");
  await line.given(networkSet("mine"));
  await using store = await storeOf(line);
  const attempt = (text: string) => importExport(store, { file: "f", text }, { out: () => {}, err: () => {} });
  await expect(attempt("nonsense")).rejects.toThrow("f is not an export: want three parts");
  await expect(attempt(exported.replace("ipv4/block/10.1.0.0-30", "nonsense"))).rejects.toThrow("not a key of IPAM");
  await expect(attempt(exported)).rejects.toThrow("Found existing Calico GlobalNetworkSet resource");
  expect(await line.stored("IPPool")).toEqual([]);
});

test("TC-C43 migrate-policy-names renames policies that older releases stored as default.<name>, once", async () => {
  using line = new CommandLine();
  {
    await using store = await storeOf(line);
    const metadata = { name: "web", uid: "u", creationTimestamp: "2020-01-01T00:00:00Z" };
    const value = {
      apiVersion: API_VERSION,
      kind: "GlobalNetworkPolicy",
      metadata,
      spec: { types: ["Ingress"] },
    } as const;
    await store.datastore.create({
      key: { type: "resource", kind: "GlobalNetworkPolicy", name: "default.web" },
      value,
    });
  }
  const migrate = () => line.run("datastore", "migrate-policy-names");
  const keys = async () => {
    await using store = await storeOf(line);
    return (await store.datastore.list({ type: "resource", kind: "GlobalNetworkPolicy" })).items.map(
      (item) => item.key.name,
    );
  };
  expect(await keys()).toEqual(["default.web"]);
  expect(await migrate()).toEqual({ code: 0, out: "Successfully migrated 1 policies\n", err: "" });
  expect(await keys()).toEqual(["web"]);
  expect((await line.stored("GlobalNetworkPolicy"))[0]?.metadata.uid).toBe("u");
  expect((await migrate()).out).toBe("All policies already have their own names.\n");
  expect((await line.run("get", "gnp", "web")).code).toBe(0);
});
