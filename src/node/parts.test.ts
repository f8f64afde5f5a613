import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isMounted } from "./commands/init-command.ts";
import { effectiveBackend, felixEnvironment, planChildren } from "./supervisor/children.ts";
import { PartOutput } from "./supervisor/child-output.ts";
import { flagOf, positiveMs, readSettings } from "./settings.ts";

const names = (env: Record<string, string>, backend: "bird" | "vxlan" | "none") =>
  planChildren(env, "n1", backend).map(({ name }) => name);

test("NB-004 parts by backend", () => {
  expect(names({}, "bird")).toEqual(["felix", "confd", "bird", "bird6"]);
  expect(names({}, "vxlan")).toEqual(["felix"]);
  expect(names({}, "none")).toEqual(["felix"]);
  expect(readSettings({ CALICO_NETWORKING_BACKEND: "VXLAN" }).backend).toBe("vxlan");
  expect(readSettings({ CALICO_NETWORKING_BACKEND: "gobgp" }).backend).toBe("bird");
});

test("NB-005 the old CALICO_NETWORKING: false is no networking, anything else is BIRD", () => {
  expect(effectiveBackend({ CALICO_NETWORKING: "false" }, "bird")).toEqual({ backend: "none", legacy: true });
  expect(effectiveBackend({ CALICO_NETWORKING: "true" }, "vxlan")).toEqual({ backend: "bird", legacy: true });
  expect(effectiveBackend({}, "vxlan")).toEqual({ backend: "vxlan", legacy: false });
});

test("NB-006 Felix can be left out", () =>
  expect(names({ CALICO_DISABLE_FELIX: "true" }, "bird")).toEqual(["confd", "bird", "bird6"]));

test("NB-008 Felix is told by its own names", () => {
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

test("BIRD runs once per family, keeps routes over its restart, and is killed, not asked", () => {
  const [, , bird, bird6] = planChildren({}, "n1", "bird");
  expect(bird?.command).toEqual([
    "bird",
    "-f",
    "-s",
    "/var/run/calico/bird.ctl",
    "-c",
    "/etc/calico/confd/config/bird.cfg",
  ]);
  expect(bird?.extraArguments).toBeDefined(); // -R where routes of an earlier BIRD are in the kernel
  expect(bird6?.command).toContain("/var/run/calico/bird6.ctl");
  expect(bird?.stopSignal).toBe("SIGKILL");
});

test("NB-007 lines go to the screen by part, and to files that are renamed when full", () => {
  const folder = mkdtempSync(join(tmpdir(), "part-output-"));
  try {
    const screen: string[] = [];
    const output = new PartOutput(folder, (text) => screen.push(text));
    output.line("felix", "hello");
    expect(screen).toEqual(["felix: hello\n"]);
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

test("NB-007 without files nothing is written but the screen", () => {
  const screen: string[] = [];
  new PartOutput(undefined, (text) => screen.push(text)).line("bird", "hi");
  expect(screen).toEqual(["bird: hi\n"]);
  expect(readSettings({ CALICO_DISABLE_FILE_LOGGING: "true" }).fileLogging).toBe(false);
});

test("durations and flags as they are written", () => {
  for (const [text, want] of [
    ["90s", 90_000],
    ["1m30s", 90_000],
    ["250ms", 250],
    ["1.5h", 5_400_000],
    ["soon", undefined],
    ["", undefined],
    ["0s", undefined],
    ["-1s", undefined],
  ] as const)
    expect(positiveMs(text)).toBe(want);
  expect(readSettings({ AUTODETECT_POLL_INTERVAL: "nonsense" }).pollIntervalMs).toBe(60_000);
  expect(flagOf({ X: "No" }, "X", true)).toBe(false);
  expect(flagOf({ X: "" }, "X", false)).toBe(true);
  expect(flagOf({}, "X", false)).toBe(false);
});

test("NB-015 what is mounted somewhere is the last thing mounted there", () => {
  const line = (at: string, type: string) => `30 23 0:26 / ${at} rw,nosuid shared:4 - ${type} none rw`;
  expect(isMounted(line("/sys/fs/bpf", "bpf"), "bpf", "/sys/fs/bpf")).toBe(true);
  expect(isMounted([line("/sys/fs/bpf", "bpf"), line("/sys/fs/bpf", "tmpfs")].join("\n"), "bpf", "/sys/fs/bpf")).toBe(
    false,
  );
  expect(isMounted(line("/sys/fs/bpf/tc", "bpf"), "bpf", "/sys/fs/bpf")).toBe(false);
});
