// Creates the service accounts and roles of a manifest on a test's API server, for the programs of a test.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import type { KubeObject } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { kubeconfigText } from "./api-server.ts";
import type { Cluster } from "./cluster.ts";

export type AccountName = "calico-node" | "calico-cni-plugin" | "calico-kube-controllers" | "calico-typha";

export interface Rule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
  readonly verbs: readonly string[];
}
export interface Manifested {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly Rule[];
}

export const readManifest = (file: string): readonly Manifested[] =>
  (loadAll(readFileSync(join(import.meta.dir, "../../manifests", file), "utf8")) as (Manifested | null)[]).filter(
    (object) => object !== null,
  );

/** All rules that a manifest grants to an account, in any namespace. */
export const rulesOf = (manifest: readonly Manifested[], account: AccountName): readonly Rule[] =>
  manifest
    .filter(({ kind, metadata }) => kind.endsWith("Role") && metadata.name === account)
    .flatMap(({ rules = [] }) => rules);

export interface Accounts {
  readonly names: readonly AccountName[];
  readonly manifest: readonly Manifested[];
  token(name: AccountName): string;
  /** Returns a kubeconfig with the account's token, for another address of the server if given. */
  kubeconfig(name: AccountName, url?: string): string;
  /** Returns the same accounts with tokens that are bound to this existing node, as those of real pods are. */
  on(node: string): Promise<Accounts>;
}

const ADMISSION = "/apis/admissionregistration.k8s.io/v1";

/** @param options `withAdmission`: also create the manifest's admission policies, and wait until they take effect */
export async function installAccounts(
  cluster: Cluster,
  file = "calico-typha.yaml",
  options: { readonly withAdmission?: boolean } = {},
): Promise<Accounts> {
  const rbac = "/apis/rbac.authorization.k8s.io/v1";
  const home = "/namespaces/kube-system";
  const places: Readonly<Record<string, string>> = {
    ServiceAccount: `/api/v1${home}/serviceaccounts`,
    ClusterRole: `${rbac}/clusterroles`,
    ClusterRoleBinding: `${rbac}/clusterrolebindings`,
    Role: `${rbac}${home}/roles`,
    RoleBinding: `${rbac}${home}/rolebindings`,
    ...(options.withAdmission === true && {
      ValidatingAdmissionPolicy: `${ADMISSION}/validatingadmissionpolicies`,
      ValidatingAdmissionPolicyBinding: `${ADMISSION}/validatingadmissionpolicybindings`,
    }),
  };
  const manifest = readManifest(file);
  for (const object of manifest) {
    const place = places[object.kind];
    if (place !== undefined) await cluster.put(place, object);
  }
  const names = manifest.flatMap(({ kind, metadata }) =>
    kind === "ServiceAccount" ? [metadata.name as AccountName] : [],
  );
  const accountsWith = async (place: string, bindingOf: (name: AccountName) => Promise<object>): Promise<Accounts> => {
    const tokens = new Map<AccountName, string>();
    for (const name of names) {
      const path = `/api/v1${home}/serviceaccounts/${name}/token`;
      const body = { spec: await bindingOf(name) };
      tokens.set(
        name,
        (await cluster.api.json<{ status: { token: string } }>({ method: "POST", path, body })).status.token,
      );
    }
    const token = (name: AccountName): string => tokens.get(name) ?? "";
    return {
      names,
      manifest,
      token,
      kubeconfig(name, url = cluster.server.url) {
        const path = join(cluster.server.folder, `${name}${place}-${new URL(url).port}.kubeconfig`);
        writeFileSync(path, kubeconfigText(url, cluster.server.ca, token(name)), { mode: 0o600 });
        return path;
      },
      on: (node) => accountsWith(`-${node}`, (name) => boundTo(cluster, name, node)),
    };
  };
  const accounts = await accountsWith("", async () => ({}));
  if (options.withAdmission === true) await untilPoliciesApply(cluster);
  return accounts;
}

/** The plugin has no pod: calico-node requests its token for the node. */
async function boundTo(cluster: Cluster, account: AccountName, node: string): Promise<object> {
  if (account === "calico-cni-plugin") return { boundObjectRef: { apiVersion: "v1", kind: "Node", name: node } };
  const { metadata } = await cluster.put<KubeObject>("/api/v1/namespaces/kube-system/pods", {
    metadata: { name: `${account}-${node}` },
    spec: { nodeName: node, serviceAccountName: account, containers: [{ name: "c", image: "i" }] },
  });
  return { boundObjectRef: { apiVersion: "v1", kind: "Pod", name: metadata.name, uid: metadata.uid } };
}

/**
 * Waits until the admission policies take effect. The API server loads them in order, so it is sufficient to test the last
 * one: a node's account can then not create settings of another name. The administrator impersonates the account, so that
 * the audit log contains no denied request of the account itself.
 */
async function untilPoliciesApply(cluster: Cluster): Promise<void> {
  const isRefused = async (): Promise<boolean> => {
    const answer = await fetch(`${cluster.server.url}/apis/crd.projectcalico.org/v1/felixconfigurations?dryRun=All`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.server.adminToken}`,
        "impersonate-user": "system:serviceaccount:kube-system:calico-node",
        "content-type": "application/json",
      },
      tls: { rejectUnauthorized: false },
      body: JSON.stringify({
        apiVersion: "crd.projectcalico.org/v1",
        kind: "FelixConfiguration",
        metadata: { name: "probe" },
      }),
    });
    return (await answer.text()).includes("calico-only-defaults");
  };
  await eventually(isRefused, 30_000, "the admission policies are in force");
}
