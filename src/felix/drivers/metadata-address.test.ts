import { expect, test } from "bun:test";
import { createLogger } from "../../lib/log/log.ts";
import { findMetadataAddress } from "./metadata-address.ts";

const settings = {
  ClusterType: "openstack",
  MetadataAddr: "metadata.local",
  MetadataPort: 8775,
  InterfacePrefix: ["tap"],
};
const lookups: string[] = [];
const logged: string[] = [];
const logger = createLogger({ level: "debug", write: ({ level, message }) => void logged.push(`${level} ${message}`) });
const find = (more: Partial<typeof settings> = {}) =>
  findMetadataAddress({ ...settings, ...more }, logger, async (name) => {
    lookups.push(name);
    if (name !== "metadata.local") throw new Error("no such name");
    return "192.0.2.7";
  }).then((address) => address as string | undefined);

test("FD-061 resolves the host name of the metadata service, and logs a warning if the lookup fails", async () => {
  expect(await find()).toBe("192.0.2.7");
  expect(await find({ MetadataAddr: "192.0.2.8" })).toBeUndefined(); // already an address
  expect(await find({ MetadataAddr: "" })).toBeUndefined();
  expect(lookups).toEqual(["metadata.local"]);
  expect(await find({ MetadataAddr: "elsewhere" })).toBeUndefined();
  expect(logged).toHaveLength(1);
  expect(logged[0]).toStartWith("warn cannot resolve MetadataAddr");
});
