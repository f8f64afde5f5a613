// Tests the certificates of Typha and calico-node on a real API server. kube-controllers, with the account of
// calico-typha.yaml, creates and renews them; a Typha process and clients use them, with the environment of that manifest
// and with files as a kubelet mounts them.
import { afterAll, beforeAll, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { type CertificatePair, createAuthority, issueCertificate } from "../../src/controllers/certificates/x509.ts";
import type { KubeApi, KubeObject } from "../../src/datastore/index.ts";
import { openKubeApi } from "../../src/datastore/index.ts";
import { createLogger, formatText } from "../../src/lib/log/log.ts";
import { delay } from "../../src/lib/retry.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { createTyphaSyncer, typhaSettings } from "../../src/typha/index.ts";
import { FRAME } from "../../src/typha/protocol.ts";
import { TestConsumer } from "../functional/typha/harness.ts";
import { RawClient } from "../functional/typha/raw-client.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import { type Cluster, configOf, isAvailable, startCluster, suite } from "./cluster.ts";
import { ControllersRun } from "./controllers-run.ts";
import { MountedPod } from "./mounted-pod.ts";
import { TyphaProcess } from "./typha-process.ts";

const HOME = "/api/v1/namespaces/kube-system";
const SECRETS = ["calico-ca-private", "typha-certs", "node-certs"] as const;
const DAY_MS = 86_400_000;

let cluster: Cluster;
let accounts: Accounts;
/** Added to the time that the controllers see. */
let offsetMs = 0;

beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ isOwn: true }); // installs an admission policy
  accounts = await installAccounts(cluster);
  for (const object of accounts.manifest)
    if (object.kind.startsWith("ValidatingAdmissionPolicy")) {
      const plural = object.kind.replace(/y$/, "ies").replace(/g$/, "gs").toLowerCase();
      await cluster.put(`/apis/admissionregistration.k8s.io/v1/${plural}`, object);
    }
  await putNode("n1", 1);
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

const putNode = (name: string, number: number) =>
  cluster.apply({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, annotations: { "projectcalico.org/IPv4Address": `192.0.2.${number}/24` } },
    spec: { podCIDR: `10.244.${number}.0/24` },
    status: { addresses: [{ type: "InternalIP", address: `192.0.2.${number}` }] },
  } as never);

interface Stored extends KubeObject {
  readonly data: Readonly<Record<string, string>>;
}
const secret = (name: string) => cluster.api.get<Stored>(`${HOME}/secrets/${name}`);
const find = (name: string) => secret(name).catch(() => undefined);
const textOf = ({ data }: Stored, key = "tls.crt") => Buffer.from(data[key] ?? "", "base64").toString("utf8");
const bundle = async () => (await cluster.api.get<Stored>(`${HOME}/configmaps/typha-ca`)).data["caBundle"] ?? "";

/** kube-controllers with the manifest's environment and rights, on a cluster without certificates. */
function startControllers(): ControllersRun {
  using pod = new MountedPod(accounts.manifest, "calico-kube-controllers", cluster.api);
  return new ControllersRun(
    {
      ...pod.env,
      KUBECONFIG: accounts.kubeconfig("calico-kube-controllers"),
    },
    { timings: { certificates: { now: () => Date.now() + offsetMs, checkMs: 50 } } },
  );
}

async function removeCertificates(): Promise<void> {
  for (const name of SECRETS) await cluster.delete(`${HOME}/secrets/${name}`);
  await cluster.delete(`${HOME}/configmaps/typha-ca`);
  offsetMs = 0;
}

const untilCreated = () =>
  eventually(async () => (await Promise.all(SECRETS.map(find))).every((found) => found !== undefined), 30_000);

/** Checks that neither logs nor errors contain a private key. */
function expectNoKeys(lines: readonly string[], keys: Iterable<string>): void {
  const log = lines.join("\n");
  expect(log).not.toContain("PRIVATE");
  for (const key of keys)
    for (const line of key.split("\n")) if (/^[\w+/]{20}/.test(line)) expect(log).not.toContain(line.slice(0, 20));
}

suite("on a new cluster the controllers create the certificates, Typha and a client use them, and other certificates are rejected", async () => {
  await removeCertificates();
  // As on a new cluster, the pods exist first, and cannot mount the Secrets that do not exist yet.
  using typhaPod = new MountedPod(accounts.manifest, "calico-typha", cluster.api);
  using nodePod = new MountedPod(accounts.manifest, "calico-node", cluster.api);
  await expect(typhaPod.mount()).rejects.toThrow("not found");
  await expect(nodePod.mount()).rejects.toThrow("not found");
  await using controllers = startControllers();
  await untilCreated();
  await eventually(() => typhaPod.mount().then(() => true));
  await nodePod.mount();
  await using typha = await startTypha(typhaPod);
  await using client = await connect(nodePod, typha.port);
  await eventually(() => client.status === "in-sync", 30_000);
  expect(client.state.size).toBeGreaterThan(0);

  const authority = await secret("calico-ca-private");
  const own = { certificate: textOf(authority), key: textOf(authority, "tls.key") };
  const validity = { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS };
  const foreign = createAuthority("calico-ca@0", validity);
  const request = { commonName: "typha-client", dnsNames: [], usages: ["client"] } as const;
  const ca = await bundle();
  const shown = [
    { name: "the certificate of calico-node", pair: read(nodePod, "node-certs"), accepted: true },
    { name: "no certificate", pair: undefined, accepted: false },
    { name: "another authority", pair: issueCertificate(request, foreign, validity), accepted: false },
    {
      name: "another name",
      pair: issueCertificate({ ...request, commonName: "other" }, own, validity),
      accepted: false,
    },
    {
      name: "the right name, for servers only",
      pair: issueCertificate({ ...request, usages: ["server"] }, own, validity),
      accepted: false,
    },
    { name: "the certificate of Typha", pair: read(typhaPod, "typha-certs"), accepted: false },
  ];
  for (const { name, pair, accepted } of shown) {
    expect([name, await isAccepted(typha.port, pair, ca)]).toEqual([name, accepted]);
  }
  using plain = new RawClient(typha.port);
  plain.greet();
  await eventually(() => plain.isClosed);
  expect(plain.frames).toEqual([]);
  expectNoKeys(controllers.lines, await keys());
  expect(controllers.failure).toBeUndefined();
}, 120_000);

const startTypha = (pod: MountedPod) =>
  TyphaProcess.start({
    ...pod.env,
    KUBECONFIG: accounts.kubeconfig("calico-typha"),
    TYPHA_HEALTHENABLED: "false", // its port is fixed
  });

/** Whether Typha sends its snapshot to a client with this certificate. */
async function isAccepted(port: number, pair: CertificatePair | undefined, ca: string): Promise<boolean> {
  const own = pair === undefined ? {} : { cert: pair.certificate, key: pair.key };
  using client = new RawClient(port, { tls: { ca, ...own } });
  client.greet();
  await eventually(() => client.isClosed || client.types().includes(FRAME.end));
  return client.types().includes(FRAME.end);
}

const keys = async () => (await Promise.all(SECRETS.map(secret))).map((stored) => textOf(stored, "tls.key"));

const read = (pod: MountedPod, volume: string) => ({
  certificate: readFileSync(`${pod.folder}/${volume}/tls.crt`, "utf8"),
  key: readFileSync(`${pod.folder}/${volume}/tls.key`, "utf8"),
});

async function connect(pod: MountedPod, port: number, lines: string[] = []): Promise<TestConsumer> {
  const env = { ...pod.env, FELIX_TYPHAADDR: `127.0.0.1:${port}` };
  const settings = typhaSettings(env, ["FELIX_"]);
  if (settings?.tls === undefined) throw new Error("the manifest's environment has no TLS settings");
  const log = createLogger({ level: "warn", write: (record) => void lines.push(formatText(record)) });
  return TestConsumer.run(await createTyphaSyncer({ settings, syncer: "felix", hostname: "n1", log, env }));
}

/** Connects repeatedly, as restarting nodes do, and counts the connections. */
class Reconnecting implements AsyncDisposable {
  readonly warnings: string[] = [];
  count = 0;
  #isStopped = false;
  readonly #running: Promise<void>;

  constructor(pod: MountedPod, port: number) {
    this.#running = (async () => {
      while (!this.#isStopped) {
        await using client = await connect(pod, port, this.warnings);
        await eventually(() => client.status === "in-sync");
        this.count++;
        await delay(20);
      }
    })();
    this.#running.catch(() => {}); // reported by `[Symbol.asyncDispose]`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }
}

suite("certificates and authority are rotated while Typha and its clients run: no connection ends and none is rejected", async () => {
  await removeCertificates();
  // The controllers' clock goes from the past to the present, so that every certificate that is used is valid today.
  offsetMs = -735 * DAY_MS;
  await using controllers = startControllers();
  await untilCreated();
  const certificate = async (name: (typeof SECRETS)[number]) => textOf(await secret(name));
  /** kube-controllers writes the Secret of Typha before that of calico-node. */
  const untilReplaced = (name: (typeof SECRETS)[number], before: string) =>
    eventually(async () => {
      const now = await certificate(name);
      return now !== before && now;
    });
  const firstAuthority = await certificate("calico-ca-private");
  const expired = await certificate("node-certs");
  offsetMs = -75 * DAY_MS;
  const firstLeaf = await untilReplaced("node-certs", expired);

  using typhaPod = new MountedPod(accounts.manifest, "calico-typha", cluster.api);
  using nodePod = new MountedPod(accounts.manifest, "calico-node", cluster.api);
  await typhaPod.mount();
  await nodePod.mount();
  await using typha = await startTypha(typhaPod);
  await using client = await connect(nodePod, typha.port);
  await eventually(() => client.status === "in-sync", 30_000);
  await using newcomers = new Reconnecting(nodePod, typha.port);
  const untilNewcomers = () => {
    const before = newcomers.count;
    return eventually(() => newcomers.count > before + 2);
  };
  const updateTypha = async () => {
    const reloads = () => typha.output.split("loaded the renewed certificate").length;
    const before = reloads();
    await typhaPod.mount();
    await untilNewcomers(); // the files are new, and Typha may still use the old ones
    await eventually(() => reloads() > before);
    await untilNewcomers();
  };
  const updateNode = async () => {
    await nodePod.mount();
    await untilNewcomers();
  };

  // Certificates expire soon: they are renewed, by the same authority.
  offsetMs = -10 * DAY_MS;
  const secondLeaf = await untilReplaced("node-certs", firstLeaf);
  expect(await certificate("calico-ca-private")).toBe(firstAuthority);
  await updateTypha();
  await updateNode();

  // The authority expires soon: the next one is trusted, and signs nothing yet.
  offsetMs = -3 * DAY_MS;
  const secondAuthority = await untilReplaced("calico-ca-private", firstAuthority);
  await eventually(async () => (await bundle()) === secondAuthority + firstAuthority);
  expect(await certificate("node-certs")).toBe(secondLeaf);
  await updateNode();
  await updateTypha();

  // A day later it signs. Each side gets its certificate while the other has the previous one.
  const old = read(nodePod, "node-certs");
  offsetMs = -2 * DAY_MS;
  await untilReplaced("node-certs", secondLeaf);
  await updateNode();
  await updateTypha();
  expect(await isAccepted(typha.port, old, await bundle())).toBe(true);

  // Another day later only the new authority is trusted, and a certificate of the old one is rejected.
  offsetMs = -DAY_MS;
  await eventually(async () => (await bundle()) === secondAuthority);
  await updateNode();
  await updateTypha();
  expect(await isAccepted(typha.port, old, secondAuthority)).toBe(false);

  expect(newcomers.warnings).toEqual([]);
  // The first connection, whose certificates would be rejected now, was never interrupted and receives updates.
  expect(client.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
  await putNode("n2", 2);
  await eventually(() => [...client.state.keys()].some((path) => path.includes("n2")));
  expectNoKeys(controllers.lines, await keys());
}, 180_000);

suite("deleted Secrets are created again, and what the user supplied is not changed", async () => {
  await removeCertificates();
  const own = createAuthority("company", { notBeforeMs: Date.now() - DAY_MS, notAfterMs: Date.now() + DAY_MS });
  const data = { "tls.crt": btoa(own.certificate), "tls.key": btoa(own.key) };
  const supplied = await cluster.put<Stored>(`${HOME}/secrets`, {
    metadata: { name: "node-certs" },
    type: "kubernetes.io/tls",
    data,
  });
  await using controllers = startControllers();
  await untilCreated();
  for (const name of ["typha-certs", "calico-ca-private"]) {
    const before = await secret(name);
    await cluster.delete(`${HOME}/secrets/${name}`);
    const after = await eventually(() => find(name));
    expect(after.metadata.uid).not.toBe(before.metadata.uid);
  }
  await cluster.delete(`${HOME}/configmaps/typha-ca`);
  await eventually(async () => (await bundle().catch(() => "")) !== "");
  offsetMs = 80 * DAY_MS; // everything else is renewed
  const before = textOf(await secret("typha-certs"));
  await eventually(async () => textOf(await secret("typha-certs")) !== before);
  expect(await secret("node-certs")).toEqual(supplied);
  expect(controllers.lines.filter((line) => line.includes("does not manage"))).toHaveLength(1);
  expectNoKeys(controllers.lines, [...(await keys()), own.key]);
}, 60_000);

suite("kube-controllers may create the Secrets and ConfigMap of certificates, and no others", async () => {
  await removeCertificates();
  const api = await openKubeApi(configOf(accounts.kubeconfig("calico-kube-controllers")), {});
  const create = (client: KubeApi, resource: string, body: object) =>
    client.json({ method: "POST", path: `${HOME}/${resource}`, body }).then(
      () => "created",
      (error: Error) => error.message,
    );
  const tls = { type: "kubernetes.io/tls", data: { "tls.crt": "", "tls.key": "" } };
  const token = {
    metadata: { name: "bootstrap-token-abcdef" },
    type: "bootstrap.kubernetes.io/token",
    stringData: { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" },
  };
  try {
    // The policy takes effect shortly after its creation.
    await eventually(async () => {
      await cluster.delete(`${HOME}/secrets/bootstrap-token-abcdef`);
      return (await create(api, "secrets", token)).includes("only the Secrets and ConfigMaps of certificates");
    });
    const others = [
      ["secrets", { metadata: { name: "other" }, ...tls }],
      ["secrets", { metadata: { name: "typha-certs" }, type: "Opaque" }],
      ["configmaps", { metadata: { name: "kubernetes-services-endpoint" }, data: { KUBERNETES_SERVICE_HOST: "x" } }],
    ] as const;
    for (const [resource, body] of others) expect(await create(api, resource, body)).toContain("creates only");
    expect(await create(api, "secrets", { metadata: { name: "typha-certs" }, ...tls })).toBe("created");
    expect(await create(api, "configmaps", { metadata: { name: "typha-ca" } })).toBe("created");
    // It applies only to this account.
    expect(await create(cluster.api, "secrets", token)).toBe("created");
    // Other Secrets cannot be read, and none can be listed or deleted.
    await expect(api.get(`${HOME}/secrets/bootstrap-token-abcdef`)).rejects.toThrow("forbidden");
    await expect(api.list(`${HOME}/secrets`)).rejects.toThrow("forbidden");
    await expect(api.json({ method: "DELETE", path: `${HOME}/secrets/typha-certs` })).rejects.toThrow("forbidden");
  } finally {
    api.close();
    await cluster.delete(`${HOME}/secrets/bootstrap-token-abcdef`);
  }
}, 60_000);
