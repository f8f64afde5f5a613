// Skips the suites, with a message, if there is no executable of kube-apiserver. With REQUIRE_KUBERNETES=1 they fail
// instead.
import { test } from "bun:test";
import { findApiServer } from "./api-server.ts";

export const found = await findApiServer();
if ("missing" in found) {
  const message = `KUBERNETES TESTS SKIPPED: ${found.missing}`;
  if (process.env["REQUIRE_KUBERNETES"] === "1") throw new Error(message);
  console.error(message);
}
export const isAvailable = !("missing" in found);
export const suite = isAvailable ? test : test.skip; // there is no kube-apiserver on this machine
