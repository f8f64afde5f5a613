// The ports of one protocol, as few as say the same: names first as given, then numbers in order, runs as `first:last`.
// Where there is at most one number there is nothing to make fewer, and the order stays: what our controller stores must
// be what the original's would, or two of them in one cluster would correct each other for ever.

export type PortValue = number | string;
export type PortMatch = { readonly name: string } | { readonly first: number; readonly last: number };

export function simplifyPorts(ports: readonly PortMatch[]): readonly PortValue[] {
  const count = ports.reduce((sum, port) => sum + ("name" in port ? 0 : port.last - port.first + 1), 0);
  if (ports.length <= 1 || count <= 1) return ports.map((port) => ("name" in port ? port.name : rangeText(port)));
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
  return [...names, ...merged.map(rangeText)];
}

const rangeText = ({ first, last }: { readonly first: number; readonly last: number }): PortValue =>
  first === last ? first : `${first}:${last}`;
