// Offloads of a device by the old ioctl: the one setting we need is checksums left to hardware that is not there.
import { isLinkName } from "./links.ts";
import { succeed } from "./netlink-error.ts";
import { AF_INET, close, ioctl, pinnedMemory, SOCK_DGRAM, socket } from "./sys.ts";

const SIOCETHTOOL = 0x8946;
const ETHTOOL_GTXCSUM = 0x16;
const ETHTOOL_STXCSUM = 0x17;
const IFREQ_DATA = 16; // behind the name
const VALUE = 64; // ethtool_value, behind the ifreq

/** Whether the device of the calling thread's namespace leaves transmit checksums to hardware. */
export function hasTransmitChecksumOffload(name: string): boolean {
  return ethtool(name, ETHTOOL_GTXCSUM, 0) !== 0;
}

export function setTransmitChecksumOffload(name: string, isOn: boolean): void {
  ethtool(name, ETHTOOL_STXCSUM, isOn ? 1 : 0);
}

function ethtool(name: string, command: number, value: number): number {
  if (!isLinkName(name)) throw new RangeError(`${JSON.stringify(name)} is no link name`);
  const fd = succeed(socket(AF_INET, SOCK_DGRAM, 0), "open a socket for ethtool");
  try {
    const { address, bytes, view } = pinnedMemory();
    bytes.fill(0, 0, VALUE + 8);
    bytes.set(new TextEncoder().encode(name));
    view.setBigUint64(IFREQ_DATA, BigInt(address + VALUE), true);
    view.setUint32(VALUE, command, true);
    view.setUint32(VALUE + 4, value, true);
    succeed(ioctl(fd, SIOCETHTOOL, address), `change checksum offload of link ${name}`);
    return view.getUint32(VALUE + 4, true);
  } finally {
    close(fd);
  }
}
