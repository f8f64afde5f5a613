import { expect, test } from "bun:test";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { KubeApi, nextPageItems } from "./api-client.ts";

/** Runs `use` with a client of a server on loopback. */
async function withServer(
  listener: RequestListener,
  use: (api: KubeApi) => Promise<void>,
  timeoutMs = 300,
): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const access = {
    server: new URL(`http://127.0.0.1:${port}`),
    tls: {},
    credentials: async () => ({}),
    forget: () => {},
  };
  const api = new KubeApi(access as never, { timeoutMs });
  try {
    await use(api);
  } finally {
    api.close();
    server.closeAllConnections();
    server.close();
  }
}

test("after a page of large objects, fewer objects are requested", async () => {
  const total = 40;
  const limits: number[] = [];
  const listener: RequestListener = (request, response) => {
    const { searchParams } = new URL(request.url ?? "", "http://x");
    const limit = Number(searchParams.get("limit"));
    const start = Number(searchParams.get("continue") ?? 0);
    limits.push(limit);
    const end = Math.min(total, start + limit);
    const items = Array.from({ length: end - start }, (_, i) => ({
      metadata: { name: `set${start + i}` },
      spec: "x".repeat(1_000_000),
    }));
    const metadata = { resourceVersion: "1", ...(end < total && { continue: String(end) }) };
    response.end(JSON.stringify({ metadata, items }));
  };
  await withServer(
    listener,
    async (api) => {
      const { items } = await api.list("/apis/x/v1/sets");
      expect(items.map(({ metadata }) => metadata.name)).toEqual(Array.from({ length: total }, (_, i) => `set${i}`));
      expect(limits).toEqual([20, 8, 8, 8]);
    },
    10_000,
  );
});

test("nextPageItems: small objects give pages of 500, and a very large one a page of its own", () => {
  expect([nextPageItems(20, 20_000), nextPageItems(100, 100_000), nextPageItems(500, 900_000)]).toEqual([
    100, 500, 500,
  ]);
  expect([nextPageItems(20, 30 << 20), nextPageItems(1, 30 << 20)]).toEqual([5, 1]);
});

test("an answer may take longer than the timeout as long as data arrives", async () => {
  const listener: RequestListener = (_, response) => {
    response.write('{"metadata":{},"items":[');
    let spaces = 0;
    const timer = setInterval(() => {
      response.write(" ");
      if (++spaces < 6) return;
      clearInterval(timer);
      response.end("]}");
    }, 100);
  };
  await withServer(listener, async (api) => expect((await api.list("/x")).items).toEqual([]));
});

test("an answer without data for the timeout is an error", async () => {
  await withServer(
    (_, response) => void response.write('{"metadata":{}'),
    async (api) => {
      const error = await api.list("/x").catch((reason: unknown) => reason);
      expect(String(error)).toContain("no data for 0.3 s");
    },
  );
});
