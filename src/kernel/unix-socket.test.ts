import { expect, test } from "bun:test";
import { closeSync, fstatSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as sys from "./sys.ts";
import { CONTROL, CONTROL_LENGTH, PAYLOAD, prepareMessage, SCM_RIGHTS, unixAddress } from "./unix-message.ts";
import { listenUnix, receivePiece } from "./unix-socket.ts";

test("every descriptor that comes with a piece is told, so that it can be closed", () => {
  const folder = mkdtempSync(join(tmpdir(), "unix-"));
  const open = [listenUnix(join(folder, "s"))];
  try {
    const client = sys.socket(sys.AF_UNIX, sys.SOCK_STREAM, 0);
    expect(sys.connect(client, unixAddress(join(folder, "s")))).toBe(0);
    const server = sys.accept(open[0]!);
    open.push(client, server);
    const files = ["/dev/null", "/dev/zero"].map((path) => openSync(path, "r"));
    const memory = sys.pinnedMemory();
    const header = prepareMessage(memory, 1, CONTROL_LENGTH);
    memory.bytes[PAYLOAD] = 65;
    memory.view.setBigUint64(CONTROL, 24n, true); // cmsghdr: 16 bytes and two descriptors
    memory.view.setInt32(CONTROL + 8, sys.SOL_SOCKET, true);
    memory.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
    for (const [i, file] of files.entries()) memory.view.setInt32(CONTROL + 16 + 4 * i, file, true);
    expect(sys.sendmsg(client, header, 0)).toBe(1);
    const { bytes, descriptors } = receivePiece(server)!;
    expect([[...bytes], descriptors.length]).toEqual([[65], 2]);
    expect(descriptors.map((fd) => fstatSync(fd).rdev)).toEqual(files.map((fd) => fstatSync(fd).rdev));
    for (const fd of [...files, ...descriptors]) closeSync(fd);
  } finally {
    for (const fd of open) sys.close(fd);
    rmSync(folder, { recursive: true });
  }
});
