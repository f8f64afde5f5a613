// Tests the connection to etcd: certificates, users, discovery, dead and silent servers.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, readFileSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import {
  type Datastore,
  type EtcdConfig,
  InvalidConfig,
  NotFound,
  Unauthorized,
  Unavailable,
} from "../../src/datastore/index.ts";
import { type EtcdOptions, openEtcd } from "../../src/datastore/etcd/etcd-datastore.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { TestAuthority } from "../support/certificates.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { freePort } from "../support/free-port.ts";
import { EventLog } from "./contract.ts";
import { pool, poolKey } from "./entries.ts";

const POOLS = { type: "resource", kind: "IPPool" } as const;
const fault = (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => new Error("it succeeded"),
    (error: unknown) => error as Error,
  );

async function withStore<T>(
  config: EtcdConfig,
  options: EtcdOptions,
  use: (store: Datastore) => Promise<T>,
): Promise<T> {
  const store = await openEtcd(config, options);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}

/** Signed tokens become invalid with every change of etcd's users; tokens in the server's memory do not. */
const signedTokens = ({ certFile, keyFile }: TestAuthority): readonly string[] => [
  "--auth-token",
  `jwt,pub-key=${certFile},priv-key=${keyFile},sign-method=ES256,ttl=3m`,
];

function enableAccounts(on: EtcdServer): void {
  for (const command of [
    ["user", "add", "root:secret"],
    ["user", "add", "felix:pass"],
    ["user", "grant-role", "root", "root"],
    ["role", "add", "calico"],
    ["role", "grant-permission", "calico", "--prefix=true", "readwrite", "/calico/"],
    ["user", "grant-role", "felix", "calico"],
    ["auth", "enable"],
  ])
    on.etcdctl(...command);
}

let server: EtcdServer;
beforeAll(async () => {
  server = await EtcdServer.start({ tls: true });
});
afterAll(() => server[Symbol.asyncDispose]());

for (const oneShot of [false, true])
  describe(oneShot ? "over the JSON gateway" : "over gRPC", () => {
    const options: EtcdOptions = { oneShot, timeoutMs: 900 };
    const get = (config: EtcdConfig, more: EtcdOptions = {}) =>
      fault(withStore(config, { ...options, ...more }, (store) => store.get(poolKey("none"))));

    test("DM-091 certificates come from files or inline", async () => {
      expect(await get(server.config)).toBeInstanceOf(NotFound);
      const inline = (source: unknown) => ({ pem: readFileSync((source as { file: string }).file, "utf8") });
      const { ca, cert, key } = server.config.tls!;
      const tls = { ca: inline(ca), cert: inline(cert), key: inline(key) };
      expect(await get({ ...server.config, tls })).toBeInstanceOf(NotFound);
      const garbled = await get({ ...server.config, tls: { ...tls, key: { pem: "no key" } } });
      expect(garbled).toBeInstanceOf(InvalidConfig);
      expect(garbled.message).toContain("etcd client key: the configured value is not in PEM format");
    });

    test("DM-091 the host name is checked against the certificate", async () => {
      const named = server.url.replace("127.0.0.1", "localhost");
      expect(await get({ ...server.config, endpoints: [named] })).toBeInstanceOf(NotFound);
      const other = server.authority!.issue("elsewhere", ["DNS:elsewhere.example"]);
      await using stranger = await EtcdServer.start({
        tls: true,
        serverCertificate: { certificate: other, authority: server.authority! },
      });
      for (const host of ["127.0.0.1", "localhost"]) {
        const endpoints = [stranger.url.replace("127.0.0.1", host)];
        const error = await get({ ...server.config, endpoints });
        expect(error).toBeInstanceOf(Unavailable);
        expect(error.message).toMatch(/certificate|altname|hostname/i);
      }
    });

    test("DM-091 a server certificate of another CA is rejected, and so is a client without a certificate", async () => {
      const rogue = new TestAuthority(server.folder, `rogue ${oneShot}`);
      const wrongAuthority = { ...server.config.tls, ca: { file: rogue.certFile } };
      const distrusted = await get({ ...server.config, tls: wrongAuthority });
      expect(distrusted).toBeInstanceOf(Unavailable);
      expect(distrusted.message).toMatch(/certificate/i);
      const bare = await get({ ...server.config, tls: { ca: server.config.tls!.ca! } });
      expect(bare).toBeInstanceOf(Unavailable);
      expect(bare.message).toMatch(/(rejected|accepts) the client certificate/);
      const own = rogue.issue("intruder");
      const intruder = { ca: server.config.tls!.ca!, cert: { file: own.certFile }, key: { file: own.keyFile } };
      const refused = await get({ ...server.config, tls: intruder });
      expect(refused).toBeInstanceOf(Unavailable);
      expect(refused.message).toMatch(/(rejected|accepts) the client certificate/);
    });

    test("DM-091 a wrong certificate fails at once, and the error contains which one and why", async () => {
      const patient = { timeoutMs: 20_000 };
      const started = performance.now();
      const { ca, cert, key } = server.config.tls!;
      const stranger = new TestAuthority(server.folder, `stranger ${oneShot}`).issue("stranger");
      const distrusted = await get(
        { ...server.config, tls: { ca: { file: stranger.certFile }, cert: cert!, key: key! } },
        patient,
      );
      expect(distrusted.message).toMatch(/is not signed by the configured CA \(ETCD_CA_CERT_FILE\)/);
      const unpaired = await get(
        { ...server.config, tls: { ca: ca!, cert: cert!, key: { file: stranger.keyFile } } },
        patient,
      );
      expect(unpaired).toBeInstanceOf(InvalidConfig);
      expect(unpaired.message).toBe("etcd client key: does not match the client certificate");
      const hollow = { pem: "-----BEGIN CERTIFICATE-----\nhello\n-----END CERTIFICATE-----\n" };
      const garbled = await get({ ...server.config, tls: { ca: hollow } }, patient);
      expect(garbled).toBeInstanceOf(InvalidConfig);
      expect(garbled.message).toBe("etcd CA certificate: the text between BEGIN and END is not a certificate");
      expect(performance.now() - started).toBeLessThan(10_000);
    });

    test("https to a server without TLS: the error suggests http", async () => {
      await using plain = await EtcdServer.start();
      const error = await get({ type: "etcdv3", endpoints: [plain.url.replace("http:", "https:")] });
      expect(error.message).toMatch(/check that the server uses TLS on this port|it may require http \(/);
    });

    test("http to a server with TLS: the error suggests https", async () => {
      const error = await get({ type: "etcdv3", endpoints: [server.url.replace("https:", "http:")] });
      expect(error).toBeInstanceOf(Unavailable);
      expect(error.message).toMatch(/; it may require https \(tried for/);
    });

    test("DM-091 endpoints are found by SRV records, those with TLS first", async () => {
      const port = Number(new URL(server.url).port);
      const asked: string[] = [];
      const resolveSrv: EtcdOptions["resolveSrv"] = async (name) => {
        asked.push(name);
        if (name.startsWith("_etcd-client-ssl")) return [{ name: "localhost", port, priority: 1, weight: 1 }];
        throw new Error(`no such name ${name}`);
      };
      const { endpoints: _, ...rest } = server.config;
      const config = { ...rest, endpoints: [], discoverySrv: "example.org" };
      expect(await get(config, { resolveSrv })).toBeInstanceOf(NotFound);
      expect(asked).toEqual(["_etcd-client-ssl._tcp.example.org", "_etcd-client._tcp.example.org"]);
      const none = await get(config, { resolveSrv: () => Promise.reject(new Error("NXDOMAIN")) });
      expect(none.message).toContain("no service records found");
    });

    test("a dead endpoint is skipped", async () => {
      const dead = `https://127.0.0.1:${await freePort()}`;
      const started = performance.now();
      expect(await get({ ...server.config, endpoints: [dead, server.url] })).toBeInstanceOf(NotFound);
      expect(performance.now() - started).toBeLessThan(900);
    });

    test("a write whose answer is lost is sent to the next endpoint, and executed once", async () => {
      await using own = await EtcdServer.start();
      for (const isForwarded of [false, true]) {
        await using proxy = await LossyProxy.start(own.url, isForwarded);
        const config = { ...own.config, endpoints: [proxy.url, own.url] };
        await withStore(own.config, options, async (direct) => {
          /** Each write has its own client, so that it is the client's first request. */
          const write = <T>(use: (store: Datastore) => Promise<T>): Promise<T> => {
            proxy.loseNextWrite();
            return withStore(config, { ...options, timeoutMs: 3000 }, use);
          };
          const name = `lost-${isForwarded}`;
          const made = await write((store) => store.create(pool(name)));
          expect(await direct.get(poolKey(name))).toEqual(made);
          const changed = await write((store) => store.update({ ...made, value: pool(name, "10.1.0.0/16").value }));
          expect(await direct.get(poolKey(name))).toEqual(changed);
          const both = await write((store) =>
            store.transact!([
              { op: "update", entry: { ...changed, value: pool(name).value } },
              { op: "create", entry: pool(`${name}-2`) },
            ]),
          );
          const revision = both.done ? both.revisions[0] : "refused";
          expect((await direct.get(poolKey(name))).revision).toBe(revision!);
          expect((await direct.get(poolKey(`${name}-2`))).revision).toBe(revision!);
          await write((store) => store.delete(poolKey(name), { revision: revision! }));
          expect(await fault(direct.get(poolKey(name)))).toBeInstanceOf(NotFound);
          expect(proxy.lost).toBe(4);
        });
      }
    });

    test("without a server, the error contains endpoint, reason and duration, within the timeout", async () => {
      const dead = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`];
      const started = performance.now();
      const error = await get({ type: "etcdv3", endpoints: dead });
      expect(performance.now() - started).toBeLessThan(2000);
      expect(error).toBeInstanceOf(Unavailable);
      expect(error.message).toContain(dead[0]!);
      expect(error.message).toContain(dead[1]!);
      expect(error.message).toMatch(/refused|unable to connect/i);
      expect(error.message).toMatch(/tried for \d+\.\d s/);
    });

    test("with a silent server, the error is the same, and other endpoints get their share of the time", async () => {
      using silent = await SilentServer.start();
      const started = performance.now();
      const error = await get({ type: "etcdv3", endpoints: [silent.url] });
      expect(performance.now() - started).toBeLessThan(2500);
      expect(error).toBeInstanceOf(Unavailable);
      expect(error.message).toContain(silent.url);
      expect(await get({ ...server.config, endpoints: [silent.url, server.url] })).toBeInstanceOf(NotFound);
    });

    test("a client continues after a restart of etcd", async () => {
      await using own = await EtcdServer.start();
      await withStore(own.config, { oneShot, timeoutMs: 1000 }, async (store) => {
        await store.create(pool("a"));
        await own.kill();
        expect(await fault(store.get(poolKey("a")))).toBeInstanceOf(Unavailable);
        await own.run();
        await eventually(async () => (await fault(store.get(poolKey("a")))).message === "it succeeded", 5000);
      });
    });

    test("DM-091 a user logs in, and again when the session is lost; a wrong password is reported", async () => {
      await using own = await EtcdServer.start();
      enableAccounts(own);
      const as = (username: string, password: string) => ({ ...own.config, credentials: { username, password } });
      await withStore(as("felix", "pass"), { ...options, timeoutMs: 5000 }, async (store) => {
        await store.create(pool("a"));
        await own.kill(); // sessions are only in the server's memory
        await own.run();
        expect((await store.get(poolKey("a"))).key.name).toBe("a");
      });
      const wrong = await get(as("felix", "guess"), { timeoutMs: 5000 }); // etcd takes long to check a password
      expect(wrong).toBeInstanceOf(Unauthorized);
      expect(wrong.message).not.toContain("guess");
      expect(await get(own.config)).toBeInstanceOf(Unauthorized);
    });

    test("DM-091 after a change of users the client logs in again, for reads, writes and watches", async () => {
      await using own = await EtcdServer.start({ flags: [...signedTokens(server.authority!), "--bcrypt-cost", "4"] });
      enableAccounts(own);
      const credentials = { username: "felix", password: "pass" };
      await withStore({ ...own.config, credentials }, { ...options, timeoutMs: 5000 }, async (store) => {
        const { revision } = await store.create(pool("a"));
        const change = (name: string) => own.etcdctl("--user", "root:secret", "user", "add", `${name}:pass`);
        change("one");
        expect((await store.get(poolKey("a"))).key.name).toBe("a");
        change("two");
        await store.create(pool("b"));
        if (oneShot) return;
        change("three");
        await using log = await EventLog.open(store, POOLS, revision);
        await log.until(1);
        expect(log.events[0]).toMatchObject({ type: "added", item: { key: poolKey("b") } });
      });
    });

    test("credentials are ignored if authentication is disabled", async () => {
      const config = { ...server.config, credentials: { username: "felix", password: "pass" } };
      expect(await get(config)).toBeInstanceOf(NotFound);
    });
  });

describe("watches over gRPC", () => {
  test("a watch fails with Unavailable when etcd is killed, and a watch from its revision misses no change", async () => {
    await using own = await EtcdServer.start();
    await withStore(own.config, { timeoutMs: 5000 }, async (store) => {
      await using log = await EventLog.open(store, POOLS);
      await log.until(1);
      const a = await store.create(pool("a"));
      await log.until(2);
      await own.kill();
      expect(await fault(log.until(99))).toBeInstanceOf(Unavailable);
      await own.run();
      await store.create(pool("b"));
      await using again = await EventLog.open(store, POOLS, a.revision);
      await again.until(1);
      expect(again.events[0]).toMatchObject({ type: "added", item: { key: poolKey("b") } });
    });
  });

  test("a watch fails if the server is silent, and continues if there are only no events", async () => {
    await using own = await EtcdServer.start();
    await withStore(own.config, { timeoutMs: 2000, silenceMs: 300 }, async (store) => {
      await using log = await EventLog.open(store, POOLS);
      await log.until(1);
      await Bun.sleep(1500); // no events, but the server answers progress requests
      await store.create(pool("a"));
      await log.until(2);
      own.pause();
      const started = performance.now();
      const error = await fault(log.until(99));
      expect(error).toBeInstanceOf(Unavailable);
      expect(error.message).toContain("no message for");
      expect(performance.now() - started).toBeLessThan(3000);
    });
  });

  test("the next connection uses renewed certificates", async () => {
    await using own = await EtcdServer.start({ tls: true });
    const { ca, cert, key } = own.config.tls! as Record<string, { file: string }>;
    const shortLived = { cert: join(own.folder, "rotating.pem"), key: join(own.folder, "rotating.key") };
    const rogue = new TestAuthority(own.folder, "old authority").issue("old");
    copyFileSync(rogue.certFile, shortLived.cert);
    copyFileSync(rogue.keyFile, shortLived.key);
    const tls = { ca: ca!, cert: { file: shortLived.cert }, key: { file: shortLived.key } };
    await withStore({ ...own.config, tls }, { timeoutMs: 1000 }, async (store) => {
      expect(await fault(store.get(poolKey("a")))).toBeInstanceOf(Unavailable);
      copyFileSync(cert!.file, shortLived.cert);
      copyFileSync(key!.file, shortLived.key);
      await eventually(async () => (await fault(store.get(poolKey("a")))) instanceof NotFound, 5000);
    });
  });
});

/** Accepts connections and never answers, like a host whose etcd hangs. */
class SilentServer implements Disposable {
  readonly #sockets: Socket[] = [];
  readonly #server: Server;
  readonly url: string;

  static async start(): Promise<SilentServer> {
    const sockets: Socket[] = [];
    const server = createServer((socket) => sockets.push(socket));
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    return new SilentServer(server, sockets, port);
  }

  private constructor(server: Server, sockets: Socket[], port: number) {
    this.#server = server;
    this.#sockets = sockets;
    this.url = `http://127.0.0.1:${port}`;
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}

/** A proxy to etcd that closes the connection of a write: before the request is forwarded, or before its answer is. */
class LossyProxy implements AsyncDisposable {
  lost = 0;
  #isLosing = false;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;

  private constructor(
    readonly target: URL,
    readonly isForwarded: boolean,
  ) {
    this.#server = createServer((client) => this.#accept(client));
  }
  static async start(target: string, isForwarded: boolean): Promise<LossyProxy> {
    const proxy = new LossyProxy(new URL(target), isForwarded);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }
  /** Closes the connection of the next write. */
  loseNextWrite(): void {
    this.#isLosing = true;
  }

  #accept(client: Socket): void {
    const etcd = connect(Number(this.target.port), this.target.hostname);
    let isCut = false;
    const end = (): void => {
      client.destroy();
      etcd.destroy();
    };
    for (const socket of [client, etcd]) {
      this.#sockets.add(socket);
      socket.on("error", end);
      socket.on("close", end);
    }
    client.on("data", (chunk: Buffer) => {
      // A write is recognized by its path in JSON, and by its key in protobuf.
      if (this.#isLosing && (chunk.includes("/v3/kv/txn") || chunk.includes("lost-"))) {
        this.#isLosing = false;
        this.lost++;
        isCut = true;
        if (!this.isForwarded) return end();
      }
      etcd.write(chunk);
    });
    etcd.on("data", (chunk: Buffer) => (isCut ? end() : client.write(chunk)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
