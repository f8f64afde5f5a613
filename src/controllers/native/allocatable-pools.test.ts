import { describe, expect, test } from "bun:test";
import { parseCidr } from "../../lib/ip/ip.ts";
import { evaluatePools, type PoolFacts } from "./allocatable-pools.ts";

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
const judged = (...pools: PoolFacts[]) => Object.fromEntries(evaluatePools(pools));

describe("TC-K30 allocatable pools", () => {
  test("TC-K30 pools without an overlap are allocatable", () =>
    expect(judged(pool("a", "10.0.0.0/16"), pool("b", "10.1.0.0/16"), pool("c", "fd00::/64"))).toEqual({
      a: "OK",
      b: "OK",
      c: "OK",
    }));
  test("TC-K30 of two new pools the older one has precedence, then the first by name", () => {
    const younger = { createdAt: "2026-02-01T00:00:00Z" };
    expect(judged(pool("a", "10.0.0.0/16", younger), pool("b", "10.0.1.0/24"))).toEqual({ a: "CIDROverlap", b: "OK" });
    expect(judged(pool("b", "10.0.0.0/16"), pool("a", "10.0.1.0/24"))).toEqual({ a: "OK", b: "CIDROverlap" });
  });
  test("TC-K30 an allocatable pool has precedence over an older pool", () =>
    expect(
      judged(
        pool("elder", "10.0.0.0/16", { createdAt: "2025-01-01T00:00:00Z", allocatable: false }),
        pool("now", "10.0.0.0/24", { allocatable: true }),
      ),
    ).toEqual({ elder: "CIDROverlap", now: "OK" }));
  test("TC-K30 a pool that was rejected before has precedence over a new pool", () =>
    expect(
      judged(
        pool("new", "10.0.0.0/16", { createdAt: "2025-01-01T00:00:00Z" }),
        pool("refused", "10.0.0.0/24", { allocatable: false }),
      ),
    ).toEqual({ new: "CIDROverlap", refused: "OK" }));
  test("TC-K30 a pool that is being deleted blocks its range until it is removed", () => {
    const going = pool("going", "10.0.0.0/16", { isDeleting: true, allocatable: false });
    const next = pool("next", "10.0.0.0/16", { allocatable: false });
    expect(judged(going, next)).toEqual({ going: "Terminating", next: "CIDROverlap" });
    expect(judged(next)).toEqual({ next: "OK" });
  });
  test("TC-K30 a disabled pool blocks nothing", () =>
    expect(
      judged(pool("off", "10.0.0.0/16", { isDisabled: true, allocatable: true }), pool("b", "10.0.0.0/24")),
    ).toEqual({
      off: "Disabled",
      b: "OK",
    }));
});
