import { expect, test } from "bun:test";
import { findEndpoints } from "./endpoints.ts";

const find = (text: string) => findEndpoints({ type: "etcdv3", endpoints: [text] });

test("an endpoint with a user is rejected, and its password is not printed", async () => {
  for (const text of ["http://felix:hunter2@a:2379", "felix:hunter2@a:2379", "https://felix:hunter2@"]) {
    const error = String(await find(text).catch((each: unknown) => each));
    expect(error).toContain("set ETCD_USERNAME and ETCD_PASSWORD instead");
    expect(error).not.toContain("hunter2");
  }
  expect(await find("[fd00::1]:2379")).toEqual([
    { url: "http://[fd00::1]:2379", secure: false, host: "[fd00::1]", port: 2379 },
  ]);
});
