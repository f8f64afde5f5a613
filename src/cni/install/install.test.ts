import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "bun:test";
import { silentLogger } from "../../lib/log/log.ts";
import { readFileIfExists } from "../../lib/files/replace-file.ts";
import { pollUntil } from "../../lib/testing/eventually.ts";
import { copySecrets, installCni } from "./install.ts";
import { InstallError } from "./install-error.ts";
import { isSameFile } from "./install-files.ts";
import { keepTokenFresh, nextRefreshMs, requestToken } from "../kubernetes/token-refresh.ts";
import type { KubeApi } from "../../datastore/index.ts";

let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "install-"));
  for (const folder of ["host/opt/cni/bin", "host/etc", "image/bin", "account"])
    mkdirSync(join(root, folder), { recursive: true });
  put("image/calico", "program v1", 0o755);
  put("image/bin/portmap", "portmap", 0o755);
  put("image/bin/bandwidth", "bandwidth", 0o755);
  put("image/bin/install", "me", 0o755);
  put("account/token", "pod-token");
  put("account/ca.crt", "CA PEM");
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function put(path: string, text: string, mode = 0o644): void {
  writeFileSync(join(root, path), text);
  chmodSync(join(root, path), mode);
}
const read = (path: string): string => readFileSync(join(root, path), "utf8");
const mode = (path: string): number => statSync(join(root, path)).mode & 0o777;
const conf = (name = "10-calico.conflist") =>
  JSON.parse(read(`host/etc/cni/net.d/${name}`)) as { name: string; plugins: Record<string, unknown>[] };

const IN_POD = { KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "443", KUBERNETES_NODE_NAME: "n1" };
function install(env: Record<string, string> = {}, token?: string): void {
  installCni({
    env: { TLS_ASSETS_DIR: join(root, "none"), ...env },
    log: silentLogger,
    place: {
      hostRoot: join(root, "host"),
      program: join(root, "image/calico"),
      extras: join(root, "image/bin"),
      serviceAccount: join(root, "account"),
    },
    token,
  });
}

test("CI-078 nothing is made where nothing of the host is mounted", () => {
  rmSync(join(root, "host/opt"), { recursive: true });
  expect(() => install()).toThrow("mount the host's CNI directory");
  mkdirSync(join(root, "host/opt/cni/bin"), { recursive: true });
  rmSync(join(root, "host/etc"), { recursive: true });
  expect(() => install()).toThrow(/etc\/cni\/net\.d is not there/);
  expect(readdirSync(join(root, "host"))).toEqual(["opt"]);
  expect(readdirSync(join(root, "host/opt/cni/bin"))).toEqual([]);
});

test("CI-078 programs, kubeconfig and configuration with their defaults", () => {
  install(IN_POD);
  expect(readdirSync(join(root, "host/opt/cni/bin")).sort()).toEqual(["bandwidth", "calico", "calico-ipam", "portmap"]);
  expect(statSync(join(root, "host/opt/cni/bin/calico")).ino).toBe(
    statSync(join(root, "host/opt/cni/bin/calico-ipam")).ino,
  );
  expect(conf()).toMatchObject({
    name: "k8s-pod-network",
    cniVersion: "1.0.0",
    plugins: [
      {
        type: "calico",
        log_level: "info",
        log_file_path: "/var/log/calico/cni/cni.log",
        datastore_type: "kubernetes",
        nodename: "n1",
        mtu: 1500,
        ipam: { type: "calico-ipam" },
        policy: { type: "k8s" },
        kubernetes: { kubeconfig: "/etc/cni/net.d/calico-kubeconfig" },
        require_mtu_file: false,
        calico_api_group: "crd.projectcalico.org/v1",
      },
      { type: "portmap", snat: true, capabilities: { portMappings: true } },
    ],
  } as never);
  const kubeconfig = read("host/etc/cni/net.d/calico-kubeconfig");
  for (const part of [
    "server: https://10.96.0.1:443",
    "token: pod-token",
    "calico-context",
    Buffer.from("CA PEM").toString("base64"),
  ])
    expect(kubeconfig).toContain(part);
  expect([mode("host/etc/cni/net.d/calico-kubeconfig"), mode("host/etc/cni/net.d/10-calico.conflist")]).toEqual([
    0o600, 0o600,
  ]);
});

test("CI-078 variables fill the template, quotes in them included; what is unknown stays", () => {
  const template = `{"a":"__LOG_LEVEL__","m":__CNI_MTU__,"t":"__SERVICEACCOUNT_TOKEN__","k":"__KUBECONFIG_FILEPATH__","x":"__OTHER__","e":"__ETCD_ENDPOINTS__"}`;
  install({
    ...IN_POD,
    CNI_NETWORK_CONFIG: template,
    CNI_MTU: "0",
    CNI_NET_DIR: "/x",
    LOG_LEVEL: 'de"bug',
    ETCD_ENDPOINTS: "http://e",
  });
  expect(conf() as unknown).toEqual({
    a: 'de"bug',
    m: 0,
    t: "pod-token",
    k: "/x/calico-kubeconfig",
    x: "__OTHER__",
    e: "http://e",
  });
});

test("CI-078 a file wins over the variable, a new name removes the old, and no half configuration is ever written", () => {
  put("template", `{"from":"file"}`);
  install({ CNI_NETWORK_CONFIG: `{"from":"env"}`, CNI_NETWORK_CONFIG_FILE: join(root, "template") });
  expect(conf() as unknown).toEqual({ from: "file" });
  install({ CNI_NETWORK_CONFIG: `{"v":2}`, CNI_CONF_NAME: "20-other.conflist" });
  expect(readdirSync(join(root, "host/etc/cni/net.d"))).toEqual(["20-other.conflist"]);
  expect(() => install({ CNI_NETWORK_CONFIG: "{broken", CNI_CONF_NAME: "20-other.conflist" })).toThrow(/no JSON/);
  expect(conf("20-other.conflist") as unknown).toEqual({ v: 2 });
  expect(() => install({ CNI_CONF_NAME: "../../evil" })).toThrow(/want a file name/);
});

test("CI-078 etcd credentials are copied privately and named in the configuration; old ones go", () => {
  mkdirSync(join(root, "secrets"));
  for (const file of ["etcd-ca", "etcd-cert", "etcd-key"]) put(`secrets/${file}`, `${file} PEM`);
  const template = `{"c":"__ETCD_CERT_FILE__","a":"__ETCD_CA_CERT_FILE__","k":"__ETCD_KEY_FILE__"}`;
  install({ CNI_NETWORK_CONFIG: template, TLS_ASSETS_DIR: join(root, "secrets") });
  expect(conf() as unknown).toEqual({
    c: "/etc/cni/net.d/calico-tls/etcd-cert",
    a: "/etc/cni/net.d/calico-tls/etcd-ca",
    k: "/etc/cni/net.d/calico-tls/etcd-key",
  });
  expect([read("host/etc/cni/net.d/calico-tls/etcd-key"), mode("host/etc/cni/net.d/calico-tls/etcd-key")]).toEqual([
    "etcd-key PEM",
    0o600,
  ]);
  install({ CNI_NETWORK_CONFIG: template });
  expect(conf() as unknown).toEqual({ c: "", a: "", k: "" });
  expect(existsSync(join(root, "host/etc/cni/net.d/calico-tls"))).toBeFalse();
});

test("CI-078 root alone reads the etcd credentials, whatever modes they come with, also when they change", () => {
  mkdirSync(join(root, "secrets"));
  for (const file of ["etcd-ca", "etcd-cert", "etcd-key"]) put(`secrets/${file}`, `${file} 1`, 0o644);
  install({ TLS_ASSETS_DIR: join(root, "secrets") });
  const tls = "host/etc/cni/net.d/calico-tls";
  put(`${tls}/etcd-old`, "of another release");
  rmSync(join(root, tls, "etcd-key"));
  put("secrets/etcd-key", "etcd-key 2", 0o644);
  copySecrets(join(root, "secrets"), join(root, tls));
  expect([mode(tls), mode(`${tls}/etcd-key`), read(`${tls}/etcd-key`)]).toEqual([0o700, 0o600, "etcd-key 2"]);
  // What stays is never away: a plugin may start at any moment.
  const { ino } = statSync(join(root, tls));
  chmodSync(join(root, tls), 0o755);
  rmSync(join(root, "secrets/etcd-ca"));
  install({ TLS_ASSETS_DIR: join(root, "secrets") });
  expect([statSync(join(root, tls)).ino, mode(tls)]).toEqual([ino, 0o700]);
  expect(readdirSync(join(root, tls)).sort()).toEqual(["etcd-cert", "etcd-key"]);
});

test("a token or address that is more than one says nothing in the kubeconfig", () => {
  put("account/token", "pod-token\n");
  install(IN_POD);
  expect(read("host/etc/cni/net.d/calico-kubeconfig")).toContain("token: pod-token\ncontexts:");
  const evil = "t\n    insecure-skip-tls-verify: true";
  expect(() => install(IN_POD, evil)).toThrow(new InstallError("the token for the plugin is none"));
  expect(() => install({ ...IN_POD, KUBERNETES_SERVICE_PORT: "443\n    x: y" })).toThrow(/is no API server's URL/);
});

test("CI-078 a newer program replaces the one in use; an equal one is left alone; some can be skipped", () => {
  install();
  const { ino } = statSync(join(root, "host/opt/cni/bin/calico"));
  install();
  expect(statSync(join(root, "host/opt/cni/bin/calico")).ino).toBe(ino);
  put("image/calico", "program v2", 0o755);
  install({ UPDATE_CNI_BINARIES: "false" });
  expect(read("host/opt/cni/bin/calico")).toBe("program v1");
  rmSync(join(root, "host/opt/cni/bin/portmap"));
  install({ SKIP_CNI_BINARIES: "portmap, bandwidth" });
  expect([read("host/opt/cni/bin/calico"), read("host/opt/cni/bin/calico-ipam")]).toEqual(["program v2", "program v2"]);
  expect(existsSync(join(root, "host/opt/cni/bin/portmap"))).toBeFalse();
  expect(isSameFile(join(root, "image/calico"), join(root, "image/bin/portmap"))).toBeFalse();
});

test("CI-081 without a writable directory it fails, unless the programs are there and need no update", () => {
  rmSync(join(root, "host/opt/cni/bin"), { recursive: true });
  expect(() => install()).toThrow(/mount the host's CNI directory/);
  mkdirSync(join(root, "host/secondary-bin-dir"));
  install();
  expect(existsSync(join(root, "host/secondary-bin-dir/calico-ipam"))).toBeTrue();
});

test("CI-079 outside a pod no kubeconfig is written; a given token is used; a missing CA is refused", () => {
  install();
  expect(existsSync(join(root, "host/etc/cni/net.d/calico-kubeconfig"))).toBeFalse();
  install(IN_POD, "requested");
  expect(read("host/etc/cni/net.d/calico-kubeconfig")).toContain("token: requested");
  rmSync(join(root, "account/ca.crt"));
  expect(() => install(IN_POD)).toThrow(/ca\.crt is missing/);
  install({ ...IN_POD, SKIP_TLS_VERIFY: "true", KUBERNETES_SERVICE_HOST: "fd00::1" });
  expect(read("host/etc/cni/net.d/calico-kubeconfig")).toContain("insecure-skip-tls-verify: true");
  expect(read("host/etc/cni/net.d/calico-kubeconfig")).toContain("https://[fd00::1]:443");
});

test("CI-080 NB-053 a quarter of the remaining life, at least 5 s, plus up to as much again", () => {
  const hour = 3_600_000;
  expect(nextRefreshMs(24 * hour, { random: () => 0 })).toBe(6 * hour);
  expect(nextRefreshMs(24 * hour, { random: () => 1 })).toBe(12 * hour);
  expect(nextRefreshMs(0, { random: () => 0 })).toBe(5000);
  expect(nextRefreshMs(24 * hour, { intervalMs: 60_000, random: () => 0.5 })).toBe(90_000);
});

test("CI-079 the token is requested for this node; API servers that bind no tokens to nodes give one without", async () => {
  const requests: unknown[] = [];
  const serverOf = (codeForNode: number | undefined) =>
    ({
      json: async ({ body }: { body: { spec: { boundObjectRef?: unknown } } }) => {
        const { boundObjectRef } = body.spec;
        requests.push(boundObjectRef);
        if (boundObjectRef !== undefined && codeForNode !== undefined)
          throw Object.assign(new Error("refused"), { code: codeForNode });
        return { status: { token: "t", expirationTimestamp: "2026-01-01T00:00:00Z" } };
      },
      close: () => {},
    }) as unknown as KubeApi;
  const ask = (code: number | undefined, env: Record<string, string>) =>
    requestToken(env, silentLogger, serverOf(code));
  const bound = (name: string) => ({ apiVersion: "v1", kind: "Node", name });
  expect(await ask(undefined, { KUBERNETES_NODE_NAME: "n1" })).toMatchObject({ token: "t" });
  expect(await ask(400, { NODENAME: "n1" })).toMatchObject({ token: "t" });
  expect(await ask(404, { NODENAME: "calico-name", CALICO_K8S_NODE_REF: "n1" })).toMatchObject({ token: "t" });
  expect(await ask(undefined, {})).toMatchObject({ token: "t" });
  expect(requests).toEqual([bound("n1"), bound("n1"), undefined, bound("n1"), undefined, undefined]);
  await expect(ask(403, { NODENAME: "n2" })).rejects.toThrow("refused");
});

test("CI-080 NB-054 the kubeconfig is written at once, and again when the account's directory changes", async () => {
  let asked = 0;
  const api = {
    json: async () => ({
      status: { token: `t${++asked}`, expirationTimestamp: new Date(Date.now() + 8.64e7).toISOString() },
    }),
    close: () => {},
  } as unknown as KubeApi;
  const end = new AbortController();
  const path = join(root, "kubeconfig");
  const running = keepTokenFresh({
    env: { ...IN_POD },
    log: silentLogger,
    signal: end.signal,
    path,
    accountDirectory: join(root, "account"),
    api,
  });
  const until = (text: string) =>
    pollUntil(
      () => readFileIfExists(path),
      (seen) => seen?.includes(text) === true,
    );
  await until("token: t1");
  await Bun.sleep(20);
  put("account/token", "rotated");
  await until("token: t2");
  expect(mode("kubeconfig")).toBe(0o600);
  end.abort();
  await running;
});
