// Sets finalizers and conditions of objects of the native API: reads the object, changes it, and writes it with the resource
// version that was read.
import type { KubeApi, KubeObject } from "../../datastore/index.ts";
import { httpStatusOf } from "../http-status.ts";

export const NATIVE = "/apis/projectcalico.org/v3";

export interface Condition {
  readonly type: string;
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime?: string;
}
export interface NativeObject extends KubeObject {
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly status?: { readonly conditions?: readonly Condition[] };
}

/** Adds or removes the finalizer. A missing object is not an error. */
export function setFinalizer(
  api: KubeApi,
  path: string,
  change: { readonly finalizer: string; readonly isDesired: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { finalizer, isDesired } = change;
  return updateObject(api, path, path, signal, (object) => {
    const present = object.metadata.finalizers ?? [];
    if (present.includes(finalizer) === isDesired) return undefined;
    // The API server rejects a new finalizer on an object that is being deleted.
    if (isDesired && object.metadata.deletionTimestamp !== undefined) return undefined;
    const finalizers = isDesired ? [...present, finalizer] : present.filter((name) => name !== finalizer);
    return { ...object, metadata: { ...object.metadata, finalizers } };
  });
}

export function setCondition(
  api: KubeApi,
  path: string,
  condition: Omit<Condition, "lastTransitionTime">,
  signal: AbortSignal,
): Promise<void> {
  return updateObject(api, path, `${path}/status`, signal, (object) => {
    const conditions = object.status?.conditions ?? [];
    const before = conditions.find(({ type }) => type === condition.type);
    const { status, reason, message } = condition;
    if (before?.status === status && before.reason === reason && before.message === message) return undefined;
    const lastTransitionTime =
      (before?.status === status ? before.lastTransitionTime : undefined) ??
      new Date().toISOString().replace(/\.\d+Z$/, "Z");
    const others = conditions.filter(({ type }) => type !== condition.type);
    return {
      ...object,
      status: { ...object.status, conditions: [...others, { ...condition, lastTransitionTime }] },
    };
  });
}

async function updateObject(
  api: KubeApi,
  path: string,
  target: string,
  signal: AbortSignal,
  change: (object: NativeObject) => NativeObject | undefined,
): Promise<void> {
  for (let attempt = 0; ; attempt++)
    try {
      const body = change(await api.get<NativeObject>(path, { signal }));
      if (body !== undefined) await api.json({ method: "PUT", path: target, body, signal });
      return;
    } catch (error) {
      if (httpStatusOf(error) === 404) return;
      if (httpStatusOf(error) !== 409 || attempt >= 5) throw error;
    }
}
