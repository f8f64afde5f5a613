import { linkSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, describe, expect, test } from "bun:test";
import type { DatastoreConfig } from "../../datastore/index.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { agentScope, type Candidate, declineForAllServices } from "./scope.ts";

const folder = mkdtempSync(join(tmpdir(), "cni-scope-"));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text = ""): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

/** @param pid of the plugin; by default this process */
const candidate = (config: object, pid: number | undefined = process.pid): Candidate =>
  ({ request: { command: "ADD" }, conf: parseNetConf({ name: "n", ...config }), pid }) as Candidate;
const withoutPid = (config: object): Candidate => ({ ...candidate(config), pid: undefined });

test("requests that use programs of the host are declined", () => {
  expect(declineForAllServices(candidate({ ipam: { type: "host-local" } }))).toContain("host-local");
  expect(declineForAllServices(candidate({ ipam: { type: "calico-ipam" } }))).toBeUndefined();
});

describe("the agent's service", () => {
  const etcd: DatastoreConfig = { type: "etcdv3", endpoints: ["http://a:2379", "http://b:2379/"] };
  const cases: [name: string, config: object, isAccepted: boolean][] = [
    ["no datastore", {}, true],
    ["only the datastore type", { datastore_type: "etcdv3" }, true],
    ["one of its endpoints", { datastore_type: "etcdv3", etcd_endpoints: "http://c:2379, http://B:2379" }, true],
    ["other endpoints", { datastore_type: "etcdv3", etcd_endpoints: "http://c:2379" }, false],
    ["other endpoints without a type", { etcd_endpoints: "http://c:2379" }, false],
    ["one of its endpoints, but with TLS", { etcd_endpoints: "https://a:2379" }, false],
    ["a discovery domain", { datastore_type: "etcdv3", etcd_discovery_srv: "example.org" }, false],
    ["a SQLite file", { datastore_type: "sqlite" }, false],
    ["other certificate files", { etcd_endpoints: "http://a:2379", etcd_ca_cert_file: "/x" }, true],
  ];
  for (const [name, config, isAccepted] of cases)
    test(`on etcd ${isAccepted ? "accepts" : "declines"} a configuration with ${name}`, () => {
      const scope = agentScope("etcdv3", etcd);
      expect([scope(candidate(config)), scope(withoutPid(config))].map((why) => why === undefined)).toEqual([
        isAccepted,
        isAccepted,
      ]);
    });

  test("declines an address of another datastore type, also if the configuration has no type", () => {
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
      named.map((conf) => agentScope(config.type, config)(candidate(conf)) === undefined);
    expect(served(kubernetes)).toEqual([false, false, false, false, true]);
    expect(served(sqlite)).toEqual([false, false, false, true, true]);
    expect(served(etcd)).toEqual([true, true, false, false, true]);
  });

  test("on SQLite resolves a relative path in the plugin's working directory", () => {
    const path = file("relative.db");
    const near = relative(process.cwd(), path);
    const scope = agentScope("sqlite", { type: "sqlite", path, isFallback: false });
    expect(scope(candidate({ sqlite_path: near }))).toBeUndefined();
    expect(scope(withoutPid({ sqlite_path: near }))).toContain("another file");
    const ofFolder = agentScope("sqlite", { type: "sqlite", path: near, isFallback: false });
    expect(ofFolder(candidate({ sqlite_path: near }))).toBeUndefined();
    expect(ofFolder(withoutPid({ sqlite_path: near }))).toContain("another file");
  });

  test("on SQLite accepts any path of its file, until the file is replaced", () => {
    const path = file("agent.db");
    const [other, same] = [file("other.db"), join(folder, "same.db")];
    linkSync(path, same);
    const scope = agentScope("sqlite", { type: "sqlite", path, isFallback: false });
    const named = [undefined, path, same, other, join(folder, "none.db")].map((sqlite_path) => ({ sqlite_path }));
    expect(named.map((config) => scope(candidate(config)) === undefined)).toEqual([true, true, true, false, false]);
    expect(named.map((config) => scope(withoutPid(config)) === undefined)).toEqual([true, true, false, false, false]);
    renameSync(other, path);
    expect(named.map((config) => scope(candidate(config)) === undefined)).toEqual(named.map(() => false));
  });

  test("accepts a request whose process has ended", () =>
    expect(agentScope("etcdv3", etcd)(candidate({}, 1 << 22))).toBeUndefined());
});
