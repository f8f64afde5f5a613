import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BirdControl, BirdRefused, BirdUnreachable, connectBird } from "./control.ts";

const folder = mkdtempSync(join(tmpdir(), "calico-bird-"));
const servers: Server[] = [];
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
  rmSync(join(folder, "ctl"), { force: true });
});

/** Greets, then answers each line with what `answer` says; undefined = silence. */
function listen(answer: (command: string) => string | undefined, hello = "0001 BIRD 2.0.12 ready.\n"): Promise<string> {
  const path = join(folder, "ctl");
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.write(hello);
      socket.on("data", (data) => {
        const text = answer(data.toString().trim());
        // In pieces, as it may come.
        for (const piece of text?.match(/[\s\S]{1,7}/g) ?? []) socket.write(piece);
      });
    });
    servers.push(server);
    server.listen(path, () => resolve(path));
  });
}

describe("NB-140 BIRD's control socket", () => {
  test("answers come line by line with their codes", async () => {
    using control = await BirdControl.connect(await listen((command) => `1002-${command}\n more\n1003-\n0000 end\n`));
    expect(await control.ask("show x")).toEqual([
      { code: 1002, text: "show x" },
      { code: 1002, text: "more" },
      { code: 1003, text: "" },
      { code: 0, text: "end" },
    ]);
    const both = await Promise.all(
      [control.ask("a"), control.ask("b")].map((answer) => answer.then(([first]) => first?.text)),
    );
    expect(both[0]).toContain("a");
  });

  test("a refusal says what and why", async () => {
    using control = await BirdControl.connect(await listen(() => "9001 syntax error\n"));
    const failure = await control.ask("nonsense").catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(BirdRefused);
    expect((failure as Error).message).toBe('BIRD refused "nonsense": syntax error');
  });

  test("silence, strangers and absence are BirdUnreachable", async () => {
    using silent = await BirdControl.connect(await listen(() => undefined), 500);
    await expect(silent.ask("x")).rejects.toThrow("nothing within 500 ms");
    await expect(BirdControl.connect(join(folder, "nowhere"))).rejects.toBeInstanceOf(BirdUnreachable);
  });
  test("a stranger on the socket", async () => {
    await expect(BirdControl.connect(await listen(() => "", "220 smtp\n"))).rejects.toThrow("which is no answer");
  });

  test("the second place is tried when the first is not there", async () => {
    const path = await listen(() => "0000 fine\n");
    using control = await connectBird([join(folder, "nowhere"), path]);
    expect(await control.ask("x")).toEqual([{ code: 0, text: "fine" }]);
    await expect(connectBird([join(folder, "a"), join(folder, "b")])).rejects.toBeInstanceOf(BirdUnreachable);
  });

  test("a command is one line", async () => {
    using control = await BirdControl.connect(await listen(() => "0000 \n"));
    await expect(control.ask("show x\nconfigure")).rejects.toBeInstanceOf(TypeError);
  });
});
