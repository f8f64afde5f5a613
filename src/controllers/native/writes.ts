// Finalizers and conditions of objects of the native API: read as they are now, changed, written with what was read.
import type { KubeApi, KubeObject } from "../../datastore/index.ts";
import { codeOf } from "../status-code.ts";

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

/** Sees to it that the object has the finalizer, or has it not. What is gone is fine. */
export function setFinalizer(
  api: KubeApi,
  path: string,
  change: { readonly finalizer: string; readonly isWanted: boolean },
  signal: AbortSignal,
): Promise<void> {
  const { finalizer, isWanted } = change;
  return changed(api, path, path, signal, (object) => {
    const present = object.metadata.finalizers ?? [];
    if (present.includes(finalizer) === isWanted) return undefined;
    // Nobody may be added to what is on its way out.
    if (isWanted && object.metadata.deletionTimestamp !== undefined) return undefined;
    const finalizers = isWanted ? [...present, finalizer] : present.filter((name) => name !== finalizer);
    return { ...object, metadata: { ...object.metadata, finalizers } };
  });
}

export function setCondition(
  api: KubeApi,
  path: string,
  condition: Omit<Condition, "lastTransitionTime">,
  signal: AbortSignal,
): Promise<void> {
  return changed(api, path, `${path}/status`, signal, (object) => {
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

async function changed(
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
      if (codeOf(error) === 404) return;
      if (codeOf(error) !== 409 || attempt >= 5) throw error;
    }
}
