// In which order the service does what it is asked, seen by what it asks its datastore.
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { type Datastore, NotFound, Unavailable } from "../../datastore/index.ts";
import { createLogger } from "../../lib/log/log.ts";
import { startCniService } from "./service.ts";

/** A service whose datastore is ready and has no endpoints. Other reads wait until they are let go, and then fail. */
class StuckService implements AsyncDisposable {
  /** What was asked of the datastore. */
  asked = "";
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
        this.asked += JSON.stringify(key);
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

  letGo(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  async ask(container: string, name = "n"): Promise<Socket> {
    const socket = connect({ path: this.#path, allowHalfOpen: true });
    await once(socket, "connect");
    const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: container, CNI_IFNAME: "eth0", CNI_PATH: "/x" };
    const conf = { cniVersion: "1.0.0", name, nodename: "n1", nodename_file_optional: true };
    socket.end(`${JSON.stringify({ env })}\n${JSON.stringify({ ...conf, ipam: { type: "calico-ipam" } })}`);
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.letGo();
    await this.#service[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const next = async (socket: Socket): Promise<string> => String((await once(socket, "data"))[0]);
const TRY_AGAIN_LATER = /^1\n\{.*"code":11.*\}\n$/;

async function eventually(isSo: () => boolean): Promise<void> {
  while (!isSo()) await Bun.sleep(1);
}

test("what is asked about one attachment is done in order, and not at all if nobody waits for it any more", async () => {
  await using service = new StuckService();
  const first = await service.ask("same");
  await eventually(() => service.asked.includes("same"));
  service.asked = "";
  const killed = await service.ask("same", "killed");
  const second = await service.ask("same");
  const other = await service.ask("other");
  await eventually(() => service.asked.includes("other"));
  expect(service.asked).not.toContain("same");
  killed.destroy();
  await once(killed, "close");
  service.letGo();
  expect(await next(first)).toMatch(TRY_AGAIN_LATER);
  await eventually(() => {
    service.letGo(); // the other attachment holds the lock of the host's addresses
    return service.asked.includes("n.same");
  });
  service.letGo();
  expect(await next(second)).toMatch(TRY_AGAIN_LATER);
  expect(service.asked).not.toContain("killed");
  other.destroy();
});

test("whoever waits for an answer gets a sign every second", async () => {
  await using service = new StuckService();
  const socket = await service.ask("c");
  expect(await next(socket)).toBe(" ");
  service.letGo();
  expect(await next(socket)).toMatch(TRY_AGAIN_LATER);
});
