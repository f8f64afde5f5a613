// The manifests on a real API server: it takes every object as it stands in the files, with no field it does not know
// and no warning.
import { afterAll, beforeAll, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
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
  cluster = await startCluster();
  for (const version of ["v1", "apps/v1", "policy/v1", "rbac.authorization.k8s.io/v1", "apiextensions.k8s.io/v1"]) {
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
      method: "PATCH", // server-side apply: definitions may be there already
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

for (const file of ["calico.yaml", "calico-etcd.yaml", "calico-typha.yaml", "calico-vxlan.yaml", "uninstall.yaml"])
  suite(`the API server takes every object of ${file}`, async () => {
    const objects = loadAll(readFileSync(join(import.meta.dir, "../../manifests", file), "utf8")) as Applied[];
    for (const object of objects) {
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
