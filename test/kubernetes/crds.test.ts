// Tests Calico's custom resource definitions on a real API server: the server accepts them, stores what Calico's programs
// write, and rejects invalid objects.
import { afterAll, beforeAll, expect } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { delay } from "../../src/lib/retry.ts";
import { type ApiServer, startApiServer } from "./api-server.ts";
import { found, suite } from "./available.ts";

const crds = join(import.meta.dir, "../../manifests/crds");
const recordings = join(import.meta.dir, "../../../shared/golden/datamodel/kubernetes");

type Json = Record<string, unknown>;
interface CustomObject extends Json {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

let server: ApiServer;
beforeAll(async () => {
  if ("missing" in found) return;
  server = await startApiServer(found.path);
}, 600_000);
afterAll(async () => await server?.[Symbol.asyncDispose]());

async function call(method: string, path: string, body?: unknown): Promise<{ status: number; body: Json }> {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${server.adminToken}`, "content-type": "application/json" },
    tls: { rejectUnauthorized: false },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return { status: answer.status, body: (await answer.json()) as Json };
}

const collection = (plural: string, namespace?: string) =>
  `/apis/crd.projectcalico.org/v1${namespace === undefined ? "" : `/namespaces/${namespace}`}/${plural}`;

/** The parts of `want` that are not in `got`. */
function missing(want: unknown, got: unknown, path: string): string[] {
  if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length) return [`${path}: ${JSON.stringify(got)}`];
    return want.flatMap((item, i) => missing(item, got[i], `${path}[${i}]`));
  }
  if (typeof want === "object" && want !== null)
    return Object.entries(want).flatMap(([key, value]) =>
      missing(value, (got as Json | undefined)?.[key], `${path}.${key}`),
    );
  return want === got ? [] : [`${path}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`];
}

suite("the API server accepts and serves every definition, without a warning about its schema", async () => {
  const names: string[] = [];
  for (const file of readdirSync(crds)) {
    const definition = load(readFileSync(join(crds, file), "utf8")) as CustomObject;
    const answer = await call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
    expect({ file, status: answer.status, message: answer.status < 300 ? undefined : answer.body["message"] }).toEqual({
      file,
      status: 201,
      message: undefined,
    });
    names.push(definition.metadata.name);
  }
  for (const name of names) {
    const conditions = await established(name);
    expect({ name, bad: conditions.filter((c) => c.type === "NonStructuralSchema" && c.status === "True") }).toEqual({
      name,
      bad: [],
    });
  }
}, 60_000);

interface Condition {
  readonly type: string;
  readonly status: string;
}
async function established(name: string): Promise<readonly Condition[]> {
  for (let i = 0; i < 200; i++) {
    const { body } = await call("GET", `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`);
    // Null until the server has processed it.
    const { conditions } = (body["status"] ?? {}) as { readonly conditions?: readonly Condition[] | null };
    if (conditions?.some((c) => c.type === "Established" && c.status === "True")) return conditions;
    await delay(50);
  }
  throw new Error(`${name} was not established within 10 s`);
}

suite("objects that Calico's programs wrote are accepted and stored completely", async () => {
  if (!existsSync(recordings)) return console.log("there are no recordings next to this checkout");
  let written = 0;
  for (const file of readdirSync(recordings)) {
    const { cases } = JSON.parse(readFileSync(join(recordings, file), "utf8")) as {
      cases: {
        name: string;
        objects?: Record<string, CustomObject>;
        master?: { objects?: Record<string, CustomObject> };
      }[];
    };
    for (const recorded of cases)
      for (const [version, objects] of [
        ["3.28", recorded.objects],
        ["master", recorded.master?.objects],
      ] as const)
        for (const [where, object] of Object.entries(objects ?? {})) {
          if (object?.apiVersion !== "crd.projectcalico.org/v1") continue;
          const path = collection(where.split("/")[0] ?? "", object.metadata.namespace);
          if (object.metadata.namespace !== undefined)
            await call("POST", "/api/v1/namespaces", {
              apiVersion: "v1",
              kind: "Namespace",
              metadata: { name: object.metadata.namespace },
            });
          const { status: _, ...body } = object; // a subresource of its own
          const answer = await call("POST", path, body);
          const name = `${file} ${recorded.name} ${version} ${where}`;
          expect({
            name,
            status: answer.status,
            message: answer.status < 300 ? undefined : answer.body["message"],
          }).toEqual({ name, status: 201, message: undefined });
          expect({ name, lost: missing(object["spec"], answer.body["spec"], "spec") }).toEqual({ name, lost: [] });
          await call("DELETE", `${path}/${object.metadata.name}`);
          written++;
        }
  }
  expect(written).toBeGreaterThan(20);
}, 60_000);

suite("the schema rejects invalid objects", async () => {
  const refused = [
    ["ippools", { cidr: "10.0.0.0/16", vxlanMode: "Sometimes" }],
    ["ippools", {}],
    ["globalnetworkpolicies", { ingress: [{ action: "Drop" }] }],
    ["globalnetworkpolicies", { types: ["Sideways"] }],
    [
      "bgpfilters",
      { exportV4: [{ action: "Accept", prefixLength: { max: 33 }, cidr: "10.0.0.0/8", matchOperator: "In" }] },
    ],
    ["felixconfigurations", { floatingIPs: "Perhaps" }],
    ["ipamconfigs", { ipCooldownSeconds: 1201 }],
  ] as const;
  for (const [plural, spec] of refused) {
    const kind = (
      load(readFileSync(join(crds, `crd.projectcalico.org_${plural}.yaml`), "utf8")) as {
        spec: { names: { kind: string } };
      }
    ).spec.names.kind;
    const answer = await call("POST", collection(plural), {
      apiVersion: "crd.projectcalico.org/v1",
      kind,
      metadata: { name: "bad" },
      spec,
    });
    expect({ plural, spec, status: answer.status }).toEqual({ plural, spec, status: 422 });
  }
});

suite("the server fills in the defaults of Calico's definitions, and no others", async () => {
  const made = async (plural: string, kind: string, name: string, spec: object) => {
    const apiVersion = "crd.projectcalico.org/v1";
    return (await call("POST", collection(plural), { apiVersion, kind, metadata: { name }, spec })).body["spec"];
  };
  const pool = { cidr: "10.0.0.0/16" };
  expect(await made("ippools", "IPPool", "p", pool)).toEqual({
    ...pool,
    nodeSelector: "all()",
    assignmentMode: "Automatic",
  });
  expect(await made("tiers", "Tier", "t", {})).toEqual({ defaultAction: "Deny" });
  // A default in one node's settings would override the value for all nodes.
  const node = await made("felixconfigurations", "FelixConfiguration", "node.n1", {});
  expect(node).toEqual({ nftablesMode: "Auto", nftablesFlowTableOffload: "Disabled" });
});
