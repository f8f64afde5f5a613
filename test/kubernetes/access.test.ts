// Tests the credentials for a real API server: certificates in the kubeconfig or in files that are renewed, credential
// plugins and token files, with their one-line errors. Also tests the limit on requests per second.
import { afterAll, beforeAll, expect } from "bun:test";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { resolveAccess } from "../../src/datastore/kubernetes/access.ts";
import { KubeApi, type KubeApiOptions, requestLimit } from "../../src/datastore/kubernetes/api-client.ts";
import { Authority } from "../../src/lab/kubernetes/authority.ts";
import { type ApiServer, startApiServer } from "./api-server.ts";
import { found, suite } from "./available.ts";

let server: ApiServer;
let authority: Authority;
let folder: string;
beforeAll(async () => {
  if ("missing" in found) return;
  server = await startApiServer(found.path, {
    flags(ours) {
      authority = new Authority(join(ours, "pki"));
      return [`--client-ca-file=${authority.certFile}`];
    },
  });
  folder = join(server.folder, "users");
  mkdirSync(folder);
}, 600_000);
afterAll(async () => await server?.[Symbol.asyncDispose]());

let count = 0;
function kubeconfig(user: object): string {
  const path = join(folder, `${count++}.kubeconfig`);
  const cluster = { server: server.url, "certificate-authority-data": Buffer.from(server.ca).toString("base64") };
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "c",
    clusters: [{ name: "c", cluster }],
    users: [{ name: "u", user }],
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}
async function open(user: object, options: KubeApiOptions = {}): Promise<KubeApi> {
  const config = { type: "kubernetes", kubeconfig: kubeconfig(user), insecureSkipTlsVerify: false } as const;
  const access = await resolveAccess({ ...config, disableNodePoll: false, usePodCidr: false }, {});
  return new KubeApi(access, { qps: 1000, burst: 1000, ...options });
}
/** Returns the user as which the server has authenticated the client. */
async function authenticatedUser(api: KubeApi): Promise<string> {
  const review = await api.json<{ status: { userInfo: { username: string } } }>({
    method: "POST",
    path: "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" },
  });
  return review.status.userInfo.username;
}
const issue = (name: string) => authority.issue({ name, commonName: name, organization: "system:masters" });
const base64 = (path: string) => readFileSync(path).toString("base64");

suite("a client certificate is read from the kubeconfig, or from files next to it", async () => {
  const { certFile, keyFile } = issue("inline");
  const inline = await open({ "client-certificate-data": base64(certFile), "client-key-data": base64(keyFile) });
  expect(await authenticatedUser(inline)).toBe("inline");
  inline.close();
  const filed = issue("filed");
  writeFileSync(join(folder, "own.crt"), readFileSync(filed.certFile));
  writeFileSync(join(folder, "own.key"), readFileSync(filed.keyFile));
  const beside = await open({ "client-certificate": "own.crt", "client-key": "own.key" });
  expect(await authenticatedUser(beside)).toBe("filed");
  beside.close();
});

suite("a certificate is read again from its files after the server has rejected it", async () => {
  const stranger = new Authority(join(folder, "stranger"));
  const bad = stranger.issue({ name: "renewed", commonName: "renewed", organization: "system:masters" });
  const good = issue("renewed");
  const [cert, key] = [join(folder, "renewed.crt"), join(folder, "renewed.key")];
  const put = (from: { readonly certFile: string; readonly keyFile: string }) => {
    writeFileSync(cert, readFileSync(from.certFile));
    writeFileSync(key, readFileSync(from.keyFile));
  };
  put(bad);
  const api = await open({ "client-certificate": cert, "client-key": key });
  const refused = await authenticatedUser(api).catch((error: Error) => error);
  expect(String(refused)).toContain("Unauthorized");
  put(good);
  expect(await authenticatedUser(api)).toBe("renewed");
  api.close();
});

/** A plugin that records each of its runs. */
function plugin(name: string, answer: string): { readonly command: string; runs(): string[] } {
  const log = join(folder, `${name}.runs`);
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" >> '${log}'\n${answer}\n`);
  chmodSync(path, 0o755);
  const runs = () => {
    try {
      return readFileSync(log, "utf8").trim().split("\n");
    } catch {
      return [];
    }
  };
  return { command: `./${name}`, runs };
}
const credential = (status: object): string =>
  `cat <<'END'\n${JSON.stringify({ apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status })}\nEND`;

suite("a credential plugin returns a token, once for many requests, and receives the cluster's address if it requests that", async () => {
  const { command, runs } = plugin("token-plugin", credential({ token: server.adminToken }));
  const api = await open({
    exec: { command, apiVersion: "client.authentication.k8s.io/v1", provideClusterInfo: true },
  });
  expect(await Promise.all([1, 2, 3].map(() => authenticatedUser(api)))).toEqual(["admin", "admin", "admin"]);
  expect(runs()).toHaveLength(1);
  expect(JSON.parse(runs()[0] ?? "")).toMatchObject({
    kind: "ExecCredential",
    spec: { interactive: false, cluster: { server: server.url } },
  });
  api.close();
});

suite("a credential plugin runs again when its token expires or is rejected", async () => {
  const soon = new Date(Date.now() + 1000).toISOString();
  const short = plugin("short-plugin", credential({ token: server.adminToken, expirationTimestamp: soon }));
  const api = await open({ exec: { command: short.command } });
  await authenticatedUser(api);
  await authenticatedUser(api);
  expect(short.runs()).toHaveLength(2);
  api.close();
  const first = credential({ token: "stale" });
  const then = credential({ token: server.adminToken });
  const mark = join(folder, "asked");
  const fickle = plugin("fickle-plugin", `if [ -e '${mark}' ]; then\n${then}\nelse touch '${mark}'\n${first}\nfi`);
  const other = await open({ exec: { command: fickle.command } });
  expect(await authenticatedUser(other)).toBe("admin");
  expect(fickle.runs()).toHaveLength(2);
  other.close();
});

suite("a credential plugin may return a certificate instead", async () => {
  const { certFile, keyFile } = issue("by-plugin");
  const status = {
    clientCertificateData: readFileSync(certFile, "utf8"),
    clientKeyData: readFileSync(keyFile, "utf8"),
  };
  const api = await open({ exec: { command: plugin("cert-plugin", credential(status)).command } });
  expect(await authenticatedUser(api)).toBe("by-plugin");
  api.close();
});

suite("the error of a missing or failing plugin is one line with its name, without its output", async () => {
  const cases = {
    "failing-plugin": { answer: "echo secret; exit 3", error: "failed with 3" },
    "mute-plugin": { answer: "echo secret", error: "returned neither a token nor a certificate" },
  };
  for (const [name, { answer, error }] of Object.entries(cases)) {
    const api = await open({ exec: { command: plugin(name, answer).command } });
    const message = String(await authenticatedUser(api).catch((thrown: Error) => thrown.message));
    expect(message).toContain(error);
    expect(message).toContain(name);
    expect(message).not.toContain("secret");
    api.close();
  }
  const absent = await open({ exec: { command: "no-such-plugin-anywhere" } });
  expect(String(await authenticatedUser(absent).catch((error: Error) => error.message))).toContain(
    "no-such-plugin-anywhere",
  );
  absent.close();
});

suite("a token is read again from its file after the server has rejected it", async () => {
  const tokenFile = join(folder, "token");
  writeFileSync(tokenFile, "wrong\n");
  const api = await open({ tokenFile: "token" });
  expect(String(await authenticatedUser(api).catch((error: Error) => error))).toContain("Unauthorized");
  writeFileSync(tokenFile, `${server.adminToken}\n`);
  expect(await authenticatedUser(api)).toBe("admin");
  api.close();
});

suite("requests beyond the burst are delayed", async () => {
  const api = await open({ token: server.adminToken }, { qps: 20, burst: 5 });
  const started = performance.now();
  await Promise.all(Array.from({ length: 15 }, () => api.json({ method: "GET", path: "/version" })));
  expect(performance.now() - started).toBeGreaterThan(450);
  api.close();
  const bucket = requestLimit(0, 0); // no limit
  await Promise.all(Array.from({ length: 1000 }, () => bucket.take()));
});

suite("a request, or a watch that does not start, times out if the server hangs", async () => {
  const api = await open({ token: server.adminToken }, { timeoutMs: 400 });
  await api.json({ method: "GET", path: "/version" });
  server.freeze();
  try {
    const failed = await api.json({ method: "GET", path: "/version" }).catch((error: Error) => error);
    expect(String(failed)).toContain("no answer within 0.4 s");
    const watching = async () => {
      for await (const _ of api.watch("/api/v1/nodes", {}, AbortSignal.timeout(5000)));
    };
    expect(String(await watching().catch((error: Error) => error))).toContain("no answer within 0.4 s");
  } finally {
    server.thaw();
    api.close();
  }
});
