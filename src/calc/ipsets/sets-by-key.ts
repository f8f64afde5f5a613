// Changes maps whose values are non-empty sets.

export function addTo<T>(sets: Map<string, Set<T>>, key: string, element: T): void {
  const set = sets.get(key);
  if (set === undefined) sets.set(key, new Set([element]));
  else set.add(element);
}

export function deleteFrom<T>(sets: Map<string, Set<T>>, key: string, element: T): void {
  const set = sets.get(key);
  if (set?.delete(element) === true && set.size === 0) sets.delete(key);
}
