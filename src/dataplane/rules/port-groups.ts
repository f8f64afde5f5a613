// Splits ports into groups for the multiport match of iptables, which has 15 slots. A range needs two slots.
import type { PortRange } from "./rule.ts";

const MULTIPORT_SLOTS = 15;
export function splitPorts(ranges: readonly PortRange[]): PortRange[][] {
  const groups: PortRange[][] = [];
  let free = 0;
  for (const range of ranges) {
    const slots = range.first === range.last ? 1 : 2;
    if (groups.length === 0 || free < slots) {
      groups.push([]);
      free = MULTIPORT_SLOTS;
    }
    groups.at(-1)?.push(range);
    free -= slots;
  }
  return groups;
}
