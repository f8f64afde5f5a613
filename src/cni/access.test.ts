import { describe, expect, test } from "bun:test";
import { accessOf, filesOfAccess, isRelative } from "./access.ts";
import { parseNetConf } from "./net-conf.ts";

const conf = (config: object) => parseNetConf({ name: "n", ...config });
const SQLITE = { datastore_type: "sqlite", sqlite_path: "/a/calico.db" };
const ETCD = {
  datastore_type: "etcdv3",
  etcd_endpoints: "https://a:2379,https://b:2379",
  etcd_ca_cert_file: "/ca",
  etcd_cert_file: "/cert",
  etcd_key_file: "/key",
};
const KUBERNETES = {
  datastore_type: "kubernetes",
  kubernetes: { kubeconfig: "/etc/cni/kubeconfig" },
  policy: { type: "k8s" },
};

describe("two configurations reach the same", () => {
  for (const config of [SQLITE, ETCD, KUBERNETES])
    test(`${config.datastore_type}: when they differ in what has nothing to do with it`, () =>
      expect(accessOf(conf({ ...config, mtu: 1400, log_level: "debug", nodename: "other" }), { PATH: "/bin" })).toBe(
        accessOf(conf(config), {}),
      ));

  const others: [name: string, config: object, other: object][] = [
    ["another file", SQLITE, { sqlite_path: "/b/calico.db" }],
    ["the file by another name", SQLITE, { sqlite_path: "/a/../a/calico.db" }],
    ["another datastore", SQLITE, { datastore_type: "etcdv3", etcd_endpoints: "http://a:2379" }],
    ["other endpoints", ETCD, { etcd_endpoints: "https://c:2379" }],
    ["some of the endpoints", ETCD, { etcd_endpoints: "https://a:2379" }],
    ["without TLS", ETCD, { etcd_endpoints: "http://a:2379,http://b:2379" }],
    ["another certificate of the authority", ETCD, { etcd_ca_cert_file: "/other" }],
    ["another certificate", ETCD, { etcd_cert_file: "/other" }],
    ["another key", ETCD, { etcd_key_file: "/other" }],
    ["no certificate", ETCD, { etcd_cert_file: "", etcd_key_file: "" }],
    ["another kubeconfig", KUBERNETES, { kubernetes: { kubeconfig: "/other" } }],
    ["another API server", KUBERNETES, { kubernetes: { ...KUBERNETES.kubernetes, k8s_api_root: "https://o:6443" } }],
    ["a token", KUBERNETES, { policy: { type: "k8s", k8s_auth_token: "t" } }],
    ["another API group", KUBERNETES, { calico_api_group: "projectcalico.org/v3" }],
    ["another rate", KUBERNETES, { qps: 5 }],
    ["pods that are read from Kubernetes", ETCD, { policy: { type: "k8s", k8s_api_root: "https://o" } }],
  ];
  for (const [name, config, other] of others)
    test(`not with ${name}`, () =>
      expect(accessOf(conf({ ...config, ...other }), {})).not.toBe(accessOf(conf(config), {})));

  const environments: [variable: string, config: object, value: string][] = [
    ["ETCD_PASSWORD", ETCD, "p"],
    ["CALICO_SQLITE_PATH", { datastore_type: "sqlite" }, "/b/calico.db"],
    ["DATASTORE_TYPE", { sqlite_path: "/a/calico.db" }, "kubernetes"],
    ["ETCD_ENDPOINTS", {}, "http://a:2379"],
    ["CALICO_K8SAPITOKEN", KUBERNETES, "t"],
    ["FELIX_INTERFACEPREFIX", KUBERNETES, "tap"],
    ["KUBERNETES_SERVICE_HOST", { datastore_type: "kubernetes" }, "10.0.0.1"],
  ];
  for (const [variable, config, value] of environments)
    test(`not when the environment adds ${variable}`, () => {
      const more = variable === "ETCD_PASSWORD" ? { ETCD_USERNAME: "u" } : {};
      expect(accessOf(conf(config), { ...more, [variable]: value })).not.toBe(accessOf(conf(config), {}));
    });

  test("also when the environment adds what the configuration says, or nobody asks for", () => {
    expect(accessOf(conf(SQLITE), { CALICO_SQLITE_PATH: "/b", ETCD_ENDPOINTS: "http://a", KUBECONFIG: "/k" })).toBe(
      accessOf(conf(SQLITE), {}),
    );
    expect(accessOf(conf(KUBERNETES), { KUBERNETES_SERVICE_HOST: "10.0.0.1" })).toBe(accessOf(conf(KUBERNETES), {}));
  });
});

test("the files whose content is part of it", () => {
  expect(filesOfAccess(conf(SQLITE), {})).toEqual([]);
  expect(filesOfAccess(conf(ETCD), {})).toEqual(["/ca", "/cert", "/key"]);
  const twice = conf({ ...KUBERNETES, kubernetes: { kubeconfig: "/a:/b" }, policy: { k8s_client_key: "/key" } });
  expect([...new Set(filesOfAccess(twice, {}))]).toEqual(["/a", "/b", "/key"]);
});

test("names that depend on a folder are told from those that do not", () => {
  for (const config of [SQLITE, ETCD, KUBERNETES]) expect(isRelative(conf(config), {})).toBeFalse();
  for (const config of [
    { ...SQLITE, sqlite_path: "calico.db" },
    { ...ETCD, etcd_key_file: "key" },
    { ...KUBERNETES, kubernetes: { kubeconfig: "/a:b" } },
  ])
    expect(isRelative(conf(config), {})).toBeTrue();
});
