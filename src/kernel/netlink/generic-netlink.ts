// Generic netlink: looks up a family's message type by the family's name, and writes the header of its commands.
// https://docs.kernel.org/userspace-api/netlink/intro.html#generic-netlink
import { hasErrno } from "../sys/kernel-error.ts";
import type { NetlinkSocket } from "./netlink-socket.ts";
import type { NetlinkWriter } from "./netlink-writer.ts";

const GENL_ID_CTRL = 0x10;
const CTRL_CMD_GETFAMILY = 3;
const CTRL_ATTR_FAMILY_ID = 1;
const CTRL_ATTR_FAMILY_NAME = 2;
export const GENERIC_HEADER = 4; // bytes of genlmsghdr

export function writeGenericHeader(w: NetlinkWriter, command: number, version: number): void {
  w.putU8(command);
  w.putU8(version);
  w.putU16(0);
}

/** Returns the message type of a family; undefined if the kernel does not have the family. */
export function findGenericFamily(socket: NetlinkSocket, name: string): number | undefined {
  const body = (w: NetlinkWriter): void => {
    writeGenericHeader(w, CTRL_CMD_GETFAMILY, 1);
    w.string(CTRL_ATTR_FAMILY_NAME, name);
  };
  try {
    return socket.query({ operation: `find netlink family ${name}`, type: GENL_ID_CTRL, body }, (reply) => {
      const a = reply.attributes(GENERIC_HEADER);
      while (a.next()) if (a.type === CTRL_ATTR_FAMILY_ID) return a.u16();
      return undefined;
    });
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}
