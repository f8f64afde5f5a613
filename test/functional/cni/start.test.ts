// Checks that the plugin without a service avoids work that would delay every pod start.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost } from "./cni-host.ts";

describe.skipIf(!canRun)("a plugin without a service", () => {
  test("exits without a garbage collection, which would take several milliseconds", async () => {
    await using host = await CniHost.create();
    const env = { BUN_JSC_logGC: "2" };
    const pod = host.pod();
    for (const command of ["ADD", "DEL"]) {
      const run = await host.call(command, pod, { env });
      expect(run.code).toBe(0);
      expect(run.stderr).toContain("[GC"); // garbage collection is logged
      expect(run.stderr).not.toContain("START");
    }
  });
});
