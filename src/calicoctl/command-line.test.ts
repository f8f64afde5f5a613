// Tests the parts of calicoctl that all commands share: names, help, configuration and version checks.
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command, Flag, FlagTable } from "../lib/command-line/command.ts";
import { HELP, parse } from "../lib/command-line/parse.ts";
import { BUILD, VERSION_ANNOTATION } from "../lib/process/build.ts";
import { API_VERSION } from "../model/index.ts";
import { loadConfig } from "./resources/client.ts";
import { programName, runCommandLine } from "./index.ts";
import { type DatastoreCall, GLOBAL_FLAGS } from "./table/flags.ts";
import { ROOT } from "./table/index.ts";
import { CommandLine, callWith, networkSet, silentIo } from "./testing/command-line.ts";

const clusterInformation = (spec: object) =>
  ({
    apiVersion: API_VERSION,
    kind: "ClusterInformation",
    metadata: { name: "default", uid: "u", creationTimestamp: "2026-01-01T00:00:00Z" },
    spec,
  }) as const;

test("TC-C01 a configuration file replaces the environment, which is used without one", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  const config = (spec: string) =>
    line.file("c.cfg", `apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n${spec}`);
  const elsewhere = config(`  datastoreType: sqlite\n  sqlitePath: ${line.file("other.db", "")}\n`);
  expect((await line.run("get", "gnetsets")).out).toContain("a");
  expect((await line.run("get", "gnetsets", "-c", elsewhere)).out).toBe("NAME   \n\n");
  const early: [string, string][] = [
    [`${line.folder}/nope.cfg`, `Error reading config file: ${line.folder}/nope.cfg\n`],
    [
      line.file("kind.cfg", "apiVersion: projectcalico.org/v3\nkind: Foo\nspec: {}\n"),
      "expected kind 'CalicoAPIConfig', got 'Foo'",
    ],
    [line.file("version.cfg", "apiVersion: v1\nkind: CalicoAPIConfig\nspec: {}\n"), "unknown APIVersion 'v1'"],
    [line.file("field.cfg", "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {foo: 1}\n"), "foo"],
    [
      line.file("type.cfg", "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {datastoreType: foo}\n"),
      "unknown datastore type: foo",
    ],
  ];
  for (const [file, want] of early) {
    const answer = await line.run("get", "gnetsets", "--config", file);
    expect(answer).toMatchObject({ code: 1, err: "" }); // as in Calico, on standard output
    expect(answer.out).toContain(want);
  }
  line.env["DATASTORE_TYPE"] = "etcdv3";
  expect(await line.run("get", "gnetsets")).toEqual({
    code: 1,
    out: "Failed to create Calico API client: no etcd endpoints specified\n",
    err: "",
  });
  line.env["CALICO_DATASTORE_TYPE"] = "sqlite";
  expect((await line.run("get", "gnetsets")).out).toContain("a");
});

test("errors for misspelled words suggest the correct one", async () => {
  using line = new CommandLine();
  const errorOf = async (...words: string[]) => (await line.run(...words)).err;
  expect(await errorOf("gte", "nodes")).toBe(
    'calicoctl: unknown command "gte"\nDid you mean get?\nRun "calicoctl --help" for the list of commands.\n',
  );
  expect(await errorOf("get", "ippol")).toContain("resource type 'ippol' is not supported; did you mean ippool?");
  expect(await errorOf("get", "nodess")).toContain("did you mean node?");
  expect(await errorOf("get", "foos")).toContain("; supported types are BGPConfiguration,");
  expect(await errorOf("get", "nodes", "--ouput=json")).toBe(
    'calicoctl get: unknown flag --ouput\nDid you mean --output?\nRun "calicoctl get --help" for its arguments and flags.\n',
  );
  const policy =
    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}}\n";
  expect(await errorOf("apply", "-f", line.file("k.yaml", policy))).toContain("apply it with kubectl, or convert it");
});

/** Command lines with wrong usage, and the first lines that are printed on standard error. */
const WRONG_USAGE: readonly (readonly [readonly string[], ...(readonly string[])])[] = [
  [["foo"], 'calicoctl: unknown command "foo"', 'Run "calicoctl --help" for the list of commands.'],
  [["gte", "nodes"], 'calicoctl: unknown command "gte"', "Did you mean get?"],
  [["node", "foo"], 'calicoctl node: unknown command "foo"', "Commands: run, status, diags, checksystem"],
  [["node", "stauts"], 'calicoctl node: unknown command "stauts"', "Did you mean status?"],
  [
    ["node", "foo", "--config", "x"],
    'calicoctl node: unknown command "foo"',
    "Commands: run, status, diags, checksystem",
  ],
  [["datastore", "export"], 'calicoctl datastore: unknown command "export"', "Did you mean datastore migrate export?"],
  [
    ["datastore", "migrate", "foo"],
    'calicoctl datastore migrate: unknown command "foo"',
    "Commands: export, import, lock, unlock",
  ],
  [["bgp", "foo"], 'calicoctl bgp: unknown command "foo"', "Commands: plan"],
  [["release"], 'calicoctl: unknown command "release"', "Did you mean ipam release?"],
  [["ipam", "release"], "calicoctl ipam release: --ip or --from-report is required"],
  [
    ["ipam", "release", "--ip=10.0.0.1", "--from-report=r"],
    "calicoctl ipam release: use --ip or --from-report, not both",
  ],
  [["ipam", "check", "now"], 'calicoctl ipam check: unexpected argument "now"', "Usage:"],
  [["ipam", "check", "--fixx"], "calicoctl ipam check: unknown flag --fixx", "Did you mean --fix?"],
  [["ipam", "split"], "calicoctl ipam split: NUMBER is missing"],
  [["get"], "calicoctl get: KIND or --filename is missing", "Usage:"],
  [
    ["get", "nodes", "--nope"],
    "calicoctl get: unknown flag --nope",
    'Run "calicoctl get --help" for its arguments and flags.',
  ],
  [["create"], "calicoctl create: --filename is missing"],
  [["version", "--output=xml"], "calicoctl version: --output xml: want text or json"],
  [["doctor", "now"], 'calicoctl doctor: unexpected argument "now"'],
  [["--foo"], "calicoctl: unknown flag --foo", 'Run "calicoctl --help" for the list of commands.'],
  [["--contxt=east"], "calicoctl: unknown flag --contxt", "Did you mean --context?"],
  [["-x"], "calicoctl: unknown flag -x"],
  [["node", "--foo"], "calicoctl node: unknown flag --foo"],
  [["ipam", "--foo"], "calicoctl ipam: unknown flag --foo"],
  [["datastore", "migrate", "--foo"], "calicoctl datastore migrate: unknown flag --foo"],
  [["--foo", "node"], "calicoctl node: unknown flag --foo"],
  [["-l"], "calicoctl: -l needs a value"],
  [["node", "--context"], "calicoctl node: --context needs a value"],
  [
    ["get", "nodes", "-o", "bogus"],
    "calicoctl get: unrecognized output format 'bogus'; supported formats are ps, wide, custom-columns=, yaml, json, go-template=, go-template-file=",
  ],
  [["bgp", "plan", "n1", "-o", "bogus"], "calicoctl bgp plan: -o bogus: want ps, json or bird"],
  [["version", "--poll=x"], "calicoctl version: invalid --poll x: want a duration such as 5s or 1m30s"],
  [["version", "--client", "--poll=x"], "calicoctl version: invalid --poll x: want a duration such as 5s or 1m30s"],
  [
    ["cluster", "diags", "--since=x"],
    "calicoctl cluster diags: invalid --since x: want a number and s, m or h, such as 30m",
  ],
  [["cluster", "diags", "--max-logs=0"], "calicoctl cluster diags: --max-logs 0: want a number from 1 on"],
];

/** Values for which Calico exits with 1, so that scripts may depend on it. */
const EXIT_CODE_OF_CALICO: readonly (readonly string[])[] = [
  ["-l", "bogus", "get", "nodes"],
  ["-l", "bogus"],
  ["delete", "ippool"],
  ["ipam", "configure", "--strictaffinity=maybe"],
  ["convert", "-f", "-", "-o", "bogus"],
  ["get", "nodes", "-o", "custom-columns="],
];

for (const args of EXIT_CODE_OF_CALICO)
  test(`wrong usage exits with 1 as in Calico: ${args.join(" ")}`, async () => {
    using line = new CommandLine();
    expect((await line.run(...args)).code).toBe(1);
  });

for (const [args, ...first] of WRONG_USAGE)
  test(`wrong usage exits with 2: ${args.join(" ")}`, async () => {
    using line = new CommandLine();
    const answer = await line.run(...args);
    const lines = answer.err.trimEnd().split("\n");
    expect({ code: answer.code, out: answer.out, first: lines.slice(0, first.length) }).toEqual({
      code: 2,
      out: "",
      first,
    });
    expect(lines.length).toBeLessThan(9);
    expect(lines.at(-1)).toMatch(/^Run "calicoctl.* --help" for/);
  });

test("a group without a command prints its help", async () => {
  using line = new CommandLine();
  for (const args of [
    ["node"],
    ["datastore", "migrate"],
    ["node", "foo", "--help"],
    ["node", "-h"],
    ["-l", "debug"],
    ["--config", "x", "node"],
  ])
    expect(await line.run(...args)).toMatchObject({ code: 0, err: "" });
});

test("a flag of a command may precede its name", async () => {
  using line = new CommandLine();
  expect((await line.run("--config", `${line.folder}/nope.cfg`, "get", "nodes")).out).toContain("nope.cfg");
});

/** All commands that only read, or only change existing data. */
const NEEDS_DATASTORE: readonly (readonly string[])[] = [
  ["get", "nodes"],
  ["get", "node", "n1", "-o", "yaml"],
  ["get", "-f", "SET"],
  ["replace", "-f", "SET"],
  ["delete", "ippool", "p"],
  ["delete", "ippool", "p", "--skip-not-exists"],
  ["patch", "node", "n1", "-p", "{}"],
  ["label", "node", "n1", "a=b"],
  ["version"],
  ["explain", "10.0.0.1", "10.0.0.2"],
  ["doctor"],
  ["doctor", "--no-host"],
  ["bgp", "plan", "n1"],
  ["ipam", "show"],
  ["ipam", "check"],
  ["ipam", "release", "--ip=10.0.0.1"],
  ["ipam", "split", "2", "--name=p"],
  ["datastore", "migrate", "lock"],
  ["datastore", "migrate", "unlock"],
  ["datastore", "migrate-policy-names"],
];

for (const args of NEEDS_DATASTORE)
  test(`${args.join(" ")}: a datastore that does not exist is reported, not created`, async () => {
    using line = new CommandLine();
    const folder = join(line.folder, "missing");
    line.env["CALICO_SQLITE_PATH"] = join(folder, "x.db");
    const set = line.file("set.yaml", networkSet("a"));
    const answer = await line.run(...args.map((word) => (word === "SET" ? set : word)));
    expect(answer.code).toBe(1);
    expect(answer.err).toContain(`datastore ${folder}/x.db is unavailable: there is no such file`);
    expect(existsSync(folder)).toBe(false);
  });

test("create, apply and ipam configure create a datastore that does not exist, with a notice on a terminal", async () => {
  for (const command of ["create", "apply", "ipam"]) {
    using line = new CommandLine();
    line.isTerminal = true;
    const path = join(line.folder, "new/x.db");
    line.env["CALICO_SQLITE_PATH"] = path;
    const args = command === "ipam" ? ["ipam", "configure", "--strictaffinity=true"] : [command, "-f", "-"];
    expect(await line.pipe(networkSet("a"), ...args)).toMatchObject({
      code: 0,
      err: `Creating a new datastore at ${path}\n`,
    });
    expect((await line.run("get", "nodes")).err).toBe("");
  }
});

test("get prints an empty table for a datastore that exists and is empty", async () => {
  using line = new CommandLine();
  expect(await line.run("get", "nodes")).toEqual({ code: 0, out: "NAME   \n\n", err: "" });
});

test("version as JSON", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  const shown = JSON.parse((await line.run("version", "-o", "json")).out) as object;
  expect(shown).toEqual({
    ...{ clientVersion: BUILD.version, gitCommit: BUILD.commit },
    ...{ clusterVersion: null, clusterType: null },
  });
  expect((await line.run("version", "-o", "yaml")).err).toContain("-o yaml: want text or json");
});

test("a datastore that does not answer is reported, and the command fails", async () => {
  using line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "etcdv3";
  line.env["ETCD_ENDPOINTS"] = "http://127.0.0.1:1";
  const started = performance.now();
  const answer = await line.run("get", "gnetsets");
  expect(answer).toMatchObject({ code: 1, out: "" });
  expect(answer.err).toContain("127.0.0.1:1");
  expect(performance.now() - started).toBeLessThan(3000);
});

test("without any setting the embedded datastore is used, with a notice on a terminal", async () => {
  const call = callWith({ HOME: "/nonexistent" });
  expect(await loadConfig({ ...call, io: { ...call.io, isTerminal: () => true } })).toMatchObject({
    type: "sqlite",
    isFallback: true,
  });
});

test("TC-C02 as a kubectl plugin, the program is named kubectl-calico in messages", async () => {
  expect(programName("/usr/local/bin/kubectl-calico")).toBe("kubectl-calico");
  expect(programName("kubectl-foo")).toBe("kubectl-calico");
  expect(programName("/opt/calicoctl")).toBe("calicoctl");
  let out = "";
  const io = {
    env: {},
    out: (text: string) => void (out += text),
    err: () => {},
    readStdin: () => new Uint8Array(),
    isTerminal: () => false,
  };
  expect(await runCommandLine("kubectl-calico", ["get", "--help"], io)).toBe(0);
  expect(out).toContain("Usage:\n  kubectl-calico get ( (<KIND> [<NAME>...])");
});

test("TC-C24 a cluster of an unsupported version is an error unless it is allowed", async () => {
  using line = new CommandLine();
  await line.put(clusterInformation({ calicoVersion: "v3.20.0", datastoreReady: true }));
  for (const args of [
    ["get", "ippool"],
    ["apply", "-f", "-"],
    ["label", "node", "n", "a=b"],
    ["datastore", "migrate", "lock"],
  ]) {
    const answer = await line.pipe(networkSet("a"), ...args);
    expect(answer).toMatchObject({ code: 1, out: "" });
    expect(answer.err).toContain("Version mismatch.\nClient Version:   ");
    expect(answer.err).toContain("Cluster Version:  3.20.0\nThis program requires ");
    expect(answer.err).toContain(" Use --allow-version-mismatch to override.\n");
  }
  expect((await line.run("get", "ippool", "--allow-version-mismatch")).code).toBe(0);
  expect((await line.run("--allow-version-mismatch", "get", "ippool")).code).toBe(0);
  expect((await line.run("version")).code).toBe(0);
  expect((await line.pipe(networkSet("a"), "validate", "-f", "-")).code).toBe(0);
  const ours = BUILD.version.replace(/^v/, "").replace(/-.*/, "");
  for (const version of ["", ours, `v${ours}`, `v${ours}-dirty`, "v3.28.5", "v3.32.0"]) {
    await line.put(clusterInformation({ calicoVersion: version }));
    expect((await line.run("get", "ippool")).code).toBe(0);
  }
});

test("TC-C25 --context selects the context of the kubeconfig", async () => {
  using line = new CommandLine();
  line.env["DATASTORE_TYPE"] = "kubernetes";
  line.env["KUBECONFIG"] = line.file("config", "{}");
  const config = (...args: string[]) => {
    const parsed = parse(ROOT, args);
    if (parsed.type !== "call") throw new Error("no command");
    return loadConfig({ flags: parsed.values.flags as DatastoreCall["flags"], io: silentIo(line.env) });
  };
  expect(await config("get", "nodes")).toMatchObject({ type: "kubernetes", currentContext: undefined });
  expect(await config("get", "nodes", "--context", "east")).toMatchObject({ currentContext: "east" });
  expect(await config("--context=west", "get", "nodes")).toMatchObject({ currentContext: "west" });
});

test("TC-C44 version prints that of the program, that of the cluster, or why it is unknown", async () => {
  using line = new CommandLine();
  const ours = `Client Version:    ${BUILD.version}\nGit commit:        ${BUILD.commit}\n`;
  expect(await line.run("version", "--client")).toEqual({ code: 0, out: ours, err: "" });
  const path = line.env["CALICO_SQLITE_PATH"] ?? "";
  line.env["CALICO_SQLITE_PATH"] = join(line.folder, "missing.db");
  const none = await line.run("version");
  expect(none).toMatchObject({ code: 1, out: ours });
  expect(none.err).toContain("there is no such file");
  expect(existsSync(line.env["CALICO_SQLITE_PATH"])).toBeFalse();
  line.env["CALICO_SQLITE_PATH"] = path;
  const missing = await line.run("version");
  expect(missing).toMatchObject({ code: 1, out: ours });
  expect(missing.err).toBe(
    "Unable to retrieve Cluster Version or Type: resource does not exist: ClusterInformation(default)\n",
  );
  await line.put(clusterInformation({ calicoVersion: "v3.28.5", clusterType: "k8s,bgp" }));
  expect((await line.run("version")).out).toBe(`${ours}Cluster Version:   v3.28.5\nCluster Type:      k8s,bgp\n`);
  await line.put(clusterInformation({}));
  expect((await line.run("version")).out).toContain(
    "Cluster Version:   unknown (no calico-node has recorded its version)\n",
  );
  const recorded = { ...clusterInformation({}).metadata, annotations: { [VERSION_ANNOTATION]: "v0.1.0" } };
  await line.put({ ...clusterInformation({}), metadata: recorded });
  expect((await line.run("version")).out).toContain("Cluster Version:   v0.1.0\n");
  expect(JSON.parse((await line.run("version", "-o", "json")).out)).toMatchObject({ clusterVersion: "v0.1.0" });
  expect((await line.run("version", "--poll", "often")).err).toContain("want a duration such as 5s");
});

test("global flags may precede or follow the command; a wrong log level is reported on standard output", async () => {
  using line = new CommandLine();
  for (const args of [
    ["-l", "foo", "get", "ippool"],
    ["get", "ippool", "--log-level=foo"],
  ]) {
    const answer = await line.run(...args);
    expect(answer).toMatchObject({ code: 1, err: "" });
    expect(answer.out).toBe("Unknown log level: foo, expected one of: \npanic, fatal, error, warn, info, debug.\n");
  }
  for (const level of ["debug", "DEBUG", "warning"])
    expect((await line.run("-l", level, "get", "ippool")).code).toBe(0);
});

test("--version prints the name of the command for versions", async () => {
  using line = new CommandLine();
  expect(await line.run("--version")).toEqual({
    code: 0,
    out: "Run 'calicoctl version' to see version information.\n",
    err: "",
  });
});

test("the value of a short flag may follow =", async () => {
  using line = new CommandLine();
  await line.given(networkSet("a"));
  expect((await line.run("get", "gnetset", "-o=yaml")).out).toContain("kind: GlobalNetworkSetList");
  expect((await line.run("get", "gnetset", "-oyaml")).out).toContain("kind: GlobalNetworkSetList");
});

test("a long flag may be abbreviated if it is unambiguous", async () => {
  using line = new CommandLine();
  const file = line.file("f.yaml", networkSet("a"));
  expect((await line.run("create", `--file=${file}`)).code).toBe(0);
  expect((await line.run("get", "np", "--all-name")).code).toBe(0);
  expect((await line.run("create", "-f", file, "--skip-e")).err).toContain("unknown flag --skip-e");
});

test("help: every command prints it on standard output; groups list their commands", async () => {
  using line = new CommandLine();
  const visit = async (entry: Command, path: readonly string[]): Promise<void> => {
    const answer = await line.run(...path, "--help");
    expect(answer).toMatchObject({ code: 0, err: "" });
    expect(answer.out).toContain(`Usage:\n  calicoctl ${path.join(" ")}`.trimEnd());
    for (const child of entry.commands ?? []) {
      expect(answer.out).toContain(child.name);
      await visit(child, [...path, child.name]);
    }
    for (const [name, flag] of Object.entries<Flag>({ ...entry.flags, ...GLOBAL_FLAGS }))
      if (flag.isHidden !== true) expect(answer.out).toContain(`--${name}`);
  };
  await visit(ROOT, []);
  expect((await line.run()).code).toBe(0);
});

// The recordings of Calico are not part of this repository; this test uses them if they are next to the checkout.
const recorded = join(import.meta.dir, "../../../shared/golden/calicoctl/help/help.json");
if (!existsSync(recorded)) test.skip("recorded flags: ../shared/golden is not beside this checkout", () => {});
else
  test("all recorded flags of Calico's commands are supported, with their long and short names", () => {
    const { cases } = JSON.parse(readFileSync(recorded, "utf8")) as {
      cases: { command: string; [version: string]: unknown }[];
    };
    for (const recording of cases)
      for (const version of ["v3.28", "master"]) {
        const { flags, usage } = recording[version] as {
          usage: string[];
          flags: { short?: string; long: string; value?: string }[];
        };
        const path = recording.command.split(" ");
        const { command, path: found } = parse(ROOT, [...path, "--help"]);
        // A version without the command printed the help of its parent.
        if (command.commands !== undefined || !usage.join(" ").includes(path.at(-1) ?? "")) continue;
        expect(found.join(" ")).toBe(recording.command);
        const known: FlagTable = { ...HELP, ...command.flags, ...GLOBAL_FLAGS };
        for (const { short, long, value } of flags) {
          const flag = known[long.slice(2)];
          expect([recording.command, long, flag !== undefined]).toEqual([recording.command, long, true]);
          if (short !== undefined) expect([long, `-${flag?.short}`]).toEqual([long, short]);
          expect([long, flag?.type !== "switch"]).toEqual([long, value !== undefined]);
        }
      }
  });
