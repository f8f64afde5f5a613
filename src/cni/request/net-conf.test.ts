import { expect, test } from "bun:test";
import { parseNetConf } from "./net-conf.ts";
import { apiConfig } from "./api-config.ts";

test("CI-008 defaults of a minimal configuration", () =>
  expect(parseNetConf({ name: "n" })).toMatchObject({
    mtu: 0,
    nodenameFile: "/var/lib/calico/nodename",
    nodenameFileOptional: false,
    ipam: { type: "", assignIpv4: true, assignIpv6: false, ipv4Pools: [], ipv6Pools: [] },
    ipamLockFile: "/var/run/calico/ipam.lock",
    policySetupTimeoutSeconds: 10,
    endpointStatusDir: "/var/run/calico/endpoint-status",
    log: { fileMaxSizeMb: 100, fileMaxAgeDays: 30, fileMaxCount: 10 },
    datastoreTimeoutSeconds: 10,
  }));

test("CI-008 keys are matched without regard to case, unknown ones are ignored, null is treated as missing", () => {
  const conf = parseNetConf({
    name: "n",
    NodeName: "a",
    IPAM: { Type: "calico-ipam", Assign_IPv6: "true" },
    zzz: 1,
    mtu: null,
  });
  expect(conf).toMatchObject({ nodename: "a", mtu: 0, ipam: { type: "calico-ipam", assignIpv6: true } });
});

test("CI-008 only the strings true and false select the families", () => {
  const families = (v4: string, v6: string) => {
    const { assignIpv4, assignIpv6 } = parseNetConf({ name: "n", ipam: { assign_ipv4: v4, assign_ipv6: v6 } }).ipam;
    return [assignIpv4, assignIpv6];
  };
  expect([families("false", "true"), families("no", "yes"), families("", "")]).toEqual([
    [false, true],
    [true, false],
    [true, false],
  ]);
});

const wrong = [
  { config: { mtu: "big" }, message: "mtu: want an integer" },
  { config: { ipam: "calico-ipam" }, message: "ipam: want an object" },
  { config: { ipam: { ipv4_pools: "p" } }, message: "ipam.ipv4_pools: want a list of texts" },
  {
    config: { container_settings: { allow_ip_forwarding: "yes" } },
    message: "container_settings.allow_ip_forwarding: want true or false",
  },
  { config: { nodename: 5 }, message: "nodename: want text" },
  { config: { datastore_timeout_seconds: -1 }, message: "datastore_timeout_seconds: want 1 to 86400 seconds, got -1" },
  { config: { datastore_timeout_seconds: 9_999_999 }, message: "datastore_timeout_seconds: want 1 to 86400 seconds" },
];
for (const { config, message } of wrong)
  test(`CI-008 a wrong type is rejected: ${message}`, () =>
    expect(() => parseNetConf({ name: "n", ...config })).toThrow(message));

const secretive = [{ policy: { k8s_auth_token: ["s3cret"] } }, { policy: ["s3cret"] }, { etcd_endpoints: ["s3cret"] }];
for (const config of secretive)
  test(`CI-008 the error for a wrong type does not show a value that may be secret: ${Object.keys(config)[0]}`, () => {
    const parse = () => parseNetConf({ name: "n", ...config });
    expect(parse).toThrow(/want (text|an object)$/);
  });

test("CI-008 the configuration's datastore overrides the environment's", () => {
  const conf = parseNetConf({ name: "n", datastore_type: "etcdv3", etcd_endpoints: "http://a:2379" });
  const env = {
    ETCD_ENDPOINTS: "http://b:2379",
    DATASTORE_TYPE: "kubernetes",
    ETCD_KEY_FILE: "/k",
    ETCD_CERT_FILE: "/c",
  };
  expect(apiConfig(conf, env)).toMatchObject({
    datastoreType: "etcdv3",
    etcdEndpoints: "http://a:2379",
    etcdKeyFile: "/k",
  });
  expect(apiConfig(parseNetConf({ name: "n" }), env)).toMatchObject({ etcdEndpoints: "http://b:2379" });
});

test("CI-008 the deprecated etcd_authority and the path of the SQLite datastore are read", () => {
  const old = parseNetConf({ name: "n", etcd_authority: "10.0.0.1:2379", etcd_scheme: "https" });
  expect(old.datastore.etcdEndpoints).toBe("https://10.0.0.1:2379");
  expect(apiConfig(parseNetConf({ name: "n", datastore_type: "sqlite", sqlite_path: "/x.db" }), {})).toEqual({
    datastoreType: "sqlite",
    sqlitePath: "/x.db",
  });
});

test("CI-012 client rate limits and API group are passed to the client", () => {
  const conf = parseNetConf({
    name: "n",
    qps: 50,
    burst: 200,
    calico_api_group: "projectcalico.org/v3",
    num_queues: 4,
  });
  expect(apiConfig(conf, {})).toEqual({
    k8sClientQPS: 50,
    k8sClientBurst: 200,
    calicoAPIGroup: "projectcalico.org/v3",
  });
  expect(conf.numQueues).toBe(4);
  // The default is 1; the kernel's default is one queue per CPU.
  for (const num_queues of [undefined, 0, -2]) expect(parseNetConf({ name: "n", num_queues }).numQueues).toBe(1);
});

test("CI-008 the API root is truncated before /api/, and the kubernetes section takes precedence", () => {
  const root = (config: object) => apiConfig(parseNetConf({ name: "n", ...config }), {}).k8sAPIEndpoint;
  expect(root({ policy: { k8s_api_root: "https://k:6443/api/v1/" } })).toBe("https://k:6443");
  expect(root({ policy: { k8s_api_root: "https://k" }, kubernetes: { k8s_api_root: "https://other" } })).toBe(
    "https://other",
  );
});

test("service_idle_seconds, a setting of earlier versions, is accepted and ignored", () => {
  const plain = parseNetConf({ name: "n" });
  for (const value of [0, 10, -1, 3601, 1.5, "60", true, null])
    expect(parseNetConf({ name: "n", service_idle_seconds: value })).toEqual(plain);
});
