import { linkSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, describe, expect, test } from "bun:test";
import type { DatastoreConfig } from "../../datastore/index.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { agentScope, type Candidate, notForServices } from "./scope.ts";

const folder = mkdtempSync(join(tmpdir(), "cni-scope-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text = ""): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

/** This process is the plugin, or one that cannot be seen. */
const asked = (config: object, pid: number | undefined = process.pid): Candidate =>
  ({ request: { command: "ADD" }, conf: parseNetConf({ name: "n", ...config }), pid }) as Candidate;
const unseen = (config: object): Candidate => ({ ...asked(config), pid: undefined });

test("what is done by programs of the host is the plugin's", () => {
  expect(notForServices(asked({ ipam: { type: "host-local" } }))).toContain("host-local");
  expect(notForServices(asked({ ipam: { type: "calico-ipam" } }))).toBeUndefined();
});

describe("the agent's service answers", () => {
  const etcd: DatastoreConfig = { type: "etcdv3", endpoints: ["http://a:2379", "http://b:2379/"] };
  const cases: [name: string, config: object, isOurs: boolean][] = [
    ["who names no datastore", {}, true],
    ["who names its kind only", { datastore_type: "etcdv3" }, true],
    [
      "who names one of its endpoints",
      { datastore_type: "etcdv3", etcd_endpoints: "http://c:2379, http://B:2379" },
      true,
    ],
    ["not who names others", { datastore_type: "etcdv3", etcd_endpoints: "http://c:2379" }, false],
    ["not who names them without saying of which kind", { etcd_endpoints: "http://c:2379" }, false],
    ["not who names one of them with TLS", { etcd_endpoints: "https://a:2379" }, false],
    ["not who finds them otherwise", { datastore_type: "etcdv3", etcd_discovery_srv: "example.org" }, false],
    ["not who is in a file", { datastore_type: "sqlite" }, false],
    ["who has certificates of other names", { etcd_endpoints: "http://a:2379", etcd_ca_cert_file: "/x" }, true],
  ];
  for (const [name, config, isOurs] of cases)
    test(`on etcd ${name}`, () => {
      const scope = agentScope("etcdv3", etcd);
      expect([scope(asked(config)), scope(unseen(config))].map((why) => why === undefined)).toEqual([isOurs, isOurs]);
    });

  test("nobody who names an address of another kind, also without saying of which", () => {
    const sqlite: DatastoreConfig = { type: "sqlite", path: file("kind.db"), isFallback: false };
    const kubernetes = { type: "kubernetes" } as DatastoreConfig;
    const named = [
      { etcd_endpoints: "http://a:2379" },
      { etcd_authority: "a:2379" },
      { etcd_discovery_srv: "example.org" },
      { sqlite_path: sqlite.path },
      { kubernetes: { kubeconfig: "/etc/cni/net.d/calico-kubeconfig" } },
    ];
    const served = (config: DatastoreConfig) =>
      named.map((conf) => agentScope(config.type, config)(asked(conf)) === undefined);
    expect(served(kubernetes)).toEqual([false, false, false, false, true]);
    expect(served(sqlite)).toEqual([false, false, false, true, true]);
    expect(served(etcd)).toEqual([true, true, false, false, true]);
  });

  test("on SQLite a path is one of the plugin's folder, and must be there", () => {
    const path = file("relative.db");
    const near = relative(process.cwd(), path);
    const scope = agentScope("sqlite", { type: "sqlite", path, isFallback: false });
    expect(scope(asked({ sqlite_path: near }))).toBeUndefined();
    expect(scope(unseen({ sqlite_path: near }))).toContain("another file");
    const ofFolder = agentScope("sqlite", { type: "sqlite", path: near, isFallback: false });
    expect(ofFolder(asked({ sqlite_path: near }))).toBeUndefined();
    expect(ofFolder(unseen({ sqlite_path: near }))).toContain("another file");
  });

  test("on SQLite who names its file, by whatever name, as long as it is that file", () => {
    const path = file("agent.db");
    const [other, same] = [file("other.db"), join(folder, "same.db")];
    linkSync(path, same);
    const scope = agentScope("sqlite", { type: "sqlite", path, isFallback: false });
    const named = [undefined, path, same, other, join(folder, "none.db")].map((sqlite_path) => ({ sqlite_path }));
    expect(named.map((config) => scope(asked(config)) === undefined)).toEqual([true, true, true, false, false]);
    expect(named.map((config) => scope(unseen(config)) === undefined)).toEqual([true, true, false, false, false]);
    renameSync(other, path);
    expect(named.map((config) => scope(asked(config)) === undefined)).toEqual(named.map(() => false));
  });

  test("who is of a process that is gone", () =>
    expect(agentScope("etcdv3", etcd)(asked({}, 1 << 22))).toBeUndefined());
});
