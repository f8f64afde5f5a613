// Whether there is an API server to test with. Where none can be had the suites are skipped, loudly; with
// REQUIRE_KUBERNETES=1 they fail instead.
import { test } from "bun:test";
import { findApiServer } from "./api-server.ts";

export const found = await findApiServer();
if ("missing" in found) {
  const loud = `KUBERNETES TESTS SKIPPED: ${found.missing}`;
  if (process.env["REQUIRE_KUBERNETES"] === "1") throw new Error(loud);
  console.error(loud);
}
export const isAvailable = !("missing" in found);
export const suite = isAvailable ? test : test.skip; // no API server can be had on this machine
