// Tests the native API (custom resources of the group projectcalico.org/v3) on a real API server: the controllers check
// pools and tiers, because kubectl writes them without a client of Calico.
import { afterAll, beforeAll, expect } from "bun:test";
import { Client, type Datastore, openDatastore } from "../../src/datastore/index.ts";
import { KubeApi } from "../../src/datastore/kubernetes/api-client.ts";
import { resolveAccess } from "../../src/datastore/kubernetes/access.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { CRD_KINDS, customResourceDefinition } from "../../src/model/kinds/crd.ts";
import { type ApiServer, findApiServer, startApiServer } from "./api-server.ts";
import { configOf, suite } from "./cluster.ts";
import { ControllersRun } from "./controllers-run.ts";

const WITHIN = 20_000;
const TIMEOUT = 120_000;
const NATIVE = "/apis/projectcalico.org/v3";
const found = await findApiServer();
let server: ApiServer;
let api: KubeApi;
let store: Datastore;

/** Returns the definitions of the other group with the names of the native group. */
async function installDefinitions(): Promise<void> {
  for (const kind of CRD_KINDS) {
    const definition = (await customResourceDefinition(kind)) as {
      metadata: { name: string };
      spec: { names: Record<string, string>; versions: object[] };
    };
    const isRenamed = kind === "IPAMConfiguration";
    const plural = isRenamed ? "ipamconfigurations" : (definition.spec.names["plural"] ?? "");
    const names = isRenamed
      ? { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase() }
      : definition.spec.names;
    const body = {
      ...definition,
      metadata: { name: `${plural}.projectcalico.org` },
      spec: {
        ...definition.spec,
        group: "projectcalico.org",
        names,
        versions: definition.spec.versions.map((version) => ({ ...booleanMark(version), name: "v3" })),
      },
    };
    // Has no effect: the API server requires this annotation only for groups under k8s.io and kubernetes.io.
    const annotations = { "api-approved.kubernetes.io": "unapproved, test" };
    const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    await api.json({ method: "POST", path, body: { ...body, metadata: { ...body.metadata, annotations } } });
  }
  await eventually(async () => {
    try {
      for (const plural of ["ippools", "tiers", "ipamblocks", "globalnetworkpolicies", "kubecontrollersconfigurations"])
        await api.list(`${NATIVE}/${plural}`);
      return true;
    } catch {
      return false;
    }
  }, WITHIN);
}

/** The mark of deletion is text in the other group, and a boolean here. */
const booleanMark = (version: object): object =>
  JSON.parse(JSON.stringify(version).replace(/"deleted":\{"type":"string"/, '"deleted":{"type":"boolean"')) as object;

beforeAll(async () => {
  if ("missing" in found) return;
  server = await startApiServer(found.path);
  api = new KubeApi(await resolveAccess(configOf(server.kubeconfig), {}), { qps: 10_000, burst: 10_000 });
  await installDefinitions();
  store = await openDatastore(configOf(server.kubeconfig));
}, 600_000);
afterAll(async () => {
  await store?.close();
  api?.close();
  await server?.[Symbol.asyncDispose]();
});

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}
interface Stored {
  readonly metadata: { readonly name: string; readonly finalizers?: string[]; readonly deletionTimestamp?: string };
  readonly status?: { readonly conditions?: readonly Condition[] };
}
const get = async (path: string): Promise<Stored | undefined> =>
  (await api.list(path.slice(0, path.lastIndexOf("/")))).items.find(
    ({ metadata }) => metadata.name === path.split("/").at(-1),
  ) as Stored | undefined;
const verdict = async (pool: string): Promise<string> => {
  const condition = (await get(`${NATIVE}/ippools/${pool}`))?.status?.conditions?.find(
    ({ type }) => type === "Allocatable",
  );
  return `${condition?.status} ${condition?.reason}`;
};
const make = (plural: string, kind: string, name: string, spec: object) =>
  api.json({
    method: "POST",
    path: `${NATIVE}/${plural}`,
    body: { apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec },
  });
const makePool = (name: string, cidr: string) =>
  make("ippools", "IPPool", name, { cidr, blockSize: 28, nodeSelector: "all()", allowedUses: ["Workload", "Tunnel"] });
const remove = (path: string) => api.json({ method: "DELETE", path });
const environment = () => ({
  DATASTORE_TYPE: "kubernetes",
  KUBECONFIG: server.kubeconfig,
  ENABLED_CONTROLLERS: "node",
});

suite(
  "TC-K30 pools of the native API report whether addresses are assigned, and are deleted after their last block",
  async () => {
    await api.json({ method: "POST", path: "/api/v1/nodes", body: { metadata: { name: "n1" } } });
    await using _program = new ControllersRun(environment());
    await makePool("first", "10.1.0.0/24");
    await eventually(async () => (await verdict("first")) === "True OK", WITHIN);
    const finalizers = async (name: string) => (await get(`${NATIVE}/ippools/${name}`))?.metadata.finalizers ?? [];
    await eventually(async () => (await finalizers("first")).includes("projectcalico.org/ippool-finalizer"), WITHIN);
    await makePool("second", "10.1.0.0/16"); // kubectl does not check for overlaps
    await eventually(async () => (await verdict("second")) === "False CIDROverlap", WITHIN);
    expect(await finalizers("second")).toEqual([]);

    const ipam = new Ipam({ datastore: store });
    const { addresses } = await ipam.autoAssign({
      version: 4,
      count: 1,
      host: "n1",
      use: "Workload",
      handleId: "by-hand",
      attributes: { node: "n1" },
    });
    expect(addresses[0]).toStartWith("10.1.0.");
    await remove(`${NATIVE}/ippools/first`);
    await eventually(async () => (await verdict("first")) === "False Terminating", WITHIN);
    expect(await verdict("second")).toBe("False CIDROverlap"); // until the other one is deleted
    await ipam.releaseByHandle("by-hand");
    await eventually(async () => (await get(`${NATIVE}/ippools/first`)) === undefined, WITHIN);
    await eventually(async () => (await verdict("second")) === "True OK", WITHIN);
    await eventually(async () => (await finalizers("second")).length === 1, WITHIN);

    const off = await api.get<never>(`${NATIVE}/ippools/second`);
    const spec = { ...(off as { spec: object }).spec, disabled: true };
    await api.json({ method: "PUT", path: `${NATIVE}/ippools/second`, body: { ...(off as object), spec } });
    await eventually(async () => (await verdict("second")) === "False Disabled", WITHIN);
    await eventually(async () => (await finalizers("second")).length === 0, WITHIN);
    await remove(`${NATIVE}/ippools/second`);
    await eventually(async () => (await get(`${NATIVE}/ippools/second`)) === undefined, WITHIN);
  },
  TIMEOUT,
);

suite(
  "TC-K31 tiers of the native API are deleted after their last policy, and report what they wait for",
  async () => {
    await using _program = new ControllersRun(environment());
    await make("tiers", "Tier", "security", { order: 100 });
    const tier = () => get(`${NATIVE}/tiers/security`);
    await eventually(
      async () => (await tier())?.metadata.finalizers?.[0] === "projectcalico.org/tier-controller",
      WITHIN,
    );
    const spec = { tier: "security", selector: "all()", types: ["Ingress"] };
    await make("globalnetworkpolicies", "GlobalNetworkPolicy", "security.one", spec);
    await make("stagedglobalnetworkpolicies", "StagedGlobalNetworkPolicy", "security.two", spec);
    const client = new Client(store);
    await eventually(async () => (await client.list({ kind: "GlobalNetworkPolicy" })).items.length === 1, WITHIN);
    await remove(`${NATIVE}/tiers/security`);
    const ready = async () => (await tier())?.status?.conditions?.find(({ type }) => type === "Ready");
    await eventually(
      async () => (await ready())?.message.includes("1 GlobalNetworkPolicy, 1 StagedGlobalNetworkPolicy") === true,
      WITHIN,
    );
    expect(await ready()).toMatchObject({ status: "False", reason: "Terminating" });
    await remove(`${NATIVE}/globalnetworkpolicies/security.one`);
    await eventually(
      async () => (await ready())?.message.includes("has 1 StagedGlobalNetworkPolicy:") === true,
      WITHIN,
    );
    await remove(`${NATIVE}/stagedglobalnetworkpolicies/security.two`);
    await eventually(async () => (await tier()) === undefined, WITHIN);
  },
  TIMEOUT,
);

suite(
  "DM-096 the native group is used if only that is served",
  async () => {
    const client = new Client(store);
    await client.create({
      apiVersion: "projectcalico.org/v3",
      kind: "GlobalNetworkSet",
      metadata: { name: "plain", labels: { a: "b" } },
      spec: { nets: ["10.0.0.0/24"] },
    } as never);
    const stored = await api.get<never>(`${NATIVE}/globalnetworksets/plain`);
    // Stored unchanged: without an annotation, with labels on the object.
    expect(stored).toMatchObject({ metadata: { labels: { a: "b" } }, spec: { nets: ["10.0.0.0/24"] } } as never);
    expect((stored as { metadata: { annotations?: object } }).metadata.annotations).toBeUndefined();
    const read = await client.get({ kind: "GlobalNetworkSet", name: "plain" });
    expect(read.metadata.uid).toBe((stored as { metadata: { uid: string } }).metadata.uid);
  },
  TIMEOUT,
);
