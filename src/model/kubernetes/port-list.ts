// Merges the ports of one protocol: names first, in the given order, then numbers in ascending order, consecutive ones as
// `first:last`. A list with at most one number is not changed. The result must equal that of Calico's controller;
// otherwise the two controllers would overwrite each other's policies in a cluster that runs both.

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
