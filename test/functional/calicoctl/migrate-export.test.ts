// Tests `calicoctl datastore migrate export` on etcd: the exported data has the names of the Kubernetes nodes.
import { expect, test } from "bun:test";
import { load, loadAll } from "js-yaml";
import { CommandLine } from "../../../src/calicoctl/testing/command-line.ts";
import { openDatastore } from "../../../src/datastore/index.ts";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { EtcdServer } from "../../support/etcd-server.ts";

interface List {
  readonly kind: string;
  readonly items: readonly { readonly metadata: { readonly name: string }; readonly spec: Record<string, unknown> }[];
}

test("TC-C41 export contains each kind once, and renames nodes in resources and IPAM data", async () => {
  await using etcd = await EtcdServer.start();
  using line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "etcdv3";
  line.env["ETCD_ENDPOINTS"] = etcd.url;
  const v3 = (kind: string, name: string, spec: object, namespace?: string) =>
    JSON.stringify({ apiVersion: "projectcalico.org/v3", kind, metadata: { name, namespace }, spec });
  await line.given(
    v3("Node", "n1", { bgp: { ipv4Address: "10.0.0.1/24" }, orchRefs: [{ nodeName: "kn1", orchestrator: "k8s" }] }),
    v3("FelixConfiguration", "node.n1", { defaultEndpointToHostAction: "Drop" }),
    v3("BGPConfiguration", "node.n1", { logSeverityScreen: "Info" }),
    v3("NetworkPolicy", "p", { selector: "all()" }, "ns1"),
    v3("StagedNetworkPolicy", "sp", { selector: "all()" }, "ns2"),
    v3("IPPool", "a", { cidr: "10.1.0.0/16" }),
  );
  const store = await openDatastore(etcd.config);
  const cidr = parseCidr("10.1.0.0/30");
  const sequences = { sequenceNumber: 18446744073709551615n, sequenceNumberForAllocation: { "0": 5n } };
  await store.create({
    key: { type: "block", cidr },
    value: {
      cidr,
      affinity: "host:n1",
      allocations: [0, null, null, null],
      unallocated: [1, 2, 3],
      attributes: [{ handleId: "h", secondary: { node: "n1" } }],
      deleted: false,
      ...sequences,
    },
  });
  await store.create({
    key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr },
    value: { state: "confirmed", deleted: false },
  });
  await store.create({
    key: { type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: "knp.default.k" },
    value: {
      apiVersion: "projectcalico.org/v3",
      kind: "NetworkPolicy",
      metadata: { name: "knp.default.k", namespace: "ns1" },
      spec: {},
    },
  });
  await store.close();

  expect((await line.run("datastore", "migrate", "lock")).code).toBe(0);
  const answer = await line.run("datastore", "migrate", "export");
  expect(answer).toMatchObject({ code: 0, err: "" });
  const [resources = "", information = "", ipam = ""] = answer.out.split("===\n");
  const lists = (loadAll(resources) as (List | null)[]).filter((list) => list !== null);
  expect(lists.map((list) => list.kind.replace(/List$/, ""))).toEqual([
    "IPPool",
    "BGPPeer",
    "Tier",
    "GlobalNetworkPolicy",
    "StagedGlobalNetworkPolicy",
    "GlobalNetworkSet",
    "HostEndpoint",
    "KubeControllersConfiguration",
    "NetworkPolicy",
    "StagedNetworkPolicy",
    "StagedKubernetesNetworkPolicy",
    "NetworkSet",
    "Node",
    "BGPConfiguration",
    "FelixConfiguration",
    "IPReservation",
    "BGPFilter",
  ]);
  const names = (kind: string) =>
    lists.find((list) => list.kind === `${kind}List`)?.items.map((item) => item.metadata.name);
  expect(names("Node")).toEqual(["kn1"]);
  expect(names("FelixConfiguration")).toEqual(["node.kn1"]);
  expect(names("BGPConfiguration")).toEqual(["node.kn1"]);
  expect(names("NetworkPolicy")).toEqual(["p"]);
  expect(names("StagedNetworkPolicy")).toEqual(["sp"]);
  expect(load(information)).toMatchObject({ kind: "ClusterInformation", spec: { datastoreReady: false } });
  expect(ipam).toContain('"/calico/ipam/v2/host/kn1/ipv4/block/10.1.0.0-30"');
  expect(ipam).toContain('"affinity": "host:kn1"');
  expect(ipam).toContain('"node": "kn1"');
  expect(ipam).toContain('"sequenceNumber": 18446744073709551615');

  await line.given(v3("Node", "stranger", {}));
  expect((await line.run("datastore", "migrate", "export")).err).toContain(
    "Node stranger has no orchRefs entry for k8s",
  );
}, 30_000);
