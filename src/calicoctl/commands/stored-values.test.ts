// Tests that invalid values, or values of newer programs, in the datastore do not make commands fail.
import { expect, test } from "bun:test";
import { Database } from "bun:sqlite";
import { openDatastore, UnreadableEntry } from "../../datastore/index.ts";
import { API_VERSION, loadSchemas, type Resource, type ResourceKey } from "../../model/index.ts";
import { isNamespaced, MANAGED_KINDS } from "../resources/kinds.ts";
import { CommandLine, networkSet, pool } from "../testing/command-line.ts";

async function put(line: CommandLine, values: readonly Resource[]): Promise<void> {
  const path = line.env["CALICO_SQLITE_PATH"] ?? "";
  const store = await openDatastore({ type: "sqlite", path, isFallback: false });
  for (const value of values) {
    const { name, namespace } = value.metadata;
    const key: ResourceKey = {
      type: "resource",
      kind: value.kind,
      name,
      namespace,
    };
    await store.apply({ key, value });
  }
  await store.close();
}

/** Stores a value that is not JSON. */
function scribble(line: CommandLine, name: string, text: string): void {
  const db = new Database(line.env["CALICO_SQLITE_PATH"] ?? "");
  db.run("UPDATE version SET value = ? WHERE path LIKE ?", [text, `%/${name}`]);
  db.close();
}

const resource = (kind: Resource["kind"], name: string, spec: object): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name },
  spec,
});

for (const kind of MANAGED_KINDS)
  test(`fields of a wrong type in a ${kind} are reported by key, and the rest is shown`, async () => {
    using line = new CommandLine();
    const { loadDefinition } = await loadSchemas();
    const { shape } = (await loadDefinition(kind)).spec as unknown as { shape: Record<string, unknown> };
    const wrong = [7, "x", true, [null], [7], { a: null }];
    const specs = Object.keys(shape).flatMap((field) => wrong.map((value) => ({ [field]: value })));
    const values = specs.map((spec, i) => ({
      ...resource(kind, `n${i}`, spec),
      metadata: { name: `n${i}`, ...(isNamespaced(kind) && { namespace: "ns1" }) },
    }));
    await put(line, values);
    const scope = isNamespaced(kind) ? ["-n", "ns1"] : [];
    for (const output of ["ps", "wide", "yaml", "json", "go-template={{range .}}{{len .Items}}{{end}}"]) {
      const answer = await line.run("get", kind, ...scope, "-o", output);
      expect([output, answer.code]).toEqual([output, 0]);
      for (const message of answer.err.split("\n").slice(0, -1))
        expect(message).toMatch(/^Skipped: failed to parse datastore entry key=\/calico\/resources\/v3\/\S+: \S+: /);
    }
  });

test("a value of a wrong type is skipped in lists, an error by name, and can be deleted", async () => {
  using line = new CommandLine();
  await line.given(pool("good", "10.1.0.0/16"));
  await put(line, [resource("IPPool", "wrong", { cidr: 7 })]);
  const path = "/calico/resources/v3/projectcalico.org/ippools/wrong";
  for (const output of ["ps", "wide", "yaml", "json"]) {
    const list = await line.run("get", "ippool", "-o", output);
    expect(list).toMatchObject({
      code: 0,
      err: expect.stringContaining(`Skipped: failed to parse datastore entry key=${path}: spec.cidr: want`),
    });
    expect(list.out).toContain("good");
    expect(list.out).not.toContain("wrong");
    const one = await line.run("get", "ippool", "wrong", "-o", output);
    expect(one).toMatchObject({ code: 1, err: expect.stringContaining(`failed to parse datastore entry key=${path}`) });
  }
  // The other resources are not affected.
  await line.given(pool("other", "10.2.0.0/16"));
  expect(await line.run("delete", "ippool", "wrong")).toMatchObject({ code: 0, err: "" });
  expect((await line.stored("IPPool")).map((found) => found.metadata.name)).toEqual(["good", "other"]);
});

test("doctor and ipam check skip resources with fields of a wrong type", async () => {
  using line = new CommandLine();
  await line.given(pool("good", "10.1.0.0/16"));
  const path = "/calico/resources/v3/projectcalico.org";
  const endpoint = { ...resource("WorkloadEndpoint", "n-k8s-p-eth0", { ipNetworks: { a: 1 } }) };
  await put(line, [
    resource("IPPool", "uses", { cidr: "10.2.0.0/16", allowedUses: {} }),
    resource("IPPool", "size", { cidr: "10.3.0.0/16", blockSize: "many" }),
    resource("Node", "n", { bgp: { ipv4IPIPTunnelAddr: 7 }, interfaces: {} }),
    { ...endpoint, metadata: { ...endpoint.metadata, namespace: "ns1" } },
  ]);
  const doctor = await line.run("doctor", "--no-host");
  expect([0, 3]).toContain(doctor.code);
  expect(doctor.out).not.toMatch(/NaN|undefined/);
  for (const name of ["ippools/uses: spec.allowedUses", "ippools/size: spec.blockSize", "nodes/n: spec."])
    expect(doctor.err).toContain(`Skipped: failed to parse datastore entry key=${path}/${name}`);
  const check = await line.run("ipam", "check");
  expect([0, 3]).toContain(check.code);
  expect(check.out).toContain("Check complete");
});

test("messages about keys and values with control characters are one line without them", () => {
  const { message } = new UnreadableEntry("/calico/a\nb", "no JSON: Unrecognized token '\u0000'\nat 1");
  expect(message).toBe(
    String.raw`failed to parse datastore entry key=/calico/a\nb: no JSON: Unrecognized token '\u0000'\nat 1`,
  );
});

test("an unreadable ClusterInformation is reported, and every command works", async () => {
  const path = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
  for (const garbage of ["no JSON", "[]", '{"kind":"ClusterInformation","spec":{"calicoVersion":7}}']) {
    using line = new CommandLine();
    await line.given(pool("good"));
    scribble(line, "clusterinformations/default", garbage);
    const warning = expect.stringMatching(
      new RegExp(`^(Skipped: failed to parse datastore entry key=${path}: [^\n]+\n)*$`),
    );
    expect(await line.run("get", "ippool")).toEqual({ code: 0, out: expect.stringContaining("good"), err: warning });
    expect(await line.pipe(networkSet("a"), "apply", "-f", "-")).toMatchObject({ code: 0, err: warning });
    expect(await line.run("delete", "gnetset", "a")).toMatchObject({ code: 0, err: warning });
    expect(await line.run("ipam", "show")).toMatchObject({ code: 0, err: warning });
  }
});

test("resources that are not JSON can be deleted, also of kinds whose deletion has side effects", async () => {
  using line = new CommandLine();
  await put(line, [
    resource("IPPool", "p", {}),
    resource("Node", "n", {}),
    resource("Tier", "t", {}),
    resource("Tier", "default", {}),
  ]);
  for (const name of ["p", "n", "t", "default"]) scribble(line, name, "no JSON");
  for (const [kind, name] of [
    ["ippool", "p"],
    ["node", "n"],
    ["tier", "t"],
  ] as const) {
    expect((await line.run("get", kind)).err).toContain(`/${name}: not JSON`);
    expect(await line.run("delete", kind, name)).toMatchObject({ code: 0, err: "" });
    expect((await line.run("get", kind, name)).err).toContain("resource does not exist");
  }
  expect((await line.run("delete", "tier", "default")).err).toContain("Cannot delete a built-in tier");
});

test("unknown fields of newer programs are printed and kept by label, patch and apply, but not accepted as input", async () => {
  using line = new CommandLine();
  const metadata = { name: "a", uid: "u", creationTimestamp: "2026-01-01T00:00:00Z" };
  const later = { zone: { colour: "red" } };
  await put(line, [{ ...resource("GlobalNetworkSet", "a", { nets: ["10.0.0.0/8"], later }), metadata }]);
  const stored = async () => (await line.stored("GlobalNetworkSet"))[0];
  expect((await line.run("get", "gnetset", "a", "-o", "yaml")).out).toContain("later:\n    zone:\n      colour: red\n");
  expect(await line.run("label", "gnetset", "a", "k=v")).toMatchObject({ code: 0, err: "" });
  expect(await line.run("patch", "gnetset", "a", "-p", '{"spec":{"nets":["10.1.0.0/16"]}}')).toMatchObject({ code: 0 });
  expect(await stored()).toMatchObject({ metadata: { labels: { k: "v" } }, spec: { nets: ["10.1.0.0/16"], later } });
  expect((await line.run("patch", "gnetset", "a", "-p", '{"spec":{"later":{"zone":1}}}')).err).toContain(
    "spec.later: unknown field",
  );
  expect((await line.pipe(networkSet("b").replace("nets:", "later:"), "apply", "-f", "-")).err).toContain(
    "spec.later: unknown field",
  );
  // A file is the complete resource: fields that it does not contain are removed.
  await line.given(networkSet("a"));
  expect(await stored()).not.toMatchObject({ spec: { later } });
});

test("a patch cannot change the identity of a resource", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"), networkSet("b"));
  for (const patch of ['{"metadata":{"name":"b"}}', '{"kind":"IPPool"}', '{"apiVersion":"v1"}']) {
    const answer = await line.run("patch", "gnetset", "a", "-p", patch);
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toContain("cannot be changed");
  }
});
