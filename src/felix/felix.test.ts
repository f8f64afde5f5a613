import { expect, test } from "bun:test";
import { convertPool, type Pool, type Resource } from "../model/index.ts";
import { ConfigEngine } from "./config/index.ts";
import { datastoreSettings, toRawConfig } from "./datastore-config.ts";
import { planGraph } from "./graph-settings.ts";
import { profilePath } from "./profiles.ts";

function engine(raw: Record<string, string>, source: "config file" | "environment variable" = "environment variable") {
  const created = new ConfigEngine({ exists: () => true, findExecutable: (name) => name }, { hostname: "here" });
  created.update({ [source]: raw });
  return created;
}
const resource = (spec: object, annotations: Record<string, string> = {}): Resource => ({
  apiVersion: "projectcalico.org/v3",
  kind: "FelixConfiguration",
  metadata: { name: "default", annotations },
  spec,
});

test("FC-034 converts the fields and annotations of a FelixConfiguration to settings", () =>
  expect(
    toRawConfig(
      resource(
        {
          bpfEnabled: false,
          routeRefreshInterval: "90s",
          iptablesLockProbeInterval: "50ms",
          externalNodesList: ["10.0.0.0/8", "11.0.0.0/8"],
          failsafeInboundHostPorts: [
            { protocol: "TCP", port: 22 },
            { protocol: "UDP", port: 68, net: "10.0.0.0/8" },
            { protocol: "TCP", port: 23, net: "fd00::/8" },
          ],
          failsafeOutboundHostPorts: [],
          routeTableRanges: [{ min: 1, max: 250 }],
          healthTimeoutOverrides: [{ name: "CalculationGraph", timeout: "1m" }],
          logPrefix: "",
        },
        { "config.projectcalico.org/LogPrefix": "mine", other: "x" },
      ),
    ),
  ).toEqual({
    BPFEnabled: "false",
    RouteRefreshInterval: "90",
    IptablesLockProbeIntervalMillis: "50",
    ExternalNodesCIDRList: "10.0.0.0/8,11.0.0.0/8",
    FailsafeInboundHostPorts: "tcp:22,udp:10.0.0.0/8:68,tcp:[fd00::/8]:23",
    FailsafeOutboundHostPorts: "none",
    RouteTableRanges: "1-250",
    HealthTimeoutOverrides: "CalculationGraph=1m",
    LogPrefix: "mine",
  }));

test("FC-035 Felix's settings from the file and the environment apply to the datastore client", () => {
  const env = { DATASTORE_TYPE: "kubernetes", ETCD_ENDPOINTS: "http://generic:2379" };
  for (const source of ["config file", "environment variable"] as const) {
    expect(datastoreSettings(env, engine({ etcdendpoints: "http://a:2379" }, source).resolved)).toMatchObject({
      datastoreType: "etcdv3",
      etcdEndpoints: "http://a:2379/",
    });
    expect(datastoreSettings(env, engine({ EtcdAddr: "b:2379", EtcdScheme: "https" }, source).resolved)).toMatchObject({
      datastoreType: "etcdv3",
      etcdEndpoints: "https://b:2379",
    });
    expect(datastoreSettings(env, engine({ DatastoreType: "sqlite" }, source).resolved).datastoreType).toBe("sqlite");
  }
  expect(datastoreSettings(env, engine({}).resolved)).toMatchObject({
    datastoreType: "kubernetes",
    etcdEndpoints: "http://generic:2379",
  });
});

function pool(spec: object): Pool {
  const converted = convertPool({ ...resource({ cidr: "10.0.0.0/16", ...spec }), kind: "IPPool" });
  if (converted === undefined) throw new Error("not a pool");
  return converted.value;
}
const plans = [
  { name: "no pools, no routes", config: {}, pools: [], routes: "none", vteps: false },
  {
    name: "IPIP, Felix programs the routes",
    config: {},
    pools: [pool({ ipipMode: "Always" })],
    routes: "ipam",
    vteps: false,
  },
  {
    name: "IPIP, BIRD programs the routes",
    config: { ProgramClusterRoutes: "Disabled" },
    pools: [pool({ ipipMode: "Always" })],
    routes: "none",
    vteps: false,
  },
  { name: "VXLAN", config: {}, pools: [pool({ vxlanMode: "Always" })], routes: "ipam", vteps: true },
  {
    name: "VXLAN, routes from workloads",
    config: { RouteSource: "WorkloadIPs" },
    pools: [pool({ vxlanMode: "Always" })],
    routes: "workloads",
    vteps: true,
  },
  { name: "WireGuard", config: { WireguardEnabled: "true" }, pools: [], routes: "ipam", vteps: false },
  {
    name: "no encapsulation, Felix programs the routes",
    config: { ProgramClusterRoutes: "Enabled" },
    pools: [pool({})],
    routes: "ipam",
    vteps: false,
  },
] as const;
for (const { name, config, pools, routes, vteps } of plans)
  test(`FC-071 the source of routes: ${name}`, () => {
    const { settings } = planGraph(engine(config).config, pools);
    expect([settings.routes, settings.vteps]).toEqual([routes, vteps]);
  });

test("FC-014 the path of a profile can contain the time", () =>
  expect(profilePath("/tmp/cpu-<timestamp>.json", new Date("2026-03-01T10:00:00Z"))).toBe(
    "/tmp/cpu-2026-03-01-10:00:00.json",
  ));
