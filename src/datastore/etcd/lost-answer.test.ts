import { expect, test } from "bun:test";
import { Unavailable } from "../errors.ts";
import type { EtcdApi } from "./api.ts";
import { swap } from "./lost-answer.ts";
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
const refused = (rows: TxnResponse["rows"], wasLost = true): TxnResponse => ({
  succeeded: false,
  revision: 99,
  rows,
  wasLost,
});
const ours = [[row("a", "1", 7)], [row("b", "2", 7)], []];

test("what is there as the lost write would have left it was written by it", async () => {
  expect(await swap(answering(refused(ours)), request, {})).toMatchObject({ succeeded: true, revision: 7 });
  const gone: TxnRequest = { ...request, success: request.success.slice(2) };
  expect(await swap(answering(refused([[]])), gone, {})).toMatchObject({ succeeded: true, revision: 99 });
});

test("a refusal is one when no answer was lost, whatever is there", async () => {
  expect(await swap(answering(refused(ours, false)), request, {})).toMatchObject({ succeeded: false });
});

const others: [name: string, rows: TxnResponse["rows"]][] = [
  ["another value", [[row("a", "x", 7)], [row("b", "2", 7)], []]],
  ["a part is missing", [[row("a", "1", 7)], [], []]],
  ["the deleted one is there", [[row("a", "1", 7)], [row("b", "2", 7)], [row("c", "3", 3)]]],
  ["the same values, written one by one", [[row("a", "1", 7)], [row("b", "2", 8)], []]],
];
for (const [name, rows] of others)
  test(`nobody knows what became of the lost write: ${name}`, async () => {
    const outcome = await swap(answering(refused(rows)), request, {}).catch((error: unknown) => error);
    expect(outcome).toBeInstanceOf(Unavailable);
  });
