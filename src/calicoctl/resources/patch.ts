// Strategic merge as Kubernetes defines it, for types without merge keys: objects merge field by field, null removes,
// lists are replaced, and `$patch` says otherwise (`replace`, `delete`) for the object that holds it.
// https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/

type JsonObject = Readonly<Record<string, unknown>>;

export const isPatch = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function strategicMerge(target: unknown, patch: JsonObject): unknown {
  const { $patch: directive, ...changes } = patch;
  if (directive === "delete") return undefined;
  if (directive === "replace") return withoutDirectives(changes);
  const merged: Record<string, unknown> = { ...(isPatch(target) ? target : {}) };
  for (const [key, change] of Object.entries(changes)) {
    const value = mergeField(merged[key], change);
    if (value === undefined) delete merged[key];
    else merged[key] = value;
  }
  return merged;
}

function mergeField(current: unknown, change: unknown): unknown {
  if (change === null) return undefined;
  return isPatch(change) ? strategicMerge(current, change) : change;
}

/** A part that is new has nothing to remove. */
function withoutDirectives(value: unknown): unknown {
  if (!isPatch(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, item]) => key !== "$patch" && item !== null)
      .map(([key, item]) => [key, withoutDirectives(item)]),
  );
}
