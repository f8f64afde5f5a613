// Tests metrics over TLS with every client authentication mode.
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { get } from "node:https";
import { type AddressInfo, connect } from "node:net";
import { connect as connectTls } from "node:tls";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { MetricsServer, type MetricsSettings } from "../../../src/felix/metrics/metrics-server.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { TlsPageServer } from "../../../src/lib/http/tls-pages.ts";
import { MetricsRegistry } from "../../../src/lib/metrics.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type Certificate, TestAuthority } from "../../support/certificates.ts";

const folder = mkdtempSync(join(tmpdir(), "felix-metrics-"));
const authority = new TestAuthority(folder);
const strangers = new TestAuthority(mkdtempSync(join(folder, "strangers-")));
const ours = authority.issue("scraper");
const theirs = strangers.issue("stranger");

async function serve(
  mode: MetricsSettings["PrometheusMetricsClientAuth"],
  server: Certificate,
): Promise<MetricsServer> {
  const registry = new MetricsRegistry();
  registry.gauge("up", "Up.").set(1);
  const metrics = new MetricsServer(
    registry,
    {
      PrometheusMetricsHost: "127.0.0.1",
      PrometheusMetricsPort: 0,
      PrometheusMetricsCAFile: authority.certFile,
      PrometheusMetricsCertFile: server.certFile,
      PrometheusMetricsKeyFile: server.keyFile,
      PrometheusMetricsClientAuth: mode,
    },
    silentLogger,
  );
  metrics.start();
  await eventually(() => metrics.port !== undefined);
  return metrics;
}

/** Returns the HTTP status, or 0 if the handshake fails. */
function scrape(port: number | undefined, client?: Certificate): Promise<{ status: number; serial: string }> {
  return new Promise((resolve) => {
    const request = get(
      {
        host: "127.0.0.1",
        port,
        path: "/metrics",
        agent: false,
        rejectUnauthorized: false,
        ...(client !== undefined && { cert: readFileSync(client.certFile), key: readFileSync(client.keyFile) }),
      },
      (response) => {
        const { serialNumber = "" } = (response.socket as import("node:tls").TLSSocket).getPeerCertificate();
        response.resume();
        response.on("end", () => resolve({ status: response.statusCode ?? 0, serial: serialNumber }));
      },
    );
    request.on("error", () => resolve({ status: 0, serial: "" }));
  });
}

const cases = [
  { mode: "NoClientCert", none: true, ours: true, theirs: true },
  { mode: "RequireAndVerifyClientCert", none: false, ours: true, theirs: false },
  { mode: "RequireAnyClientCert", none: false, ours: true, theirs: true },
  { mode: "VerifyClientCertIfGiven", none: true, ours: true, theirs: false },
] as const;
for (const { mode, ...want } of cases)
  test(`FC-100 metrics over TLS: ${mode}`, async () => {
    const server = await serve(mode, authority.issue(`server-${mode}`));
    try {
      const ok = async (client?: Certificate) => (await scrape(server.port, client)).status === 200;
      expect({ none: await ok(), ours: await ok(ours), theirs: await ok(theirs) }).toEqual(want);
    } finally {
      server.close();
    }
  });

test("a client that does not finish the handshake in time is disconnected, and does not block others", async () => {
  const { certFile, keyFile } = authority.issue("slow");
  const pages = new TlsPageServer({
    context: { cert: readFileSync(certFile), key: readFileSync(keyFile) },
    clientAuth: "NoClientCert",
    render: () => ({ status: 200, body: "x" }),
    handshakeMs: 200,
  });
  try {
    const port = await new Promise<number>((resolve) =>
      pages.server.listen(0, "127.0.0.1", () => resolve((pages.server.address() as AddressInfo).port)),
    );
    const silent = [connect(port, "127.0.0.1"), connect(port, "127.0.0.1")];
    silent[1]?.write(Buffer.from([0x16, 3, 1]));
    const closed = Promise.all(silent.map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    const quick = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
    await new Promise((resolve) => quick.once("secureConnect", resolve));
    await closed;
    quick.write("GET /m HTTP/1.1\r\n\r\n");
    expect(String(await new Promise((resolve) => quick.once("data", resolve)))).toStartWith("HTTP/1.1 200");
    quick.destroy();
  } finally {
    pages.close();
  }
});

test("FC-100 a renewed certificate is used without a restart", async () => {
  const own = mkdtempSync(join(folder, "own-"));
  const [first, second] = [authority.issue("first"), authority.issue("second")];
  const files: Certificate = { certFile: join(own, "tls.crt"), keyFile: join(own, "tls.key") } as Certificate;
  copyFileSync(first.certFile, files.certFile);
  copyFileSync(first.keyFile, files.keyFile);
  const server = await serve("NoClientCert", files);
  try {
    const before = (await scrape(server.port)).serial;
    copyFileSync(second.keyFile, files.keyFile);
    copyFileSync(second.certFile, files.certFile);
    await eventually(async () => {
      const { serial } = await scrape(server.port);
      return serial !== "" && serial !== before;
    });
  } finally {
    server.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
