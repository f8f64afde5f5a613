// What a rule or a verdict map decides about a packet.
import type { NetlinkWriter } from "./netlink-writer.ts";

export type Verdict =
  | { readonly kind: "accept" | "drop" | "return" | "continue" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

const CODE: Readonly<Record<Verdict["kind"], number>> = {
  drop: 0,
  accept: 1,
  continue: -1,
  jump: -3,
  goto: -4,
  return: -5,
};
const NAME = new Map<number, Verdict["kind"]>(
  Object.entries(CODE).map(([name, code]) => [code, name as Verdict["kind"]]),
);

const NFTA_DATA_VERDICT = 2;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;

/** The verdict as a nested data attribute. */
export function writeVerdict(w: NetlinkWriter, attribute: number, verdict: Verdict): void {
  const data = w.beginNest(attribute);
  const nest = w.beginNest(NFTA_DATA_VERDICT);
  w.be32(NFTA_VERDICT_CODE, CODE[verdict.kind] >>> 0);
  if ("chain" in verdict) w.string(NFTA_VERDICT_CHAIN, verdict.chain);
  w.endNest(nest);
  w.endNest(data);
}

/** The verdict of a code the kernel sent; nothing for codes we never write (queue, break). */
export function verdictFromCode(code: number, chain: string | undefined): Verdict | undefined {
  const kind = NAME.get(code | 0);
  if (kind === undefined) return undefined;
  if (kind === "jump" || kind === "goto") return chain === undefined ? undefined : { kind, chain };
  return { kind };
}
