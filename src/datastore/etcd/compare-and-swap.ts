// Sends compare-and-swap transactions, and again if an answer was lost (connection closed, or timeout). A repetition is
// safe: once the transaction has been executed, its comparison fails. If the comparison of a repeated transaction fails,
// the stored values show whether the first attempt was executed.
import { Unavailable } from "../errors.ts";
import type { EtcdApi, EtcdCall } from "./api.ts";
import type { EtcdRow, Operation, TxnRequest, TxnResponse } from "./messages.ts";

/** @param request compares every key that it writes, and reads them in the same order if a comparison fails */
export async function compareAndSwap(api: EtcdApi, request: TxnRequest, call: EtcdCall): Promise<TxnResponse> {
  const answer = await api.txn(request, { ...call, repeatable: true });
  if (answer.succeeded || answer.hadLostAnswer !== true) return answer;
  const revision = writtenAt(request.success, answer);
  if (revision === undefined)
    throw new Unavailable("etcd", "the answer to a write was lost, and the same keys were written by others since");
  return { succeeded: true, revision, rows: [] };
}

/** Returns the revision of the write if all keys have the values that it wrote. */
function writtenAt(operations: readonly Operation[], { rows, revision }: TxnResponse): number | undefined {
  const found = operations.map((operation, i) => ({ operation, row: rows[i]?.[0] }));
  if (!found.every(({ operation, row }) => isAsWritten(operation, row))) return undefined;
  const revisions = new Set(found.flatMap(({ row }) => (row === undefined ? [] : [row.revision])));
  const [written = revision] = revisions;
  return revisions.size <= 1 ? written : undefined;
}

function isAsWritten(operation: Operation, row: EtcdRow | undefined): boolean {
  switch (operation.type) {
    case "put":
      return row?.value === operation.put.value;
    case "delete":
      return row === undefined;
    case "range":
      return true;
  }
}
