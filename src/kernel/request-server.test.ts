import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { RequestServer } from "./request-server.ts";

test("signs of life come before the reply, but not for ever", async () => {
  const folder = mkdtempSync(join(tmpdir(), "request-server-"));
  const path = join(folder, "sock");
  const work = Promise.withResolvers<string>();
  const server = new RequestServer({ path, onRequest: () => work.promise, onFailure: () => {}, signIntervalMs: 1 });
  try {
    const socket = connect({ path, allowHalfOpen: true });
    await once(socket, "connect");
    let heard = "";
    socket.on("data", (chunk: Buffer) => (heard += chunk.toString()));
    socket.end("work");
    while (heard.length < 180) await Bun.sleep(1);
    await Bun.sleep(20); // twenty more would have come
    expect(heard).toBe(" ".repeat(180));
    work.resolve("done");
    await once(socket, "end");
    expect(heard).toBe(`${" ".repeat(180)}done`);
  } finally {
    work.resolve("");
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  }
});
