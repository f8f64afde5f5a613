// Writes are for the replica that leads, and for no one who led a moment ago: a process that was held up (a stopped
// machine, a slow disk) asks once more, right before it writes, whether its lease still stands.
import type { Datastore, KubeApi } from "../datastore/index.ts";

const STORE_WRITES: ReadonlySet<string> = new Set(["create", "update", "apply", "delete", "compact"]);

export class NotLeading extends Error {
  override readonly name = "NotLeading";
  constructor() {
    super("another replica may be doing the work: nothing written");
  }
}

/** @param mayWork asked before every write */
export const fencedStore = (store: Datastore, mayWork: () => boolean): Datastore =>
  fenced(store, (method) => STORE_WRITES.has(method), mayWork);

export const fencedApi = (api: KubeApi, mayWork: () => boolean): KubeApi =>
  fenced(
    api,
    (method, [request]) => method === "json" && (request as { readonly method?: string } | undefined)?.method !== "GET",
    mayWork,
  );

function fenced<T extends object>(
  target: T,
  isWrite: (method: string, args: readonly unknown[]) => boolean,
  mayWork: () => boolean,
): T {
  return new Proxy(target, {
    get(_, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== "function") return value;
      return (...args: unknown[]): unknown => {
        if (isWrite(String(property), args) && !mayWork()) return Promise.reject(new NotLeading());
        return Reflect.apply(value, target, args);
      };
    },
  });
}
