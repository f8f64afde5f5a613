import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configFromEnvironment, configFromFile } from "./api-config.ts";
import { chooseDatastore } from "./config.ts";

const emptyHost = { env: {}, exists: () => false };

test("DM-134 the environment is read, and names with CALICO_ have precedence", () => {
  const config = configFromEnvironment({
    DATASTORE_TYPE: "etcdv3",
    ETCD_ENDPOINTS: "http://lost:2379",
    CALICO_ETCD_ENDPOINTS: "https://a:2379, https://b:2379",
    ETCD_CA_CERT_FILE: "/ca.pem",
    ETCD_CERT_FILE: "/cert.pem",
    ETCD_KEY_FILE: "/key.pem",
    ETCD_USERNAME: "felix",
    ETCD_PASSWORD: "secret",
    SQLITE_PATH: "/not/ours",
    K8SAPITOKEN: "not ours either",
  });
  expect(config.sqlitePath).toBeUndefined();
  expect(config.k8sAPIToken).toBeUndefined();
  expect(chooseDatastore(config, emptyHost)).toEqual({
    type: "etcdv3",
    endpoints: ["https://a:2379", "https://b:2379"],
    credentials: { username: "felix", password: "secret" },
    tls: { ca: { file: "/ca.pem" }, cert: { file: "/cert.pem" }, key: { file: "/key.pem" } },
  });
});

test("DM-134 booleans and numbers in the environment are checked", () => {
  expect(configFromEnvironment({ USE_POD_CIDR: "T" }).usePodCIDR).toBe(true);
  expect(configFromEnvironment({ CALICO_K8S_CLIENT_QPS: "7.5" }).k8sClientQPS).toBe(7.5);
  expect(() => configFromEnvironment({ USE_POD_CIDR: "yes" })).toThrow("USE_POD_CIDR='yes': want true or false");
  expect(() => configFromEnvironment({ USE_POD_CIDR: "" })).toThrow("want true or false");
  expect(() => configFromEnvironment({ K8S_CLIENT_BURST: "many" })).toThrow("want a number");
});

test("DM-134 an etcd user without a password is ignored", () => {
  const config = chooseDatastore({ etcdEndpoints: "http://a:2379", etcdUsername: "felix" }, emptyHost);
  expect(config).toEqual({ type: "etcdv3", endpoints: ["http://a:2379"] });
});

test("a secret of the wrong type is not printed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "datastore-secret-"));
  const file = join(folder, "c.cfg");
  for (const value of ["12345", "['12345']", "{a: 12345}"]) {
    writeFileSync(file, `apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {etcdPassword: ${value}}\n`);
    const error = await configFromFile(file).catch(String);
    expect(error).toMatch(/spec\.etcdPassword: want a text, got a (number|list|object)$/);
  }
  rmSync(folder, { recursive: true });
});

const documents = [
  {
    name: "spec keys are read",
    text: "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {}\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: http://a:2379\n  usePodCIDR: true\n",
    want: { datastoreType: "etcdv3", etcdEndpoints: "http://a:2379", usePodCIDR: true },
  },
  {
    name: "JSON is fine too",
    text: '{"apiVersion":"projectcalico.org/v3","kind":"CalicoAPIConfig","spec":{"kubeconfig":"/k"}}',
    want: { kubeconfig: "/k" },
  },
  {
    name: "an unknown field is refused",
    text: "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {foo: 1}\n",
    fault: /syntax error in .*: .*field in document is not recognized or is in the wrong location: foo/,
  },
  {
    name: "a wrong type is refused",
    text: "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {usePodCIDR: many}\n",
    fault: /spec.usePodCIDR: want a boolean, got "many"/,
  },
  {
    name: "another kind is refused",
    text: "apiVersion: projectcalico.org/v3\nkind: Foo\nspec: {}\n",
    fault: /invalid config file: expected kind 'CalicoAPIConfig', got 'Foo'/,
  },
  {
    name: "another version is refused",
    text: "apiVersion: v1\nkind: CalicoAPIConfig\n",
    fault: /syntax error in .*: invalid config file: unknown APIVersion 'v1'/,
  },
  { name: "broken YAML is refused", text: "spec: [", fault: /syntax error in .*failed to parse config as YAML\/JSON/ },
  { name: "an empty file has no version", text: "\n", fault: /unknown APIVersion ''$/ },
  {
    name: "a key given twice is refused, in one line",
    text: "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  etcdEndpoints: a\n  etcdEndpoints: b\n",
    fault: /^syntax error in .*: failed to parse config as YAML\/JSON: line 5: duplicated mapping key$/,
  },
];
for (const { name, text, want, fault } of documents)
  test(`DM-135 a CalicoAPIConfig file: ${name}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "datastore-config-"));
    try {
      const file = join(folder, "c.cfg");
      writeFileSync(file, text);
      if (fault === undefined) expect(await configFromFile(file)).toEqual(want);
      else await expect(configFromFile(file)).rejects.toThrow(fault);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

test("DM-135 the error for a missing file contains its name", async () => {
  await expect(configFromFile("/nowhere/c.cfg")).rejects.toThrow("Error reading config file: /nowhere/c.cfg");
});

const kubeHome = { env: { HOME: "/home/u" }, exists: (path: string) => path === "/home/u/.kube/config" };
const inCluster = {
  env: { KUBERNETES_SERVICE_HOST: "10.96.0.1" },
  exists: (path: string) => path === "/var/run/secrets/kubernetes.io/serviceaccount/token",
};
const choices = [
  {
    name: "the configured type",
    api: { datastoreType: "sqlite", etcdEndpoints: "x" },
    host: emptyHost,
    want: "sqlite",
  },
  { name: "etcd if endpoints are set", api: { etcdEndpoints: "http://a" }, host: kubeHome, want: "etcdv3" },
  { name: "etcd if discovery is set", api: { etcdDiscoverySrv: "example.org" }, host: emptyHost, want: "etcdv3" },
  { name: "Kubernetes with a kubeconfig", api: { kubeconfig: "/k" }, host: emptyHost, want: "kubernetes" },
  { name: "Kubernetes with a kubeconfig at home", api: {}, host: kubeHome, want: "kubernetes" },
  { name: "Kubernetes inside a pod", api: {}, host: inCluster, want: "kubernetes" },
  { name: "SQLite otherwise", api: {}, host: emptyHost, want: "sqlite" },
];
for (const { name, api, host, want } of choices)
  test(`DM-136 the datastore is ${name}`, () => expect<string>(chooseDatastore(api, host).type).toBe(want));

test("DM-136 SQLite uses the configured path, and isFallback if no datastore is configured", () => {
  expect(chooseDatastore({}, emptyHost)).toEqual({
    type: "sqlite",
    path: "/var/lib/calico/calico.db",
    isFallback: true,
  });
  const config = configFromEnvironment({ CALICO_SQLITE_PATH: "/tmp/x.db" });
  expect(chooseDatastore(config, emptyHost)).toEqual({ type: "sqlite", path: "/tmp/x.db", isFallback: false });
});

const refusals = [
  { api: { datastoreType: "zookeeper" }, fault: "unknown datastore type: zookeeper" },
  { api: { datastoreType: "etcdv3" }, fault: "no etcd endpoints specified" },
  { api: { etcdEndpoints: "a", etcdDiscoverySrv: "b" }, fault: "multiple discovery or bootstrap options specified" },
  { api: { etcdEndpoints: "a", etcdCACert: "PEM", etcdKeyFile: "/k" }, fault: "cannot mix inline" },
  { api: { etcdEndpoints: "a", etcdCertFile: "/c" }, fault: "must be set together" },
];
for (const { api, fault } of refusals)
  test(`DM-136 rejected: ${fault}`, () => expect(() => chooseDatastore(api, emptyHost)).toThrow(fault));

test("DM-137 DM-138 Kubernetes settings reach the driver: list of files, inline, context, rates, group", () => {
  const api = configFromEnvironment({
    KUBECONFIG: "/a:/b",
    K8S_CURRENT_CONTEXT: "prod",
    K8S_CLIENT_QPS: "50",
    K8S_CLIENT_BURST: "80",
    CALICO_API_GROUP: "projectcalico.org/v3",
    CALICO_K8SAPITOKEN: "token",
  });
  expect(chooseDatastore({ ...api, kubeconfigInline: "{}" }, emptyHost)).toEqual({
    type: "kubernetes",
    kubeconfig: "/a:/b",
    kubeconfigInline: "{}",
    currentContext: "prod",
    token: "token",
    insecureSkipTlsVerify: false,
    disableNodePoll: false,
    usePodCidr: false,
    clientQps: 50,
    clientBurst: 80,
    apiGroup: "projectcalico.org/v3",
  });
  const env = { FELIX_INTERFACEPREFIX: "eni, cali" };
  expect(chooseDatastore(api, { ...emptyHost, env })).toMatchObject({ interfacePrefix: "eni" });
});
