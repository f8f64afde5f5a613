import { expect, test } from "bun:test";
import { Unavailable } from "../errors.ts";
import type { EtcdApi } from "./api.ts";
import { compareAndSwap } from "./compare-and-swap.ts";
import type { EtcdRow, TxnRequest, TxnResponse } from "./messages.ts";

const row = (path: string, value: string, revision: number): EtcdRow => ({ path, value, revision, createRevision: 1 });
const request: TxnRequest = {
  compare: [],
  success: [
    { type: "put", put: { key: "a", value: "1" } },
    { type: "put", put: { key: "b", value: "2" } },
    { type: "delete", delete: { key: "c" } },
  ],
  failure: [],
};
const answering = (answer: TxnResponse): EtcdApi => ({ txn: async () => answer }) as unknown as EtcdApi;
const comparisonFailed = (rows: TxnResponse["rows"], hadLostAnswer = true): TxnResponse => ({
  succeeded: false,
  revision: 99,
  rows,
  hadLostAnswer,
});
const written = [[row("a", "1", 7)], [row("b", "2", 7)], []];

test("a lost write was executed if the stored values are the written ones", async () => {
  expect(await compareAndSwap(answering(comparisonFailed(written)), request, {})).toMatchObject({
    succeeded: true,
    revision: 7,
  });
  const gone: TxnRequest = { ...request, success: request.success.slice(2) };
  expect(await compareAndSwap(answering(comparisonFailed([[]])), gone, {})).toMatchObject({
    succeeded: true,
    revision: 99,
  });
});

test("without a lost answer, a failed comparison is reported whatever the stored values are", async () => {
  expect(await compareAndSwap(answering(comparisonFailed(written, false)), request, {})).toMatchObject({
    succeeded: false,
  });
});

const others: [name: string, rows: TxnResponse["rows"]][] = [
  ["another value", [[row("a", "x", 7)], [row("b", "2", 7)], []]],
  ["a part is missing", [[row("a", "1", 7)], [], []]],
  ["the deleted key exists", [[row("a", "1", 7)], [row("b", "2", 7)], [row("c", "3", 3)]]],
  ["the same values at different revisions", [[row("a", "1", 7)], [row("b", "2", 8)], []]],
];
for (const [name, rows] of others)
  test(`the outcome of the lost write is unknown: ${name}`, async () => {
    const outcome = await compareAndSwap(answering(comparisonFailed(rows)), request, {}).catch(
      (error: unknown) => error,
    );
    expect(outcome).toBeInstanceOf(Unavailable);
  });
