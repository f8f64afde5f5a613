import { expect, test } from "bun:test";
import { handleWarmUpRequest } from "./service.ts";
import { warmUp } from "./warm-up.ts";

test("the warm-up runs an ADD until the network namespace is missing, and a complete DEL", async () => {
  const [add, del] = await warmUp(handleWarmUpRequest);
  expect(add).toContain("open network namespace /var/run/netns/none: ENOENT");
  expect(del).toBe("0\n\n");
});
