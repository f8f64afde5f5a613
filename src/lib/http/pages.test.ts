import { expect, test } from "bun:test";
import { connect } from "node:net";
import { servePages } from "./pages.ts";

test("a connection is closed after its response, even if the client requests keep-alive", async () => {
  await using server = await servePages({
    host: "127.0.0.1",
    port: 0,
    pages: { "/a": () => ({ status: 200, body: "x" }) },
  });
  const ended = await new Promise<string>((resolve, reject) => {
    let text = "";
    const socket = connect(server.port, "127.0.0.1", () =>
      socket.write("GET /a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"),
    );
    socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
    socket.on("close", () => resolve(text));
    socket.on("error", reject);
  });
  expect(ended).toMatch(/^HTTP\/1.1 200 /);
});
