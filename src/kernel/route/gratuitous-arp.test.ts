import { expect, test } from "bun:test";
import { isGratuitous } from "./gratuitous-arp.ts";

function arp(sender: string, target: string, length = 42): Uint8Array {
  const frame = new Uint8Array(length);
  const bytes = (text: string) => text.split(".").map(Number);
  if (length >= 42) {
    frame.set(bytes(sender), 28);
    frame.set(bytes(target), 38);
  }
  return frame;
}

test("only ARP with the same sender and target is gratuitous, not requests, probes or truncated frames", () => {
  expect(isGratuitous(arp("10.65.0.2", "10.65.0.2"))).toBe(true);
  expect(isGratuitous(arp("10.65.0.2", "169.254.1.1"))).toBe(false);
  expect(isGratuitous(arp("0.0.0.0", "0.0.0.0"))).toBe(false);
  expect(isGratuitous(arp("0.0.0.0", "10.65.0.2"))).toBe(false); // a probe: RFC 5227 section 2.1.1
  expect(isGratuitous(arp("", "", 30))).toBe(false);
});
