import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Refused } from "../../dataplane/index.ts";
import { silentLogger } from "../../lib/log.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import { RefusedReporter } from "./refused.ts";

test("what the kernel refuses is a gauge by kind and a file, which goes when the kernel takes everything", () => {
  const prefix = mkdtempSync(join(tmpdir(), "calico-refused-"));
  try {
    const file = join(prefix, "programmed", "refused.json");
    const registry = new MetricsRegistry();
    const reporter = new RefusedReporter({ prefix, log: silentLogger });
    reporter.measure(registry);
    const one: Refused = { kind: "rule", where: "ip calico filter-cali-pi-x, number 1", instead: "it is left out" };
    let refused: Refused[] = [one, { ...one, where: "elsewhere" }, { ...one, kind: "feature" }];
    reporter.onApplied(); // nobody told yet
    expect(existsSync(file)).toBe(false);
    reporter.listen(() => refused);
    reporter.onApplied();
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(refused);
    expect(registry.render()).toContain('felix_int_dataplane_refused{kind="rule"} 2');
    expect(registry.render()).toContain('felix_int_dataplane_refused{kind="feature"} 1');
    refused = [];
    reporter.onApplied();
    expect(existsSync(file)).toBe(false);
    expect(registry.render()).toContain('felix_int_dataplane_refused{kind="rule"} 0');
  } finally {
    rmSync(prefix, { recursive: true });
  }
});
