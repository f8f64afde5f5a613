// The CNI service's rehearsal on a real etcd, by an account that may only read: it asks what every pod will ask, and writes nothing.
import { expect, test } from "bun:test";
import { onStage } from "../../src/cni/service.ts";
import { rehearse } from "../../src/cni/rehearsal.ts";
import { openDatastore, Recall } from "../../src/datastore/index.ts";
import { API_VERSION, type KindName, type Resource } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";

test("a rehearsal by an account that may only read asks, remembers and writes nothing", async () => {
  await using etcd = await EtcdServer.start({ flags: ["--bcrypt-cost", "4"] });
  const admin = await openDatastore(etcd.config);
  const put = (kind: KindName, name: string, spec: object) =>
    admin.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource,
    });
  await put("ClusterInformation", "default", { datastoreReady: true });
  await put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
  await admin.close();
  for (const command of [
    ["user", "add", "root:secret"],
    ["user", "grant-role", "root", "root"],
    ["user", "add", "reader:pass"],
    ["role", "add", "reading"],
    ["role", "grant-permission", "reading", "--prefix=true", "read", "/calico/"],
    ["user", "grant-role", "reader", "reading"],
    ["auth", "enable"],
  ])
    etcd.etcdctl(...command);
  const credentials = { username: "reader", password: "pass" };
  const store = await openDatastore({ ...etcd.config, credentials });
  const recall = new Recall();
  const signal = new AbortController().signal;
  const [add, del] = await rehearse({ store, recall, answer: onStage, signal });
  expect(add).toContain("open network namespace");
  expect(del).toBe("0\n\n");
  const { stored } = recall.entry({ type: "resource", kind: "ClusterInformation", name: "default" }) ?? {};
  expect(stored?.value).toMatchObject({ spec: { datastoreReady: true } });
  await store.close();
  expect(etcd.etcdctl("--user=root:secret", "get", "/calico/", "--prefix", "--keys-only").trim().split(/\s+/)).toEqual([
    "/calico/resources/v3/projectcalico.org/clusterinformations/default",
    "/calico/resources/v3/projectcalico.org/ippools/p4",
  ]);
});
