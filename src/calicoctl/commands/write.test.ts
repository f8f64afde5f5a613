// Tests create, apply, replace, delete, patch and label: what they store and print.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import type { Resource } from "../../model/index.ts";
import { CommandLine, networkSet, policy, pool } from "../testing/command-line.ts";

const names = async (line: CommandLine, kind: "IPPool" | "GlobalNetworkSet" | "NetworkPolicy") =>
  (await line.stored(kind)).map((resource) => resource.metadata.name);

test("TC-C03 create stores new resources, and reports or skips those that exist", async () => {
  using line = new CommandLine();
  const file = line.file("f.yaml", `${pool("a")}---\n${pool("b", "10.2.0.0/16")}`);
  expect(await line.run("create", "-f", file)).toEqual({
    code: 0,
    out: "Successfully created 2 'IPPool' resource(s)\n",
    err: "",
  });
  const again = await line.pipe(pool("a"), "create", "-f", "-");
  expect(again).toMatchObject({ code: 1, out: "" });
  expect(again.err).toBe("Failed to create 'IPPool' resource: [resource already exists: IPPool(a)]\n");
  expect(await line.pipe(pool("a"), "create", "-f", "-", "--skip-exists")).toMatchObject({
    code: 0,
    out: "Successfully created 1 'IPPool' resource(s)\n",
  });
});

test("TC-C04 apply creates new resources and updates existing ones", async () => {
  using line = new CommandLine();
  expect((await line.pipe(pool("a"), "apply", "-f", "-")).out).toBe("Successfully applied 1 'IPPool' resource(s)\n");
  const [before] = await line.stored("IPPool");
  const changed = await line.pipe(`${pool("a")}  natOutgoing: true\n---\n${networkSet("s")}`, "apply", "-f", "-");
  expect(changed).toMatchObject({ code: 0, out: "Successfully applied 2 resource(s)\n" });
  const [after] = await line.stored("IPPool");
  expect(after?.spec).toMatchObject({ natOutgoing: true });
  expect(after?.metadata.uid).toBe(before?.metadata.uid ?? "");
});

test("TC-C04 apply reports that the built-in profile cannot be changed", async () => {
  using line = new CommandLine();
  const exported = await line.run("get", "profile", "projectcalico-default-allow", "-o", "yaml", "--export");
  expect(await line.pipe(exported.out, "apply", "-f", "-")).toEqual({
    code: 1,
    out: "",
    err: "Failed to apply 'Profile' resource: [operation update is not supported on Profile(projectcalico-default-allow): it is built in and cannot be changed]\n",
  });
});

test("TC-C05 replace prints the number of attempts and the last error", async () => {
  using line = new CommandLine();
  await line.given(pool("b", "10.2.0.0/16"));
  const mixed = await line.pipe(
    `${pool("a")}---\n${pool("b", "10.2.0.0/16", "  natOutgoing: true\n")}`,
    "replace",
    "-f",
    "-",
  );
  expect(mixed.code).toBe(1);
  expect(mixed.out).toBe("Partial success: replaced the first 2 out of 2 'IPPool' resources:\n");
  expect(mixed.err).toBe("Hit error: resource does not exist: IPPool(a)\n");
  expect((await line.stored("IPPool")).map((p) => p.spec)).toMatchObject([{ natOutgoing: true }]);
  expect((await line.pipe(pool("b", "10.2.0.0/16"), "replace", "-f", "-")).out).toBe(
    "Successfully replaced 1 'IPPool' resource(s)\n",
  );
});

test("TC-C05 replace does not count resources with an invalid namespace as attempts", async () => {
  using line = new CommandLine();
  await line.given(pool("a"));
  expect(await line.pipe(pool("a"), "replace", "-f", "-", "-n", "ns1")).toEqual({
    code: 1,
    out: "",
    err: "Failed to replace 'IPPool' resource: IPPool is not namespaced\n",
  });
  const policy =
    "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: p, namespace: ns1}\nspec: {}\n";
  await line.given(policy);
  const mixed = await line.pipe(`${pool("a")}---\n${policy}`, "replace", "-f", "-", "-n", "ns1");
  expect(mixed.out).toBe("Partial success: replaced the first 1 out of 2 resources:\n");
  expect(mixed.err).toBe("Hit error: IPPool is not namespaced\n");
});

test("TC-C06 delete does not initialize the datastore", async () => {
  using line = new CommandLine();
  await line.put(Bun.YAML.parse(networkSet("a")) as Resource);
  expect((await line.run("delete", "gnetset", "a")).code).toBe(0);
  expect([await line.stored("ClusterInformation"), await line.stored("Tier")]).toEqual([[], []]);
});

test("TC-C06 delete by name, by file, and of resources that do not exist", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"), networkSet("b"), networkSet("c"));
  expect((await line.run("delete", "globalnetworkset", "a")).out).toBe(
    "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n",
  );
  const mixed = await line.run("delete", "gnetsets", "a", "b");
  expect(mixed).toMatchObject({ code: 1, out: "Successfully deleted 1 'GlobalNetworkSet' resource(s)\n" });
  expect(mixed.err).toContain(
    "Failed to delete 'GlobalNetworkSet' resource: resource does not exist: GlobalNetworkSet(a)",
  );
  expect(await line.pipe(`${networkSet("c")}---\n${networkSet("a")}`, "delete", "-f", "-", "-s")).toMatchObject({
    code: 0,
    out: "Successfully deleted 1 'GlobalNetworkSet' resource(s); 1 did not exist\n",
  });
  expect(await line.run("delete", "gnetset", "a", "b", "--skip-not-exists")).toEqual({
    code: 0,
    out: "Successfully deleted 0 'GlobalNetworkSet' resource(s); 2 did not exist\n",
    err: "",
  });
  expect((await line.run("delete", "globalnetworkset")).code).toBe(1);
  expect((await line.run("delete", "globalnetworkset", "")).code).toBe(1);
  expect((await line.run("delete", "foo", "a")).err).toContain("resource type 'foo' is not supported");
});

test("TC-C08 patch is a strategic merge regardless of --type, and rejects unknown fields", async () => {
  using line = new CommandLine();
  await line.given(
    "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\nspec: {bgp: {ipv4Address: 10.0.0.1/24, asNumber: 64512}}",
  );
  const patch = (text: string, ...more: string[]) => line.run("patch", "node", "n1", "-p", text, ...more);
  expect(await patch('{"spec":{"bgp":{"routeReflectorClusterID":"1.0.0.1","asNumber":null}}}')).toEqual({
    code: 0,
    out: "Successfully patched 1 'Node' resource\n",
    err: "",
  });
  const [node] = await line.stored("Node");
  expect(node?.spec).toEqual({ bgp: { ipv4Address: "10.0.0.1/24", routeReflectorClusterID: "1.0.0.1" } });
  expect(
    (await patch('{"spec":{"bgp":{"$patch":"replace","ipv4Address":"10.0.0.2/24"}}}', "--type", "merge")).code,
  ).toBe(0);
  expect((await line.stored("Node"))[0]?.spec).toEqual({ bgp: { ipv4Address: "10.0.0.2/24" } });
  const wrong: [string, string][] = [
    ["spec: {}", "not JSON"],
    ["[1]", "want a JSON object"],
    ['{"spec":{"foo":1}}', "spec.foo: unknown field"],
    ['{"spec":{"bgp":{"ipv4Address":"x"}}}', "spec.bgp.ipv4Address"],
  ];
  for (const [text, want] of wrong) {
    const answer = await patch(text);
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toContain(want);
  }
  expect((await line.run("patch", "node", "nope", "-p", "{}")).err).toContain("resource does not exist: Node(nope)");
  expect((await line.run("patch", "node", "n1")).err).toContain("Usage:");
});

test("TC-C08 after a conflict, a patch is applied to the current version, unless it contains a revision", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  const keys = ["k1", "k2", "k3", "k4"];
  const patches = keys.map((key) => JSON.stringify({ metadata: { labels: { [key]: "v" } } }));
  const answers = await Promise.all(patches.map((patch) => line.run("patch", "globalnetworkset", "a", "-p", patch)));
  expect(answers.map(({ err }) => err)).toEqual(keys.map(() => ""));
  expect(Object.keys((await line.stored("GlobalNetworkSet"))[0]?.metadata.labels ?? {}).sort()).toEqual(keys);
  const stale = '{"metadata":{"resourceVersion":"1","labels":{"k5":"v"}}}';
  expect((await line.run("patch", "globalnetworkset", "a", "-p", stale)).err).toContain("update conflict");
});

test("TC-C09 label sets, overwrites with --overwrite, and removes", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a", "  labels: {k: v}\n"));
  const label = (...words: string[]) => line.run("label", "globalnetworkset", "a", ...words);
  expect((await label("x=1")).out).toBe("Successfully set label x on globalnetworkset a\n");
  expect((await label("k=v")).out).toBe("Successfully updated label k on globalnetworkset a\n");
  expect((await label("k=w")).err).toContain("key k is already present");
  expect((await label("k=w", "--overwrite")).out).toBe("Successfully updated label k on globalnetworkset a\n");
  expect((await label("x", "--remove")).out).toBe("Successfully removed label x from globalnetworkset a\n");
  expect((await label("x", "--remove")).err).toBe("cannot remove label of globalnetworkset a, key x does not exist\n");
  expect((await line.stored("GlobalNetworkSet"))[0]?.metadata.labels).toEqual({ k: "w" });
  expect((await label("z")).err).toContain("invalid label z");
  expect((await label("b=c d")).err).toContain("label not changed");
  expect((await line.run("label", "globalnetworkset", "nope", "z=1")).err).toBe("globalnetworkset nope not found\n");
  expect((await label("k", "v")).err).toContain("Usage:");
});

test("TC-C14 a resourceVersion in the input must be that of the stored resource", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  const stale: [string, string][] = [
    ["apply", "1"],
    ["apply", "abc"],
    ["replace", "1"],
    ["replace", "abc"],
    ["delete", "1"],
  ];
  for (const [verb, version] of stale) {
    const answer = await line.pipe(networkSet("a", `  resourceVersion: "${version}"\n`), verb, "-f", "-");
    expect(answer.code).toBe(1);
    expect(answer.err).toContain("update conflict: GlobalNetworkSet(a)");
  }
  expect((await line.pipe(networkSet("a", "  resourceVersion: abc\n"), "delete", "-f", "-")).code).toBe(1);
  const shown = await line.run("get", "globalnetworkset", "a", "-o", "yaml");
  expect((await line.pipe(shown.out, "apply", "-f", "-")).code).toBe(0);
  expect((await line.pipe(shown.out, "apply", "-f", "-")).err).toContain("update conflict");
  const created = await line.pipe(networkSet("b", '  resourceVersion: "5"\n'), "create", "-f", "-");
  expect(created.err).toContain("metadata.resourceVersion");
  expect(await names(line, "GlobalNetworkSet")).toEqual(["a"]);
});

test("TC-C15 create keeps only user metadata, update keeps the stored metadata", async () => {
  using line = new CommandLine();
  const meta = "  uid: mine\n  creationTimestamp: 2001-01-01T00:00:00Z\n  generation: 7\n  labels: {a: b}\n";
  await line.given(networkSet("a", meta));
  const [created] = await line.stored("GlobalNetworkSet");
  expect(created?.metadata.uid).not.toBe("mine");
  expect(created?.metadata.creationTimestamp).not.toContain("2001");
  expect(created?.metadata.generation).toBeUndefined();
  await line.pipe(networkSet("a", "  uid: other\n  annotations: {n: '1'}\n"), "replace", "-f", "-");
  const [replaced] = await line.stored("GlobalNetworkSet");
  expect(replaced?.metadata.uid).toBe(created?.metadata.uid ?? "");
  expect(replaced?.metadata.creationTimestamp).toBe(created?.metadata.creationTimestamp ?? "");
  expect(replaced?.metadata.labels).toBeUndefined();
  expect(replaced?.metadata.annotations).toEqual({ n: "1" });
});

test("TC-C16 the namespace is that of the resource, the flag or the default; cluster-scoped kinds have none", async () => {
  using line = new CommandLine();
  const stored = async () =>
    (await line.stored("NetworkPolicy")).map((p) => `${p.metadata.namespace}/${p.metadata.name}`);
  await line.pipe(policy("p"), "create", "-f", "-");
  await line.pipe(policy("p"), "create", "-f", "-", "-n", "ns1");
  await line.pipe(policy("p", "ns2"), "create", "-f", "-");
  expect(await stored()).toEqual(["default/p", "ns1/p", "ns2/p"]);
  expect((await line.pipe(policy("q", "ns1"), "create", "-f", "-", "-n", "ns2")).err).toContain(
    "resource namespace does not match client namespace. ns1 != ns2",
  );
  expect((await line.pipe(pool("a"), "create", "-f", "-", "-n", "ns1")).err).toContain("IPPool is not namespaced");
  expect((await line.run("get", "ippool", "-A")).err).toBe("IPPool is not namespaced\n");
  for (const flag of ["-A", "-a", "--all-namespaces"])
    expect((await line.run("get", "np", flag)).out).toBe(
      "NAMESPACE   NAME   TIER      \ndefault     p      default   \nns1         p      default   \nns2         p      default   \n\n",
    );
  expect((await line.run("get", "np", "-A", "-n", "ns1")).err).toContain("cannot use both");
  expect((await line.run("get", "np", "p", "-A")).err).toContain("cannot use --all-namespace flag");
  expect((await line.run("delete", "np", "p", "-n", "ns1")).code).toBe(0);
  expect(await stored()).toEqual(["default/p", "ns2/p"]);
});

test("TC-C22 ClusterInformation and policies of Kubernetes cannot be written", async () => {
  using line = new CommandLine();
  const information =
    "apiVersion: projectcalico.org/v3\nkind: ClusterInformation\nmetadata: {name: default}\nspec: {datastoreReady: true}\n";
  for (const verb of ["create", "apply", "replace", "delete"]) {
    const answer = await line.pipe(information, verb, "-f", "-");
    expect(answer.code).toBe(1);
    expect(answer.err).toContain("is not supported on ClusterInformation");
  }
  expect(await line.stored("ClusterInformation")).toEqual([]);
  for (const verb of ["create", "apply", "replace", "delete"])
    expect((await line.pipe(policy("knp.default.web"), verb, "-f", "-")).err).toContain(
      "is not supported on NetworkPolicy(default/knp.default.web)",
    );
});

test("TC-C23 messages and exit codes if all, some or no resources were written", async () => {
  using line = new CommandLine();
  const bad = (name: string) => pool(name, "10.3.0.1/16");
  const create = (...documents: string[]) => line.pipe(documents.join("---\n"), "create", "-f", "-");
  const partial = await create(bad("bad"), pool("a"), pool("b", "10.2.0.0/16"));
  expect(partial).toMatchObject({
    code: 1,
    out: "Partial success: created the first 2 out of 3 'IPPool' resources:\n",
  });
  expect(partial.err).toStartWith("Hit error: [");
  const even = await create(bad("x"), pool("c", "10.4.0.0/16"));
  expect(even).toMatchObject({ code: 1, out: "" });
  expect((await create(bad("x"))).err).toStartWith("Failed to create 'IPPool' resource: [");
  expect((await create(bad("x"), bad("y"))).err).toStartWith("Failed to create any 'IPPool' resources: [");
  const mixed = await create(bad("x"), networkSet("s").replace("10.0.0.1/32", "nonsense"));
  expect(mixed.err).toStartWith("Failed to create any resources: [");
  expect((await create(networkSet("s"), pool("d", "10.5.0.0/16"))).out).toBe("Successfully created 2 resource(s)\n");
  expect((await line.run("create")).err).toContain("Usage:\n  calicoctl create --filename=<FILENAME>");
  expect((await line.run("create", "--nope")).err).toStartWith("calicoctl create: unknown flag --nope\n");
  expect(await line.run("foo")).toMatchObject({
    code: 2,
    out: "",
    err: expect.stringMatching(/^calicoctl: unknown command "foo"\n/),
  });
  // Calico prints help or nothing and exits with 0.
  expect(await line.run("ipam", "foo")).toMatchObject({ code: 2, out: "" });
  expect(await line.run("ipam", "release")).toMatchObject({ code: 2, out: "" });
});

test("TC-C08 an ambiguous patch is rejected, and nothing is written", async () => {
  using line = new CommandLine();
  await line.given(pool("a"));
  const before = await line.stored("IPPool");
  for (const [patch, want] of [
    ['{"spec":{"natOutgoing":true,"natOutgoing":false}}', 'key "natOutgoing" is given twice, first on line 1'],
    ['{"spec":{"blockSize":9007199254740993}}', "9007199254740993 has more digits than a number can represent"],
  ] as const)
    expect(await line.run("patch", "ippool", "a", "-p", patch)).toEqual({
      code: 1,
      out: "",
      err: `Hit error: --patch: ${want}\n`,
    });
  expect(
    (await line.run("patch", "ippool", "a", "-p", '{"spec":{"blockSize":1000}}')).err.match(/blockSize/g),
  ).toHaveLength(1);
  expect(await line.stored("IPPool")).toEqual(before);
  expect((await line.run("patch", "ippool", "a", "-p", '{\n\t"spec": {\n\t\t"natOutgoing": true}}')).code).toBe(0);
});

test("a command waits once for a locked datastore, not once per resource and tier", async () => {
  using line = new CommandLine();
  await line.run("get", "ippool");
  const blocker = new Database(line.env["CALICO_SQLITE_PATH"] ?? "");
  blocker.run("BEGIN IMMEDIATE");
  try {
    const started = performance.now();
    const answer = await line.pipe(
      [pool("a"), pool("b", "10.2.0.0/16"), pool("c", "10.3.0.0/16")].join("---\n"),
      "apply",
      "-f",
      "-",
    );
    expect(performance.now() - started).toBeLessThan(4 * line.timeoutMs);
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toMatch(
      /calico\.db is unavailable: another process held the lock for \d+ ms; 2 more resource\(s\) not attempted\]\n$/,
    );
  } finally {
    blocker.close();
  }
});
