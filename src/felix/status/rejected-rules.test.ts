import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RejectedItem } from "../../dataplane/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import { RejectedRulesReporter } from "./rejected-rules.ts";

test("rejected items are in a gauge by kind and in a file, which is deleted when the kernel accepts everything", () => {
  const prefix = mkdtempSync(join(tmpdir(), "calico-rejected-"));
  try {
    const file = join(prefix, "programmed", "rejected.json");
    const registry = new MetricsRegistry();
    const reporter = new RejectedRulesReporter({ prefix, log: silentLogger });
    reporter.measure(registry);
    const one: RejectedItem = {
      kind: "rule",
      where: "ip calico filter-cali-pi-x rule 1",
      instead: "the rule is omitted",
    };
    let rejected: RejectedItem[] = [one, { ...one, where: "elsewhere" }, { ...one, kind: "feature" }];
    reporter.onApplied(); // before the dataplane is connected
    expect(existsSync(file)).toBe(false);
    reporter.connect(() => rejected);
    reporter.onApplied();
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(rejected);
    expect(registry.render()).toContain('felix_int_dataplane_rejected{kind="rule"} 2');
    expect(registry.render()).toContain('felix_int_dataplane_rejected{kind="feature"} 1');
    rejected = [];
    reporter.onApplied();
    expect(existsSync(file)).toBe(false);
    expect(registry.render()).toContain('felix_int_dataplane_rejected{kind="rule"} 0');
  } finally {
    rmSync(prefix, { recursive: true });
  }
});
