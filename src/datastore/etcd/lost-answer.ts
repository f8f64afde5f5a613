// A write whose answer was lost: the server hung up, or was silent for too long. When it is bound to what was there before,
// it may be sent again, to another server too: it happens once at most, since having happened it is no longer allowed. Whether
// it was the lost one that happened is then seen by what is there.
import { Unavailable } from "../errors.ts";
import type { EtcdApi, EtcdCall } from "./api.ts";
import type { EtcdRow, Operation, TxnRequest, TxnResponse } from "./messages.ts";

/** @param request compares every key it writes, and reads them in the same order when it is refused */
export async function swap(api: EtcdApi, request: TxnRequest, call: EtcdCall): Promise<TxnResponse> {
  const answer = await api.txn(request, { ...call, repeatable: true });
  if (answer.succeeded || answer.wasLost !== true) return answer;
  const revision = writtenAt(request.success, answer);
  if (revision === undefined)
    throw new Unavailable("etcd", "the answer to a write was lost, and meanwhile others wrote the same");
  return { succeeded: true, revision, rows: [] };
}

/** The revision of the write, if all is there as it would have left it. */
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
