import { expect, test } from "bun:test";
import { closeSync, fstatSync, mkdtempSync, openSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as sys from "../sys/sys.ts";
import { CONTROL, PAYLOAD, fillMsghdr, SCM_RIGHTS, unixAddress } from "./unix-message.ts";
import { listenUnix, receiveChunk } from "./unix-server.ts";

/** Sends one byte with these descriptors, and calls `receive` with the other end of the connection. */
function withDescriptors(files: readonly number[], receive: (server: number) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "unix-"));
  const open = [listenUnix(join(folder, "s"))];
  try {
    const client = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0);
    expect(sys.connect(client, unixAddress(join(folder, "s")))).toBe(0);
    const server = sys.accept(open[0]!);
    open.push(client, server);
    const memory = sys.pinnedMemory();
    const length = 16 + 4 * files.length; // cmsghdr and the descriptors
    const header = fillMsghdr(memory, 1, length);
    memory.bytes[PAYLOAD] = 65;
    memory.view.setBigUint64(CONTROL, BigInt(length), true);
    memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
    memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
    for (const [i, file] of files.entries()) memory.view.setInt32(CONTROL + 16 + 4 * i, file, true);
    expect(sys.sendmsg(client, header, 0)).toBe(1);
    receive(server);
  } finally {
    for (const fd of [...open, ...files]) sys.close(fd);
    rmSync(folder, { recursive: true });
  }
}

test("all descriptors of a chunk are returned, so that they can be closed", () => {
  const files = ["/dev/null", "/dev/zero"].map((path) => openSync(path, "r"));
  withDescriptors(files, (server) => {
    const { bytes, descriptors } = receiveChunk(server)!;
    expect([[...bytes], descriptors.length]).toEqual([[65], 2]);
    expect(descriptors.map((fd) => fstatSync(fd).rdev)).toEqual(files.map((fd) => fstatSync(fd).rdev));
    for (const fd of descriptors) closeSync(fd);
  });
});

test("a chunk with undelivered descriptors is rejected, and the delivered ones are closed", () => {
  const files = [1, 2, 3].map(() => openSync("/dev/null", "r")); // one more than the control message can contain
  withDescriptors(files, (server) => {
    const before = readdirSync("/proc/self/fd").length;
    expect(() => receiveChunk(server)).toThrow("receive the file descriptor of a request: EMFILE");
    expect(readdirSync("/proc/self/fd").length).toBe(before);
  });
});
