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

test("CI-078 nothing is written if the host's directories are not mounted", () => {
  rmSync(join(root, "host/opt"), { recursive: true });
  expect(() => install()).toThrow("mount the host's CNI directory");
  mkdirSync(join(root, "host/opt/cni/bin"), { recursive: true });
  rmSync(join(root, "host/etc"), { recursive: true });
  expect(() => install()).toThrow(/etc\/cni\/net\.d does not exist/);
  expect(readdirSync(join(root, "host"))).toEqual(["opt"]);
  expect(readdirSync(join(root, "host/opt/cni/bin"))).toEqual([]);
});

test("CI-078 programs, kubeconfig and configuration are installed with their defaults", () => {
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

test("CI-078 variables replace placeholders, and quotes in them are escaped; unknown placeholders are kept", () => {
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

test("CI-078 the template file overrides the variable, the old configuration file is removed, and invalid JSON is rejected", () => {
  put("template", `{"from":"file"}`);
  install({ CNI_NETWORK_CONFIG: `{"from":"env"}`, CNI_NETWORK_CONFIG_FILE: join(root, "template") });
  expect(conf() as unknown).toEqual({ from: "file" });
  install({ CNI_NETWORK_CONFIG: `{"v":2}`, CNI_CONF_NAME: "20-other.conflist" });
  expect(readdirSync(join(root, "host/etc/cni/net.d"))).toEqual(["20-other.conflist"]);
  expect(() => install({ CNI_NETWORK_CONFIG: "{broken", CNI_CONF_NAME: "20-other.conflist" })).toThrow(
    /not valid JSON/,
  );
  expect(conf("20-other.conflist") as unknown).toEqual({ v: 2 });
  expect(() => install({ CNI_CONF_NAME: "../../evil" })).toThrow(/want a file name/);
});

test("CI-078 etcd credentials are copied with mode 0600 and named in the configuration; old ones are deleted", () => {
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

test("CI-078 only root can read the copied etcd credentials, regardless of their original mode, also after a change", () => {
  mkdirSync(join(root, "secrets"));
  for (const file of ["etcd-ca", "etcd-cert", "etcd-key"]) put(`secrets/${file}`, `${file} 1`, 0o644);
  install({ TLS_ASSETS_DIR: join(root, "secrets") });
  const tls = "host/etc/cni/net.d/calico-tls";
  put(`${tls}/etcd-old`, "of another release");
  rmSync(join(root, tls, "etcd-key"));
  put("secrets/etcd-key", "etcd-key 2", 0o644);
  copySecrets(join(root, "secrets"), join(root, tls));
  expect([mode(tls), mode(`${tls}/etcd-key`), read(`${tls}/etcd-key`)]).toEqual([0o700, 0o600, "etcd-key 2"]);
  // Files that are kept must exist at every moment, because a plugin may start.
  const { ino } = statSync(join(root, tls));
  chmodSync(join(root, tls), 0o755);
  rmSync(join(root, "secrets/etcd-ca"));
  install({ TLS_ASSETS_DIR: join(root, "secrets") });
  expect([statSync(join(root, tls)).ino, mode(tls)]).toEqual([ino, 0o700]);
  expect(readdirSync(join(root, tls)).sort()).toEqual(["etcd-cert", "etcd-key"]);
});

test("a token or server address that contains more than one word is rejected", () => {
  put("account/token", "pod-token\n");
  install(IN_POD);
  expect(read("host/etc/cni/net.d/calico-kubeconfig")).toContain("token: pod-token\ncontexts:");
  const evil = "t\n    insecure-skip-tls-verify: true";
  expect(() => install(IN_POD, evil)).toThrow(new InstallError("the plugin's token is not valid"));
  expect(() => install({ ...IN_POD, KUBERNETES_SERVICE_PORT: "443\n    x: y" })).toThrow(
    /is not a valid URL of an API server/,
  );
});

test("CI-078 a newer program replaces a running one, an identical one is kept, and plugins can be skipped", () => {
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

test("CI-081 without a writable directory the installation fails, unless the programs exist and are not to be updated", () => {
  rmSync(join(root, "host/opt/cni/bin"), { recursive: true });
  expect(() => install()).toThrow(/mount the host's CNI directory/);
  mkdirSync(join(root, "host/secondary-bin-dir"));
  install();
  expect(existsSync(join(root, "host/secondary-bin-dir/calico-ipam"))).toBeTrue();
});

test("CI-079 outside a pod no kubeconfig is written; a passed token is used; a missing CA is an error", () => {
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

test("CI-080 NB-053 the refresh delay is a quarter of the remaining lifetime, at least 5 s, plus up to as much again", () => {
  const hour = 3_600_000;
  expect(nextRefreshMs(24 * hour, { random: () => 0 })).toBe(6 * hour);
  expect(nextRefreshMs(24 * hour, { random: () => 1 })).toBe(12 * hour);
  expect(nextRefreshMs(0, { random: () => 0 })).toBe(5000);
  expect(nextRefreshMs(24 * hour, { intervalMs: 60_000, random: () => 0.5 })).toBe(90_000);
});

test("CI-079 the token is bound to this node, or not bound if the API server does not support that", async () => {
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
  const request = (code: number | undefined, env: Record<string, string>) =>
    requestToken(env, silentLogger, serverOf(code));
  const bound = (name: string) => ({ apiVersion: "v1", kind: "Node", name });
  expect(await request(undefined, { KUBERNETES_NODE_NAME: "n1" })).toMatchObject({ token: "t" });
  expect(await request(400, { NODENAME: "n1" })).toMatchObject({ token: "t" });
  expect(await request(404, { NODENAME: "calico-name", CALICO_K8S_NODE_REF: "n1" })).toMatchObject({ token: "t" });
  expect(await request(undefined, {})).toMatchObject({ token: "t" });
  expect(requests).toEqual([bound("n1"), bound("n1"), undefined, bound("n1"), undefined, undefined]);
  await expect(request(403, { NODENAME: "n2" })).rejects.toThrow("refused");
});

test("CI-080 NB-054 the kubeconfig is written immediately, and again when the service account's directory changes", async () => {
  let tokens = 0;
  const api = {
    json: async () => ({
      status: { token: `t${++tokens}`, expirationTimestamp: new Date(Date.now() + 8.64e7).toISOString() },
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
