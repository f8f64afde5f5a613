// The ports of one protocol, as few as say the same: names first as given, then numbers in order, runs as `first:last`.

export type PortValue = number | string;
export type PortMatch = { readonly name: string } | { readonly first: number; readonly last: number };

export function simplifyPorts(ports: readonly PortMatch[]): readonly PortValue[] {
  const names: string[] = [];
  const ranges: { first: number; last: number }[] = [];
  for (const port of ports) {
    if ("name" in port) names.push(port.name);
    else ranges.push({ ...port });
  }
  ranges.sort((a, b) => a.first - b.first || a.last - b.last);
  const merged: { first: number; last: number }[] = [];
  for (const range of ranges) {
    const previous = merged.at(-1);
    if (previous !== undefined && range.first <= previous.last + 1) previous.last = Math.max(previous.last, range.last);
    else merged.push(range);
  }
  return [...names, ...merged.map(({ first, last }) => (first === last ? first : `${first}:${last}`))];
}
