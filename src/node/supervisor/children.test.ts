import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSettings } from "../settings.ts";
import { ChildOutput } from "./child-output.ts";
import { effectiveBackend, felixEnvironment, planChildren } from "./children.ts";

const names = (env: Record<string, string>, backend: "bird" | "vxlan" | "none") =>
  planChildren(env, "n1", backend).map(({ name }) => name);

test("NB-004 the backend selects the child processes", () => {
  expect(names({}, "bird")).toEqual(["felix", "confd", "bird", "bird6"]);
  expect(names({}, "vxlan")).toEqual(["felix"]);
  expect(names({}, "none")).toEqual(["felix"]);
  expect(readSettings({ CALICO_NETWORKING_BACKEND: "VXLAN" }).backend).toBe("vxlan");
  expect(readSettings({ CALICO_NETWORKING_BACKEND: "gobgp" }).backend).toBe("bird");
});

test("NB-005 the deprecated CALICO_NETWORKING: false selects backend none, any other value bird", () => {
  expect(effectiveBackend({ CALICO_NETWORKING: "false" }, "bird")).toEqual({ backend: "none", legacy: true });
  expect(effectiveBackend({ CALICO_NETWORKING: "true" }, "vxlan")).toEqual({ backend: "bird", legacy: true });
  expect(effectiveBackend({}, "vxlan")).toEqual({ backend: "vxlan", legacy: false });
});

test("NB-006 CALICO_DISABLE_FELIX disables Felix", () =>
  expect(names({ CALICO_DISABLE_FELIX: "true" }, "bird")).toEqual(["confd", "bird", "bird6"]));

test("NB-008 variables are translated to Felix's names", () => {
  expect(
    felixEnvironment({
      NODENAME: "n1",
      DATASTORE_TYPE: "etcdv3",
      ETCD_ENDPOINTS: "http://e:2379",
      ETCD_CA_CERT_FILE: "/ca",
      ETCD_KEY_FILE: "",
    }),
  ).toEqual({
    FELIX_FELIXHOSTNAME: "n1",
    FELIX_DATASTORETYPE: "etcdv3",
    FELIX_ETCDENDPOINTS: "http://e:2379",
    FELIX_ETCDCAFILE: "/ca",
  });
  const [felix] = planChildren({ NODENAME: "old" }, "n1", "bird");
  expect(felix?.env).toMatchObject({ NODENAME: "n1", FELIX_FELIXHOSTNAME: "n1" });
});

test("one BIRD per family, which keeps routes over a restart and is stopped with SIGKILL", () => {
  const [, , bird, bird6] = planChildren({}, "n1", "bird");
  expect(bird?.command).toEqual([
    "bird",
    "-f",
    "-s",
    "/var/run/calico/bird.ctl",
    "-c",
    "/etc/calico/confd/config/bird.cfg",
  ]);
  expect(bird?.extraArguments).toBeDefined(); // -R if the kernel has routes of a previous BIRD
  expect(bird6?.command).toContain("/var/run/calico/bird6.ctl");
  expect(bird?.stopSignal).toBe("SIGKILL");
});

test("NB-007 lines go to standard output with the name of the child, and to rotated files", () => {
  const folder = mkdtempSync(join(tmpdir(), "child-output-"));
  try {
    const stdout: string[] = [];
    const output = new ChildOutput(folder, (text) => stdout.push(text));
    output.line("felix", "hello");
    expect(stdout).toEqual(["felix: hello\n"]);
    expect(readFileSync(join(folder, "felix/current"), "utf8")).toMatch(/^\d{4}-.*Z hello\n$/);
    expect(statSync(join(folder, "felix/current")).mode & 0o777).toBe(0o644);
    const long = "x".repeat(3_000_000);
    for (let i = 0; i < 30; i++) output.line("felix", long);
    expect(readdirSync(join(folder, "felix")).sort()).toEqual(["@1", "@2", "@3", "@4", "@5", "current"]);
    for (const file of readdirSync(join(folder, "felix")))
      expect(statSync(join(folder, "felix", file)).size).toBeLessThanOrEqual(10_000_000);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("NB-007 without file logging, lines go only to standard output", () => {
  const stdout: string[] = [];
  new ChildOutput(undefined, (text) => stdout.push(text)).line("bird", "hi");
  expect(stdout).toEqual(["bird: hi\n"]);
  expect(readSettings({ CALICO_DISABLE_FILE_LOGGING: "true" }).fileLogging).toBe(false);
});
