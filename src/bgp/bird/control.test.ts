import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BirdControl, BirdRejected, BirdUnreachable, connectBird } from "./control.ts";

const folder = mkdtempSync(join(tmpdir(), "calico-bird-"));
const servers: Server[] = [];
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
  rmSync(join(folder, "ctl"), { force: true });
});

/** Sends a greeting, then for each line the result of `reply`; sends nothing if that is undefined. */
function listen(
  reply: (command: string) => string | undefined,
  greeting = "0001 BIRD 2.0.12 ready.\n",
): Promise<string> {
  const path = join(folder, "ctl");
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.write(greeting);
      socket.on("data", (data) => {
        const text = reply(data.toString().trim());
        // in pieces, like a real socket
        for (const piece of text?.match(/[\s\S]{1,7}/g) ?? []) socket.write(piece);
      });
    });
    servers.push(server);
    server.listen(path, () => resolve(path));
  });
}

describe("NB-140 BIRD's control socket", () => {
  test("replies are parsed into lines with codes", async () => {
    using control = await BirdControl.connect(await listen((command) => `1002-${command}\n more\n1003-\n0000 end\n`));
    expect(await control.request("show x")).toEqual([
      { code: 1002, text: "show x" },
      { code: 1002, text: "more" },
      { code: 1003, text: "" },
      { code: 0, text: "end" },
    ]);
    const both = await Promise.all(
      [control.request("a"), control.request("b")].map((lines) => lines.then(([first]) => first?.text)),
    );
    expect(both[0]).toContain("a");
  });

  test("a rejection has the command and the reason", async () => {
    using control = await BirdControl.connect(await listen(() => "9001 syntax error\n"));
    const failure = await control.request("nonsense").catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(BirdRejected);
    expect((failure as Error).message).toBe('BIRD rejected "nonsense": syntax error');
  });

  test("no reply, another server and a missing socket are BirdUnreachable", async () => {
    using silent = await BirdControl.connect(await listen(() => undefined), 500);
    await expect(silent.request("x")).rejects.toThrow("no reply within 500 ms");
    await expect(BirdControl.connect(join(folder, "nowhere"))).rejects.toBeInstanceOf(BirdUnreachable);
  });
  test("another server on the socket", async () => {
    await expect(BirdControl.connect(await listen(() => "", "220 smtp\n"))).rejects.toThrow("invalid reply");
  });

  test("the second socket is tried if the first does not exist", async () => {
    const path = await listen(() => "0000 fine\n");
    using control = await connectBird([join(folder, "nowhere"), path]);
    expect(await control.request("x")).toEqual([{ code: 0, text: "fine" }]);
    await expect(connectBird([join(folder, "a"), join(folder, "b")])).rejects.toBeInstanceOf(BirdUnreachable);
  });

  test("a command must be one line", async () => {
    using control = await BirdControl.connect(await listen(() => "0000 \n"));
    await expect(control.request("show x\nconfigure")).rejects.toBeInstanceOf(TypeError);
  });
});
