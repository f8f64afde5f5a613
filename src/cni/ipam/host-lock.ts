// Locks the addresses of this host, so that one process changes them at a time. Correctness does not depend on this lock: the
// compare-and-swap of the block decides between two writers. The lock only prevents conflicts between pods of one host.
// README.md gives the order of all locks.
import { lockFile } from "../../kernel/index.ts";
import { untilAborted } from "../../lib/retry.ts";
import type { IpamContext } from "../context.ts";

const LOCK_WAIT_MS = 60_000;

/** Runs `action` under the mutex of this process and the file lock shared with other processes. Must not be nested. */
export function lockAddresses<T>(context: IpamContext, action: () => Promise<T>): Promise<T> {
  return context.mutex.run("addresses", context.signal, async () => {
    using _lock = await lockSharedFile(context);
    return untilAborted(action(), context.signal);
  });
}

async function lockSharedFile({ conf, log, signal }: IpamContext): Promise<Disposable | undefined> {
  try {
    const limit = AbortSignal.timeout(LOCK_WAIT_MS);
    return await lockFile(conf.ipamLockFile, {
      signal: signal === undefined ? limit : AbortSignal.any([limit, signal]),
    });
  } catch (error) {
    signal?.throwIfAborted();
    log.warn("continuing without the IPAM lock of this host", { file: conf.ipamLockFile, error });
    return undefined;
  }
}
