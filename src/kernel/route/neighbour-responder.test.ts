import { expect, test } from "bun:test";
import { parseArpRequest } from "./neighbour-responder.ts";

const request = (change: (frame: Uint8Array) => void = () => {}): Uint8Array => {
  const frame = new Uint8Array(42);
  frame.set([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 99], 14);
  frame.set([192, 0, 2, 200], 38);
  change(frame);
  return frame;
};

test("FD-130 only ARP requests for IPv4 over Ethernet are parsed", () => {
  expect(parseArpRequest(request())).toEqual({
    senderMac: Uint8Array.of(2, 0, 0, 0, 0, 9),
    sender: Uint8Array.of(192, 0, 2, 99),
    target: Uint8Array.of(192, 0, 2, 200),
  });
  const others = [
    request((frame) => (frame[21] = 2)), // a reply
    request((frame) => (frame[18] = 8)), // another hardware address length
    request((frame) => (frame[16] = 0x86)), // another protocol
    request().subarray(0, 41),
    new Uint8Array(0),
  ];
  for (const frame of others) expect(parseArpRequest(frame)).toBeUndefined();
});
