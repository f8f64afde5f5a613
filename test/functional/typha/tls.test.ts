// Tests TLS with certificates on both sides: which clients are accepted, and that slow handshakes do not block other clients.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger, type LogRecord } from "../../../src/lib/log/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FRAME } from "../../../src/typha/protocol.ts";
import { checkTlsSettings, cipherList, loadContext, peerFault, type TlsSettings } from "../../../src/typha/tls.ts";
import { type Certificate, TestAuthority } from "../../support/certificates.ts";
import { set, TestConsumer, TestServer } from "./harness.ts";
import { RawClient } from "./raw-client.ts";

const CN = "typha-client";
const URI = "spiffe://cluster.local/typha-client";
let folder: string;
let authority: TestAuthority;
let stranger: TestAuthority;
let serverCert: Certificate;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "typha-tls-"));
  authority = new TestAuthority(folder, "cluster CA");
  stranger = new TestAuthority(folder, "another CA");
  serverCert = authority.issue("typha-server", ["URI:spiffe://cluster.local/typha"]);
});
afterAll(() => rmSync(folder, { recursive: true }));

const settings = (cert: Certificate, names: object, ca = authority): TlsSettings => ({
  ...cert,
  caFile: ca.certFile,
  ...names,
});
const raw = (cert: Certificate | undefined, ca = authority) => ({
  ca: readFileSync(ca.certFile),
  ...(cert && { cert: readFileSync(cert.certFile), key: readFileSync(cert.keyFile) }),
});

test("TC-T18 client and server authenticate each other and exchange updates", async () => {
  await using server = await TestServer.start({ tls: settings(serverCert, { commonName: CN }) });
  server.felix.onUpdates(Array.from({ length: 3000 }, (_, i) => set(`s${i}`, "x".repeat(i % 50))));
  server.felix.onStatus("in-sync");
  const tls = settings(authority.issue(CN, []), { commonName: "typha-server" });
  await using client = TestConsumer.connect(server.address, { tls });
  await eventually(() => client.status === "in-sync");
  expect(client.state.size).toBe(3000);
});

const requirements = [
  { name: "CN or URI", names: { commonName: CN, uriSan: URI } },
  { name: "CN only", names: { commonName: CN } },
  { name: "URI only", names: { uriSan: URI } },
];
const certificates: readonly {
  name: string;
  cn: string;
  uri?: string;
  foreign?: boolean;
  none?: boolean;
  accepted: readonly string[];
}[] = [
  { name: "no certificate", cn: "", none: true, accepted: [] },
  { name: "a certificate of another authority", cn: CN, uri: URI, foreign: true, accepted: [] },
  { name: "the right CN", cn: CN, accepted: ["CN or URI", "CN only"] },
  { name: "the right URI", cn: "other", uri: URI, accepted: ["CN or URI", "URI only"] },
  { name: "both", cn: CN, uri: URI, accepted: ["CN or URI", "CN only", "URI only"] },
  { name: "neither", cn: "other", uri: "spiffe://other", accepted: [] },
];
for (const { name: requirement, names } of requirements)
  test(`TC-T18 the server requires ${requirement}`, async () => {
    await using server = await TestServer.start({ tls: settings(serverCert, names) });
    for (const { name, cn, uri, foreign, none, accepted } of certificates) {
      const cert = none
        ? undefined
        : (foreign ? stranger : authority).issue(cn, uri === undefined ? [] : [`URI:${uri}`]);
      using client = new RawClient(server.server.port, { tls: raw(cert) });
      client.greet();
      await eventually(() => client.isClosed || client.types().includes(FRAME.end));
      expect([name, client.types().includes(FRAME.end)]).toEqual([name, accepted.includes(requirement)]);
    }
  });

test("TC-T18 a client without TLS receives nothing from a TLS server", async () => {
  await using server = await TestServer.start({ tls: settings(serverCert, { commonName: CN }) });
  using client = new RawClient(server.server.port);
  client.greet();
  await eventually(() => client.isClosed);
  expect(client.frames).toEqual([]);
});

test("TC-T18 the client rejects a server with a certificate of another authority or name", async () => {
  const own = authority.issue(CN, []);
  for (const [cert, names] of [
    [stranger.issue("typha-server", []), { commonName: "typha-server" }],
    [authority.issue("impostor", []), { commonName: "typha-server", uriSan: "spiffe://cluster.local/typha" }],
  ] as const) {
    await using server = await TestServer.start({ tls: settings(cert, { commonName: CN }) });
    server.felix.onStatus("in-sync");
    const warnings: LogRecord[] = [];
    const log = createLogger({ level: "warn", write: (record) => warnings.push(record) });
    await using client = TestConsumer.connect(server.address, { tls: settings(own, names), log });
    await eventually(() => warnings.length >= 2);
    expect(client.status).toBe("wait-for-ready");
    expect(String(warnings[0]?.fields["error"])).toMatch(/certificate/);
  }
});

test("TC-T18 incomplete handshakes are closed after their timeout and do not block other clients", async () => {
  await using server = await TestServer.start({
    tls: settings(serverCert, { commonName: CN }),
    timings: { handshakeMs: 300 },
  });
  server.felix.onStatus("in-sync");
  let closed = 0;
  const incomplete = Array.from({ length: 50 }, () => {
    const socket = connect({ port: server.server.port, host: "127.0.0.1" });
    socket.on("error", () => {});
    socket.on("close", () => closed++);
    return socket;
  });
  const tls = settings(authority.issue(CN, []), { commonName: "typha-server" });
  await using client = TestConsumer.connect(server.address, { tls });
  await eventually(() => client.status === "in-sync", 280);
  await eventually(() => closed === 50, 2000);
  await Bun.sleep(400);
  expect(client.status).toBe("in-sync"); // the timeout applies only to the handshake
  for (const socket of incomplete) socket.destroy();
});

test("connections without a completed handshake are limited, and other addresses can still connect", async () => {
  await using server = await TestServer.start({
    tls: settings(serverCert, { commonName: CN }),
    handshakeLimits: { perAddress: 20, total: 30 },
  });
  server.felix.onStatus("in-sync");
  let closed = 0;
  const flood = (localAddress: string) =>
    Array.from({ length: 50 }, () => {
      const socket = connect({ port: server.server.port, host: "127.0.0.1", localAddress });
      socket.on("error", () => {});
      socket.on("close", () => closed++);
      return socket;
    });
  const sockets = ["127.0.0.2", "127.0.0.3"].flatMap(flood);
  await eventually(() => closed === 70);
  const tls = settings(authority.issue(CN, []), { commonName: "typha-server" });
  await using client = TestConsumer.connect(server.address, { tls });
  await eventually(() => client.status === "in-sync");
  expect(closed).toBe(71); // the client took the place of one connection of the busiest address
  for (const socket of sockets) socket.destroy();
});

test("TC-T18 a renewed server certificate is used for the next client, without a restart", async () => {
  const rotating = { certFile: join(folder, "rotating.pem"), keyFile: join(folder, "rotating.key") };
  const put = (cert: Certificate) => {
    copyFileSync(cert.certFile, rotating.certFile);
    copyFileSync(cert.keyFile, rotating.keyFile);
  };
  put(authority.issue("old-name", []));
  await using server = await TestServer.start({
    tls: settings(rotating, { commonName: CN }),
    certificatePollMs: 50,
  });
  server.felix.onStatus("in-sync");
  const own = authority.issue(CN, []);
  await using early = TestConsumer.connect(server.address, { tls: settings(own, { commonName: "old-name" }) });
  await eventually(() => early.status === "in-sync");
  put(authority.issue("new-name", []));
  await using late = TestConsumer.connect(server.address, { tls: settings(own, { commonName: "new-name" }) });
  await eventually(() => late.status === "in-sync");
  expect(early.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
});

test("TC-T18 a renewed authority applies to the next client, and existing connections are kept", async () => {
  const caFile = join(folder, "rotating-ca.pem");
  const next = new TestAuthority(folder, "next CA");
  copyFileSync(authority.certFile, caFile);
  await using server = await TestServer.start({
    tls: { ...serverCert, caFile, commonName: CN },
    certificatePollMs: 50,
  });
  server.felix.onStatus("in-sync");
  const old = settings(authority.issue(CN, []), { commonName: "typha-server" });
  await using early = TestConsumer.connect(server.address, { tls: old });
  await eventually(() => early.status === "in-sync");
  // The client's own files are renewed too: it reads them for each connection.
  const own = { certFile: join(folder, "own.pem"), keyFile: join(folder, "own.key") };
  const put = (cert: Certificate) => {
    copyFileSync(cert.certFile, own.certFile);
    copyFileSync(cert.keyFile, own.keyFile);
  };
  put(next.issue(CN, []));
  await using late = TestConsumer.connect(server.address, {
    tls: settings(own, { commonName: "typha-server" }),
  });
  await Bun.sleep(200);
  expect(late.status).toBe("wait-for-ready");
  copyFileSync(next.certFile, caFile);
  await eventually(() => late.status === "in-sync");
  expect(early.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
  using rejected = new RawClient(server.server.port, { tls: raw(authority.issue(CN, [])) });
  rejected.greet();
  await eventually(() => rejected.isClosed);
  expect(rejected.frames).toEqual([]);
});

test("TC-T18 an expired certificate is rejected, the client's by the server and the server's by the client", async () => {
  const expired = (name: string) => authority.issue(name, [], -1);
  await using server = await TestServer.start({ tls: settings(serverCert, { commonName: CN }) });
  using late = new RawClient(server.server.port, { tls: raw(expired(CN)) });
  late.greet();
  await eventually(() => late.isClosed);
  expect(late.frames).toEqual([]);
  await using stale = await TestServer.start({ tls: settings(expired("typha-server"), { commonName: CN }) });
  stale.felix.onStatus("in-sync");
  const warnings: LogRecord[] = [];
  const log = createLogger({ level: "warn", write: (record) => warnings.push(record) });
  const tls = settings(authority.issue(CN, []), { commonName: "typha-server" });
  await using client = TestConsumer.connect(stale.address, { tls, log });
  await eventually(() => warnings.length >= 2);
  expect(client.status).toBe("wait-for-ready");
  expect(String(warnings[0]?.fields["error"])).toMatch(/expired/);
});

test("TC-T18 TLS settings must be complete or absent", () => {
  const all = { keyFile: "k", certFile: "c", caFile: "a" };
  expect(checkTlsSettings({}, "client")).toBeUndefined();
  expect(checkTlsSettings({ ...all, commonName: "n" }, "client")).toEqual({ ...all, commonName: "n" });
  expect(() => checkTlsSettings(all, "client")).toThrow("common name or URI SAN");
  for (const missing of ["keyFile", "certFile", "caFile"] as const)
    expect(() => checkTlsSettings({ ...all, [missing]: "", commonName: "n" }, "client")).toThrow(
      "set the key, certificate and CA file",
    );
  expect(() => checkTlsSettings({ uriSan: "u" }, "client")).toThrow("set the key, certificate and CA file");
  expect(peerFault(undefined, { commonName: "n" })).toContain("want CN n");
});

test("TC-T19 TLS versions and cipher suites are set by the environment", () => {
  const files = { ...serverCert, caFile: authority.certFile };
  expect(loadContext(files)).toMatchObject({ minVersion: "TLSv1.2", maxVersion: "TLSv1.3" });
  expect(loadContext(files, { TLS_MIN_VERSION: "1.3" }).minVersion).toBe("TLSv1.3");
  expect(loadContext(files, { TLS_MIN_VERSION: "1.7" }).minVersion).toBe("TLSv1.2");
  expect(cipherList("TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")).toBe(
    "TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES256-GCM-SHA384",
  );
  expect(() => loadContext(files, { TLS_CIPHER_SUITES: "TLS_NONE" })).toThrow("TLS_NONE is unknown");
});

test("TC-T19 a client with a TLS version below the minimum is rejected", async () => {
  await using server = await TestServer.start({
    tls: settings(serverCert, { commonName: CN }),
    env: { TLS_MIN_VERSION: "1.3" },
  });
  const cert = authority.issue(CN, []);
  using old = new RawClient(server.server.port, { tls: { ...raw(cert), maxVersion: "TLSv1.2" } });
  using current = new RawClient(server.server.port, { tls: raw(cert) });
  old.greet();
  current.greet();
  await eventually(() => old.isClosed && current.types().includes(FRAME.end));
  expect(old.frames).toEqual([]);
});
