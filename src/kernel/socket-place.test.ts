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
import { PlaceTaken } from "./socket-place.ts";
import { tryLock } from "./sys.ts";

let folder = "";
let path = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "socket-place-"));
  path = join(folder, "sock");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const serve = (reply: string): RequestServer =>
  new RequestServer({ path, onRequest: async () => reply, onFailure: () => {} });

function ask(): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let heard = "";
  const socket = connect({ path, allowHalfOpen: true }, () => socket.end("?"));
  socket.on("data", (chunk: Buffer) => (heard += chunk.toString()));
  socket.on("error", (error) => resolve(error.message));
  socket.on("end", () => resolve(heard.trim()));
  return promise;
}

test("who has connected before a server ends is answered", async () => {
  const server = serve("still");
  expect(await ask()).toBe("still");
  const sockets = Array.from({ length: 20 }, () => connect({ path, allowHalfOpen: true }));
  const heard = sockets.map(
    (socket) => new Promise<string>((resolve) => socket.on("data", (chunk: Buffer) => resolve(chunk.toString()))),
  );
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.on("connect", resolve))));
  const ended = server[Symbol.asyncDispose]();
  expect(existsSync(path)).toBeFalse();
  for (const socket of sockets) socket.end("?");
  expect(await Promise.all(heard)).toEqual(sockets.map(() => "still"));
  await ended;
});

test("who connects and says nothing does not keep a server from ending", async () => {
  const server = serve("x");
  expect(await ask()).toBe("x");
  const socket = connect({ path, allowHalfOpen: true });
  await new Promise((resolve) => socket.on("connect", resolve));
  const began = performance.now();
  await server[Symbol.asyncDispose]();
  expect(performance.now() - began).toBeLessThan(5000);
  socket.destroy();
});

test("whoever may read the folder can lock it, and keeps nobody from coming or going by that", async () => {
  const held = openSync(folder, "r");
  expect(tryLock(held)).toBe(0);
  const server = serve("here");
  expect(await ask()).toBe("here");
  await server[Symbol.asyncDispose]();
  closeSync(held);
  expect(readdirSync(folder)).toEqual([]);
});

test("a socket is for its own user alone, and nothing else gets its mode", async () => {
  const target = join(folder, "target");
  writeFileSync(target, "");
  chmodSync(target, 0o644);
  symlinkSync(target, path);
  await using _server = serve("here");
  expect([path, target].map((file) => statSync(file).mode & 0o777)).toEqual([0o600, 0o644]);
});

test("links next to the path are not followed, and a pipe in place of the lock file is not waited for", async () => {
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

test("a server does not replace the socket of another that listens", async () => {
  await using _first = serve("first");
  expect(() => serve("second")).toThrow(PlaceTaken);
  expect(await ask()).toBe("first");
});

test("a server that ends does not remove a socket that another process has put there", async () => {
  const first = serve("first");
  rmSync(path);
  await using _second = serve("second");
  await first[Symbol.asyncDispose]();
  expect(await ask()).toBe("second");
});

test("a server replaces the socket and the lock file of an on-demand service of an earlier version", async () => {
  await using _onDemand = serve("on demand");
  chmodSync(path, 0o1600);
  writeFileSync(`${path}.stand-in`, "");
  await using _agent = serve("agent");
  expect(await ask()).toBe("agent");
  expect(readdirSync(folder)).toEqual(["sock"]);
  expect(() => serve("third")).toThrow(PlaceTaken);
});
