// Encodes and decodes sockaddr_in and sockaddr_in6, for system calls and netlink attributes.
// https://man7.org/linux/man-pages/man7/ip.7.html, https://man7.org/linux/man-pages/man7/ipv6.7.html
import { addressBytes, addressFromBytes, type IpAddress, type IpVersion } from "../../lib/ip/ip.ts";
import { AF_INET, AF_INET6, allocate, type Bytes } from "./sys.ts";

/** @param address undefined = the unspecified address (INADDR_ANY) */
export function socketAddress(version: IpVersion, address: IpAddress | undefined, port: number): Bytes {
  const bytes = allocate(version === 4 ? 16 : 28);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, version === 4 ? AF_INET : AF_INET6, true);
  view.setUint16(2, port);
  if (address !== undefined) bytes.set(addressBytes(address), version === 4 ? 4 : 8);
  return bytes;
}

export function readSocketAddress(bytes: Uint8Array): { readonly address: IpAddress; readonly port: number } {
  const isV4 = bytes[0] === AF_INET;
  const address = addressFromBytes(isV4 ? bytes.subarray(4, 8) : bytes.subarray(8, 24));
  return { address, port: ((bytes[2] ?? 0) << 8) | (bytes[3] ?? 0) };
}
