import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { clusterInformationProcessor } from "../processors/configuration.ts";
import { felixNodeProcessor } from "../processors/nodes.ts";
import { loadDefinition } from "../validation/schemas.ts";
import {
  FELIX_SETTING_GROUPS,
  FELIX_SETTINGS,
  felixDefaultOf,
  felixKeyOf,
  type FelixSetting,
  felixSettingNames,
  felixSettingValue,
  settingsFrom,
} from "./index.ts";

const settings = Object.entries<FelixSetting>(FELIX_SETTINGS);
const SRC = join(import.meta.dir, "../..");
const HERE = "model/felix-settings/";
/** Typha's own settings, some of which have the names of Felix's. */
const TYPHA_SETTINGS = ["typha/config.ts", "typha/environment-variables.ts"];
const sources = readdirSync(SRC, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts") && !TYPHA_SETTINGS.includes(file))
  .map((file) => ({ file, code: readFileSync(join(SRC, file), "utf8") }));
const otherSources = sources.filter(({ file }) => !file.startsWith(HERE));

const repeated = (values: readonly string[]): string[] => values.filter((value, i) => values.indexOf(value) !== i);

test("a setting is declared once, and so is its field", () => {
  const groups = Object.values(FELIX_SETTING_GROUPS).flatMap((group) => Object.keys(group));
  expect(repeated(groups.map((name) => name.toLowerCase()))).toEqual([]);
  expect(groups.sort()).toEqual(Object.keys(FELIX_SETTINGS).sort());
  expect(repeated(settings.flatMap(([, { field }]) => field?.toLowerCase() ?? []))).toEqual([]);
});

test("no other file declares the type or default of a setting; it uses Pick<FelixConfig, …>", () => {
  const names = felixSettingNames().join("|");
  // `readonly HealthPort: number`, `HealthPort: setting(…)`
  const declaration = new RegExp(`readonly (${names})\\??:|\\b(${names}): (?:local|derived)?[sS]etting\\(`, "g");
  const found = otherSources.flatMap(({ file, code }) =>
    (code.match(declaration) ?? []).map((text) => `${file}: ${text}`),
  );
  expect(found).toEqual([]);
});

test("every field of FelixConfiguration has a declaration", async () => {
  const { spec } = await loadDefinition("FelixConfiguration");
  const declared = new Set(settings.map(([, { field }]) => field));
  const undeclared = Object.keys((spec as unknown as { readonly shape: object }).shape).filter(
    (field) => !declared.has(field),
  );
  expect(undeclared.sort()).toEqual([
    "bpfKubeProxyEndpointSlicesEnabled",
    "iptablesLockFilePath",
    "iptablesLockTimeout",
    "nodeSelector",
  ]);
});

test("a setting has no effect if and only if no code reads it", () => {
  // Names between quotes are types such as Pick<…>, or messages.
  const code = otherSources.map((source) => source.code.replaceAll(/"[^"\n]*"/g, '""')).join("\n");
  const isUsed = (name: string) => new RegExp(`\\b${name}\\b`).test(code);
  const byName = new Set(settings.filter(([, { source }]) => source !== undefined).map(([name]) => name));
  // The overrides for Calico's eBPF dataplane read these, but calico-ts always turns that dataplane off.
  const overridden = ["BPFConntrackCleanupMode", "BPFEnabled", "BPFEnforceRPF", "BPFRedirectToPeer"];
  const wrong = settings.filter(
    ([name, { noEffect }]) =>
      (noEffect === undefined) !== isUsed(name) && !overridden.includes(name) && !byName.has(name),
  );
  expect(wrong.map(([name]) => name)).toEqual([]);
});

test("these files do not load zod, which costs programs that validate nothing several milliseconds", () => {
  const eager = sources
    .filter(({ file }) => file.startsWith(HERE))
    .filter(({ code }) => /^import (?!type\b).*from "(zod|\.\.\/kinds)/m.test(code));
  expect(eager.map(({ file }) => file)).toEqual([]);
});

test("every default is valid, and its meaning is a sentence without a full stop", () => {
  for (const [name, { meaning }] of settings) {
    expect(() => felixDefaultOf(name as keyof typeof FELIX_SETTINGS)).not.toThrow();
    expect(meaning).toMatch(/^[A-Za-z].*[^.]$/);
  }
});

test("the processor of Nodes emits every setting that is derived from a Node", () => {
  const spec = {
    bgp: { ipv4IPIPTunnelAddr: "10.0.0.1" },
    ipv4VXLANTunnelAddr: "10.0.0.2",
    vxlanTunnelMACAddr: "66:00:00:00:00:04",
    ipv6VXLANTunnelAddr: "fd00::2",
    vxlanTunnelMACAddrV6: "66:00:00:00:00:06",
  };
  const valueAt = (path: string) =>
    path.split(".").reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], spec);
  const key = { type: "resource", kind: "Node", name: "n" } as const;
  const value = { kind: "Node", apiVersion: "projectcalico.org/v3", metadata: { name: "n" }, spec } as const;
  const updates = felixNodeProcessor({ usePodCidr: false }).process({ key, value }, expect.unreachable);
  const emitted = updates.flatMap((update) =>
    update.key.type === "hostConfig" ? [[update.key.name, update.value] as const] : [],
  );
  expect<unknown>(emitted).toEqual(settingsFrom("Node").map(([name, path]) => [name, valueAt(path)]));
});

test("the processor of ClusterInformation emits every setting that is derived from it", () => {
  const spec: Readonly<Record<string, string>> = {
    clusterGUID: "ab",
    clusterType: "k8s",
    calicoVersion: "v3.30.0",
    variant: "Calico",
  };
  const key = { type: "resource", kind: "ClusterInformation", name: "default" } as const;
  const value = { ...key, apiVersion: "projectcalico.org/v3", metadata: { name: "default" }, spec } as const;
  const updates = clusterInformationProcessor.process({ key, value }, expect.unreachable);
  const emitted = updates.flatMap((update) =>
    update.key.type === "globalConfig" ? [[update.key.name, update.value] as const] : [],
  );
  expect<unknown>(emitted).toEqual(settingsFrom("ClusterInformation").map(([name, path]) => [name, spec[path]]));
});

const keys = [
  { field: "healthPort", value: 9098, key: "HealthPort", text: "9098" },
  { field: "reportingInterval", value: "1m30s", key: "ReportingIntervalSecs", text: "90" },
  { field: "iptablesLockProbeInterval", value: "1.5s", key: "IptablesLockProbeIntervalMillis", text: "1500" },
  { field: "ipipMTU", value: 1480, key: "IpInIpMtu", text: "1480" },
  { field: "logPrefix", value: "", key: "LogPrefix", text: undefined },
  { field: "externalNodesList", value: [], key: "ExternalNodesCIDRList", text: undefined },
  { field: "failsafeInboundHostPorts", value: [], key: "FailsafeInboundHostPorts", text: "none" },
  {
    field: "failsafeOutboundHostPorts",
    value: [{ protocol: "UDP", net: "fd00::/8", port: 53 }],
    key: "FailsafeOutboundHostPorts",
    text: "udp:[fd00::/8]:53",
  },
  {
    field: "healthTimeoutOverrides",
    value: [{ name: "a", timeout: "1m" }],
    key: "HealthTimeoutOverrides",
    text: "a=1m",
  },
  { field: "routeTableRanges", value: [{ min: 1, max: 5 }], key: "RouteTableRanges", text: "1-5" },
  { field: "bpfConntrackTimeouts", value: { udpTimeout: "5s" }, key: "BPFConntrackTimeouts", text: "udpTimeout=5s," },
  { field: "newerThanThis", value: true, key: "NewerThanThis", text: "true" },
] as const;
for (const { field, value, key, text } of keys)
  test(`field ${field} becomes the configuration key ${key}`, () =>
    expect(felixKeyOf(field, value)).toEqual({ key, text }));

test("a text of the datastore that is absent or invalid gives the default", () => {
  expect(felixSettingValue("VXLANPort", undefined)).toBe(4789);
  expect(felixSettingValue("VXLANPort", "")).toBe(4789);
  expect(felixSettingValue("VXLANPort", "many")).toBe(4789);
  expect(felixSettingValue("VXLANPort", "4790")).toBe(4790);
  expect(felixSettingValue("VXLANPort", "None")).toBe(0);
  expect(felixSettingValue("DefaultEndpointToHostAction", "none")).toBe("Drop");
  expect(felixSettingValue("DefaultEndpointToHostAction", "ACCEPT")).toBe("Accept");
});
