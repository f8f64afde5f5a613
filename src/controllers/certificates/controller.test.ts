import { expect, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { createLogger, formatText } from "../../lib/log/log.ts";
import { FakeKube, proxyNotFound } from "../testing/fake-kube.ts";
import { Certificates, type CertificateSet } from "./controller.ts";
import { AUTHORITY_SECRET } from "./names.ts";
import { isSignedBy, type RotationSettings, validityOf } from "./rotation.ts";
import { createAuthority, issueCertificate, splitPem } from "./x509.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const START_MS = Date.UTC(2026, 0, 1);
const ROTATION: RotationSettings = {
  authorityLifetimeMs: 30 * DAY_MS,
  certificateLifetimeMs: 9 * DAY_MS,
  overlapMs: DAY_MS,
};
const SECRETS = "/api/v1/namespaces/calico/secrets";
const BUNDLE = "/api/v1/namespaces/calico/configmaps/trusted";
const SET: CertificateSet = {
  bundle: { configMap: "trusted", key: "ca.crt" },
  certificates: [
    { secret: "server", request: { commonName: "server", dnsNames: ["server.calico.svc"], usages: ["server"] } },
    { secret: "client", request: { commonName: "client", dnsNames: [], usages: ["client"] } },
  ],
};

interface Data {
  readonly data: Readonly<Record<string, string>>;
}

/** The controller on an API server in memory, with a clock that the test sets. */
class Fixture {
  readonly kube = new FakeKube();
  readonly lines: string[] = [];
  nowMs = START_MS;
  readonly #controller: Certificates;

  constructor(set = SET) {
    this.#controller = new Certificates({
      api: this.kube.api,
      namespace: "calico",
      sets: [set],
      log: createLogger({ level: "debug", write: (record) => void this.lines.push(formatText(record)) }),
      rotation: ROTATION,
      now: () => this.nowMs,
    });
  }

  reconcile(): Promise<void> {
    return this.#controller.reconcile(AbortSignal.timeout(10_000));
  }
  async passAfter(ms: number): Promise<void> {
    this.nowMs += ms;
    await this.reconcile();
  }
  text(secret: string, key = "tls.crt"): string {
    const { data } = this.kube.objects.get(`${SECRETS}/${secret}`) as unknown as Data;
    return Buffer.from(data[key] ?? "", "base64").toString("utf8");
  }
  get bundle(): string {
    return (this.kube.objects.get(BUNDLE) as unknown as Data).data["ca.crt"] ?? "";
  }
  isTrusted(secret: string): boolean {
    return isTrusted(this.text(secret), this.bundle);
  }
}

const isTrusted = (leaf: string, bundle: string): boolean => splitPem(bundle).some((one) => isSignedBy(leaf, one));
const encoded = (certificate: string, key: string) => ({
  "tls.crt": Buffer.from(certificate).toString("base64"),
  "tls.key": Buffer.from(key).toString("base64"),
});
const validity = { notBeforeMs: START_MS - DAY_MS, notAfterMs: START_MS + 300 * DAY_MS };

test("the first reconciliation creates the authority, bundle and certificates, marked as managed; the second writes nothing", async () => {
  const fixture = new Fixture();
  await fixture.reconcile();
  expect(fixture.kube.writes).toEqual([
    `POST ${SECRETS}`,
    "POST /api/v1/namespaces/calico/configmaps",
    `POST ${SECRETS}`,
    `POST ${SECRETS}`,
  ]);
  for (const object of fixture.kube.objects.values())
    expect(object.metadata.labels).toEqual({ "app.kubernetes.io/managed-by": "calico-kube-controllers" });
  expect(fixture.kube.objects.get(`${SECRETS}/server`)).toMatchObject({ type: "kubernetes.io/tls" });
  expect(new X509Certificate(fixture.text("server"))).toMatchObject({
    subject: "CN=server",
    subjectAltName: "DNS:server.calico.svc",
  });
  expect([fixture.isTrusted("server"), fixture.isTrusted("client")]).toEqual([true, true]);
  await fixture.reconcile();
  expect(fixture.kube.writes).toHaveLength(4);
});

test("over many rotations, every certificate is valid and trusted, even by a peer whose files are most of the overlap old", async () => {
  const fixture = new Fixture();
  const stepMs = 4 * HOUR_MS;
  const lagSteps = ROTATION.overlapMs / stepMs - 1;
  const history: { readonly bundle: string; readonly leaves: readonly string[] }[] = [];
  const authorities = new Set<string>();
  const leaves = new Set<string>();
  for (let step = 0; step < 120 * 6; step++) {
    await fixture.passAfter(stepMs);
    history.push({ bundle: fixture.bundle, leaves: [fixture.text("server"), fixture.text("client")] });
    authorities.add(fixture.text(AUTHORITY_SECRET));
    const recent = history.slice(-1 - lagSteps);
    const bundles = new Set(recent.map(({ bundle }) => bundle));
    for (const leaf of new Set(recent.flatMap(({ leaves: shown }) => shown))) {
      leaves.add(leaf);
      const { notBeforeMs, notAfterMs } = validityOf(leaf);
      expect(notBeforeMs <= fixture.nowMs && fixture.nowMs < notAfterMs).toBe(true);
      for (const bundle of bundles) expect(isTrusted(leaf, bundle)).toBe(true);
    }
  }
  expect(authorities.size).toBeGreaterThanOrEqual(5);
  expect(leaves.size).toBeGreaterThanOrEqual(2 * 18);
  // Both authorities are trusted during a rotation, and only one afterwards.
  const trusted = history.map(({ bundle }) => splitPem(bundle).length);
  expect([Math.max(...trusted), Math.min(...trusted)]).toEqual([2, 1]);
}, 60_000);

test("a deleted Secret or ConfigMap is created again, and certificates that work are not replaced at once", async () => {
  const fixture = new Fixture();
  await fixture.reconcile();
  await fixture.passAfter(2 * DAY_MS);
  const [server, bundle] = [fixture.text("server"), fixture.bundle];
  fixture.kube.delete(`${SECRETS}/client`);
  fixture.kube.delete(BUNDLE);
  await fixture.reconcile();
  expect(fixture.bundle).toBe(bundle);
  expect([fixture.text("server"), fixture.isTrusted("client")]).toEqual([server, true]);
  // The key of the authority is lost: its certificate stays trusted until everything is renewed.
  fixture.kube.delete(`${SECRETS}/${AUTHORITY_SECRET}`);
  await fixture.reconcile();
  expect(splitPem(fixture.bundle)).toEqual([fixture.text(AUTHORITY_SECRET), ...splitPem(bundle)]);
  expect([fixture.text("server"), fixture.isTrusted("server"), fixture.isTrusted("client")]).toEqual([
    server,
    true,
    true,
  ]);
  await fixture.passAfter(DAY_MS);
  expect(fixture.text("server")).not.toBe(server);
  await fixture.passAfter(DAY_MS);
  await fixture.reconcile();
  expect(splitPem(fixture.bundle)).toEqual([fixture.text(AUTHORITY_SECRET)]);
  expect([fixture.isTrusted("server"), fixture.isTrusted("client")]).toEqual([true, true]);
});

const damaged = [
  { name: "no data", data: {} },
  { name: "text that is not a certificate", data: encoded("nothing", "nothing") },
  { name: "an expired certificate", data: pair({ notBeforeMs: 0, notAfterMs: START_MS - 1 }) },
  { name: "a certificate of an unknown authority", data: pair(validity) },
];
function pair(of: typeof validity): Record<string, string> {
  const request = { commonName: "client", dnsNames: [], usages: ["client"] } as const;
  const { certificate, key } = issueCertificate(request, createAuthority("stranger", validity), of);
  return encoded(certificate, key);
}
for (const { name, data } of damaged) {
  test(`a managed Secret with ${name} is repaired`, async () => {
    const fixture = new Fixture();
    await fixture.reconcile();
    const stored = fixture.kube.objects.get(`${SECRETS}/client`) ?? {};
    fixture.kube.put(`${SECRETS}/client`, { ...stored, data });
    await fixture.reconcile();
    expect(fixture.isTrusted("client")).toBe(true);
    expect(validityOf(fixture.text("client")).notAfterMs).toBeGreaterThan(fixture.nowMs);
  });

  test(`a Secret of the user with ${name} stays as it is`, async () => {
    const fixture = new Fixture();
    fixture.kube.put(`${SECRETS}/client`, { type: "kubernetes.io/tls", data });
    const before = structuredClone(fixture.kube.objects.get(`${SECRETS}/client`));
    for (let i = 0; i < 3; i++) await fixture.passAfter(40 * DAY_MS);
    expect(fixture.kube.objects.get(`${SECRETS}/client`)).toEqual(before as never);
    expect(fixture.isTrusted("server")).toBe(true);
    // Reported once, not in each reconciliation.
    expect(fixture.lines.filter((line) => line.includes("does not manage"))).toHaveLength(1);
  });
}

test("the user's certificates to trust stay, and a set without the managed authority is reported", async () => {
  const fixture = new Fixture();
  const own = createAuthority("company", validity);
  fixture.kube.put(BUNDLE, { data: { "ca.crt": own.certificate }, metadata: { labels: { app: "x" } } });
  await fixture.reconcile();
  await fixture.reconcile();
  expect(fixture.bundle).toBe(own.certificate);
  expect(fixture.lines.filter((line) => line.includes("do not include"))).toHaveLength(1);
});

test("the user's authority signs, is never written, and a bad one changes nothing", async () => {
  const fixture = new Fixture();
  const [own, older] = [createAuthority("company", validity), createAuthority("company old", validity)];
  const path = `${SECRETS}/${AUTHORITY_SECRET}`;
  fixture.kube.put(path, { data: encoded(`${own.certificate}${older.certificate}`, own.key) });
  const before = structuredClone(fixture.kube.objects.get(path));
  await fixture.reconcile();
  expect(splitPem(fixture.bundle)).toEqual([own.certificate, older.certificate]);
  expect(isSignedBy(fixture.text("server"), own.certificate)).toBe(true);
  // It expires before the certificates would: they end with it, and are not issued again in each reconciliation.
  await fixture.passAfter(299 * DAY_MS);
  const server = fixture.text("server");
  expect(validityOf(server).notAfterMs).toBe(validity.notAfterMs);
  await fixture.passAfter(HOUR_MS);
  expect(fixture.text("server")).toBe(server);
  expect(fixture.kube.objects.get(path)).toEqual(before as never);
  fixture.kube.put(path, { data: encoded(own.certificate, older.key) });
  const writes = fixture.kube.writes.length;
  await expect(fixture.reconcile()).rejects.toThrow("want tls.crt and the tls.key that belongs to it");
  expect(fixture.kube.writes).toHaveLength(writes);
});

test("changed names lead to a new certificate", async () => {
  const first = new Fixture();
  await first.reconcile();
  const [server, client] = SET.certificates as [(typeof SET.certificates)[0], (typeof SET.certificates)[0]];
  const renamed = { ...server, request: { ...server.request, dnsNames: ["server.calico.svc", "server.example"] } };
  const second = new Fixture({ ...SET, certificates: [renamed, client] });
  for (const [path, object] of first.kube.objects) second.kube.put(path, object);
  await second.passAfter(2 * DAY_MS);
  expect(new X509Certificate(second.text("server")).subjectAltName).toBe("DNS:server.calico.svc, DNS:server.example");
  expect(second.text("client")).toBe(first.text("client"));
});

test("a 404 that a proxy sent, or any other failure to read, writes nothing", async () => {
  const fixture = new Fixture();
  await fixture.reconcile();
  fixture.kube.writes.length = 0;
  fixture.kube.failure = proxyNotFound();
  await expect(fixture.reconcile()).rejects.toThrow("404");
  expect(fixture.kube.writes).toEqual([]);
});

test("users' labels and annotations on managed objects stay", async () => {
  const fixture = new Fixture();
  await fixture.reconcile();
  const path = `${SECRETS}/client`;
  const stored = fixture.kube.objects.get(path);
  const labels = { ...stored?.metadata.labels, team: "a" };
  fixture.kube.put(path, {
    ...stored,
    metadata: { ...stored?.metadata, labels, annotations: { note: "b" } },
    data: {},
  });
  await fixture.reconcile();
  expect(fixture.kube.objects.get(path)?.metadata).toMatchObject({ labels, annotations: { note: "b" } });
  expect(fixture.isTrusted("client")).toBe(true);
});

test("no log line contains a part of a key", async () => {
  const fixture = new Fixture();
  const keys = new Set<string>();
  for (let i = 0; i < 30; i++) {
    await fixture.passAfter(DAY_MS);
    for (const secret of [AUTHORITY_SECRET, "server", "client"]) keys.add(fixture.text(secret, "tls.key"));
  }
  const log = fixture.lines.join("\n");
  expect(fixture.lines.length).toBeGreaterThan(5);
  expect(log).not.toContain("PRIVATE");
  for (const key of keys)
    for (const line of key.split("\n")) if (/^[\w+/]{20}/.test(line)) expect(log).not.toContain(line.slice(0, 20));
});
