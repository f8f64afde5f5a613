import { expect, test } from "bun:test";
import { isGratuitous } from "./announcements.ts";

function arp(sender: string, target: string, length = 42): Uint8Array {
  const frame = new Uint8Array(length);
  const bytes = (text: string) => text.split(".").map(Number);
  if (length >= 42) {
    frame.set(bytes(sender), 28);
    frame.set(bytes(target), 38);
  }
  return frame;
}

test("an announcement is ARP of somebody about himself; questions, probes and stumps are none", () => {
  expect(isGratuitous(arp("10.65.0.2", "10.65.0.2"))).toBe(true);
  expect(isGratuitous(arp("10.65.0.2", "169.254.1.1"))).toBe(false);
  expect(isGratuitous(arp("0.0.0.0", "0.0.0.0"))).toBe(false);
  expect(isGratuitous(arp("0.0.0.0", "10.65.0.2"))).toBe(false); // is the address free?
  expect(isGratuitous(arp("", "", 30))).toBe(false);
});
