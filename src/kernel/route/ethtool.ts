// Reads and sets the transmit checksum offload of a device with the SIOCETHTOOL ioctl (ethtool(8), `tx`).
import { isLinkName } from "./links.ts";
import { checkSyscall } from "../sys/kernel-error.ts";
import { AF_INET, close, ioctl, pinnedMemory, SOCK_DGRAM, socket } from "../sys/sys.ts";

const SIOCETHTOOL = 0x8946;
const ETHTOOL_GTXCSUM = 0x16;
const ETHTOOL_STXCSUM = 0x17;
const IFREQ_DATA = 16; // follows the name
const VALUE = 64; // ethtool_value, follows the ifreq

/** For a device in the calling thread's network namespace. */
export function hasTransmitChecksumOffload(name: string): boolean {
  return ethtool(name, ETHTOOL_GTXCSUM, 0) !== 0;
}

export function setTransmitChecksumOffload(name: string, isOn: boolean): void {
  ethtool(name, ETHTOOL_STXCSUM, isOn ? 1 : 0);
}

function ethtool(name: string, command: number, value: number): number {
  if (!isLinkName(name)) throw new RangeError(`${JSON.stringify(name)} is not a valid link name`);
  const fd = checkSyscall(socket(AF_INET, SOCK_DGRAM, 0), "open a socket for ethtool");
  try {
    const { address, bytes, view } = pinnedMemory();
    bytes.fill(0, 0, VALUE + 8);
    bytes.set(new TextEncoder().encode(name));
    view.setBigUint64(IFREQ_DATA, BigInt(address + VALUE), true);
    view.setUint32(VALUE, command, true);
    view.setUint32(VALUE + 4, value, true);
    checkSyscall(ioctl(fd, SIOCETHTOOL, address), `access the checksum offload of link ${name}`);
    return view.getUint32(VALUE + 4, true);
  } finally {
    close(fd);
  }
}
