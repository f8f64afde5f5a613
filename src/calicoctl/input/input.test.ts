// Tests the inputs that calicoctl accepts, and the errors for those that it rejects.
import { expect, test } from "bun:test";
import fc from "fast-check";
import { CommandLine, networkSet, pool } from "../testing/command-line.ts";
import { InputFault } from "./fault.ts";
import { offsetOfField, toValue } from "./values.ts";
import { parseYaml, resolve } from "./yaml.ts";

test("TC-C12 standard input, JSON, several documents, lists and typed lists", async () => {
  const item = (name: string, cidr: string) => `- ${pool(name, cidr).trim().replaceAll("\n", "\n  ")}\n`;
  const items = item("a", "10.1.0.0/16") + item("b", "10.2.0.0/16");
  const inputs = {
    documents: `---\n# first\n${pool("a")}---\n${pool("b", "10.2.0.0/16")}...\n`,
    sequence: items,
    "typed list": `apiVersion: projectcalico.org/v3\nkind: IPPoolList\nitems:\n${items}`,
    "items without kind":
      "apiVersion: projectcalico.org/v3\nkind: IPPoolList\nitems:\n- metadata: {name: a}\n  spec: {cidr: 10.1.0.0/16}\n- metadata: {name: b}\n  spec: {cidr: 10.2.0.0/16}\n",
    json: JSON.stringify(
      ["a", "b"].map((name, i) => ({
        apiVersion: "projectcalico.org/v3",
        kind: "IPPool",
        metadata: { name },
        spec: { cidr: `10.${i}.0.0/16` },
      })),
    ),
    anchors: `- &a\n  ${pool("a").trim().replaceAll("\n", "\n  ")}\n- {<<: *a, metadata: {name: b}, spec: {cidr: 10.2.0.0/16}}\n`,
  };
  for (const [name, text] of Object.entries(inputs)) {
    using line = new CommandLine();
    expect([name, await line.pipe(text, "create", "-f", "-")]).toEqual([
      name,
      { code: 0, out: "Successfully created 2 'IPPool' resource(s)\n", err: "" },
    ]);
  }
});

test("TC-C12 directories: YAML and JSON files by name, subdirectories only with -R", async () => {
  using line = new CommandLine();
  line.file(
    "d/2.JSON",
    JSON.stringify({ apiVersion: "projectcalico.org/v3", kind: "GlobalNetworkSet", metadata: { name: "j" }, spec: {} }),
  );
  line.file("d/1.yaml", networkSet("y"));
  line.file("d/3.txt", "not: read");
  line.file("d/sub/4.YML", networkSet("s"));
  const folder = `${line.folder}/d`;
  expect((await line.run("validate", "-f", folder)).out).toBe(
    "Successfully validated 2 'GlobalNetworkSet' resource(s)\n",
  );
  expect((await line.run("validate", "-f", folder, "-R")).out).toBe(
    "Successfully validated 3 'GlobalNetworkSet' resource(s)\n",
  );
  expect((await line.run("validate", "-f", `${line.folder}/nope`)).err).toContain("nope: no such file or directory");
});

test("TC-C13 an input without resources is an error unless --skip-empty is set", async () => {
  using line = new CommandLine();
  for (const [name, text] of Object.entries({
    empty: "",
    comment: "# nothing\n",
    separators: "---\n---\n",
    null: "null\n",
  })) {
    const file = line.file(`${name}.yaml`, text);
    expect(await line.run("create", "-f", file)).toEqual({
      code: 1,
      out: "",
      err: `No resources specified in file ${file}\n`,
    });
    expect(await line.run("create", "-f", file, "--skip-empty")).toEqual({
      code: 0,
      out: "No resources specified\n",
      err: "",
    });
  }
  line.file("d/x.txt", "a");
  expect((await line.run("create", "-f", `${line.folder}/d`)).code).toBe(1);
  expect((await line.run("create", "-f", `${line.folder}/d`, "--skip-empty")).out).toBe("No resources specified\n");
  line.file("d/1.yaml", networkSet("a"));
  line.file("d/2.yaml", "");
  expect((await line.run("create", "-f", `${line.folder}/d`)).err).toBe(
    `No resources specified in file ${line.folder}/d/2.yaml\n`,
  );
  expect((await line.run("create", "-f", `${line.folder}/d`, "--skip-empty")).code).toBe(0);
  const nothing = line.file("nothing.yaml", "");
  expect(await line.run("get", "-f", nothing, "--skip-empty")).toEqual({ code: 0, out: "", err: "" });
});

const peer = (nodeSelector: string): string =>
  `apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: rr}\nspec:\n  nodeSelector: ${nodeSelector}\n  peerSelector: all()\n`;

test("a selector that begins with ! and has no quotes is read as written, with a warning", async () => {
  for (const [written, line] of [
    [peer("!has(route-reflector)"), 5],
    [peer("!has(route-reflector) # clients only"), 5],
    [`# peers\n---\n${peer("!has(route-reflector)")}`, 7],
    [peer("x").replace(/spec:[^]*$/, "spec: {nodeSelector: !has(route-reflector), peerSelector: all()}\n"), 4],
  ] as const) {
    using command = new CommandLine();
    expect(await command.pipe(written, "apply", "-f", "-")).toEqual({
      code: 0,
      out: "Successfully applied 1 'BGPPeer' resource(s)\n",
      err: `Warning: standard input: document 1, line ${line}: read !has(route-reflector) as text; in YAML a value that begins with ! must be quoted: '!has(route-reflector)'\n`,
    });
    expect((await command.stored("BGPPeer"))[0]?.spec).toMatchObject({ nodeSelector: "!has(route-reflector)" });
  }
});

test("a selector that begins with ! and is quoted is read without a warning", async () => {
  using line = new CommandLine();
  expect(await line.pipe(peer("'!has(route-reflector)'"), "apply", "-f", "-")).toMatchObject({ code: 0, err: "" });
});

test("the commands that read a directory also warn about an unquoted !", async () => {
  using line = new CommandLine();
  const node =
    "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\nspec: {bgp: {ipv4Address: 10.0.0.1/24}}\n";
  line.file("d/1.yaml", `${node}---\n${peer("!has(route-reflector)")}`);
  const from = `--from=${line.folder}/d`;
  const warning = `Warning: ${line.folder}/d/1.yaml: document 2, line 10: read !has(route-reflector) as text`;
  for (const args of [
    ["doctor", from],
    ["bgp", "plan", "n1", from],
    ["explain", "10.0.0.1", "10.0.0.2", from],
  ])
    expect((await line.run(...args)).err).toContain(warning);
});

test("a ! that YAML drops gives a warning, because dropping it negates a selector", async () => {
  using line = new CommandLine();
  expect(await line.pipe(peer("! has(route-reflector)"), "apply", "-f", "-")).toMatchObject({
    code: 0,
    err: "Warning: standard input: document 1, line 5: YAML drops the ! before has(route-reflector); quote the value to keep it\n",
  });
});

const good = networkSet("good");
const bad: { name: string; text: string | Uint8Array; want: RegExp }[] = [
  {
    name: "an unknown field",
    text: `${good}---\n${pool("a")}  foo: 1\n`,
    want: /document 2, line 14: spec\.foo: unknown field/,
  },
  {
    name: "a field in the wrong place",
    text: pool("a").replace("spec:", "natOutgoing: true\nspec:"),
    want: /line 5: natOutgoing: unknown field/,
  },
  {
    name: "a wrong type",
    text: good.replace("[10.0.0.1/32]", "10.0.0.0/8"),
    want: /document 1, line 6: spec\.nets: want a list \(is "10.0.0.0\/8"\)/,
  },
  {
    name: "text for a number",
    text: pool("a", "10.1.0.0/16", "  blockSize: many\n"),
    want: /line 7: spec\.blockSize: want/,
  },
  {
    name: "more digits than a number can represent",
    text: pool("a", "10.1.0.0/16", "  blockSize: 18446744073709551616\n"),
    want: /spec\.blockSize: want .*18446744073709551616/,
  },
  {
    name: "a duplicate key",
    text: pool("a", "10.1.0.0/16", "  cidr: 10.9.0.0/16\n"),
    want: /line 7: key "cidr" is given twice, first on line 6/,
  },
  {
    name: "a duplicate merge key",
    text: pool("a").replace("  cidr: 10.1.0.0/16", "  <<: {cidr: 10.1.0.0/16}\n  <<: {cidr: 10.2.0.0/16}"),
    want: /line 7: key "<<" is given twice, first on line 6/,
  },
  {
    name: "a number that is too large",
    text: pool("a", "10.1.0.0/16", "  blockSize: 1e400\n"),
    want: /line 7: spec\.blockSize: want a whole number from 0 to 128 \(is "1e400"\)/,
  },
  {
    name: "a name with a line break",
    text: good.replace("name: good", String.raw`name: "a\nb\0c\x7f"`),
    want: /line 4: metadata\.name = 'a\\nb\\u0000c\\u007f' \(want a lower-case DNS name/,
  },
  {
    name: "a selector of several lines",
    text: `apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: a}\nspec:\n  selector: |\n    a == "b" &&\n    c == "d"\n`,
    want: /line 5: spec\.selector = 'a == "b" &&\\nc == "d"\\n' \(is not a selector: .*at character 12\)/,
  },
  {
    name: "a namespace that is a path",
    text: `apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  name: a\n  namespace: x/../y\nspec: {}\n`,
    want: /line 5: metadata\.namespace = 'x\/\.\.\/y' \(contains a \/, which is not allowed in names\)/,
  },
  { name: "invalid YAML", text: `${good}---\nkind: [\n---\n${pool("b")}`, want: /document 2, line \d+: not YAML: / },
  {
    name: "a tab",
    text: "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n\tname: x\n",
    want: /line 4: not YAML: /,
  },
  {
    name: "a tag with a line break",
    text: "!<\n>",
    want: /^[^\n]*line 2: not YAML: tag name cannot contain such characters\n$/,
  },
  {
    name: "a selector with ! and more words, without quotes",
    text: peer("!has(a) && b == 'c'"),
    want: /line 5: !has\(a\) is not a YAML tag that calicoctl reads; quote a value that begins with !/,
  },
  {
    name: "two negations without quotes",
    text: peer("!has(a) && !has(b)"),
    want: /line 5: not YAML: duplication of a tag property; quote a value that begins with !/,
  },
  {
    name: "a local tag on quoted text",
    text: peer('!has(a) ""'),
    want: /line 5: !has\(a\) is not a YAML tag that calicoctl reads/,
  },
  { name: "a single word", text: "hello\n", want: /document 1, line 1: want a resource/ },
  {
    name: "another version",
    text: pool("a").replace("projectcalico.org/v3", "v1"),
    want: /Unknown resource type \(IPPool\) and\/or version \(v1\)/,
  },
  {
    name: "no version",
    text: pool("a").replace(/^.*\n/, ""),
    want: /Unknown resource type \(IPPool\) and\/or version \(\)/,
  },
  {
    name: "a list in a list",
    text: JSON.stringify([[{ apiVersion: "projectcalico.org/v3", kind: "GlobalNetworkSet", metadata: { name: "a" } }]]),
    want: /line 1: want a resource in the list/,
  },
  {
    name: "another kind in a typed list",
    text: JSON.stringify({
      apiVersion: "projectcalico.org/v3",
      kind: "IPPoolList",
      items: [{ apiVersion: "projectcalico.org/v3", kind: "GlobalNetworkSet", metadata: { name: "a" } }],
    }),
    want: /want a resource of kind IPPool, not GlobalNetworkSet/,
  },
  {
    name: "a Kubernetes List",
    text: "apiVersion: v1\nkind: List\nitems: []\n",
    want: /Unknown resource type \(List\)/,
  },
  {
    name: "truncated UTF-8",
    text: Buffer.from(`${good}# caf\u00e9`).subarray(0, -1),
    want: /standard input: document 1, line 7: byte \d+ is not valid UTF-8/,
  },
  {
    name: "truncated UTF-8 in a later document",
    text: Buffer.from(`${good}---\n# caf\u00e9`).subarray(0, -1),
    want: /standard input: document 2, line 8: byte \d+ is not valid UTF-8/,
  },
  {
    name: "an order that a number cannot represent exactly",
    text: `apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\nspec: {order: 9007199254740993}\n`,
    want: /line 4: spec\.order: want an integer of at most 9007199254740991 \(is "9007199254740993"\)/,
  },
  {
    name: "a misspelled kind",
    text: good.replace("GlobalNetworkSet", "globalnetworksets"),
    want: /document 1, line 2: kind: Unknown resource type \(globalnetworksets\) .*: did you mean GlobalNetworkSet\?/,
  },
  {
    name: "a duration without a unit",
    text: "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec:\n  routeRefreshInterval: 0\n",
    want: /line 5: spec\.routeRefreshInterval: want a duration such as 90s|line 5: spec\.routeRefreshInterval = '0' \(want a duration/,
  },
  {
    name: "an alias without an anchor",
    text: "a: *b\n",
    want: /line 1: (not YAML: .*|alias b has no anchor before it)/,
  },
  {
    name: "aliases that expand exponentially",
    text: `a: &a [x,x,x,x,x,x,x,x,x]\n${"bcdefghijk"
      .split("")
      .map((c, i) => `${c}: &${c} [${Array(9).fill(`*${"abcdefghijk"[i]}`).join(",")}]\n`)
      .join("")}`,
    want: /aliases expand to more than 2000000 values/,
  },
];
for (const { name, text, want } of bad)
  test(`bad input: ${name} gives one line with the place, and nothing is written`, async () => {
    using line = new CommandLine();
    const answer = await line.pipe(text, "apply", "-f", "-");
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toMatch(want);
    expect(answer.err.trimEnd()).not.toContain("\n");
    expect(await line.stored("GlobalNetworkSet")).toEqual([]);
  });

test("byte order marks in concatenated files are not part of a key", async () => {
  using line = new CommandLine();
  const text = `\uFEFF${networkSet("a")}---\n\uFEFF${networkSet("b")}--- # next\r\n\uFEFF${networkSet("c")}`;
  expect(await line.pipe(text, "apply", "-f", "-")).toMatchObject({ code: 0, err: "" });
  expect((await line.stored("GlobalNetworkSet")).map(({ metadata }) => metadata.name)).toEqual(["a", "b", "c"]);
});

test("bad input: a value that the schema rejects is reported with its line", async () => {
  using line = new CommandLine();
  const file = line.file("f.yaml", `${good}---\n${pool("a", "10.3.0.1/16")}`);
  const answer = await line.run("apply", "-f", file);
  expect(answer.err).toContain(`${file}: document 2, line 13: spec.cidr = '10.3.0.1/16' (`);
  expect(answer.err.trimEnd()).not.toContain("\n");
});

test("bad input: many faults in a document are reported in one short line", async () => {
  using line = new CommandLine();
  const nets = Array.from({ length: 100_000 }, (_, i) => `  - 10.0.0.${i}/99\n`).join("");
  const answer = await line.pipe(good.replace("  nets: [10.0.0.1/32]\n", `  nets:\n${nets}`), "apply", "-f", "-");
  expect(answer.err).toMatch(/document 1, line 7: spec\.nets\[0\] = '10\.0\.0\.0\/99'/);
  expect(answer.err).toContain("; and 99990 more");
  expect(answer.err.length).toBeLessThan(2000);
});

test("bad input: the error for overlapping pools names both", async () => {
  using line = new CommandLine();
  await line.given(pool("old", "10.0.0.0/8"));
  expect((await line.pipe(pool("new"), "apply", "-f", "-")).err).toContain(
    "IPPool(new) CIDR overlaps with IPPool(old) CIDR 10.0.0.0/8",
  );
});

test("bad input: a document of more than 10 MiB is rejected, a smaller one is read", async () => {
  using line = new CommandLine();
  const nets = (count: number) =>
    `apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: big}\nspec:\n  nets:\n${"  - 10.11.12.13/32\n".repeat(count)}`;
  const large = await line.pipe(`${good}---\n${nets(600_000)}`, "validate", "-f", "-");
  expect(large.err).toMatch(
    /standard input: document 2, line 7: the document has \d+ bytes, more than the limit of 10485760/,
  );
  expect((await line.pipe(nets(100_000), "validate", "-f", "-")).code).toBe(0);
});

test("unquoted values in text fields are text: n, on, 1.10, true, 0x1f, 007", async () => {
  using line = new CommandLine();
  const labels =
    "  labels: {a: n, b: on, c: 1.10, d: true, e: 0x1f, f: 007, g: 12345678901234567890, h: 1e3, i: '', j: }\n";
  await line.given(
    networkSet("a", labels),
    "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: h}\nspec: {node: n, interfaceName: on}",
  );
  expect((await line.stored("GlobalNetworkSet"))[0]?.metadata.labels).toEqual({
    a: "n",
    b: "on",
    c: "1.10",
    d: "true",
    e: "0x1f",
    f: "007",
    g: "12345678901234567890",
    h: "1e3",
    i: "",
    j: "",
  });
  expect((await line.stored("HostEndpoint"))[0]?.spec).toEqual({ node: "n", interfaceName: "on" });
});

test("unquoted yes and on are true in boolean fields, quoted ones are not", async () => {
  using line = new CommandLine();
  await line.given(pool("a", "10.1.0.0/16", "  natOutgoing: yes\n  disabled: off\n"));
  expect((await line.stored("IPPool"))[0]?.spec).toMatchObject({ natOutgoing: true });
  expect((await line.pipe(pool("b", "10.2.0.0/16", "  natOutgoing: 'yes'\n"), "create", "-f", "-")).code).toBe(1);
});

test("resolve: the core schema of YAML 1.2, without loss of digits", () => {
  const cases: [string, ReturnType<typeof resolve>][] = [
    ["", null],
    ["~", null],
    ["null", null],
    ["true", true],
    ["FALSE", false],
    ["yes", "yes"],
    ["n", "n"],
    ["12", 12],
    ["-7", -7],
    ["0o17", 15],
    ["0x1F", 31],
    ["017", 15],
    ["-010", -8],
    ["00", 0],
    ["08", "08"],
    ["0b11", 3],
    ["0x_1F", 31],
    ["_1", "_1"],
    ["1.5", 1.5],
    ["1e3", 1000],
    [".5", 0.5],
    ["9007199254740993", 9007199254740993n],
    ["18446744073709551615", 18446744073709551615n],
    ["1_000", 1000],
    ["0b1111111111111111111111111111111111111111111111111111111", 36028797018963967n],
    ["10.0.0.1", "10.0.0.1"],
    ["2026-01-01", "2026-01-01"],
    [".inf", ".inf"],
    ["12:30:45", "12:30:45"],
  ];
  for (const [text, want] of cases) expect([text, resolve(text)]).toEqual([text, want]);
});

test("a number with a leading zero is octal as in Calico, and text is kept as written", async () => {
  using line = new CommandLine();
  const peer =
    "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: '010', labels: {a: 010, b: 0b11, c: 1_000}}\nspec: {peerIP: 10.0.0.1, asNumber: 010}\n";
  await line.given(peer);
  const [stored] = await line.stored("BGPPeer");
  expect(stored?.metadata.labels).toEqual({ a: "010", b: "0b11", c: "1_000" });
  expect(stored?.spec).toMatchObject({ asNumber: 8 });
});

test("a key named __proto__ does not change the prototype", () => {
  const [document] = parseYaml("__proto__: {polluted: true}\na: 1\n", "-", () => {});
  const value = toValue(document!.root!) as Record<string, unknown>;
  expect(Object.keys(value)).toEqual(["__proto__", "a"]);
  expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
});

test("fields are found by the paths in faults, also if a key contains dots", () => {
  const text = "metadata:\n  labels:\n    a.b/c: x\nspec:\n  ingress:\n  - action: Allow\n  - action: Deny\n";
  const root = parseYaml(text, "-", () => {})[0]!.root!;
  const lineOf = (field: string) => text.slice(0, offsetOfField(root, field)).split("\n").length;
  expect(lineOf("metadata.labels.a.b/c")).toBe(3);
  expect(lineOf("spec.ingress[1].action")).toBe(7);
  expect(lineOf("spec.ingress[1].missing.field")).toBe(7);
  expect(lineOf("spec.selector")).toBe(4);
});

test("any text is parsed to documents or throws an InputFault", () =>
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(..."a:- \n\t{}[]&*!|>'\"%#,?0~<=\\"), maxLength: 60 }), (text) => {
      try {
        for (const { root } of parseYaml(text, "-", () => {})) if (root !== undefined) toValue(root);
      } catch (error) {
        expect(error).toBeInstanceOf(InputFault);
        expect((error as Error).message).not.toContain("\n");
      }
    }),
    { numRuns: 2000 },
  ));
