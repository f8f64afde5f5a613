import { expect, test } from "bun:test";
import { isOpenStack } from "../../dataplane/index.ts";
import { FELIX_SETTINGS, type FelixSetting, type FelixSettingName, felixSettingNames } from "../../model/index.ts";
import {
  bpfOverrides,
  checkConfig,
  ConfigEngine,
  ConfigError,
  ConfigFileError,
  environmentLayer,
  parseConfigFile,
  redact,
  settingsThatRestart,
  settingsWithoutEffect,
} from "./index.ts";

const hostFiles = {
  exists: (path: string) => path === "/there",
  findExecutable: (name: string) => (name === "driver" ? "/bin/driver" : undefined),
};
const engine = () => new ConfigEngine(hostFiles, { hostname: "here" });

/** By type: a valid text, its value, and invalid texts. */
const SAMPLES: Readonly<Record<string, { text: string; value: unknown; bad: readonly string[] }>> = {
  boolean: { text: "Yes", value: true, bad: ["maybe"] },
  "boolean or unset": { text: "1", value: true, bad: ["maybe"] },
  text: { text: "any thing", value: "any thing", bad: [] },
  path: { text: "/a/b", value: "/a/b", bad: [] },
  file: { text: "/there", value: "/there", bad: ["/not/there"] },
  program: { text: "driver", value: "/bin/driver", bad: ["no-such-driver"] },
  integer: { text: "0x10", value: 16, bad: ["ten", "1.5"] },
  "integer ≥ 0": { text: "0", value: 0, bad: ["-1"] },
  "integer ≥ -1": { text: "-1", value: -1, bad: ["-2"] },
  "integer 1–2147483646": { text: "7", value: 7, bad: ["0", "2147483647"] },
  "integer 1–3000": { text: "3000", value: 3000, bad: ["0", "3001"] },
  seconds: { text: "1.5", value: 1.5, bad: ["1s", "soon"] },
  milliseconds: { text: "20", value: 20, bad: ["20ms"] },
  "regular expression": { text: "^eth", value: /^eth/, bad: ["("] },
  "key=value list": {
    text: "a=b, c=d e,,",
    value: new Map([
      ["a", "b"],
      ["c", "d e"],
    ]),
    bad: ["a", "a b=c"],
  },
  "name=duration list": { text: "Graph=1m30s", value: new Map([["Graph", 90000]]), bad: ["Graph=soon"] },
  rate: { text: "10/minute", value: { count: 10, unit: "minute" }, bad: ["0/second", "10000/second", "10/week"] },
  "host name": { text: "host-1.example", value: "host-1.example", bad: ["a b"] },
  "host address": { text: "::1", value: "::1", bad: ["a b"] },
  "host:port": { text: "[fd00::1]:2379", value: "[fd00::1]:2379", bad: ["host", "host:x"] },
  "URL list": {
    text: "http://a:2379,http://b:2379/",
    value: ["http://a:2379/", "http://b:2379/"],
    bad: ["a:2379", "http://a:1,https://b:1", "http://a:1/path", "http://u@a:1"],
  },
  interface: { text: "wg0", value: "wg0", bad: ["a-name-that-is-too-long", "a b"] },
  "interface prefixes": { text: "cali,tap", value: ["cali", "tap"], bad: ["a b", ","] },
  "interface list, /regular expressions/ too": {
    text: "eth0,/^veth/,docker+",
    value: [/^\x65th0$/, /^veth/, /^\x64ocker/],
    bad: ["/(/", "a name"],
  },
  "DNS label": { text: "region-1", value: "region-1", bad: ["Region", "a.b", "x".repeat(47)] },
  "IPv4 address": { text: "10.0.0.1", value: "10.0.0.1", bad: ["fd00::1", "10.0.0.0/8"] },
  "IPv6 address": { text: "fd00::1", value: "fd00::1", bad: ["10.0.0.1"] },
  "MAC address": { text: "66:a1:b2:c3:d4:e5", value: "66:a1:b2:c3:d4:e5", bad: ["66:a1:b2", "none of these"] },
  "CIDR list": { text: "10.0.0.0/8, fd00::/8", value: ["10.0.0.0/8", "fd00::/8"], bad: ["10.0.0.0/33"] },
  port: { text: "65535", value: 65535, bad: ["65536", "http"] },
  "port list": {
    text: "22, udp:53,tcp:10.0.0.0/8:80,UDP:[fd00::/8]:81",
    value: [
      { protocol: "tcp", port: 22 },
      { protocol: "udp", port: 53 },
      { protocol: "tcp", net: "10.0.0.0/8", port: 80 },
      { protocol: "udp", net: "fd00::/8", port: 81 },
    ],
    bad: ["sctp:1", "tcp:70000", "tcp:fd00::/8:1"],
  },
  "port range": { text: "1000:2000", value: { min: 1000, max: 2000 }, bad: ["2000:1000", "a:b"] },
  "port ranges": {
    text: "1:2,3",
    value: [
      { min: 1, max: 2 },
      { min: 3, max: 3 },
    ],
    bad: ["2:1"],
  },
  "mark mask": { text: "0xff00", value: 0xff00, bad: ["0x1", "0", "0x1ffffffff"] },
  "DSCP value": { text: "EF", value: 46, bad: ["64", "XX"] },
  "table range": { text: "10-20", value: { min: 10, max: 20 }, bad: ["0-5", "1-251", "20-10"] },
  "table ranges": {
    text: "1-250,1000-2000",
    value: [
      { min: 1, max: 250 },
      { min: 1000, max: 2000 },
    ],
    bad: ["1-70000"],
  },
};
const isChoice = (setting: FelixSetting) => SAMPLES[setting.type.name] === undefined;

for (const name of felixSettingNames()) {
  const setting: FelixSetting = FELIX_SETTINGS[name];
  test(`FC-031 FC-037 FC-P-${name} is parsed, with its name in any letter case`, () => {
    const first = setting.type.name.split(", ")[0]!;
    const sample = isChoice(setting)
      ? { text: first.toLowerCase(), value: first, bad: ["bogus"] }
      : SAMPLES[setting.type.name]!;
    const config = engine();
    config.update({ "environment variable": { [name.toLowerCase()]: sample.text } });
    expect<unknown>(config.config[name]).toEqual(sample.value);
    expect(config.resolved.raw).toEqual({ [name]: sample.text });
    for (const bad of sample.bad) {
      const attempt = () => config.update({ "environment variable": { [name.toUpperCase()]: bad } });
      if (setting.isFatal) expect(attempt).toThrow(ConfigError);
      else {
        attempt();
        expect(config.config[name]).toEqual(engine().config[name]);
        expect(config.resolved.problems.join()).toContain(name);
      }
    }
  });
}

test("FC-031 parses integers, ports and masks in Go's notation", () => {
  const read = (name: "HealthPort" | "VXLANVNI" | "IptablesMarkMask", text: string) => {
    const config = engine();
    config.update({ "environment variable": { [name]: text } });
    return config.config[name];
  };
  for (const [text, value] of [
    ["0x10", 16],
    ["010", 8],
    ["0o10", 8],
    ["0b101", 5],
    ["1_000", 1000],
    ["+5", 5],
    ["-0", 0],
  ] as const) {
    expect(read("VXLANVNI", text)).toBe(value);
    expect(read("HealthPort", text)).toBe(value);
  }
  for (const text of ["08", "1__0", "_1", "0x", "65536", "-1"]) expect(read("HealthPort", text)).toBe(9099);
  expect(read("IptablesMarkMask", "0xff_00")).toBe(0xff00);
  expect(() => read("IptablesMarkMask", "010")).toThrow(ConfigError);
});

test("FC-037 there are as many settings as Calico has", () => expect(felixSettingNames()).toHaveLength(218));

test("FC-023 precedence: datastore global, selector, host; then file, environment, override", () => {
  const config = engine();
  const layers = [
    "datastore (global)",
    "datastore (per-node-selector)",
    "datastore (per-host)",
    "config file",
    "environment variable",
    "internal override",
  ] as const;
  for (const [i, source] of layers.entries()) {
    config.update({ [source]: { VXLANPort: String(1000 + i) } });
    expect(config.config.VXLANPort).toBe(1000 + i);
    expect(config.resolved.sources.get("VXLANPort")).toBe(source);
  }
  for (const [i, source] of [...layers.entries()].toReversed()) {
    config.update({ [source]: {} });
    expect(config.config.VXLANPort).toBe(i === 0 ? 4789 : 1000 + i - 1);
  }
});

test("FC-025 names of environment variables have any letter case, and secrets are redacted", () => {
  expect(environmentLayer({ FELIX_LogSeverityScreen: "a", felix_healthport: "b", HOME: "/", FELIX_: "x" })).toEqual({
    logseverityscreen: "a",
    healthport: "b",
  });
  expect(redact("EtcdPassword", "hush")).toBe("<redacted>");
  expect(redact("TyphaKeyFile", "/etc/key")).toBe("/etc/key");
  for (const name of ["ApiToken", "ClientCert", "SharedSecret"]) expect(redact(name, "hush")).toBe("<redacted>");
  expect(() => parseConfigFile("EtcdPassword hush")).toThrow("got EtcdPassword <redacted>");
});

test("FC-026 ignores sections of the file, uses the later of two lines, rejects invalid lines", () => {
  const problems: string[] = [];
  expect(parseConfigFile("[global]\n# note\nA = 1\n[other]\nb=two words\na: 3\n", problems)).toEqual({
    b: "two words",
    a: "3",
  });
  expect(problems).toHaveLength(1);
  expect(parseConfigFile("")).toEqual({});
  expect(() => parseConfigFile("[global]\nnonsense\n")).toThrow(ConfigFileError);
});

test("FC-027 ignores an empty value; none sets the zero value, which some settings reject", () => {
  const config = engine();
  config.update({ "config file": { LogFilePath: "" } });
  expect(config.config.LogFilePath).toBe("/var/log/calico/felix.log");
  config.update({ "config file": { LogFilePath: "None", FailsafeInboundHostPorts: "none", HealthPort: "NONE" } });
  expect(config.config.LogFilePath).toBe("");
  expect(config.config.FailsafeInboundHostPorts).toEqual([]);
  expect(config.config.HealthPort).toBe(0);
  expect(() => config.update({ "config file": { ChainInsertMode: "none" } })).toThrow("cannot be set to none");
});

test("FC-028 rejects an invalid value of a fatal setting; otherwise a valid value of an earlier source applies", () => {
  const config = engine();
  config.update({
    "datastore (global)": { RouteRefreshInterval: "30" },
    "environment variable": { routerefreshinterval: "bogus" },
  });
  expect(config.config.RouteRefreshInterval).toBe(30);
  expect(config.resolved.problems).toEqual([
    `environment variable: RouteRefreshInterval: "bogus" is not a number of seconds; ignored`,
  ]);
  // The value of a fatal setting is checked even if another source overrides it. A failed update changes nothing.
  expect(() =>
    config.update({
      "datastore (global)": { ChainInsertMode: "bogus" },
      "environment variable": { chaininsertmode: "append" },
    }),
  ).toThrow(ConfigError);
  expect(config.config.RouteRefreshInterval).toBe(30);
  expect(config.config.ChainInsertMode).toBe("Insert");
});

test("FC-029 ignores settings for the datastore connection that are in the datastore", () => {
  const config = engine();
  config.update({ "datastore (global)": { EtcdAddr: "1.2.3.4:1" } });
  expect(config.config.EtcdAddr).toBe("127.0.0.1:2379");
  expect(config.resolved.problems[0]).toContain("EtcdAddr");
});

test("FC-030 passes unknown settings unchanged to external drivers", () => {
  const config = engine();
  config.update({ "environment variable": { drivermode: "fast" } });
  expect(config.toMessage().config).toEqual({ drivermode: "fast" });
});

test("FC-032 rejects a setting if another setting that it requires is missing", () => {
  const check = (raw: Record<string, string>) => {
    const config = engine();
    config.update({ "config file": raw });
    checkConfig(config.resolved);
  };
  expect(() => check({})).not.toThrow();
  expect(() => check({ RouteTableRange: "1-10", RouteTableRanges: "20-30" })).not.toThrow(); // RouteTableRanges is used
  expect(() => check({ TyphaCN: "typha" })).toThrow("TyphaKeyFile");
  expect(() =>
    check({ TyphaKeyFile: "/there", TyphaCertFile: "/there", TyphaCAFile: "/there", TyphaURISAN: "spiffe://x" }),
  ).not.toThrow();
  expect(() => check({ DatastoreType: "etcdv3", EtcdScheme: "none" })).toThrow("EtcdEndpoints");
  expect(() => checkConfig(new ConfigEngine(hostFiles, { hostname: "" }).resolved)).toThrow("FelixHostname");
});

test("FC-033 an update returns the changed settings, and a receiver of all layers computes the same values", () => {
  const config = engine();
  expect(config.update({ "config file": { HealthPort: "1", IpInIpMtu: "0x0", InterfaceExclude: "/^a/" } })).toEqual(
    new Set<FelixSettingName>(["HealthPort", "InterfaceExclude"]),
  );
  expect(config.update({ "environment variable": { healthport: "0x1", interfaceexclude: "/^a/" } }).size).toBe(0);
  const { sourceToRawConfig } = config.toMessage();
  const receiver = engine();
  for (const { source, config: raw } of Object.values(sourceToRawConfig)) receiver.update({ [source]: raw });
  expect(receiver.config).toEqual(config.config);
});

test("FC-036 OpenStack is detected from the cluster type, metadata settings or interface prefix", () => {
  const openStack = (raw: Record<string, string>) => {
    const config = engine();
    config.update({ "config file": raw });
    return isOpenStack(config.config);
  };
  expect(openStack({})).toBe(false);
  const hints: readonly Record<string, string>[] = [
    { ClusterType: "k8s,OpenStack" },
    { MetadataAddr: "10.0.0.1" },
    { MetadataPort: "1" },
    { InterfacePrefix: "tap" },
  ];
  expect(hints.every(openStack)).toBe(true);
});

test("FC-021 the eBPF dataplane overrides the settings that it requires", () => {
  const overrides = (raw: Record<string, string>, supported = true) => {
    const config = engine();
    config.update({ "config file": raw });
    return bpfOverrides(config.config, supported);
  };
  expect(overrides({})).toEqual({});
  expect(overrides({ BPFEnabled: "true" }, false)).toEqual({ BPFEnabled: "false" });
  expect(overrides({ BPFEnabled: "true", BPFRedirectToPeer: "L2Only", IPForwarding: "Disabled" })).toEqual({
    BPFConntrackCleanupMode: "Userspace",
    BPFRedirectToPeer: "Enabled",
    IPForwarding: "Enabled",
  });
});

test("reports a setting without effect if its value is not the default", () => {
  const reported = (settings: Record<string, string>) => {
    const e = engine();
    e.update({ "environment variable": settings });
    return settingsWithoutEffect(e.config).map((text) => text.split(":")[0]);
  };
  expect(reported({})).toEqual([]);
  expect(reported({ AWSSrcDstCheck: "DoNothing", BPFLogLevel: "off", ClusterGUID: "guid" })).toEqual([]);
  expect(reported({ RouteTableRange: "1-10" })).toEqual([]);
  expect(reported({ RouteTableRange: "1-10", RouteTableRanges: "20-30" })).toEqual(["RouteTableRange"]);
  expect(reported({ AWSSrcDstCheck: "Disable", DebugPort: "6060" })).toEqual(["DebugPort", "AWSSrcDstCheck"]);
  // Settings with the same reason are reported together.
  expect(
    reported({ PolicySyncPathPrefix: "/var/run/nodeagent", SidecarAccelerationEnabled: "true", BPFLogLevel: "Debug" }),
  ).toEqual(["PolicySyncPathPrefix", "BPFLogLevel, SidecarAccelerationEnabled"]);
});

test("FC-011 a change of ClusterType restarts Felix only if rules or MTU depend on it", () => {
  const restarts = (before: Record<string, string>, after: Record<string, string>) => {
    const e = engine();
    e.update({ "datastore (global)": before });
    const { config } = e;
    return settingsThatRestart(e.update({ "datastore (global)": after }), config, e.config);
  };
  expect(restarts({ ClusterType: "k8s" }, { ClusterType: "k8s,bgp", ClusterGUID: "x", CalicoVersion: "v" })).toEqual(
    [],
  );
  expect(restarts({ ClusterType: "k8s" }, { ClusterType: "k8s,OpenStack" })).toEqual(["ClusterType"]);
  expect(restarts({ ClusterType: "k8s,aks" }, { ClusterType: "k8s" })).toEqual(["ClusterType"]);
  expect(restarts({ HealthTimeoutOverrides: "A=1s" }, {})).toEqual([]);
  expect(restarts({ HealthPort: "1", ClusterType: "k8s" }, {})).toEqual(["HealthPort"]);
});
