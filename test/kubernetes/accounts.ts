// The accounts of a manifest on a test's API server, with the rights the manifest gives them, as programs use them.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
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

/** Everything a manifest lets an account do, anywhere. */
export const rulesOf = (manifest: readonly Manifested[], account: AccountName): readonly Rule[] =>
  manifest
    .filter(({ kind, metadata }) => kind.endsWith("Role") && metadata.name === account)
    .flatMap(({ rules = [] }) => rules);

export interface Accounts {
  readonly names: readonly AccountName[];
  readonly manifest: readonly Manifested[];
  token(name: AccountName): string;
  /** A kubeconfig with the account's token, for a server that may be reached in another way. */
  kubeconfig(name: AccountName, url?: string): string;
}

export async function installAccounts(cluster: Cluster, file = "calico-typha.yaml"): Promise<Accounts> {
  const rbac = "/apis/rbac.authorization.k8s.io/v1";
  const home = "/namespaces/kube-system";
  const places: Readonly<Record<string, string>> = {
    ServiceAccount: `/api/v1${home}/serviceaccounts`,
    ClusterRole: `${rbac}/clusterroles`,
    ClusterRoleBinding: `${rbac}/clusterrolebindings`,
    Role: `${rbac}${home}/roles`,
    RoleBinding: `${rbac}${home}/rolebindings`,
  };
  const manifest = readManifest(file);
  for (const object of manifest) {
    const place = places[object.kind];
    if (place !== undefined) await cluster.put(place, object);
  }
  const names = manifest.flatMap(({ kind, metadata }) =>
    kind === "ServiceAccount" ? [metadata.name as AccountName] : [],
  );
  const tokens = new Map<AccountName, string>();
  for (const name of names) {
    const path = `/api/v1${home}/serviceaccounts/${name}/token`;
    const issued = await cluster.api.json<{ status: { token: string } }>({ method: "POST", path, body: { spec: {} } });
    tokens.set(name, issued.status.token);
  }
  const token = (name: AccountName): string => tokens.get(name) ?? "";
  return {
    names,
    manifest,
    token,
    kubeconfig(name, url = cluster.server.url) {
      const path = join(cluster.server.folder, `${name}-${new URL(url).port}.kubeconfig`);
      writeFileSync(path, kubeconfigText(url, cluster.server.ca, token(name)), { mode: 0o600 });
      return path;
    },
  };
}
