// Applies the manifests to a real API server: it must accept every object unchanged, without unknown fields or warnings.
// Also tests the admission policies of the manifests.
import { afterAll, beforeAll, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { KubeStatusError } from "../../src/datastore/kubernetes/status-error.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";

interface Applied {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

let cluster: Cluster;
/** Plural and scope, by version and kind. */
const places = new Map<string, { readonly name: string; readonly namespaced: boolean }>();

beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ isOwn: true }); // admission policies take effect, and end, with a delay
  for (const version of [
    "v1",
    "apps/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
  ]) {
    const { resources } = (await cluster.api.get<never>(
      version === "v1" ? "/api/v1" : `/apis/${version}`,
    )) as unknown as {
      resources: { name: string; kind: string; namespaced: boolean }[];
    };
    for (const { name, kind, namespaced } of resources)
      if (!name.includes("/")) places.set(`${version} ${kind}`, { name, namespaced });
  }
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

async function dryRun(
  object: Applied,
): Promise<{ readonly status: number; readonly warning: string | null; readonly message: string }> {
  const place = places.get(`${object.apiVersion} ${object.kind}`);
  if (place === undefined) throw new Error(`the server has no ${object.apiVersion} ${object.kind}`);
  expect({ name: object.metadata.name, namespaced: object.metadata.namespace !== undefined }).toEqual({
    name: object.metadata.name,
    namespaced: place.namespaced,
  });
  const root = object.apiVersion === "v1" ? "/api/v1" : `/apis/${object.apiVersion}`;
  const scope = object.metadata.namespace === undefined ? "" : `/namespaces/${object.metadata.namespace}`;
  const query = "dryRun=All&fieldValidation=Strict&force=true&fieldManager=test";
  const answer = await fetch(
    `${cluster.server.url}${root}${scope}/${place.name}/${encodeURIComponent(object.metadata.name)}?${query}`,
    {
      method: "PATCH", // server-side apply, because definitions may exist already
      headers: {
        authorization: `Bearer ${cluster.server.adminToken}`,
        "content-type": "application/apply-patch+yaml",
      },
      tls: { rejectUnauthorized: false },
      body: JSON.stringify(object),
    },
  );
  const { message = "" } = (await answer.json()) as { message?: string };
  return { status: answer.status, warning: answer.headers.get("warning"), message };
}

const objectsOf = (file: string): Applied[] =>
  loadAll(readFileSync(join(import.meta.dir, "../../manifests", file), "utf8")) as Applied[];

for (const file of [
  "calico.yaml",
  "calico-etcd.yaml",
  "calico-typha.yaml",
  "calico-vxlan.yaml",
  "policy-defaults.yaml",
  "uninstall.yaml",
])
  suite(`the API server accepts every object of ${file}`, async () => {
    for (const object of objectsOf(file)) {
      const name = `${object.kind} ${object.metadata.name}`;
      const { status, warning, message } = await dryRun(object);
      expect({ name, isTaken: status < 300, warning, message: status < 300 ? "" : message }).toEqual({
        name,
        isTaken: true,
        warning: null,
        message: "",
      });
    }
  }, 60_000);

const CALICO = "/apis/crd.projectcalico.org/v1";
const ADMISSION = "/apis/admissionregistration.k8s.io/v1";

/** Creates the admission policies of a manifest, which take effect shortly after. */
async function admit(file: string): Promise<void> {
  for (const object of objectsOf(file)) {
    const place = places.get(`${object.apiVersion} ${object.kind}`);
    if (object.kind.includes("AdmissionPolicy")) await cluster.put(`${ADMISSION}/${place?.name}`, object);
  }
}
const calico = (kind: string, name: string, spec: object) => ({
  apiVersion: "crd.projectcalico.org/v1",
  kind,
  metadata: { name },
  spec,
});

suite("the API server rejects a NetworkSet with labels that only the system sets, and deletes a stored one", async () => {
  const path = `${CALICO}/namespaces/default/networksets`;
  const put = (name: string, metadata: object) =>
    cluster
      .put(path, { ...calico("NetworkSet", name, { nets: ["10.0.0.0/8"] }), metadata: { name, ...metadata } })
      .then(
        () => "stored",
        (error: Error) => error.message,
      );
  const hidden = (json: string) => ({ annotations: { "projectcalico.org/metadata": json } });
  // Created before the policies, with a finalizer that must be removed.
  const claimed = { labels: { "pcns.team": "monitoring" }, finalizers: ["example.org/wait"] };
  expect(await put("old", claimed)).toBe("stored");
  await admit("calico.yaml");
  await eventually(async () => {
    await cluster.delete(`${path}/probe`);
    return (await put("probe", { labels: { "pcns.a": "b" } })) !== "stored";
  });
  const labels = [
    "pcns.kubernetes.io/metadata.name",
    "pcsa.role",
    "projectcalico.org/namespace",
    "projectcalico.org/serviceaccount",
    "projectcalico.org/orchestrator",
  ];
  for (const label of labels) {
    expect(await put("claims", { labels: { [label]: "x" } })).toContain("are set by the system");
    const json = JSON.stringify({ labels: { a: "b", [label]: "x" } });
    expect(await put("claims", hidden(json))).toContain("are set by the system");
    expect(await put("claims", hidden(json.replace("p", String.raw`\u0070`)))).toContain("are set by the system");
  }
  const own = { app: "list", "pcns-like": "x", "projectcalico.org/other": "x" };
  expect(await put("own", { labels: own, ...hidden(JSON.stringify({ labels: own, annotations: { a: "<p>" } })) })).toBe(
    "stored",
  );
  await cluster.delete(`${path}/own`);
  await cluster.delete(`${path}/old`);
  const body = { metadata: { finalizers: [] } };
  await cluster.api.json({ method: "PATCH", path: `${path}/old`, body, contentType: "application/merge-patch+json" });
  expect(await cluster.api.get(`${path}/old`).catch((error: unknown) => error)).toMatchObject({ code: 404 });
}, 60_000);

suite("DM-097 the API server rejects the deletion of built-in tiers, and deletes others", async () => {
  await admit("calico.yaml");
  const remove = (name: string) =>
    cluster.api.json({ method: "DELETE", path: `${CALICO}/tiers/${name}` }).then(
      () => "deleted",
      (error: Error) => error.message,
    );
  await eventually(async () => {
    await cluster.put(`${CALICO}/tiers`, calico("Tier", "default", { order: 1_000_000 }));
    return (await remove("default")) !== "deleted";
  }, 20_000);
  for (const name of ["default", "kube-admin", "kube-baseline"]) {
    await cluster.put(`${CALICO}/tiers`, calico("Tier", name, {}));
    expect(await remove(name)).toContain(`tier ${name} is built in and cannot be deleted`);
  }
  await cluster.put(`${CALICO}/tiers`, calico("Tier", "mine", {}));
  expect(await remove("mine")).toBe("deleted");
}, 60_000);

const RBAC = "/apis/rbac.authorization.k8s.io/v1";
const TIERS = { apiGroups: ["projectcalico.org"], resources: ["tiers"] };

/** Grants a user rules, and those for NetworkPolicies, in the cluster or one namespace. Returns when they take effect. */
async function grant(user: string, rules: readonly object[], namespace?: string): Promise<void> {
  const kind = namespace === undefined ? "ClusterRole" : "Role";
  const scope = namespace === undefined ? "" : `/namespaces/${namespace}`;
  await cluster.put(`${RBAC}${scope}/${kind.toLowerCase()}s`, { metadata: { name: user }, rules });
  await cluster.put(`${RBAC}${scope}/${kind.toLowerCase()}bindings`, {
    metadata: { name: user },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind, name: user },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: user }],
  });
  const [group, resource] = ["crd.projectcalico.org", "networkpolicies"];
  const resourceAttributes = { verb: "create", group, resource, namespace: namespace ?? "default" };
  await eventually(
    async () => {
      const { status } = await cluster.api.json<{ status: { allowed: boolean } }>({
        method: "POST",
        path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        body: { spec: { user, resourceAttributes } },
      });
      return status.allowed;
    },
    30_000,
    `the rights of ${user} are in force`,
  );
}

/** Returns "allowed", or the API server's reason. */
async function attemptAs(user: string, method: string, path: string, body?: object): Promise<string> {
  const answer = await fetch(`${cluster.server.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${cluster.server.adminToken}`,
      "impersonate-user": user,
      "content-type": method === "PATCH" ? "application/merge-patch+json" : "application/json",
    },
    tls: { rejectUnauthorized: false },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const { message = "" } = (await answer.json()) as { message?: string };
  return answer.ok ? "allowed" : message;
}

suite("the owner of a namespace cannot write policies of an administrator's tier", async () => {
  await admit("calico.yaml");
  await cluster.put(`${CALICO}/tiers`, calico("Tier", "security", { order: 1 }));
  const kinds = { networkpolicies: "NetworkPolicy", stagednetworkpolicies: "StagedNetworkPolicy" } as const;
  const all = (apiGroup: string, ...resources: string[]) => ({ apiGroups: [apiGroup], resources, verbs: ["*"] });
  const tiered = (...resourceNames: string[]) => ({
    ...all("projectcalico.org", ...Object.keys(kinds).map((plural) => `tier.${plural}`)),
    resourceNames,
  });
  const own = all("crd.projectcalico.org", ...Object.keys(kinds));
  await grant("owner", [own], "default");
  await grant("reader", [own, { ...TIERS, verbs: ["get"] }]);
  await grant("writer", [own, tiered("security.*")]);
  // The two permissions in Calico's documentation: for all policies of a tier, and for one policy.
  await grant("team", [own, { ...TIERS, verbs: ["get"], resourceNames: ["security"] }, tiered("security.*")]);
  await grant("one", [own, { ...TIERS, verbs: ["get"] }, tiered("security.theirs")]);
  await grant("admin-of-tiers", [own, all("crd.projectcalico.org", "tiers")]);
  await grant("admin", [all("*", "*")]);
  // kube-controllers renames policies with old names.
  const controllers = "system:serviceaccount:kube-system:calico-kube-controllers";
  await grant(controllers, [own]);
  const refused = expect.stringContaining("no right to write policies of tier security");
  const policy = (plural: keyof typeof kinds, name: string, tier?: string) =>
    calico(kinds[plural], name, { order: -1, selector: "all()", tier });
  const probe = `${CALICO}/namespaces/default/networkpolicies`;
  await eventually(
    async () =>
      (await attemptAs("owner", "POST", `${probe}?dryRun=All`, policy("networkpolicies", "security.p", "security"))) !==
      "allowed",
    30_000,
    "the policy is in force",
  );
  for (const plural of Object.keys(kinds) as (keyof typeof kinds)[]) {
    const path = `${CALICO}/namespaces/default/${plural}`;
    const create = (user: string, name: string, tier?: string) =>
      attemptAs(user, "POST", path, policy(plural, name, tier));
    const move = (user: string, name: string, tier: string) =>
      attemptAs(user, "PATCH", `${path}/${name}`, { spec: { tier } });
    const reorder = (user: string, name: string) => attemptAs(user, "PATCH", `${path}/${name}`, { spec: { order: 5 } });
    const remove = (user: string, name: string) => attemptAs(user, "DELETE", `${path}/${name}`);

    // The default tier is open to all users.
    expect(await create("owner", "mine")).toBe("allowed");
    expect(await create("owner", "default.mine", "default")).toBe("allowed");
    expect(await create("owner", "empty", "")).toBe("allowed");
    expect(await reorder("owner", "mine")).toBe("allowed");

    for (const user of ["owner", "reader", "writer", "one"]) {
      expect({ user, plural, answer: await create(user, "security.p", "security") }).toEqual({
        user,
        plural,
        answer: refused,
      });
      expect({ user, plural, answer: await move(user, "mine", "security") }).toEqual({ user, plural, answer: refused });
    }
    for (const user of ["team", "admin-of-tiers"]) {
      expect({ user, answer: await create(user, "security.p", "security") }).toEqual({ user, answer: "allowed" });
      for (const attempt of [reorder, remove]) expect(await attempt("owner", "security.p")).toEqual(refused);
      expect(await move("owner", "security.p", "default")).toEqual(refused);
      expect(await attemptAs("owner", "DELETE", path)).toEqual(refused); // the whole collection
      expect({ user, answer: await reorder(user, "security.p") }).toEqual({ user, answer: "allowed" });
      expect({ user, answer: await remove(user, "security.p") }).toEqual({ user, answer: "allowed" });
    }
    expect(await create("team", "other.p", "other")).toContain("no right to write policies of tier other");
    expect(await create("one", "security.theirs", "security")).toBe("allowed");
    expect(await remove("one", "security.theirs")).toBe("allowed");
    for (const user of [controllers, "admin"]) {
      expect({ user, answer: await create(user, "security.p", "security") }).toEqual({ user, answer: "allowed" });
      expect({ user, answer: await remove(user, "security.p") }).toEqual({ user, answer: "allowed" });
    }
    expect(await attemptAs("owner", "DELETE", path)).toBe("allowed");
  }
  // The deletion of a namespace deletes its policies.
  const controller = "system:serviceaccount:kube-system:namespace-controller";
  await cluster.put(probe, policy("networkpolicies", "security.p", "security"));
  expect(await attemptAs(controller, "DELETE", probe)).toBe("allowed");
  expect((await cluster.api.list(probe)).items).toEqual([]);
  await cluster.delete(`${CALICO}/tiers/security`);
}, 60_000);

suite("DM-097 a policy created with kubectl gets the same tier and types as with calicoctl", async () => {
  await admit("policy-defaults.yaml");
  const path = `${CALICO}/globalnetworkpolicies`;
  interface Stored {
    readonly metadata: { readonly labels?: Readonly<Record<string, string>> };
    readonly spec: { readonly tier?: string; readonly types?: readonly string[] };
  }
  const stored = async (spec: object, labels?: Readonly<Record<string, string>>): Promise<Stored> => {
    await cluster.delete(`${path}/p`);
    const policy = calico("GlobalNetworkPolicy", "p", spec);
    const metadata = labels === undefined ? policy.metadata : { ...policy.metadata, labels };
    return (await cluster.put(path, { ...policy, metadata })) as unknown as Stored;
  };
  const made = async (spec: object) => (await stored(spec)).spec;
  // The server is still processing the definitions that were applied before, and uses the new defaults with a delay.
  const notServedYet = (error: unknown) => {
    if (error instanceof KubeStatusError && error.code === 503) return undefined;
    throw error;
  };
  await eventually(async () => (await made({ selector: "all()" }).catch(notServedYet))?.types !== undefined);
  const [allow] = [[{ action: "Allow" }]];
  const cases: readonly (readonly [spec: object, types: readonly string[], tier?: string])[] = [
    [{}, ["Ingress"]],
    [{ ingress: allow }, ["Ingress"]],
    [{ egress: allow }, ["Egress"]],
    [{ ingress: allow, egress: allow }, ["Ingress", "Egress"]],
    [{ tier: "security", types: ["Egress"], ingress: allow }, ["Egress"], "security"],
  ];
  for (const [spec, types, tier = "default"] of cases)
    expect({ spec, ...(await made(spec)) }).toMatchObject({ spec, types: [...types], tier });
  const label = (tier: string) => ({ "projectcalico.org/tier": tier });
  expect((await stored({})).metadata.labels).toEqual(label("default"));
  expect((await stored({ tier: "" })).metadata.labels).toEqual(label("default"));
  expect((await stored({}, { a: "b" })).metadata.labels).toEqual({ a: "b", ...label("default") });
  expect((await stored({}, label("other"))).metadata.labels).toEqual(label("default"));
  expect((await stored({ tier: "security", types: ["Egress"] })).metadata.labels).toEqual(label("security"));
  // The same rule as in the v3 client.
  const { stdout } = await cluster.calicoctl(["get", "globalnetworkpolicy", "p", "-o", "json"]);
  expect(JSON.parse(stdout)).toMatchObject({ spec: { tier: "security", types: ["Egress"] } });
  await cluster.delete(`${path}/p`);
}, 60_000);

suite("DM-097 a staged Kubernetes policy created with kubectl gets the types that Kubernetes sets for a NetworkPolicy", async () => {
  await admit("policy-defaults.yaml");
  const path = `${CALICO}/namespaces/default/stagedkubernetesnetworkpolicies`;
  const typesOf = async (spec: object): Promise<unknown> => {
    await cluster.delete(`${path}/p`);
    const policy = calico("StagedKubernetesNetworkPolicy", "p", { podSelector: {}, ...spec });
    const made = await cluster.put(path, { ...policy, metadata: { name: "p", namespace: "default" } });
    expect((made as { metadata: object }).metadata).not.toHaveProperty("labels");
    return (made as unknown as { spec: { policyTypes?: unknown } }).spec.policyTypes;
  };
  await eventually(async () => (await typesOf({})) !== undefined);
  const rules = [{ ports: [{ port: 80 }] }];
  for (const [spec, types] of [
    [{}, ["Ingress"]],
    [{ ingress: rules }, ["Ingress"]],
    [{ egress: rules }, ["Ingress", "Egress"]],
    [{ ingress: rules, egress: rules }, ["Ingress", "Egress"]],
    [{ egress: rules, policyTypes: ["Egress"] }, ["Egress"]],
  ] as const)
    expect({ spec, types: await typesOf(spec) }).toEqual({ spec, types: [...types] });
  await cluster.delete(`${path}/p`);
}, 60_000);
