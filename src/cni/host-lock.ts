// One change of addresses at a time per host keeps its pods out of each other's way; correctness does not depend on it.
import { lockFile } from "../kernel/index.ts";
import { untilAborted } from "../lib/retry.ts";
import type { IpamContext } from "./ipam-plugin.ts";

const LOCK_WAIT_MS = 60_000;

/** Not to be nested: who holds it would wait for itself. */
export function locked<T>(context: IpamContext, action: () => Promise<T>): Promise<T> {
  const inLock = (): Promise<T> => withHostLock(context, action);
  return context.serialise === undefined ? inLock() : context.serialise(inLock, context.signal);
}

async function withHostLock<T>(context: IpamContext, action: () => Promise<T>): Promise<T> {
  let lock: Disposable | undefined;
  try {
    const take = context.hostLock ?? lockFile;
    const long = AbortSignal.timeout(LOCK_WAIT_MS);
    const signal = context.signal === undefined ? long : AbortSignal.any([long, context.signal]);
    lock = await take(context.conf.ipamLockFile, { signal });
  } catch (error) {
    context.signal?.throwIfAborted();
    context.log.warn("Going on without the host's IPAM lock", { file: context.conf.ipamLockFile, error });
  }
  try {
    return await untilAborted(action(), context.signal);
  } finally {
    lock?.[Symbol.dispose]();
  }
}
