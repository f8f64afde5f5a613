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
import { StandIn } from "./stand-in.ts";
import { tryLock } from "./sys.ts";

let folder = "";
let path = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "socket-place-"));
  path = join(folder, "sock");
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function serve(says: string | (() => Promise<string>), onReplaced?: () => void): RequestServer {
  const onRequest = typeof says === "string" ? async () => says : says;
  return new RequestServer({
    path,
    onRequest,
    onFailure: () => {},
    ...(onReplaced === undefined ? {} : { onReplaced }),
  });
}

function ask(): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let heard = "";
  const socket = connect({ path, allowHalfOpen: true }, () => socket.end("?"));
  socket.on("data", (chunk: Buffer) => (heard += chunk.toString()));
  socket.on("error", (error) => resolve(error.message));
  socket.on("end", () => resolve(heard.trim()));
  return promise;
}

test("one that is to stay takes the place of a stand-in, which answers what it had begun; then comes the other's turn", async () => {
  const standIn = StandIn.claim(path)!;
  const replaced = Promise.withResolvers<void>();
  const work = Promise.withResolvers<string>();
  const first = serve(() => work.promise, replaced.resolve);
  const begun = ask();
  await Bun.sleep(100); // it has been taken up
  await using _second = serve("second");
  await replaced.promise; // long before it would look by itself
  const waiting = ask();
  const ended = first[Symbol.asyncDispose]();
  const early = await Promise.race([waiting, Bun.sleep(100)]);
  expect(early).toBeUndefined();
  work.resolve("first");
  expect(await begun).toBe("first");
  await ended;
  standIn[Symbol.dispose]();
  expect(await waiting).toBe("second");
  expect(readdirSync(folder)).toEqual(["sock"]);
});

test("a stand-in takes nobody's place, and one that is to stay none but a stand-in's", async () => {
  await using _first = serve("first");
  const standIn = StandIn.claim(path)!;
  expect(() => serve("stand-in", () => {})).toThrow(PlaceTaken);
  standIn[Symbol.dispose]();
  expect(() => serve("second")).toThrow(PlaceTaken);
  expect(await ask()).toBe("first");
});

test("who ends does not take away what another has put there", async () => {
  const standIn = StandIn.claim(path)!;
  const first = serve("first", () => {});
  await using _second = serve("second");
  await first[Symbol.asyncDispose]();
  standIn[Symbol.dispose]();
  expect(await ask()).toBe("second");
});

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

test("the right to stand in is one process's, goes with its end, and leaves no file", () => {
  const first = StandIn.claim(path)!;
  expect([StandIn.claim(path), StandIn.isClaimed(path)]).toEqual([undefined, true]);
  expect(StandIn.adopt(path, first.fd)?.fd).toBe(first.fd);
  expect([StandIn.adopt(path, 0), StandIn.adopt(path, 9999)]).toEqual([undefined, undefined]);
  first[Symbol.dispose]();
  expect([StandIn.isClaimed(path), readdirSync(folder)]).toEqual([false, []]);
  const program = `import { StandIn } from ${JSON.stringify(join(import.meta.dir, "stand-in.ts"))};
    StandIn.claim(process.env.SOCKET); process.kill(process.pid, "SIGKILL");`;
  Bun.spawnSync([process.execPath, "-e", program], { env: { ...process.env, SOCKET: path } });
  expect(StandIn.isClaimed(path)).toBeFalse();
  using _second = StandIn.claim(path)!;
  expect(StandIn.isClaimed(path)).toBeTrue();
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

test("links that somebody put beside the path are not followed", () => {
  const target = join(folder, "target");
  for (const end of ["stand-in", "lock"]) symlinkSync(target, `${path}.${end}`);
  expect(() => StandIn.claim(path)).toThrow("ELOOP");
  expect(() => serve("never")).toThrow("ELOOP");
  expect(existsSync(target)).toBeFalse();
});

test("a socket is for its own user alone, and nothing else gets its mode", async () => {
  const target = join(folder, "target");
  writeFileSync(target, "");
  chmodSync(target, 0o644);
  symlinkSync(target, path);
  await using _server = serve("here");
  expect([path, target].map((file) => statSync(file).mode & 0o777)).toEqual([0o600, 0o644]);
});

test("of two that are to stay only the first takes a stand-in's place, also while that one still ends", async () => {
  using _standIn = StandIn.claim(path)!;
  await using _first = serve("first", () => {});
  await using _second = serve("second");
  expect(() => serve("third")).toThrow(PlaceTaken);
});

test("a pipe where the lock should be is refused, and nobody waits for its reader", async () => {
  for (const [end, take] of [
    [".stand-in", () => StandIn.claim(path)],
    [".lock", () => serve("never")],
  ] as const) {
    expect(Bun.spawnSync(["mkfifo", path + end]).exitCode).toBe(0);
    // Who waits would stay in open() for good: in the end somebody reads.
    await using reader = Bun.spawn(["timeout", "3", "sh", "-c", 'sleep 2; exec cat "$0"', path + end]);
    const began = performance.now();
    expect(take).toThrow("ENXIO");
    expect(StandIn.isClaimed(path)).toBeFalse();
    expect(performance.now() - began).toBeLessThan(1500);
    reader.kill();
  }
});

test("a stand-in whose file somebody removed leaves that of the next one alone", () => {
  const first = StandIn.claim(path)!;
  rmSync(`${path}.stand-in`);
  using _second = StandIn.claim(path)!;
  first[Symbol.dispose]();
  expect(StandIn.isClaimed(path)).toBeTrue();
});
