import { expect, test } from "bun:test";
import type { EtcdApi } from "./api.ts";
import type { EtcdRow, RangeRequest, TxnRequest } from "./messages.ts";
import { ReadBatch } from "./read-batch.ts";

/** Answers every range with rows named after its key, and records the requests. */
function counting(rowsPerKey = 1) {
  const asked: string[] = [];
  const rows = ({ key, limit = 9999 }: RangeRequest) =>
    Array.from(
      { length: Math.min(limit, rowsPerKey) },
      (_, i) => ({ path: `${key}${i}`, value: "", modRevision: 7 }) as unknown as EtcdRow,
    );
  const api = {
    range: async (request: RangeRequest) => {
      asked.push(`range ${request.key}`);
      return { rows: rows(request), more: false, revision: 7 };
    },
    txn: async ({ success }: TxnRequest) => {
      asked.push(`txn ${success.length}`);
      return { succeeded: true, revision: 7, rows: success.map((op) => (op.type === "range" ? rows(op.range) : [])) };
    },
  } as unknown as EtcdApi;
  return { api, asked };
}

test("reads of one turn of the event loop are sent as one transaction", async () => {
  const { api, asked } = counting();
  const batch = new ReadBatch(api);
  const answers = await Promise.all(["a", "b", "c"].map((key) => batch.range({ key }, {})));
  expect(answers.map(({ rows }) => rows[0]?.path)).toEqual(["a0", "b0", "c0"]);
  expect(asked).toEqual(["txn 3"]);
});

test("a single read is sent as a plain read, and later reads are not batched with it", async () => {
  const { api, asked } = counting();
  const batch = new ReadBatch(api);
  await batch.range({ key: "a" }, {});
  await batch.range({ key: "b" }, {});
  expect(asked).toEqual(["range a", "range b"]);
});

test("reads with different signals are not batched; too many reads are sent in several batches", async () => {
  const { api, asked } = counting();
  const batch = new ReadBatch(api);
  const { signal } = new AbortController();
  await Promise.all([batch.range({ key: "a" }, {}), batch.range({ key: "b" }, { signal })]);
  expect(asked).toEqual(["range a", "range b"]);
  await Promise.all(Array.from({ length: 70 }, (_, i) => batch.range({ key: String(i) }, {})));
  expect(asked.slice(2)).toEqual(["txn 32", "txn 32", "txn 6"]);
});

test("a full page is reported as possibly not the last", async () => {
  const { api } = counting(5);
  const batch = new ReadBatch(api);
  const [full, short] = await Promise.all([
    batch.range({ key: "a", limit: 5 }, {}),
    batch.range({ key: "b", limit: 6 }, {}),
  ]);
  expect([full?.more, short?.more]).toEqual([true, false]);
});

test("a failure rejects all reads of the batch", async () => {
  const api = { txn: () => Promise.reject(new Error("gone")) } as unknown as EtcdApi;
  const batch = new ReadBatch(api);
  const results = await Promise.allSettled([batch.range({ key: "a" }, {}), batch.range({ key: "b" }, {})]);
  expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});
