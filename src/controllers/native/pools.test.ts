import { describe, expect, test } from "bun:test";
import { parseCidr } from "../../lib/ip.ts";
import { judgePools, type PoolFacts } from "./pools.ts";

const pool = (name: string, cidr: string, given: Partial<PoolFacts> = {}): PoolFacts => ({
  name,
  cidr: parseCidr(cidr),
  isDisabled: false,
  isDeleting: false,
  allocatable: undefined,
  reason: "",
  hasFinalizer: false,
  createdAt: "2026-01-01T00:00:00Z",
  ...given,
});
const judged = (...pools: PoolFacts[]) => Object.fromEntries(judgePools(pools));

describe("TC-K30 which pools may give addresses", () => {
  test("TC-K30 those that overlap nobody", () =>
    expect(judged(pool("a", "10.0.0.0/16"), pool("b", "10.1.0.0/16"), pool("c", "fd00::/64"))).toEqual({
      a: "OK",
      b: "OK",
      c: "OK",
    }));
  test("TC-K30 of two new ones the elder, then the first by name", () => {
    const younger = { createdAt: "2026-02-01T00:00:00Z" };
    expect(judged(pool("a", "10.0.0.0/16", younger), pool("b", "10.0.1.0/24"))).toEqual({ a: "CIDROverlap", b: "OK" });
    expect(judged(pool("b", "10.0.0.0/16"), pool("a", "10.0.1.0/24"))).toEqual({ a: "OK", b: "CIDROverlap" });
  });
  test("TC-K30 one that does so already is not displaced by an elder one", () =>
    expect(
      judged(
        pool("elder", "10.0.0.0/16", { createdAt: "2025-01-01T00:00:00Z", allocatable: false }),
        pool("now", "10.0.0.0/24", { allocatable: true }),
      ),
    ).toEqual({ elder: "CIDROverlap", now: "OK" }));
  test("TC-K30 one that was refused goes before one that is new", () =>
    expect(
      judged(
        pool("new", "10.0.0.0/16", { createdAt: "2025-01-01T00:00:00Z" }),
        pool("refused", "10.0.0.0/24", { allocatable: false }),
      ),
    ).toEqual({ new: "CIDROverlap", refused: "OK" }));
  test("TC-K30 one that is going keeps others out until it is gone", () => {
    const going = pool("going", "10.0.0.0/16", { isDeleting: true, allocatable: false });
    const next = pool("next", "10.0.0.0/16", { allocatable: false });
    expect(judged(going, next)).toEqual({ going: "Terminating", next: "CIDROverlap" });
    expect(judged(next)).toEqual({ next: "OK" });
  });
  test("TC-K30 one that is switched off keeps nobody out", () =>
    expect(
      judged(pool("off", "10.0.0.0/16", { isDisabled: true, allocatable: true }), pool("b", "10.0.0.0/24")),
    ).toEqual({
      off: "Disabled",
      b: "OK",
    }));
});
