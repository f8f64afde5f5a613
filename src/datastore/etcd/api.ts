// What the driver asks of etcd, whichever way the bytes travel: gRPC for daemons, the JSON gateway for one-shots.
import type { RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreate, WatchResponse } from "./messages.ts";

export interface EtcdCall {
  readonly signal?: AbortSignal;
}
export interface EtcdApi {
  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse>;
  /** @param call.repeatable applying it twice is the same as once: it may be sent again when an answer was lost */
  txn(request: TxnRequest, call: EtcdCall & { readonly repeatable: boolean }): Promise<TxnResponse>;
  /** A lease that ends after so long. */
  grantLease(ttlSeconds: number, call: EtcdCall): Promise<bigint>;
  compact(revision: number, call: EtcdCall): Promise<void>;
  /** Resolves when the server has accepted it. */
  openWatch(create: WatchCreate, signal: AbortSignal): Promise<EtcdWatchStream>;
  close(): Promise<void>;
}

export interface EtcdWatchStream {
  /** Where the server stood when it accepted. */
  readonly revision: number;
  /** Nothing when the stream was closed by us; throws when it broke. */
  next(): Promise<WatchResponse | undefined>;
  close(): void;
}
