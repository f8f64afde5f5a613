import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { RequestServer } from "./request-server.ts";
import { eventually, staysTrue } from "../../lib/testing/eventually.ts";

test("keepalives are sent before the reply, up to a limit", async () => {
  const folder = mkdtempSync(join(tmpdir(), "request-server-"));
  const path = join(folder, "sock");
  const work = Promise.withResolvers<string>();
  const server = new RequestServer({
    path,
    onRequest: () => work.promise,
    onFailure: () => {},
    keepaliveIntervalMs: 1,
  });
  try {
    const socket = connect({ path, allowHalfOpen: true });
    await once(socket, "connect");
    let received = "";
    socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
    socket.end("work");
    await eventually(() => received.length >= 180);
    await staysTrue(() => received === " ".repeat(180), 20); // without the limit, twenty more would arrive
    work.resolve("done");
    await once(socket, "end");
    expect(received).toBe(`${" ".repeat(180)}done`);
  } finally {
    work.resolve("");
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("a server without a free descriptor waits for one without using the CPU, and then replies", async () => {
  const folder = mkdtempSync(join(tmpdir(), "request-server-"));
  const path = join(folder, "sock");
  const program = `
    import { closeSync, openSync } from "node:fs";
    import { connect } from "node:net";
    import { RequestServer } from ${JSON.stringify(join(import.meta.dir, "request-server.ts"))};
    await using server = new RequestServer({ path: process.env.SOCKET, onRequest: async () => "done", onFailure: () => {} });
    await new Promise((resolve) => {
      const socket = connect({ path: process.env.SOCKET, allowHalfOpen: true }, () => socket.end("?"));
      socket.on("end", resolve).resume(); // the thread has started
    });
    const held = [];
    try { for (;;) held.push(openSync("/dev/null")); } catch {}
    console.log("full");
    await Bun.sleep(200);
    const { user, system } = process.cpuUsage();
    await Bun.sleep(500);
    const since = process.cpuUsage({ user, system });
    console.log((since.user + since.system) / 1000);
    for (const fd of held) closeSync(fd);
    await Bun.sleep(200);
  `;
  const child = Bun.spawn(["prlimit", "--nofile=80", process.execPath, "-e", program], {
    env: { ...process.env, SOCKET: path },
    stdout: "pipe",
    stderr: "inherit",
  });
  try {
    const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    expect((await lines.read()).value).toBe("full\n");
    const socket = connect({ path, allowHalfOpen: true });
    let received = "";
    socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
    await once(socket, "connect");
    socket.end("work");
    const busyMs = Number((await lines.read()).value);
    expect(busyMs).toBeLessThan(250);
    await once(socket, "end");
    expect(received.trim()).toBe("done");
    expect(await child.exited).toBe(0);
  } finally {
    child.kill();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("the worker thread collects its garbage", async () => {
  const folder = mkdtempSync(join(tmpdir(), "request-server-"));
  const path = join(folder, "sock");
  const program = `
    import { readFileSync } from "node:fs";
    import { RequestServer } from ${JSON.stringify(join(import.meta.dir, "request-server.ts"))};
    await using server = new RequestServer({ path: process.env.SOCKET, onRequest: async () => "done", onFailure: () => {} });
    const ownMemory = () => {
      Bun.gc(true);
      return Number(/^Pss_Anon:\\s+(\\d+) kB/m.exec(readFileSync("/proc/self/smaps_rollup", "utf8"))[1]) / 1024;
    };
    console.log("ready");
    for await (const _ of console) console.log(ownMemory()); // one result per input line
  `;
  const child = Bun.spawn([process.execPath, "-e", program], {
    env: { ...process.env, SOCKET: path },
    stdin: "pipe",
    stdout: "pipe",
  });
  try {
    const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    expect((await lines.read()).value).toBe("ready\n");
    const memoryAfter = async (requests: number): Promise<number> => {
      for (let i = 0; i < requests; i++) {
        const socket = connect({ path, allowHalfOpen: true }, () => socket.end("y".repeat(900)));
        await once(socket.resume(), "end");
      }
      child.stdin.write("\n");
      await child.stdin.flush();
      return Number((await lines.read()).value);
    };
    const before = await memoryAfter(100); // the thread has started and its code is compiled
    const after = await memoryAfter(3000);
    expect(after - before).toBeLessThan(11); // about 7, and 16 without collections
  } finally {
    child.kill();
    await child.exited;
    rmSync(folder, { recursive: true, force: true });
  }
}, 60_000);
