// What the plugin alone spares itself: every pod's start pays for it.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost } from "./cni-host.ts";

describe.skipIf(!canRun)("a plugin without a service", () => {
  test("ends before the collector would run: it lives for milliseconds, and a collection takes several", async () => {
    await using host = await CniHost.create();
    const env = { BUN_JSC_logGC: "2" };
    const pod = host.pod();
    for (const command of ["ADD", "DEL"]) {
      const run = await host.call(command, pod, { env });
      expect(run.code).toBe(0);
      expect(run.stderr).toContain("[GC"); // the runtime says that it has a collector
      expect(run.stderr).not.toContain("START");
    }
  });
});
