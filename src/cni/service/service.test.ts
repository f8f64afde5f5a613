// Checks the order in which the service handles requests, by the reads that it sends to its datastore.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { type Datastore, NotFound, Unavailable } from "../../datastore/index.ts";
import { createLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { startCniService } from "./service.ts";

/** A service whose datastore is ready and has no endpoints. Other reads wait for `failReads`, and then fail. */
class StuckService implements AsyncDisposable {
  /** The keys that were read, as JSON. */
  reads = "";
  readonly #folder = mkdtempSync(join(tmpdir(), "cni-service-"));
  readonly #path = join(this.#folder, "cni.sock");
  readonly #waiting: (() => void)[] = [];
  readonly #store = new Proxy({ name: "sqlite" } as Datastore, {
    get: (target, property) => {
      if (property === "name") return target.name;
      if (property === "transact" || property === "then") return undefined;
      return async (key: { readonly kind?: string }) => {
        if (key.kind === "ClusterInformation" && property === "get")
          return { value: { spec: { datastoreReady: true } } };
        this.reads += JSON.stringify(key);
        if (key.kind === "WorkloadEndpoint") throw new NotFound("the endpoint");
        return new Promise((_, reject) => this.#waiting.push(() => reject(new Unavailable("sqlite", "a test"))));
      };
    },
  });
  readonly #service = startCniService({
    store: this.#store,
    log: createLogger({ level: "error", write: () => {} }),
    path: this.#path,
    env: {},
  });

  failReads(): void {
    for (const fail of this.#waiting.splice(0)) fail();
  }

  async send(container: string, name = "n"): Promise<Socket> {
    const socket = connect({ path: this.#path, allowHalfOpen: true });
    await once(socket, "connect");
    const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: container, CNI_IFNAME: "eth0", CNI_PATH: "/x" };
    const conf = { cniVersion: "1.0.0", name, nodename: "n1", nodename_file_optional: true };
    socket.end(`${JSON.stringify({ env })}\n${JSON.stringify({ ...conf, ipam: { type: "calico-ipam" } })}`);
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.failReads();
    await this.#service[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const next = async (socket: Socket): Promise<string> => String((await once(socket, "data"))[0]);
const TRY_AGAIN_LATER = /^1\n\{.*"code":11.*\}\n$/;

test("requests for one attachment run sequentially, and not at all if the caller has disconnected", async () => {
  await using service = new StuckService();
  const first = await service.send("same");
  await eventually(() => service.reads.includes("same"));
  service.reads = "";
  const killed = await service.send("same", "killed");
  const second = await service.send("same");
  const other = await service.send("other");
  await eventually(() => service.reads.includes("other"));
  expect(service.reads).not.toContain("same");
  killed.destroy();
  await once(killed, "close");
  service.failReads();
  expect(await next(first)).toMatch(TRY_AGAIN_LATER);
  await eventually(() => {
    service.failReads(); // the other attachment holds the lock of the host's addresses
    return service.reads.includes("n.same");
  });
  service.failReads();
  expect(await next(second)).toMatch(TRY_AGAIN_LATER);
  expect(service.reads).not.toContain("killed");
  other.destroy();
});

test("a waiting caller gets a keepalive every second", async () => {
  await using service = new StuckService();
  const socket = await service.send("c");
  expect(await next(socket)).toBe(" ");
  service.failReads();
  expect(await next(socket)).toMatch(TRY_AGAIN_LATER);
});
