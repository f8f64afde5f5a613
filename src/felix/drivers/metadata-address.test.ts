import { expect, test } from "bun:test";
import { createLogger } from "../../lib/log.ts";
import { findMetadataAddress } from "./metadata-address.ts";

const settings = {
  ClusterType: "openstack",
  MetadataAddr: "metadata.local",
  MetadataPort: 8775,
  InterfacePrefix: ["tap"],
};
const asked: string[] = [];
const said: string[] = [];
const logger = createLogger({ level: "debug", write: ({ level, sentence }) => void said.push(`${level} ${sentence}`) });
const find = (more: Partial<typeof settings> = {}) =>
  findMetadataAddress({ ...settings, ...more }, logger, async (name) => {
    asked.push(name);
    if (name !== "metadata.local") throw new Error("no such name");
    return "192.0.2.7";
  }).then((address) => address as string | undefined);

test("FD-061 the metadata service's name is looked up where there is one, and an unknown one is said", async () => {
  expect(await find()).toBe("192.0.2.7");
  expect(await find({ MetadataAddr: "192.0.2.8" })).toBeUndefined(); // needs no answer
  expect(await find({ MetadataAddr: "" })).toBeUndefined();
  expect(asked).toEqual(["metadata.local"]);
  expect(await find({ MetadataAddr: "elsewhere" })).toBeUndefined();
  expect(said).toHaveLength(1);
  expect(said[0]).toStartWith("warn the metadata service's name is unknown");
});
