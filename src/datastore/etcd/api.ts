// Defines the part of etcd's API that the driver uses, for two transports: gRPC (daemons) and the JSON gateway (commands).
import type { RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreate, WatchResponse } from "./messages.ts";

export interface EtcdCall {
  readonly signal?: AbortSignal;
}
export interface EtcdApi {
  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse>;
  /** @param call.repeatable the transaction may be sent again if its answer was lost, because a repetition has no effect */
  txn(request: TxnRequest, call: EtcdCall & { readonly repeatable: boolean }): Promise<TxnResponse>;
  /** Returns the ID of a new lease. */
  grantLease(ttlSeconds: number, call: EtcdCall): Promise<bigint>;
  compact(revision: number, call: EtcdCall): Promise<void>;
  /** Resolves when the server has accepted the watch. */
  openWatch(create: WatchCreate, signal: AbortSignal): Promise<EtcdWatchStream>;
  close(): Promise<void>;
}

export interface EtcdWatchStream {
  /** The server's revision when it accepted the watch. */
  readonly revision: number;
  /** Returns undefined after `close`; throws if the stream failed. */
  next(): Promise<WatchResponse | undefined>;
  close(): void;
}
