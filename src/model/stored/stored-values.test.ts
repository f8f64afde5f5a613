import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseCidr } from "../../lib/ip/ip.ts";
import { parseStoredPath } from "../keys/key-path.ts";
import type { StoredKey } from "../keys/keys.ts";
import { decodeValue, encodeValue } from "./stored-values.ts";
import { UnreadableValue } from "./unreadable-value.ts";

const cidr = parseCidr("10.65.0.0/30");
const blockKey = { type: "block", cidr } as const;
const affinityKey = { type: "blockAffinity", affinityType: "host", host: "n1", cidr } as const;

describe("DM-082 IPAM v2 values", () => {
  const blockText =
    '{"cidr":"10.65.0.0/30","affinity":"host:n1","affinity_claim_time":"2026-01-01T00:00:00Z","allocations":[0,null,null,null],' +
    '"unallocated":[1,2,3],"attributes":[{"handle_id":"net1.c0","secondary":{"node":"n1"}}],' +
    '"sequenceNumber":17446744073709551615,"sequenceNumberForAllocation":{"0":17446744073709551614},"deleted":false}';

  test("a decoded block is encoded to the same bytes, with exact 64-bit numbers", () => {
    const block = decodeValue(blockKey, blockText);
    expect(block).toEqual({
      cidr,
      affinity: "host:n1",
      affinityClaimTime: "2026-01-01T00:00:00Z",
      allocations: [0, null, null, null],
      unallocated: [1, 2, 3],
      attributes: [{ handleId: "net1.c0", secondary: { node: "n1" } }],
      sequenceNumber: 17446744073709551615n,
      sequenceNumberForAllocation: { "0": 17446744073709551614n },
      deleted: false,
    });
    expect(encodeValue(blockKey, block)).toBe(blockText);
  });

  test("a missing affinity or handle is written as null", () => {
    const text =
      '{"cidr":"10.65.0.0/30","affinity":null,"allocations":[0,null,null,null],"unallocated":[1,2,3],' +
      '"attributes":[{"handle_id":null,"secondary":null}],"sequenceNumber":3,"sequenceNumberForAllocation":{},"deleted":false}';
    expect(encodeValue(blockKey, decodeValue(blockKey, text))).toBe(text);
  });

  test("the hostAffinity of an old block is read as its affinity", () =>
    expect(decodeValue(blockKey, '{"cidr":"10.65.0.0/30","hostAffinity":"n1"}').affinity).toBe("host:n1"));

  test("affinities are encoded and decoded; an empty text is valid", () => {
    expect(decodeValue(affinityKey, "")).toEqual({ state: "", deleted: false });
    expect(decodeValue(affinityKey, '{"state":"confirmed"}')).toEqual({ state: "confirmed", deleted: false });
    expect(encodeValue(affinityKey, { state: "pending", deleted: false })).toBe('{"state":"pending","deleted":false}');
  });

  test("a handle's ID is taken from its key", () => {
    const key = { type: "ipamHandle", handleId: "h1" } as const;
    const text = '{"block":{"10.65.0.0/30":1},"deleted":false}';
    expect(decodeValue(key, text)).toEqual({ handleId: "h1", block: { "10.65.0.0/30": 1 }, deleted: false });
    expect(encodeValue(key, decodeValue(key, text))).toBe(text);
  });

  test("fields of the configuration that are false or zero are omitted", () => {
    const key = { type: "ipamConfig" } as const;
    expect(encodeValue(key, { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0 })).toBe(
      '{"auto_allocate_blocks":true}',
    );
    const text =
      '{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":20,"kubeVirtVMAddressPersistence":"Enabled","ipCooldownSeconds":30}';
    expect(encodeValue(key, decodeValue(key, text))).toBe(text);
  });

  test("an IPAM host marker may be empty", () => {
    expect(decodeValue({ type: "ipamHost", host: "n4" }, "")).toEqual({});
    expect(encodeValue({ type: "ipamHost", host: "n4" }, {})).toBe("{}");
  });
});

test("DM-083 DM-084 status values", () => {
  const status = { type: "felixStatus", region: "no-region", host: "n1", last: false } as const;
  const text = '{"time":"2026-01-01T00:00:00Z","uptime":1.5,"first_update":false}';
  expect(encodeValue(status, decodeValue(status, text))).toBe(text);
  const endpoint = { type: "hostEndpointStatus", host: "n1", endpoint: "h0" } as const;
  expect(encodeValue(endpoint, decodeValue(endpoint, '{"status":"down"}'))).toBe('{"status":"down"}');
});

describe("DM-092 a policy's name is stored in an annotation that users do not see", () => {
  const key = { type: "resource", kind: "GlobalNetworkPolicy", name: "t.deny" } as const;
  const stored =
    '{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"t.deny","uid":"u","labels":{"a":"b"},' +
    '"annotations":{"projectcalico.org/metadata":"{\\"name\\":\\"t.deny\\"}"}},"spec":{"tier":"t","order":1}}';
  test("encoding adds the annotation, decoding removes it", () => {
    const policy = decodeValue(key, stored);
    expect(policy.metadata).toEqual({ name: "t.deny", uid: "u", labels: { a: "b" } });
    expect(encodeValue(key, policy)).toBe(stored);
  });
  const names = [
    ["default.deny", { spec: {} }, "deny"],
    ["default.deny", { spec: { tier: "default" } }, "deny"],
    [
      "default.deny",
      { metadata: { annotations: { "projectcalico.org/metadata": '{"name":"default.deny"}' } } },
      "default.deny",
    ],
    ["default.deny", { metadata: { annotations: { "projectcalico.org/metadata": '{"name":"deny"}' } } }, "deny"],
    ["t.deny", { spec: { tier: "t" } }, "t.deny"],
    ["knp.default.web", { spec: {} }, "knp.default.web"],
    ["default.", { spec: {} }, "default."],
    ["deny", { metadata: { annotations: { "projectcalico.org/metadata": "rubbish" } } }, "deny"],
  ] as const;
  for (const [name, object, want] of names)
    test(`DM-043 DM-044 DM-045 ${name} ${JSON.stringify(object)} is ${want}`, () =>
      expect(decodeValue({ ...key, name }, JSON.stringify(object)).metadata.name).toBe(want));
});

test("DM-081 a resource is stored completely, except for its revision", () => {
  const key = { type: "resource", kind: "IPPool", name: "p" } as const;
  const text = encodeValue(key, {
    apiVersion: "projectcalico.org/v3",
    kind: "IPPool",
    metadata: { resourceVersion: "7", uid: "u", name: "p", labels: {}, annotations: { note: "x" } },
    spec: { cidr: "10.0.0.0/16", big: 9007199254740993n },
  });
  expect(text).toBe(
    '{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p","uid":"u","annotations":{"note":"x"}},' +
      '"spec":{"cidr":"10.0.0.0/16","big":9007199254740993}}',
  );
  expect(decodeValue(key, text).spec).toEqual({ cidr: "10.0.0.0/16", big: 9007199254740993n });
});

describe("a stored value that does not parse is rejected, naming the field", () => {
  const cases: readonly (readonly [StoredKey, string, string])[] = [
    [blockKey, "", "not JSON"],
    [blockKey, "[]", "want a JSON object"],
    [blockKey, '{"cidr":"x"}', "cidr"],
    [blockKey, '{"cidr":"10.0.0.0/30","allocations":{}}', "allocations: want a list"],
    [blockKey, '{"cidr":"10.0.0.0/30","allocations":["0"]}', "allocations[0]"],
    [blockKey, '{"cidr":"10.0.0.0/30","sequenceNumber":1.5}', "sequenceNumber"],
    [blockKey, '{"cidr":"10.0.0.0/30","attributes":[{"secondary":{"a":1}}]}', "secondary.a"],
    [affinityKey, '{"state":"maybe"}', "state"],
    [affinityKey, '{"deleted":"true"}', "deleted"],
    [{ type: "hostEndpointStatus", host: "n1", endpoint: "h" }, "{}", "status"],
    [{ type: "resource", kind: "Node", name: "n1" }, '{"kind":"IPPool"}', "kind"],
    [{ type: "resource", kind: "Node", name: "n1" }, '{"metadata":{"labels":{"a":1}}}', "metadata.labels.a"],
    [{ type: "resource", kind: "Node", name: "n1" }, '{"metadata"', "not JSON"],
  ];
  for (const [key, text, reason] of cases)
    test(`${key.type} ${text}`, () => {
      expect(() => decodeValue(key, text)).toThrow(UnreadableValue);
      expect(() => decodeValue(key, text)).toThrow(reason);
    });
});

// --- recordings --------------------------------------------------------------------------------------------------
const recordings = join(import.meta.dir, "../../../../shared/golden");
if (!existsSync(recordings)) console.log("stored values: no recordings next to the checkout, not compared");
else
  test("every recorded value decodes, and is encoded to the same object", () => {
    let compared = 0;
    for (const file of readdirSync(recordings, { recursive: true, encoding: "utf8" })) {
      if (!/^(ipam|datamodel)\//.test(file)) continue; // others also contain values that Calico did not store
      if (!file.endsWith(".json")) continue;
      for (const [path, value] of storedValues(JSON.parse(readFileSync(join(recordings, file), "utf8")))) {
        const key = parseStoredPath(path);
        if (key === undefined) throw new Error(`${file}: ${path} is not a key`);
        const normal = JSON.stringify(value).replaceAll(/"SEQ\+(\d+)"/g, "1784674407370955$1");
        if (key.type === "resource" && JSON.parse(normal).kind === undefined) continue;
        const again = JSON.parse(encodeValue(key, decodeValue(key, normal) as never)) as {
          metadata?: { name?: string };
        };
        const want = JSON.parse(normal) as { metadata?: { name?: string; annotations?: object } };
        if (key.type === "resource" && want.metadata?.name?.startsWith("default.")) continue; // userPolicyName renames it
        delete want.metadata?.annotations;
        delete (again.metadata as { annotations?: object } | undefined)?.annotations;
        expect({ path, value: again }).toEqual({ path, value: want } as never);
        compared++;
      }
    }
    expect(compared).toBeGreaterThan(500);
  });

function* storedValues(json: unknown): Generator<[string, unknown]> {
  if (typeof json !== "object" || json === null) return;
  for (const [name, value] of Object.entries(json)) {
    if (/^\/calico\/(resources|ipam|felix)\/.+\/./.test(name) && typeof value === "object" && value !== null)
      yield [name, value];
    else yield* storedValues(value);
  }
}
