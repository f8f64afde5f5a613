import { expect, test } from "bun:test";
import { staleManifests } from "./manifests.ts";

test("the custom resource definitions are those the schemas make", async () => {
  expect(await staleManifests()).toEqual([]);
});
