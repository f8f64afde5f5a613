import { describe, expect, test } from "bun:test";
import { CniError } from "../error.ts";
import { parsePodOptions } from "./annotations.ts";

describe("of an annotation of 256 kB, an error contains at most 200 characters", () => {
  const long = "x".repeat(256 * 1024);
  const cases = [
    ["ipAddrs", long],
    ["ipAddrs", JSON.stringify([long])],
    ["ipAddrsNoIpam", long],
    ["floatingIPs", JSON.stringify([long])],
    ["hwAddr", long],
    ["allowedSourcePrefixes", JSON.stringify([long])],
  ] as const;
  for (const [name, text] of cases)
    test(`${name}: ${text.slice(0, 4)}…`, () => {
      const parse = () => parsePodOptions({ [`cni.projectcalico.org/${name}`]: text });
      expect(parse).toThrow(CniError);
      expect(parse).toThrow(/^[^]{1,400}$/);
    });
});
