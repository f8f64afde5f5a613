// Tests the addresses of LoadBalancer services on a real API server, with Calico's datastore in Kubernetes and in etcd.
import { afterAll, beforeAll, describe, expect } from "bun:test";
import type { Datastore } from "../../src/datastore/index.ts";
import { Client, openDatastore } from "../../src/datastore/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { Ipam, loadBalancerHandle, readAllocations } from "../../src/ipam/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { ControllersRun } from "./controllers-run.ts";

const WITHIN = 20_000;
const SERVICES = "/api/v1/namespaces/shop/services";
interface Service extends KubeObject {
  readonly spec: Record<string, unknown>;
  readonly status?: { readonly loadBalancer?: { readonly ingress?: readonly { ip?: string; hostname?: string }[] } };
}

let cluster: Cluster;
let etcd: EtcdServer;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["shop"] });
  etcd = await EtcdServer.start();
}, 140_000);
afterAll(async () => {
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

const path = (name: string) => `${SERVICES}/${name}`;
const shown = async (name: string): Promise<string[]> =>
  ((await cluster.api.get<Service>(path(name))).status?.loadBalancer?.ingress ?? []).map(
    ({ ip, hostname }) => ip ?? hostname ?? "",
  );
const make = (name: string, spec: object = {}, annotations: Record<string, string> = {}): Promise<Service> =>
  cluster.put<Service>(SERVICES, {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, annotations },
    spec: { type: "LoadBalancer", ports: [{ port: 80 }], allocateLoadBalancerNodePorts: false, ...spec },
  });
const patch = (name: string, body: object): Promise<unknown> =>
  cluster.api.json({ method: "PATCH", path: path(name), body, contentType: "application/merge-patch+json" });
const inPool = (prefix: string) => (addresses: readonly string[]) =>
  addresses.length === 1 && addresses[0]?.startsWith(prefix) === true;

for (const type of ["kubernetes", "etcdv3"] as const)
  describe(type, () => {
    const environment = () => ({
      DATASTORE_TYPE: type,
      KUBECONFIG: cluster.server.kubeconfig,
      ETCD_ENDPOINTS: etcd.url,
      ENABLED_CONTROLLERS: "loadbalancer",
    });
    let store: Datastore;
    let client: Client;
    beforeAll(async () => {
      if (!isAvailable) return;
      store = await openDatastore(type === "kubernetes" ? cluster.config : etcd.config);
      client = new Client(store);
    });
    afterAll(async () => {
      if (!isAvailable) return;
      for (const { metadata } of (await cluster.api.list(SERVICES)).items) await cluster.delete(path(metadata.name));
      await cluster.clear();
      await store.close();
    });
    const pool = (name: string, cidr: string, spec: object = {}) =>
      client.apply({
        apiVersion: "projectcalico.org/v3",
        kind: "IPPool",
        metadata: { name },
        spec: { cidr, blockSize: 29, allowedUses: ["LoadBalancer"], ...spec },
      } as never);
    const removePool = (name: string) => store.delete({ type: "resource", kind: "IPPool", name });
    const held = async () =>
      Object.fromEntries(
        (await readAllocations(store)).map(({ address, attributes }) => [
          address as string,
          `${attributes["namespace"]}/${attributes["service"]}`,
        ]),
      );

    suite("TC-K27 addresses are assigned, set in the status, and released", async () => {
      const web = await make("web");
      await using _program = new ControllersRun(environment());
      await eventually(async () => (await client.list({ kind: "ClusterInformation" })).items.length === 1, WITHIN);
      expect(await shown("web")).toEqual([]);
      // The pool is created later.
      await pool("auto", "10.1.0.0/28");
      await eventually(async () => inPool("10.1.0.")(await shown("web")), WITHIN);
      const [first = ""] = await shown("web");
      const [allocation] = await readAllocations(store);
      expect(allocation).toMatchObject({
        address: first as never,
        affinity: "virtual:load-balancer",
        handleId: loadBalancerHandle("web", "shop", web.metadata.uid ?? ""),
        attributes: { service: "web", namespace: "shop", type: "LoadBalancer" },
      });
      expect(allocation?.attributes["timestamp"]).toMatch(/^\d{4}-\d\d-\d\d [\d:.]+ \+0000 UTC$/);

      // A manual pool is used only by services that request it; without the request its address is released.
      await pool("manual", "10.2.0.0/28", { assignmentMode: "Manual" });
      await patch("web", { metadata: { annotations: { "projectcalico.org/ipv4pools": '["manual"]' } } });
      await eventually(async () => inPool("10.2.0.")(await shown("web")), WITHIN);
      await patch("web", { metadata: { annotations: { "projectcalico.org/ipv4pools": null } } });
      await eventually(async () => inPool("10.1.0.")(await shown("web")), WITHIN);

      // A fixed address is requested, by annotation and in the spec.
      await patch("web", { metadata: { annotations: { "projectcalico.org/loadBalancerIPs": '["10.2.0.7"]' } } });
      await eventually(async () => (await shown("web")).join() === "10.2.0.7", WITHIN);
      await make("named", { loadBalancerIP: "10.1.0.12" });
      await eventually(async () => (await shown("named")).join() === "10.1.0.12", WITHIN);
      // An address in use is not assigned again, and an invalid request keeps the present address.
      await make("late", { loadBalancerIP: "10.1.0.12" });
      await patch("web", { metadata: { annotations: { "projectcalico.org/loadBalancerIPs": "nonsense" } } });
      await make("after");
      await eventually(async () => inPool("10.1.0.")(await shown("after")), WITHIN);
      expect([await shown("late"), await shown("web")]).toEqual([[], ["10.2.0.7"]]);
      // When the address is released, the waiting service gets it.
      await cluster.delete(path("named"));
      await eventually(async () => (await shown("late")).join() === "10.1.0.12", WITHIN);

      // With another load balancer class, Calico's address is released, and what other controllers wrote is kept.
      const other = await cluster.api.get<Service>(path("after"));
      const ingress = [...(other.status?.loadBalancer?.ingress ?? []), { hostname: "lb.example" }];
      await cluster.api.json({
        method: "PUT",
        path: `${path("after")}/status`,
        body: { ...other, status: { loadBalancer: { ingress } } },
      });
      await patch("after", { spec: { type: "ClusterIP", loadBalancerClass: null } });
      await eventually(async () => !Object.values(await held()).includes("shop/after"), WITHIN);

      // All addresses are released when the service is deleted, or the last pool.
      await cluster.delete(path("web"));
      await eventually(async () => !Object.values(await held()).includes("shop/web"), WITHIN);
      await cluster.delete(path("after"));
      expect(await held()).toEqual({ "10.1.0.12": "shop/late" });
      await removePool("manual");
      await removePool("auto");
      await eventually(
        async () => Object.keys(await held()).length === 0 && (await shown("late")).length === 0,
        WITHIN,
      );
      expect(await new Ipam({ datastore: store }).inconsistencies()).toEqual([]);
    }, 120_000);

    suite("TC-K27 the next run repairs the state after a kill, and many services get one address each", async () => {
      for (const { metadata } of (await cluster.api.list(SERVICES)).items) await cluster.delete(path(metadata.name));
      await pool("many", "10.3.0.0/26");
      const names = Array.from({ length: 12 }, (_, i) => `many-${i}`);
      await Promise.all(names.map((name) => make(name)));
      // Two replicas in sequence; the first is stopped while it works.
      {
        await using _first = new ControllersRun(environment());
        await eventually(async () => Object.keys(await held()).length >= 3, WITHIN);
      }
      await cluster.delete(path("many-0"));
      // An address of a deleted service.
      const ipam = new Ipam({ datastore: store });
      await ipam.assignAddress({
        address: "10.3.0.62" as never,
        host: "load-balancer",
        use: "LoadBalancer",
        handleId: loadBalancerHandle("ghost", "shop", "u"),
        attributes: { service: "ghost", namespace: "shop", type: "LoadBalancer" },
      });
      await using _second = new ControllersRun(environment());
      const wanted = names.slice(1).map((name) => `shop/${name}`);
      await eventually(async () => {
        const now = Object.values(await held()).sort();
        return now.join() === [...wanted].sort().join();
      }, 40_000);
      const addresses = await Promise.all(names.slice(1).map(shown));
      await eventually(async () => (await Promise.all(names.slice(1).map(shown))).flat().length === 11, WITHIN);
      expect(addresses.every((one) => one.length <= 1)).toBe(true);
      expect(new Set((await Promise.all(names.slice(1).map(shown))).flat()).size).toBe(11);
    }, 120_000);
  });
