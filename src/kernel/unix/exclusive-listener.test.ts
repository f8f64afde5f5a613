import {
  chmodSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "bun:test";
import { RequestServer } from "./request-server.ts";
import { SocketInUse } from "./exclusive-listener.ts";
import { tryLock } from "../sys/sys.ts";

let folder = "";
let path = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "exclusive-listener-"));
  path = join(folder, "sock");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const serve = (reply: string): RequestServer =>
  new RequestServer({ path, onRequest: async () => reply, onFailure: () => {} });

function request(): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let reply = "";
  const socket = connect({ path, allowHalfOpen: true }, () => socket.end("?"));
  socket.on("data", (chunk: Buffer) => (reply += chunk.toString()));
  socket.on("error", (error) => resolve(error.message));
  socket.on("end", () => resolve(reply.trim()));
  return promise;
}

test("clients that are connected when a server stops get a reply", async () => {
  const server = serve("still");
  expect(await request()).toBe("still");
  const sockets = Array.from({ length: 20 }, () => connect({ path, allowHalfOpen: true }));
  const replies = sockets.map(
    (socket) => new Promise<string>((resolve) => socket.on("data", (chunk: Buffer) => resolve(chunk.toString()))),
  );
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.on("connect", resolve))));
  const ended = server[Symbol.asyncDispose]();
  expect(existsSync(path)).toBeFalse();
  for (const socket of sockets) socket.end("?");
  expect(await Promise.all(replies)).toEqual(sockets.map(() => "still"));
  await ended;
});

test("a client that sends nothing does not prevent a server from stopping", async () => {
  const server = serve("x");
  expect(await request()).toBe("x");
  const socket = connect({ path, allowHalfOpen: true });
  await new Promise((resolve) => socket.on("connect", resolve));
  const began = performance.now();
  await server[Symbol.asyncDispose]();
  expect(performance.now() - began).toBeLessThan(5000);
  socket.destroy();
});

test("a lock on the folder, which every user who may read it can take, does not block a server", async () => {
  const held = openSync(folder, "r");
  expect(tryLock(held)).toBe(0);
  const server = serve("here");
  expect(await request()).toBe("here");
  await server[Symbol.asyncDispose]();
  closeSync(held);
  expect(readdirSync(folder)).toEqual([]);
});

test("only its own user can access the socket, and the target of a replaced link keeps its mode", async () => {
  const target = join(folder, "target");
  writeFileSync(target, "");
  chmodSync(target, 0o644);
  symlinkSync(target, path);
  await using _server = serve("here");
  expect([path, target].map((file) => statSync(file).mode & 0o777)).toEqual([0o600, 0o644]);
});

test("a lock file that is a symbolic link or a named pipe is an error at once", async () => {
  const target = join(folder, "target");
  symlinkSync(target, `${path}.lock`);
  expect(() => serve("never")).toThrow("ELOOP");
  expect(existsSync(target)).toBeFalse();
  rmSync(`${path}.lock`);
  expect(Bun.spawnSync(["mkfifo", `${path}.lock`]).exitCode).toBe(0);
  // Without O_NONBLOCK, open() would wait until something reads from the pipe.
  await using reader = Bun.spawn(["timeout", "3", "sh", "-c", 'sleep 2; exec cat "$0"', `${path}.lock`]);
  const began = performance.now();
  expect(() => serve("never")).toThrow("ENXIO");
  expect(performance.now() - began).toBeLessThan(1500);
  reader.kill();
});

test("a server does not replace the socket of another server that listens", async () => {
  await using _first = serve("first");
  expect(() => serve("second")).toThrow(SocketInUse);
  expect(await request()).toBe("first");
});

test("a server that stops does not delete the socket of another process", async () => {
  const first = serve("first");
  rmSync(path);
  await using _second = serve("second");
  await first[Symbol.asyncDispose]();
  expect(await request()).toBe("second");
});

test("a server replaces the socket and the lock file of an on-demand service of an earlier version", async () => {
  await using _onDemand = serve("on demand");
  chmodSync(path, 0o1600);
  writeFileSync(`${path}.stand-in`, "");
  await using _agent = serve("agent");
  expect(await request()).toBe("agent");
  expect(readdirSync(folder)).toEqual(["sock"]);
  expect(() => serve("third")).toThrow(SocketInUse);
});
